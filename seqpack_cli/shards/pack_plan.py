"""Plan the batches of a token store, their size on disk, and which of them share a shard."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from seqpack_cli.batching.options import DECODER, SIDES, ResolvedOptions
from seqpack_cli.batching.plan import BatchTable, Plan
from seqpack_cli.batching.selection import OverlongError, SourceCounts
from seqpack_cli.errors import MachineError, OptionError, quote
from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.files.tensor_file import ALIGNMENT, Tensor, make_header
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.entry_bytes import EntryBytes
from seqpack_cli.shards.plan_errors import no_batch_error, overlong_error
from seqpack_cli.shards.recorded_options import find_geometry
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.shards.shard_manifest import describe_shard
from seqpack_cli.shards.shard_tensors import OFFSETS_OF, tensor_dtypes, tensor_names
from seqpack_cli.shards.sides import name_tensors
from seqpack_cli.tokens.decode import spell_ids
from seqpack_cli.tokens.store import TokenStore

BYTES_PER_NUMBER = 8
NUMBERS_PER_ARRAY = 3  # in a header: its entries, its first byte, its end


def plan_store(
    source: SelectedStore, options: ResolvedOptions, found: SourceCounts | None = None
) -> Plan:
    """Plan the batches of a store.

    Args:
        source: what the options select of the store.
        options: resolved.
        found: its lengths if they have been counted.

    Raises:
        OptionError: a sequence does not fit; the message has its place in the input.
        DataError: no batch is left.
    """
    try:
        counts = found or source.count()
        plan = source.plan(options, counts)
    except OverlongError as error:
        raise overlong_error(source.sides, options, error) from error
    if plan.num_batches == 0:
        raise no_batch_error(source.sides, plan, options)
    return plan


def choose_pad_id(store: TokenStore, options: ResolvedOptions) -> int:
    """Return the id that fills padding: from the options, else from the store, else 0.

    Raises:
        OptionError: the id is not in the vocabulary, or nothing says which id pads.
    """
    pad_id = options.pad_id
    if pad_id is None:
        pad_id = store.manifest.get("pad_id")
    if pad_id is None and options.pads_rows and not has_tokenizer(store.manifest):
        raise OptionError(
            f"{store.shown_path}: no pad_id and no tokenizer, expected an id to fill padding",
            hint=f"pass --pad-id ID, from 0 to {store.max_id}",
        )
    pad_id = int(pad_id or 0)
    if not 0 <= pad_id <= store.max_id:
        raise OptionError(f"--pad-id {pad_id}: expected an id from 0 to {store.max_id}")
    return pad_id


def describe_substitute_pad_id(store: TokenStore, options: ResolvedOptions) -> str | None:
    """Return a note if padding is filled with an ordinary token for want of a pad token."""
    has_choice = options.pad_id is not None or store.manifest.get("pad_id") is not None
    if has_choice or not options.pads_rows:
        return None
    pad_id = choose_pad_id(store, options)
    (spelling,) = spell_ids(store.read_tokenizer_json(), [pad_id])
    return (
        f"the tokenizer names no pad token; padding with id {pad_id}, "
        f"token {quote(spelling.token)}; pass --pad-id to choose another"
    )


def check_memory(table: BatchTable, entries: Sequence[EntryBytes]) -> None:
    """Raise MachineError if a planned batch is larger than the memory of this machine.

    Args:
        entries: of each side.
    """
    sizes = np.zeros(len(table))
    for side, each in zip(table.sides, entries, strict=True):
        num_cells = side.num_cells.astype(float)  # floats do not wrap around
        per_row = 2 * BYTES_PER_NUMBER + each.per_row
        sizes += num_cells * each.per_cell + table.num_rows * per_row
    largest = float(sizes.max())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if largest > memory:
        raise MachineError(
            f"the largest batch takes {largest / 1e9:,.1f} GB, this machine has "
            f"{memory / 1e9:,.1f} GB of memory",
            hint="pass a smaller --batch-size or --max-tokens, or drop long sequences with "
            "--drop-longer",
        )


def count_bytes(
    table: BatchTable, options: ResolvedOptions, entries: Sequence[EntryBytes]
) -> np.ndarray:
    """Return the size in bytes of a batch in a shard, for each row of the table.

    Texts are counted with their mean.

    Args:
        entries: of each side.
    """
    num_bytes = np.zeros(len(table), np.int64)
    for number, (side, each) in enumerate(zip(table.sides, entries, strict=True)):
        counts = {
            "data_offsets": side.num_cells,
            "sequence_offsets": side.num_rows,
            "step_offsets": side.longest,
        }
        num_bytes += each.per_row * side.num_rows
        for name in tensor_names(options.layout, find_geometry(options, is_decoder=number > 0)):
            size = each.per_cell if name == "data" else BYTES_PER_NUMBER
            num_bytes += size * counts[OFFSETS_OF[name]] if name in OFFSETS_OF else size
    return num_bytes


def cut_shards(
    table: BatchTable, options: ResolvedOptions, entries: Sequence[EntryBytes]
) -> list[int]:
    """Distribute batches over files of at most shard_bytes; a larger batch has its own file.

    With columns of text a file may be larger, where its texts are longer than the mean.

    Args:
        entries: of each side.

    Returns:
        The first batch of each file, and the number of all batches.
    """
    sizes = count_bytes(table, options, entries)
    room = count_room(options, entries)
    # Bytes and batches before each row of the table, and those of the whole table.
    ends, offsets = to_offsets(sizes * table.counts), to_offsets(table.counts)
    cuts, num_batches, filled = [0], table.num_batches, 0
    while cuts[-1] < num_batches:
        row = int(np.searchsorted(ends, filled + room, "right")) - 1
        end = num_batches
        if row < len(sizes):
            inside = (filled + room - int(ends[row])) // int(sizes[row])
            end = int(offsets[row]) + inside
        cuts.append(max(end, cuts[-1] + 1))
        row = min(int(np.searchsorted(offsets, cuts[-1], "right")) - 1, len(sizes) - 1)
        filled = int(ends[row]) + (cuts[-1] - int(offsets[row])) * int(sizes[row])
    return cuts


def count_room(options: ResolvedOptions, entries: Sequence[EntryBytes]) -> int:
    """Return how many of a file's shard_bytes are left for batches.

    The others are for the header, each of whose numbers may have as many digits as shard_bytes, and
    for the last entry of each array of offsets.

    Args:
        entries: of each side.
    """
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    num_ends = 0
    for number, each in enumerate(entries):
        columns, side = each.columns.values(), SIDES[number] if len(entries) > 1 else None
        geometry = find_geometry(options, is_decoder=side == DECODER)
        dtypes = tensor_dtypes(options.layout, geometry, each.dtype, columns=columns)
        tensors |= name_tensors({name: Tensor(dtypes[name], 0) for name in dtypes}, side)
        stores = [{"blake3": "0" * 64}] * each.num_stores
        metadata |= describe_shard({"layout": options.layout, "stores": stores}, side)
        num_ends += sum(column.is_text for column in columns)
        num_ends += len(set(OFFSETS_OF.values()) & set(dtypes))
    shortest, _ = make_header(tensors, metadata)
    num_digits = NUMBERS_PER_ARRAY * len(tensors) * (len(str(options.shard_bytes)) - 1)
    header = len(shortest) + -(-num_digits // ALIGNMENT) * ALIGNMENT
    return max(options.shard_bytes - header - BYTES_PER_NUMBER * num_ends, 0)
