"""A second reader of Parquet files, written from the format's specification; it forgives nothing.

Every byte of a file must belong to one part, and every page must be used up by its values. It knows
what seqpack writes: columns that are never missing, or lists of which only entries may be missing.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

BOOLEAN, INT32, INT64, DOUBLE, BYTE_ARRAY = 0, 1, 2, 5, 6
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
UTF8, LIST, UINT_8, INT_8 = 0, 3, 11, 15  # converted types
ALLOWED = {BOOLEAN: {None}, INT32: {None, UINT_8, INT_8}, INT64: {None}, DOUBLE: {None}}
ALLOWED[BYTE_ARRAY] = {UTF8}


class Leaf(NamedTuple):
    path: list[str]
    physical: int
    converted: int | None
    max_repetition: int
    max_definition: int


class Input:
    """Bytes that are read once, from the first to the last."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data, self.place = data, place

    def take(self, size: int) -> bytes:
        assert self.place + size <= len(self.data), "cut short"
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.number(1)) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def struct(self) -> dict[int, Any]:
        fields, last = dict[int, Any](), 0
        while head := self.number(1):
            assert head >> 4, "a long form of a field's number"
            last += head >> 4
            fields[last] = self.value(head & 15)
        return fields

    def value(self, kind: int) -> Any:
        if kind in (5, 6):  # i32, i64
            value = self.varint()
            value = value >> 1 ^ -(value & 1)
            assert -(2 ** (31 if kind == 5 else 63)) <= value < 2 ** (31 if kind == 5 else 63)
            return value
        if kind == 8:
            return self.take(self.varint())
        if kind == 9:
            head = self.number(1)
            size = head >> 4 if head >> 4 < 15 else self.varint()
            return [self.value(head & 15) for _ in range(size)]
        assert kind == 12, kind
        return self.struct()

    def hybrid(self, width: int, count: int) -> np.ndarray:
        """Read runs of repeated or packed values until there are enough."""
        runs, num_values = [np.empty(0, np.int64)], 0
        while num_values < count:
            head = self.varint()
            if head & 1:
                packed = np.frombuffer(self.take((head >> 1) * width), np.uint8)  # 8 values each
                bits = np.unpackbits(packed, bitorder="little").reshape(-1, width)
                run = bits.astype(np.int64) @ (1 << np.arange(width))
                assert len(run) - (count - num_values) < 8 and not run[count - num_values :].any()
            else:
                run = np.full(head >> 1, self.number(-(-width // 8)))
                assert len(run) <= count - num_values
            assert 0 < len(run) < 2**31
            runs.append(run)
            num_values += len(run)
        return np.concatenate(runs)[:count]

    def plain(self, leaf: Leaf, count: int) -> list[Any]:
        if leaf.physical == BYTE_ARRAY:
            return [self.take(self.number(4)).decode() for _ in range(count)]
        if leaf.physical == BOOLEAN:
            bits = np.unpackbits(
                np.frombuffer(self.take(-(-count // 8)), np.uint8), bitorder="little"
            )
            assert not bits[count:].any()
            found: list[Any] = bits[:count].astype(bool).tolist()
            return found
        dtype = {INT32: "<i4", INT64: "<i8", DOUBLE: "<f8"}[leaf.physical]
        found = np.frombuffer(self.take(count * int(dtype[2])), dtype).tolist()
        limits = {UINT_8: (0, 255), INT_8: (-128, 127)}.get(leaf.converted or 0)
        assert limits is None or all(limits[0] <= each <= limits[1] for each in found)
        return found


def read_strictly(data: bytes) -> dict[str, list[Any]]:
    """Read all columns; raise AssertionError where a file is not as the specification says."""
    assert data[:4] == data[-4:] == b"PAR1"
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    source = Input(data[:-8], start)
    footer = source.struct()
    assert source.place == len(data) - 8
    assert set(footer) == {1, 2, 3, 4, 5, 6} and footer[1] in (1, 2)
    assert footer[6].startswith(b"seqpack version ")
    leaves = _read_schema(footer[2])
    columns: dict[str, list[Any]] = {leaf.path[0]: [] for leaf in leaves}
    place = 4
    for group in footer[4]:
        assert group[5] == place and len(group[1]) == len(leaves)
        assert group[2] == sum(chunk[3][6] for chunk in group[1])
        for leaf, chunk in zip(leaves, group[1], strict=True):
            assert set(chunk) == {2, 3} and chunk[2] == 0
            found = _read_chunk(data[:start], place, leaf, chunk[3])
            assert len(found) == group[3]
            columns[leaf.path[0]] += found
            place += chunk[3][7]
    assert place == start
    assert {footer[3]} == set(map(len, columns.values()))
    return columns


def _read_schema(elements: list[dict[int, Any]]) -> list[Leaf]:
    root, *left = elements
    assert set(root) == {4, 5}
    leaves = []
    for _ in range(root[5]):
        element, name = left.pop(0), elements[-len(left) - 1][4].decode()
        path, repetition, definition = [name], 0, 0
        assert element[3] == REQUIRED
        if 5 in element:
            assert element == {3: REQUIRED, 4: name.encode(), 5: 1, 6: LIST}
            assert left.pop(0) == {3: REPEATED, 4: b"list", 5: 1}
            element = left.pop(0)
            assert element[4] == b"element" and element[3] in (REQUIRED, OPTIONAL)
            path, repetition, definition = [name, "list", "element"], 1, 1 + element[3]
        assert set(element) - {6} == {1, 3, 4} and element.get(6) in ALLOWED[element[1]]
        leaves.append(Leaf(path, element[1], element.get(6), repetition, definition))
    assert not left
    return leaves


def _read_chunk(data: bytes, start: int, leaf: Leaf, about: dict[int, Any]) -> list[Any]:
    """Read the pages of a column of a row group, a value or a list for each row."""
    assert set(about) - {11} == {1, 2, 3, 4, 5, 6, 7, 9}
    assert about[1] == leaf.physical and about[4] == 6  # zstd
    assert [part.decode() for part in about[3]] == leaf.path
    source, encodings, entries = Input(data, start), {RLE}, None
    raw_bytes = 0
    if 11 in about:
        assert about[11] == start
        header, page, size = _read_page(source, {1: 2, 7: None})
        assert set(header[7]) == {1, 2} and header[7][2] == PLAIN
        entries = page.plain(leaf, header[7][1])
        assert page.place == len(page.data)
        encodings.add(PLAIN)
        raw_bytes += size
    assert about[9] == source.place
    header, page, size = _read_page(source, {1: 0, 5: None})
    count, encoding = header[5][1], header[5][2]
    assert header[5] == {1: count, 2: encoding, 3: RLE, 4: RLE} and count == about[5]
    assert set(about[2]) == encodings | {encoding} and len(about[2]) == len(set(about[2]))
    assert source.place - start == about[7] and raw_bytes + size == about[6]
    repetition = _read_levels(page, leaf.max_repetition, count)
    definition = _read_levels(page, leaf.max_definition, count)
    is_there = definition == leaf.max_definition
    num_values = int(is_there.sum())
    if encoding == RLE_DICTIONARY:
        assert entries is not None
        width = page.number(1)
        assert width <= 32
        values = [entries[place] for place in page.hybrid(width, num_values)]
    else:
        assert encoding == PLAIN and entries is None
        values = page.plain(leaf, num_values)
    assert page.place == len(page.data)
    left = iter(values)
    cells = [next(left) if each else None for each in is_there.tolist()]
    if not leaf.max_repetition:
        return cells
    assert (definition > 0).all()  # no empty list
    rows = np.flatnonzero(repetition == 0).tolist()
    assert rows[0] == 0
    return [cells[first:end] for first, end in zip(rows, [*rows[1:], count], strict=True)]


def _read_page(source: Input, expected: dict[int, Any]) -> tuple[dict[int, Any], Input, int]:
    """Return a page's header, its content, and the size of both before compression."""
    start = source.place
    header = source.struct()
    head_bytes = source.place - start
    assert set(header) == {2, 3, 4} | set(expected) and header[1] == expected[1]
    compressed = source.take(header[3])
    assert zlib.crc32(compressed) == header[4] % 2**32
    raw = pa.decompress(compressed, header[2], codec="zstd", asbytes=True)
    assert len(raw) == header[2]
    return header, Input(raw), head_bytes + len(raw)


def _read_levels(page: Input, largest: int, count: int) -> np.ndarray:
    """Read levels behind the number of their bytes; a column without them has none in a page."""
    if not largest:
        return np.zeros(count, np.int64)
    levels = Input(page.take(page.number(4)))
    found = levels.hybrid(largest.bit_length(), count)
    assert levels.place == len(levels.data) and int(found.max()) <= largest
    return found
