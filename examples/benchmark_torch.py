"""transformers with torch in `benchmark.py`."""

from __future__ import annotations

from typing import Any

from benchmark_works import BETAS, CLIP, DECAY, LEARNING_RATE, Step, Work


def in_transformers(work: Work, folder: str) -> Step:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = None  # never stops
    ids = torch.from_numpy(work.ids(model.config.vocab_size))
    if work.kind == "train":
        return training(model, ids)

    @torch.inference_mode()
    def prefill(*_: int) -> Any:
        return model(ids, logits_to_keep=1).logits[:, -1].numpy()

    def decode(new: int, checking: bool) -> Any:
        said = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False,
            pad_token_id=0, return_dict_in_generate=True, output_logits=checking,
        )  # fmt: skip
        return said.logits[-1].numpy() if checking else None

    return prefill if work.kind == "prefill" else decode


def training(model: Any, ids: Any) -> Step:
    """A step with AdamW, as npgpt's `train` does it."""
    import torch

    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=LEARNING_RATE, betas=BETAS, fused=True,  # as transformers' own Trainer has it
    )  # fmt: skip

    def step(*_: int) -> float:
        optimizer.zero_grad()
        logits = model(ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step
