"""The stations of a pass: what arrives at each on the way back, and what happens where one is
replaced."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.gpt_neo import random_gpt_neo
from tests.builders.llama import random_llama
from tests.builders.transformer import DIALECTS, random_transformer

T = 5
# One of the two blocks has experts.
SPARSE: dict[str, Any] = {"num_experts": 4, "decoder_sparse_step": 2, "moe_intermediate_size": 7}
MAKERS: dict[str, Any] = {
    "gpt2": random_gpt2,
    "gpt_neo": random_gpt_neo,
    "llama": random_llama,
    "mixtral": partial(random_llama, model_type="mixtral", num_local_experts=5),
    "qwen3_moe": partial(random_llama, model_type="qwen3_moe", **SPARSE, num_experts_per_tok=3),
    **{kind: partial(random_bert, model_type=kind) for kind in ("bert", "roberta", "distilbert")},
}
KINDS = [*MAKERS, *DIALECTS]


class Case(NamedTuple):
    """A model, what it reads, the target of each position."""

    model: Any
    inputs: tuple[np.ndarray, ...]
    targets: np.ndarray

    def loss(self, observe: Callable[..., Any] | None = None) -> tuple[float, Any, Any]:
        """Loss, the gradient of the logits, and what backward reads."""
        out = self.model.forward(*self.inputs, observe=observe)
        loss, saved = cross_entropy_forward(out.logits, self.targets)
        return float(loss), cross_entropy_backward(1.0, saved), out.saved


@pytest.fixture(params=KINDS)
def case(request, rng) -> Case:
    kind = request.param
    ids, targets = rng.integers(1, 7, T + 2), rng.integers(1, 7, T + 2)
    if kind in DIALECTS:
        model = random_transformer(rng, **DIALECTS[kind])
        return Case(model, (ids, targets[:T]), targets[1 : T + 1])
    return Case(MAKERS[kind](rng), (ids,), targets)


def both_ways(case: Case) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Station -> array, station -> gradient."""
    arrays: dict[str, np.ndarray] = {}
    gradients: dict[str, np.ndarray] = {}
    _, dlogits, saved = case.loss(arrays.__setitem__)
    case.model.backward(dlogits, saved, observe=gradients.__setitem__)
    return arrays, gradients


def test_each_gradient_is_what_a_nudge_of_its_station_does(case, rng) -> None:
    """All numbers of a station are moved at once, each its own way: one central difference."""
    arrays, gradients = both_ways(case)
    step, apart = 1e-5, {}
    for name, gradient in gradients.items():
        way = rng.standard_normal(gradient.shape)
        if name.endswith(".weights"):  # an expert that is not asked says nothing
            way *= arrays[name] != 0

        def nudged(sign: int, name=name, way=way) -> float:
            return case.loss(lambda at, x: x + sign * step * way if at == name else None)[0]

        slope = (nudged(1) - nudged(-1)) / (2 * step)
        apart[name] = abs(slope - (gradient * way).sum()) / (abs(slope) + 1e-4)
        assert gradient.shape == arrays[name].shape
    assert {name: error for name, error in apart.items() if not error < 1e-6} == {}


def test_the_way_back_passes_every_station(case) -> None:
    arrays, gradients = both_ways(case)
    unread = {"pooler"}  # the loss does not depend on it
    assert set(gradients) == set(arrays) - unread
    assert next(iter(gradients)) == "logits"
    order = list(arrays)
    blocks = [name for name in gradients if name.split(".")[-1].isdecimal()]
    assert blocks == sorted(blocks, key=order.index, reverse=True)


def test_what_is_put_in_is_what_all_behind_it_reads(case) -> None:
    """Every station by itself, with an array of another scale."""
    arrays, _ = both_ways(case)
    for name, array in arrays.items():
        seen: dict[str, np.ndarray] = {}

        def put(at, x, name=name, seen=seen):
            seen[at] = x
            return 2 * x if at == name else None

        case.loss(put)
        order = list(arrays)
        for before in order[: order.index(name)]:
            np.testing.assert_array_equal(seen[before], arrays[before])
        np.testing.assert_array_equal(seen[name], array)
        if name not in ("logits", "pooler"):
            assert (seen["logits"] != arrays["logits"]).any(), name


def test_a_gradient_that_is_put_in_goes_on(case) -> None:
    """Twice the gradient of the logits: twice all others; none: none."""
    _, dlogits, saved = case.loss()
    plain = case.model.backward(dlogits, saved)
    double = case.model.backward(
        dlogits, saved, observe=lambda at, dx: 2 * dx if at == "logits" else None
    )
    none = case.model.backward(
        dlogits, saved, observe=lambda at, dx: 0 * dx if at == "logits" else None
    )
    for name, gradient in plain.items():
        np.testing.assert_allclose(double[name], 2 * gradient, rtol=1e-12, atol=1e-15)
        assert not none[name].any()


def test_looking_changes_nothing(case) -> None:
    loss, dlogits, saved = case.loss()
    seen_loss, _, seen_saved = case.loss(lambda *_: None)
    assert loss == seen_loss
    plain = case.model.backward(dlogits, saved)
    for name, gradient in case.model.backward(dlogits, seen_saved, observe=lambda *_: None).items():
        np.testing.assert_array_equal(gradient, plain[name])


def test_an_array_of_another_shape_is_refused(case) -> None:
    message = r"logits is \[\d, \d+\], but observe returned \[1\] for it; return None to leave"
    wrong = lambda at, _: np.ones(1) if at == "logits" else None  # noqa: E731
    with pytest.raises(ValueError, match=message):
        case.loss(wrong)
    _, dlogits, saved = case.loss()
    with pytest.raises(ValueError, match=message):
        case.model.backward(dlogits, saved, observe=wrong)


def test_a_replacement_takes_the_dtype_of_the_pass(rng) -> None:
    case = Case(random_gpt2(rng, np.float32), (np.arange(T),), np.arange(T))
    seen = {}

    def put(name: str, array: np.ndarray) -> Any:
        seen[name] = array.dtype
        return array.astype(np.float64)

    _, dlogits, saved = case.loss(put)
    grads = case.model.backward(dlogits, saved, observe=put)
    assert {*seen.values(), *(grad.dtype for grad in grads.values())} == {np.dtype(np.float32)}


@pytest.mark.parametrize("flash", [False, True])
def test_a_pass_with_tiles_has_no_tables_but_all_the_rest(rng, flash) -> None:
    model, ids = random_gpt2(rng), rng.integers(0, 7, T)
    there: dict[str, np.ndarray] = {}
    back: dict[str, np.ndarray] = {}
    out = model.forward(ids, observe=there.__setitem__, flash=flash)
    model.backward(np.ones_like(out.logits), out.saved, observe=back.__setitem__)
    attn = ["attn.q", "attn.k", "attn.v", "attn.scores", "attn.probs", "attn.context", "attn"]
    if flash:
        del attn[3:5]
    blocks = [
        f"h.{n}{'.' * bool(part)}{part}"
        for n in range(2)
        for part in ("ln_1", *attn, "ln_2", "mlp.c_fc", "mlp.act", "mlp", "")
    ]
    assert list(there) == ["embed", *blocks, "ln_f", "logits"]
    assert set(there) == set(back)
