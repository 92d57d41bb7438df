"""Find where the pages of a Parquet column begin, and how long a value can be that rows repeat.

A file of 1 kB can hold 3,000 rows of the same 30 MB: the bound limits how many are decoded at once.
"""

from __future__ import annotations

from typing import Any

from seqpack_cli.corpus.sources import Source


def find_first_page(chunk: Any) -> int:
    """Return where the pages of a column chunk begin, its dictionary page included."""
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    return min((int(start) for start in starts if start), default=0)


def bound_length(group: Any, column: str, source: Source) -> int:
    """Return an upper bound, in bytes, for a value that rows of a row group may share.

    A dictionary is one page, whose header has its size; in DELTA_BYTE_ARRAY a row can repeat the
    previous one.
    """
    longest = 0
    for chunk in find_chunks(group, column):
        if "DELTA_BYTE_ARRAY" in chunk.encodings:
            longest = max(longest, chunk.total_uncompressed_size)
        longest = max(longest, read_dictionary_size(source, find_first_page(chunk)))
    return longest


def find_chunks(group: Any, column: str) -> list[Any]:
    """Return the chunks of a row group that hold a column, or what is inside a list."""
    chunks = (group.column(index) for index in range(group.num_columns))
    return [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(f"{column}.")]


def read_dictionary_size(source: Source, start: int) -> int:
    """Return the uncompressed size of the dictionary page at a byte, 0 if it is another page.

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
