"""In a framework with gradients: transformers with torch; GPT-2's training step in jax."""

from __future__ import annotations

from typing import Any

from benchmarking import BETAS, CLIP, DECAY, LEARNING_RATE, Step, Work


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
    """A step with AdamW, as npgpt's `train` and transformers' Trainer make it."""
    import torch

    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=LEARNING_RATE, betas=BETAS, fused=True,
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


def loss_of(params: dict[str, Any], ids: Any, config: Any) -> Any:
    """GPT-2's mean loss over ids [B, T + 1], the model written out for jax."""
    import jax
    import jax.numpy as jnp

    def linear(x: Any, name: str) -> Any:
        return x @ params[f"{name}.weight"] + params[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        x -= x.mean(-1, keepdims=True)
        x *= jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + config.layer_norm_epsilon)
        return x * params[f"{name}.weight"] + params[f"{name}.bias"]

    T = ids.shape[1] - 1
    x = params["wte.weight"][ids[:, :-1]] + params["wpe.weight"][:T]
    for n in range(config.n_layer):
        h = f"h.{n}"
        qkv = jnp.split(linear(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn"), 3, -1)
        q, k, v = (each.reshape(len(ids), T, config.n_head, -1) for each in qkv)
        context = jax.nn.dot_product_attention(q, k, v, is_causal=True)  # [B, T, H, d_h]
        x += linear(context.reshape(x.shape), f"{h}.attn.c_proj")
        hidden = jax.nn.gelu(linear(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc"))  # the tanh form
        x += linear(hidden, f"{h}.mlp.c_proj")
    logits = norm(x, "ln_f") @ params["wte.weight"].T
    scores = jnp.take_along_axis(logits, ids[:, 1:, None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - scores).mean()


def in_jax(work: Work, folder: str) -> Step:
    """Forward, backward and update, compiled as a whole."""
    import jax
    import jax.numpy as jnp

    import npgpt

    model = npgpt.from_pretrained(folder)
    config, ids = model.config, jnp.array(work.ids(model.config.vocab_size))
    state, t = {n: (jnp.array(p), *jnp.zeros((2, *p.shape))) for n, p in model.params.items()}, 0
    del model  # its memory is not jax's

    def adamw(p: Any, g: Any, m: Any, v: Any, t: Any) -> tuple[Any, Any, Any]:
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g**2
        update = m / (1 - BETAS[0] ** t) / (jnp.sqrt(v / (1 - BETAS[1] ** t)) + 1e-8)
        return p - LEARNING_RATE * (update + (DECAY if p.ndim > 1 else 0) * p), m, v

    def training_step(state: dict[str, Any], t: Any) -> tuple[dict[str, Any], Any]:
        params = {name: each[0] for name, each in state.items()}
        loss, grads = jax.value_and_grad(loss_of)(params, ids, config)
        length = jnp.sqrt(sum(jnp.vdot(g, g) for g in grads.values()))
        clip = jnp.minimum(1, CLIP / (length + 1e-6))
        return {n: adamw(p, clip * grads[n], m, v, t) for n, (p, m, v) in state.items()}, loss

    compiled = jax.jit(training_step, donate_argnums=0)

    def step(*_: int) -> float:
        nonlocal state, t
        t += 1
        state, loss = jax.block_until_ready(compiled(state, t))
        return float(loss)

    return step
