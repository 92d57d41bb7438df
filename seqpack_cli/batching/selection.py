"""Select the sequences that are packed, and count the dropped ones by option.

Whether a sequence is kept depends only on its length, so counts of the lengths are enough.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.length_counts import LengthCounts, PartLengths, find_first
from seqpack_cli.batching.pack_options import PackOptions


class OverlongError(ValueError):
    """A sequence does not fit into a batch or row, and the options do not drop it."""

    def __init__(self, index: int, length: int, option: str, limit: int) -> None:
        super().__init__(f"sequence {index} has {length:,} tokens, {option} allows {limit:,}")
        self.index = index
        self.length = length
        self.option = option
        self.limit = limit


class Selection:
    """The kept sequences, and a ledger of the dropped ones.

    Args:
        source: read only for the index of a sequence that is too long.
        found: counts of its lengths.
    """

    def __init__(self, source: PartLengths, found: LengthCounts) -> None:
        self.kept = found
        self.num_dropped_sequences: dict[str, int] = {}  # by reason
        self.num_dropped_tokens: dict[str, int] = {}
        self._source = source

    def drop(self, reason: str, is_dropped: np.ndarray) -> None:
        """Drop all sequences of some of the kept lengths."""
        dropped = self.kept.take(is_dropped)
        num_tokens = int((dropped.lengths * dropped.counts).sum())
        self.count_dropped(reason, dropped.num_sequences, num_tokens)
        self.kept = self.kept.take(~is_dropped)

    def count_dropped(self, reason: str, num_sequences: int, num_tokens: int) -> None:
        """Add dropped sequences and tokens to the ledger."""
        sequences, tokens = self.num_dropped_sequences, self.num_dropped_tokens
        sequences[reason] = sequences.get(reason, 0) + num_sequences
        tokens[reason] = tokens.get(reason, 0) + num_tokens

    def check_at_most(self, limit: int, option: str) -> None:
        """Raise OverlongError for the longest sequence, the first if several, above the limit."""
        longest = int(self.kept.lengths.max(initial=0))
        if longest > limit:
            raise OverlongError(find_first(self._source, longest), longest, option, limit)


def select(
    source: PartLengths,
    found: LengthCounts,
    options: PackOptions,
    left_out: LengthCounts | None = None,
) -> Selection:
    """Select the sequences to pack: drop those that the options drop or that do not fit a batch.

    Args:
        found: counts of the source's lengths.
        options: resolved.
        left_out: counts of the lengths that conditions leave out of the source.

    Raises:
        OverlongError: a sequence is longer than the largest bucket or than `--max-tokens`, and the
            options do not drop or split it.
    """
    selection = Selection(source, found)
    drop_by_length(selection, options)
    if left_out is not None:
        _count_left_out(selection, Selection(source, left_out), options)
    if isinstance(options.buckets, tuple):
        is_above = selection.kept.lengths > options.buckets[-1]
        if options.overflow == "error":
            selection.check_at_most(options.buckets[-1], "--buckets")
        elif options.overflow == "drop" or is_above.any():
            selection.drop("overflow", is_above)
    if options.max_tokens is not None and options.overflow != "split":
        limit = options.max_tokens // options.pad_to_multiple * options.pad_to_multiple
        if options.overflow == "drop":
            selection.drop("overflow", selection.kept.lengths > limit)
        else:
            selection.check_at_most(limit, "--max-tokens")
    return selection


def drop_by_length(selection: Selection, options: PackOptions) -> None:
    """Drop sequences by `--drop-shorter` and `--drop-longer`."""
    if options.drop_shorter is not None:
        selection.drop("drop_shorter", selection.kept.lengths < options.drop_shorter)
    if options.drop_longer is not None:
        selection.drop("drop_longer", selection.kept.lengths > options.drop_longer)


def _count_left_out(selection: Selection, others: Selection, options: PackOptions) -> None:
    """Add what conditions leave out to the ledger, unless its length is a reason already."""
    drop_by_length(others, options)
    others.drop("where", others.kept.lengths > 0)
    for reason, num_sequences in others.num_dropped_sequences.items():
        selection.count_dropped(reason, num_sequences, others.num_dropped_tokens[reason])
