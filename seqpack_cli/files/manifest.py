"""Read the manifest of a finished store or shard set, and check the files that it names.

A folder is a finished run if it has a manifest and no plan. Its files are mapped later
(`OpenedFolder`): until then, another run may replace them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seqpack_cli.errors import FolderError, OptionError, SeqpackError, quote
from seqpack_cli.files.disk import TEMP_PATTERN, hash_bytes
from seqpack_cli.files.json_files import (
    MAX_JSON_BYTES,
    Kind,
    check_fields,
    check_name,
    parse_json,
    read_json,
)
from seqpack_cli.files.objects import PLAN_NAME
from seqpack_cli.files.places import Place, at, suggest_name

MANIFEST_NAME = "manifest.json"
RUN_NAMES = frozenset((MANIFEST_NAME, PLAN_NAME))
SIDE = "side"  # field of a manifest of pairs as one side sees it: which side that is
FORMAT_FIELD = re.compile(
    rb'\s*\{\s*"format":\s*"(seqpack\.[a-z]+)"'
)  # the first field that we write
HEAD_BYTES = 256
FAILURE = "failure"  # field of a plan: the error that ended the run
MAX_FAILURE = 1000  # characters of the error to show
FORMAT_OF_TOKENS = "seqpack.tokens"
FORMAT_OF_SHARDS = "seqpack.shards"
FORMAT_OF_SPLITS = "seqpack.splits"
# The command that writes each format, and the pieces that it finishes one by one.
WRITERS = {
    FORMAT_OF_TOKENS: ("tokenize", "part"),
    FORMAT_OF_SHARDS: ("pack", "shard"),
    FORMAT_OF_SPLITS: ("pack --split", "split"),
}
IDS_SUFFIXES = (".bin", ".idx", ".npy", ".parquet", ".arrow", ".jsonl", ".json")
SAVED_DATASET = "dataset_info.json"
IMPORT_HINT = "run seqpack import to make a token store of ids"
MAX_TOKENIZER_BYTES = 256 << 20  # the largest in use have about 35 MB
FILE_FIELDS: dict[str, type] = {"name": str, "bytes": int, "blake3": str}
FindSize = Callable[[str], int | None]
RECEIPT_PATTERN = re.compile(r"(part|shard)-\d{5,}\.json")


def read_manifest(
    folder: Place, *, format_name: str, version: int, fields: Mapping[str, Kind]
) -> tuple[dict[str, Any], str, FindSize]:
    """Read the manifest of a finished store or shard set, with three requests in an object store.

    Args:
        fields: the fields that it must have, name to type.

    Returns:
        The manifest, its BLAKE3 checksum, and a function from a file name to the file's size.

    Raises:
        FolderError: there is none, or its format, its version or a field is wrong.
    """
    path = folder / MANIFEST_NAME
    find_size = at(folder).find_sizes()
    if find_size(MANIFEST_NAME) is None or find_size(PLAN_NAME) is not None:
        raise _unfinished_error(folder)
    data = at(path).read(max_bytes=MAX_JSON_BYTES)
    manifest = parse_json(data, source=path)
    if manifest.get("format") != format_name:
        raise FolderError(
            f"{path}: format {quote(manifest.get('format'))}, expected {quote(format_name)}",
            hint=_other_format_hint(manifest, folder, wanted=format_name),
        )
    found_version = manifest.get("format_version")
    if type(found_version) is not int or found_version != version:
        found = f"format version {quote(found_version)}"
        if found_version is None:
            found = "no format version"
        raise FolderError(
            f"{path}: {found}, expected {version}",
            hint=f"run seqpack {_find_writer(manifest)[0]} again, or install the version of "
            "seqpack that wrote it",
        )
    check_fields(manifest, fields, source=path)
    manifest.pop(SIDE, None)  # which only a view of it has
    return manifest, hash_bytes(data), find_size


def find_format(folder: Place, name: str = MANIFEST_NAME) -> str | None:
    """Return the format that a folder's manifest names in its first bytes."""
    head = b""
    if at(folder / name).exists():
        head = at(folder / name).read_some(HEAD_BYTES)
    found = FORMAT_FIELD.match(head)
    return found[1].decode() if found else None


def is_run_folder(folder: Place) -> bool:
    """Return whether a folder has a manifest or plan that seqpack wrote."""
    for name in sorted(RUN_NAMES):
        with contextlib.suppress(SeqpackError):  # something else may have this name
            if find_format(folder, name) is not None:
                return True
    return False


def check_outside_runs(path: Place) -> None:
    """Raise FolderError if a path is inside the folder of a store or shards."""
    folder = path.resolve()
    while folder != folder.parent:
        folder = folder.parent
        if is_run_folder(folder):
            raise FolderError(
                f"{path}: {folder} holds a store or shards, expected another folder",
                hint="choose a name outside it",
            )


def check_files(folder: Place, files: list[Any], find_size: FindSize | None = None) -> None:
    """Raise FolderError unless all files of a part or shard exist in full size.

    Args:
        find_size: from `find_sizes`; a file is opened only if its size is wrong there.
    """
    if not files:
        raise FolderError(f"{folder}: a part or shard lists no files")
    for file in files:
        check_fields(file, FILE_FIELDS, source=folder / MANIFEST_NAME)
        name = check_name(file["name"], source=folder)
        if find_size is None or find_size(name) != file["bytes"]:
            at(folder / name).check_size(file["bytes"])


def read_kept_tokenizer(folder: Place, manifest: dict[str, Any]) -> bytes:
    """Read the tokenizer.json of a store or of shards, checked against the manifest.

    Raises:
        FolderError: it is missing, or not the one that the manifest names.
        OptionError: the ids were imported without a tokenizer.
    """
    if not has_tokenizer(manifest):
        raise OptionError(
            f"{folder}: has no tokenizer, expected one to decode ids",
            hint="import the ids again with --tokenizer FILE instead of --vocab-size",
        )
    path = folder / tokenizer_name(manifest)
    tokenizer_json = at(path).read(max_bytes=MAX_TOKENIZER_BYTES)
    if hash_bytes(tokenizer_json) != manifest["tokenizer_blake3"]:
        raise FolderError(f"{path}: blake3 differs from the manifest's")
    return tokenizer_json


def tokenizer_name(manifest: dict[str, Any]) -> str:
    """Return the name of the tokenizer's file in a folder: pairs have one for each side."""
    return "decoder.tokenizer.json" if manifest.get(SIDE) == "decoder" else "tokenizer.json"


def has_tokenizer(manifest: dict[str, Any]) -> bool:
    """Return whether a tokenizer.json lies beside a manifest of a store or of shards."""
    return manifest["tokenizer_blake3"] is not None


def _unfinished_error(folder: Place) -> FolderError:
    """Return the error about a folder without a finished run, with the failure that ended it."""
    if not folder.is_dir():
        found = "a file, expected a folder"
        if not folder.exists():
            found = f"no such folder{suggest_name(folder)}"
        hint = IMPORT_HINT if str(folder).lower().endswith(IDS_SUFFIXES) else None
        if hint is None and folder.exists():
            hint = "run seqpack tokenize to make a token store of text"
        return FolderError(f"{folder}: {found}", hint=hint)
    names = [path.name for path in folder.iterdir() if not TEMP_PATTERN.fullmatch(path.name)]
    has_plan = PLAN_NAME in names
    run = folder if has_plan else folder.resolve().parent  # a split has the plan of its run
    is_split = not has_plan and find_format(run, PLAN_NAME) == FORMAT_OF_SPLITS
    if not has_plan and not is_split:
        return FolderError(
            f"{folder}: no {MANIFEST_NAME}, expected a token store or shards",
            hint=IMPORT_HINT
            if SAVED_DATASET in names
            else "name the folder that tokenize, import or pack wrote",
        )
    plan: dict[str, Any] = {}
    with contextlib.suppress(SeqpackError):  # it may be damaged
        plan = read_json(run / PLAN_NAME)
    command, item = _find_writer(plan)
    item = "shard" if is_split else item
    same_command = f"run the same {command} command" if command else "run the same command"
    hint = f"{same_command} again: it continues where it stopped"
    if MANIFEST_NAME in names:
        found = f"interrupted at its end, {PLAN_NAME} still exists"
        return FolderError(f"{folder}: incomplete run, {found}", hint=hint)
    num_finished = sum(RECEIPT_PATTERN.fullmatch(name) is not None for name in names)
    found = f"{num_finished} {item}{'s' * (num_finished != 1)} finished, no {MANIFEST_NAME}"
    if item == "split":
        ended = [at(folder / name / MANIFEST_NAME).exists() for name in names]
        found = f"{sum(ended)} of {len(plan['splits'])} splits finished, no {MANIFEST_NAME}"
    failure = plan.get(FAILURE)
    message = failure.get("message") if isinstance(failure, dict) else None
    if isinstance(failure, dict) and isinstance(message, str):
        found += f"; it ended with: {message[:MAX_FAILURE]}"
        hint = f"correct that, then {same_command} with --overwrite"
        if isinstance(failure.get("hint"), str):  # which that command gave
            hint = (f"for {command}: " if command else "") + failure["hint"][:MAX_FAILURE]
    return FolderError(f"{folder}: incomplete run, {found}", hint=hint)


def _find_writer(found: dict[str, Any]) -> tuple[str, str]:
    """Return the command that wrote a manifest or plan, "" if it is unknown, and its pieces."""
    command, item = WRITERS.get(str(found.get("format")), ("", "part"))
    return str(found.get("made_by", command)), item


def _other_format_hint(manifest: dict[str, Any], folder: Place, *, wanted: str) -> str | None:
    found = str(manifest.get("format"))
    if wanted == FORMAT_OF_SHARDS and "splits" in manifest:
        with contextlib.suppress(SeqpackError, KeyError, TypeError, IndexError):  # if damaged
            name = check_name(manifest["splits"][0]["name"], source=folder)
            return f"these are splits: name one of them, such as {folder / name}"
    if found == FORMAT_OF_TOKENS:
        return "this is a token store: run seqpack pack on it first"
    if found in (FORMAT_OF_SHARDS, FORMAT_OF_SPLITS):
        noun = found.removeprefix("seqpack.")
        return f"these are {noun}: pass the token store they were packed from"
    return None


class OpenedFolder:
    """A folder and the digest of the manifest that was read in it.

    Between opening and mapping, the process may change its working folder, a copy may travel to
    another process, and another run may replace the files. So the real path is kept, and after a
    file was mapped, the manifest is compared with the one that was opened: a run that replaces
    files removes the manifest first. That takes a `stat`; the manifest is read only if its status
    changed.
    """

    def __init__(self, path: Place, digest: str) -> None:
        self.digest = digest
        self._named, self._real = path, path.resolve()
        self._status: tuple[int, ...] | None = None  # of the manifest when it was last compared

    @property
    def path(self) -> Place:
        """The path as the caller named it, or the real one if that name now leads elsewhere."""
        try:
            return self._named if self._named.resolve() == self._real else self._real
        except (OSError, RuntimeError):  # no working folder any more, or a loop of links
            return self._real

    @contextlib.contextmanager
    def while_same(self) -> Iterator[None]:
        """Check that the folder still has the manifest that was opened, when the block has ended.

        Objects in an object store need no check: each is compared with its checksum when it is
        opened.

        Raises:
            FolderError: the manifest is missing or another one.
        """
        try:
            yield
        except FolderError:
            self._check_same()
            raise
        self._check_same()

    def check_digest(self, digest: str) -> None:
        """Raise FolderError unless a manifest that was read here again has the same digest."""
        if digest != self.digest:
            raise self._replaced_error()

    def _check_same(self) -> None:
        manifest = at(self._real / MANIFEST_NAME)
        try:
            status = manifest.find_status()
            if status == self._status:
                return
            digest = hash_bytes(manifest.read(max_bytes=MAX_JSON_BYTES))
        except FolderError as error:
            raise self._replaced_error() from error
        self.check_digest(digest)
        self._status = status

    def _replaced_error(self) -> FolderError:
        return FolderError(
            f"{self.path}: its files were replaced or removed since they were opened",
            hint="open the folder again",
        )
