"""One kind of work of `benchmark.py`, done by one program, alone in its process.

    python examples/benchmark_work.py WORK PROGRAM FOLDER REPEATS [PICOGPT]

Prints a line of JSON: seconds of each repeat after one that does not count, and the peak of memory.
FOLDER holds the model that all programs load; PICOGPT is a checkout of picoGPT.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Step = Callable[[], object]
NEW = 64  # tokens that `decode` adds to a prompt of PROMPT
PROMPT = 32
LEARNING_RATE, BETAS, DECAY, CLIP = 1e-4, (0.9, 0.95), 0.1, 1.0


def ids_of(vocab_size: int, *shape: int) -> np.ndarray:
    """The same random text for all programs."""
    import numpy as np  # after npgpt, which sets up NumPy's threads as its commands do

    return np.random.default_rng(1).integers(0, vocab_size, shape)


def in_npgpt(work: str, numbers: list[int], folder: str) -> Step:
    import npgpt
    from npgpt.cli import keep_freed_memory
    from npgpt.train.optim import new_adamw_state
    from npgpt.train.steps import Recipe, training_step

    keep_freed_memory()  # as all commands of npgpt do
    model = npgpt.from_pretrained(folder)
    V = model.config.vocab_size
    if work == "first":
        return lambda: list(model.generate(ids_of(V, PROMPT), 1))
    if work == "decode":
        return lambda: list(model.generate(ids_of(V, PROMPT), NEW, stop_ids=()))
    if work == "prefill":
        return lambda: model(ids_of(V, 1, *numbers), last_only=True)
    B, T = numbers
    ids, state = ids_of(V, B, T + 1), new_adamw_state(model.params)
    recipe = Recipe(
        steps=1, batch_size=B, grad_accum=1, context=T, lr=LEARNING_RATE, min_lr=0.0, warmup=0,
        weight_decay=DECAY, beta1=BETAS[0], beta2=BETAS[1], clip=CLIP, dropout=0.0, seed=0,
    )  # fmt: skip
    return lambda: training_step(model, state, [(ids[:, :-1], ids[:, 1:])], recipe, 1)


def in_transformers(work: str, numbers: list[int], folder: str) -> Step:
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder).eval()  # torch's fused attention, its default
    V = model.config.vocab_size

    def generate(new: int) -> object:
        ids = torch.from_numpy(ids_of(V, 1, PROMPT))
        return model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new,
            do_sample=False, pad_token_id=0,
        )  # fmt: skip

    @torch.no_grad()
    def prefill() -> object:
        return model(torch.from_numpy(ids_of(V, 1, *numbers)), logits_to_keep=1)

    if work in ("first", "decode"):
        return lambda: generate(1 if work == "first" else NEW)
    if work == "prefill":
        return prefill
    B, T = numbers
    ids = torch.from_numpy(ids_of(V, B, T + 1))
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=LEARNING_RATE, betas=BETAS,
    )  # fmt: skip

    def step() -> None:
        optimizer.zero_grad()
        logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()

    return step


def in_picogpt(work: str, numbers: list[int], folder: str, checkout: str) -> Step:
    """Its own code on the same weights, nested as it wants them."""
    import numpy as np

    import npgpt

    sys.path.insert(0, checkout)
    from gpt2 import gpt2  # type: ignore[import-not-found]

    model = npgpt.from_pretrained(folder)
    tree: dict[str, Any] = {"blocks": [{} for _ in range(model.config.n_layer)]}
    for name, array in model.params.items():
        *path, leaf = name.split(".")
        node = tree["blocks"][int(path[1])] if path[0] == "h" else tree
        for part in path[2:] if path[0] == "h" else path:
            node = node.setdefault(part, {})
        node["g" if leaf == "weight" and "ln" in path[-1] else leaf[0]] = array
    tree["wte"], tree["wpe"] = tree["wte"]["w"], tree["wpe"]["w"]
    V, n_head = model.config.vocab_size, model.config.n_head

    def decode() -> None:
        ids = ids_of(V, PROMPT).tolist()
        for _ in range(NEW):  # no cache: the whole text again for each token
            ids.append(int(np.argmax(gpt2(ids, **tree, n_head=n_head)[-1])))

    if work == "prefill":
        return lambda: gpt2(ids_of(V, *numbers), **tree, n_head=n_head)
    return decode


PROGRAMS: dict[str, Callable[..., Step]] = {
    "npgpt": in_npgpt,
    "transformers": in_transformers,
    "picoGPT": in_picogpt,
}


def peak_memory() -> int | None:
    """The most bytes that this process had; None on Windows, where Python cannot tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)  # bytes there, kibibytes elsewhere


def main(work: str, program: str, folder: str, repeats: str, *checkout: str) -> None:
    name, *numbers = work.split()
    step = PROGRAMS[program](name, [int(n) for n in numbers], str(Path(folder)), *checkout)
    step()
    seconds = []
    for _ in range(0 if name == "first" else int(repeats)):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    done = time.time()
    print(json.dumps({"seconds": seconds, "peak": peak_memory(), "done": done}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:  # show.py would end it, but its imports would count in "first"
        sys.exit(130)
