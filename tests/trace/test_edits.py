"""Heads and networks switched off, stations of another text put in."""

import numpy as np
import pytest

import npgpt
from npgpt.trace.edits import ablate, patch
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.gpt_neo import random_gpt_neo
from tests.builders.llama import random_llama

IDS = np.array([1, 4, 2, 0, 5, 3])
OTHER = np.array([2, 2, 6, 1, 0, 4])
OUT = {
    npgpt.GPT2: "h.{}.attn.c_proj.weight",
    npgpt.GPTNeo: "h.{}.attn.attention.out_proj.weight",
    npgpt.Llama: "layers.{}.self_attn.o_proj.weight",
}


@pytest.fixture(params=[random_gpt2, random_gpt_neo, random_llama])
def model(request, rng):
    return request.param(rng)


def loss(model) -> float:
    return float(model.loss_and_grads(IDS[:-1], IDS[1:])[0])


def test_a_head_is_off_where_its_rows_of_w_o_are_0(model) -> None:
    """The same from the parameters, for each head by itself."""
    name = OUT[type(model)].format(1)
    W, whole = model.params[name], loss(model)
    n_head = 3 if isinstance(model, npgpt.GPT2) else 6
    d_h = len(W) // n_head
    found = ablate(model, IDS, heads=[(1, head) for head in range(n_head)])
    for head, effect in enumerate(found):
        cut = W.copy()
        cut[head * d_h : (head + 1) * d_h] = 0
        without = type(model)(model.config, {**model.params, name: cut})
        assert effect.head == head
        assert effect.change == pytest.approx(loss(without) - whole, rel=1e-9, abs=1e-13)
    assert len({effect.change for effect in found}) == n_head


def test_a_network_is_off_where_it_adds_nothing(rng) -> None:
    model = random_gpt2(rng)
    off = {name: 0 * p if "h.0.mlp.c_proj" in name else p for name, p in model.params.items()}
    (effect,) = ablate(model, IDS, mlps=[0])
    without = npgpt.GPT2(model.config, off)
    assert effect.change == pytest.approx(loss(without) - loss(model), rel=1e-9)
    assert effect.station == "h.0.mlp"


def test_the_estimate_is_the_slope(model) -> None:
    """Scaled down, the model's last addition barely matters, and both answers agree."""
    out = [name for name in model.params if ".1." in name and ("c_proj" in name or "down" in name)]
    for name in out:
        model.params[name] = model.params[name] * 1e-5
    (effect,) = ablate(model, IDS, mlps=[1])
    assert effect.change != 0
    assert effect.estimate == pytest.approx(effect.change, rel=1e-3)


def test_all_of_another_text_at_a_block_gives_that_texts_logits(model) -> None:
    block = "h.0" if isinstance(model, npgpt.GPT2) else "layers.0"
    (effect,) = patch(model, IDS, OTHER, [block])
    logits = model.forward(OTHER).logits[:-1]
    expected = -np.mean(
        [row[t] - np.log(np.exp(row).sum()) for row, t in zip(logits, IDS[1:], strict=True)]
    )
    assert effect.change == pytest.approx(expected - loss(model), rel=1e-9)


def test_positions_are_patched_alone(model) -> None:
    """The last position predicts nothing that counts; the first one does."""
    norm = "ln_f" if isinstance(model, npgpt.GPT2) else "norm"
    (last,) = patch(model, IDS, OTHER, [norm], positions=[len(IDS) - 1])
    (first,) = patch(model, IDS, OTHER, [norm], positions=[0])
    assert last.change == last.estimate == 0
    assert first.change != 0 != first.estimate


def test_scores_of_another_text(model) -> None:
    """They are -∞ where masked, in both texts."""
    name = "h.1.attn.scores" if isinstance(model, npgpt.GPT2) else "layers.1.self_attn.scores"
    (effect,) = patch(model, IDS, OTHER, [name])
    assert np.isfinite([effect.change, effect.estimate]).all()
    assert effect.change != 0


def test_the_same_text_changes_nothing(model) -> None:
    stations: dict[str, np.ndarray] = {}
    model.forward(IDS, observe=stations.__setitem__)
    for effect in patch(model, IDS, IDS, list(stations)):
        assert (effect.change, effect.estimate) == (0, 0), effect.station


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: ablate(m, IDS, heads=[(2, 0)]), "there is no block 2; there are 2"),
        (lambda m: ablate(m, IDS, heads=[(0, 6)]), "there is no head 6; there are"),
        (lambda m: ablate(m, IDS, mlps=[-1]), "there is no block -1"),
        (lambda m: ablate(m, [1]), "one text of at least two tokens"),
        (lambda m: ablate(m, IDS[None]), "one text of at least two tokens"),
        (lambda m: patch(m, IDS, OTHER[1:], []), "the texts are 6 and 5 tokens long"),
        (lambda m: patch(m, IDS, OTHER, ["h.9"]), r"there is no station 'h\.9'; there are: embed"),
    ],
)
def test_what_there_is_not_is_refused(model, call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call(model)


def test_other_architectures_are_refused(rng) -> None:
    with pytest.raises(ValueError, match="take a GPT2 or a Llama, not a BERT"):
        ablate(random_bert(rng), IDS)  # type: ignore[arg-type]
