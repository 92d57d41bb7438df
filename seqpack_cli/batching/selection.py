"""Select the sequences that are packed, and count the dropped ones by option.

Whether a sequence is kept depends only on its length, so counts of the lengths are enough.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.length_counts import (
    LengthCounts,
    PartLengths,
    SourceCounts,
    find_first,
)
from seqpack_cli.batching.options import PackOptions


class OverlongError(ValueError):
    """A sequence does not fit into a batch or row, and the options do not drop it.

    Args:
        index: of the sequence, in the decoder's store if it is of that side.
        sides: the lengths of a pair whose sides do not fit together.
    """

    def __init__(
        self,
        index: int,
        length: int,
        option: str,
        limit: int,
        *,
        of_decoder: bool = False,
        sides: tuple[int, ...] = (),
    ) -> None:
        super().__init__(f"sequence {index} has {length:,} tokens, {option} allows {limit:,}")
        self.index = index
        self.length = length
        self.option = option
        self.limit = limit
        self.of_decoder = of_decoder
        self.sides = sides


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
        self.count_dropped(reason, dropped.num_sequences, dropped.num_tokens)
        self.kept = self.kept.take(~is_dropped)

    def count_dropped(self, reason: str, num_sequences: int, num_tokens: int) -> None:
        """Add dropped sequences and tokens to the ledger."""
        sequences, tokens = self.num_dropped_sequences, self.num_dropped_tokens
        sequences[reason] = sequences.get(reason, 0) + num_sequences
        tokens[reason] = tokens.get(reason, 0) + num_tokens

    def count_last(self, batch: BatchTable) -> None:
        """Add a last batch that is dropped, the only one of its table, to the ledger."""
        self.count_dropped("last_batch", int(batch.num_rows[0]), int(batch.num_tokens[0]))

    def check_at_most(self, limit: int, option: str) -> None:
        """Raise OverlongError for the longest sequence, the first if several, above the limit."""
        longest = int(self.kept.lengths.max(initial=0))
        if longest > limit:
            raise OverlongError(find_first(self._source, longest), longest, option, limit)


def select(source: PartLengths, counts: SourceCounts, options: PackOptions) -> Selection:
    """Select the sequences to pack: drop those that the options drop or that do not fit a batch.

    A sequence that is visited several times is kept or dropped as often. Each dropped one has one
    reason: another split, else its length, else a condition, no target or its passes, else
    overflow.

    Args:
        counts: of the source's lengths.
        options: resolved.

    Raises:
        OverlongError: a sequence is longer than the largest bucket or than `--max-tokens`, and the
            options do not drop or split it.
    """
    selection = Selection(source, counts.kept)
    others = counts.left_out.get("other_splits")
    if others is not None:
        selection.count_dropped("other_splits", others.num_sequences, others.num_tokens)
    drop_by_length(selection, options)
    for reason in ("where", "no_target", "passes"):
        if reason in counts.left_out:
            others = counts.left_out[reason]
            _count_left_out(selection, Selection(source, others), reason, options)
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


def _count_left_out(
    selection: Selection, others: Selection, reason: str, options: PackOptions
) -> None:
    """Add what is left out for a reason to the ledger, unless its length is a reason already."""
    drop_by_length(others, options)
    others.drop(reason, others.kept.lengths > 0)
    for name, num_sequences in others.num_dropped_sequences.items():
        selection.count_dropped(name, num_sequences, others.num_dropped_tokens[name])
