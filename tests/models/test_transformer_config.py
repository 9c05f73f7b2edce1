"""The encoder-decoder's configuration: what is refused, what is kept, what each option does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.models.generation import Generation
from npgpt.models.transformer.config import TransformerConfig, param_shapes
from npgpt.models.transformer.model import Transformer
from tests.builders.transformer import SIZES, random_transformer


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"model_type": "t5"}, ["model_type", "'t5'", "'bart'", "'marian'"]),
        ({"model_type": ["bart"]}, ["model_type", "['bart']"]),
        ({"decoder_vocab_size": 13}, ["decoder_vocab_size 13", "vocab_size 19", "one table"]),
        ({"decoder_vocab_size": 0}, ["decoder_vocab_size", "0"]),
    ],
)
def test_what_is_refused_is_named_in_one_sentence(raw, words) -> None:
    with pytest.raises(ValueError, match="config") as error:
        TransformerConfig.from_dict({**SIZES, **raw}, "some/config.json")
    sentence = str(error.value)
    assert sentence.startswith("some/config.json: ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert [word for word in words if word not in sentence] == []


def test_defaults_are_the_papers_base_model() -> None:
    config = TransformerConfig.from_dict({})
    assert config == TransformerConfig()
    assert (config.encoder_layers, config.d_model, config.encoder_ffn_dim) == (6, 512, 2048)
    assert (config.encoder_attention_heads, config.activation, config.dropout) == (8, "relu", 0.1)


def test_keys_of_published_translators_are_read() -> None:
    """What OPUS-MT's config.json say, keys of early versions included; V is that of en-zh."""
    halves = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048, "layerdrop": 0.0}
    config = TransformerConfig.from_dict(
        {
            "model_type": "marian",
            "vocab_size": 65001,
            "decoder_vocab_size": 65001,
            "d_model": 512,
            **{f"{side}_{of}": n for side in ("encoder", "decoder") for of, n in halves.items()},
            "max_position_embeddings": 512,
            "activation_function": "swish",
            "scale_embedding": True,
            "static_position_embeddings": True,
            **dict.fromkeys(("normalize_before", "normalize_embedding", "add_bias_logits"), False),
            "add_final_layer_norm": False,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
            "pad_token_id": 65000,
            "decoder_start_token_id": 65000,
            "bad_words_ids": [[65000]],
            "num_beams": 4,
            "max_length": 512,
        }
    )
    assert config.activation == "silu"
    settings = Generation.from_dict(config.to_dict(), "config.json", config.vocab_size)
    assert (settings.num_beams, settings.bad_words_ids) == (4, [[65000]])
    shapes = param_shapes(config)
    assert shapes.pop("final_logits_bias") == (1, 65001)
    assert sum(math.prod(shape) for shape in shapes.values()) == 77_419_008


@pytest.mark.parametrize("model_type", ["bart", "marian"])
@pytest.mark.hf
def test_silence_means_what_it_means_to_transformers(hf, model_type) -> None:
    import transformers

    classes = {"bart": transformers.BartConfig, "marian": transformers.MarianConfig}
    theirs = classes[model_type]().to_dict()
    ours = TransformerConfig.from_dict({"model_type": model_type}).to_dict()
    same = [key for key in ours if key in theirs and key != "architectures"]
    assert {key: ours[key] for key in same if key != "decoder_vocab_size"} == {
        key: theirs[key] for key in same if key != "decoder_vocab_size"
    }
    assert {"d_model", "eos_token_id", "scale_embedding", "forced_eos_token_id"} < set(same)


@pytest.mark.parametrize("model_type", ["bart", "marian", "transformer"])
def test_every_key_that_was_read_is_written_back(model_type) -> None:
    raw = {
        **SIZES,
        "model_type": model_type,
        "architectures": ["Other"],
        "activation_function": "swish",
        "num_beams": 4,
        "bad_words_ids": [[7]],
        "eos_token_id": [1, 2],
        "grapheme_chars": "_abc",
        "is_encoder_decoder": True,
    }
    written = TransformerConfig.from_dict(raw).to_dict()
    assert written.items() >= raw.items()
    assert TransformerConfig.from_dict(written) == TransformerConfig.from_dict(raw)


@pytest.mark.parametrize(
    "options",
    [
        {"scale_embedding": False},
        {"model_type": "marian", "scale_embedding": True, "activation_function": "relu"},  # sines
        *({"activation_function": name} for name in ("gelu", "gelu_new", "silu", "tanh")),
        {"encoder_attention_heads": 4},
        {"decoder_attention_heads": 6},
    ],
)
def test_each_option_changes_the_logits(rng, options) -> None:
    model, ids, targets = random_transformer(rng), rng.integers(0, 18, 7), rng.integers(0, 18, 5)
    config = TransformerConfig.from_dict({**SIZES, **options})
    other = Transformer(config, {**model.params, "final_logits_bias": np.zeros((1, 19))})
    assert np.abs(model(ids, targets) - other(ids, targets)).max() > 1e-4


def test_swish_is_silu(rng) -> None:
    model = random_transformer(rng, activation_function="silu")
    config = TransformerConfig.from_dict({**SIZES, "activation_function": "swish"})
    np.testing.assert_array_equal(
        model([3, 4, 5], [1, 2]), Transformer(config, model.params)([3, 4, 5], [1, 2])
    )


def test_parameters_that_follow_from_the_options() -> None:
    def shapes(**options):
        return param_shapes(TransformerConfig.from_dict({**SIZES, **options}))

    paper, bart = shapes(), shapes(model_type="bart")
    assert paper["encoder.layers.1.fc1.weight"] == (12, 10)
    assert paper["decoder.layers.2.fc2.weight"] == (14, 12)
    assert not any("position" in name or "embedding" in name for name in paper)
    assert bart["encoder.embed_positions.weight"] == (17 + 2, 12)
    assert bart["decoder.layernorm_embedding.bias"] == (12,)
    assert bart.keys() - paper.keys() == {
        "final_logits_bias",
        *(f"{side}.embed_positions.weight" for side in ("encoder", "decoder")),
        *(
            f"{s}.layernorm_embedding.{p}"
            for s in ("encoder", "decoder")
            for p in ("weight", "bias")
        ),
    }
    two = shapes(model_type="marian", share_encoder_decoder_embeddings=False, decoder_vocab_size=13)
    assert two["encoder.embed_tokens.weight"] == (19, 12)
    assert two["decoder.embed_tokens.weight"] == (13, 12)
    assert two["final_logits_bias"] == (1, 13)
    assert "lm_head.weight" not in two
    assert shapes(tie_word_embeddings=False)["lm_head.weight"] == (19, 12)
