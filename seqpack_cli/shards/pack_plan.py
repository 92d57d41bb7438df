"""A token store and options -> the batches, what they take on disk, and where shards are cut."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from seqpack_cli.batching.batch_plan import BatchPlan, plan_batches
from seqpack_cli.batching.batch_runs import BatchRuns
from seqpack_cli.batching.bin_plan import plan_bins
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.limits import round_up
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.range_plan import RangePlan, can_plan_ranges, plan_ranges
from seqpack_cli.batching.row_ranges import RangeRows
from seqpack_cli.batching.selection import OverlongError
from seqpack_cli.errors import DataError, MachineError, OptionError, join_items, quote
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.lay_out import ShardRows
from seqpack_cli.shards.shard_arrays import tensor_names
from seqpack_cli.shards.shard_file import ALIGNMENT, make_header
from seqpack_cli.shards.shard_manifest import describe_shard
from seqpack_cli.tokens.decoder import spell_ids
from seqpack_cli.tokens.token_store import TokenStore

BYTES_PER_ROW = 16  # its length and original index
BYTES_PER_PIECE_START = 8
BYTES_PER_STEP = 8  # its entry of batch_sizes
NUMBERS_PER_ARRAY = 3  # in a header: its entries, its first byte, its end
# Offsets of rows and ids; in packed also of steps, in padded the width.
BYTES_PER_BATCH = {"packed": 24, "padded": 24, "varlen": 16}

Plan = BatchPlan | RangePlan


def plan_store(store: TokenStore, options: PackOptions) -> BatchPlan:
    """Plan the batches of a store, with the sequences of each.

    Args:
        options: resolved.

    Raises:
        OptionError: a sequence does not fit; the message has its place in the input.
        DataError: no batch is left.
    """
    try:
        plan = make_plan(store.lengths, options)
    except OverlongError as error:
        raise _refuse_overlong(store, options, error) from error
    _check_batches(store, plan)
    return plan


def plan_shards(store: TokenStore, options: PackOptions, found: LengthCounts | None = None) -> Plan:
    """Plan the batches of a store; where it can be, without holding all its sequences.

    Args, Raises: as for plan_store.
        found: its lengths if they have been counted.
    """
    if not can_plan_ranges(options):
        return plan_store(store, options)
    try:
        plan = plan_ranges(store, options, found)
    except OverlongError as error:
        raise _refuse_overlong(store, options, error) from error
    _check_batches(store, plan)
    return plan


def _refuse_overlong(store: TokenStore, options: PackOptions, error: OverlongError) -> OptionError:
    origin = store.locate(error.index)
    splitting = "--overlong split"
    if options.layout != "varlen":
        splitting = f"tokenize --max-length {error.limit}"
    cure = "add a bucket of" if error.option == "--buckets" else f"pass {error.option}"
    needed = int(round_up(np.array(error.length), options.pad_to_multiple))
    return OptionError(
        f"{store.path}: sequence {error.index} ({origin.source}:{origin.record}) has "
        f"{error.length:,} tokens, {error.option} allows {error.limit:,}",
        hint=f"{cure} {needed}, drop longer ones with --overlong drop, "
        f"or split them with {splitting}",
    )


def _check_batches(store: TokenStore, plan: Plan) -> None:
    if plan.num_batches == 0:
        dropped = {name: number for name, number in plan.num_dropped_sequences.items() if number}
        reasons = [f"{number:,} by --{name.replace('_', '-')}" for name, number in dropped.items()]
        raise DataError(
            f"{store.path}: no batch is left, sequences dropped: {join_items(reasons)}",
            hint=f"loosen --{next(iter(dropped), 'min_length').replace('_', '-')}",
        )


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


def describe_lent_pad_id(store: TokenStore, options: PackOptions) -> str | None:
    """Return a note about padding with the id of an ordinary token; None where there is none."""
    has_choice = options.pad_id is not None or store.manifest.get("pad_id") is not None
    if has_choice or options.layout != "padded":
        return None
    pad_id = choose_pad_id(store, options)
    (spelling,) = spell_ids(store.read_tokenizer_json(), [pad_id])
    return (
        f"the tokenizer has no pad token: id {pad_id}, token {quote(spelling.token)}, fills the "
        "padding; pass --pad-id to choose another"
    )


def check_memory(plan: Plan, options: PackOptions, itemsize: int) -> None:
    """Raise MachineError, before it is made, for a batch that the memory can not hold."""
    runs = plan.runs
    num_rows = runs.num_rows + runs.num_filler_rows
    cells = _count_cells(runs, options.layout).astype(float)  # which does not wrap around
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
    return _count_cells(plan.runs, layout)


def count_bytes(plan: BatchPlan, options: PackOptions, itemsize: int) -> np.ndarray:
    """Give the bytes that each batch takes in a shard, int64[batches]."""
    return _count_bytes(plan.runs, options, itemsize)


def _count_cells(runs: BatchRuns, layout: str) -> np.ndarray:
    if layout != "padded":
        return runs.num_tokens
    num_cells: np.ndarray = (runs.num_rows + runs.num_filler_rows) * runs.widths
    return num_cells


def _count_bytes(runs: BatchRuns, options: PackOptions, itemsize: int) -> np.ndarray:
    layout, num_rows = options.layout, runs.num_rows + runs.num_filler_rows
    num_bytes: np.ndarray = _count_cells(runs, layout) * itemsize + num_rows * BYTES_PER_ROW
    num_bytes += BYTES_PER_BATCH[layout] + 8 * (options.last_batch == "pad")
    if layout == "varlen":
        num_bytes += num_rows * BYTES_PER_PIECE_START
    elif layout == "packed":
        num_bytes += runs.longest * BYTES_PER_STEP
    return num_bytes


def cut_shards(plan: Plan, options: PackOptions, itemsize: int) -> list[int]:
    """Cut batches into files of at most shard_bytes, or of one batch if that is larger."""
    runs = plan.runs
    sizes = _count_bytes(runs, options, itemsize)
    room = count_room(options, itemsize)
    # Of each run, and of all: where it ends, in bytes and in batches.
    ends, offsets = to_offsets(sizes * runs.counts), to_offsets(runs.counts)
    cuts, num_batches, filled = [0], runs.num_batches, 0
    while cuts[-1] < num_batches:
        run = int(np.searchsorted(ends, filled + room, "right")) - 1
        end = num_batches
        if run < len(sizes):
            inside = (filled + room - int(ends[run])) // int(sizes[run])
            end = int(offsets[run]) + inside
        cuts.append(max(end, cuts[-1] + 1))
        run = min(int(np.searchsorted(offsets, cuts[-1], "right")) - 1, len(sizes) - 1)
        filled = int(ends[run]) + (cuts[-1] - int(offsets[run])) * int(sizes[run])
    return cuts


def count_room(options: PackOptions, itemsize: int) -> int:
    """Count the bytes that batches may take in a file of shard_bytes.

    The rest is the header, each of whose numbers may have as many digits as shard_bytes, and the
    last entry of each array of offsets.
    """
    names = tensor_names(options.layout, filler=options.last_batch == "pad")
    metadata = describe_shard({"layout": options.layout, "tokens_blake3": "0" * 64})
    dtype = {2: "uint16", 4: "int32"}[itemsize]
    shortest, _ = make_header(dict.fromkeys(names, 0), metadata, data_dtype=dtype)
    num_digits = NUMBERS_PER_ARRAY * len(names) * (len(str(options.shard_bytes)) - 1)
    num_ends = sum(name.endswith("_offsets") for name in names)
    header = len(shortest) + -(-num_digits // ALIGNMENT) * ALIGNMENT
    return max(options.shard_bytes - header - 8 * num_ends, 0)


def cut_rows(plan: Plan, options: PackOptions, itemsize: int) -> Sequence[ShardRows | RangeRows]:
    """Give the rows of each shard, or where they are found."""
    cuts = cut_shards(plan, options, itemsize)
    if isinstance(plan, RangePlan):
        return plan.cut(cuts)
    return [ShardRows.cut(plan, first, last) for first, last in pairwise(cuts)]
