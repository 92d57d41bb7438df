"""One file of uint16 ids for nanoGPT: no header, an end token after every document.

nanoGPT draws windows anywhere in the file and never looks for documents. Other readers find them by
the end token, so that one inside a document is reported. Tokens with which a sequence repeats the
end of the one before (`tokenize --overlap`) are left out, as by `unpack`: documents are whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.files.mapping import map_regular
from seqpack_cli.files.outputs import parse_file
from seqpack_cli.files.places import Place, at
from seqpack_cli.ranges import expand_ranges
from seqpack_cli.shards.exports.file_set import FileSet
from seqpack_cli.shards.exports.source import Block, Source
from seqpack_cli.shards.exports.task import Task, check_same, repeated_error

DTYPE = np.dtype("<u2")
MAX_ID = np.iinfo(DTYPE).max
OTHER_FORMATS_HINT = "pass --to megatron or --to parquet"


@dataclass
class _Counts:
    """What was written."""

    num_documents: int = 0  # with tokens
    num_tokens: int = 0
    num_end_tokens_added: int = 0
    num_end_tokens_inside: int = 0  # of documents


def export_nanogpt(task: Task) -> dict[str, Any]:
    """Write the file; return its counts."""
    output, source = parse_file(task.output), task.source
    eos = _find_eos(task, source)
    target = FileSet(task, "nanogpt", output, (output,))
    target.check()
    task.tell_lost_columns("nanoGPT's format")
    task.begin(source.num_tokens)
    target.remove_left_overs()
    counts = _Counts()
    with at(output.parent).temporary_files() as create:
        file = create(output.name)
        for ids, num_read in _iter_flat(source, eos, counts, check=True):
            file.write(np.ascontiguousarray(ids))
            task.advance(num_read, is_second=False)
        _compare(task, file.temporary, output, _iter_flat(source, eos, _Counts()))
        found = target.publish([file], asdict(counts))
    if counts.num_end_tokens_inside:
        task.progress.on_notice(
            f"{counts.num_end_tokens_inside:,} end tokens (id {eos}) are inside documents: what "
            "looks for end tokens sees as many more documents"
        )
    return found


def _find_eos(task: Task, source: Source) -> int:
    """Return the id of the end token.

    Raises:
        OptionError: none is known, or it does not fit.
    """
    max_id = source.manifest["max_id"]
    if task.eos is not None and not 0 <= task.eos <= max_id:
        raise OptionError(
            f"--eos {task.eos}: not a token of {source.path}, expected an id from 0 to {max_id}",
            hint="pass --eos with the id of the token that ends a document",
        )
    eos: int | None = source.manifest["eos_id"] if task.eos is None else task.eos
    if eos is None:
        raise OptionError(
            f"{source.path}: no end token is known, nanoGPT's format needs one",
            hint="pass --eos with the id of the token that ends a document",
        )
    if eos > MAX_ID:
        raise OptionError(
            f"{source.path}: end token {eos:,} does not fit uint16",
            hint=f"{OTHER_FORMATS_HINT}, without --eos",
        )
    return eos


def _iter_flat(
    source: Source, eos: int, counts: _Counts, *, check: bool = False
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the ids of each block with end tokens, and the number of ids in the source."""
    blocks = source.iter_blocks(check=check)
    block = next(blocks, None)
    while block is not None:
        following = next(blocks, None)
        next_document = -1 if following is None else int(following.documents[0])
        is_last = np.append(block.documents[1:], next_document) != block.documents
        ids, lengths = _drop_overlaps(source, block)
        if len(ids) and int(ids.max()) > MAX_ID:
            raise DataError(
                f"{source.path}: id {int(ids.max()):,} does not fit uint16", hint=OTHER_FORMATS_HINT
            )
        ends = np.cumsum(lengths)[is_last]
        has_end = ids[ends - 1] == eos
        counts.num_documents += len(ends)
        counts.num_end_tokens_inside += int((ids == eos).sum() - has_end.sum())
        counts.num_end_tokens_added += int((~has_end).sum())
        flat = np.insert(ids.astype(DTYPE, copy=False), ends[~has_end], eos)
        counts.num_tokens += len(flat)
        yield flat, len(block.ids)
        block = following


def _drop_overlaps(source: Source, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and lengths of sequences without the tokens that they repeat."""
    overlaps = block.overlaps
    if overlaps is None or not overlaps.any():
        return block.ids, block.lengths
    wrong = (overlaps < 0) | (overlaps >= block.lengths)
    if wrong.any():
        raise repeated_error(source.path, int(wrong.argmax()))
    lengths = block.lengths - overlaps
    return block.ids[expand_ranges(block.offsets[:-1] + overlaps, lengths)], lengths


def _compare(
    task: Task, path: Path, output: Place, pieces: Iterator[tuple[np.ndarray, int]]
) -> None:
    """Read the file back and compare it with the source."""
    found, first = map_regular(path).view(DTYPE), 0
    for ids, num_read in pieces:
        check_same(output, task.opened.path, found[first : first + len(ids)], ids)
        first += len(ids)
        task.advance(num_read, is_second=True)
    check_same(output, task.opened.path, found[first:], found[:0])
