"""Plan rows that several sequences share, from the lengths of the whole store.

`best-fit` leaves little room unused; its rows are shuffled by default, because best fit puts
sequences of similar length together, which hurts training. `sequential` fills one row after another
in the order of the store; both split a sequence only if it is longer than a row. `chunk` cuts
anywhere, so that every row is full.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.array_batches import choose_order
from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.bin_packing import best_fit
from seqpack_cli.batching.chunks import cut_chunks
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.length_order import length_order
from seqpack_cli.batching.limits import Limits, round_up
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.row_orders import ArrayOrder
from seqpack_cli.batching.row_ranges import Rows
from seqpack_cli.batching.shared_rows import make_batches
from seqpack_cli.ranges import expand_ranges, to_offsets


def fill_bins(
    lengths: np.ndarray, kept: LengthCounts, options: PackOptions
) -> tuple[ArrayOrder, BatchTable]:
    """Put the kept sequences into rows, and these into batches.

    Args:
        lengths: int32, one per sequence of the store.
    """
    capacity = options.max_tokens
    assert capacity is not None  # noqa: S101 - resolved
    order = choose_order(lengths, kept, options)
    rows = Rows(order, lengths[order])
    if options.fill == "chunk":
        rows, offsets = cut_chunks(rows, capacity)
    elif int(kept.lengths.max(initial=0)) > capacity:
        rows = _split(order, rows.lengths, capacity)
    del order  # or both the old and the new order would be in memory
    if options.fill == "best-fit":
        places, offsets = _fill_bins(round_up(rows.lengths, options.align_sequences), capacity)
        rows = rows.take(places)
        del places
    elif options.fill == "sequential":
        offsets = Limits(max_tokens=capacity).cut(round_up(rows.lengths, options.align_sequences))
    rows, table = make_batches(rows, offsets, options)
    return ArrayOrder(rows), table


def _split(order: np.ndarray, lengths: np.ndarray, capacity: int) -> Rows:
    """Cut long sequences into pieces."""
    num_pieces = -(-lengths // capacity)
    long = np.flatnonzero(num_pieces > 1)
    firsts = (np.cumsum(num_pieces, dtype=np.int64) - num_pieces)[long]
    order, lengths = np.repeat(order, num_pieces), np.repeat(lengths, num_pieces)
    pieces = expand_ranges(firsts, num_pieces[long])
    starts = np.zeros(len(order), np.int32)
    starts[pieces] = (pieces - np.repeat(firsts, num_pieces[long])) * capacity
    lengths[pieces] = np.minimum(lengths[pieces] - starts[pieces], capacity)
    return Rows(order, lengths, starts)


def _fill_bins(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows bin by bin, within a bin in the given order, and where each bin begins."""
    by_length = length_order(lengths)
    bin_in_order = best_fit(lengths[by_length], capacity)
    bin_of = np.empty_like(bin_in_order)
    bin_of[by_length] = bin_in_order
    del by_length, bin_in_order  # frees 12 bytes per sequence for the sort below
    offsets = to_offsets(np.bincount(bin_of))
    return np.argsort(bin_of, kind="stable"), offsets
