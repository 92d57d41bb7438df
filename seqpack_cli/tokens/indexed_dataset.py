"""Read and write a part of a token store: Megatron-LM's indexed dataset, a `.bin` and an `.idx`.

`.bin` is the ids back to back. `.idx`, all little-endian: 9 bytes `MMIDIDX\\0\\0`; u64 version 1;
u8 dtype code; u64 S sequences; u64 D documents + 1; int32[S] lengths in tokens; int64[S] starts in
bytes; int64[D] the first sequence of each document. Megatron-LM, NeMo and GPT-NeoX read it
unchanged. fairseq's index has the same magic but another size, so the size is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import DataError, FolderError, quote
from seqpack_cli.files.disk import HashingWriter
from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.files.mapping import map_regular, view_array
from seqpack_cli.files.places import Place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets

MAGIC = b"MMIDIDX\0\0"
HEADER = struct.Struct("<9sQBQQ")  # magic, version, dtype code, S, D
VERSION = 1
CODE_OF_DTYPE = {"uint16": 8, "int32": 4}
MAX_LENGTH = 2**31 - 1


@dataclass(frozen=True)
class Index:
    """The lengths and places of the sequences and documents of one part."""

    lengths: np.ndarray  # int32[S], in tokens
    starts: np.ndarray  # int64[S], in bytes
    first_sequences: np.ndarray  # int64[D + 1]: document d holds sequences [d] up to [d + 1]


def choose_dtype(max_id: int) -> str:
    """Return the narrowest dtype that holds every id up to max_id."""
    return "uint16" if max_id <= np.iinfo(np.uint16).max else "int32"


def check_id_range(manifest: dict[str, Any], source: Place) -> None:
    """Raise FolderError unless the dtype of a manifest holds its ids, pad_id included.

    Without a tokenizer the ids have no gaps.
    """
    dtype, max_id = manifest["dtype"], manifest["max_id"]
    if dtype not in CODE_OF_DTYPE:
        raise FolderError(f"{source}: dtype {quote(dtype)}, expected uint16 or int32")
    if max_id > np.iinfo(dtype).max:
        raise FolderError(f"{source}: max_id {max_id:,} does not fit {dtype}")
    if not has_tokenizer(manifest) and max_id != (last := manifest["vocab_size"] - 1):
        raise FolderError(f"{source}: max_id {max_id:,}, expected {last:,} without a tokenizer")
    for role in ("pad_id", "bos_id", "eos_id", "unk_id"):
        id_ = manifest.get(role)
        if id_ is not None and (type(id_) is not int or not 0 <= id_ <= max_id):
            raise FolderError(f"{source}: {role} {quote(id_)}, expected an id from 0 to {max_id}")


def cast_ids(ids: np.ndarray, dtype: str, *, max_id: int) -> np.ndarray:
    """Cast ids to the dtype of the store; checked first, since numpy would wrap them silently.

    Raises:
        DataError: an id is negative or above max_id.
    """
    smallest = 0 if not len(ids) or ids.dtype.kind == "u" else int(ids.min())
    largest = int(ids.max()) if len(ids) else 0
    if smallest < 0 or largest > max_id:
        found = largest if largest > max_id else smallest
        raise DataError(f"tokenizer.json: gave id {found}, expected ids from 0 to {max_id}")
    return ids.astype(f"<{np.dtype(dtype).str[1:]}", copy=False)


def write_index(
    file: HashingWriter, *, lengths: np.ndarray, num_sequences: np.ndarray, dtype: str
) -> None:
    """Write the `.idx` of a part.

    Args:
        lengths: in tokens, one per sequence.
        num_sequences: one per document.
    """
    if len(lengths) and lengths.max() > MAX_LENGTH:
        raise DataError(
            f"a sequence of {int(lengths.max()):,} tokens, expected at most {MAX_LENGTH:,}",
            hint="pass --max-length",
        )
    code = CODE_OF_DTYPE[dtype]
    file.write(HEADER.pack(MAGIC, VERSION, code, len(lengths), len(num_sequences) + 1))
    for some in _cut(lengths):
        file.write(some.astype("<i4"))
    item_bytes = np.dtype(dtype).itemsize
    _write_sums(file, lengths, item_bytes)
    num_found = _write_sums(file, num_sequences, 1)
    file.write(np.array([num_found], "<i8"))


def _cut(numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Yield what is written at once."""
    size = LIMITS.entries_per_block
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def _write_sums(file: HashingWriter, counts: np.ndarray, unit: int) -> int:
    """Write the running sum of counts in units, a block at a time; return the total count."""
    total = 0
    for some in _cut(counts):
        sums = to_offsets(some) + total
        file.write((sums[:-1] * unit).astype("<i8"))
        total = int(sums[-1])
    return total


def read_index(file: Path, path: Place | None = None, *, dtype: str, num_tokens: int) -> Index:
    """Map an `.idx` and check that it describes a `.bin` of num_tokens ids.

    Args:
        path: its name in errors, if `file` is a copy of it.

    Raises:
        FolderError: it is damaged, or not such an index.
    """
    path = path or file
    mapped = map_regular(file)
    size, header = len(mapped), mapped[: HEADER.size].tobytes()
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise FolderError(f"{path}: begins with {quote(header[:9])}, expected an indexed dataset")
    _, version, code, num_sequences, num_firsts = HEADER.unpack(header)
    if version != VERSION or code != CODE_OF_DTYPE[dtype]:
        raise FolderError(
            f"{path}: version {version}, dtype code {code}, "
            f"expected {VERSION} and {CODE_OF_DTYPE[dtype]} ({dtype})"
        )
    expected = HEADER.size + 12 * num_sequences + 8 * num_firsts
    if size != expected or num_firsts < 1:
        raise FolderError(f"{path}: {size:,} bytes, its header says {expected:,}")
    lengths = view_array(mapped, "<i4", count=num_sequences, offset=HEADER.size)
    starts_offset = HEADER.size + 4 * num_sequences
    starts = view_array(mapped, "<i8", count=num_sequences, offset=starts_offset)
    firsts_offset = starts_offset + 8 * num_sequences
    first_sequences = view_array(mapped, "<i8", count=num_firsts, offset=firsts_offset)
    _check_index(path, lengths, starts, first_sequences, dtype=dtype, num_tokens=num_tokens)
    return Index(lengths, starts, first_sequences)


def map_lengths(
    file: Path, path: Place, num_sequences: int, num_documents: int, *, dtype: str
) -> np.ndarray:
    """Map the lengths in an `.idx`, int32[S]; of the rest, only the header is checked.

    Args:
        path: its name in errors, if `file` is a copy of it.

    Raises:
        FolderError: it has another size or header.
    """
    header = HEADER.pack(MAGIC, VERSION, CODE_OF_DTYPE[dtype], num_sequences, num_documents + 1)
    num_bytes = len(header) + 12 * num_sequences + 8 * (num_documents + 1)
    mapped = map_regular(file, num_bytes=num_bytes)
    if mapped[: len(header)].tobytes() != header:
        raise FolderError(f"{path}: its header does not match the manifest")
    return view_array(mapped, "<i4", count=num_sequences, offset=len(header))


def _check_index(
    path: Place,
    lengths: np.ndarray,
    starts: np.ndarray,
    first_sequences: np.ndarray,
    *,
    dtype: str,
    num_tokens: int,
) -> None:
    itemsize = np.dtype(dtype).itemsize
    ends = np.cumsum(lengths, dtype=np.int64)
    if len(lengths) and lengths.min() < 1:
        shortest = int(lengths.argmin())
        found = f"sequence {shortest} has {lengths[shortest]} tokens"
        raise FolderError(f"{path}: {found}, expected at least 1")
    if int(ends[-1] if len(ends) else 0) != num_tokens:
        raise FolderError(f"{path}: lengths do not add up to the {num_tokens:,} ids of its .bin")
    if not np.array_equal(starts, (ends - lengths) * itemsize):
        raise FolderError(f"{path}: the starts are not the running sum of the lengths")
    steps = np.diff(first_sequences)
    if first_sequences[0] != 0 or first_sequences[-1] != len(lengths) or (steps < 0).any():
        raise FolderError(f"{path}: the documents do not run from sequence 0 to {len(lengths)}")
