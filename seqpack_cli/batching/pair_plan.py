"""Plan which pairs go into which batch, from the lengths of both sides.

A pure function, as `plan_batches` is for single sequences. Which pairs are left out is known
before: those of an empty, too short or too long side among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.last_batches import finish_batches
from seqpack_cli.batching.length_counts import PartLengths, SourceCounts
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.pair_batches import (
    PairLengths,
    choose_pair_keys,
    cut_pairs,
    make_pair_limits,
)
from seqpack_cli.batching.plan import Plan, count_repeated
from seqpack_cli.batching.rounds import plan_rounds
from seqpack_cli.batching.row_orders import ArrayOrder
from seqpack_cli.batching.selection import Selection
from seqpack_cli.batching.shuffle import BATCHES, shuffled


def plan_pairs(
    source: PartLengths,
    pairs: PairLengths,
    options: PackOptions,
    counts: SourceCounts,
    *,
    rounds: Sequence[PartLengths] = (),
) -> Plan:
    """Order pairs, and cut them into batches.

    Args:
        source: the lengths of the encoder's sequences, 0 for a pair that is left out.
        pairs: the decoder's side, and its counts.
        options: resolved; no kept pair exceeds its limits.
        counts: of the encoder's lengths.
        rounds: the sequences of each round, if pairs are visited several times.
    """
    sides = [select_side(source, found) for found in (counts, pairs.counts)]
    lengths = source.lengths
    is_kept = lengths > 0
    keys = choose_pair_keys(lengths[is_kept], pairs.lengths[is_kept], options)
    limits = make_pair_limits(options, keys)
    del lengths, is_kept

    def count_last(batch: BatchTable) -> None:
        for selection, table in zip(sides, batch.sides, strict=True):
            selection.count_last(table)

    def cut(found: PartLengths, seeded: PackOptions) -> tuple[ArrayOrder, BatchTable]:
        lengths = found.lengths
        order, tables = cut_pairs(lengths, pairs, sides[0].kept, seeded, limits)
        return order, finish_batches(tables, limits, options, count_last)

    if options.last_batch == "drop":
        for selection in sides:
            selection.count_dropped("last_batch", 0, 0)  # listed in the ledger even if it is 0
    order, table = plan_rounds(rounds, options, cut) if len(rounds) > 1 else cut(source, options)
    if options.shuffle:
        table = table.take(shuffled(len(table), seed=options.seed, stream=BATCHES))
    encoder, decoder = (
        (selection.num_dropped_sequences, selection.num_dropped_tokens, *count_repeated(found))
        for selection, found in zip(sides, (counts, pairs.counts), strict=True)
    )
    side = Plan(table.decoder or table, order, keys, *decoder)
    return Plan(table, order, keys, *encoder, side)


def select_side(source: PartLengths, counts: SourceCounts) -> Selection:
    """Return the kept sequences of a side, and why the others are left out."""
    selection = Selection(source, counts.kept)
    for reason, found in counts.left_out.items():
        selection.count_dropped(reason, found.num_sequences, found.num_tokens)
    return selection
