"""NaN and infinity in weights: each command names the tensor once, and prints no junk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import npgpt
from npgpt.__main__ import module_of
from npgpt.files.safetensors_file import read_tensors
from tests.builders.bert import write_tiny_bert
from tests.builders.checkpoints import change
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.llama import random_llama, write_tiny_llama
from tests.builders.transformer import random_transformer

pytestmark = pytest.mark.filterwarnings("always:.*NaN or infinite")

# Model -> a vector that every output depends on, as the file names it.
VECTORS = {
    "gpt2": "transformer.ln_f.bias",
    "llama": "model.norm.weight",
    "bert": "cls.predictions.transform.LayerNorm.bias",
    "bart": "model.decoder.layernorm_embedding.bias",
    "marian": "model.decoder.layers.0.fc1.bias",
}
IDS, SOURCE = ["--ids", "1 2"], ["--ids", "1 2", "--target-ids", "3 2"]
NEW, TRAIN = ["--max-new-tokens", "2"], ["--data", "TEXT", "--out", "OUT", "--steps", "1"]
CAUSAL_REFUSED = [
    ["generate", *IDS, *NEW],
    ["generate", *IDS, *NEW, "--temperature", "1"],
    ["evaluate", "TEXT"],
    ["train", *TRAIN, "--context", "8"],
]
REFUSED = {
    "gpt2": CAUSAL_REFUSED,
    "llama": CAUSAL_REFUSED,
    "bert": [["fill_mask", "--ids", "1 3 2", "--mask-id", "3"]],
    "bart": [["translate", *IDS, "--beams", beams] for beams in "12"],
    "marian": [["translate", *IDS, "--beams", beams] for beams in "12"],
}
SHOWN = {  # where the first NaN is, is what these are asked
    "gpt2": [["trace", *IDS], ["compare", *IDS, "--gradients", "--dump", "x.safetensors"]],
    "llama": [["trace", *IDS], ["compare", *IDS, "--gradients", "--dump", "x.safetensors"]],
    "bert": [["compare", *IDS, "--dump", "x.safetensors"]],
    "bart": [["compare", *SOURCE, "--dump", "x.safetensors"]],
    "marian": [["compare", *SOURCE, "--dump", "x.safetensors"]],
}


def write_model(folder: Path, kind: str) -> Path:
    if kind in ("bart", "marian"):
        model = random_transformer(np.random.default_rng(0), np.float32, model_type=kind)
        model.save_pretrained(folder)
        return folder
    write = {"gpt2": write_tiny_gpt2, "llama": write_tiny_llama, "bert": write_tiny_bert}
    return write[kind](folder)


def spoil(folder: Path, name: str, value: float) -> None:
    array = read_tensors(folder / "model.safetensors")[name]
    array[1] = value
    change(folder, {name: array})


def commands(table: dict[str, list[list[str]]]) -> list[tuple[str, list[str]]]:
    return [(kind, command) for kind, listed in table.items() for command in listed]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("kind", "arguments"), commands(REFUSED))
def test_no_junk_is_printed(tmp_path, monkeypatch, run_command, kind, arguments, value) -> None:
    monkeypatch.chdir(tmp_path)
    Path("TEXT").write_text(20 * "the cat sat. ", "utf-8")
    spoil(write_model(tmp_path / "model", kind), VECTORS[kind], value)
    name, *more = arguments
    option = "--init" if name == "train" else "--model"
    code, out, err = run_command(module_of(name), *more, option, "model")
    warning, error = err.splitlines()
    assert (code, out) == (2, "")
    assert warning.endswith(f": NaN or infinite values in {bare(kind)}.")
    assert "error: " in error
    assert ("not finite" in error) or (bare(kind) in error)
    assert not Path("OUT").exists()


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize(("kind", "arguments"), commands(SHOWN))
def test_what_shows_them_warns(tmp_path, monkeypatch, run_command, kind, arguments, value) -> None:
    monkeypatch.chdir(tmp_path)
    spoil(write_model(tmp_path / "model", kind), VECTORS[kind], value)
    name, *more = arguments
    code, _, err = run_command(module_of(name), *more, "--model", "model")
    assert code == 0
    warnings = [line for line in err.splitlines() if "warning" in line]
    assert [w.partition(" in ")[2] for w in warnings] == [f"{bare(kind)}."]


def bare(kind: str) -> str:
    """The vector without what transformers puts before its name."""
    return VECTORS[kind].removeprefix("transformer.").removeprefix("model.")


def test_what_the_output_does_not_depend_on_is_no_reason_to_refuse(tmp_path, run_command) -> None:
    """A padding row of the token table, and the pooler of a BERT."""
    gpt2, bert = write_tiny_gpt2(tmp_path / "gpt2"), write_tiny_bert(tmp_path / "bert", pooler=True)
    table = read_tensors(gpt2 / "model.safetensors")["transformer.wte.weight"]
    padded = np.concatenate([table, np.full((1, 12), 0, np.float32)])
    change(gpt2, {"transformer.wte.weight": padded})
    generate = (module_of("generate"), "a", "--model", gpt2, "--max-new-tokens", 5)
    mask = ["--ids", "2 5 4 3", "--mask-id", "4"]
    fill_mask = (module_of("fill_mask"), *mask, "--model", bert)
    before = [run_command(*call)[:2] for call in (generate, fill_mask)]
    spoil(bert, "bert.pooler.dense.bias", np.nan)
    padded[257] = np.nan
    change(gpt2, {"transformer.wte.weight": padded})
    after = [run_command(*call) for call in (generate, fill_mask)]
    assert [(code, out) for code, out, _ in after] == before
    assert all("NaN or infinite values in " in err for _, _, err in after)


def test_a_gguf_names_its_own_tensors(tmp_path, rng, run_command) -> None:
    settings, tensors = llama_file(random_llama(rng, np.float32))
    for name in ("blk.1.attn_q.weight", "output_norm.weight"):
        tensors[name].reshape(-1)[3] = np.nan
    path = write_gguf(tmp_path / "x.gguf", settings, tensors)
    wanted = r"x\.gguf: NaN or infinite values in blk\.1\.attn_q\.weight, output_norm\.weight\.$"
    with pytest.warns(UserWarning, match=wanted):
        npgpt.from_pretrained(path)
    code, out, err = run_command(module_of("generate"), *IDS, *NEW, "--model", path)
    assert (code, out, len(err.splitlines())) == (2, "", 2)
