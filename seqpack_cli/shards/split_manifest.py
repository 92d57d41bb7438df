"""Open the folder that `pack --split` writes: the shard set of each split, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import check_fields, check_name
from seqpack_cli.files.manifest import MANIFEST_NAME, read_manifest
from seqpack_cli.files.opened_folder import OpenedFolder
from seqpack_cli.files.url import Place
from seqpack_cli.shards.shard_set import ShardSet, open_shards

FORMAT = "seqpack.splits"
FORMAT_VERSION = 1
MANIFEST_FIELDS: dict[str, type] = {
    "split_seed": int,
    "split_by": object,
    "splits": list,
    "stores": list,
    "options": dict,
}
STORE_FIELDS: dict[str, type] = {
    "path": str,
    "blake3": str,
    "num_sequences": int,
    "num_tokens": int,
}
SPLIT_FIELDS: dict[str, type] = {
    "name": str,
    "share": object,
    "blake3": str,  # of the manifest of its shards
    "num_documents": int,  # that have a sequence; these counts are before anything is dropped
    "num_sequences": int,
    "num_tokens": int,
}


class SplitSet:
    """The splits of one or more token stores, each a shard set."""

    def __init__(
        self, path: Place, manifest: dict[str, Any], digest: str, *, check_present: bool = True
    ) -> None:
        self.folder = OpenedFolder(path, digest)
        self.manifest = manifest
        self.splits: Mapping[str, ShardSet] = {
            entry["name"]: _open_split(path, entry, check_present=check_present)
            for entry in manifest["splits"]
        }

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
        path, format_name=FORMAT, version=FORMAT_VERSION, fields=MANIFEST_FIELDS
    )
    source = path / MANIFEST_NAME
    for what, fields in (("split", SPLIT_FIELDS), ("store", STORE_FIELDS)):
        for entry in manifest[f"{what}s"]:
            if not isinstance(entry, dict):
                raise FolderError(f"{source}: {what} {quote(entry)}, expected an object")
            check_fields(entry, fields, source=source)
    for entry in manifest["splits"]:
        check_name(entry["name"], source=source)
    names = [entry["name"] for entry in manifest["splits"]]
    if len(set(names)) < len(names) or len(names) < 2:
        raise FolderError(f"{source}: splits {quote(names)}, expected several different ones")
    return SplitSet(path, manifest, digest, check_present=check_present)


def _open_split(path: Place, entry: dict[str, Any], *, check_present: bool) -> ShardSet:
    shards = open_shards(path / entry["name"], check_present=check_present)
    if shards.folder.digest != entry["blake3"]:
        raise FolderError(
            f"{shards.path}: not the shards that {path / MANIFEST_NAME} names",
            hint="they were replaced: run the same pack --split again with --overwrite",
        )
    return shards
