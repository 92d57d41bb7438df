"""All lengths -> the rows of `varlen`: bins of whole sequences, over the whole store.

`best-fit` packs tightly and shuffles the bins, since packing sorts them and sorted batches hurt
training; `sequential` fills one row after another in the order of the input. A sequence longer than
a row is split, dropped or refused.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.batch_plan import BatchPlan
from seqpack_cli.batching.batches import cut_batches
from seqpack_cli.batching.bin_packing import best_fit
from seqpack_cli.batching.length_order import length_order
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.selection import Selection, drop_by_length
from seqpack_cli.batching.shuffle import BATCHES, shuffled
from seqpack_cli.ranges import expand_ranges, to_offsets


def plan_bins(lengths: np.ndarray, options: PackOptions) -> BatchPlan:
    """Choose the sequences of `varlen` rows, split long ones, and put them into bins.

    Args:
        lengths: int32, one per sequence of the store.
        options: resolved.

    Raises:
        OverlongError: a sequence is longer than a row, and the options say error.
    """
    capacity = options.max_tokens
    assert capacity is not None  # noqa: S101 - resolved
    selection = Selection(lengths)
    drop_by_length(selection, options)
    if options.overlong == "drop":
        selection.drop("overlong", lengths > capacity)
    elif options.overlong == "error":
        selection.check_at_most(capacity, "--max-tokens")
    order = selection.take(seed=options.seed if options.shuffle else None)
    order, lengths, starts = _split(order, lengths[order], capacity)
    if options.packing == "best-fit":
        rows, offsets = _fill_bins(lengths, capacity)
        order, lengths = order[rows], lengths[rows]
        starts = starts[rows] if starts is not None else None
        del rows
    else:
        offsets = cut_batches(lengths, batch_size=None, max_tokens=capacity)
    widths = np.empty(0, np.int64)
    if len(lengths):
        widths = np.add.reduceat(lengths, offsets[:-1], dtype=np.int64)
    plan = BatchPlan(
        order,
        lengths,
        offsets,
        widths,
        num_filler_rows=np.zeros(len(widths), np.int64),
        piece_starts=starts,
        num_dropped_sequences=selection.num_dropped_sequences,
        num_dropped_tokens=selection.num_dropped_tokens,
    )
    del order, lengths, starts  # else both the old and the new would be held
    if options.shuffle:
        plan.permute_batches(shuffled(plan.num_batches, seed=options.seed, stream=BATCHES))
    return plan


def count_pieces(lengths: np.ndarray, options: PackOptions) -> int:
    """Count the pieces into which `plan_bins` cuts the sequences, before it takes their memory."""
    kept = lengths[lengths >= (options.min_length or 1)]
    if options.max_length is not None:
        kept = kept[kept <= options.max_length]
    if options.overlong != "split":
        return len(kept)
    assert options.max_tokens is not None  # noqa: S101 - resolved
    return int((-(-kept.astype(np.int64) // options.max_tokens)).sum())


def _split(
    order: np.ndarray, lengths: np.ndarray, capacity: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Cut long sequences into pieces; give the sequence, length and start of each piece."""
    if int(lengths.max(initial=0)) <= capacity:
        return order, lengths, None
    num_pieces = -(-lengths // capacity)
    long = np.flatnonzero(num_pieces > 1)
    firsts = (np.cumsum(num_pieces, dtype=np.int64) - num_pieces)[long]
    order, lengths = np.repeat(order, num_pieces), np.repeat(lengths, num_pieces)
    pieces = expand_ranges(firsts, num_pieces[long])
    starts = np.zeros(len(order), np.int32)
    starts[pieces] = (pieces - np.repeat(firsts, num_pieces[long])) * capacity
    lengths[pieces] = np.minimum(lengths[pieces] - starts[pieces], capacity)
    return order, lengths, starts


def _fill_bins(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Give the rows bin after bin, in their own order within each, and where each bin begins."""
    by_length = length_order(lengths)
    bin_in_order = best_fit(lengths[by_length], capacity)
    bin_of = np.empty_like(bin_in_order)
    bin_of[by_length] = bin_in_order
    del by_length, bin_in_order  # 12 bytes a sequence that the sort below can use
    offsets = to_offsets(np.bincount(bin_of))
    return np.argsort(bin_of, kind="stable"), offsets
