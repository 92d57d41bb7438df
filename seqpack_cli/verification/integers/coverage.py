"""Count how often all shards together visit each sequence, and check split ones piece by piece.

A sequence is visited where its first piece is. Takes 1 byte per sequence, 2 where a store has 255
passes or more, and 24 per row that may be a piece.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from seqpack_cli.ranges import to_offsets

MAX_NUMBER = np.iinfo(np.int64).max


class Coverage:
    """How often each sequence was seen.

    Args:
        num_sequences: of each store.
        most_visits: of each store, the visits that a sequence of it may have.
    """

    def __init__(self, num_sequences: Sequence[int], most_visits: Sequence[int]) -> None:
        self._offsets = to_offsets(num_sequences)
        self._most = np.array(most_visits, np.int64)
        dtype = np.uint8 if max(most_visits, default=1) < np.iinfo(np.uint8).max else np.uint16
        self.visits = np.zeros(int(self._offsets[-1]), dtype)
        self._rows: list[np.ndarray] = []  # (index, start, length) of shards that have pieces

    @classmethod
    def of_stores(cls, entries: Sequence[dict[str, Any]]) -> Coverage:
        """Make one for the stores of a manifest, none of whose sequences was seen."""
        most_visits = [ceil(Fraction(entry["passes"])) for entry in entries]
        return cls([entry["num_sequences"] for entry in entries], most_visits)

    @property
    def has_repeats(self) -> bool:
        """Whether a sequence may be visited more than once."""
        return bool((self._most > 1).any())

    @property
    def num_missing(self) -> int:
        """The number of sequences that no shard has."""
        return len(self.visits) - int(np.count_nonzero(self.visits))

    def copy(self) -> Coverage:
        """Return a copy, in which more rows can be marked."""
        other = copy.copy(self)
        other.visits, other._rows = self.visits.copy(), [*self._rows]
        return other

    def find_most(self, indices: np.ndarray) -> np.ndarray:
        """Return how often each of some sequences may be visited, int64."""
        if (self._most == self._most[0]).all():
            return np.broadcast_to(self._most[0], len(indices))
        most: np.ndarray = self._most[np.searchsorted(self._offsets, indices, "right") - 1]
        return most

    def mark(
        self, indices: np.ndarray, lengths: np.ndarray, starts: np.ndarray | None
    ) -> tuple[int, str] | None:
        """Mark the rows of a shard, without filler; return a wrong row and why, if there is one."""
        outside = np.flatnonzero((indices < 0) | (indices >= len(self.visits)))
        if len(outside):
            place = int(outside[0])
            what = f"original index {indices[place]} is out of range"
            return place, f"{what}: the token store has {len(self.visits)} sequences"
        begins = np.arange(len(indices))
        if starts is not None:
            self._rows.append(np.stack([indices, starts, lengths]))
            begins = np.flatnonzero(starts == 0)
        values, counts = np.unique(indices[begins], return_counts=True)
        before, most = self.visits[values], self.find_most(values)
        total = counts + before
        excess = np.flatnonzero(total > most)
        if not len(excess):
            self.visits[values] = total
            return None
        self.visits[values] = np.minimum(total, most + 1)
        value = values[excess[0]]
        allowed = int(most[excess[0]])
        places = np.flatnonzero(indices[begins] == value)
        place = places[max(allowed - int(before[excess[0]]), 0)]  # the first one too many
        return int(begins[place]), f"sequence {value} appears more than {show_times(allowed)}"

    def check_pieces(self) -> str | None:
        """Return what is wrong if the pieces of a visit overlap, leave a gap, or end too early.

        The pieces of a sequence with n visits are n chains: n pieces begin at 0, each other one
        where one ends, and the n last end at the same token.
        """
        if not self._rows:
            return None
        indices, starts, lengths = np.concatenate(self._rows, axis=1)
        is_split = np.zeros(len(self.visits), bool)
        is_split[indices[starts != 0]] = True
        pieces = np.flatnonzero(is_split[indices])
        indices, starts, lengths = indices[pieces], starts[pieces], lengths[pieces]
        ends = starts + np.minimum(lengths, MAX_NUMBER - np.maximum(starts, 0))
        starts = starts[np.lexsort((starts, indices))]
        order = np.lexsort((ends, indices))
        indices, ends = indices[order], ends[order]
        groups, firsts, counts = np.unique(indices, return_index=True, return_counts=True)
        # the number of visits, 1 if no piece is the first
        visits = np.maximum(np.bincount(np.searchsorted(groups, indices), starts == 0), 1)
        visits = np.repeat(visits.astype(np.int64), counts)
        places = np.arange(len(indices))
        is_first = places - np.repeat(firsts, counts) < visits
        expected = np.where(is_first, 0, ends[np.maximum(places - visits, 0)])
        wrong = np.flatnonzero(starts != expected)
        if len(wrong):
            place = wrong[0]
            return (
                f"a piece of sequence {indices[place]} begins at token {starts[place]}, "
                f"expected one at {expected[place]}"
            )
        last_ends = np.repeat(ends[firsts + counts - 1], counts)
        is_last = np.repeat(firsts + counts, counts) - places <= visits
        early = np.flatnonzero(is_last & (ends != last_ends))
        if not len(early):
            return None
        place = early[0]
        return (
            f"a visit of sequence {indices[place]} ends at token {ends[place]}, another at "
            f"{last_ends[place]}"
        )


def show_times(count: int) -> str:
    """Return the words for how often a sequence is packed.

    >>> show_times(1), show_times(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{count} times"


def find_twice(
    batches: np.ndarray, indices: np.ndarray, starts: np.ndarray | None
) -> tuple[int, str] | None:
    """Return a row whose sequence, or piece, its batch already has, and what is wrong.

    Args:
        batches: int64[N], the batch of each row.
        starts: where each piece begins.
    """
    keys = [indices, batches] if starts is None else [starts, indices, batches]
    order = np.lexsort(keys)
    is_equal = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    if not is_equal.any():
        return None
    row = int(order[1:][is_equal].min())
    return row, f"sequence {indices[row]} appears more than once in the batch"
