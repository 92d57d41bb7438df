"""Parquet for trainers that read Hugging Face datasets: a row a sequence, or a row a packed row.

The output is a folder of `part-00000.parquet` and so on, with nothing else in it, so that
`load_dataset` reads it as it is. Every row group is one block of the source; each finished file is
read back and compared with the blocks that it holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError, OptionError, quote
from seqpack_cli.files import disk
from seqpack_cli.files.disk import TEMP_PATTERN, HashingWriter
from seqpack_cli.files.manifest import check_outside_runs
from seqpack_cli.files.outputs import check_kind, foreign_error
from seqpack_cli.files.places import NO_FILE, CreateFile, Place, at, parse_place
from seqpack_cli.shards.exports.arrow_tables import DOCUMENT, MADE, PackedTables, SequenceTables
from seqpack_cli.shards.exports.file_set import describe_source
from seqpack_cli.shards.exports.packed_rows import has_packed_rows, iter_rows
from seqpack_cli.shards.exports.parquet_files import (
    import_pyarrow,
    iter_row_groups,
    open_parquet,
)
from seqpack_cli.shards.exports.parquet_marks import make_kind
from seqpack_cli.shards.exports.source import Block, CheckedFiles
from seqpack_cli.shards.exports.task import Task, check_same, differing_error
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS

FILE_NAME = re.compile(r"part-\d{5,}\.parquet")
MAX_FILE_BYTES = 2_000_000_000
OTHER_HINT = "choose another -o"
PARQUET = make_kind("export")
Iterate = Callable[[bool], Iterator[Any]]  # whether to check the files -> blocks or rows


@dataclass
class _Written:
    """What has been written so far."""

    num_rows: int = 0
    num_tokens: int = 0
    files: dict[str, HashingWriter] = field(default_factory=dict)


def export_parquet(task: Task, *, max_file_bytes: int = MAX_FILE_BYTES) -> dict[str, Any]:
    """Write the folder of an export; return its counts."""
    output = parse_place(task.output)
    pa = import_pyarrow(output)
    check_folder(output, overwrite=task.overwrite)
    tables, iterate, num_tokens = _choose_tables(pa, task)
    task.begin(num_tokens)
    new_folders = at(output).make_folder()
    try:
        at(output).remove_left_overs()
        written = _Written()
        with at(output).temporary_files() as create:
            num_documents = task.source.num_documents if DOCUMENT in tables.names else None
            files = _Files(task, tables, create, output, max_file_bytes, num_documents)
            files.write_all(iterate(True), iterate(False), written)
            check_folder(output, overwrite=task.overwrite)  # the work may have taken hours
            for name, file in written.files.items():
                at(output / name).move_in(file)
            old = [path.name for path in output.iterdir() if FILE_NAME.fullmatch(path.name)]
            at(output).remove_files([name for name in old if name not in written.files])
    except BaseException:
        disk.remove_folders(new_folders)  # only if they are empty
        raise
    names = [str(output / name) for name in written.files]
    return {"num_rows": written.num_rows, "num_tokens": written.num_tokens, "files": names}


def check_folder(output: Place, *, overwrite: bool) -> None:
    """Check that a folder of Parquet files may be written.

    Raises:
        FolderError: it holds anything, or with `overwrite` anything but files of an export.
    """
    check_outside_runs(output)
    if output.is_symlink() or (at(output).exists() and not output.is_dir()):
        raise FolderError(f"{output}: not a folder, expected one or nothing", hint=OTHER_HINT)
    inside = output.iterdir() if output.is_dir() else ()
    found: list[Place] = [path for path in inside if not TEMP_PATTERN.fullmatch(path.name)]
    if found and not overwrite:
        raise FolderError(
            f"{output}: already exists", hint="choose another -o, or pass --overwrite"
        )
    find_size = at(output).find_sizes()
    for path in found:
        is_named = FILE_NAME.fullmatch(path.name) and find_size(path.name) != NO_FILE
        if not is_named:
            raise foreign_error(path, PARQUET, hint=OTHER_HINT)
        check_kind(path, PARQUET, hint=OTHER_HINT)


def _choose_tables(pa: Any, task: Task) -> tuple[Any, Iterate, int]:
    """Return what makes tables, what yields the blocks to make them of, and the number of ids."""
    opened = task.opened
    if isinstance(opened, ShardSet) and has_packed_rows(opened):
        others = [name for name in opened.columns if name != TARGETS]
        if others:
            task.progress.on_notice(f"packed rows have no columns: left out {', '.join(others)}")
        num_tokens, files = opened.manifest["ledger"]["num_tokens"], CheckedFiles()
        return PackedTables(pa), lambda check: iter_rows(opened, files, check=check), num_tokens
    source = task.source
    tables = SequenceTables(pa, source.columns, has_documents=source.num_documents is not None)
    _check_names(task, tables.names)
    return tables, lambda check: source.iter_blocks(check=check), source.num_tokens


def _check_names(task: Task, made: tuple[str, ...]) -> None:
    """Raise OptionError if a column has the name of one that the export makes."""
    for name in task.opened.columns:
        if name in made:
            of_shards = isinstance(task.opened, ShardSet)
            again = "pack again with" if of_shards else "pack it, export the shards, and pass pack"
            raise OptionError(
                f"{task.opened.path}: column {quote(name)} has the name of one that export makes "
                f"({', '.join(MADE)})",
                hint=f"{again} --drop-column {name}",
            )


@dataclass(frozen=True)
class _Files:
    """The files of an export while they are written."""

    task: Task
    tables: Any
    create: CreateFile
    output: Place
    max_file_bytes: int
    num_documents: int | None  # None: they are not numbered

    def write_all(self, items: Iterator[Any], again: Iterator[Any], written: _Written) -> None:
        """Write one file after another, and compare each with the same items, read again."""
        item = next(items, None)
        while item is not None:
            name = f"part-{len(written.files):05d}.parquet"
            file = self.create(name)
            num_groups, item = self._write_file(file.write, item, items, written)
            written.files[name] = file
            self._compare(file.temporary, self.output / name, islice(again, num_groups))
        if next(again, None) is not None:  # the source is checked again at its end
            raise differing_error(self.output, self.task.opened.path)

    def _write_file(
        self,
        write: Callable[[bytes], object],
        item: Any,
        items: Iterator[Any],
        written: _Written,
    ) -> tuple[int, Any]:
        """Write a file of an item and those behind it; return their number, and the next item."""
        table, first = self.tables.make(item), self._find_document(item, written)
        mark = {**describe_source(self.task), "first_row": written.num_rows}
        last = None
        with open_parquet(write, table.schema) as file:
            while item is not None:
                table = self.tables.make(item)
                is_full = file.bound_size(table) > self.max_file_bytes
                if last is not None and is_full and not _share_document(last, item):
                    break
                file.write(table)
                written.num_rows += table.num_rows
                written.num_tokens += len(item.ids)
                self.task.advance(len(item.ids), is_second=False)
                last, item = item, next(items, None)
            if first is not None:
                mark["documents"] = [first, self._find_document(item, written)]
            file.mark("export", {**mark, "num_rows": file.num_rows})
        return file.num_groups, item

    def _find_document(self, item: Any, written: _Written) -> int | None:
        """Return the document at which a file begins that begins with an item, or the end.

        Documents without a sequence belong to the file before, those of the beginning to the first.
        """
        if self.num_documents is None:
            return None
        if item is None:
            return self.num_documents
        return int(item.documents[0]) if written.num_rows else 0

    def _compare(self, path: Path, shown: Place, items: Iterator[Any]) -> None:
        """Read a file back and compare it with the source.

        Raises:
            MachineError: they differ.
        """
        source = self.task.opened.path
        groups = iter_row_groups(path, shown)
        for found, item in zip(groups, items, strict=True):
            ids = found.column("input_ids").combine_chunks()
            check_same(shown, source, ids.flatten().to_numpy(), item.ids.astype(np.int32))
            check_same(shown, source, ids.value_lengths().to_numpy(), item.lengths)
            expected = self.tables.make(item)
            if not found.cast(expected.schema).equals(expected):
                raise differing_error(shown, source)
            self.task.advance(len(item.ids), is_second=True)


def _share_document(first: Any, second: Any) -> bool:
    """Return whether two neighbours have sequences of the same document; packed rows never do."""
    return (
        isinstance(first, Block)
        and isinstance(second, Block)
        and bool(first.documents[-1] == second.documents[0])
    )
