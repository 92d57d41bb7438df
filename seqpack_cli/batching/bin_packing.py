"""Assign sequences to bins: rows of limited capacity that several sequences share.

Best fit decreasing: the longest sequence first, each into the fullest bin that still has room.
Sequences of equal length are placed together, and so are bins with the same free space: the time
grows with the number of distinct lengths and free spaces, not of sequences, and is negligible for a
capacity of 2,048. Best fit decreasing needs at most 11/9 of the fewest possible bins plus a
constant (Johnson 1973); with many short sequences, hardly more than tokens / capacity.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

import numpy as np

from seqpack_cli.errors import check_positive


class _OpenBins:
    """Bins that are not full, grouped by free space; within a group, first in, first out."""

    def __init__(self) -> None:
        self._rooms: list[int] = []  # free spaces, ascending
        self._bins: dict[int, deque[np.ndarray]] = {}

    def find_room(self, length: int) -> int | None:
        """Return the smallest free space that holds length, None if no bin has room."""
        place = bisect_left(self._rooms, length)
        return self._rooms[place] if place < len(self._rooms) else None

    def take(self, room: int, num_bins: int) -> np.ndarray:
        """Remove and return up to num_bins of the bins with this much room."""
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
        """Add bins under the room that they have left; full bins are not kept."""
        if room == 0 or not len(bins):
            return
        if room not in self._bins:
            self._bins[room] = deque()
            insort(self._rooms, room)
        self._bins[room].append(bins)


def best_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Assign sequences to bins by best fit decreasing.

    Args:
        lengths: integers, longest first, none above capacity.
        capacity: maximum number of tokens in a bin.

    Returns:
        int32[N], the bin of each sequence; bins are numbered from 0 in the order they are opened.

    Raises:
        ValueError: the lengths are not longest first, or not from 1 to capacity.

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
    """Put sequences of equal length into bins with equal room; return how many were placed."""
    per_bin = min(room // length, len(bin_of))
    num_placed = min(len(bin_of), len(bins) * per_bin)
    bin_of[:num_placed] = np.repeat(bins, per_bin)[:num_placed]
    num_in_last = num_placed - (len(bins) - 1) * per_bin
    open_bins.put(room - per_bin * length, bins[:-1] if num_in_last < per_bin else bins)
    if num_in_last < per_bin:
        open_bins.put(room - num_in_last * length, bins[-1:])
    return num_placed
