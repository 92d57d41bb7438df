"""An output folder from the first plan to the manifest: what lets a run stop and go on.

A run writes `plan.json` (all that decides the bytes), then for every part or shard its files and
last a receipt, then the manifest; plan and receipts go when the manifest stands. The same command
again finds the plan equal, takes the finished receipts and makes the rest. A folder is a finished
run if it has a manifest, and nothing else counts.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqpack_cli.errors import FolderError, MachineError, join_items, quote
from seqpack_cli.storage import (
    LOCK_NAME,
    TEMP_PATTERN,
    check_fields,
    check_name,
    check_regular_file,
    lock_folder,
    read_json,
    remove_temporary_files,
    write_json,
)

MANIFEST_NAME = "manifest.json"
PLAN_NAME = "plan.json"
RUN_NAME = "run.json"
OVERWRITE_HINT = "choose another -o, or pass --overwrite to replace what is there"
FILE_FIELDS: dict[str, type] = {"name": str, "bytes": int, "sha256": str}
RECEIPT_PATTERN = re.compile(r"(part|shard)-\d{5,}\.json")
OWN_PATTERN = re.compile(
    r"(manifest|plan|run|tokenizer)\.json|rejects\.jsonl"
    r"|part-\d{5,}\.(bin|idx|json)|shard-\d{5,}\.(safetensors|json)"
)


class RunFolder:
    """The folder of a run under way, held by its lock."""

    def __init__(self, path: Path, manifest: dict[str, Any] | None) -> None:
        self.path = path
        self.manifest = manifest  # of an equal run that finished before, or None

    def read_receipt(self, name: str) -> dict[str, Any] | None:
        """Give the receipt of a part or shard if it and its files are there, whole."""
        path = self.path / f"{name}.json"
        if not path.exists():
            return None
        try:
            receipt: dict[str, Any] = read_json(path)
            check_files(self.path, receipt)
        except FolderError:
            return None  # made again
        return receipt

    def finish(self, manifest: dict[str, Any]) -> None:
        """Publish the manifest, then remove what only an unfinished run needs."""
        write_json(self.path / MANIFEST_NAME, manifest)
        _remove_plan(self.path)


@contextlib.contextmanager
def open_run(folder: Path, plan: dict[str, Any], *, overwrite: bool) -> Iterator[RunFolder]:
    """Hold a folder for a run: a new one, one that continues, or one already complete.

    Args:
        plan: all that decides the bytes; a finished run's manifest must hold the same values.
        overwrite: remove an earlier store or shards; files of others are never removed.

    Raises:
        FolderError: the folder is in use, or holds another run or foreign files.
        MachineError: the folder can not be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"{folder}: {error.strerror}", hint="choose another -o") from error
    with lock_folder(folder):
        remove_temporary_files(folder)
        if overwrite:
            _remove_own_files(folder, plan)
        manifest = _read_equal_manifest(folder, plan, overwrite=overwrite)
        if manifest is None:
            write_json(folder / PLAN_NAME, plan)
        else:
            _remove_plan(folder)
        try:
            yield RunFolder(folder, manifest)
        finally:
            remove_temporary_files(folder)


def write_receipt(folder: Path, name: str, receipt: dict[str, Any]) -> None:
    """Publish the receipt of a part or shard whose files stand."""
    write_json(folder / f"{name}.json", receipt)


def read_manifest(
    folder: Path, *, format_name: str, version: int, fields: dict[str, type]
) -> dict[str, Any]:
    """Read the manifest of a finished store or shards.

    Args:
        fields: what it must hold, name to type.

    Raises:
        FolderError: there is none, or it is another format or version, or lacks a field.
    """
    path = folder / MANIFEST_NAME
    if not path.exists():
        raise FolderError(_describe_unfinished(folder), hint=_unfinished_hint(folder))
    manifest: dict[str, Any] = read_json(path)
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


def check_files(folder: Path, entry: dict[str, Any]) -> None:
    """Raise unless all files that a part's or shard's entry names are there, in full size."""
    files = entry.get("files", [entry])
    if not isinstance(files, list) or not files:
        raise FolderError(f"{folder}: {quote(files)}, expected the files of a part or shard")
    for file in files:
        check_fields(file, FILE_FIELDS, source=folder / MANIFEST_NAME)
        name = check_name(file["name"], source=folder)
        check_regular_file(folder / name, num_bytes=file["bytes"])


def _read_equal_manifest(
    folder: Path, plan: dict[str, Any], *, overwrite: bool
) -> dict[str, Any] | None:
    names = [path.name for path in folder.iterdir() if path.name != LOCK_NAME]
    foreign = sorted(name for name in names if not OWN_PATTERN.fullmatch(name))
    if foreign and not overwrite:
        raise FolderError(
            f"{folder}: holds other files ({join_items(foreign)}), expected an empty folder",
            hint=OVERWRITE_HINT,
        )
    earlier = next((name for name in (MANIFEST_NAME, PLAN_NAME) if name in names), None)
    if earlier is None:
        leftovers = sorted(set(names) - set(foreign))
        if leftovers:
            raise FolderError(
                f"{folder}: holds {join_items(leftovers)} without a manifest or plan",
                hint=OVERWRITE_HINT,
            )
        return None
    found = read_json(folder / earlier)
    if earlier == PLAN_NAME and not any(map(RECEIPT_PATTERN.fullmatch, names)):
        return None  # it finished nothing, so there is nothing to keep
    changes = _find_changes(plan, found)
    if changes:
        raise FolderError(
            f"{folder}: holds a run that differs: {join_items(changes)}", hint=OVERWRITE_HINT
        )
    return found if earlier == MANIFEST_NAME else None


def _find_changes(plan: Any, found: Any, place: str = "") -> list[str]:
    """List the values of the plan that an earlier plan or manifest has otherwise."""
    if isinstance(plan, dict) and isinstance(found, dict):
        return [
            change
            for key, value in plan.items()
            for change in _find_changes(value, found.get(key), f"{place}.{key}".lstrip("."))
        ]
    if isinstance(plan, list) and isinstance(found, list) and len(plan) == len(found):
        return [
            change
            for index, (new, old) in enumerate(zip(plan, found, strict=True))
            for change in _find_changes(new, old, f"{place}[{index}]")
        ]
    if isinstance(plan, list) and isinstance(found, list):
        return [f"{place} were {len(found)}, are {len(plan)}"]
    return [] if plan == found else [f"{place} was {quote(found)}, is {quote(plan)}"]


def _remove_plan(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == PLAN_NAME or RECEIPT_PATTERN.fullmatch(path.name):
            path.unlink()


def _remove_own_files(folder: Path, plan: dict[str, Any]) -> None:
    """Remove an earlier run's files, in an order in which a kill leaves the old or the new run."""
    own = [path for path in folder.iterdir() if OWN_PATTERN.fullmatch(path.name)]
    if not own:
        return
    if not any(_is_of_a_run(folder / name) for name in (MANIFEST_NAME, PLAN_NAME)):
        names = join_items(sorted(path.name for path in own))
        raise FolderError(
            f"{folder}: holds {names} without a manifest or plan of seqpack",
            hint="remove them yourself if they are not needed, or choose another -o",
        )
    for path in own:
        if RECEIPT_PATTERN.fullmatch(path.name):
            path.unlink()
    write_json(folder / PLAN_NAME, plan)
    (folder / MANIFEST_NAME).unlink(missing_ok=True)  # from here on the new run, unfinished
    for path in own:
        if path.name != PLAN_NAME:
            path.unlink(missing_ok=True)


def _is_of_a_run(path: Path) -> bool:
    """Say whether a JSON file is a manifest or plan of ours and not, by name only, of others."""
    try:
        found = read_json(path)
    except FolderError:
        return False
    return "format" in found and "options" in found


def _describe_unfinished(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: no such folder"
    names = [path.name for path in folder.iterdir() if not TEMP_PATTERN.fullmatch(path.name)]
    if PLAN_NAME not in names:
        return f"{folder}: no {MANIFEST_NAME}, expected a token store or shards"
    num_finished = sum(RECEIPT_PATTERN.fullmatch(name) is not None for name in names)
    return f"{folder}: incomplete run, {num_finished} parts or shards finished, no {MANIFEST_NAME}"


def _unfinished_hint(folder: Path) -> str | None:
    unfinished = (folder / PLAN_NAME).exists()
    return "run the same command again: it continues where it stopped" if unfinished else None


def _other_format_hint(found: object) -> str | None:
    return {
        "seqpack.tokens": "this is a token store: run seqpack pack on it first",
        "seqpack.shards": "these are shards: name the token store they were packed from",
    }.get(str(found))
