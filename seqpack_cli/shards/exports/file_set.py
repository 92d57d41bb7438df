"""The files of one export that lie beside others, and the record that says what they are.

`OUT.export.json` names what was exported and the size and checksum of each file. Files of ids look
alike whoever wrote them, so a file is replaced only if the record describes exactly its bytes:
existing files are hashed before the work and again after it.

The record appears twice: "unfinished" before the first file is replaced, when it also describes the
old files, and "complete" after the last one. So an export that was killed can be run again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqpack_cli.errors import FolderError
from seqpack_cli.files.disk import HashingWriter
from seqpack_cli.files.json_files import check_fields, encode_lines, parse_json
from seqpack_cli.files.outputs import OTHER_NAME, check_new_name
from seqpack_cli.files.places import Place, at
from seqpack_cli.shards.exports.task import Task
from seqpack_cli.tokens.store import TokenStore

FORMAT = "seqpack.export"
FORMAT_VERSION = 1
RECORD_SUFFIX = ".export.json"
MAX_RECORD_BYTES = 1 << 16
DIGEST = re.compile(r"[0-9a-f]{64}")
COMPLETE, UNFINISHED = "complete", "unfinished"
RECORD_FIELDS: dict[str, type] = {
    "format": str,
    "format_version": int,
    "to": str,
    "state": str,
    "source_format": str,
    "source_blake3": str,
    "counts": dict,
    "files": list,
}
FILE_FIELDS: dict[str, type] = {"name": str, "bytes": int, "blake3": str}


def describe_source(task: Task) -> dict[str, Any]:
    """Return what an export says of itself and of its source."""
    opened = task.opened
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "source_format": opened.manifest["format"],
        "source_blake3": opened.digest if isinstance(opened, TokenStore) else opened.folder.digest,
    }


@dataclass(frozen=True)
class FileSet:
    """The files of an export to one format, in the order in which they appear.

    Args:
        output: the prefix of the files, or the only one.
    """

    task: Task
    to: str
    output: Place
    files: tuple[Place, ...]

    @property
    def record(self) -> Place:
        """The record beside the files."""
        return self.output.with_name(self.output.name + RECORD_SUFFIX)

    def remove_left_overs(self) -> None:
        """Remove what killed exports left."""
        for path in (*self.files, self.record):
            at(path.parent).remove_left_overs(path.name)

    def check(self) -> list[dict[str, Any]]:
        """Check that the files may be written; return the entries of those to replace.

        Raises:
            FolderError: one exists that may not be replaced.
        """
        for path in (*self.files, self.record):
            check_new_name(path)
        found = [path for path in self.files if at(path).exists()]
        if not at(self.record).exists():
            if found:
                raise FolderError(
                    f"{found[0]}: already exists, without {self.record.name} to say that export "
                    "wrote it; other files are not replaced",
                    hint=f"{OTHER_NAME}, or remove the file yourself",
                )
            return []
        state, entries = self._read_record()
        if not self.task.overwrite and state == COMPLETE:
            raise FolderError(
                f"{(*found, self.record)[0]}: already exists",
                hint="choose another -o, or pass --overwrite",
            )
        return [self._check_file(path, entries) for path in found]

    def publish(self, written: Sequence[HashingWriter], counts: dict[str, int]) -> dict[str, Any]:
        """Publish the files, which are complete; return what the command prints."""
        names = [path.name for path in self.files]
        entries = [
            {"name": name, **file.describe()} for name, file in zip(names, written, strict=True)
        ]
        old = self.check()  # the work may have taken hours
        replaces = at(self.record).exists()
        self._publish_record(UNFINISHED, counts, [*old, *entries], replace=replaces)
        if replaces:  # an index must never lie beside other ids than its own
            at(self.output.parent).remove_files(names[1:])
        for path, file in zip(self.files, written, strict=True):
            at(path).move_in(file, replace=replaces)
        self._publish_record(COMPLETE, counts, entries, replace=True)
        return {**counts, "files": [*map(str, self.files)], "record": str(self.record)}

    def _publish_record(
        self,
        state: str,
        counts: dict[str, int],
        entries: list[dict[str, Any]],
        *,
        replace: bool,
    ) -> None:
        about = {**describe_source(self.task), "to": self.to, "state": state}
        record = {**about, "counts": counts, "files": entries}
        with at(self.record).publish(replace=replace) as file:
            file.write(encode_lines({name: record[name] for name in RECORD_FIELDS}))

    def _read_record(self) -> tuple[str, list[dict[str, Any]]]:
        """Return the state of an earlier export, and the entries of its files.

        Raises:
            FolderError: it is not the record of such an export.
        """
        try:
            data = at(self.record).read(max_bytes=MAX_RECORD_BYTES)
            record = parse_json(data, source=self.record)
            _check_all_fields(record, RECORD_FIELDS, self.record)
            for entry in record["files"]:
                _check_all_fields(entry, FILE_FIELDS, self.record)
        except FolderError as error:
            raise self._foreign_error() from error
        kind = (record["format"], record["format_version"], record["to"])
        own_names = [path.name for path in self.files]
        names = [entry["name"] for entry in record["files"]]
        digests = [record["source_blake3"], *(entry["blake3"] for entry in record["files"])]
        if (
            kind != (FORMAT, FORMAT_VERSION, self.to)
            or record["state"] not in (COMPLETE, UNFINISHED)
            or names[-len(own_names) :] != own_names
            or not {*names} <= {*own_names}
            or not all(map(DIGEST.fullmatch, digests))
        ):
            raise self._foreign_error()
        return record["state"], record["files"]

    def _check_file(self, path: Place, entries: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the entry of an existing file.

        Raises:
            FolderError: it has none.
        """
        num_bytes = at(path).check_size()
        alike = [each for each in entries if each["name"] == path.name]
        if num_bytes in {each["bytes"] for each in alike}:
            digest = at(path).hash()
            for entry in alike:
                if entry["blake3"] == digest:
                    return entry
        raise FolderError(
            f"{path}: not the file that {self.record.name} describes; other files are not replaced",
            hint=f"{OTHER_NAME}, or remove the file yourself",
        )

    def _foreign_error(self) -> FolderError:
        names = " and ".join(path.name for path in self.files)
        return FolderError(
            f"{self.record}: not the record of an export of {names}; other files are not replaced",
            hint=f"{OTHER_NAME}, or remove the file yourself",
        )


def _check_all_fields(value: dict[str, Any], fields: dict[str, type], source: Place) -> None:
    """Raise FolderError unless value has these fields of these types, and no others."""
    check_fields(value, fields, source=source)
    if value.keys() != fields.keys():
        raise FolderError(f"{source}: other fields")
