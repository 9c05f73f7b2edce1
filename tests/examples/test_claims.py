"""A fault planted in npgpt makes the example that claims the opposite fail; see `faults`."""

from __future__ import annotations

import pytest

from tests.examples.faults import FAULTS
from tests.examples.faults.kinds import RANDOM, Fault, Rewritten
from tests.examples.here import Here
from tests.examples.test_examples import TALES, WITH_A_MODEL

ROWS = [
    pytest.param(script, fault, id=f"{script}-{n}-{fault.breaks}")
    for script, faults in FAULTS.items()
    for n, fault in enumerate(faults)
]


@pytest.mark.parametrize(("script", "fault"), ROWS)
def test_a_fault_breaks_the_claim(script: str, fault: Fault | Rewritten, here: Here) -> None:
    if script in WITH_A_MODEL and fault.args != RANDOM and not TALES:
        pytest.skip("weights/tales is not here")
    failed = here(script, *fault.args, "--lang", "en", fault=fault).failed
    assert any(fault.breaks in what for what in failed), failed
