"""Which sequences of a store are kept, which are left out, by which option, and how many tokens."""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.shuffle import shuffled


class OverlongError(ValueError):
    """A sequence does not fit into a batch or row, and nothing says to drop it."""

    def __init__(self, index: int, length: int, option: str, limit: int) -> None:
        super().__init__(f"sequence {index} has {length:,} tokens, {option} allows {limit:,}")
        self.index = index
        self.length = length
        self.option = option
        self.limit = limit


class Selection:
    """The sequences that are left, and a ledger of those that are not."""

    def __init__(self, lengths: np.ndarray) -> None:
        self.lengths = lengths  # of the whole store
        self.num_dropped_sequences: dict[str, int] = {}  # by reason
        self.num_dropped_tokens: dict[str, int] = {}
        self._kept = np.ones(len(lengths), bool)

    def drop(self, reason: str, which: np.ndarray) -> None:
        """Leave out sequences, given by a mask or by indices, unless they are out already."""
        out = np.zeros(len(self.lengths), bool)
        out[which] = True
        out &= self._kept
        self._kept &= ~out
        dropped = self.lengths[out]
        sequences, tokens = self.num_dropped_sequences, self.num_dropped_tokens
        sequences[reason] = sequences.get(reason, 0) + len(dropped)
        tokens[reason] = tokens.get(reason, 0) + int(dropped.sum(dtype=np.int64))

    def check_at_most(self, limit: int, option: str) -> None:
        """Raise OverlongError for the longest sequence that is left and above the limit."""
        if self.any_above(limit):
            index = int(np.where(self._kept, self.lengths, 0).argmax())
            raise OverlongError(index, int(self.lengths[index]), option, limit)

    def any_above(self, limit: int) -> bool:
        """Say whether a sequence that is left is longer than the limit."""
        return bool((self._kept & (self.lengths > limit)).any())

    def take(self, *, seed: int | None) -> np.ndarray:
        """Give the indices that are left, rising or shuffled by a seed, int64[N]."""
        if seed is None:
            return np.flatnonzero(self._kept)
        order = shuffled(len(self.lengths), seed=seed)
        return order if self._kept.all() else order[self._kept[order]]
