"""npgpt in `benchmark.py`, and NumPy's matrix products alone, with nothing around them."""

from __future__ import annotations

from typing import Any

from benchmark_works import BETAS, CLIP, DECAY, LEARNING_RATE, Step, Work


def in_npgpt(work: Work, folder: str) -> Step:
    import npgpt
    from npgpt.cli import keep_freed_memory
    from npgpt.train.optim import new_adamw_state
    from npgpt.train.steps import Recipe, training_step

    keep_freed_memory()  # as all commands of npgpt do
    model = npgpt.from_pretrained(folder)
    ids = work.ids(model.config.vocab_size)
    if work.kind == "prefill":
        return lambda *_: prefilled(model, ids)
    if work.kind != "train":
        return lambda new, checking: decoded(model, ids, new, checking)
    state = new_adamw_state(model.params)
    recipe = Recipe(
        steps=1, batch_size=work.B, grad_accum=1, context=work.T, lr=LEARNING_RATE, min_lr=0.0,
        warmup=0, weight_decay=DECAY, beta1=BETAS[0], beta2=BETAS[1], clip=CLIP, dropout=0.0,
        seed=0,
    )  # fmt: skip
    batches = [(ids[:, :-1], ids[:, 1:])]
    return lambda *_: training_step(model, state, batches, recipe, 1).loss


def prefilled(model: Any, ids: Any) -> Any:
    """As before decoding: keys and values are kept, as the other programs keep them."""
    kv = model.new_kv_cache((len(ids),), ids.shape[1])
    return model(ids, kv=kv, last_only=True)[:, -1]


def decoded(model: Any, ids: Any, new: int, checking: bool) -> Any:
    """Decode; to compare, the logits of all that was read, without a cache."""
    tokens = list(model.generate(ids, new, stop_ids=()))
    if not checking:
        return None
    text = [[*row, *more] for row, *more in zip(ids, *tokens[:-1], strict=True)]
    return model(text, last_only=True)[:, -1]


def in_products(work: Work, folder: str) -> Step:
    """Nothing but the products with the weights, and with the head for the last token."""
    import npgpt

    # isort: split
    import numpy as np

    model = npgpt.from_pretrained(folder)
    rng, table = np.random.default_rng(0), model.params[model.head]
    tables = {model.TABLE, model.head, "wpe.weight"}
    matrices = [W for name, W in model.params.items() if W.ndim == 2 and name not in tables]
    inputs = {
        (rows, width): rng.standard_normal((rows, width), np.float32)
        for rows in (work.B * work.T, work.B)
        for width in {table.shape[1], *map(len, matrices)}
    }

    def read(rows: int) -> None:
        for W in matrices:
            inputs[rows, len(W)] @ W
        inputs[work.B, table.shape[1]] @ table.T

    def step(new: int, _: bool) -> None:
        read(work.B * work.T)
        for _ in range(new - 1):
            read(work.B)

    return step
