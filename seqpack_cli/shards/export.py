"""Write a token store or shards as files that other trainers read: `export`.

Sequences come in blocks of about four million ids: of a store views of its files, of shards taken
apart as by `unpack`, 7 us a sequence. Shards whose rows hold several sequences keep them in
Parquet. Every file of the source is compared with its checksum before it is read.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.errors import DataError, FolderError, OptionError, check_choice
from seqpack_cli.files import disk
from seqpack_cli.files.disk import TEMP_PATTERN, HashingWriter
from seqpack_cli.files.locks import remove_left_over
from seqpack_cli.files.manifest import check_outside_runs, find_format
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.outputs import (
    OTHER_NAME,
    FileKind,
    check_kind,
    check_new_name,
    check_target,
    foreign_error,
    parse_file,
    publish_alone,
)
from seqpack_cli.files.places import Place, at, parse_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.arrays import ShardArrays
from seqpack_cli.shards.manifest import FORMAT as SHARDS_FORMAT
from seqpack_cli.shards.parquet import (
    import_pyarrow,
    make_column,
    make_kind,
    make_lists,
    make_table,
    write_parquet,
)
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.shards.split_set import FORMAT as SPLITS_FORMAT
from seqpack_cli.shards.unpack import (
    check_no_source,
    cut_groups,
    cut_rows,
    iter_unpacked,
    join_sequences,
    open_sound,
    overlap_error,
)
from seqpack_cli.tokens.columns import OVERLAP, TARGETS
from seqpack_cli.tokens.part_files import MAGIC, write_index
from seqpack_cli.tokens.store import TokenStore, open_store

CHANGED_HINT = "the file was changed or damaged: run the command that wrote it with --overwrite"
OTHER_FOLDER = "choose another -o"
PARQUET = make_kind("export")
PARQUET_NAME = re.compile(r"part-\d{5,}\.parquet")
MAX_FILE_BYTES = 2_000_000_000  # of a Parquet file
NO_LABEL = -100  # what losses ignore
INDEX = FileKind("the index of an indexed dataset", lambda head: head.startswith(MAGIC))
FLAT = np.dtype("<u2")  # of nanoGPT's ids
OTHER_FORMATS = "pass --to megatron or --to parquet"


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
    task = _Task(_open_source(path), output, overwrite, eos, progress or Progress())
    return {"format": to, **FORMATS[to](task)}


def _open_source(path: AnyPath) -> TokenStore | ShardSet:
    place = parse_place(path)
    if find_format(place) not in (SHARDS_FORMAT, SPLITS_FORMAT):  # splits: an error says so
        return open_store(place)
    shards = open_shards(place)
    if shards.decoder is not None:
        raise OptionError(
            f"{place}: holds pairs, expected single sequences",
            hint=f"seqpack unpack {shlex.quote(str(place))} --format parquet -o FILE writes both "
            "sides, or export the token stores",
        )
    return shards


class Block(NamedTuple):
    """Some consecutive sequences."""

    ids: np.ndarray  # [S]
    lengths: np.ndarray  # int64[N]
    indices: np.ndarray  # int64[N], of the sequences in the token stores
    documents: np.ndarray  # int64[N], the document of each sequence, rising
    columns: Mapping[str, Any]  # N or S values by name: Values, or a list


@dataclass(frozen=True)
class _Task:
    """One export."""

    source: TokenStore | ShardSet
    output: AnyPath
    overwrite: bool
    eos: int | None
    progress: Progress

    def iter_blocks(self) -> Iterator[Block]:
        """Yield all sequences, in the order of the token stores."""
        source, progress = self.source, self.progress
        if isinstance(source, TokenStore):
            return _iter_store(source, progress)
        return _iter_shards(source, progress)

    def check_no_source(self, *paths: Place) -> None:
        """Raise FolderError if one of the files to replace is an input of the source."""
        for path in paths if self.overwrite else ():
            check_no_source(path, self.source.path, self.source.manifest)

    def tell_lost_columns(self, format_name: str) -> None:
        """Say which columns a format does not have."""
        if TARGETS in self.source.columns:
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


def _iter_store(store: TokenStore, progress: Progress) -> Iterator[Block]:
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
            columns = dict[str, Any]()
            for name, column in store.columns.items():
                values = store.view_column(number, name)[cells if column.is_per_token else rows]
                columns[name] = store.finish_values(number, name, values)
            yield Block(ids[cells], lengths[rows], indices[rows], documents[rows], columns)
            progress.tell(rows.stop - rows.start, cells.stop - cells.start)
        store.let_pages_go()


def _iter_shards(shards: ShardSet, progress: Progress) -> Iterator[Block]:
    """Yield the blocks of shards; each sequence counts as a document."""
    _check_files(shards.path, shards.manifest["shards"])
    rows = zip(iter_unpacked(shards, shards.columns, progress), strict=True)
    first = 0
    for group in cut_groups(rows, LIMITS.ids_per_export, LIMITS.sequences_per_block):
        sequences = [sequence for (sequence,) in group]
        ids, offsets, columns = join_sequences(sequences, shards.columns)
        indices = np.array([sequence.index for sequence in sequences])
        documents = np.arange(first, first + len(group))
        yield Block(ids, np.diff(offsets), indices, documents, columns)
        progress.on_tokens(len(ids))
        first += len(group)


# Parquet


def _export_parquet(task: _Task) -> dict[str, Any]:
    """Write a folder of Parquet files, for readers of Hugging Face datasets."""
    output, source = parse_place(task.output), task.source
    pa = import_pyarrow(output)
    _check_folder(output, overwrite=task.overwrite)
    task.check_no_source(*(output.iterdir() if output.is_dir() else ()))
    tables = _iter_tables(pa, task)
    if isinstance(source, ShardSet):
        rules = LAYOUTS[source.layout]
        if rules.shares_rows and not rules.carries_state:  # streams have no rows of their own
            tables = _iter_packed_tables(pa, source, task.progress)
    digest = source.digest if isinstance(source, TokenStore) else source.folder.digest
    about = {"source_format": source.manifest["format"], "source_blake3": digest}
    counts = {"num_rows": 0, "num_tokens": 0}
    with _folder_of_files(output, overwrite=task.overwrite) as create:
        names, waiting = list[str](), list(islice(tables, 1))
        while waiting:
            names.append(f"part-{len(names):05d}.parquet")
            file = create(names[-1])
            filling = _fill_file(file, waiting, tables, counts)
            write_parquet(file.write, filling, "export", about)
    return {**counts, "files": [str(output / name) for name in names]}


def _fill_file(
    file: HashingWriter, waiting: list[Any], rest: Iterator[Any], counts: dict[str, int]
) -> Iterator[Any]:
    """Yield tables until a file is full, and count them.

    Args:
        waiting: the next table, if there is one; at the end that of the next file.
        rest: the tables after it.
    """
    while waiting:
        table = waiting.pop()
        yield table
        counts["num_rows"] += table.num_rows
        counts["num_tokens"] += len(table.column("input_ids").chunk(0).values)
        waiting += islice(rest, 1)
        if waiting and file.num_bytes + waiting[0].nbytes > MAX_FILE_BYTES:
            return


def _iter_tables(pa: Any, task: _Task) -> Iterator[Any]:
    """Yield tables of one row for each sequence."""
    store = task.source
    hint, has_documents = "pack again with --drop-column {}", False
    if isinstance(store, TokenStore):
        hint = "pack it, export the shards, and pass pack --drop-column {}"
        counts = map(store.count_sequences, range(store.num_parts))
        has_documents = not all((each == 1).all() for each in counts)
    for block in task.iter_blocks():
        ids, offsets = block.ids.astype(np.int32), to_offsets(block.lengths)
        labels = _make_labels(ids, block.columns.get(TARGETS))
        arrays = [
            ("input_ids", make_lists(pa, ids, offsets)),
            ("attention_mask", make_lists(pa, np.ones(len(ids), np.int8), offsets)),
            ("labels", make_lists(pa, labels, offsets)),
        ]
        if has_documents:
            arrays.append(("document", pa.array(block.documents)))
        for name, column in store.columns.items():
            if name != TARGETS:
                array = make_column(pa, column, block.columns[name], offsets)
                arrays.append((name, array))
        yield make_table(pa, arrays, store.path, "export", hint=hint)


def _iter_packed_tables(pa: Any, shards: ShardSet, progress: Progress) -> Iterator[Any]:
    """Yield tables of one row for each row that several sequences share, in the shards' order.

    Padding is left out: that between aligned sequences, that at the end of a row, and rows that are
    all padding.
    """
    others = [name for name in shards.columns if name != TARGETS]
    if others:
        progress.on_notice(f"packed rows have no columns: left out {', '.join(others)}")
    progress.on_total(len(shards))
    for number, entry in enumerate(shards.manifest["shards"]):
        _check_files(shards.path, [entry])
        shard = open_sound(shards, number)
        for some in cut_rows(shard.tensors["data_offsets"], LIMITS.ids_per_export):
            batches = shard.arrays.cut(some.start, some.stop)
            is_token = batches.mask_tokens() if batches.has_padding else slice(None)
            ids = batches.tensors["data"][is_token].astype(np.int32)
            lengths = batches.tensors["lengths"]
            starts, of_rows = to_offsets(lengths), to_offsets(_count_sequences(batches))
            targets = None
            if TARGETS in shards.columns:
                targets = batches.tensors[shards.columns[TARGETS].tensor_name][is_token]
            labels = _make_labels(ids, targets).copy()
            labels[starts[:-1]] = NO_LABEL
            positions = expand_ranges(np.zeros(len(lengths), np.int64), lengths)
            arrays = [
                ("input_ids", make_lists(pa, ids, starts[of_rows])),
                ("labels", make_lists(pa, labels, starts[of_rows])),
                ("seq_lengths", make_lists(pa, lengths.astype(np.int32), of_rows)),
                ("position_ids", make_lists(pa, positions.astype(np.int32), starts[of_rows])),
            ]
            yield make_table(pa, arrays, shards.path, "export")
            progress.tell(some.stop - some.start, len(ids))
        let_pages_go(shard.tensors["data"])


def _count_sequences(batches: ShardArrays) -> np.ndarray:
    """Count the sequences of each row that has some, int64[rows]."""
    if "row_indices" not in batches.tensors:  # a batch is one row
        return batches.num_rows
    rows, batch_of = batches.tensors["row_indices"], batches.batch_of_rows
    is_first = (rows[1:] != rows[:-1]) | (batch_of[1:] != batch_of[:-1])
    return np.diff(np.flatnonzero(np.concatenate([[True], is_first, [True]])))


def _make_labels(ids: np.ndarray, targets: Any) -> np.ndarray:
    """Return each id, or NO_LABEL where it is not a target."""
    return ids if targets is None else np.where(np.asarray(targets), ids, np.int32(NO_LABEL))


def _check_folder(output: Place, *, overwrite: bool) -> None:
    """Check that a folder of Parquet files may be written.

    Raises:
        FolderError: it holds anything, or with `overwrite` anything but files of an export.
    """
    check_outside_runs(output)
    if output.is_symlink() or (at(output).exists() and not output.is_dir()):
        raise FolderError(f"{output}: not a folder, expected one or nothing", hint=OTHER_FOLDER)
    inside = output.iterdir() if output.is_dir() else ()
    found = [path for path in inside if not TEMP_PATTERN.fullmatch(path.name)]
    if found and not overwrite:
        raise FolderError(
            f"{output}: already exists", hint="choose another -o, or pass --overwrite"
        )
    for path in found:
        if not PARQUET_NAME.fullmatch(path.name):
            raise foreign_error(path, PARQUET, hint=OTHER_FOLDER)
        check_kind(path, PARQUET, hint=OTHER_FOLDER)


@contextlib.contextmanager
def _folder_of_files(output: Place, *, overwrite: bool) -> Iterator[Any]:
    """Yield a function that creates files of a folder, which appear when the block ends.

    A new folder on a disk is written beside its place and renamed. In a folder that exists, and in
    an object store, files appear one after another, when those of an earlier export are removed.
    """
    is_new = isinstance(output, Path) and not output.exists()
    folder, parent = output, output.parent if is_new else output
    made = at(parent).make_folder()
    if isinstance(output, Path) and is_new:
        _remove_left_folders(output)
        folder = disk.name_temporary(output)
        made = [*at(folder).make_folder(), *made]
    files = dict[str, HashingWriter]()
    try:
        at(folder).remove_left_overs()
        with at(folder).temporary_files() as create:
            yield lambda name: files.setdefault(name, create(name))
            _check_folder(output, overwrite=overwrite)  # the work may have taken hours
            inside = [path.name for path in folder.iterdir()] if folder.is_dir() else []
            at(folder).remove_files([name for name in inside if PARQUET_NAME.fullmatch(name)])
            for name, file in files.items():
                at(folder / name).move_in(file)
            if isinstance(folder, Path) and is_new:
                disk.rename(folder, Path(str(output)))
    except BaseException:
        if is_new and folder.is_dir():
            at(folder).remove_files(files)
        disk.remove_folders(made)  # only if they are empty
        raise


def _remove_left_folders(output: Path) -> None:
    """Remove the folders beside an output that killed exports of it left."""
    for folder in output.parent.iterdir():
        temp = TEMP_PATTERN.fullmatch(folder.name)
        if temp and temp[1] == output.name and folder.is_dir() and not folder.is_symlink():
            for path in folder.iterdir():
                remove_left_over(path)
            disk.remove_folders([folder])


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
    task.check_no_source(data, index)
    _check_pair(data, index, overwrite=task.overwrite)
    task.tell_lost_columns("an indexed dataset")
    for path in (data, index):
        at(path.parent).remove_left_overs(path.name)
    lengths, documents = list[np.ndarray](), list[np.ndarray]()
    with at(prefix.parent).temporary_files() as create:
        data_file, index_file = create(data.name), create(index.name)
        for block in task.iter_blocks():
            data_file.write(np.ascontiguousarray(block.ids))
            lengths.append(block.lengths)
            documents.append(block.documents)
        all_lengths, all_documents = np.concatenate(lengths), np.concatenate(documents)
        num_documents = len(all_lengths)
        if isinstance(source, TokenStore):
            num_documents = source.num_documents
        write_index(
            index_file,
            lengths=all_lengths,
            num_sequences=np.bincount(all_documents, minlength=num_documents),
            dtype=source.manifest["dtype"],
        )
        _check_pair(data, index, overwrite=task.overwrite)  # the work may have taken hours
        if task.overwrite:  # ids must never lie beside another index than their own
            at(data.parent).remove_files([data.name])
        at(index).move_in(index_file, replace=task.overwrite)
        at(data).move_in(data_file, replace=False)
    return {
        "num_documents": num_documents,
        "num_sequences": len(all_lengths),
        "num_tokens": int(all_lengths.sum()),
        "files": [str(data), str(index)],
    }


def _check_pair(data: Place, index: Place, *, overwrite: bool) -> None:
    """Check that both files of an indexed dataset may be written; ids are known by their index."""
    check_new_name(data)
    check_target(index, INDEX, overwrite=overwrite)
    if at(data).exists() and not (overwrite and at(index).exists()):
        raise FolderError(
            f"{data}: already exists, without {index.name} beside it; other files are not replaced",
            hint=f"{OTHER_NAME}, or remove the file yourself",
        )


def _export_nanogpt(task: _Task) -> dict[str, Any]:
    """Write one file of uint16 ids without a header, an end token after every document.

    nanoGPT draws windows anywhere in the file and never looks for documents. Other readers find
    them by the end token, so that one inside a document is reported.
    """
    output = parse_file(task.output)
    eos = _find_eos(task)
    end = FileKind(
        f"uint16 ids that end with the end token {eos}",
        lambda tail: tail == eos.to_bytes(2, "little"),
        max_bytes=2,
        at_end=True,
    )
    task.check_no_source(output)
    names = ("documents", "tokens", "end_tokens_added", "end_tokens_inside")
    counts = dict.fromkeys((f"num_{name}" for name in names), 0)
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
    """Return the id of the end token.

    Raises:
        OptionError: none is known, or it does not fit.
    """
    path, manifest = task.source.path, task.source.manifest
    if task.eos is not None and not 0 <= task.eos <= manifest["max_id"]:
        raise OptionError(
            f"--eos {task.eos}: not a token of {path}, expected an id from 0 to "
            f"{manifest['max_id']}",
            hint="pass --eos with the id of the token that ends a document",
        )
    eos: int | None = manifest["eos_id"] if task.eos is None else task.eos
    if eos is None:
        raise OptionError(
            f"{path}: no end token is known, nanoGPT's format needs one",
            hint="pass --eos with the id of the token that ends a document",
        )
    if eos > np.iinfo(FLAT).max:
        raise OptionError(
            f"{path}: end token {eos:,} does not fit uint16", hint=f"{OTHER_FORMATS}, without --eos"
        )
    return eos


def _iter_flat(task: _Task, eos: int, counts: dict[str, int]) -> Iterator[np.ndarray]:
    """Yield the ids of each block with end tokens.

    Tokens with which a sequence repeats the end of the one before (`tokenize --overlap`) are left
    out, as by `unpack`: documents are whole.
    """
    path, blocks = task.source.path, task.iter_blocks()
    block = next(blocks, None)
    while block is not None:
        following = next(blocks, None)
        next_document = -1 if following is None else following.documents[0]
        is_last = np.append(block.documents[1:], next_document) != block.documents
        ids, lengths = _drop_overlaps(path, block)
        if len(ids) and int(ids.max()) > np.iinfo(FLAT).max:
            raise DataError(
                f"{path}: id {int(ids.max()):,} does not fit uint16", hint=OTHER_FORMATS
            )
        ends = np.cumsum(lengths)[is_last]
        has_end = ids[ends - 1] == eos
        counts["num_documents"] += len(ends)
        counts["num_end_tokens_inside"] += int((ids == eos).sum() - has_end.sum())
        counts["num_end_tokens_added"] += int((~has_end).sum())
        flat = np.insert(ids.astype(FLAT, copy=False), ends[~has_end], eos)
        counts["num_tokens"] += len(flat)
        yield flat
        block = following


def _drop_overlaps(path: Place, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and lengths of sequences without the tokens that they repeat."""
    if OVERLAP not in block.columns:
        return block.ids, block.lengths
    overlaps = np.asarray(block.columns[OVERLAP], np.int64)
    wrong = np.flatnonzero((overlaps < 0) | (overlaps >= block.lengths))
    if len(wrong):
        found = (each[wrong[0]] for each in (block.indices, overlaps, block.lengths))
        raise overlap_error(path, *map(int, found))
    lengths = block.lengths - overlaps
    starts = to_offsets(block.lengths)[:-1] + overlaps
    return block.ids[expand_ranges(starts, lengths)], lengths


FORMATS = {"parquet": _export_parquet, "megatron": _export_megatron, "nanogpt": _export_nanogpt}
