"""Which sequences of a store are kept, which are left out, by which option, and how many tokens.

The same holds of distinct lengths and how many sequences have each: whether one is kept follows
from its length alone.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.pack_options import PackOptions
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
    """The sequences that are left, and a ledger of those that are not.

    Args:
        lengths: of all sequences, or distinct ones.
        counts: sequences of each length; None is one of each.
    """

    def __init__(self, lengths: np.ndarray, counts: np.ndarray | None = None) -> None:
        self.lengths = lengths
        self.counts = counts
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
        num_sequences, num_tokens = len(dropped), int(dropped.sum(dtype=np.int64))
        if self.counts is not None:
            counts = self.counts[out]
            num_sequences, num_tokens = int(counts.sum()), int((dropped * counts).sum())
        self.count_dropped(reason, num_sequences, num_tokens)

    def count_dropped(self, reason: str, num_sequences: int, num_tokens: int) -> None:
        """Write down what is left out."""
        sequences, tokens = self.num_dropped_sequences, self.num_dropped_tokens
        sequences[reason] = sequences.get(reason, 0) + num_sequences
        tokens[reason] = tokens.get(reason, 0) + num_tokens

    @property
    def kept(self) -> np.ndarray:
        """Give a mask of those that are left."""
        return self._kept

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


def drop_by_length(selection: Selection, options: PackOptions) -> None:
    """Leave out sequences that are too short or too long by themselves."""
    if options.min_length is not None:
        selection.drop("min_length", selection.lengths < options.min_length)
    if options.max_length is not None:
        selection.drop("max_length", selection.lengths > options.max_length)


def drop_overlong(selection: Selection, options: PackOptions) -> None:
    """Drop or refuse what is longer than the largest bucket or than the budget of `--max-tokens`.

    Raises:
        OverlongError: a sequence is, and the options do not say to drop it.
    """
    if isinstance(options.buckets, tuple):
        limit = options.buckets[-1]
        if options.overlong == "error":
            selection.check_at_most(limit, "--buckets")
        elif options.overlong == "drop" or selection.any_above(limit):
            selection.drop("overlong", selection.lengths > limit)
    if options.max_tokens is not None:
        limit = options.max_tokens // options.pad_to_multiple * options.pad_to_multiple
        if options.overlong == "drop":
            selection.drop("overlong", selection.lengths > limit)
        else:
            selection.check_at_most(limit, "--max-tokens")
