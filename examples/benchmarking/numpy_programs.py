"""In NumPy: npgpt; its matrix products with nothing around them; picoGPT."""

from __future__ import annotations

import math
import sys
from typing import Any

from benchmarking import BETAS, CLIP, DECAY, LEARNING_RATE, Step, Work


def in_npgpt(work: Work, folder: str) -> Step:
    import npgpt
    from npgpt.cli import keep_freed_memory

    keep_freed_memory()  # as all commands of npgpt do
    model = npgpt.from_pretrained(folder)
    ids = work.ids(model.config.vocab_size)
    if work.kind == "train":
        return training(model, work, ids)
    if work.kind == "prefill":
        return lambda *_: prefilled(model, ids)
    return lambda new, checking: decoded(model, ids, new, checking)


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


def training(model: Any, work: Work, ids: Any) -> Step:
    from npgpt.train.optim import new_adamw_state
    from npgpt.train.steps import Recipe, training_step

    state = new_adamw_state(model.params)
    recipe = Recipe(
        steps=1, batch_size=work.B, grad_accum=1, context=work.T, lr=LEARNING_RATE, min_lr=0.0,
        warmup=0, weight_decay=DECAY, beta1=BETAS[0], beta2=BETAS[1], clip=CLIP, dropout=0.0,
        seed=0,
    )  # fmt: skip
    batches = [(ids[:, :-1], ids[:, 1:])]
    return lambda *_: training_step(model, state, batches, recipe, 1).loss


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


def in_picogpt(work: Work, folder: str, checkout: str) -> Step:
    """Its own code on the same weights, nested as it wants them."""
    from types import SimpleNamespace

    import numpy as np

    import npgpt

    sys.path.insert(0, checkout)
    import gpt2  # type: ignore[import-not-found]

    # It was written for NumPy 1, where the root of a number left an array in float32. In NumPy 2
    # that root would make everything float64, which takes two thirds more time.
    roots = {"sqrt": lambda x: np.sqrt(x) if isinstance(x, np.ndarray) else math.sqrt(x)}
    gpt2.np = SimpleNamespace(**{**vars(np), **roots})
    model = npgpt.from_pretrained(folder)
    tree: dict[str, Any] = {"blocks": [{} for _ in range(model.config.n_layer)]}
    for name, array in model.params.items():
        *path, leaf = name.split(".")
        node = tree["blocks"][int(path[1])] if path[0] == "h" else tree
        for part in path[2:] if path[0] == "h" else path:
            node = node.setdefault(part, {})
        node["g" if leaf == "weight" and "ln" in path[-1] else leaf[0]] = array
    tree["wte"], tree["wpe"] = tree["wte"]["w"], tree["wpe"]["w"]
    prompt = work.ids(model.config.vocab_size)[0].tolist()

    def step(new: int, _: bool) -> Any:
        ids = list(prompt)
        for _ in range(new):  # no cache: the whole text each time
            logits = gpt2.gpt2(ids, **tree, n_head=model.config.n_head)[-1:]
            ids.append(int(np.argmax(logits)))
        return logits

    return step
