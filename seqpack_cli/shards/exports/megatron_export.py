"""One indexed dataset of Megatron-LM: PREFIX.bin and PREFIX.idx, all parts of a store as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError, OptionError
from seqpack_cli.files.mapping import map_regular
from seqpack_cli.files.places import at
from seqpack_cli.files.single_file import FileKind, check_target, parse_file
from seqpack_cli.files.url import Place
from seqpack_cli.shards.exports.source import Source
from seqpack_cli.shards.exports.task import Task, check_same, create_staged
from seqpack_cli.tokens.indexed_dataset import MAGIC, read_index, write_index

INDEX = FileKind("an indexed dataset", lambda head: head.startswith(MAGIC))
ANY = FileKind("ids", lambda _: True)  # the index beside them says what they are
SUFFIXES = (".bin", ".idx")


def export_megatron(task: Task) -> dict[str, Any]:
    """Write an indexed dataset; return its counts."""
    prefix, source = parse_file(task.output), task.source
    if prefix.name.endswith(SUFFIXES):
        raise OptionError(
            f"{prefix}: names a file, expected the prefix of two",
            hint=f"-o {prefix.with_name(prefix.name[:-4])}",
        )
    data, index = (prefix.with_name(prefix.name + suffix) for suffix in SUFFIXES)
    _check_targets(data, index, overwrite=task.overwrite)
    task.tell_lost_columns("an indexed dataset")
    task.begin(source.num_tokens)
    at(prefix).remove_left_overs()
    with at(prefix).hold_staging() as folder:
        files = folder / data.name, folder / index.name
        lengths, num_sequences = _write(task, source, files, (data, index))
        _compare(task, source, files, (data, index))
        _check_targets(data, index, overwrite=task.overwrite)
        if task.overwrite:
            at(index.parent).remove_files([index.name])  # it must never describe other ids
        at(data).move_in(files[0], replace=task.overwrite)
        at(index).move_in(files[1], replace=task.overwrite)
    return {
        "num_documents": len(num_sequences),
        "num_sequences": len(lengths),
        "num_tokens": int(lengths.sum(dtype=np.int64)),
        "files": [str(data), str(index)],
    }


def _check_targets(data: Place, index: Place, *, overwrite: bool) -> None:
    """Raise FolderError unless both files may be written: the ids only if an index is beside."""
    check_target(index, INDEX, overwrite=overwrite)
    check_target(data, ANY, overwrite=overwrite)
    if at(data).exists() and not at(index).exists():
        raise FolderError(
            f"{data}: no {index.name} beside it; other files are not replaced",
            hint="choose another -o, or remove the file yourself",
        )


def _write(
    task: Task, source: Source, files: tuple[Path, Path], shown: tuple[Place, Place]
) -> tuple[np.ndarray, np.ndarray]:
    """Write both files; return the length of each sequence, and the sequences of each document."""
    lengths, documents = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    with create_staged(files[0], shown[0]) as file:
        for block in source.iter_blocks(check=True):
            file.write(np.ascontiguousarray(block.ids))
            lengths.append(block.lengths.astype(np.int32))
            documents.append(block.documents)
            task.advance(len(block.ids), is_second=False)
    all_lengths, all_documents = np.concatenate(lengths[1:]), np.concatenate(documents)
    num_documents = source.num_documents or len(all_lengths)
    num_sequences = np.bincount(all_documents, minlength=num_documents)
    with create_staged(files[1], shown[1]) as file:
        dtype = task.opened.manifest["dtype"]
        write_index(file, lengths=all_lengths, num_sequences=num_sequences, dtype=dtype)
    return all_lengths, num_sequences


def _compare(
    task: Task, source: Source, files: tuple[Path, Path], shown: tuple[Place, Place]
) -> None:
    """Read both files back and compare them with the source."""
    dtype = np.dtype(task.opened.manifest["dtype"])
    ids = map_regular(files[0], num_bytes=source.num_tokens * dtype.itemsize).view(dtype)
    index = read_index(files[1], shown[1], dtype=dtype.name, num_tokens=len(ids))
    firsts = index.first_sequences
    num_sequences = num_ids = 0
    for block in source.iter_blocks():
        rows = slice(num_sequences, num_sequences + len(block.lengths))
        cells = slice(num_ids, num_ids + len(block.ids))
        check_same(shown[0], source.path, ids[cells], block.ids)
        check_same(shown[1], source.path, index.lengths[rows], block.lengths)
        places = np.arange(rows.start, rows.stop)
        documents = np.searchsorted(firsts, places, "right") - 1
        check_same(shown[1], source.path, documents, block.documents)
        num_sequences, num_ids = rows.stop, cells.stop
        task.advance(len(block.ids), is_second=True)
    check_same(shown[1], source.path, index.lengths[num_sequences:], index.lengths[:0])
