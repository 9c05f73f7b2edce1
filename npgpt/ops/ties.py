"""Which of equal numbers are among the k largest: no rule of mathematics, but torch's answer.

`torch.topk` on a CPU asks the C++ library: `std::partial_sort` where there are 64 k numbers or
more, otherwise `std::nth_element`. These keep no order among equals, so that it is neither the
first nor the last of them that are chosen: of eight equal numbers the two largest are those at 6
and 5. The answer is the same in every run, in float32 and float64. Here are the steps of GNU's
library, which torch uses on Linux; that of macOS or Windows may answer otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """A number and its place; entries compare by the number alone."""

    value: float
    place: int

    def __lt__(self, other: tuple[float, ...]) -> bool:
        return self.value < other[0]


def places_of_largest(values: Sequence[float], k: int) -> list[int]:
    """The places of the k largest, 1 <= k <= len(values), as `torch.topk` chooses among equals."""
    entries = [Entry(value, place) for place, value in enumerate(values)]
    chosen = _by_heap(entries, k) if 64 * k <= len(values) else _by_parting(entries, k)
    return [entry.place for entry in chosen]


def _by_heap(entries: list[Entry], k: int) -> list[Entry]:
    """partial_sort: the first k; then each that is larger than the smallest takes its place."""
    heap = entries[:k]
    heapq.heapify(heap)
    for entry in entries[k:]:
        if heap[0] < entry:
            heapq.heapreplace(heap, entry)
    return heap


def _by_parting(entries: list[Entry], k: int) -> list[Entry]:
    """nth_element: part into larger and smaller until k entries stand in front.

    By a heap after all if that takes too long, as for some rows that are nearly in order.
    """
    low, high, rounds = 0, len(entries), 2 * (len(entries).bit_length() - 1)
    while high - low > 3:
        if rounds == 0:
            return entries[:low] + _by_heap(entries[low:high], k - low)
        cut = _part(entries, low, high)
        low, high, rounds = (cut, high, rounds - 1) if cut < k else (low, cut, rounds - 1)
    entries[low:high] = sorted(entries[low:high], reverse=True)
    return entries[:k]


def _part(entries: list[Entry], low: int, high: int) -> int:
    """Put the larger ones of low..high-1 in front of the smaller ones; returns where those begin.

    Larger than the pivot, the median of three. What equals it is exchanged, too, and so may end on
    either side.
    """
    three = sorted((high - 1, (low + high) // 2, low + 1), key=lambda i: entries[i], reverse=True)
    entries[low], entries[three[1]] = entries[three[1]], entries[low]
    pivot = entries[low]
    left, right = low + 1, high
    while True:
        while pivot < entries[left]:
            left += 1
        right -= 1
        while entries[right] < pivot:
            right -= 1
        if left >= right:
            return left
        entries[left], entries[right] = entries[right], entries[left]
        left += 1
