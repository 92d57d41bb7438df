"""Lengths -> bins: several sequences share one row of at most so many tokens.

Best fit decreasing: the longest sequence first, each into the fullest bin that still has room.
Sequences of one length go through together, and bins are told apart only by the room that is left,
so the time is that of the distinct lengths and rooms, not of the sequences: for a capacity of 2,048
it hardly counts. Best fit decreasing needs at most 11/9 of the fewest possible bins and a few more
(Johnson 1973); with many short sequences, hardly more than tokens / capacity.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

import numpy as np

from seqpack_cli.errors import check_positive


class _OpenBins:
    """Bins by the room that is left; of equal ones, that which has had it longest comes first."""

    def __init__(self) -> None:
        self._rooms: list[int] = []  # in rising order
        self._bins: dict[int, deque[np.ndarray]] = {}

    def find_room(self, length: int) -> int | None:
        """Give the smallest room of any bin that is at least length."""
        place = bisect_left(self._rooms, length)
        return self._rooms[place] if place < len(self._rooms) else None

    def take(self, room: int, num_bins: int) -> np.ndarray:
        """Take out up to so many of the bins with this room."""
        waiting = self._bins[room]
        taken = []
        while waiting and num_bins > 0:
            bins = waiting.popleft()
            if len(bins) > num_bins:
                waiting.appendleft(bins[num_bins:])
                bins = bins[:num_bins]
            num_bins -= len(bins)
            taken.append(bins)
        if not waiting:
            del self._bins[room]
            del self._rooms[bisect_left(self._rooms, room)]
        return np.concatenate(taken)

    def put(self, room: int, bins: np.ndarray) -> None:
        """Put bins back with the room they have now; full ones are done."""
        if room == 0 or not len(bins):
            return
        if room not in self._bins:
            self._bins[room] = deque()
            insort(self._rooms, room)
        self._bins[room].append(bins)


def best_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Put sequences into bins, best fit decreasing.

    Args:
        lengths: integers, longest first, none above capacity.
        capacity: tokens of a bin at most.

    Returns:
        int32[N], the bin of each sequence; bins are numbered from 0 as they are opened.

    Raises:
        ValueError: the lengths rise, or are not from 1 to capacity.

    >>> best_fit(np.array([6, 5, 4, 3, 2]), 10).tolist()
    [0, 1, 0, 1, 1]
    """
    check_positive("capacity", capacity)
    if (lengths[1:] > lengths[:-1]).any():
        raise ValueError("expected lengths longest first")
    if len(lengths) and not 1 <= int(lengths[-1]) <= int(lengths[0]) <= capacity:
        raise ValueError(f"expected lengths from 1 to {capacity}")
    bin_of = np.empty(len(lengths), np.int32)
    ends = np.append(np.flatnonzero(lengths[1:] != lengths[:-1]) + 1, len(lengths))
    open_bins = _OpenBins()
    num_bins = start = 0
    for end in ends.tolist():
        length = int(lengths[start]) if len(lengths) else 0
        while start < end:
            room = open_bins.find_room(length)
            if room is None:
                num_new = -(-(end - start) // (capacity // length))
                bins = np.arange(num_bins, num_bins + num_new, dtype=np.int32)
                num_bins += num_new
                room = capacity
            else:
                bins = open_bins.take(room, -(-(end - start) // (room // length)))
            start += _fill(open_bins, bins, room, length, bin_of[start:end])
    return bin_of


def _fill(
    open_bins: _OpenBins, bins: np.ndarray, room: int, length: int, bin_of: np.ndarray
) -> int:
    """Put sequences of one length into bins of one room; return how many went in."""
    per_bin = min(room // length, len(bin_of))
    num_placed = min(len(bin_of), len(bins) * per_bin)
    bin_of[:num_placed] = np.repeat(bins, per_bin)[:num_placed]
    num_in_last = num_placed - (len(bins) - 1) * per_bin
    open_bins.put(room - per_bin * length, bins[:-1] if num_in_last < per_bin else bins)
    if num_in_last < per_bin:
        open_bins.put(room - num_in_last * length, bins[-1:])
    return num_placed
