"""Two processes under mpiexec train as one with twice the batch."""

from __future__ import annotations

import csv
import importlib.util
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from npgpt.files.safetensors_file import read_tensors
from npgpt.train import command as train
from npgpt.train import mpi
from npgpt.train.optim import OPTIMIZERS
from tests.train.training_runs import ROOT, SIZE, run, write_story

OPTIONS = (*SIZE, "--sample-every", 5, "--eval-every", 5, "--save-every", 5, "--dtype", "float64")


@pytest.fixture
def mpiexec():
    """`mpiexec -n 2 python -m npgpt.train …` as a function, where mpi4py is installed."""
    if importlib.util.find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
        pytest.skip("training by several processes needs: pip install mpi4py mpich")

    def call(*arguments):
        command = ["mpiexec", "-n", "2", sys.executable, "-m", "npgpt.train", *map(str, arguments)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, env=environment, capture_output=True, encoding="utf-8", timeout=300
        )

    return call


def losses(folder):
    with (folder / "log.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_ranks_equal_one_with_twice_the_batch(mpiexec, tmp_path, optimizer):
    common = ("--data", write_story(tmp_path), *OPTIONS, "--steps", 8, "--optimizer", optimizer)
    one, two = tmp_path / "one", tmp_path / "two"
    assert run(*common, "--out", one, "--batch-size", 6) == 0
    shared = mpiexec(*common, "--out", two, "--batch-size", 3)
    assert shared.returncode == 0, shared.stderr
    np.testing.assert_allclose(losses(two), losses(one), rtol=1e-8)  # the log has nine digits
    wanted, found = (read_tensors(folder / "model.safetensors") for folder in (one, two))
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-9, err_msg=name)
    assert shared.stdout.count("done after step 8") == 1  # rank 0 alone speaks
    assert shared.stdout.count("8 steps of 96 tokens") == 1


def test_ranks_resume_together_and_not_in_another_number(mpiexec, tmp_path, capsys):
    common = ("--data", write_story(tmp_path), *OPTIONS, "--steps", 8, "--batch-size", 3)
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert mpiexec(*common, "--out", whole).returncode == 0
    stopped = mpiexec(*common, "--out", out, "--time-limit", 0)
    assert (stopped.returncode, len(losses(out))) == (0, 1)
    assert run("--out", out, "--resume") == 2
    assert "was started with mpiexec -n 2, not 1, and resumes" in capsys.readouterr().err
    assert mpiexec("--out", out, "--resume").returncode == 0
    assert losses(out) == losses(whole)


def test_the_first_rank_learns_the_vocabulary_of_all(mpiexec, tokenizers, tmp_path):
    common = ("--data", write_story(tmp_path), *SIZE, "--sample-every", 0, "--vocab-size", 300)
    assert run(*common, "--out", tmp_path / "one", "--batch-size", 6, "--steps", 1) == 0
    shared = mpiexec(*common, "--out", tmp_path / "two", "--batch-size", 3, "--steps", 1)
    assert shared.returncode == 0, shared.stderr
    for name in ("vocab.json", "merges.txt"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-4)


def test_bad_input_is_said_once_and_ends_all_ranks(mpiexec, tmp_path):
    failed = mpiexec("--data", tmp_path / "none.txt", "--out", tmp_path / "run")
    assert failed.returncode == 2
    assert failed.stderr.count("none.txt is not there") == 1


def test_without_mpiexec_nothing_is_connected(monkeypatch):
    for name in mpi.SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert mpi.connect() is None
    monkeypatch.setenv("PMI_SIZE", "1")
    assert mpi.connect() is None


def test_under_mpiexec_the_missing_package_is_named(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r'needs: pip install "npgpt\[mpi\]"'):
        mpi.connect()


class Process:
    """Stands for a communicator of two, the other one of which never has a wish or a gradient."""

    rank, size, aborted = 0, 2, None

    def Allreduce(self, _in_place, buffer):
        pass

    def Abort(self, code):
        self.aborted = code


@pytest.fixture
def library(monkeypatch):
    """A library that sees such a communicator, in place of mpi4py."""

    class MPI:
        IN_PLACE, COMM_WORLD = object(), Process()

    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", type(sys)("mpi4py"))
    monkeypatch.setattr(sys.modules["mpi4py"], "MPI", MPI, raising=False)
    return MPI.COMM_WORLD


def test_another_mpi_library_than_the_launcher_s_is_refused(library):
    library.size = 1
    with pytest.raises(ValueError, match="started 2 processes, but mpi4py sees 1: it uses another"):
        mpi.connect()


def test_the_first_rank_writes_and_twice_the_tokens_count(library, tmp_path, capsys):
    common = ("--data", write_story(tmp_path), *SIZE, "--sample-every", 0, "--steps", 3)
    assert run(*common, "--out", tmp_path / "run", "--batch-size", 2) == 0
    assert "; 3 steps of 64 tokens, " in capsys.readouterr().out
    assert len(losses(tmp_path / "run")) == 3


def test_another_rank_takes_part_and_writes_nothing(library, tmp_path, capsys):
    out = tmp_path / "run"
    common = ("--data", write_story(tmp_path), *SIZE, "--sample-every", 0, "--steps", 3)
    assert run(*common, "--out", out, "--batch-size", 2, "--time-limit", 0) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    capsys.readouterr()
    library.rank = 1
    assert run(*common, "--out", out, "--batch-size", 2) == 0
    assert capsys.readouterr().out == ""
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_failure_of_one_rank_ends_all(library, tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(train, "write_row", fail)
    options = ("--data", write_story(tmp_path), *SIZE, "--sample-every", 0, "--steps", 3)
    run(*options, "--out", tmp_path / "run")
    assert library.aborted == 2
    assert "npgpt.train: rank 0: disk full\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lr", "why"), [("3e38", "no longer finite after"), ("1e9", "useless after")]
)
def test_what_diverges_stops_each_rank_by_itself(library, tmp_path, capsys, lr, why):
    """The other ranks, too, look at what is to be saved: they would wait for the first one."""
    wild = ("--lr", lr, "--clip", 0, "--warmup", 0, "--save-every", 1)
    options = ("--data", write_story(tmp_path), *SIZE, "--sample-every", 0, "--steps", 9)
    assert run(*options, *wild, "--out", tmp_path / "run") == 1
    assert f"stopped, {why} " in capsys.readouterr().err
    library.rank = 1
    assert run(*options, *wild, "--out", tmp_path / "run") == 1
    assert library.aborted is None


def test_a_rank_that_cannot_open_the_run_ends_the_others_in_silence(library, monkeypatch):
    ranks = mpi.Ranks(library)

    def fail():
        raise ValueError("no such folder here")

    with pytest.raises(ValueError, match="no such folder here"):
        ranks.first_then_others(fail, fail)
    ranks.rank = 1
    monkeypatch.setattr(ranks, "any", lambda wish: True)
    with pytest.raises(SystemExit) as ended:
        ranks.first_then_others(fail, fail)
    assert ended.value.code == 2
