"""What the examples of chapters 8 to 11 and of the way back claim, and what breaks it."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgpt.ops.layer_norm import layer_norm_forward
from tests.examples.faults.kinds import (
    GPT2,
    LAYERS,
    OPS,
    RANDOM,
    Fault,
    Faults,
    a_little_off,
    instead,
    result,
    setting,
    with_parameter,
)


def unnormed(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    """A LayerNorm that only stretches and shifts."""
    return x * weight + bias, layer_norm_forward(x, weight, bias, eps=eps)[1]


def variance_over_d_minus_1(right: Any) -> Any:
    """The variance of a sample."""

    def faulty(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
        x_hat = x - x.mean(axis=-1, keepdims=True)
        rstd = 1 / np.sqrt(x.var(axis=-1, ddof=1, keepdims=True) + eps)
        return x_hat * rstd * weight + bias, (x_hat * rstd, rstd, weight)

    return faulty


def without_its_mean(right: Any) -> Any:
    """A LayerNorm that subtracts nothing."""

    def faulty(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
        rstd = 1 / np.sqrt(x.var(axis=-1, keepdims=True) + eps)
        return x * rstd * weight + bias, (x * rstd, rstd, weight)

    return faulty


def last_one_wins(dy: Any, saved: Any, *, add_to: Any = None) -> Any:
    """A lookup's gradient that does not add up ids that come twice."""
    ids, shape = saved
    dtable = np.zeros(shape, dy.dtype) if add_to is None else add_to
    dtable[ids] += dy
    return dtable


def without_the_head(right: Any) -> Any:
    """A lookup's gradient that takes the place of the lm_head's."""
    return lambda dy, saved, *, add_to=None: right(dy, saved)


def every_row(right: Any) -> Any:
    """A lookup's gradient that touches the rows that were not read."""
    return lambda dy, saved, *, add_to=None: right(dy, saved, add_to=add_to) + 1e-6


def without_minus_one(right: Any) -> Any:
    """p where p - 1 belongs."""

    def faulty(dloss: Any, saved: Any) -> Any:
        logits = saved[0]
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return dloss * p / p.sum(axis=-1, keepdims=True) / len(p)

    return faulty


def without_the_mean(right: Any) -> Any:
    """softmax's gradient without Σ p dp."""
    return lambda dy, saved: saved[0] * dy


def without_its_norm(right: Any) -> Any:
    """A block whose sublayers read the trunk as it is, and replace it."""

    def faulty(x: Any, *args: Any) -> Any:
        y, saved = right(x, *args)
        return y - x, saved

    return faulty


def everyone_is_asked(right: Any) -> Any:
    """A mixture that computes all experts, and adds nothing for those that were not chosen."""

    def faulty(x: Any, W_router: Any, W_gate: Any, W_up: Any, W_down: Any, **settings: Any) -> Any:
        y, saved = right(x, W_router, W_gate, W_up, W_down, **settings)
        return y + 0 * sum(W.sum() for W in W_down), saved

    return faulty


def always(choose: Any) -> Any:
    """A router that does not look at the probabilities: `choose` tokens [N, 1], experts [E]."""

    def wrong(right: Any) -> Any:
        def faulty(probs: Any, *, k: int) -> Any:
            E = probs.shape[-1]
            tokens = np.arange(probs.size // E).reshape(*probs.shape[:-1], 1)
            kept = choose(tokens, np.arange(E), E) & np.ones(probs.shape, bool)
            return probs * kept, kept

        return faulty

    return wrong


def bent(y: Any) -> Any:
    """No longer linear."""
    return y + 0.01 * y**2


def mixed(y: Any) -> Any:
    """Each token with a little of all others."""
    return y + 0.01 * (y.mean(axis=-2, keepdims=True) - y)


def shuffled_table(right: Any) -> Any:
    """Scores that belong to other tokens."""
    return lambda x, table: right(x, np.roll(table, 1, axis=0))


def always_its_first_table(right: Any) -> Any:
    """An lm_head that keeps the first table it sees."""
    seen: list[Any] = []

    def faulty(x: Any, table: Any) -> Any:
        seen.append(table)
        return right(x, seen[0])

    return faulty


def louder_and_louder(right: Any) -> Any:
    """Corrections ten times as large each time."""
    calls: list[None] = []

    def faulty(*args: Any, **settings: Any) -> Any:
        y, saved = right(*args, **settings)
        calls.append(None)
        return 100.0 ** len(calls) * y, saved

    return faulty


def without_rstd(right: Any) -> Any:
    """A LayerNorm's gradient that is not divided by the standard deviation."""

    def faulty(dy: Any, saved: Any) -> Any:
        dx, *others = right(dy, saved)
        return dx / saved[1], *others

    return faulty


# The mask which some checkpoints carry along.
WITH_A_BUFFER = with_parameter("h.0.attn.bias", (1, 1, 1024, 1024))
FAULTS: Faults = {
    "backward_by_hand": [
        Fault(f"{OPS}lookup.lookup_backward", instead(last_one_wins), "dtable = one_hotᵀ dy"),
        Fault(f"{OPS}linear.linear_backward", result(a_little_off), "dx = dy Wᵀ"),
        Fault(f"{OPS}linear.linear_backward", result(a_little_off, 1), "dW = xᵀ dy"),
        Fault(f"{OPS}linear.linear_backward", result(a_little_off, 2), "db = Σ dy"),
        Fault(f"{OPS}activation.gelu_tanh_backward", result(a_little_off), "GELU'"),
        Fault(f"{OPS}activation.relu_backward", result(lambda dx: dx + 0.01), "at -1 ReLU"),
        Fault(f"{OPS}activation.relu_forward", lambda f: lambda x: (f(x)[0], x >= 0), "at 0 ReLU"),
        Fault(f"{OPS}softmax.softmax_backward", without_the_mean, "p (dp - Σ p dp)"),
        Fault(f"{OPS}cross_entropy.cross_entropy_backward", without_minus_one, "dscores = p - hot"),
        Fault(f"{OPS}lm_head.lm_head_backward", result(a_little_off, 1), "dlogitsᵀ x"),
    ],
    "backward_of_layer_norm": [
        Fault(f"{OPS}layer_norm.layer_norm_backward", result(a_little_off), "J = rstd"),
        Fault(f"{OPS}layer_norm.layer_norm_backward", result(a_little_off, 1), "dγ"),
        Fault(f"{OPS}layer_norm.layer_norm_forward", variance_over_d_minus_1, "J = rstd"),
    ],
    "backward_of_a_block": [
        Fault(f"{OPS}softmax.softmax_forward", result(lambda p: p**2), "dS = P"),
        Fault(f"{OPS}layer_norm.layer_norm_forward", variance_over_d_minus_1, "dh = both"),
        Fault(f"{OPS}activation.gelu_tanh_forward", result(bent), "dwide = dbent GELU'"),
        Fault(f"{GPT2}model.block_backward", result(a_little_off), "block_forward, block_backward"),
        Fault(f"{OPS}scores.scores_backward", result(a_little_off, 1), "block_backward"),
    ],
    "ch08_ffn": [
        Fault(f"{OPS}linear.linear_forward", result(bent), "100 layers are x times one"),
        Fault(f"{OPS}activation.gelu_tanh_forward", lambda f: lambda x: (x, x), "misses the same"),
        Fault(
            f"{OPS}activation.gelu_tanh_forward",
            lambda gelu: lambda x: (np.maximum(x, 0), x),
            "back at 0 by -4",
        ),
        Fault(f"{LAYERS}feed_forward.feed_forward_forward", result(mixed), "change token 1"),
        Fault(f"{GPT2}config.GPT2Config", setting(n_inner=768), "[4, 768] -> "),
        Fault(f"{GPT2}config.param_shapes", WITH_A_BUFFER, "attention of a block: 3,410,944"),
    ],
    "ch08_swiglu": [
        Fault(f"{LAYERS}swiglu.swiglu_forward", result(a_little_off), "swiglu_forward: y ="),
        Fault(
            f"{LAYERS}swiglu.swiglu_forward",
            lambda right: lambda x, gate, up, down: right(x, np.abs(gate), up, down),
            "with all gates shut",
        ),
        Fault("npgpt.models.llama.config.LlamaConfig", setting(intermediate_size=16384), "width"),
    ],
    "ch08_router": [
        Fault(f"{LAYERS}mixture.mixture_forward", result(a_little_off), "y = Σ weight"),
        Fault(f"{OPS}router.renormalise_forward", instead(lambda w: (w, (w, 1.0))), "sum to 1"),
        Fault(
            f"{OPS}router.top_k_forward",
            lambda right: lambda probs, *, k: right(probs, k=1),
            "change expert 1",
        ),
        Fault(f"{LAYERS}mixture.mixture_forward", everyone_is_asked, "fill expert 3 with NaN"),
        Fault(f"{OPS}router.top_k_backward", instead(lambda dy, kept: dy), "nudging the router"),
        Fault(
            f"{OPS}router.renormalise_backward",
            instead(lambda dy, saved: dy / saved[1]),
            "with one expert a token",
        ),
        Fault(
            "npgpt.models.llama.config.param_shapes",
            result(lambda s: {name: s[name] for name in s if ".experts.7." not in name}),
            "with eight, and all the rest",
        ),
    ],
    "ch08_experts": [
        Fault(
            f"{OPS}router.top_k_forward",
            always(lambda tokens, experts, E: tokens % E == experts),
            "by itself: 24 of 96",
        ),
        Fault(
            f"{OPS}load_balance.load_balance_backward",
            result(lambda dprobs: 0 * dprobs),
            "4.00 by itself, 4.00 with it",
        ),
        Fault(
            f"{OPS}load_balance.load_balance_backward",
            result(np.negative),
            "each subject has an expert of its own",
        ),
        Fault(
            f"{OPS}router.top_k_forward",
            always(lambda tokens, experts, E: experts == 0),
            "what it knows grows",
        ),
    ],
    "ch08_neurons": [
        Fault(f"{LAYERS}feed_forward.feed_forward_forward", result(bent), "is the sum of", RANDOM),
        Fault(f"{OPS}lm_head.lm_head_forward", shuffled_table, "have what came next"),
    ],
    "ch09_residual_layernorm": [
        Fault(f"{GPT2}model.block_forward", without_its_norm, "embedding + corrections", RANDOM),
        Fault(
            f"{LAYERS}feed_forward.feed_forward_forward",
            louder_and_louder,
            "corrections are smaller",
            RANDOM,
        ),
        Fault(f"{OPS}layer_norm.layer_norm_forward", variance_over_d_minus_1, "variance", RANDOM),
        Fault(f"{OPS}layer_norm.layer_norm_forward", result(mixed), "each token", RANDOM),
        Fault(f"{OPS}layer_norm.layer_norm_forward", without_its_mean, "mean", RANDOM),
        Fault(f"{OPS}rms_norm.rms_norm_forward", result(a_little_off), "its square mean", RANDOM),
        Fault(f"{GPT2}config.GPT2Config", setting(n_layer=11), "corrections in GPT-2", RANDOM),
    ],
    "ch09_scale": [
        Fault(f"{OPS}layer_norm.layer_norm_forward", instead(unnormed), "with: scores", RANDOM),
        Fault(
            f"{OPS}scores.scores_forward",
            lambda right: lambda q, k: right(q, k / np.linalg.norm(k, axis=-1, keepdims=True)),
            "without: the trunk grows",
            RANDOM,
        ),
        Fault(
            f"{LAYERS}attention.attention_weights",
            result(lambda probs: 0.9 * probs),
            "so softmax saturates",
            RANDOM,
        ),
        Fault(f"{OPS}lm_head.lm_head_forward", shuffled_table, "it rewrites the token"),
    ],
    "ch09_pre_and_post_norm": [
        Fault(
            f"{LAYERS}feed_forward.feed_forward_backward",
            result(lambda dx: 3 * dx),
            "pre-norm: 32 times the depth",
        ),
        Fault(f"{OPS}layer_norm.layer_norm_backward", without_rstd, "every norm takes its part"),
        Fault(f"{OPS}layer_norm.layer_norm_forward", result(lambda y: 1.1 * y), "leaves it at 1"),
    ],
    "ch10_lm_head": [
        Fault(f"{OPS}lm_head.lm_head_forward", shuffled_table, "times wteᵀ = the model's logits"),
        Fault(f"{OPS}softmax.softmax_forward", result(a_little_off), "softmax makes probabilities"),
        Fault(f"{OPS}lookup.lookup_forward", result(a_little_off), "score of a token"),
        Fault(f"{GPT2}config.GPT2Config", setting(vocab_size=50304), "sharing saves"),
        Fault(f"{OPS}lookup.lookup_backward", without_the_head, "gradient of the shared wte"),
        Fault(f"{OPS}lookup.lookup_backward", every_row, "the lookup's touches"),
    ],
    "ch10_like_rows": [
        Fault(f"{OPS}lm_head.lm_head_forward", shuffled_table, "each with its nearest row"),
        Fault(f"{OPS}lm_head.lm_head_forward", always_its_first_table, "fresh rows", RANDOM),
    ],
    "ch11_stacking": [
        Fault(f"{GPT2}model.block_forward", without_its_norm, "is the block"),
        Fault(f"{GPT2}config.param_shapes", WITH_A_BUFFER, "attention of a block"),
        Fault(f"{GPT2}config.GPT2Config", setting(n_layer=11), "12 blocks"),
        Fault(f"{GPT2}config.GPT2Config", setting(tie_word_embeddings=False), "lm_head"),
        Fault(f"{GPT2}config.GPT2Config", setting(vocab_size=50304), "wte: "),
        Fault(f"{GPT2}config.GPT2Config", setting(n_positions=2048), "wpe: "),
        Fault(f"{GPT2}config.GPT2Config", setting(n_inner=2048), "FFN of a block"),
        Fault(f"{GPT2}config.GPT2Config", setting(n_embd=1024, n_head=16), "two LayerNorms"),
        Fault(f"{GPT2}model.GPT2.num_params", result(lambda n: n + 1), "model.num_params()"),
    ],
}
