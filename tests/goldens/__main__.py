"""Write the golden files; `tests/goldens/__init__.py` says what they hold."""

from __future__ import annotations

import json

import numpy as np
import torch
from safetensors.numpy import save_file

from tests.goldens import ARCHITECTURES, FOLDER, reference_values, transformer


def main() -> None:
    torch.set_num_threads(1)  # the order of a sum, and with it the last bit, depends on it
    for kind, architecture in ARCHITECTURES.items():
        for seed, (name, (options, *rows)) in enumerate(architecture.CASES.items()):
            tensors = architecture.random_input(options, *rows, np.random.default_rng(seed))
            with architecture.in_float64():
                model = architecture.reference_model(options, seed)
                values = reference_values(architecture, model, tensors)
            params = architecture.reference_params(model)
            tensors |= values | {f"param.{key}": value for key, value in params.items()}
            if architecture is transformer:
                for row, text in enumerate(transformer.reference_text(model, tensors, num_beams=3)):
                    tensors[f"beams.{row}"] = np.array(text)
            tensors = {key: np.array(value, order="C") for key, value in tensors.items()}
            config = {key: value for key, value in options.items() if key != "kind"}
            path = FOLDER / f"{kind}-{name}.safetensors"
            save_file(tensors, path, {"config": json.dumps(config)})
            if name == "bart":
                searches = json.dumps(transformer.searched(model, tensors), indent=1)
                path = FOLDER / "transformer-searches.json"
                path.write_text(searches + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
