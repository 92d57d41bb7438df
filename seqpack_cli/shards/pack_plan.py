"""Plan the batches of a store: pad id, bytes, which batches share a shard, and what is wrong."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions
from seqpack_cli.batching.order import Rows
from seqpack_cli.batching.plan import BatchTable, Plan, plan_batches
from seqpack_cli.batching.rows import round_up
from seqpack_cli.batching.selection import (
    EMPTY,
    NO_TARGET,
    OTHER_SPLITS,
    PASSES,
    OverlongError,
    SourceCounts,
)
from seqpack_cli.errors import DataError, MachineError, OptionError, join_items, quote
from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import OFFSETS_OF
from seqpack_cli.shards.manifest import PREFIX, find_geometry
from seqpack_cli.shards.selection import Selection
from seqpack_cli.shards.shard import ARRAYS
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.decode import spell_ids
from seqpack_cli.tokens.store import TokenStore

BYTES_PER_NUMBER = 8  # of offsets and hashes
# Why everything was dropped, where no option says it, and what to type.
DROPPED = {
    OTHER_SPLITS: "in other splits",
    NO_TARGET: "without a target",
    EMPTY: "with no sequence on the {side}'s side",
}
LOOSER_OPTIONS = {
    "drop_shorter": "pass a smaller --drop-shorter",
    "drop_longer": "pass a larger --drop-longer",
    "where": "leave out a --where, or look at the values: seqpack inspect {store}",
    NO_TARGET: "to pack sequences without a target too, pass --keep-without-target",
    PASSES: "pass a larger number to --passes",
    "share": "pass a larger --max-passes",
    OTHER_SPLITS: "pass a larger share to --split",
    EMPTY: "look at the documents: seqpack inspect {store}",
    "overflow": "pass a larger --max-tokens or bucket",
    "last_batch": "pass --last-batch keep",
}


def plan_store(
    source: Selection, options: ResolvedOptions, found: SourceCounts | None = None
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
        counts, pairs, both = [found or source.count()], None, source.alignment
        if both is not None:
            counts.append(source.count(side=1))
            pairs = Rows(both.decoder_indices, both.decoder_lengths)
        plan = plan_batches(source, options, counts, pairs=pairs, rounds=source.rounds)
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


def describe_pad_id(store: TokenStore, options: ResolvedOptions) -> str | None:
    """Return a note if an ordinary token pads for want of a pad token, or --pad-id pads nothing."""
    if not options.pads_rows:
        note = f"--pad-id is only recorded: these {options.layout} batches have no padding"
        return None if options.pad_id is None else note
    if options.pad_id is not None or store.manifest.get("pad_id") is not None:
        return None
    (spelling,) = spell_ids(store.read_tokenizer_json(), [0])  # as `choose_pad_id` has it
    return (
        f"the tokenizer names no pad token; padding with id 0, token {quote(spelling.token)}; "
        "pass --pad-id to choose another"
    )


# Bytes


def _add_up(columns: Collection[Column]) -> list[int]:
    """Return the bytes of the columns' entries per token and per row; of a text its offset."""
    found = [0, 0]
    for column in columns:
        dtype = "int64" if column.is_text else column.dtype
        found[not column.is_per_token] += np.dtype(dtype).itemsize
    return found


def _count_text_bytes(store: TokenStore) -> int:
    """Return the bytes of all texts of a store, and of the headers around them."""
    num_bytes: int = sum(part["files"][2]["bytes"] for part in store.parts)
    num_bytes -= BYTES_PER_NUMBER * store.num_documents
    for each in store.folders:
        constants = store.constants[each.number]
        stored = [it for name, it in store.columns.items() if name not in constants]
        per_token, per_row = _add_up(stored)
        num_bytes -= per_token * each.num_tokens + per_row * each.num_sequences
    return max(num_bytes, 0)


def count_bytes(
    table: BatchTable, options: ResolvedOptions, sides: Sequence[TokenStore]
) -> np.ndarray:
    """Return the size in bytes of a batch in a shard, for each row of the table.

    Texts are counted with their mean.

    Args:
        sides: the store of each side.
    """
    num_bytes = np.zeros(len(table), np.int64)
    for number, (side, store) in enumerate(zip(table.sides, sides, strict=True)):
        per_token, per_row = _add_up(store.columns.values())
        if any(column.is_text for column in store.columns.values()):
            per_row += -(-_count_text_bytes(store) // len(store))
        counts = {
            "data_offsets": side.num_cells,
            "sequence_offsets": side.num_rows,
            "step_offsets": side.longest,
        }
        num_bytes += per_row * side.num_rows
        geometry = find_geometry(options, is_decoder=number > 0)
        for name in ARRAYS[options.layout]({}, geometry).tensor_names:
            size = BYTES_PER_NUMBER
            if name == "data":
                size = np.dtype(store.dtype).itemsize + per_token
            num_bytes += size * counts.get(OFFSETS_OF.get(name, ""), 1)
    return num_bytes


def check_memory(table: BatchTable, sizes: np.ndarray) -> None:
    """Raise MachineError if a planned batch is larger than the memory of this machine.

    Args:
        sizes: of the batches, from `count_bytes`.
    """
    # Sizes wrap around only where the cells alone are more than any memory.
    largest = max(int(each.max()) for each in (sizes, *(side.num_cells for side in table.sides)))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if largest > memory:
        raise MachineError(
            f"the largest batch takes {largest / 1e9:,.1f} GB, this machine has "
            f"{memory / 1e9:,.1f} GB of memory",
            hint="pass a smaller --batch-size or --max-tokens, or drop long sequences with "
            "--drop-longer",
        )


def cut_shards(table: BatchTable, sizes: np.ndarray, shard_bytes: int) -> list[int]:
    """Distribute batches over files with at most shard_bytes of data; a larger batch has its own.

    With columns of text a file may have more, where its texts are longer than the mean.

    Args:
        sizes: of the batches, from `count_bytes`.

    Returns:
        The first batch of each file, and the number of all batches.
    """
    # Bytes and batches before each row of the table, and those of the whole table.
    ends, offsets = to_offsets(sizes * table.counts), to_offsets(table.counts)
    sizes = np.append(sizes, 1)  # behind the end
    cuts, num_batches, filled = [0], table.num_batches, 0
    while cuts[-1] < num_batches:
        full = filled + shard_bytes
        row = int(np.searchsorted(ends, full, "right")) - 1
        end = int(offsets[row]) + (full - int(ends[row])) // int(sizes[row])
        cuts.append(min(max(end, cuts[-1] + 1), num_batches))
        row = int(np.searchsorted(offsets, cuts[-1], "right")) - 1
        filled = int(ends[row]) + (cuts[-1] - int(offsets[row])) * int(sizes[row])
    return cuts


# Errors


def overlong_error(
    sides: Sequence[TokenStore], options: ResolvedOptions, error: OverlongError
) -> OptionError:
    """Return the error for a sequence or pair that does not fit, with its place in the input.

    Args:
        sides: the stores of each side.
    """
    test, index, store = error.test, error.index, sides[0]
    origin = store.locate(index)
    document = f"{origin.source}:{origin.record}"
    if len(store.folders) > 1:
        document = f"{origin.store}: {document}"
    place = f"{store.shown_path}: sequence {index} ({document})"
    found = " and ".join(f"{length:,}" for length in error.lengths)
    if len(sides) > 1:
        return OptionError(
            f"{place} has {found} tokens on its two sides, more than {test.option} allows",
            hint=f"increase {test.option}, drop such pairs with --overflow drop, or cut long "
            "documents with tokenize --max-length N --overflow truncate",
        )
    cure = "add a bucket of" if test.option == "--buckets" else f"pass {test.option}"
    multiple = max(options.pad_to_multiple, options.align_sequences)  # one of them is 1
    needed = int(round_up(np.array(error.lengths[0]), multiple))
    hint = f"{cure} {needed}, drop longer ones with --overflow drop, or split them with "
    hint += "--overflow split" if options.shares_rows else f"tokenize --max-length {test.limit}"
    allowed = f"{test.option} allows {test.limit:,}"
    return OptionError(f"{place} has {found} tokens, {allowed}", hint=hint)


def no_batch_error(sides: Sequence[TokenStore], plan: Plan, options: ResolvedOptions) -> DataError:
    """Return the error for a plan without a batch; it says why sequences were dropped.

    Args:
        sides: the stores of each side.
    """
    dropped = dict[str, int]()  # a document that is empty on one side is counted on the other
    for counts in reversed(plan.counts):
        dropped |= {name: number for name, (number, _) in counts.left_out.items() if number}
    place, name = sides[0].shown_path, options.split_name
    if name is not None and len(dropped) > 1:
        place = f"{place}: split {quote(name)}"
        dropped.pop(OTHER_SPLITS, None)
    reasons = [f"{number:,} {_explain(reason, options)[0]}" for reason, number in dropped.items()]
    most = max(dropped, key=dropped.__getitem__)
    store = sides[most.startswith(PREFIX)].folders[0]
    _, hint = _explain(most, options)
    return DataError(
        f"{place}: no batch is left, sequences dropped: {join_items(reasons)}",
        hint=hint.format(store=shlex.quote(str(store.path))),
    )


def _explain(reason: str, options: ResolvedOptions) -> tuple[str, str]:
    """Return why sequences were dropped, and what to type to keep them."""
    side, _, name = reason.rpartition(".")
    if name == PASSES and options.share is not None:
        name = "share"
    option = f"by --{name.replace('_', '-')}" + (f" ({side})" if side else "")
    return DROPPED.get(name, option).format(side=side), LOOSER_OPTIONS[name]
