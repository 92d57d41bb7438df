"""Bytes -> decisions -> hostile variants of JSON texts, arrays and raw files.

`Choices` reads decisions out of a fuzzer's bytes, one after another, so that similar bytes make
similar cases. Mutations keep most of a correct file, so that the changes reach the checks behind
the parser. A JSON text is edited in place, not parsed and written: that takes about 5 us and can
make what no serializer writes, such as duplicate keys, NaN, and numbers of 5,000 digits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
Edit = tuple[int, int, bytes]  # start, end, replacement
Path = tuple[str | int, ...]

# Limits of integer types and of exact integers in float64, and sizes larger than any memory.
NUMBERS = (
    *(0, 1, 2, 3, 4, 7, 8, 9, 16, 127, 128, 255, 256, 258, 259, 1000, 65_535, 65_536, 70_000),
    *(-1, -2, -8, -(2**15), -(2**31), -(2**31) - 1, -(2**62), -(2**63) + 1, -(2**63)),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33, 2**34, 2**36, 2**39, 2**40, 2**40 + 1, 2**47),
    *(2**52, 2**53 - 1, 2**53, 2**53 + 1, 2**60, 2**61, 2**62, 2**62 + 1, 2**63 - 8, 2**63 - 1),
)
WIDE_NUMBERS = (*NUMBERS, 2**63, 2**64 - 1, 2**64, -(2**64), 2**70, 2**128, 10**400)
# Python parses about 990 levels; a repr a few calls deeper may then have no stack left.
DEPTHS = (*(20, 126, 127, 128, 240, 480, 900, 940), *range(950, 1000, 5), 100_000)
LITERALS = (
    *(b"null", b"true", b"false", b"[]", b"{}", b"[[]]", b"[null]", b"[0]", b"[-1]", b'{"a": 1}'),
    *(b"0.5", b"-0.0", b"1.0", b"2.0", b"1e308", b"1e400", b"-1e400", b"NaN", b"-Infinity"),
    *(
        b'""',
        b'"x"',
        b'"0"',
        b'"\\u0000"',
        b'"\\ud800"',
        b'"\\u001b[2J\\r\\n"',
        b'"\xff\xfe"',
        b'"',
    ),
    *(
        b'"../x"',
        b'".."',
        b'"."',
        b'"/etc/hostname"',
        b'"a/b"',
        b'"~/x"',
        b'"\\u202e\xf0\x9f\x92\xa9"',
    ),
    *(b'"int"', b'"float"', b'"class"', b'"text"', b'"tags"', b'["b", "a"]', b'["a", "a"]'),
    *(b'"manifest.json"', b'"tokenizer.json"', b'"plan.json"', b'"."', b'"../store"', b'"/"'),
    *(b'"part-00000"', b'"part-00000.bin"', b'"part-00001.idx"', b'"shard-00000.safetensors"'),
    *(b'"shard-00001.safetensors"', b'"seqpack.tokens"', b'"seqpack.shards"'),
    *(b'"uint16"', b'"int32"', b'"int64"', b'"float64"', b'"object"', b'"O"', b'"packed"'),
    *(b'"padded"', b'"varlen"', b'"left"', b'"right"', b'"pad"', b'"split"', b'"bytes"'),
    *(
        b'"U16"',
        b'"I32"',
        b'"I64"',
        b'"U64"',
        b'"F64"',
        b'"BF16"',
        b'"BOOL"',
        b'"F8_E4M3"',
        b'"F4"',
    ),
    *(b'"C64"', b'"X"', b"[1, 2]", b"[0, 0]", b"[8, 0]", b"[-1, 8]", b"[[[[[[[[1]]]]]]]]"),
    *(b'"(a+)+$"', b'{"Regex": "(a|a)*b"}', b'{"Regex": "("}', b'{"String": ""}'),
    *(b'{"name": "manifest.json", "bytes": 1, "blake3": ""}', b'[{"name": "x", "bytes": 0}]'),
    *(
        b'"' + b"x" * 5000 + b'"',
        b"9" * 4299,
        b"9" * 5000,
        b"-" + b"9" * 5000,
        b"[" + b"0," * 9 + b"0]",
    ),
)
STRINGS = tuple(
    literal
    for literal in LITERALS
    if literal[:1] == b'"' and len(literal) > 1 and literal.isascii()
)
NAMES = (
    *(b"files", b"name", b"bytes", b"blake3", b"format", b"format_version", b"options", b"ledger"),
    *(b"pad_id", b"max_id", b"dtype", b"bucket_keys", b"last_batch", b"max_tokens", b"data"),
    *(
        b"lengths",
        b"__metadata__",
        b"shape",
        b"data_offsets",
        b"",
        b"x" * 300,
        b"\\u0000",
        b"\\ud800",
    ),
    *(b"\\u001b[31m", b"drop_shorter", b"drop_longer", b"pad_to_multiple", b"batch_size"),
)


@dataclass
class Choices:
    """Decisions read from bytes; when the bytes run out, always the first choice."""

    data: bytes
    place: int = 0

    def byte(self) -> int:
        """Return the next byte."""
        if self.place >= len(self.data):
            return 0
        self.place += 1
        return self.data[self.place - 1]

    def below(self, count: int) -> int:
        """Return a number from 0 to count - 1, or 0 if there is none."""
        number = self.byte()
        if count > 256:
            number = number * 256 + self.byte()
        return number % max(count, 1)

    def one_in(self, count: int) -> bool:
        """Return True in one of `count` cases."""
        return self.byte() % count == count - 1

    def choose(self, items: Sequence[Item]) -> Item:
        """Choose one of some items."""
        return items[self.below(len(items))]


@dataclass(frozen=True)
class JsonText:
    """A JSON text with the positions of its values."""

    raw: bytes
    values: list[tuple[Path, int, int]]
    members: list[tuple[int, int, int]]  # of an object or list: start, start of the value, end
    places: dict[Path, tuple[int, int]]

    def set(self, path: Path, value: object) -> Edit:
        """Return the edit that sets a value."""
        return (*self.places[path], json.dumps(value).encode())


def spell(value: Any) -> JsonText:
    """Write a value as JSON and record the position of each value and member.

    >>> text = spell({"a": [1, 2]})
    >>> apply_edits(text.raw, [text.set(("a", 1), "x")])
    b'{"a": [1, "x"]}'
    """
    raw = bytearray()
    values: list[tuple[Path, int, int]] = []
    members = []

    def add(value: Any, path: Path) -> None:
        start = len(raw)
        if isinstance(value, dict | list):
            is_object = isinstance(value, dict)
            raw.extend(b"{" if is_object else b"[")
            for number, (key, item) in enumerate(value.items() if is_object else enumerate(value)):
                raw.extend(b", " if number else b"")
                first = len(raw)
                raw.extend(json.dumps(key).encode() + b": " if is_object else b"")
                begin = len(raw)
                add(item, (*path, key))
                members.append((first, begin, len(raw)))
            raw.extend(b"}" if is_object else b"]")
        else:
            raw.extend(json.dumps(value).encode())
        values.append((path, start, len(raw)))

    add(value, ())
    places = {path: (start, end) for path, start, end in values}
    return JsonText(bytes(raw), values, members, places)


def apply_edits(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """Apply edits, given by positions in the unchanged text; of overlapping edits, apply one."""
    pieces, done = [], 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if start >= done:
            pieces += [raw[done:start], new]
            done = end
    return b"".join([*pieces, raw[done:]])


def draw_edits(text: JsonText, choices: Choices) -> list[Edit]:
    """Draw one to three edits of a JSON text."""
    return [_draw_edit(text, choices) for _ in range(choices.choose((1, 1, 1, 1, 2, 2, 3)))]


def _draw_edit(text: JsonText, choices: Choices) -> Edit:
    raw, kind = text.raw, choices.below(24)
    if kind < 17:
        _, start, end = choices.choose(text.values)
        if kind < 10:
            return start, end, _draw_alike(raw[start:end], choices)
        if kind < 13:
            return start, end, choices.choose(LITERALS)
        if kind < 15:
            return start, end, _draw_number(raw[start:end], choices)
        if kind == 15:
            _, other_start, other_end = choices.choose(text.values)
            return start, end, raw[other_start:other_end]
        depth = choices.choose(DEPTHS)
        opening, closing = choices.choose(((b"[", b"]"), (b'{"a":', b"}")))
        return start, end, opening * depth + raw[start:end] + closing * depth
    first, begin, end = choices.choose(text.members)
    key, member = raw[first:begin], raw[first:end]
    if kind == 17:  # twice, the last wins in most parsers
        return end, end, b", " + key + choices.choose((raw[begin:end], *LITERALS[:3]))
    if kind < 20:
        last = end + 2 * (raw[end : end + 2] == b", ")
        return first - 2 * (last == end and raw[first - 2 : first] == b", "), last, b""
    if kind == 20:
        return end, end, (b", " + member) * choices.choose((1, 2, 9, 100))
    name = b'"' + choices.choose(NAMES) + b'": '
    if kind == 21 and key:
        return first, begin, name
    value = choices.choose(LITERALS) if choices.one_in(2) else raw[begin:end]
    return first, first, (name if key else b"") + value + b", "


def _draw_alike(raw: bytes, choices: Choices) -> bytes:
    """Draw another value of the same type, which only a later check can refuse."""
    if raw.isdigit():
        if choices.one_in(2):
            return str(
                choices.choose([number for number in NUMBERS if 0 <= number <= 2**53])
            ).encode()
        return str(max(0, int(raw) + choices.choose((1, -1, 2, -3, 100, -100)))).encode()
    if raw[:1] == b'"':
        return choices.choose(STRINGS)
    if raw[:1] == b"[":
        return choices.choose((b"[]", b"[0]", b"[null]", b"[1e400]", raw[:-1] + b", 1]"))
    if raw[:1] == b"{":
        return choices.choose((b"{}", b'{"a": 1}', b'{"a": 1e400}', b'{"\\ud800": "\\u001b"}'))
    return choices.choose((b"null", b"true", b"false", b"0", b"1", b"-1", b"1e400", *STRINGS[:4]))


def _draw_number(raw: bytes, choices: Choices) -> bytes:
    """Draw a number, near the present one if there is one."""
    if raw.isdigit() and choices.one_in(2):
        near = (int(raw) + change for change in (1, -1, 2, -2, 2**31, 2**32, 2**53))
        return str(choices.choose((*near, 2 * int(raw), -int(raw), int(raw) // 2))).encode()
    return str(choices.choose(WIDE_NUMBERS)).encode()


def mutate_raw(raw: bytes, choices: Choices) -> bytes:
    """Damage a file of unknown content."""
    changed = bytearray(raw)
    for _ in range(choices.choose((1, 1, 2, 4))):
        kind, place = choices.below(9), choices.below(len(changed) + 1)
        count = choices.choose((1, 2, 8, 9, 64, 1000))
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << choices.below(8)
        elif kind == 1 and place < len(changed):
            changed[place] = choices.byte()
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            del changed[place : place + count]
        elif kind == 4:
            changed[place:place] = changed[place : place + count]
        elif kind == 5:
            changed[place:place] = bytes([choices.byte()]) * count
        elif kind == 6:
            number = choices.choose(NUMBERS).to_bytes(8, "little", signed=True)
            changed[place : place + 8] = number
        elif kind == 7:
            changed[place : place + count] = b"\0" * count
        else:
            changed += bytes([choices.byte()]) * count
    return bytes(changed)


def mutate_array(array: np.ndarray, choices: Choices, *, keeps_length: bool = False) -> np.ndarray:
    """Change entries of a flat array, or their number."""
    if array.dtype.kind == "f":  # any bits: also infinite, and not a number
        bits = array.view(np.int64)
        return mutate_array(bits, choices, keeps_length=keeps_length).view(array.dtype)
    kind, count = choices.below(10 if keeps_length else 12), len(array)
    if keeps_length and not count:
        return array
    place = choices.below(count)
    if kind >= 10 or not count:  # more or fewer entries
        extra = choices.choose((1, 2, 5))
        if kind == 10 and count:
            return np.delete(array, slice(place, place + extra))
        return np.insert(array, place, np.resize(array if count else array.dtype.type(1), extra))
    changed = array.copy()
    if kind < 4:
        changed[place] = _fit(choices.choose(NUMBERS), array.dtype)
    elif kind < 6:
        step = choices.choose((1, -1, 2, -2, 5))
        changed[place] = _fit(int(array[place]) + step, array.dtype)
    elif kind == 6:
        other = choices.below(count)
        changed[[place, other]] = changed[[other, place]]
    elif kind == 7:
        changed[place:] = _fit(choices.choose(NUMBERS), array.dtype)
    elif kind == 8:  # one up, one down: the sum stays
        step = choices.choose((1, 2, 2**31, 2**62))
        other = choices.below(count)
        changed[place] = _fit(int(changed[place]) + step, array.dtype)
        changed[other] = _fit(int(changed[other]) - step, array.dtype)
    else:
        changed[:] = np.roll(array, 1) if choices.one_in(2) else array[::-1]
    return changed


def _fit(number: int, dtype: np.dtype[Any]) -> int:
    """Wrap a number around as an integer type does."""
    bits = 8 * dtype.itemsize
    number %= 1 << bits
    return number - (1 << bits) if dtype.kind == "i" and number >> (bits - 1) else number
