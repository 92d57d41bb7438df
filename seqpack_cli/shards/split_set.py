"""Open the folder that `pack --split` writes: the shard set of each split, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import Kind
from seqpack_cli.files.manifest import FORMAT_OF_SPLITS, MANIFEST_NAME, OpenedFolder, read_manifest
from seqpack_cli.files.places import Place
from seqpack_cli.shards.manifest import (
    STORE_COUNTS,
    check_all_fields,
    check_stores,
    contradiction,
    parse_options,
    record_options,
)
from seqpack_cli.shards.shard_set import ShardSet, open_shards

FORMAT_VERSION = 3
FIELDS_OF_SIDES = ("stores", "decoder_stores")  # the second is null without pairs
MANIFEST_FIELDS: dict[str, Kind] = {
    "format": str,
    "format_version": int,
    "split_seed": object,  # up to 2^64 - 1, so it is not a count
    "split_by": str | None,
    "splits": list,
    "stores": list,
    "decoder_stores": list | None,
    "options": dict,
}
STORE_FIELDS: dict[str, Kind] = {"path": str, "blake3": str, **STORE_COUNTS}
SPLIT_FIELDS: dict[str, Kind] = {
    "name": str,
    "share": str | None,
    "blake3": str,  # of the manifest of its shards
    "num_documents": int,  # that have a sequence; these counts are before anything is dropped
    **STORE_COUNTS,
}


@dataclass(frozen=True, eq=False, repr=False)
class SplitSet:
    """The splits of one or more token stores, each a shard set."""

    folder: OpenedFolder
    manifest: dict[str, Any]
    splits: Mapping[str, ShardSet]

    @property
    def path(self) -> Place:
        """The folder."""
        return self.folder.path

    def __repr__(self) -> str:
        return f"SplitSet({str(self.path)!r}, splits={[*self.splits]})"


def open_splits(path: Place, *, check_present: bool = True) -> SplitSet:
    """Open the folder of finished splits.

    Args:
        check_present: check now that every shard file exists in full size.

    Raises:
        FolderError: it is incomplete, damaged, or holds something else.
    """
    manifest, digest, _ = read_manifest(
        path, format_name=FORMAT_OF_SPLITS, version=FORMAT_VERSION, fields=MANIFEST_FIELDS
    )
    source = path / MANIFEST_NAME
    check_all_fields(manifest, MANIFEST_FIELDS, source)
    for field in FIELDS_OF_SIDES:
        if manifest[field] is not None:
            check_stores(manifest[field], STORE_FIELDS, source)
    for entry in manifest["splits"]:
        check_all_fields(entry, SPLIT_FIELDS, source)
    pairs = manifest["decoder_stores"] is not None
    options = parse_options(manifest["options"], source, pairs=pairs)
    # So the names of splits are plain names of folders.
    found = [(entry["name"], entry["share"]) for entry in manifest["splits"]]
    by = manifest["split_seed"], manifest["split_by"]
    if found != [*options.split_shares.items()] or by != (options.split_seed, options.split_by):
        raise contradiction(source, f"its options have other splits than {quote(found)}")
    manifest["options"] |= record_options(options)
    splits = dict[str, ShardSet]()
    for entry in manifest["splits"]:
        folder = path / entry["name"]
        if folder.is_symlink():
            raise FolderError(f"{folder}: a link, expected the folder of a split")
        shards = splits[entry["name"]] = open_shards(folder, check_present=check_present)
        own = {**manifest["options"], "split_name": entry["name"]}
        is_same = shards.manifest["options"].items() <= own.items()
        if shards.folder.digest != entry["blake3"] or not is_same:
            raise FolderError(
                f"{folder}: not the shards that {source} names",
                hint="they were replaced: run the same pack --split again with --overwrite",
            )
    return SplitSet(OpenedFolder(path, digest), manifest, splits)
