"""Plan which sequences go into which batch, from the lengths of a store and the options of pack.

A pure function, so that every worker and every later run makes the same batches: sequences are
selected, shuffled, sorted by length, put into buckets or bins and cut into batches, and the
finished batches are shuffled. Batches in length order follow from counts of the lengths: a thousand
million sequences take a few seconds and memory for one part. Windows are sorted one after another,
at 56 bytes per batch. All other plans hold the lengths of all sequences and at most 32 bytes more
for each, 12 once they are made.

A sequence that is visited several times is in several rounds. Each round is planned by itself, so
that no batch holds two visits of a sequence; 12 bytes per visit are kept, 20 while they are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.batching.array_batches import cut_array
from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.bin_batches import fill_bins
from seqpack_cli.batching.last_batches import finish_batches
from seqpack_cli.batching.length_batches import cut_lengths
from seqpack_cli.batching.length_counts import (
    LengthCounts,
    PartLengths,
    SourceCounts,
    count_source,
    iter_parts,
)
from seqpack_cli.batching.limits import Limits, choose_keys, make_limits
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.rounds import plan_rounds
from seqpack_cli.batching.row_orders import ArrayOrder, LengthOrder, WindowOrder
from seqpack_cli.batching.row_ranges import PlannedRows, RowRange
from seqpack_cli.batching.selection import select
from seqpack_cli.batching.shuffle import BATCHES, shuffled
from seqpack_cli.batching.window_batches import cut_windows
from seqpack_cli.ranges import to_offsets

Order = LengthOrder | WindowOrder | ArrayOrder


@dataclass(frozen=True)
class Plan:
    """The batches of a whole token store, and the order of their rows."""

    table: BatchTable
    order: Order
    bucket_keys: (
        list[Any] | None
    )  # lengths, or pairs of them, in ascending order, including keys without batches
    num_dropped_sequences: dict[str, int]  # by reason
    num_dropped_tokens: dict[str, int]
    num_repeated_sequences: int  # visits beyond the first, dropped ones included
    num_repeated_tokens: int
    decoder: Plan | None = None  # of pairs: the other side's table and counts

    @property
    def num_batches(self) -> int:
        """Return the number of batches."""
        return self.table.num_batches

    def cut(self, cuts: Sequence[int]) -> list[PlannedRows]:
        """Return what each task needs to find its rows.

        Args:
            cuts: the first batch of each task, and the end of the last one.
        """
        tables = self.table.cut(cuts)
        ranges: Iterator[RowRange] = self.order.iter_ranges(tables)
        return [PlannedRows(table, span) for table, span in zip(tables, ranges, strict=True)]


def needs_array(options: PackOptions, num_rounds: int = 1) -> bool:
    """Return whether a plan with these resolved options needs all lengths in one array."""
    if options.shares_rows or options.shuffle or num_rounds > 1:
        return True
    return options.buckets is not None and (options.order == "none" or options.window is not None)


def plan_batches(
    source: PartLengths,
    options: PackOptions,
    counts: SourceCounts | None = None,
    *,
    rounds: Sequence[PartLengths] = (),
) -> Plan:
    """Select the sequences, order them, and cut them into batches.

    Args:
        source: usually a token store, or those of its sequences that are selected.
        options: resolved.
        counts: of the source's lengths; None counts them here.
        rounds: the sequences of each round, with the indices of the source, if sequences are
            visited several times; counts must include all visits.

    Raises:
        OverlongError: a sequence does not fit, and the options do not drop it.
    """
    counts = counts or SourceCounts(count_source(source))
    selection = select(source, counts, options)
    keys = choose_keys(selection.kept, options)
    limits = make_limits(options, keys)
    order: Order

    def finish(tables: list[BatchTable]) -> BatchTable:
        if options.shares_rows:  # finished when they were filled
            return BatchTable.join(tables)
        return finish_batches(tables, limits, options, selection.count_last)

    def cut_round(found: PartLengths, seeded: PackOptions) -> tuple[ArrayOrder, BatchTable]:
        order, tables = _cut_lengths(found.lengths, selection.kept, seeded, limits)
        return order, finish(tables)

    if len(rounds) > 1:
        order, table = plan_rounds(rounds, options, cut_round)
    else:
        order, tables = _cut(source, selection.kept, options, limits)
        table = finish(tables)
    if options.last_batch == "drop":
        selection.count_dropped("last_batch", 0, 0)  # listed in the ledger even if it is 0
    if options.shuffle and not options.carries_state:
        table = table.take(shuffled(len(table), seed=options.seed, stream=BATCHES))
    dropped = selection.num_dropped_sequences, selection.num_dropped_tokens
    return Plan(table, order, keys, *dropped, *count_repeated(counts))


def count_repeated(counts: SourceCounts) -> tuple[int, int]:
    """Return the sequences and the tokens of visits beyond the first."""
    repeated = counts.repeated
    return (repeated.num_sequences, repeated.num_tokens) if repeated else (0, 0)


def count_rows(source: PartLengths, counts: SourceCounts, options: PackOptions) -> int:
    """Count the rows that a plan would have if no last batch is dropped, without filler.

    Args:
        counts: of the source's lengths, visits included.
        options: resolved.

    Raises:
        OverlongError: a sequence does not fit, and the options do not drop it.
    """
    kept = select(source, counts, options).kept
    if options.overflow != "split":
        return kept.num_sequences
    assert options.max_tokens is not None  # noqa: S101 - resolved
    if options.fill == "chunk":
        return kept.num_sequences + kept.num_tokens // options.max_tokens
    num_pieces = -(-kept.lengths // options.max_tokens)
    return int((num_pieces * kept.counts).sum())


def _cut(
    source: PartLengths, kept: LengthCounts, options: PackOptions, limits: list[Limits]
) -> tuple[Order, list[BatchTable]]:
    """Cut each bucket into batches, in the way that needs the least memory."""
    if needs_array(options):
        return _cut_lengths(source.lengths, kept, options, limits)
    window = options.window or (1 if options.order == "none" else None)
    if window is None or window >= kept.num_sequences:
        return LengthOrder(kept), cut_lengths(kept, limits)
    order, table = _cut_windows(source, kept, options, limits[0])
    return order, [table]


def _cut_lengths(
    lengths: np.ndarray, kept: LengthCounts, options: PackOptions, limits: list[Limits]
) -> tuple[ArrayOrder, list[BatchTable]]:
    """Cut each bucket into batches, or fill rows, from the lengths of all sequences."""
    if options.shares_rows:
        order, table = fill_bins(lengths, kept, options)
        return order, [table]
    return cut_array(lengths, kept, options, limits)


def _cut_windows(
    source: PartLengths, kept: LengthCounts, options: PackOptions, limits: Limits
) -> tuple[WindowOrder, BatchTable]:
    """Read the lengths again, in the order of the store, and cut them part by part."""
    least, most = int(kept.lengths[-1]), int(kept.lengths[0])
    num_kept = np.zeros(len(source.part_offsets) - 1, np.int64)

    def iter_kept() -> Iterator[np.ndarray]:
        for number, lengths in iter_parts(source):
            left = lengths[(lengths >= least) & (lengths <= most)]
            num_kept[number] = len(left)
            yield left

    table = cut_windows(iter_kept(), options.window, limits)
    return WindowOrder(to_offsets(num_kept), least, most, options.window), table
