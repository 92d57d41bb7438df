"""The numbers of a token store or shards that `inspect` shows, as plain values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS, SIDES
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.errors import FolderError, check_choice
from seqpack_cli.files.json_files import read_json
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import Place
from seqpack_cli.reporting.batch_facts import spell_batches
from seqpack_cli.reporting.column_contents import describe_columns
from seqpack_cli.reporting.column_facts import find_counts
from seqpack_cli.reporting.duplicates import count_duplicates
from seqpack_cli.reporting.lengths import summarize_lengths
from seqpack_cli.reporting.opened import Opened, choose_side, find_store, open_any_or_splits
from seqpack_cli.reporting.pair_counts import add_up_sides
from seqpack_cli.reporting.selection_counts import describe_splits, describe_stores
from seqpack_cli.reporting.store_warnings import find_own_warnings, name_sides, warn_of_splits
from seqpack_cli.reporting.target_warnings import list_target_options
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.run_folder import RUN_NAME
from seqpack_cli.shards.manifest import DECODER_FIELDS
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_set import SplitSet
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.tokens.tokenizer import check_kept_tokenizer

TOKENS_FIELDS = ("made_by", "dtype", "vocab_size", "max_id", "pad_id", "bos_id", "eos_id", "unk_id")
SHARDS_FIELDS = (
    "layout",
    "dtype",
    "pad_id",
    "padding_side",
    "bucket_keys",
    "vocab_size",
    "max_id",
    "tokenizer_blake3",
)

OF_DECODER = (  # the numbers of shards that each side has
    *(name for name in SHARDS_FIELDS if name in DECODER_FIELDS),
    "stores",
    "ledger",
    "padding_ratio",
    "columns",
    "target_options",
    "lengths",
)


@checks_arguments
def inspect(path: AnyPath, *, side: str | None = None) -> dict[str, Any]:
    """Return the numbers of a token store, shards or splits, as `seqpack inspect --json` does.

    Args:
        path: the folder of one of them.
        side: of shards of pairs, "encoder" or "decoder" for the numbers of that side alone; None
            for those of the encoder with the `decoder`'s, and of `both` together.

    Raises:
        FolderError: it is none of them, incomplete or damaged.
        OptionError: there is no such side.
    """
    check_choice("side", side, (None, *SIDES))
    return describe(choose_side(open_any_or_splits(path), side))


def describe(opened: Opened | SplitSet) -> dict[str, Any]:
    """Return the numbers of a token store, of shards or of splits.

    Raises:
        FolderError: its tokenizer.json is damaged.
    """
    if isinstance(opened, SplitSet):
        more = {"warnings": warn_of_splits(opened), "run": _read_run(opened.path)}
        return {**describe_splits(opened), **more}
    for side in opened.sides if isinstance(opened, ShardSet) else [opened]:
        check_kept_tokenizer(side.path, side.manifest)
    if not isinstance(opened, ShardSet):
        return _describe_store(opened)
    if opened.decoder is not None:
        return _describe_pairs(opened)
    numbers = _describe_shards(opened)
    return numbers if opened.side is None else {**numbers, "side": opened.side}


def _describe_store(store: TokenStore) -> dict[str, Any]:
    manifest = store.manifest
    files = [file for part in manifest["parts"] for file in part["files"]]
    return {
        "kind": "token store",
        "path": str(store.path),
        **{name: manifest.get(name) for name in TOKENS_FIELDS},
        "tokenizer_blake3": manifest["tokenizer_blake3"],
        "num_sources": len(manifest["sources"]),
        "num_parts": len(manifest["parts"]),
        "bytes": sum(file["bytes"] for file in files),
        "ledger": manifest["ledger"],
        "duplicates": count_duplicates(store),
        **_describe_columns(store),
        "options": manifest["options"],
        "lengths": summarize_lengths(read_lengths(store)),
        "run": _read_run(store.path),
    }


def _describe_shards(shards: ShardSet) -> dict[str, Any]:
    manifest, ledger = shards.manifest, shards.manifest["ledger"]
    rows = [shards.open_shard(number).arrays.num_rows for number in range(shards.num_shards)]
    num_rows = np.concatenate([np.empty(0, np.int64), *rows])
    num_cells = ledger["num_tokens"] + ledger["num_padding_cells"]
    entries = "sequences" if LAYOUTS[shards.layout].shares_rows else "rows"
    return {
        "kind": "shards",
        "path": str(shards.path),
        **{name: manifest[name] for name in SHARDS_FIELDS},
        "stores": describe_stores(manifest),
        "num_shards": shards.num_shards,
        "bytes": sum(entry["bytes"] for entry in manifest["shards"]),
        "ledger": ledger,
        "padding_ratio": round(ledger["num_padding_cells"] / max(num_cells, 1), 6),
        "batch_shape": spell_batches(manifest),
        f"{entries}_of_batch": {
            "fewest": int(num_rows.min()) if len(num_rows) else None,
            "most": int(num_rows.max()) if len(num_rows) else None,
        },
        **_describe_columns(shards),
        "options": manifest["options"],
        "lengths": summarize_lengths(read_lengths(shards)),
        "run": _read_run(shards.path),
    }


def _describe_pairs(shards: ShardSet) -> dict[str, Any]:
    """Return the numbers of the encoder's side, with those of the `decoder` and of `both`."""
    encoder, decoder = (_describe_shards(side) for side in shards.sides)
    return {
        **encoder,
        "warnings": name_sides([encoder["warnings"], decoder["warnings"]]),
        "decoder": {name: decoder[name] for name in OF_DECODER},
        "both": add_up_sides([encoder["ledger"], decoder["ledger"]]),
    }


def _describe_columns(opened: Opened) -> dict[str, Any]:
    """Return what the columns hold, what made the targets, and what may be wrong with them."""
    store, columns = find_store(opened, check_indices=False), describe_columns(opened)
    targets = find_counts(columns)
    counted = {} if targets is None else {"": (targets["num_targets"], targets["num_values"])}
    return {
        "columns": columns,
        "target_options": list_target_options(store) if counted else None,
        "warnings": find_own_warnings(opened, store, counted),
    }


def measure_batches(shards: ShardSet) -> BatchTable:
    """Measure every batch; its cells are those of a rectangle, or the room of a single row.

    Raises:
        FolderError: lengths do not match the ids.
    """
    numbers = range(shards.num_shards)
    table = BatchTable.join([_measure(shards.open_shard(number)) for number in numbers])
    if not LAYOUTS[shards.layout].shares_rows:
        num_cells = np.maximum(table.num_cells, table.num_rows * table.longest)
        return replace(table, num_cells=num_cells)
    if not has_one_row(shards):
        return table
    return replace(table, num_cells=np.full(len(table), find_capacity(shards), np.int64))


def has_one_row(shards: ShardSet) -> bool:
    """Return whether each batch is one row, which sequences share and nothing fills up."""
    return LAYOUTS[shards.layout].shares_rows and shards.options.batch_size is None


def _measure(shard: Shard) -> BatchTable:
    arrays, lengths = shard.arrays, shard.tensors["lengths"]
    table = arrays.measure()
    most = np.maximum(table.num_tokens, table.longest)  # a sum may have wrapped around
    is_wrong = (table.num_tokens < 1) | (most > table.num_cells)
    is_wrong[arrays.batch_of_rows[lengths < 0]] = True
    for wrong in np.flatnonzero(is_wrong).tolist():
        shard.check(wrong)
    return table


def find_capacity(shards: ShardSet) -> int:
    """Return the length, or the maximum length, of a row that sequences share."""
    assert shards.options.max_tokens is not None  # noqa: S101 - such layouts need it
    return shards.options.max_tokens


def read_lengths(opened: Opened) -> np.ndarray:
    """Return the lengths of all sequences; of shards those of all rows but filler rows."""
    if not isinstance(opened, ShardSet):
        return opened.lengths
    shards = (opened.open_shard(number) for number in range(opened.num_shards))
    return np.concatenate([np.empty(0, np.int64), *map(_read_lengths, shards)])


def _read_lengths(shard: Shard) -> np.ndarray:
    """Return the lengths of all rows but filler rows."""
    lengths: np.ndarray = shard.tensors["lengths"]
    longest = int(lengths.max())
    if longest != shard.entry["longest"]:
        expected = shard.entry["longest"]
        raise FolderError(f"{shard.path}: longest row {longest:,}, manifest says {expected:,}")
    return lengths[lengths > 0]  # a copy: the shard can be closed


def _read_run(path: Place) -> dict[str, Any] | None:
    try:
        run: dict[str, Any] = read_json(path / RUN_NAME)
    except FolderError:
        return None  # no reader needs it
    return run
