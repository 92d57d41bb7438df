"""The manifest of shards: its fields, which are checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import Kind, check_fields
from seqpack_cli.files.manifest import MANIFEST_NAME, check_files, read_manifest
from seqpack_cli.files.places import Place
from seqpack_cli.shards.recorded_options import check_plan_fields, read_options
from seqpack_cli.shards.recorded_stores import check_columns, check_passes, check_stores
from seqpack_cli.shards.selection import NUM_TARGETS
from seqpack_cli.shards.sides import name_tensors, own_options, view_decoder
from seqpack_cli.shards.store_counts import check_counts
from seqpack_cli.tokens.manifest import check_id_range

FORMAT = "seqpack.shards"
FORMAT_VERSION = 10
ROLES = ("bos_id", "eos_id", "unk_id")  # of the first store, as its pad_id
OF_STORES = ("vocab_size", "max_id", *ROLES)
BYTES_PER_BATCH = 16  # for the offsets that every layout has
BYTES_PER_ROW = 16  # for its length and its index
COUNTS = (
    "num_batches",
    "num_rows",  # including filler rows
    "num_filler_rows",
    "num_sequences",
    "num_split_sequences",
    "num_tokens",
    NUM_TARGETS,
    "num_padding_cells",
)
MANIFEST_FIELDS: dict[str, Kind] = {
    "plan_version": int,
    "layout": str,
    "dtype": str,
    "pad_id": int,
    "padding_side": str,
    "bucket_keys": object,
    "vocab_size": int,
    "max_id": int,
    **dict.fromkeys(ROLES, object),  # checked with the range of ids
    "tokenizer_blake3": str | None,
    "stores": list,
    "columns": list,
    "options": dict,
    "ledger": dict,
    "shards": list,
    "decoder": dict | None,  # of pairs: the fields of that side
}
OF_SIDE = ("dtype", "pad_id", "vocab_size", "max_id", *ROLES)
DECODER_FIELDS = {
    name: MANIFEST_FIELDS[name]
    for name in (*OF_SIDE, "tokenizer_blake3", "stores", "columns", "ledger")
}
LEDGER_FIELDS: dict[str, type] = {
    **dict.fromkeys(COUNTS, int),
    "num_dropped_sequences": dict,
    "num_dropped_tokens": dict,
    "num_repeated_sequences": int,  # visits beyond the first
    "num_repeated_tokens": int,
    "stores": list,
}
STORE_FIELDS: dict[str, type] = {
    "path": str,
    "blake3": str,
    "passes": str,
    "num_sequences": int,  # of the whole store
    "num_tokens": int,
}
SHARD_FIELDS: dict[str, Kind] = {
    "name": str,
    "bytes": int,
    "blake3": str,
    **dict.fromkeys(COUNTS, int),
    "longest": int,
    "stores": list,
    "decoder": dict | None,  # of pairs: the counts of that side
}
DECODER_COUNTS = {name: SHARD_FIELDS[name] for name in (*COUNTS, "longest", "stores")}


def read_shards_manifest(path: Place, *, check_present: bool) -> tuple[dict[str, Any], str]:
    """Read and check the manifest of finished shards; return it and its digest.

    Args:
        check_present: also check that every shard file exists and has its full size.

    Raises:
        FolderError: the folder is incomplete, of another version, or does not hold shards.
    """
    manifest, digest, find_size = read_manifest(
        path, format_name=FORMAT, version=FORMAT_VERSION, fields=MANIFEST_FIELDS
    )
    source = path / MANIFEST_NAME
    if manifest["plan_version"] < 1:
        raise FolderError(f"{source}: plan_version 0, expected at least 1")
    if manifest["layout"] not in LAYOUTS:
        raise FolderError(
            f"{source}: layout {quote(manifest['layout'])}, expected {' or '.join(LAYOUTS)}"
        )
    if manifest["padding_side"] not in ("right", "left"):
        found = quote(manifest["padding_side"])
        raise FolderError(f"{source}: padding_side {found}, expected right or left")
    if not manifest["shards"]:
        raise FolderError(f"{source}: no shards")
    for entry in manifest["shards"]:
        check_fields(entry, SHARD_FIELDS, source=source)
    _check_decoder(manifest, source)  # first: why pairs are left out follows from its columns
    if manifest["decoder"] is not None:
        _check_side(view_decoder(manifest), source)
    _check_side(manifest, source)
    for entry in manifest["shards"]:
        if check_present:
            check_files(path, [entry], find_size)
    return manifest, digest


def _check_decoder(manifest: dict[str, Any], source: Place) -> None:
    """Raise FolderError unless the decoder's side of pairs has all fields and the same batches."""
    if manifest["decoder"] is None:
        if any(entry["decoder"] is not None for entry in manifest["shards"]):
            raise FolderError(f"{source}: a shard has a decoder's side, the others have none")
        return
    if not LAYOUTS[manifest["layout"]].holds_pairs:
        raise FolderError(f"{source}: layout {quote(manifest['layout'])} has a decoder's side")
    _check_decoder_fields(manifest["decoder"], DECODER_FIELDS, source)
    for entry in manifest["shards"]:
        counts = entry["decoder"] or {}
        _check_decoder_fields(counts, DECODER_COUNTS, source)
        for name in ("num_batches", "num_rows", "num_filler_rows", "num_sequences"):
            if counts[name] != entry[name]:
                raise FolderError(
                    f"{source}: {quote(entry['name'])} has {counts[name]:,} {name} on the "
                    f"decoder's side, {entry[name]:,} on the encoder's"
                )
    num_stores, expected = len(manifest["decoder"]["stores"]), len(manifest["stores"])
    if num_stores != expected:
        raise FolderError(
            f"{source}: {num_stores:,} stores of the decoder, {expected:,} of the encoder"
        )


def _check_decoder_fields(
    values: dict[str, Any], fields: Mapping[str, Kind], source: Place
) -> None:
    """Raise FolderError unless there are these fields alone: others would hide the encoder's."""
    check_fields(values, fields, source=source)
    if others := sorted(set(values).difference(fields)):
        raise FolderError(f"{source}: the decoder's side has a field {quote(others[0])} of its own")


def _check_side(manifest: dict[str, Any], source: Place) -> None:
    """Check the fields of a manifest that each side of pairs has."""
    _check_ledger(manifest["ledger"], source)
    check_id_range(manifest, source)
    options = read_options(manifest, source)
    check_columns(manifest, own_options(manifest, options), source)
    check_plan_fields(manifest, options, source)
    check_stores(manifest["stores"], STORE_FIELDS, source)
    check_passes(manifest["stores"], options, source)
    num_stores = len(manifest["stores"])
    check_counts(manifest["ledger"]["stores"], num_stores, source)
    for number, entry in enumerate(manifest["shards"]):
        _check_shard(number, entry, num_stores, source)


def _check_shard(number: int, entry: dict[str, Any], num_stores: int, source: Place) -> None:
    """Check the entry of a shard; its file is checked when it is opened."""
    check_counts(entry["stores"], num_stores, source)
    if entry["name"] != shard_name(number):
        raise FolderError(
            f"{source}: shard {number} is named {quote(entry['name'])}, "
            f"expected {shard_name(number)}"
        )
    smallest = BYTES_PER_BATCH * entry["num_batches"] + BYTES_PER_ROW * entry["num_rows"]
    if entry["bytes"] < smallest:  # before memory is taken for a false count
        raise FolderError(
            f"{source}: shard {number} has {entry['bytes']:,} bytes, expected at least "
            f"{smallest:,} for {entry['num_batches']:,} batches and {entry['num_rows']:,} rows"
        )


def _check_ledger(ledger: dict[str, Any], source: Place) -> None:
    check_fields(ledger, LEDGER_FIELDS, source=source)
    for name in ("num_dropped_sequences", "num_dropped_tokens"):
        check_fields(ledger[name], dict.fromkeys(ledger[name], int), source=source)
    if set(ledger["num_dropped_sequences"]) != set(ledger["num_dropped_tokens"]):
        raise FolderError(
            f"{source}: num_dropped_sequences and num_dropped_tokens list different reasons"
        )


def shard_name(number: int) -> str:
    """Return the name of a shard file."""
    return f"shard-{number:05d}.safetensors"


def describe_shard(manifest: dict[str, Any], side: str | None = None) -> dict[str, str]:
    """Return the metadata of every shard file, as far as it is of one side.

    Args:
        manifest: of that side.
        side: one of SIDES; None where there is only one.
    """
    digests = ",".join(entry["blake3"] for entry in manifest["stores"])
    return {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "layout": manifest["layout"],
        **name_tensors({"stores_blake3": digests}, side),
    }
