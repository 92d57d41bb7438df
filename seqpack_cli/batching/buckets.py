"""Choose buckets, in MXNet's sense: a row is padded to the smallest bucket key that holds it.

The keys with the least padding are found exactly, by dynamic programming over the distinct lengths:
with k buckets, the rows up to the j-th length cost

    best[k][j] = min over i < j of best[k - 1][i] + length[j] * (rows up to j - rows up to i)

For each j this is the lowest of several lines, evaluated at length[j], so one pass over the lengths
takes linear time (the convex hull trick): about 1 us per bucket and distinct length, in integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqpack_cli.batching.length_counts import LengthCounts, join_counts
from seqpack_cli.errors import check_positive


def choose_buckets(rows: LengthCounts, num_buckets: int) -> list[int]:
    """Choose the bucket keys that need the fewest cells in total.

    Args:
        rows: counts of at least one row; a length may occur more than once.
        num_buckets: the maximum; there are fewer if there are fewer distinct lengths.

    Returns:
        Keys in ascending order, each a length that occurs; the last is the longest.

    >>> choose_buckets(LengthCounts(np.array([1, 2, 9, 10]), np.array([2, 1, 1, 2])), 2)
    [2, 10]
    """
    check_positive("num_buckets", num_buckets)
    distinct = join_counts([rows])
    keys: list[int] = distinct.lengths[::-1].tolist()
    if len(keys) <= num_buckets:
        return keys
    num_rows = [0, *np.cumsum(distinct.counts[::-1]).tolist()]  # up to each key
    # costs[j]: fewest cells for all rows up to the j-th key, with the buckets so far
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
    """Return the number of the smallest bucket that holds each row, len(keys) where none does.

    Args:
        keys: in ascending order.

    Returns:
        int64[N].

    >>> find_buckets(np.array([3, 4, 5, 9]), [4, 8]).tolist()
    [0, 0, 1, 2]
    """
    return np.searchsorted(np.asarray(keys, np.int64), lengths)


def find_bucket_key(keys: list[int], longest: int) -> int | None:
    """Return the smallest key that holds a batch's longest row, as in MXNet; None if none does.

    >>> find_bucket_key([16, 32], 17)
    32
    """
    return min((key for key in keys if key >= longest), default=None)


def _add_bucket(
    costs: list[int], keys: list[int], num_rows: list[int], number: int
) -> tuple[list[int], np.ndarray]:
    """Return the costs with one more bucket, and for each end where that bucket begins."""
    added = [*costs]
    choices = np.zeros(len(costs), np.int64)
    lines: list[int] = []  # candidates for the first row i of the last bucket, one line each
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
    """Add a line, steeper than all before it, and remove those that are no longer the lowest."""
    while len(lines) - first >= 2:
        before, last = lines[-2], lines[-1]
        # `last` is never the lowest if `new` crosses `before` no later than `last` does
        if (costs[new] - costs[before]) * (num_rows[last] - num_rows[before]) <= (
            costs[last] - costs[before]
        ) * (num_rows[new] - num_rows[before]):
            lines.pop()
        else:
            break
    lines.append(new)
