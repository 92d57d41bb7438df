"""Plan each round by itself, so that no batch holds two visits of a sequence, and join them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.length_counts import PartLengths
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.row_orders import ArrayOrder
from seqpack_cli.batching.row_ranges import join_rows
from seqpack_cli.batching.shuffle import round_seed

Cut = Callable[[PartLengths, PackOptions], tuple[ArrayOrder, BatchTable]]


def plan_rounds(
    rounds: Sequence[PartLengths], options: PackOptions, cut: Cut
) -> tuple[ArrayOrder, BatchTable]:
    """Plan each round by itself, shuffled differently, and put one after another.

    Args:
        rounds: the sequences of each round.
        cut: returns the order and the batches of one round.
    """
    pieces, tables, num_rows = [], [], 0
    for number, source in enumerate(rounds):
        order, table = cut(source, replace(options, seed=round_seed(options.seed, number)))
        pieces.append(order.rows)
        tables.append(replace(table, starts=table.starts + num_rows))
        num_rows += len(order.rows.indices)
        del order
    return ArrayOrder(join_rows(pieces)), BatchTable.join(tables)
