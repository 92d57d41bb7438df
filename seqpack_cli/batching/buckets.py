"""Lengths -> buckets, in MXNet's sense: a row is padded to the smallest bucket that holds it.

The edges that waste least are found exactly, by dynamic programming over the distinct lengths: with
k buckets, the rows up to the j-th length cost

    best[k][j] = min over i < j of best[k - 1][i] + length[j] * (rows up to j - rows up to i)

which for each j is the lowest of lines in length[j], so a pass over the lengths takes linear time
(the convex hull trick). About 1 us for each bucket and distinct length, in exact integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqpack_cli.batching.length_counts import LengthCounts, join_counts
from seqpack_cli.errors import check_positive


def choose_buckets(rows: LengthCounts, num_buckets: int) -> list[int]:
    """Choose the bucket keys that need the fewest cells for all rows together.

    Args:
        rows: at least one; a length may come more than once.
        num_buckets: how many at most; fewer lengths need fewer.

    Returns:
        Keys in rising order, each a length that occurs; the last is the longest.

    >>> choose_buckets(LengthCounts(np.array([1, 2, 9, 10]), np.array([2, 1, 1, 2])), 2)
    [2, 10]
    """
    check_positive("num_buckets", num_buckets)
    distinct = join_counts([rows])
    keys: list[int] = distinct.lengths[::-1].tolist()
    if len(keys) <= num_buckets:
        return keys
    num_rows = [0, *np.cumsum(distinct.counts[::-1]).tolist()]  # up to each key
    # costs[j]: cells of all rows up to the j-th key, with the buckets so far
    costs = [0, *(key * rows for key, rows in zip(keys, num_rows[1:], strict=True))]
    passes = []
    for number in range(2, num_buckets + 1):
        costs, choices = _add_bucket(costs, keys, num_rows, number)
        passes.append(choices)
    ends = [len(keys)]
    for choices in reversed(passes):
        ends.append(int(choices[ends[-1]]))
    return [keys[end - 1] for end in reversed(ends)]


def find_buckets(lengths: np.ndarray, keys: Sequence[int]) -> np.ndarray:
    """Give the number of the smallest bucket that holds each row, len(keys) where none does.

    Args:
        keys: in rising order.

    Returns:
        int64[N].

    >>> find_buckets(np.array([3, 4, 5, 9]), [4, 8]).tolist()
    [0, 0, 1, 2]
    """
    return np.searchsorted(np.asarray(keys, np.int64), lengths)


def find_bucket_key(keys: list[int], longest: int) -> int | None:
    """Give the bucket of a batch by its longest row: the smallest key that holds it, as in MXNet.

    >>> find_bucket_key([16, 32], 17)
    32
    """
    return min((key for key in keys if key >= longest), default=None)


def _add_bucket(
    costs: list[int], keys: list[int], num_rows: list[int], number: int
) -> tuple[list[int], np.ndarray]:
    """Give the costs with one bucket more, and for each end where that bucket begins."""
    added = [*costs]
    choices = np.zeros(len(costs), np.int64)
    lines: list[int] = []  # begins i of the last bucket; each is lowest for some lengths
    lowest = 0
    for end in range(number, len(costs)):
        _push_line(lines, end - 1, costs, num_rows, first=lowest)
        key = keys[end - 1]
        while lowest + 1 < len(lines) and (
            costs[lines[lowest + 1]] - key * num_rows[lines[lowest + 1]]
            <= costs[lines[lowest]] - key * num_rows[lines[lowest]]
        ):
            lowest += 1
        begin = lines[lowest]
        choices[end] = begin
        added[end] = costs[begin] + key * (num_rows[end] - num_rows[begin])
    return added, choices


def _push_line(
    lines: list[int], new: int, costs: list[int], num_rows: list[int], *, first: int
) -> None:
    """Add the line of a begin, whose slope is steeper than all, and remove those it hides."""
    while len(lines) - first >= 2:
        before, last = lines[-2], lines[-1]
        # `last` is nowhere lowest if `new` crosses `before` no later than `last` does
        if (costs[new] - costs[before]) * (num_rows[last] - num_rows[before]) <= (
            costs[last] - costs[before]
        ) * (num_rows[new] - num_rows[before]):
            lines.pop()
        else:
            break
    lines.append(new)
