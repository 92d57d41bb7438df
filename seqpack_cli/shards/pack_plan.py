"""A token store and options -> the batches, what they take on disk, and where shards are cut."""

from __future__ import annotations

import os

import numpy as np

from seqpack_cli.batching.batch_plan import BatchPlan, plan_batches, round_up
from seqpack_cli.batching.bin_plan import plan_bins
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.selection import OverlongError
from seqpack_cli.errors import DataError, MachineError, OptionError, join_items
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
        dropped = {name: number for name, number in plan.num_dropped_sequences.items() if number}
        reasons = [f"{number:,} by --{name.replace('_', '-')}" for name, number in dropped.items()]
        raise DataError(
            f"{store.path}: no batch is left, sequences dropped: {join_items(reasons)}",
            hint=f"loosen --{next(iter(dropped), 'min_length').replace('_', '-')}",
        )
    return plan


def make_plan(lengths: np.ndarray, options: PackOptions) -> BatchPlan:
    """Plan batches of rows, or rows of several sequences, as the layout has it."""
    if options.layout == "varlen":
        return plan_bins(lengths, options)
    return plan_batches(lengths, options)


def choose_pad_id(store: TokenStore, options: PackOptions) -> int:
    """Give the id that fills padding: the one of the options, the tokenizer's, or 0.

    Raises:
        OptionError: it is none of the vocabulary's.
    """
    pad_id = options.pad_id
    if pad_id is None:
        pad_id = int(store.manifest.get("pad_id") or 0)
    if not 0 <= pad_id <= store.max_id:
        raise OptionError(f"--pad-id {pad_id}: expected an id from 0 to {store.max_id}")
    return pad_id


def check_memory(plan: BatchPlan, options: PackOptions, itemsize: int) -> None:
    """Raise MachineError, before it is made, for a batch that the memory can not hold."""
    num_rows = np.diff(plan.batch_offsets) + plan.num_filler_rows
    cells = count_cells(plan, options.layout).astype(float)  # which does not wrap around
    largest = float((cells * itemsize + num_rows * BYTES_PER_ROW).max())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if largest > memory:
        raise MachineError(
            f"a batch of {largest / 1e9:,.1f} GB, the memory of this machine is "
            f"{memory / 1e9:,.1f} GB",
            hint="pass a smaller --batch-size or --max-tokens, or drop long sequences with "
            "--max-length",
        )


def count_cells(plan: BatchPlan, layout: str) -> np.ndarray:
    """Give the entries of `data` that each batch takes, int64[batches]."""
    if layout == "padded":
        num_rows = np.diff(plan.batch_offsets) + plan.num_filler_rows
        num_cells: np.ndarray = num_rows * plan.widths
        return num_cells
    return np.add.reduceat(plan.lengths, plan.batch_offsets[:-1], dtype=np.int64)


def count_bytes(plan: BatchPlan, options: PackOptions, itemsize: int) -> np.ndarray:
    """Give the bytes that each batch takes in a shard, int64[batches]."""
    layout = options.layout
    num_rows = np.diff(plan.batch_offsets) + plan.num_filler_rows
    num_bytes: np.ndarray = count_cells(plan, layout) * itemsize + num_rows * BYTES_PER_ROW
    num_bytes += BYTES_PER_BATCH[layout] + 8 * (options.last_batch == "pad")
    if layout == "varlen":
        num_bytes += num_rows * BYTES_PER_PIECE_START
    elif layout == "packed":
        longest = np.maximum.reduceat(plan.lengths, plan.batch_offsets[:-1])
        num_bytes += longest.astype(np.int64) * BYTES_PER_STEP
    return num_bytes


def cut_shards(plan: BatchPlan, options: PackOptions, itemsize: int) -> list[int]:
    """Cut batches into shards of at most shard_bytes, or of one batch if that is larger.

    A file is larger by its header, about 1 kB.
    """
    ends = np.cumsum(count_bytes(plan, options, itemsize))
    cuts = [0]
    while cuts[-1] < plan.num_batches:
        filled = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        end = int(np.searchsorted(ends, filled + options.shard_bytes, "right"))
        cuts.append(max(end, cuts[-1] + 1))
    return cuts
