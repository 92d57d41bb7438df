"""Reading the manifest of a finished store or shards, and checking the files that it names.

A folder is a finished run if it has a manifest and no plan any more, and nothing else counts.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from seqpack_cli.disk import TEMP_PATTERN
from seqpack_cli.errors import FolderError, quote
from seqpack_cli.reading import (
    check_fields,
    check_name,
    check_regular_file,
    is_there,
    read_json,
    read_regular,
    size_error,
)
from seqpack_cli.remote.lease import check_held
from seqpack_cli.remote.url import Place, Url

MANIFEST_NAME = "manifest.json"
PLAN_NAME = "plan.json"
MAX_TOKENIZER_BYTES = 256 << 20  # the largest in use have about 35 MB
FILE_FIELDS: dict[str, type] = {"name": str, "bytes": int, "sha256": str}
RECEIPT_PATTERN = re.compile(r"(part|shard)-\d{5,}\.json")


def read_manifest(
    folder: Place, *, format_name: str, version: int, fields: dict[str, type]
) -> dict[str, Any]:
    """Read the manifest of a finished store or shards.

    Args:
        fields: what it must hold, name to type.

    Raises:
        FolderError: there is none, or it is another format or version, or lacks a field.
    """
    path = folder / MANIFEST_NAME
    if not is_there(path) or is_there(folder / PLAN_NAME):
        raise FolderError(_describe_unfinished(folder), hint=_unfinished_hint(folder))
    manifest = read_json(path)
    if manifest.get("format") != format_name:
        raise FolderError(
            f"{path}: format {quote(manifest.get('format'))}, expected {quote(format_name)}",
            hint=_other_format_hint(manifest.get("format")),
        )
    if manifest.get("format_version") != version:
        found = quote(manifest.get("format_version"))
        raise FolderError(
            f"{path}: format version {found}, this seqpack reads {version}",
            hint="install the seqpack that wrote it, or make it again",
        )
    check_fields(manifest, fields, source=path)
    return manifest


def list_sizes(folder: Place) -> dict[str, int] | None:
    """Give the sizes of all objects in a folder, asked for together; None where none is far."""
    if isinstance(folder, Path):
        return None
    return {name: int(entry["size"] or 0) for name, entry in folder.list_files().items()}


def check_files(folder: Place, files: list[Any], sizes: dict[str, int] | None = None) -> None:
    """Raise unless all files that a part or shard consists of are there, in full size.

    Args:
        sizes: of all files of the folder, if they are known.
    """
    if not files:
        raise FolderError(f"{folder}: a part without files")
    for file in files:
        check_fields(file, FILE_FIELDS, source=folder / MANIFEST_NAME)
        name = check_name(file["name"], source=folder)
        if sizes is None:
            check_regular_file(folder / name, num_bytes=file["bytes"])
        elif name not in sizes:
            raise FolderError(f"{folder / name}: missing")
        elif sizes[name] != file["bytes"]:
            raise size_error(folder / name, sizes[name], file["bytes"])


def check_not_lost(folder: Place, files: list[Any]) -> None:
    """Raise unless the files that a run has written are there in full size at its end."""
    if isinstance(folder, Url):
        check_held(folder / MANIFEST_NAME)  # first: a run that took over changed them too
    try:
        check_files(folder, files, list_sizes(folder))
    except FolderError as error:
        raise FolderError(
            f"{error.message}; another program changed it during this run",
            hint="run the same command again: it makes that file again",
        ) from error


def find_changes(plan: Any, found: Any, place: str = "") -> list[str]:
    """List the values of the plan that an earlier plan or manifest has otherwise."""
    if isinstance(plan, dict) and isinstance(found, dict):
        return [
            change
            for key, value in plan.items()
            for change in find_changes(value, found.get(key), f"{place}.{key}".lstrip("."))
        ]
    if isinstance(plan, list) and isinstance(found, list) and len(plan) == len(found):
        return [
            change
            for index, (new, old) in enumerate(zip(plan, found, strict=True))
            for change in find_changes(new, old, f"{place}[{_name_item(new, old) or index}]")
        ]
    if isinstance(plan, list) and isinstance(found, list):
        return [f"{place} were {len(found)}, are {len(plan)}"]
    return [] if plan == found else [f"{place} was {quote(found)}, is {quote(plan)}"]


def _name_item(new: Any, old: Any) -> object:
    """Give the path that both have: of a thousand sources nobody knows the number."""
    both = isinstance(new, dict) and isinstance(old, dict) and new.get("path") == old.get("path")
    return new.get("path") if both else None


def read_kept_tokenizer(folder: Place, manifest: dict[str, Any]) -> bytes:
    """Read the tokenizer.json of a store or of shards, checked against the manifest."""
    path = folder / "tokenizer.json"
    tokenizer_json = read_regular(path, max_bytes=MAX_TOKENIZER_BYTES)
    if hashlib.sha256(tokenizer_json).hexdigest() != manifest["tokenizer_sha256"]:
        raise FolderError(f"{path}: not the tokenizer that the manifest names")
    return tokenizer_json


def _describe_unfinished(folder: Place) -> str:
    if not folder.is_dir():
        found = "a file, expected a folder" if folder.exists() else "no such folder"
        return f"{folder}: {found}"
    names = [path.name for path in folder.iterdir() if not TEMP_PATTERN.fullmatch(path.name)]
    if PLAN_NAME not in names:
        return f"{folder}: no {MANIFEST_NAME}, expected a token store or shards"
    if MANIFEST_NAME in names:
        return f"{folder}: incomplete run, stopped at its very end: {PLAN_NAME} is still there"
    num_finished = sum(RECEIPT_PATTERN.fullmatch(name) is not None for name in names)
    return f"{folder}: incomplete run, {num_finished} parts or shards finished, no {MANIFEST_NAME}"


def _unfinished_hint(folder: Place) -> str | None:
    if is_there(folder / PLAN_NAME):
        return "run the same command again: it continues where it stopped"
    return "name the folder that tokenize or pack wrote" if folder.is_dir() else None


def _other_format_hint(found: object) -> str | None:
    return {
        "seqpack.tokens": "this is a token store: run seqpack pack on it first",
        "seqpack.shards": "these are shards: name the token store they were packed from",
    }.get(str(found))
