"""Read documents from files of ids alone, as nanoGPT, dolma and numpy write them.

A document ends with the end token, which stays with it; what follows the last one is a document
too. Two end tokens in a row are a document that is the second of them, so that all documents in a
row are the file again. A range is cut behind an end token.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from seqpack_cli.corpus.fields import oversized_error
from seqpack_cli.corpus.parts import cut_where
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import OnRead, iter_raw_blocks
from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.imports.flat_layout import FlatLayout, read_flat_layout
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.options import ImportOptions

EOS_HINT = (
    "pass the --eos and the --dtype that wrote the file; write ids without end tokens as JSON lines"
)
NO_EOS_HINT = "pass --eos ID, the id at the end of each document (GPT-2's is 50256)"


def cut_flat(
    options: ImportOptions, source: Source, room: int, part_bytes: int
) -> list[tuple[int, int]]:
    """Return the (start, end) bytes of ranges of whole documents; the first fits in the room.

    Raises:
        OptionError: an option that such files need is missing.
        DataError: the file cannot be read, or holds something else.
    """
    layout, eos = _read_layout(source, options)
    find_end = functools.partial(_find_end, source, layout, eos, options.max_document_bytes)
    return cut_where(find_end, source, room, part_bytes)


def iter_flat_blocks(opened: RangeInput, setup: ImportSetup) -> Iterator[IdBlock]:
    """Read the documents that begin in a range, about 1 MiB at a time.

    Raises:
        DataError: the file cannot be read, has no end token, or a document is larger than
            max_document_bytes.
    """
    source_range, limit = opened.range, setup.options.max_document_bytes
    layout, eos = _read_layout(source_range.source, setup.options)
    max_length = limit // layout.dtype.itemsize
    held: list[np.ndarray] = []  # the ids of a document whose end was not read yet
    num_held = num_documents = 0
    for ids in _iter_ids(source_range, layout, opened.on_read):
        ends = np.flatnonzero(ids == eos) + 1
        last = int(ends[-1]) if len(ends) else 0
        lengths = np.diff(ends, prepend=-num_held)
        num_left = len(ids) - last + (0 if last else num_held)
        too_long = np.flatnonzero(np.append(lengths, num_left) > max_length)
        if len(too_long):
            raise _oversized_error(source_range, layout, eos, num_documents + too_long[0], limit)
        if last:
            whole = np.concatenate([*held, ids[:last]]) if num_held else ids[:last]
            yield _make_block(whole, lengths, source_range, layout, eos, num_documents)
            held, num_documents = [], num_documents + len(ends)
        held.append(ids[last:])
        num_held = num_left
    if num_held:
        num_ids = layout.count_ids(source_range.end) if source_range.start == 0 else 0
        if num_held == num_ids:
            raise DataError(
                f"{source_range.source.path}: no id {eos} in {num_ids:,} ids of {layout.dtype}, "
                "expected one at the end of each document",
                hint=EOS_HINT,
            )
        whole, lengths = np.concatenate(held), np.array([num_held])
        yield _make_block(whole, lengths, source_range, layout, eos, num_documents)


def _read_layout(source: Source, options: ImportOptions) -> tuple[FlatLayout, int]:
    if options.eos is not None:
        return read_flat_layout(source, options.dtype), options.eos
    missing, hint = "--eos", NO_EOS_HINT
    try:
        read_flat_layout(source, options.dtype)
    except OptionError as error:
        if options.dtype is not None:
            raise
        missing, hint = "--dtype and --eos", f"{error.hint}; and {hint.removeprefix('pass ')}"
    if source.path.lower().endswith(".bin"):
        hint += "; a .bin of Megatron needs its .idx beside it instead"
    raise OptionError(f"{source.path}: ids alone, expected {missing}", hint)


def _iter_ids(
    source_range: SourceRange, layout: FlatLayout, on_read: OnRead
) -> Iterator[np.ndarray]:
    """Read the ids of a range, block by block."""
    num_skipped = max(layout.offset - source_range.start, 0)
    rest = b""  # of an id
    for block in iter_raw_blocks(source_range, on_read):
        data = rest + block if rest else block
        begin = min(num_skipped, len(data))
        num_skipped -= begin
        end = len(data) - (len(data) - begin) % layout.dtype.itemsize
        rest = data[end:]
        yield np.frombuffer(memoryview(data)[begin:end], layout.dtype)


def _find_end(source: Source, layout: FlatLayout, eos: int, limit: int, byte: int) -> int:
    """Return where the first document ends at a byte or after it.

    That is the end of the file if the document is larger than the limit, which is an error later.
    """
    size = layout.dtype.itemsize
    start = layout.offset + max(0, -(-(byte - layout.offset) // size) - 1) * size
    last = min(source.num_bytes, start + limit + size)
    step = max(LIMITS.seek_bytes // size, 1) * size
    for first in range(start, last, step):
        searched = SourceRange(0, source, first, min(first + step, last))
        data = b"".join(iter_raw_blocks(searched, lambda _: None))
        found = np.flatnonzero(np.frombuffer(data, layout.dtype) == eos)
        if len(found):
            return first + (int(found[0]) + 1) * size
    return source.num_bytes


def _make_block(
    ids: np.ndarray,
    lengths: np.ndarray,
    source_range: SourceRange,
    layout: FlatLayout,
    eos: int,
    num_documents: int,
) -> IdBlock:
    find_place = functools.partial(_find_place, source_range, layout, eos, num_documents)
    return IdBlock(ids, lengths, np.ones(len(lengths), np.int64), (), find_place)


def _find_place(
    source_range: SourceRange, layout: FlatLayout, eos: int, first: int, document: int
) -> str:
    """Return "path:document"; reads the file again from its start, for errors only."""
    source, start = source_range.source, source_range.start
    before = _iter_ids(SourceRange(0, source, 0, start), layout, lambda _: None)
    number = sum(int((ids == eos).sum()) for ids in before) + first + document + 1
    return f"{source.path}:{number}"


def _oversized_error(
    source_range: SourceRange, layout: FlatLayout, eos: int, document: int, limit: int
) -> DataError:
    error = oversized_error(_find_place(source_range, layout, eos, 0, document), limit)
    if source_range.start == 0 and document == 0:  # there may be no end token at all
        hint = f"{EOS_HINT}, or a larger --max-document-bytes"
        return DataError(f"{error.message} without id {eos} of {layout.dtype}", hint)
    return error
