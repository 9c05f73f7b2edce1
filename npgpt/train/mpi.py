"""Training by several processes, on one machine or many, through MPI (extra `mpi`).

Every rank holds the whole model and reads its own windows of each step; gradients are averaged with
one all-reduce, so that all ranks make the same update. Rank 0 alone writes. Neither model nor
optimizer is sharded.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from npgpt.models.common import Params

SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # Open MPI; MPICH, Intel MPI, MS-MPI

T = TypeVar("T")


class Ranks:
    """The processes of a run, seen from one of them.

    Attributes:
        rank: number of this process, from 0.
        size: how many there are.
    """

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size = comm, int(comm.rank), int(comm.size)

    def average(self, loss: float, grads: Params, count: int) -> float:
        """The mean over all targets of all ranks: the loss returned, the gradients in place.

            g = Σ_r n_r g_r / Σ_r n_r        n_r: targets of rank r

        Loss, n_r and all gradients travel in one flat buffer of the gradients' dtype.

        Args:
            loss, grads: mean over the `count` targets of this rank.
        """
        dtype = next(iter(grads.values())).dtype
        buffer = np.empty(2 + sum(grad.size for grad in grads.values()), dtype)
        buffer[:2] = loss * count, count
        for piece, grad in _pieces(buffer[2:], grads):
            np.multiply(grad, count, out=piece)
        self._add_up(buffer)
        total = max(1.0, float(buffer[1]))
        for piece, grad in _pieces(buffer[2:], grads):
            np.divide(piece, total, out=grad)
        return float(buffer[0]) / total

    def any(self, mine: bool) -> bool:
        """Whether it is true on any rank."""
        count = np.array([mine], np.float64)
        self._add_up(count)
        return bool(count[0])

    def first_then_others(self, first: Callable[[], T], others: Callable[[], T]) -> T:
        """Rank 0 calls `first`; when it is done, the other ranks call `others`.

        What one of them raises is raised on that rank; all others exit in silence, with code 2.
        """
        result, error = None, None
        for mine, call in ((self.rank == 0, first), (self.rank > 0, others)):
            if mine:
                try:
                    result = call()
                except Exception as caught:
                    error = caught
            if self.any(error is not None):
                raise error if error is not None else SystemExit(2)
        assert result is not None
        return result

    @contextlib.contextmanager
    def all_or_none(self, prog: str) -> Iterator[None]:
        """End all ranks when this one fails; the others would wait for it forever."""
        try:
            yield
        except FloatingPointError:  # which all ranks meet in the same step
            raise
        except BaseException as error:
            reason = str(error) or type(error).__name__
            print(f"{prog}: rank {self.rank}: {reason}", file=sys.stderr, flush=True)
            self.comm.Abort(2)

    def _add_up(self, buffer: np.ndarray) -> None:
        from mpi4py import MPI

        self.comm.Allreduce(MPI.IN_PLACE, buffer)


def connect() -> Ranks | None:
    """The ranks that `mpiexec -n N` with N > 1 started; None without it, and nothing is loaded.

    Raises ImportError if mpi4py is missing, ValueError if it belongs to another MPI than mpiexec.
    """
    launched = max(int(os.environ.get(name, "1")) for name in SIZE_VARIABLES)
    if launched < 2:
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError('training under mpiexec needs: pip install "npgpt[mpi]"') from error
    ranks = Ranks(MPI.COMM_WORLD)
    if ranks.size != launched:
        raise ValueError(
            f"mpiexec started {launched} processes, but mpi4py sees {ranks.size}: it uses another "
            "MPI library; start with the mpiexec of that one."
        )
    return ranks


def _pieces(flat: np.ndarray, arrays: Params) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each array with its own piece of the flat buffer, in its shape."""
    start = 0
    for array in arrays.values():
        yield flat[start : start + array.size].reshape(array.shape), array
        start += array.size
