"""Use an installed npgpt from a folder that is not the clone, with nothing but its dependencies."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import npgpt
from npgpt.models.gpt2.config import init_params

assert "site-packages" in npgpt.__file__, f"not the installed package: {npgpt.__file__}"
assert (Path(npgpt.__file__).parent / "py.typed").exists()

config = npgpt.GPT2Config(
    vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2, eos_token_id=None
)
model = npgpt.GPT2(config, init_params(config, np.random.default_rng(0)))
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    command = [sys.executable, "-m", "npgpt.generate", "--model", folder, "--ids", "1 2 3"]
    done = subprocess.run(
        [*command, "--max-new-tokens", "5"], capture_output=True, check=True, text=True
    )
assert done.stdout.split() == [str(i) for i in model.generate([1, 2, 3], 5)]

# The models that ship came along; tales is what commands take when no other is named. The script
# that the installation makes is the same as `python -m npgpt`.
done = subprocess.run(
    [Path(sys.executable).with_name("npgpt"), "generate", "The cat sat on the", "--json"],
    capture_output=True,
    check=True,
    text=True,
)
assert '"prompt_ids": [464, 3797, 3332, 319, 262]' in done.stdout, done.stdout
# A page is made of files that are not Python.
with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "npgpt.explore", "The cat sat", "--out", f"{folder}/page.html"]
    subprocess.run(command, check=True, capture_output=True)
    assert "views.head" in (Path(folder) / "page.html").read_text(encoding="utf-8")
poems = npgpt.from_pretrained("weights/poems")
ids = npgpt.load_tokenizer("poems").encode("《静夜思》李白")
assert len(ids) == 7, ids
assert poems.config.eos_token_id in list(poems.generate(ids, seed=1))
print(f"npgpt {npgpt.__version__} works from {Path.cwd()}")
