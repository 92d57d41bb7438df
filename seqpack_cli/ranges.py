"""Expand, copy and compare many ranges of a flat array at once.

Many ranges of one length are copied together, as windows of the array, at 40 ns per range. Others
are copied one by one if they are long, at 300 ns per range, or through the indices of their entries
if they are short, at about 3 ns per entry.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from seqpack_cli.limits import LIMITS


def to_offsets(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the running sum of counts, starting with 0, int64[N + 1].

    >>> to_offsets([2, 3]).tolist()
    [0, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64, copy=False)


def expand_ranges(starts: np.ndarray | int, lengths: np.ndarray) -> np.ndarray:
    """Return the indices that the ranges cover, one range after another, int64[sum of lengths].

    >>> expand_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    lengths = lengths.astype(np.int64, copy=False)
    offsets = np.cumsum(lengths)
    indices = np.arange(int(offsets[-1]) if len(offsets) else 0)
    indices += np.repeat(starts - (offsets - lengths), lengths)
    return indices


def copy_ranges(
    source: np.ndarray,
    source_starts: np.ndarray,
    target: np.ndarray,
    target_starts: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Copy ranges of one flat array into another; ranges adjacent in both are copied as one.

    Args:
        source_starts, target_starts, lengths: int64, one per range, all within the arrays.
    """
    size = LIMITS.sequences_per_block
    for first in range(0, len(lengths), size):
        some = slice(first, first + size)
        _copy_some(source, source_starts[some], target, target_starts[some], lengths[some])


def find_differing(
    first: np.ndarray, second: np.ndarray, lengths: np.ndarray, other_lengths: np.ndarray
) -> np.ndarray:
    """Return which ranges of two flat arrays differ, in length or in an entry, as rising numbers.

    Args:
        lengths, other_lengths: of the N ranges that follow one another in each array.

    >>> first, second = np.array([1, 2, 3, 4]), np.array([1, 5, 3, 4])
    >>> find_differing(first, second, np.array([1, 1, 2]), np.array([1, 1, 2])).tolist()
    [1]
    """
    is_same = lengths == other_lengths
    if is_same.all():
        if is_equal(first, second):
            return np.empty(0, np.int64)
    else:
        first, second = _pick(first, lengths, is_same), _pick(second, other_lengths, is_same)
    differs = np.flatnonzero(first != second)
    ends = np.cumsum(lengths[is_same], dtype=np.int64)
    same = np.flatnonzero(is_same)
    is_same[same[np.searchsorted(ends, differs, "right")]] = False
    return np.flatnonzero(~is_same)


def is_equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two flat arrays hold the same numbers; 0.0 and -0.0 are different."""
    return len(first) == len(second) == find_difference(first, second)


def find_difference(first: np.ndarray, second: np.ndarray) -> int:
    """Return the first index where two flat arrays differ, or the length of the shorter one.

    >>> find_difference(np.array([1, 2, 3]), np.array([1, 5, 3]))
    1
    """
    num_common = min(len(first), len(second))
    size = LIMITS.ids_per_block
    for start in range(0, num_common, size):
        end = min(start + size, num_common)
        differs = view_bits(first[start:end]) != view_bits(second[start:end])
        if differs.any():
            return start + int(differs.argmax())
    return num_common


def view_bits(values: np.ndarray) -> np.ndarray:
    """Return floating-point numbers as the integers of their bits, and integers as they are.

    >>> view_bits(np.array([0.0, -0.0])).tolist()
    [0, -9223372036854775808]
    """
    return values.view(f"i{values.itemsize}") if values.dtype.kind == "f" else values


def _copy_some(
    source: np.ndarray,
    source_starts: np.ndarray,
    target: np.ndarray,
    target_starts: np.ndarray,
    lengths: np.ndarray,
) -> None:
    apart = source_starts[1:] != source_starts[:-1] + lengths[:-1]
    apart |= target_starts[1:] != target_starts[:-1] + lengths[:-1]
    if not apart.all():
        firsts = np.concatenate([[0], np.flatnonzero(apart) + 1])
        source_starts, target_starts = source_starts[firsts], target_starts[firsts]
        lengths = np.add.reduceat(lengths, firsts)
    ranges = np.stack([source_starts, target_starts, lengths])
    if len(lengths) >= LIMITS.ranges_per_length:
        ranges = _copy_equal(source, target, ranges)
    is_short = ranges[2] < LIMITS.long_range
    for start, to, length in ranges.T[~is_short].tolist():
        target[to : to + length] = source[start : start + length]
    ranges = ranges[:, is_short]
    cuts = np.flatnonzero(np.diff(np.cumsum(ranges[2]) // LIMITS.entries_per_block)) + 1
    for some in np.split(ranges, cuts, axis=1):
        _copy_entries(source, target, *some)


def _copy_equal(source: np.ndarray, target: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Copy ranges of the lengths that many of them have; return the others.

    Args:
        ranges: int64[3, N], starts in source, starts in target, and lengths.
    """
    longest = LIMITS.longest_window
    lengths = np.minimum(ranges[2], longest + 1).astype(np.uint16)  # sorts 10 x as fast
    counts = np.bincount(lengths)
    is_common = (counts >= LIMITS.ranges_per_length) & (np.arange(len(counts)) <= longest)
    order, ends = np.argsort(lengths, kind="stable"), np.cumsum(counts)
    for length in np.flatnonzero(is_common).tolist():
        if length:
            some = order[ends[length] - counts[length] : ends[length]]
            _copy_windows(source, target, ranges[:2, some], length)
    return ranges[:, ~is_common[lengths]]


def _copy_windows(source: np.ndarray, target: np.ndarray, starts: np.ndarray, length: int) -> None:
    """Copy ranges of one length.

    Args:
        starts: int64[2, N], in source and in target.
    """
    is_raw = source.dtype == target.dtype
    from_windows = _view_windows(source, length, is_raw=is_raw)
    to_windows = _view_windows(target, length, is_raw=is_raw)
    num_windows = max(LIMITS.entries_per_block // length, 1)
    for first in range(0, starts.shape[1], num_windows):
        begins, places = starts[:, first : first + num_windows]
        to_windows[places] = from_windows[begins]


def _copy_entries(
    source: np.ndarray,
    target: np.ndarray,
    source_starts: np.ndarray,
    target_starts: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Copy ranges through the indices of their entries."""
    entries = source.take(expand_ranges(source_starts, lengths), mode="clip")
    if np.array_equal(target_starts[1:], target_starts[:-1] + lengths[:-1]):
        first = int(target_starts[0]) if len(entries) else 0
        target[first : first + len(entries)] = entries
    else:
        target[expand_ranges(target_starts, lengths)] = entries


def _view_windows(array: np.ndarray, length: int, *, is_raw: bool) -> np.ndarray:
    """Return a view of all windows of a contiguous array, [windows, length].

    numpy's `sliding_window_view` does the same in 40 us.

    Args:
        is_raw: make each window one item of bytes, [windows], copied 2 to 4 times as fast.
    """
    number, step = len(array) - length + 1, array.strides
    if is_raw:
        return np.ndarray(number, f"V{length * array.itemsize}", array, strides=step)
    return np.ndarray((number, length), array.dtype, array, strides=step * 2)


def _pick(values: np.ndarray, lengths: np.ndarray, is_wanted: np.ndarray) -> np.ndarray:
    """Return a copy of the wanted ranges."""
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    picked: np.ndarray = values[expand_ranges(starts[is_wanted], lengths[is_wanted])]
    return picked


def find_index(index: SupportsIndex, length: int, name: str) -> int:
    """Return an index from 0; a negative one counts from the end, as in a list.

    Raises:
        IndexError: there is no such item.
        TypeError: it is not an integer.

    >>> find_index(-1, 3, "batch")
    2
    """
    if isinstance(index, bool):
        raise TypeError(f"{name} {index}, expected an integer")
    number = operator.index(index)  # of numpy and torch too
    if not -length <= number < length:
        raise IndexError(f"{name} {number} of {length}")
    return number % length
