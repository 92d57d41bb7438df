"""The pages of a Parquet column: where they begin, and how long a value can be that rows repeat.

A file of 1 kB can hold 3,000 rows of the same 30 MB: how many may be decoded at once is found here.
"""

from __future__ import annotations

from typing import Any

from seqpack_cli.corpus.sources import Source


def find_first_page(chunk: Any) -> int:
    """Give where the pages of a column's chunk begin, its dictionary among them."""
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    return min((int(start) for start in starts if start), default=0)


def bound_length(group: Any, column: str, source: Source) -> int:
    """Bound the bytes of a value that many rows of a row group may repeat for next to nothing.

    A dictionary is one page, whose header tells its size; in DELTA_BYTE_ARRAY a row can repeat the
    one before it.
    """
    longest = 0
    for chunk in (group.column(index) for index in range(group.num_columns)):
        if chunk.path_in_schema == column:
            if "DELTA_BYTE_ARRAY" in chunk.encodings:
                longest = max(longest, chunk.total_uncompressed_size)
            longest = max(longest, read_dictionary_size(source, find_first_page(chunk)))
    return longest


def read_dictionary_size(source: Source, start: int) -> int:
    """Give the uncompressed size of the dictionary page at a byte, 0 if another page begins there.

    A page's header is in Thrift's compact protocol: field 1, an i32, is the kind of the page, field
    2 its uncompressed size, both zigzag varints.
    """
    with source.input.open(source.num_bytes) as file:
        file.seek(start)
        header = file.read(16)
    if header[:3] != b"\x15\x04\x15":
        return 0
    size = 0
    for place, byte in enumerate(header[3:]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return size >> 1
