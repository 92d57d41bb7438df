"""Check that all shards together have each sequence once, and split ones piece by piece."""

from __future__ import annotations

import numpy as np


class Coverage:
    """Which sequences were seen; takes 1 byte per sequence, and 24 per row that may be a piece."""

    def __init__(self, num_sequences: int) -> None:
        self._seen = np.zeros(num_sequences, bool)
        self._rows: list[np.ndarray] = []  # (index, start, length) of shards that have pieces

    @property
    def num_missing(self) -> int:
        """The number of sequences that no shard has."""
        return len(self._seen) - int(self._seen.sum())

    def mark(
        self, indices: np.ndarray, lengths: np.ndarray, starts: np.ndarray | None
    ) -> tuple[int, str] | None:
        """Mark the rows of a shard, without filler; return a wrong row and why, if there is one."""
        outside = np.flatnonzero((indices < 0) | (indices >= len(self._seen)))
        if len(outside):
            place = int(outside[0])
            what = f"original index {indices[place]} is out of range"
            return place, f"{what}: the token store has {len(self._seen)} sequences"
        begins = np.arange(len(indices))
        if starts is not None:
            self._rows.append(np.stack([indices, starts, lengths]))
            begins = np.flatnonzero(starts == 0)
        values, counts = np.unique(indices[begins], return_counts=True)
        twice = values[(counts > 1) | self._seen[values]]
        fault = None
        if len(twice):
            places = np.flatnonzero(indices[begins] == twice[0])
            place = places[0] if self._seen[twice[0]] else places[1]
            fault = int(begins[place]), f"sequence {twice[0]} appears more than once"
        self._seen[values] = True
        return fault

    def check_pieces(self) -> str | None:
        """Return what is wrong if pieces of a split sequence overlap or leave a gap."""
        if not self._rows:
            return None
        indices, starts, lengths = np.concatenate(self._rows, axis=1)
        is_split = np.zeros(len(self._seen), bool)
        is_split[indices[starts != 0]] = True
        pieces = np.flatnonzero(is_split[indices])
        pieces = pieces[np.lexsort((starts[pieces], indices[pieces]))]
        indices, starts, lengths = indices[pieces], starts[pieces], lengths[pieces]
        is_first = np.append(True, indices[1:] != indices[:-1])[: len(indices)]
        expected = np.where(is_first, 0, np.append(0, (starts + lengths)[:-1])[: len(indices)])
        wrong = np.flatnonzero(starts != expected)
        if not len(wrong):
            return None
        place = wrong[0]
        return (
            f"a piece of sequence {indices[place]} begins at token {starts[place]}, "
            f"expected one at {expected[place]}"
        )
