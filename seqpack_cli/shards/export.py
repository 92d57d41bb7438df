"""Write a token store or shards as files that other trainers read: `export`.

Sequences come in blocks of about four million ids: of a store views of its files, of shards taken
apart as by `unpack`. Shards whose rows hold several sequences keep them in Parquet. Every file of
the source is compared with its checksum before it is read.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.errors import DataError, FolderError, OptionError, check_choice
from seqpack_cli.files import disk
from seqpack_cli.files.disk import TEMP_PATTERN, HashingWriter
from seqpack_cli.files.manifest import check_outside_runs
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.outputs import (
    OTHER_NAME,
    FileKind,
    check_new_name,
    check_target,
    foreign_error,
    is_of_kind,
    parse_file,
    publish_alone,
    publish_files,
)
from seqpack_cli.files.places import CreateFile, Place, at, parse_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.parquet import (
    import_pyarrow,
    make_column,
    make_kind,
    make_lists,
    make_table,
    write_parquet,
)
from seqpack_cli.shards.shard_set import ShardSet, open_any
from seqpack_cli.shards.unpack import (
    Block,
    check_no_source,
    cut_rows,
    drop_overlaps,
    iter_blocks,
)
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.part_files import MAGIC, write_index
from seqpack_cli.tokens.store import TokenStore

CHANGED_HINT = "the file was changed or damaged: run the command that wrote it with --overwrite"
Arrays = list[tuple[str, Any]]  # the columns of a table, by name
OTHER_FOLDER = "choose another -o"
PARQUET = make_kind("export")
PARQUET_NAME = "part-{:05d}.parquet"
PARQUET_PATTERN = re.compile(r"part-\d{5,}\.parquet")
MAX_FILE_BYTES = 2_000_000_000  # of a Parquet file
NO_LABEL = -100  # what losses ignore
INDEX = FileKind("the index of an indexed dataset", lambda head: head.startswith(MAGIC))
FLAT = np.dtype("<u2")  # of nanoGPT's ids
END: list[Any] = [(None, [-1])]  # after the last block: no sequence of a document


@checks_arguments
def export(
    path: AnyPath,
    output: AnyPath,
    *,
    to: str = "parquet",
    eos: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a token store or shards as files that other trainers read.

    Args:
        path: the folder of the store or the shards.
        output: a folder for `parquet`, a prefix for `megatron`, a file for `nanogpt`.
        to: "parquet", "megatron" or "nanogpt".
        eos: the end token of `nanogpt`; None is that of the tokenizer.
        overwrite: replace files that an earlier `export` wrote.

    Returns:
        The counts: `num_tokens`, and those that the format has; `files` is the list of names.

    Raises:
        FolderError: the source is damaged, or other files would be replaced.
        MachineError: the disk is full or fails, or pyarrow is missing.
        OptionError: the format cannot hold what is to be exported, as none holds pairs.
    """
    check_choice("to", to, FORMATS)
    if eos is not None and to != "nanogpt":
        raise OptionError(
            f"--eos has no effect on --to {to}", hint="leave out --eos, or pass --to nanogpt"
        )
    source = open_any(path)
    if isinstance(source, ShardSet) and source.decoder is not None:
        raise OptionError(
            f"{source.path}: holds pairs, expected single sequences",
            hint=f"seqpack unpack {shlex.quote(str(source.path))} --format parquet -o FILE writes "
            "both sides, or export the token stores",
        )
    task = _Task(source, output, overwrite, eos, progress or Progress())
    return {"format": to, **FORMATS[to](task)}


@dataclass(frozen=True)
class _Task:
    """One export."""

    source: TokenStore | ShardSet
    output: AnyPath
    overwrite: bool
    eos: int | None
    progress: Progress

    def iter_blocks(self) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield all sequences in the order of the token stores, and the document of each.

        Of shards each sequence counts as a document.
        """
        source, progress = self.source, self.progress
        if isinstance(source, TokenStore):
            yield from _iter_store(source, progress)
            return
        _check_files(source.path, source.manifest["shards"])
        for (block,) in iter_blocks([source], LIMITS.ids_per_export, progress):
            yield block, block.indices
            progress.on_tokens(len(block.ids))

    def tell_lost_columns(self, format_name: str, *, has_targets: bool = False) -> None:
        """Say which columns a format does not have."""
        if TARGETS in self.source.columns and not has_targets:
            self.progress.on_notice(f"{format_name} has no targets: every token will be trained")
        others = [name for name in self.source.columns if name != TARGETS]
        if others:
            self.progress.on_notice(f"{format_name} has no columns: left out {', '.join(others)}")


# What is exported


def _check_files(folder: Place, entries: Sequence[Mapping[str, Any]]) -> None:
    """Raise FolderError unless files have the checksums of their entries in a manifest."""
    for entry in entries:
        path = folder / entry["name"]
        with at(path).open_copy(dict(entry)) as file:
            found = at(file).hash()
        if found != entry["blake3"]:
            raise FolderError(f"{path}: blake3 differs from the manifest's", hint=CHANGED_HINT)


def _iter_store(store: TokenStore, progress: Progress) -> Iterator[tuple[Block, np.ndarray]]:
    """Yield the blocks of a token store, none of which has sequences of two parts."""
    progress.on_total(len(store))
    for number, part in enumerate(store.parts):
        _check_files(store.path, part["files"])
        ids, _ = store.view_part(number)
        lengths = store.part_lengths(number).astype(np.int64)
        offsets, documents = to_offsets(lengths), store.number_documents(number)
        indices = np.arange(len(lengths)) + store.part_offsets[number]
        for rows in cut_rows(offsets, LIMITS.ids_per_export):
            cells = slice(*offsets[[rows.start, rows.stop]].tolist())
            columns = dict[str, Values]()
            for name, column in store.columns.items():
                values = store.view_column(number, name)[cells if column.is_per_token else rows]
                columns[name] = store.finish_values(number, name, values)
            yield Block(indices[rows], ids[cells], lengths[rows], columns), documents[rows]
            progress.tell(rows.stop - rows.start, cells.stop - cells.start)
        store.let_pages_go()


# Parquet


def _export_parquet(task: _Task) -> dict[str, Any]:
    """Write a folder of Parquet files, for readers of Hugging Face datasets."""
    output, source = parse_place(task.output), task.source
    import_pyarrow()  # before any work
    found = _iter_arrays(task)
    if isinstance(source, ShardSet):
        rules = LAYOUTS[source.layout]
        if rules.shares_rows and not rules.carries_state:  # streams have no rows of their own
            found = _iter_packed_arrays(source, task)
    hint = "pass pack --drop-column {}, and export the shards"
    tables = (make_table(arrays, source.path, "export", hint=hint) for arrays in found)
    digest = source.digest if isinstance(source, TokenStore) else source.folder.digest
    about = {"source_format": source.manifest["format"], "source_blake3": digest}
    counts, files = {"num_rows": 0, "num_tokens": 0}, list[HashingWriter]()
    with _folder_of_files(task, output) as create:

        def find_file(table: Any) -> HashingWriter:
            """Count a table; return its file, a new one if the last is full."""
            counts["num_rows"] += table.num_rows
            counts["num_tokens"] += len(table.column("input_ids").chunk(0).values)
            if not files or files[-1].num_bytes + table.nbytes > MAX_FILE_BYTES:
                files.append(create(PARQUET_NAME.format(len(files))))
            return files[-1]

        for file, some in groupby(tables, find_file):
            write_parquet(file.write, some, "export", about)
    names = map(PARQUET_NAME.format, range(len(files)))
    return {**counts, "files": [str(output / name) for name in names]}


def _iter_arrays(task: _Task) -> Iterator[Arrays]:
    """Yield the columns of tables with one row for each sequence."""
    store = task.source
    has_documents = isinstance(store, TokenStore) and any(
        (store.count_sequences(number) != 1).any() for number in range(store.num_parts)
    )
    for block, documents in task.iter_blocks():
        ids, offsets = block.ids.astype(np.int32), to_offsets(block.lengths)
        labels = _make_labels(ids, block.columns.get(TARGETS))
        arrays = [
            ("input_ids", make_lists(ids, offsets)),
            ("attention_mask", make_lists(np.ones(len(ids), np.int8), offsets)),
            ("labels", make_lists(labels, offsets)),
        ]
        if has_documents:
            arrays.append(("document", import_pyarrow().array(documents)))
        for name, column in store.columns.items():
            if name != TARGETS:
                array = make_column(column, block.columns[name], offsets)
                arrays.append((name, array))
        yield arrays


def _iter_packed_arrays(shards: ShardSet, task: _Task) -> Iterator[Arrays]:
    """Yield the columns of tables with one row for each that several sequences share, in order.

    Padding is left out: that between aligned sequences, that at the end of a row, and rows that are
    all padding.
    """
    task.tell_lost_columns("a packed row", has_targets=True)
    task.progress.on_total(len(shards))
    for number, entry in enumerate(shards.manifest["shards"]):
        _check_files(shards.path, [entry])
        shard = shards.open_shard(number)
        shard.check_all()
        for some in cut_rows(shard.tensors["data_offsets"], LIMITS.ids_per_export):
            batches = shard.arrays.cut(some.start, some.stop)
            is_token = batches.mask_tokens() if batches.has_padding else slice(None)
            ids = batches.tensors["data"][is_token].astype(np.int32)
            lengths = batches.tensors["lengths"]
            rows = batches.tensors.get("row_indices", 0)  # 0: a batch is one row
            rows = rows + batches.batch_of_rows * (np.max(rows) + 1)
            of_rows = to_offsets(np.unique(rows, return_counts=True)[1])
            starts = to_offsets(lengths)
            targets = None
            if TARGETS in shards.columns:
                targets = batches.tensors[shards.columns[TARGETS].tensor_name][is_token]
            labels = _make_labels(ids, targets).copy()
            labels[starts[:-1]] = NO_LABEL
            positions = expand_ranges(0, lengths)
            arrays = [
                ("input_ids", make_lists(ids, starts[of_rows])),
                ("labels", make_lists(labels, starts[of_rows])),
                ("seq_lengths", make_lists(lengths.astype(np.int32), of_rows)),
                ("position_ids", make_lists(positions.astype(np.int32), starts[of_rows])),
            ]
            yield arrays
            task.progress.tell(some.stop - some.start, len(ids))
        let_pages_go(shard.tensors["data"])


def _make_labels(ids: np.ndarray, targets: Any) -> np.ndarray:
    """Return each id, or NO_LABEL where it is not a target."""
    return ids if targets is None else np.where(targets, ids, np.int32(NO_LABEL))


def _check_folder(task: _Task, output: Place) -> list[str]:
    """Check that a folder of Parquet files may be written; return the names of those to replace.

    Raises:
        FolderError: it holds anything, or with `overwrite` anything but files of an export.
    """
    check_outside_runs(output)
    if output.is_symlink() or (at(output).exists() and not output.is_dir()):
        raise FolderError(f"{output}: not a folder, expected one or nothing", hint=OTHER_FOLDER)
    inside = output.iterdir() if output.is_dir() else ()
    found = [path for path in inside if not TEMP_PATTERN.fullmatch(path.name)]
    if found and not task.overwrite:
        hint = "choose another -o, or pass --overwrite"
        raise FolderError(f"{output}: already exists", hint=hint)
    for path in found:
        if not (PARQUET_PATTERN.fullmatch(path.name) and is_of_kind(path, PARQUET)):
            raise foreign_error(path, PARQUET, hint=OTHER_FOLDER)
        check_no_source(path, task.source)
    return [path.name for path in found]


@contextlib.contextmanager
def _folder_of_files(task: _Task, output: Place) -> Iterator[CreateFile]:
    """Yield a function that creates files of a folder, which appear when the block ends.

    A new folder on a disk is written beside its place and renamed. In a folder that exists, and in
    an object store, files appear one after another, when those of an earlier export are removed.
    """
    check, folder = partial(_check_folder, task, output), output
    check()
    new = output if isinstance(output, Path) and not output.exists() else None
    made = at(output if new is None else new.parent).make_folder()
    try:
        if new is not None:
            at(new.parent).remove_left_overs(new.name)
            folder = beside = disk.name_temporary(new)
            at(folder).make_folder()
        at(folder).remove_left_overs()
        with publish_files(folder, check, replace=task.overwrite) as create:
            yield create
        if new is not None:
            disk.rename(beside, new)
    except BaseException:
        if new is not None:
            at(new.parent).remove_left_overs(new.name)
        disk.remove_folders(made)  # only if they are empty
        raise


# Files of ids


def _export_megatron(task: _Task) -> dict[str, Any]:
    """Write one indexed dataset of Megatron-LM: PREFIX.bin and PREFIX.idx."""
    prefix, source = parse_file(task.output), task.source
    if prefix.name.endswith((".bin", ".idx")):
        raise OptionError(
            f"{prefix}: names a file, expected the prefix of two",
            hint=f"-o {prefix.with_name(prefix.name[:-4] or 'dataset')}",
        )
    data, index = (prefix.with_name(prefix.name + suffix) for suffix in (".bin", ".idx"))
    task.tell_lost_columns("an indexed dataset")
    lengths = list[np.ndarray]()
    check = partial(_check_pair, task, data, index)
    with publish_files(prefix.parent, check, replace=task.overwrite) as create:
        index_file, data_file = create(index.name), create(data.name)
        for block, _ in task.iter_blocks():
            data_file.write(np.ascontiguousarray(block.ids))
            lengths.append(block.lengths)
        all_lengths = np.concatenate(lengths)
        num_sequences = np.ones_like(all_lengths)  # of each document
        if isinstance(source, TokenStore):
            parts = range(source.num_parts)
            num_sequences = np.concatenate([*map(source.count_sequences, parts)])
        dtype = source.manifest["dtype"]
        write_index(index_file, lengths=all_lengths, num_sequences=num_sequences, dtype=dtype)
    return {
        "num_documents": len(num_sequences),
        "num_sequences": len(all_lengths),
        "num_tokens": int(all_lengths.sum()),
        "files": [str(data), str(index)],
    }


def _check_pair(task: _Task, data: Place, index: Place) -> list[str]:
    """Check that both files of an indexed dataset may be written; ids are known by their index.

    Returns:
        The name of the ids: they must never lie beside another index than their own.
    """
    check_no_source(data, task.source)
    check_no_source(index, task.source)
    check_new_name(data)
    check_target(index, INDEX, overwrite=task.overwrite)
    if not at(data).exists():
        return []
    if not (task.overwrite and at(index).exists()):
        raise FolderError(
            f"{data}: already exists, without {index.name} beside it; other files are not replaced",
            hint=f"{OTHER_NAME}, or remove the file yourself",
        )
    return [data.name]


def _export_nanogpt(task: _Task) -> dict[str, Any]:
    """Write one file of uint16 ids without a header, an end token after every document.

    nanoGPT draws windows anywhere in the file and never looks for documents. Other readers find
    them by the end token, so that one inside a document is reported.
    """
    output = parse_file(task.output)
    eos = _find_eos(task)
    end = FileKind(
        f"uint16 ids that end with the end token {eos}",
        lambda tail: tail == np.array(eos).astype(FLAT).tobytes(),
        max_bytes=2,
        at_end=True,
    )
    check_no_source(output, task.source)
    counts = {"num_documents": 0, "num_tokens": 0}
    counts |= {"num_end_tokens_added": 0, "num_end_tokens_inside": 0}
    with publish_alone(output, end, overwrite=task.overwrite) as file:
        task.tell_lost_columns("nanoGPT's format")
        for ids in _iter_flat(task, eos, counts):
            file.write(np.ascontiguousarray(ids))
    if counts["num_end_tokens_inside"]:
        task.progress.on_notice(
            f"{counts['num_end_tokens_inside']:,} end tokens (id {eos}) are inside documents: what "
            "looks for end tokens sees as many more documents"
        )
    return {**counts, "files": [str(output)]}


def _find_eos(task: _Task) -> int:
    """Return the id of the end token; raise OptionError if none is known."""
    path, manifest, eos = task.source.path, task.source.manifest, task.eos
    found: int | None = manifest["eos_id"] if eos is None else eos
    if found is None or not 0 <= found <= manifest["max_id"]:
        what = f"{path}: no end token is known, nanoGPT's format needs one"
        if eos is not None:
            known = f"expected an id from 0 to {manifest['max_id']}"
            what = f"--eos {eos}: not a token of {path}, {known}"
        raise OptionError(what, hint="pass --eos with the id of the token that ends a document")
    return found


def _iter_flat(task: _Task, eos: int, counts: dict[str, int]) -> Iterator[np.ndarray]:
    """Yield the ids of each block with end tokens.

    Tokens with which a sequence repeats the end of the one before (`tokenize --overlap`) are left
    out, as by `unpack`: documents are whole.
    """
    for (whole, documents), (_, following) in pairwise(chain(task.iter_blocks(), END)):
        is_last = np.append(documents[1:], following[0]) != documents
        block = drop_overlaps(task.source, whole)
        ends = np.cumsum(block.lengths)[is_last]
        has_end = block.ids[ends - 1] == eos
        counts["num_documents"] += len(ends)
        counts["num_end_tokens_inside"] += int((block.ids == eos).sum() - has_end.sum())
        counts["num_end_tokens_added"] += int((~has_end).sum())
        flat = np.insert(block.ids, ends[~has_end], eos)
        if flat.max() > np.iinfo(FLAT).max:
            raise DataError(
                f"{task.source.path}: id {flat.max():,} does not fit uint16",
                hint="pass --to megatron or --to parquet, without --eos",
            )
        counts["num_tokens"] += len(flat)
        yield flat.astype(FLAT, copy=False)


FORMATS = {"parquet": _export_parquet, "megatron": _export_megatron, "nanogpt": _export_nanogpt}
