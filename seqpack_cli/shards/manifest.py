"""The manifest of shards: what is recorded, what readers check, and how each side of pairs sees it.

A reader checks version, fields, types, names and sizes, and takes the options as `pack` would
resolve them. What else follows from the options and the stores, `verify` plans again and compares.
Of pairs, a shard file holds the arrays of the encoder's side under their own names and those of the
decoder's behind a prefix; a manifest holds the decoder's fields in an object. Seen from one side
both are those of ordinary shards, so that one code reads either side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqpack_cli.batching.options import (
    DECODER,
    ENCODER,
    PackOptions,
    ResolvedOptions,
    parse_number,
)
from seqpack_cli.errors import FolderError, OptionError, join_items, quote
from seqpack_cli.files.json_files import Kind, check_fields
from seqpack_cli.files.manifest import (
    FORMAT_OF_SHARDS,
    MANIFEST_NAME,
    SIDE,
    check_files,
    read_manifest,
)
from seqpack_cli.files.places import Place
from seqpack_cli.shards.layouts import Geometry
from seqpack_cli.tokens.manifest import check_id_range
from seqpack_cli.tokens.store import MAX_STORES

FORMAT_VERSION = 11
ROLES = ("bos_id", "eos_id", "unk_id")  # of the first store, as its pad_id
OF_STORES = ("vocab_size", "max_id", *ROLES)
BYTES_PER_ENTRY = 16  # of a batch two offsets, of a row its length and its index
PREFIX = f"{DECODER}."  # of the names of the decoder's arrays and columns
NUM_TARGETS = "num_target_tokens"
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
    "format": str,
    "format_version": int,
    "plan_version": int,
    "layout": str,
    "dtype": str,
    "pad_id": int,
    "padding_side": str,
    "bucket_keys": list | None,
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
DECODER_FIELDS = {
    name: MANIFEST_FIELDS[name]
    for name in ("dtype", "pad_id", *OF_STORES, "tokenizer_blake3", "stores", "columns", "ledger")
}
LEDGER_FIELDS: dict[str, Kind] = {
    **dict.fromkeys(COUNTS, int),
    "num_dropped_sequences": dict,
    "num_dropped_tokens": dict,
    "num_repeated_sequences": int,  # visits beyond the first
    "num_repeated_tokens": int,
    "stores": list,
}
STORE_COUNTS: dict[str, Kind] = {"num_sequences": int, "num_tokens": int}
STORE_FIELDS: dict[str, Kind] = {"path": str, "blake3": str, "passes": str, **STORE_COUNTS}
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
OF_BOTH_SIDES = ("num_batches", "num_rows", "num_filler_rows", "num_sequences")
APART = ("layout", "pad_id", "padding_side")  # options that are fields of the manifest itself
NAMES = tuple(name for name in PackOptions.__dataclass_fields__ if name not in APART)


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
        "format": FORMAT_OF_SHARDS,
        "format_version": str(FORMAT_VERSION),
        "layout": manifest["layout"],
        **name_tensors({"stores_blake3": digests}, side),
    }


# Options


def record_options(options: PackOptions) -> dict[str, Any]:
    """Return resolved options in the form of the manifest."""
    return {name: to_lists(getattr(options, name)) for name in NAMES}


def to_lists(value: Any) -> Any:
    """Return a value in the form of JSON, which has no tuples."""
    return [to_lists(item) for item in value] if isinstance(value, tuple) else value


def find_geometry(options: PackOptions, *, pad_id: int = 0, is_decoder: bool = False) -> Geometry:
    """Return what the layout of batches with these resolved options needs to know."""
    manifest = {name: getattr(options, name) for name in APART}
    manifest |= {"options": record_options(options), "pad_id": pad_id}
    return Geometry.of_manifest({**manifest, SIDE: DECODER if is_decoder else ENCODER})


def parse_options(values: dict[str, Any], source: Place, *, pairs: bool) -> ResolvedOptions:
    """Return recorded options, resolved.

    Args:
        values: all options, those of APART too.
        pairs: whether there is a decoder's side.

    Raises:
        FolderError: `pack` refuses them.
    """
    with accepted_by_pack(source):
        if wrong := sorted(set(values) ^ {*NAMES, *APART}):
            raise ValueError(f"{join_items(map(quote, wrong))} missing or unknown")
        return PackOptions(**values).resolve(pairs=pairs)


@contextlib.contextmanager
def accepted_by_pack(source: Place) -> Iterator[None]:
    """Raise FolderError where the options of a manifest are none that `pack` takes."""
    try:
        yield
    except (TypeError, ValueError, OptionError) as error:
        what = error.message if isinstance(error, OptionError) else str(error)
        raise FolderError(f"{source}: options that pack does not accept: {what[:200]}") from error


# Sides


def find_side(manifest: Mapping[str, Any]) -> str | None:
    """Return the side whose fields a manifest has; None if it is not of pairs."""
    side: str | None = manifest.get(SIDE)
    return side if manifest["decoder"] is None else ENCODER


def view_sides(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a manifest as each side sees it; one that is not of pairs alone."""
    if manifest["decoder"] is None:
        return [manifest]
    shards = [{**entry, **entry["decoder"]} for entry in manifest["shards"]]
    encoder = {**manifest, "decoder": None, SIDE: ENCODER}
    return [encoder, {**encoder, **manifest["decoder"], "shards": shards, SIDE: DECODER}]


def own_options(options: PackOptions, side: str | None) -> PackOptions:
    """Return options as they choose the columns of a side of pairs, or without pairs of all."""
    if side is None:
        return options
    names = (name for name in options.drop_column if name.startswith(PREFIX) == (side == DECODER))
    return replace(
        options,
        drop_column=tuple(name.removeprefix(PREFIX) for name in names),
        store_column=options.store_column if side == ENCODER else None,
    )


def choose_tensors(tensors: Mapping[str, Any], side: str | None) -> dict[str, Any]:
    """Return the arrays of a side under the names that a file of single sequences gives them.

    Args:
        side: one of SIDES; None where a file holds single sequences.
    """
    return {
        name.removeprefix(PREFIX): array
        for name, array in tensors.items()
        if name.startswith(PREFIX) == (side == DECODER)
    }


def name_tensors(tensors: Mapping[str, Any], side: str | None) -> dict[str, Any]:
    """Return the arrays of a side under the names that they have in a file; see choose_tensors."""
    prefix = PREFIX if side == DECODER else ""
    return {f"{prefix}{name}": array for name, array in tensors.items()}


# Counts of each store


def count_of_stores(
    num_sequences: Sequence[int], tensors: Mapping[str, np.ndarray]
) -> list[dict[str, int]]:
    """Count what the rows of a shard hold of each store; a split sequence is counted once.

    Args:
        num_sequences: of each store.
    """
    is_real = tensors["original_indices"] >= 0
    starts = tensors.get("piece_starts", np.zeros(len(is_real)))[is_real]
    ends, indices = np.cumsum(num_sequences), tensors["original_indices"][is_real]
    numbers = np.searchsorted(ends, indices, "right")
    sums = [
        np.bincount(numbers, weights, len(ends)).astype(np.int64).tolist()
        for weights in (starts == 0, tensors["lengths"][is_real])
    ]
    return [dict(zip(STORE_COUNTS, counts, strict=True)) for counts in zip(*sums, strict=True)]


def add_up_stores(counts: Sequence[list[dict[str, int]]]) -> list[dict[str, int]]:
    """Add up the counts of all shards, store by store."""
    return [
        {name: sum(entry[name] for entry in entries) for name in STORE_COUNTS}
        for entries in zip(*counts, strict=True)
    ]


# Reading


def read_shards_manifest(
    path: Place, *, check_present: bool
) -> tuple[dict[str, Any], str, ResolvedOptions]:
    """Read and check the manifest of finished shards; return it, its digest and its options.

    Args:
        check_present: also check that every shard file exists and has its full size.

    Raises:
        FolderError: the folder is incomplete, of another version, or does not hold shards.
    """
    manifest, digest, find_size = read_manifest(
        path, format_name=FORMAT_OF_SHARDS, version=FORMAT_VERSION, fields=MANIFEST_FIELDS
    )
    source = path / MANIFEST_NAME
    check_all_fields(manifest, MANIFEST_FIELDS, source)
    pairs = manifest["decoder"] is not None
    if pairs:
        check_all_fields(manifest["decoder"], DECODER_FIELDS, source)
    for entry in manifest["shards"]:
        check_all_fields(entry, SHARD_FIELDS, source)
        check_all_fields(entry["decoder"] or {}, DECODER_COUNTS if pairs else {}, source)
    sides = view_sides(manifest)
    for side in sides:
        _check_side(side, source)
    values = {**manifest["options"], **{name: manifest[name] for name in APART}}
    options = parse_options(values, source, pairs=pairs)
    with accepted_by_pack(source):
        keys = PackOptions(buckets=manifest["bucket_keys"]).keys
        for entry in manifest["stores"]:
            parse_number(entry["passes"], "passes of a store")
    is_sound = manifest["plan_version"] > 0 and len(manifest["shards"]) > 0
    is_sound &= (options.split is None) == (options.split_name is None)
    is_sound &= (options.buckets is None) == (keys is None)
    is_sound &= all(len(key) == len(sides) for key in keys or ())
    for number, entry in enumerate(manifest["shards"]):
        # before memory is taken for a false count
        smallest = BYTES_PER_ENTRY * (entry["num_batches"] + entry["num_rows"])
        is_sound &= entry["name"] == shard_name(number) and entry["bytes"] >= smallest
        for side in sides:
            own, num_stores = side["shards"][number], len(side["stores"])
            is_sound &= all(own[name] == entry[name] for name in OF_BOTH_SIDES)
            is_sound &= len(own["stores"]) == len(side["ledger"]["stores"]) == num_stores
    if not is_sound:
        raise contradiction(source, "its options, bucket keys, stores and shards")
    manifest["options"] = record_options(options)  # with the defaults of those that are null
    if check_present:
        check_files(path, manifest["shards"], find_size)
    return manifest, digest, options


def check_all_fields(value: Any, fields: Mapping[str, Kind], source: Place) -> None:
    """Raise FolderError unless an object has these fields, of these types, and no others."""
    check_fields(value, fields, source=source)
    if len(value) > len(fields):
        raise FolderError(f"{source}: unknown field {quote(min(value.keys() - fields))}")


def check_stores(stores: list[Any], fields: Mapping[str, Kind], source: Place) -> None:
    """Raise FolderError unless there are entries of stores, each with these fields."""
    for entry in stores:
        check_all_fields(entry, fields, source)
    if not 1 <= len(stores) <= MAX_STORES:
        raise FolderError(f"{source}: {len(stores):,} stores, expected 1 to {MAX_STORES:,}")


def _check_side(manifest: dict[str, Any], source: Place) -> None:
    """Check the fields of a manifest that each side of pairs has."""
    check_id_range(manifest, source)
    check_stores(manifest["stores"], STORE_FIELDS, source)
    ledger = manifest["ledger"]
    check_all_fields(ledger, LEDGER_FIELDS, source)
    dropped = [ledger[f"num_dropped_{name}"] for name in ("sequences", "tokens")]
    for counts in dropped:
        check_all_fields(counts, dict.fromkeys(dropped[0], int), source)
    for entry in (ledger, *manifest["shards"]):
        check_stores(entry["stores"], STORE_COUNTS, source)


def contradiction(source: Place, what: str) -> FolderError:
    """Return the error about a manifest of which one field does not fit another."""
    return FolderError(f"{source}: the manifest contradicts itself: {what}")
