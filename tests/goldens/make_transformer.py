"""Makes the golden values transformer-*.safetensors: what transformers computes, in float64.

    python -m tests.goldens.make_transformer

Each file holds a small random bart or marian (`param.NAME`), its input (`ids`, `mask`,
`decoder_ids`, `decoder_mask`, `targets`) and what came out (`logits`, `loss`, `grad.NAME`, and what
beam search wrote, `beams.N`); its metadata holds config.json. transformer-searches.json holds what
the first of them writes under other settings. Needs torch and transformers (extra `hf`); the tests
that read the files do not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.models.transformer.checkpoint import LAYOUT
from npgpt.models.transformer.config import TransformerConfig, param_shapes
from npgpt.ops.sinusoids import sinusoids_in_halves

FOLDER = Path(__file__).parent
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
CASES: dict[str, dict[str, Any]] = {
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


def reference_params(model: Any) -> dict[str, np.ndarray]:
    """The parameters under npgpt's names, matrices [in, out]."""
    stored = dict(model.named_parameters()) | {"final_logits_bias": model.final_logits_bias}
    return by_our_names(model, {name: t.detach().numpy() for name, t in stored.items()})


def by_our_names(model: Any, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays by the names of transformers -> those of npgpt's parameters."""
    bare = {name.removeprefix("model."): value for name, value in values.items()}
    names = param_shapes(config_of(model))
    return {name: bare[name].T if LAYOUT.is_matrix(name) else bare[name] for name in names}


def config_of(model: Any) -> TransformerConfig:
    """The same configuration, read from what transformers would write."""
    raw = model.config.to_dict()
    if raw["model_type"] == "bart" and not raw["tie_word_embeddings"]:
        raw["share_encoder_decoder_embeddings"] = False  # transformers then keeps three tables
    return TransformerConfig.from_dict(raw)


def reference_values(model: Any, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`logits`, `loss` and `grad.NAME` of every parameter, as transformers computes them."""
    import torch

    model.zero_grad()
    bias = model.final_logits_bias.requires_grad_(
        True
    )  # no parameter there, but added all the same
    logits = model(
        input_ids=torch.tensor(given["ids"]),
        attention_mask=torch.tensor(given["mask"]),
        decoder_input_ids=torch.tensor(given["decoder_ids"]),
        decoder_attention_mask=torch.tensor(given["decoder_mask"]),
    ).logits
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        torch.tensor(given["targets"]).reshape(-1),
        label_smoothing=SMOOTHING,
    )
    loss.backward()
    grads = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    grads = by_our_names(model, grads | {"final_logits_bias": bias.grad.numpy()})
    bias.requires_grad_(False).grad = None
    values = {"logits": logits.detach().numpy(), "loss": loss.detach().numpy()}
    return values | {f"grad.{name}": grad.copy() for name, grad in grads.items()}


def random_input(
    config: TransformerConfig, lengths: list[int], target_lengths: list[int], seed: int
) -> dict[str, np.ndarray]:
    """Ids, masks and targets of texts that are padded on the right, some targets ignored."""
    rng = np.random.default_rng(seed)
    source = np.arange(max(lengths)) < np.array(lengths)[:, None]
    target = np.arange(max(target_lengths)) < np.array(target_lengths)[:, None]
    V = config.target_vocab_size
    decoder_ids, targets = rng.integers(3, V, (2, *target.shape))
    decoder_ids[:, 0] = config.decoder_start_token_id
    ignored = ~target | (rng.random(target.shape) < 0.2)
    ignored[0, 0] = False  # one target there is in any case
    return {
        "ids": np.where(source, rng.integers(3, config.vocab_size, source.shape), 1),
        "mask": source.astype(np.int64),
        "decoder_ids": np.where(target, decoder_ids, 1),
        "decoder_mask": target.astype(np.int64),
        "targets": np.where(ignored, -100, targets),
    }


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


def main() -> None:
    """Write all files."""
    import torch
    from safetensors.numpy import save_file

    torch.set_num_threads(1)  # the order of a sum, and with it the last bit, depends on it
    for seed, (name, options) in enumerate(CASES.items()):
        model = reference_model(options, seed)
        tensors = random_input(config_of(model), [7, 4, 2], [5, 6, 3], seed)
        tensors |= {"param." + key: value for key, value in reference_params(model).items()}
        tensors |= reference_values(model, tensors)
        for row, text in enumerate(reference_text(model, tensors, num_beams=3)):
            tensors[f"beams.{row}"] = np.array(text)
        tensors = {key: np.array(value, order="C") for key, value in tensors.items()}
        config = json.dumps({**SIZES, **options})
        save_file(tensors, FOLDER / f"transformer-{name}.safetensors", {"config": config})
        if name == "bart":
            searches = json.dumps(searched(model, tensors), indent=1)
            path = FOLDER / "transformer-searches.json"
            path.write_text(searches + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
