"""A token store and options -> the batches, what they take on disk, and where shards are cut."""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.batch_plan import BatchPlan, plan_batches, round_up
from seqpack_cli.batching.bin_plan import plan_bins
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.selection import OverlongError
from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.tokens.token_store import TokenStore

BYTES_PER_ROW = 16  # its length and original index
BYTES_PER_PIECE_START = 8
BYTES_PER_STEP = 8  # its entry of batch_sizes
# Offsets of rows and ids; in packed also of steps, in padded the width.
BYTES_PER_BATCH = {"packed": 24, "padded": 24, "varlen": 16}


def plan_store(store: TokenStore, options: PackOptions) -> BatchPlan:
    """Plan the batches of a store.

    Args:
        options: resolved.

    Raises:
        OptionError: a sequence does not fit; the message has its place in the input.
        DataError: no batch is left.
    """
    try:
        plan = make_plan(store.lengths, options)
    except OverlongError as error:
        origin = store.locate(error.index)
        splitting = "--overlong split"
        if options.layout != "varlen":
            splitting = f"tokenize --max-length {error.limit}"
        cure = "add a bucket of" if error.option == "--buckets" else f"pass {error.option}"
        needed = int(round_up(np.array(error.length), options.pad_to_multiple))
        raise OptionError(
            f"{store.path}: sequence {error.index} ({origin.source}:{origin.record}) has "
            f"{error.length:,} tokens, {error.option} allows {error.limit:,}",
            hint=f"{cure} {needed}, drop longer ones with --overlong drop, "
            f"or split them with {splitting}",
        ) from error
    if plan.num_batches == 0:
        raise DataError(
            f"{store.path}: no batch is left, dropped are {plan.num_dropped_sequences}",
            hint="loosen --min-length, --max-length, --overlong or --last-batch",
        )
    return plan


def make_plan(lengths: np.ndarray, options: PackOptions) -> BatchPlan:
    """Plan batches of rows, or rows of several sequences, as the layout has it."""
    if options.layout == "varlen":
        return plan_bins(lengths, options)
    return plan_batches(lengths, options)


def count_cells(plan: BatchPlan, layout: str) -> np.ndarray:
    """Give the entries of `data` that each batch takes, int64[batches]."""
    if layout == "padded":
        num_rows = np.diff(plan.batch_offsets) + plan.num_filler_rows
        num_cells: np.ndarray = num_rows * plan.widths
        return num_cells
    return np.add.reduceat(plan.lengths, plan.batch_offsets[:-1], dtype=np.int64)


def count_bytes(plan: BatchPlan, layout: str, itemsize: int) -> np.ndarray:
    """Give the bytes that each batch takes in a shard, int64[batches]."""
    num_rows = np.diff(plan.batch_offsets) + plan.num_filler_rows
    num_bytes: np.ndarray = count_cells(plan, layout) * itemsize + num_rows * BYTES_PER_ROW
    num_bytes += BYTES_PER_BATCH[layout] + 8 * bool(plan.num_filler_rows.any())
    if layout == "varlen":
        num_bytes += num_rows * BYTES_PER_PIECE_START
    elif layout == "packed":
        longest = np.maximum.reduceat(plan.lengths, plan.batch_offsets[:-1])
        num_bytes += longest.astype(np.int64) * BYTES_PER_STEP
    return num_bytes


def cut_shards(plan: BatchPlan, options: PackOptions, itemsize: int) -> list[int]:
    """Cut batches into shards of at most shard_bytes, or of one batch if that is larger."""
    cuts, filled = [0], 0
    for batch, size in enumerate(count_bytes(plan, options.layout, itemsize).tolist()):
        if filled and filled + size > options.shard_bytes:
            cuts.append(batch)
            filled = 0
        filled += size
    return [*cuts, plan.num_batches]
