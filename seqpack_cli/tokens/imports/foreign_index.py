"""Read the index of an indexed dataset that another tool wrote.

Megatron-LM's `.idx` is the one that `indexed_dataset` describes. fairseq's older index has the same
magic, version and dtype code, but then only the number of sequences, their lengths and starts: the
two are told apart by their sizes. Sequences may be empty here. What a `.bin` holds between or after
its sequences would be lost, so the starts must be the running sum of the lengths, up to its size.
"""

from __future__ import annotations

import bisect
import functools
import struct
from typing import NamedTuple

import numpy as np

from seqpack_cli.corpus.sources import Source
from seqpack_cli.corpus.streams import naming_input
from seqpack_cli.errors import DataError, quote
from seqpack_cli.files.mapping import view_array
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.indexed_dataset import HEADER, MAGIC, VERSION

FAIRSEQ_HEADER = struct.Struct("<9sQBQ")  # magic, version, dtype code, S
OLD_MAGIC = b"TNTIDX\0\0"  # of fairseq's first format
DTYPE_OF_CODE = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
MORE_DTYPES = {9: "<u4", 10: "<u8"}  # of fairseq
FLOATS = (6, 7)
HINT = "copy the pair again, or make it again"


class ForeignIndex(NamedTuple):
    """The sequences and documents of an indexed dataset."""

    dtype: np.dtype
    lengths: np.ndarray  # int32[S], in tokens; may be 0
    starts: np.ndarray  # int64[S], in bytes
    first_sequences: np.ndarray  # int64[D + 1]
    num_bytes: int  # of the .bin

    @property
    def num_documents(self) -> int:
        """Return the number of documents."""
        return len(self.first_sequences) - 1

    def find_documents(self, start: int, end: int) -> tuple[int, int]:
        """Return the first document of a range of bytes, and the first behind the range.

        A document without tokens is where the one after it begins; the last ones are at the end.
        """
        is_last = end >= self.num_bytes
        return self.find_document(start), self.num_documents if is_last else self.find_document(end)

    def find_document(self, byte: int) -> int:
        """Return the first document that begins at a byte or after it."""
        # searchsorted would copy the arrays, which are not aligned
        first = bisect.bisect_left(self.starts, byte) if byte else 0
        return bisect.bisect_left(self.first_sequences, first) if first else 0

    def find_start(self, document: int) -> int:
        """Return the byte at which a document begins."""
        first = int(self.first_sequences[document])
        return int(self.starts[first]) if first < len(self.starts) else self.num_bytes


@functools.lru_cache(maxsize=4)
def read_foreign_index(source: Source) -> ForeignIndex:
    """Read and check the index beside a `.bin`; that of a local file is mapped.

    Raises:
        DataError: it is damaged, does not describe the `.bin`, or its tokens are not integers.
    """
    assert source.index_file is not None  # noqa: S101 - it is a pair
    path = source.index_file.path
    data = _read(source.index_file)
    begin = data[: FAIRSEQ_HEADER.size].tobytes()
    if begin.startswith(OLD_MAGIC):
        raise DataError(
            f"{path}: fairseq's index of lazy or cached data, expected an indexed dataset",
            hint="make the data again with fairseq's --dataset-impl mmap",
        )
    if len(begin) < FAIRSEQ_HEADER.size or not begin.startswith(MAGIC):
        found = quote(begin[: len(MAGIC)])
        raise DataError(f"{path}: begins with {found}, expected an indexed dataset ({MAGIC!r})")
    _, version, code, num_sequences = FAIRSEQ_HEADER.unpack(begin)
    if version != VERSION:
        raise DataError(f"{path}: version {version}, expected {VERSION}")
    is_fairseq = len(data) == FAIRSEQ_HEADER.size + 12 * num_sequences
    dtype = _find_dtype(code, path, is_fairseq=is_fairseq)
    offset = FAIRSEQ_HEADER.size if is_fairseq else HEADER.size
    firsts = np.arange(num_sequences + 1) if is_fairseq else _view_firsts(data, path)
    lengths = view_array(data, "<i4", count=num_sequences, offset=offset)
    starts = view_array(data, "<i8", count=num_sequences, offset=offset + 4 * num_sequences)
    index = ForeignIndex(dtype, lengths, starts, firsts, source.num_bytes)
    _check(index, source, path)
    return index


def _read(index_file: Source) -> np.ndarray:
    """Return the bytes of an index, uint8."""
    with naming_input(index_file.path):
        return index_file.input.map(index_file.num_bytes)


def _find_dtype(code: int, path: str, *, is_fairseq: bool) -> np.dtype:
    known = {**DTYPE_OF_CODE, **(MORE_DTYPES if is_fairseq else {})}
    if code in known:
        return np.dtype(known[code])
    kind = " (floating point)" if code in FLOATS else ""
    expected = ", ".join(f"{it} ({np.dtype(name)})" for it, name in known.items())
    raise DataError(
        f"{path}: dtype code {code}{kind}, expected that of an integer: {expected}",
        hint="write the ids as int32" if code in FLOATS else None,
    )


def _view_firsts(data: np.ndarray, path: str) -> np.ndarray:
    """Return the first sequence of each document, int64[D + 1], once the sizes are checked."""
    if len(data) < HEADER.size:
        raise DataError(f"{path}: {len(data):,} bytes, expected at least {HEADER.size}", HINT)
    *_, num_sequences, num_firsts = HEADER.unpack(data[: HEADER.size].tobytes())
    expected = HEADER.size + 12 * num_sequences + 8 * num_firsts
    if num_sequences and len(data) == expected + num_sequences:
        raise DataError(
            f"{path}: has a mode for each sequence, as multimodal data, expected text",
            hint="import the text alone",
        )
    if len(data) != expected or not num_firsts:
        raise DataError(f"{path}: {len(data):,} bytes, its header says {expected:,}", HINT)
    offset = HEADER.size + 12 * num_sequences
    return view_array(data, "<i8", count=num_firsts, offset=offset)


def _check(index: ForeignIndex, source: Source, path: str) -> None:
    """Check a block of entries at a time: an index may be as large as the memory."""
    size, num_sequences = index.dtype.itemsize, len(index.lengths)
    num_tokens, block = 0, LIMITS.ids_per_block
    for first in range(0, num_sequences, block):
        lengths = index.lengths[first : first + block]
        if lengths.min() < 0:
            place = first + int(lengths.argmin())
            raise DataError(f"{path}: sequence {place} has {lengths.min()} tokens", HINT)
        ends = np.cumsum(lengths, dtype=np.int64) + num_tokens
        starts = index.starts[first : first + block]
        if (wrong := starts != (ends - lengths) * size).any():
            place = int(wrong.argmax())
            expected = int(ends[place] - lengths[place]) * size
            raise DataError(
                f"{path}: sequence {first + place} starts at byte {starts[place]:,}, "
                f"expected {expected:,}, where the one before ends",
                hint=HINT,
            )
        num_tokens = int(ends[-1])
    if source.num_bytes != num_tokens * size:
        raise DataError(
            f"{source.path}: {source.num_bytes:,} bytes, {path} describes {num_tokens * size:,}",
            hint=HINT,
        )
    firsts = index.first_sequences
    for first in range(0, len(firsts), block):
        some = firsts[first : first + block + 1]
        if (some[1:] < some[:-1]).any():
            raise DataError(f"{path}: the documents are not in the order of their sequences", HINT)
    if firsts[0] != 0 or firsts[-1] != num_sequences:
        found = f"the documents run from sequence {firsts[0]} to {firsts[-1]}"
        raise DataError(f"{path}: {found}, expected 0 to {num_sequences}", HINT)
