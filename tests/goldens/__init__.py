"""What transformers computes of small random models: stored in the files here, and live.

    python -m tests.goldens

writes the files anew. ARCHITECTURE-CASE.safetensors holds a model (`param.NAME`, under npgpt's
names and with its matrices [in, out]), its input, and what came out: outputs, loss, `grad.NAME`;
its metadata holds config.json. Writing, and the live comparison, need torch and transformers (extra
`hf`); the tests that read the files do not.

The module of each architecture offers

    MODEL, CONFIG     npgpt's classes
    CASES             the files: name -> options, and what else `random_input` takes
    REAL              which mask of the input says where logits count; None: everywhere
    in_float64()      a context in which transformers computes in float64 throughout
    reference_model(options, seed, dtype)
    reference_params(model, gradients=False)
    random_input(options, …, rng) -> input by name
    reference_outputs(model, input)    what transformers computes, backward pass included
    computed(model, input, rng=None)   what npgpt computes: outputs, loss, `grad.NAME`; rng draws
                                       the dropout of the latter two
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from tests.goldens import bert, gpt2, llama, transformer
from tests.goldens.common import Arrays, under_grad

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.safetensors"))
ARCHITECTURES: dict[str, Any] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "transformer": transformer,
}


def load(path: Path, dtype: Any = np.float64) -> tuple[Any, Arrays, Arrays]:
    """A file's model in dtype, its input, and what transformers computed in float64."""
    architecture = ARCHITECTURES[path.stem.partition("-")[0]]
    with safe_open(path, framework="numpy") as file:
        config = architecture.CONFIG.from_dict(json.loads(file.metadata()["config"]))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    params = {
        name.removeprefix("param."): tensors.pop(name).astype(dtype)
        for name in [*tensors]
        if name.startswith("param.")
    }
    out = {
        name: tensors.pop(name)
        for name in [*tensors]
        if name.startswith("grad.") or name in ("logits", "loss", "hidden", "pooled")
    }
    return architecture.MODEL(config, params), tensors, out


def reference_values(architecture: Any, model: Any, given: Arrays) -> Arrays:
    """What transformers computes: outputs, loss, and `grad.NAME` of every parameter."""
    outputs = architecture.reference_outputs(model, given)
    return {**outputs, **under_grad(architecture.reference_params(model, gradients=True))}


def live(
    architecture: Any, options: dict[str, Any], lengths: list[int], side: str, context: Any
) -> tuple[Arrays, Arrays]:
    """What npgpt computes and what transformers does, by name, for one random model and input.

    Its configuration must be read without a warning. `context`: in which transformers computes.
    """
    given = architecture.random_input(options, lengths, side, np.random.default_rng(5))
    with context():
        reference = architecture.reference_model(options, 5)
        want = reference_values(architecture, reference, given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = architecture.CONFIG.from_dict(reference.config.to_dict())
    model = architecture.MODEL(config, architecture.reference_params(reference))
    shapes = {name: param.shape for name, param in model.params.items()}
    assert shapes == architecture.param_shapes(config)
    got = architecture.computed(model, given)
    return counted(architecture, given, got), counted(architecture, given, want)


def counted(architecture: Any, given: Arrays, values: dict[str, Any]) -> dict[str, Any]:
    """The same without the logits of padding, on which nothing depends."""
    if architecture.REAL is None:
        return values
    return {**values, "logits": values["logits"][given[architecture.REAL] == 1]}
