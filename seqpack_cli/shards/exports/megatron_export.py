"""One indexed dataset of Megatron-LM: PREFIX.bin and PREFIX.idx, all parts of a store as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import OptionError
from seqpack_cli.files.disk import HashingWriter
from seqpack_cli.files.mapping import map_regular
from seqpack_cli.files.outputs import parse_file
from seqpack_cli.files.places import Place, at
from seqpack_cli.shards.exports.file_set import FileSet
from seqpack_cli.shards.exports.source import Source
from seqpack_cli.shards.exports.task import Task, check_same
from seqpack_cli.tokens.part_files import read_index, write_index

SUFFIXES = (".bin", ".idx")


def export_megatron(task: Task) -> dict[str, Any]:
    """Write an indexed dataset; return its counts."""
    prefix, source = parse_file(task.output), task.source
    if prefix.name.endswith(SUFFIXES):
        raise OptionError(
            f"{prefix}: names a file, expected the prefix of two",
            hint=f"-o {prefix.with_name(prefix.name[:-4] or 'dataset')}",
        )
    data, index = (prefix.with_name(prefix.name + suffix) for suffix in SUFFIXES)
    target = FileSet(task, "megatron", prefix, (data, index))
    target.check()
    task.tell_lost_columns("an indexed dataset")
    task.begin(source.num_tokens)
    target.remove_left_overs()
    with at(prefix.parent).temporary_files() as create:
        files = create(data.name), create(index.name)
        counts = _write(task, source, *files)
        _compare(task, source, (files[0].temporary, files[1].temporary), (data, index))
        return target.publish(files, counts)


def _write(task: Task, source: Source, file: HashingWriter, index: HashingWriter) -> dict[str, int]:
    """Write both files; return the counts."""
    lengths, documents = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for block in source.iter_blocks(check=True):
        file.write(np.ascontiguousarray(block.ids))
        lengths.append(block.lengths.astype(np.int32))
        documents.append(block.documents)
        task.advance(len(block.ids), is_second=False)
    all_lengths, all_documents = np.concatenate(lengths[1:]), np.concatenate(documents)
    num_documents = source.num_documents or len(all_lengths)
    num_sequences = np.bincount(all_documents, minlength=num_documents)
    dtype = task.opened.manifest["dtype"]
    write_index(index, lengths=all_lengths, num_sequences=num_sequences, dtype=dtype)
    return {
        "num_documents": len(num_sequences),
        "num_sequences": len(all_lengths),
        "num_tokens": source.num_tokens,
    }


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
