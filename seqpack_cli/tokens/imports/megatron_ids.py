"""Read documents from pairs of `.bin` and `.idx`, as Megatron-LM and fairseq write them.

A range of a `.bin` is cut where documents begin. The entries of its sequences in the index count as
input of the range, so that a change of either file is noticed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from blake3 import blake3

from seqpack_cli.corpus.fields import oversized_error
from seqpack_cli.corpus.parts import cut_where
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import OnRead, iter_raw_blocks
from seqpack_cli.errors import DataError
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.imports.foreign_index import ForeignIndex, read_foreign_index
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.options import ImportOptions

NO_IDS = np.empty(0, np.int64)


def cut_megatron(
    options: ImportOptions, source: Source, room: int, part_bytes: int
) -> list[tuple[int, int]]:
    """Return the (start, end) bytes of ranges of whole documents; the first fits in the room."""
    del options  # the index says everything
    index = read_foreign_index(source)

    def find_end(byte: int) -> int:
        return index.find_start(index.find_document(byte))

    return cut_where(find_end, source, room, part_bytes)


def hash_megatron(source_range: SourceRange) -> str:
    """Return the BLAKE3 checksum of a range, "" if it cannot be read."""
    digest = blake3()
    try:
        _hash_entries(read_foreign_index(source_range.source), source_range, digest.update)
        for _ in iter_raw_blocks(source_range, digest.update):
            pass
    except DataError:
        return ""
    return digest.hexdigest()


def iter_megatron_blocks(opened: RangeInput, setup: ImportSetup) -> Iterator[IdBlock]:
    """Read the documents that begin in a range, about 1 MiB at a time.

    Raises:
        DataError: a file cannot be read, or a document is larger than max_document_bytes.
    """
    source_range, max_document_bytes = opened.range, setup.options.max_document_bytes
    source = source_range.source
    index = read_foreign_index(source)
    _hash_entries(index, source_range, opened.digest.update)
    blocks = iter_raw_blocks(source_range, opened.on_read)
    rest = memoryview(b"")
    for first, last in _iter_documents(index, source_range):
        block = _make_block(index, source, first, last)
        num_bytes = int(block.lengths.sum()) * index.dtype.itemsize
        if num_bytes > max_document_bytes:
            _check_sizes(block, index.dtype, max_document_bytes)
        pieces, num_found = [rest], len(rest)
        while num_found < num_bytes:
            pieces.append(memoryview(next(blocks)))
            num_found += len(pieces[-1])
        data = memoryview(b"".join(pieces)) if len(pieces) > 1 else rest
        rest = data[num_bytes:]
        yield block._replace(ids=np.frombuffer(data[:num_bytes], index.dtype))


def _iter_documents(index: ForeignIndex, source_range: SourceRange) -> Iterator[tuple[int, int]]:
    """Yield the first document of each block, and the one after its last."""
    first, last = index.find_documents(source_range.start, source_range.end)
    while first < last:
        end = index.find_start(first) + LIMITS.read_bytes
        stop = min(first + LIMITS.sequences_per_block, last)
        if index.find_start(stop) > end:
            stop = max(index.find_document(end + 1) - 1, first + 1)  # a long document is read alone
        yield first, stop
        first = stop


def _make_block(index: ForeignIndex, source: Source, first: int, last: int) -> IdBlock:
    """Return the documents of a block, before their ids are read."""
    firsts = index.first_sequences[first : last + 1].astype(np.int64)
    lengths = index.lengths[firsts[0] : firsts[-1]].astype(np.int64)
    num_sequences = np.diff(firsts)
    is_empty = lengths == 0
    num_empty: Sequence[int] | np.ndarray = ()
    if is_empty.any():
        numbers = np.repeat(np.arange(last - first), num_sequences)
        num_sequences = np.bincount(numbers[~is_empty], minlength=last - first)
        num_empty = np.bincount(numbers[is_empty], minlength=last - first)
        lengths = lengths[~is_empty]
    place = functools.partial(_find_place, source, first)
    return IdBlock(NO_IDS, lengths, num_sequences, (), place, num_empty=num_empty)


def _check_sizes(block: IdBlock, dtype: np.dtype, max_document_bytes: int) -> None:
    num_bytes = np.diff(block.offsets) * dtype.itemsize
    too_large = np.flatnonzero(num_bytes > max_document_bytes)
    if len(too_large):
        raise oversized_error(block.find_place(int(too_large[0])), max_document_bytes)


def _hash_entries(index: ForeignIndex, source_range: SourceRange, on_read: OnRead) -> None:
    """Read what the index says of a range, relative to its start."""
    first, last = index.find_documents(source_range.start, source_range.end)
    firsts = index.first_sequences[first : last + 1]
    for some in np.array_split(firsts, 1 + len(firsts) // LIMITS.sequences_per_block):
        on_read((some - firsts[0]).astype("<i8").tobytes())
    on_read(index.lengths[firsts[0] : firsts[-1]].tobytes())


def _find_place(source: Source, first: int, document: int) -> str:
    return f"{source.path}:{first + document + 1}"
