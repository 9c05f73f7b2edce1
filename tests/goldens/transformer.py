"""Random encoder-decoders of transformers, bart and marian, and what is computed of them."""

from __future__ import annotations

from contextlib import nullcontext as in_float64
from typing import Any

import numpy as np

from npgpt.models.transformer.checkpoint import LAYOUT
from npgpt.models.transformer.config import TransformerConfig as CONFIG
from npgpt.models.transformer.config import param_shapes
from npgpt.models.transformer.model import Transformer as MODEL
from npgpt.ops.label_smoothing import label_smoothing_backward, label_smoothing_forward
from npgpt.ops.sinusoids import sinusoids_in_halves
from tests.goldens.common import array, loss_of, real_positions, under_grad

__all__ = ["CONFIG", "MODEL", "in_float64"]

REAL = "decoder_mask"
SMOOTHING = 0.1
SIZES: dict[str, Any] = {
    "vocab_size": 19,
    "max_position_embeddings": 17,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 10,
    "decoder_ffn_dim": 14,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
DIALECTS: dict[str, dict[str, Any]] = {
    "bart": {"model_type": "bart"},
    "marian": {
        "model_type": "marian",
        "scale_embedding": True,
        "activation_function": "swish",
        "decoder_start_token_id": 1,
        "decoder_layers": 2,
    },
    "marian-two-tables": {
        "model_type": "marian",
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 13,
        "encoder_layers": 1,
    },
}
# name -> options, lengths of the sources, of the targets
CASES = {name: ({**SIZES, **more}, [7, 4, 2], [5, 6, 3]) for name, more in DIALECTS.items()}
# How transformers' generate searches.
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"num_beams": 1},
    "two beams": {"num_beams": 2},
    "five beams": {"num_beams": 5},
    "more beams than tokens": {"num_beams": 40, "max_new_tokens": 3},
    "for long ones": {"num_beams": 3, "length_penalty": 2.0},
    "for short ones": {"num_beams": 3, "length_penalty": -1.5},
    "for probability alone": {"num_beams": 4, "length_penalty": 0.0},
    "stop early": {"num_beams": 4, "early_stopping": True},
    "never stop early": {"num_beams": 4, "early_stopping": "never", "length_penalty": 1.2},
    "one token": {"num_beams": 3, "max_new_tokens": 1},
}
MUST: dict[str, dict[str, Any]] = {
    "free": {},
    "first, last, never": {
        "forced_bos_token_id": 5,
        "forced_eos_token_id": 2,
        "bad_words_ids": [[7], [8], [1]],
    },
    "never, and the rest is everything": {
        "bad_words_ids": [[7], [8], [1], [9], [5]],
        "renormalize_logits": True,
    },
}
ENDS = [3.0, 4.5]  # how much likelier the end of the text is made, for the searches


def reference_model(options: dict[str, Any], seed: int, dtype: str = "float64") -> Any:
    """A random BartForConditionalGeneration or MarianMTModel with biases and gains off 0 and 1."""
    import torch
    import transformers as hf

    torch.manual_seed(seed)
    options = {**SIZES, **options}
    is_bart = options.pop("model_type") == "bart"
    if is_bart and not options.get("tie_word_embeddings", True):
        options["share_encoder_decoder_embeddings"] = False  # it then keeps three tables
    make_config = hf.BartConfig if is_bart else hf.MarianConfig
    config = make_config(**options, attn_implementation="eager")
    model = (hf.BartForConditionalGeneration if is_bart else hf.MarianMTModel)(config).double()
    for name, param in model.named_parameters():
        if "embed_positions" in name and not is_bart:
            exact = sinusoids_in_halves(np.arange(len(param)), param.shape[1])
            param.data = torch.tensor(exact)  # with all their digits
        else:
            scale = 20 if param.ndim == 2 else 1
            param.data = param.data * scale + 0.1 * torch.randn_like(param)
    model.final_logits_bias.normal_(std=0.2)
    return model.to(getattr(torch, dtype)).eval()


def reference_params(model: Any, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """The parameters or their gradients under npgpt's names, matrices [in, out]."""
    stored = {name.removeprefix("model."): param for name, param in model.named_parameters()}
    stored["final_logits_bias"] = model.final_logits_bias
    names = param_shapes(CONFIG.from_dict(model.config.to_dict()))
    arrays = {name: array(stored[name], gradients) for name in names}
    return {name: a.T if LAYOUT.is_matrix(name) else a for name, a in arrays.items()}


def random_input(
    options: dict[str, Any],
    lengths: list[int],
    target_lengths: list[int],
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Ids, masks and targets of texts that are padded on the right, some targets ignored."""
    options = {**SIZES, **options}
    source, target = real_positions(lengths), real_positions(target_lengths)
    V = options.get("decoder_vocab_size", options["vocab_size"])
    decoder_ids, targets = rng.integers(3, V, (2, *target.shape))
    decoder_ids[:, 0] = options["decoder_start_token_id"]
    ignored = ~target | (rng.random(target.shape) < 0.2)
    ignored[0, 0] = False  # one target there is in any case
    return {
        "ids": np.where(source, rng.integers(3, options["vocab_size"], source.shape), 1),
        "mask": source.astype(np.int64),
        "decoder_ids": np.where(target, decoder_ids, 1),
        "decoder_mask": target.astype(np.int64),
        "targets": np.where(ignored, -100, targets),
    }


def reference_outputs(model: Any, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`logits` and `loss`, whose gradients the model's parameters then have."""
    import torch

    model.zero_grad()
    model.final_logits_bias.requires_grad_(True).grad = None  # no parameter there, but added
    logits = model(
        input_ids=torch.tensor(given["ids"]),
        attention_mask=torch.tensor(given["mask"]),
        decoder_input_ids=torch.tensor(given["decoder_ids"]),
        decoder_attention_mask=torch.tensor(given["decoder_mask"]),
    ).logits
    loss = loss_of(logits, given["targets"], label_smoothing=SMOOTHING)
    loss.backward()
    model.final_logits_bias.requires_grad_(False)
    return {"logits": logits.detach().numpy(), "loss": loss.detach().numpy()}


def computed(
    model: MODEL, given: dict[str, np.ndarray], rng: np.random.Generator | None = None
) -> dict[str, Any]:
    """The same by npgpt, and `grad.NAME` of every parameter."""
    inputs = (given[name] for name in ("ids", "decoder_ids", "mask", "decoder_mask"))
    logits, saved = model.forward(*inputs, rng=rng)
    loss, saved_loss = label_smoothing_forward(logits, given["targets"], smoothing=SMOOTHING)
    grads = model.backward(label_smoothing_backward(1.0, saved_loss), saved)
    return {"logits": logits, "loss": loss, **under_grad(grads)}


def reference_text(model: Any, given: dict[str, np.ndarray], **options: Any) -> list[list[int]]:
    """What transformers writes for each source, without start token and padding."""
    import torch

    options = {"max_new_tokens": 12, "min_length": 0, "do_sample": False, **options}
    # Row by row: whatever follows an end-of-text is padding then.
    rows = zip(torch.tensor(given["ids"]), torch.tensor(given["mask"]), strict=True)
    written = [
        model.generate(ids[None], attention_mask=mask[None], **options)[0, 1:].tolist()
        for ids, mask in rows
    ]
    eos = model.config.eos_token_id
    return [row[: row.index(eos) + 1] if eos in row else row for row in written]


def searched(model: Any, given: dict[str, np.ndarray]) -> dict[str, Any]:
    """What every search writes, under its name, and that of what must come."""
    written: dict[str, Any] = {}
    bias = model.final_logits_bias.clone()
    for more in ENDS:
        model.final_logits_bias[0, 2] = bias[0, 2] + more
        for must, forced in MUST.items():
            for search, settings in SEARCHES.items():
                texts = reference_text(model, given, **settings, **forced)
                written[f"{search}; {must}; end {more:+}"] = texts
    return written
