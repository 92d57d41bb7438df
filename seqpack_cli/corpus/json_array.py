"""Read the raw records of a .json file: the elements of one array.

Elements are found by their brackets and commas with numpy, at about 300 MB/s, and parsed later. At
most a block of 1 MiB and one element are in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seqpack_cli.corpus.blocks import OnRead, find_line_number, iter_blocks
from seqpack_cli.corpus.json_head import SPACE, quote_head, read_head, read_more
from seqpack_cli.corpus.records import RecordBlock, check_size, split_lines
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError

QUOTE, COMMA, OPENING, CLOSING, BACKSLASH = 1, 2, 3, 4, 5
KINDS = {
    '"': QUOTE,
    ",": COMMA,
    "[": OPENING,
    "{": OPENING,
    "]": CLOSING,
    "}": CLOSING,
    "\\": BACKSLASH,
}
MARKS = bytes(KINDS.get(chr(byte), 0) for byte in range(256))
STEPS = np.array([0, 0, 0, 1, -1, 0])  # to the depth, of each mark


class _State(NamedTuple):
    """Where in the structure of the array a block begins."""

    depth: int  # of brackets; 1 between elements
    is_in_string: bool


def iter_json_records(
    source_range: SourceRange, *, max_document_bytes: int, on_read: OnRead
) -> Iterator[RecordBlock]:
    """Read the elements of an array, or the lines of JSON lines, block by block.

    Raises:
        DataError: the file is something else, is truncated, or a record is larger than
            max_document_bytes.
    """
    blocks = iter_blocks(source_range, on_read)
    seen, start = read_head(blocks, source_range.source, max_document_bytes)
    if start is None:
        lines = itertools.chain(seen, blocks)
        yield from split_lines(lines, source_range, max_document_bytes)
    else:
        after = itertools.chain([b"".join(seen)[start:]], blocks)
        yield from _split_array(after, source_range, start, max_document_bytes)


def _split_array(
    blocks: Iterator[bytes], source_range: SourceRange, start: int, limit: int
) -> Iterator[RecordBlock]:
    """Split what follows the opening bracket, which ends at a byte of the text, into elements."""
    source = source_range.source
    state = _State(1, False)
    rest: list[bytes] = []  # the pieces of an element whose end is not read yet
    num_rest = num_records = 0
    for block in _hold_escapes(blocks):
        ends, state = _find_ends(block, state)
        begins = [0, *(end + 1 for end in ends)]
        elements = [block[begin:end] for begin, end in zip(begins, ends, strict=False)]
        starts = [start + begin for begin in begins[:-1]]
        if elements:
            elements[0] = b"".join([*rest, elements[0]])
            starts[0] -= num_rest
            rest, num_rest = [], 0
        if not state.depth and num_records + len(elements) == 1 and not elements[0].strip(SPACE):
            elements, starts = [], []  # the array is empty
        num_bytes = sum(map(len, elements))
        for element, first in zip(elements, starts, strict=True) if num_bytes > limit else ():
            check_size(len(element), first, source_range, limit)
        yield RecordBlock(elements, 0, num_bytes, False, starts, num_records)
        num_records += len(elements)
        if not state.depth:
            after = itertools.chain([block[ends[-1] :]], blocks)
            return _check_end(after, source, start + ends[-1])
        start += len(block)
        rest.append(block[begins[-1] :])
        num_rest += len(rest[-1])
        check_size(num_rest, start - num_rest, source_range, limit)
    raise DataError(
        f"{source.path}:{find_line_number(source, start)}: truncated, expected ']' at the end of "
        "the array",
        hint="download or copy the file again",
    )


def _hold_escapes(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks, none of which ends between a backslash and what it escapes."""
    escape = b""
    for block in blocks:
        block = escape + block
        escape = block[-1:] if (len(block) - len(block.rstrip(b"\\"))) % 2 else b""
        yield block.removesuffix(escape)
    if escape:
        yield escape


def _find_ends(block: bytes, state: _State) -> tuple[list[int], _State]:
    """Return where elements of the array end, up to its closing bracket, and the state then."""
    table = np.frombuffer(block.translate(MARKS), np.uint8)
    places = np.flatnonzero(table.view(np.bool_))
    marks = table[places]
    if b"\\" in block:
        _drop_escaped(places, marks)
    inside = (np.cumsum(marks == QUOTE) + state.is_in_string) & 1 == 1
    is_in_string = bool(inside[-1]) if len(inside) else state.is_in_string
    is_outside = ~inside & (marks != QUOTE)
    places, marks = places[is_outside], marks[is_outside]
    depths = state.depth + np.cumsum(STEPS[marks])
    closed = np.flatnonzero(depths == 0)
    if len(closed):
        places, marks, depths = (each[: closed[0] + 1] for each in (places, marks, depths))
    ends = places[((depths == 1) & (marks == COMMA)) | (depths == 0)]
    depth = int(depths[-1]) if len(depths) else state.depth
    return ends.tolist(), _State(depth, is_in_string)


def _drop_escaped(places: np.ndarray, marks: np.ndarray) -> None:
    """Set the marks of escaped quotation marks to 0.

    In a run of backslashes, the first, the third and so on escape what follows.
    """
    slashes = np.flatnonzero(marks == BACKSLASH)
    numbers = np.arange(len(slashes))
    is_first = np.diff(places[slashes], prepend=-2) != 1
    firsts = np.maximum.accumulate(np.where(is_first, numbers, 0))
    slashes = slashes[(numbers - firsts) % 2 == 0]
    slashes = slashes[slashes + 1 < len(marks)]
    marks[slashes[places[slashes + 1] == places[slashes] + 1] + 1] = 0


def _check_end(blocks: Iterator[bytes], source: Source, start: int) -> None:
    """Raise DataError unless the rest of the file, from a byte of its text, is the last bracket."""
    first = next(blocks)
    if first[:1] != b"]":
        raise _unexpected_error(first[:1], source, start, "']' at the end of the array")
    start += 1
    for block in itertools.chain([first[1:]], blocks):
        rest = block.lstrip(SPACE)
        if rest:
            start += len(block) - len(rest)
            expected = "the end of the file after the array"
            raise _unexpected_error(read_more(rest, blocks), source, start, expected)
        start += len(block)


def _unexpected_error(found: bytes, source: Source, start: int, expected: str) -> DataError:
    place = f"{source.path}:{find_line_number(source, start)}"
    return DataError(f"{place}: {quote_head(found)}, expected {expected}")
