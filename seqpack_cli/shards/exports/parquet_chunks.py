"""One column of a row group as bytes of a Parquet file: a dictionary page, then a data page.

pyarrow writes lists at 25 MB/s of ids, most of it for the levels that say where a list begins. All
our lists have an entry, and none is missing, so that their levels are a bit for each entry. Indices
into a dictionary of all integers of a range are the ids of the store themselves: 8 times as fast.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.errors import OptionError
from seqpack_cli.ranges import copy_ranges, to_offsets
from seqpack_cli.shards.exports.thrift import Value, encode_count, encode_struct

PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8  # codes of encodings
DATA_PAGE, DICTIONARY_PAGE = 0, 2
CODEC, CODEC_CODE = "zstd", 6
GROUP = 8  # values that are packed together
LENGTH_BYTES = 4  # before each text
MAX_PAGE_BYTES = 2**31 - 1
MAX_ENTRIES = 1 << 16  # of a dictionary of integers: places of 2 bytes


class Chunk(NamedTuple):
    """The pages of one column of a row group, each behind its header."""

    pages: tuple[bytes, ...]  # the data page last
    num_values: int
    num_bytes: int  # before compression

    @property
    def size(self) -> int:
        """The bytes in the file."""
        return sum(map(len, self.pages))


def encode_chunk(pa: Any, array: Any) -> Chunk:
    """Encode a column: numbers or texts, or lists of them, none of them empty.

    Args:
        array: an array of Arrow, whose lists begin at 0.
    """
    levels, values = b"", array
    if pa.types.is_list(array.type):
        values, is_optional = array.values, array.type.value_field.nullable
        levels = _encode_levels(array.offsets.to_numpy(), values, is_optional=is_optional)
    num_values, values = len(values), values.drop_null() if values.null_count else values
    found = _find_indices(pa, values)
    if found is None:
        return _make_chunk(pa, num_values, PLAIN, levels + _encode_plain(pa, values))
    places, entries, num_entries = found
    if num_entries <= 1:
        data = b"\1" + _repeat(0, len(places)) if num_entries else b"\0"
    else:
        width = places.itemsize * 8
        data = bytes([width]) + _encode_packed(places, len(places), width)
    return _make_chunk(pa, num_values, RLE_DICTIONARY, levels + data, (entries, num_entries))


def _find_indices(pa: Any, values: Any) -> tuple[np.ndarray, bytes, int] | None:
    """Return values as unsigned places in a dictionary, its entries encoded, and their number."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        found = values.dictionary_encode()
        num_entries = len(found.dictionary)
        places = found.indices.to_numpy()
        return _narrow(places, num_entries), _encode_texts(pa, found.dictionary), num_entries
    if not pa.types.is_integer(values.type) or not len(values):
        return None
    numbers = values.to_numpy()
    smallest, largest = int(numbers.min()), int(numbers.max())
    num_entries = largest - smallest + 1
    if num_entries > min(MAX_ENTRIES, len(numbers)):
        return None
    entries = np.arange(smallest, largest + 1, dtype=_widen(numbers.dtype))
    places = numbers if smallest == 0 else numbers - numbers.dtype.type(smallest)
    return _narrow(places, num_entries), entries.tobytes(), num_entries


def _narrow(places: np.ndarray, num_entries: int) -> np.ndarray:
    """Return places in a dictionary in whole bytes, so that no bit has to be moved."""
    width = 1 if num_entries <= 1 << 8 else 2 if num_entries <= 1 << 16 else 4
    return places.astype(f"<u{width}")


def _widen(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in a file: Parquet has no integers of less than 4 bytes."""
    return np.dtype("<i8" if dtype.itemsize == 8 else "<i4")


def _encode_plain(pa: Any, values: Any) -> bytes:
    numbers = values.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(values.type):
        return np.packbits(numbers.astype(bool), bitorder="little").tobytes()
    if pa.types.is_integer(values.type):
        return bytes(numbers.astype(_widen(numbers.dtype)).tobytes())
    return b"" if not len(values) else bytes(numbers.astype("<f8").tobytes())


def _encode_texts(pa: Any, texts: Any) -> bytes:
    """Return the bytes of each text behind their number as int32."""
    _, offsets_buffer, data_buffer = texts.cast(pa.large_string()).buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[: len(texts) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)
    lengths = np.diff(offsets)
    starts = to_offsets(lengths + LENGTH_BYTES)
    encoded = np.empty(int(starts[-1]), np.uint8)
    places = starts[:-1, None] + np.arange(LENGTH_BYTES)
    encoded[places] = lengths.astype("<i4").view(np.uint8).reshape(-1, LENGTH_BYTES)
    copy_ranges(data, offsets[:-1], encoded, starts[:-1] + LENGTH_BYTES, lengths)
    return encoded.tobytes()


def _make_chunk(
    pa: Any,
    num_values: int,
    encoding: int,
    data: bytes,
    dictionary: tuple[bytes, int] | None = None,
) -> Chunk:
    pages = []
    if dictionary is not None:
        raw, num_entries = dictionary
        pages.append(_make_page(pa, raw, DICTIONARY_PAGE, 7, {1: num_entries, 2: PLAIN}))
    header: dict[int, Value] = {1: num_values, 2: encoding, 3: RLE, 4: RLE}
    pages.append(_make_page(pa, data, DATA_PAGE, 5, header))
    return Chunk(tuple(page for page, _ in pages), num_values, sum(size for _, size in pages))


def _make_page(
    pa: Any, raw: bytes, kind: int, field: int, header: dict[int, Value]
) -> tuple[bytes, int]:
    """Return a page behind its header, and the size of both before compression."""
    if len(raw) > MAX_PAGE_BYTES:
        raise OptionError(
            f"a page of {len(raw):,} bytes, Parquet has at most {MAX_PAGE_BYTES:,}",
            hint="tokenize with --max-length, or keep shorter texts",
        )
    compressed: bytes = pa.compress(raw, codec=CODEC, asbytes=True)
    checksum = zlib.crc32(compressed)
    checksum -= (checksum >> 31) << 32  # as a signed number
    sizes: dict[int, Value] = {1: kind, 2: len(raw), 3: len(compressed), 4: checksum}
    head = encode_struct({**sizes, field: header})
    return head + compressed, len(head) + len(raw)


def _encode_levels(offsets: np.ndarray, values: Any, *, is_optional: bool) -> bytes:
    """Return which entries continue a list, and which of them are there.

    Args:
        is_optional: entries may be missing: their level is 2 where they are there, else 1.
    """
    continues = np.ones(len(values), bool)
    continues[offsets[:-1]] = False
    repetition = _encode_packed(np.packbits(continues, bitorder="little"), len(values), 1)
    if values.null_count:
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        bits = np.column_stack([~is_valid, is_valid])
        definition = _encode_packed(np.packbits(bits, bitorder="little"), len(values), 2)
    else:
        definition = _repeat(2 if is_optional else 1, len(values))
    return b"".join(len(each).to_bytes(4, "little") + each for each in (repetition, definition))


def _repeat(value: int, count: int) -> bytes:
    """Encode a small value that is repeated."""
    return encode_count(count << 1) + bytes([value])


def _encode_packed(packed: np.ndarray, num_values: int, width: int) -> bytes:
    """Encode packed values of some bits; a run is whole groups of 8, the last filled with zeros."""
    num_groups = -(-num_values // GROUP)
    return encode_count(num_groups << 1 | 1) + packed.tobytes().ljust(num_groups * width, b"\0")
