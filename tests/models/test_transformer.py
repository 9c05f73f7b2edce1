"""The encoder-decoder: who sees whom, gradients, padding, dtype, loss, published sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.models.transformer.config import TransformerConfig, init_params, param_shapes
from npgpt.models.transformer.model import Transformer
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.ops.label_smoothing import label_smoothing_forward
from tests.builders.transformer import DIALECTS, random_transformer
from tests.gradcheck import check_direction, relative_error

V, S, T = 13, 7, 5  # V: what all dialects have rows for


def moved(before, after):
    """Which positions of the target differ."""
    return (np.abs(before - after).max(axis=-1) > 1e-9).tolist()


@pytest.fixture
def texts(rng):
    return rng.integers(3, V, (2, S)), rng.integers(3, V, (2, T))


@pytest.mark.parametrize("options", DIALECTS.values(), ids=list(DIALECTS))
def test_a_direction_in_every_parameter(rng, options) -> None:
    model = random_transformer(rng, **{"activation_function": "gelu", **options})  # no kinks
    ids, targets = rng.integers(3, V - 1, (2, S)), rng.integers(3, V - 1, (2, T))
    targets[1, 3:] = -100
    mask = np.array([[1] * S, [1, 1, 1] + [0] * (S - 3)])
    _, grads = model.loss_and_grads(ids, targets, mask, label_smoothing=0.1)

    def loss_fn(params):
        logits = Transformer(model.config, params)(ids, model.shifted_right(targets), mask)
        return label_smoothing_forward(logits, targets, smoothing=0.1)[0]

    check_direction(loss_fn, model.params, grads, rng)


def test_source_is_read_both_ways_and_target_only_backwards(rng, texts) -> None:
    ids, targets = texts
    model = random_transformer(rng)
    before = model(ids[0], targets[0])
    for s in (0, 3, S - 1):
        changed = ids[0].copy()
        changed[s] = (changed[s] + 1) % V
        assert moved(before, model(changed, targets[0])) == [True] * T
    changed = targets[0].copy()
    changed[2] = (changed[2] + 1) % V
    assert moved(before, model(ids[0], changed)) == [t >= 2 for t in range(T)]


@pytest.mark.parametrize("options", DIALECTS.values(), ids=list(DIALECTS))
def test_all_T_losses_come_from_one_pass(rng, options, texts) -> None:
    ids, targets = texts
    model = random_transformer(rng, **options)
    whole = model(ids, targets)
    for t in range(T):
        np.testing.assert_allclose(model(ids, targets[:, : t + 1])[:, -1], whole[:, t], rtol=1e-10)


@pytest.mark.parametrize("options", DIALECTS.values(), ids=list(DIALECTS))
def test_padding_changes_nothing(rng, options, texts) -> None:
    """Neither on the source nor on the target, nor does what stands in it."""
    ids, targets = texts
    model = random_transformer(rng, **options)
    alone = model(ids[1, :4], targets[1, :3])
    mask, target_mask = np.ones((2, S)), np.ones((2, T))
    mask[1, 4:] = target_mask[1, 3:] = 0
    for filler in (0, 5):
        ids[1, 4:] = targets[1, 3:] = filler
        together = model(ids, targets, mask, target_mask)
        assert relative_error(together[1, :3], alone) < 1e-13


def test_weight_tables(rng, texts) -> None:
    model, (ids, targets) = random_transformer(rng), texts
    mask = np.array([[1] * S, [1] * 4 + [0] * 3])
    seen: dict[str, np.ndarray] = {}
    logits, saved = model.forward(ids, targets, mask, observe=seen.__setitem__)
    tables = {name.removesuffix(".probs"): p for name, p in seen.items() if name.endswith("probs")}
    assert len(tables) == 2 + 2 * 3
    for name, probs in tables.items():
        np.testing.assert_allclose(probs.sum(axis=-1), 1, rtol=1e-13)
        encoder, cross = name.startswith("encoder."), name.endswith("encoder_attn")
        assert probs.shape == (
            2,
            3 if encoder else 2,
            S if encoder else T,
            S if cross or encoder else T,
        )
        assert (np.triu(probs[0], 1) == 0).all() != (cross or encoder)
        assert not (cross or encoder) or not probs[1, ..., 4:].any()
    assert saved.decoder.layers[1].encoder_attn.probs is tables["decoder.layers.1.encoder_attn"]
    assert seen["decoder.embed"].shape == (2, T, 12)
    np.testing.assert_array_equal(seen["logits"], logits)


def test_add_and_norm_is_what_the_layers_are_wired_with(rng, texts) -> None:
    """Post-norm: LN(x + correction), after each of the three sublayers."""
    ids, targets = texts
    model = random_transformer(rng)
    seen: dict[str, np.ndarray] = {}
    model.forward(ids, targets, observe=seen.__setitem__)

    def normed(x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5)
        return x * model.params[f"{name}.weight"] + model.params[f"{name}.bias"]

    for side, start in (("encoder", "encoder.embed"), ("decoder", "decoder.embed")):
        layer, x = f"{side}.layers.0", seen[start]
        for part in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
            norm = f"{layer}.{part}_layer_norm"
            x = normed(x + seen[f"{layer}.{part}"], norm)
            np.testing.assert_allclose(seen[norm], x, rtol=1e-11, atol=1e-12)
        x = normed(x + seen[f"{layer}.fc2"], f"{layer}.final_layer_norm")
        np.testing.assert_allclose(seen[layer], x, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("options", DIALECTS.values(), ids=list(DIALECTS))
def test_float32_stays_float32(rng, options, texts) -> None:
    ids, targets = texts
    exact = random_transformer(np.random.default_rng(3), **options)
    model = random_transformer(np.random.default_rng(3), np.float32, **options)
    loss, grads = model.loss_and_grads(ids, targets, label_smoothing=0.1)
    want, want_grads = exact.loss_and_grads(ids, targets, label_smoothing=0.1)
    assert loss.dtype == np.float32
    assert {grad.dtype for grad in grads.values()} == {np.dtype(np.float32)}
    assert loss == pytest.approx(want, rel=1e-5)
    table = model.config.target_table
    assert relative_error(grads[table], want_grads[table]) < 1e-4
    assert {name: grad.shape for name, grad in grads.items()} == param_shapes(model.config)
    assert list(grads) == list(model.params)


def test_long_texts_take_tiles_and_give_the_same(rng) -> None:
    """With and without weight tables."""
    model = random_transformer(rng, max_position_embeddings=200)
    ids, targets = rng.integers(3, V, 150), rng.integers(3, V, 140)
    with_tables = model.forward(ids, targets)
    tiles = model.forward(ids, targets, flash=True)
    assert relative_error(tiles.logits, with_tables.logits) < 1e-13
    np.testing.assert_array_equal(model(ids, targets), tiles.logits)
    with pytest.raises(AttributeError, match="keeps no weight tables"):
        _ = tiles.saved.decoder.layers[0].encoder_attn.probs
    dlogits = rng.standard_normal(tiles.logits.shape)
    got, want = (model.backward(dlogits, out.saved) for out in (tiles, with_tables))
    for name in ("shared.weight", "decoder.layers.0.encoder_attn.k_proj.weight"):
        assert relative_error(got[name], want[name]) < 1e-12


def test_targets_are_shifted_once(rng, texts) -> None:
    """The decoder reads the start token and what stands before each target; -100 as padding."""
    ids, _ = texts
    model = random_transformer(rng)
    targets = np.array([[4, 5, 2, -100, -100]])
    assert model.shifted_right(targets).tolist() == [[1, 4, 5, 2, 18]]
    loss, _ = model.loss_and_grads(ids[:1], targets)
    logits = model(ids[:1], [[1, 4, 5]])
    assert loss == pytest.approx(cross_entropy_forward(logits, targets[:, :3])[0], rel=1e-13)


def test_the_padding_token_keeps_its_vector(rng) -> None:
    """As in Hugging Face; its row as part of the head has a gradient all the same."""
    tied = random_transformer(rng, pad_token_id=1)  # which targets start with
    untied = random_transformer(rng, pad_token_id=1, tie_word_embeddings=False)
    for model in (tied, untied):
        _, grads = model.loss_and_grads([3, 4, 1, 5], [6, 7])
        rows = np.abs(grads["shared.weight"]).max(axis=-1) > 0
        assert rows[1] == model.config.tie_word_embeddings
        assert rows[[3, 4, 5, 6]].all()


def test_dropout_in_training_alone(rng, texts) -> None:
    ids, targets = texts
    model = random_transformer(rng, dropout=0.3, attention_dropout=0.2)
    losses = [
        model.loss_and_grads(ids, targets, rng=np.random.default_rng(seed))[0] for seed in (1, 1, 2)
    ]
    assert losses[0] == losses[1] != losses[2]
    plain = random_transformer(np.random.default_rng(4), dropout=0.3)
    other = Transformer(random_transformer(rng).config, plain.params)
    np.testing.assert_array_equal(plain(ids, targets), other(ids, targets))


def test_gradients_go_through_the_masks_that_dropout_drew(rng, texts) -> None:
    ids, targets = texts
    model = random_transformer(rng, activation_function="gelu", dropout=0.3, attention_dropout=0.2)
    _, grads = model.loss_and_grads(ids, targets, rng=np.random.default_rng(1))

    def loss_fn(params):
        again = Transformer(model.config, params)
        return again.loss_and_grads(ids, targets, rng=np.random.default_rng(1))[0]

    check_direction(loss_fn, model.params, grads, rng, tolerance=1e-6)


def test_the_base_model_of_2017() -> None:
    """From its configuration alone: 63,082,496 parameters; the paper rounds to 65 million."""
    shapes = param_shapes(TransformerConfig())
    layers = {
        side: sum(math.prod(s) for name, s in shapes.items() if f"{side}.layers.0." in name)
        for side in ("encoder", "decoder")
    }
    assert layers == {"encoder": 3_152_384, "decoder": 4_204_032}
    assert shapes["shared.weight"] == (37_000, 512)
    total = sum(math.prod(shape) for shape in shapes.values())
    assert total == 37_000 * 512 + 6 * (3_152_384 + 4_204_032) == 63_082_496


def test_num_params_leaves_out_what_is_not_trained(rng) -> None:
    model = random_transformer(rng, model_type="bart")
    assert model.num_params() == sum(a.size for a in model.params.values()) - 19


def test_fresh_parameters_have_no_idea_yet(rng) -> None:
    config = TransformerConfig.from_dict({"vocab_size": 100, "d_model": 64, "encoder_layers": 2})
    model = Transformer(config, init_params(config, rng))
    ids, targets = rng.integers(3, 100, (2, 8, 10))
    loss, _ = model.loss_and_grads(ids, targets)
    assert abs(loss - math.log(100)) < 1


@pytest.mark.parametrize(
    ("options", "std"), [({}, 0.125), ({"scale_embedding": False, "init_std": 0.07}, 0.07)]
)
def test_fresh_parameters_are_drawn_as_they_should_be(rng, options, std) -> None:
    """Xavier: uniform within √(6 / (in + out)), as torch.nn.init.xavier_uniform_; tables normal."""
    sizes = {"d_model": 64, "encoder_ffn_dim": 130, "decoder_ffn_dim": 100, "vocab_size": 99}
    params = init_params(TransformerConfig.from_dict({**sizes, **options}), rng, np.float64)
    for name, param in params.items():
        if param.ndim == 1:
            assert (param == (name.endswith("weight") and "norm" in name)).all(), name
        elif ".layers." in name:
            bound = math.sqrt(6 / (param.shape[0] + param.shape[1]))
            assert 0.99 * bound < np.abs(param).max() <= bound, name
            assert param.std() == pytest.approx(bound / math.sqrt(3), rel=0.05), name
        else:
            assert param.std() == pytest.approx(std, rel=0.05), name
            assert np.abs(param).max() > 2.5 * std, name


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (([], [1]), r"^input_ids must be \[T\] or \[B, T\] and not empty, but have shape \[0\]\.$"),
        (([1], [[[1]]]), r"^decoder_input_ids must be .* have shape \[1, 1, 1\]\.$"),
        (
            ([[1], [2]], [1]),
            r"^input_ids \[2, 1\] and decoder_input_ids \[1\] are not equally many",
        ),
        (
            ([1, 2], [1], [1]),
            r"^attention_mask has shape \[1\], but these ids want \[2\]\.$",
        ),
        (
            ([1, 2], [1], None, [1, 1]),
            r"^decoder_attention_mask has shape \[2\], but these ids want \[1\]\.$",
        ),
        (([19], [1]), r"^token id 19 at index \[0\] has no row: the table holds 0\.\.18\.$"),
        (([1], [-1]), r"^token id -1 at index \[0\] has no row"),
        (([1.5], [1]), r"^input_ids must be integers, but have dtype float64\.$"),
        (
            ([1] * 18, [1]),
            r"^the source is 18 tokens long, but the model has positions for 17; sho",
        ),
        (
            ([1], [1] * 18),
            r"^the target is 18 tokens long, but the model has positions for 17; sho",
        ),
    ],
)
def test_texts_that_cannot_be_read(rng, args, message) -> None:
    with pytest.raises(ValueError, match=message):
        random_transformer(rng, model_type="bart")(*args)


def test_sinusoids_have_no_last_position(rng) -> None:
    assert random_transformer(rng)([1] * 30, [1] * 20).shape == (20, 19)
