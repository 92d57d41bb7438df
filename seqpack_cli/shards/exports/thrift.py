"""Thrift's compact protocol, in which Parquet writes its headers and its footer; only encoding."""

from __future__ import annotations

from collections.abc import Sequence

Value = int | str | bytes | dict[int, "Value"] | Sequence["Value"]
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12  # codes of types
LONG_LIST = 15


class Long(int):
    """A number that a field holds as i64; others are i32."""


def encode_struct(fields: dict[int, Value]) -> bytes:
    """Encode a struct.

    Args:
        fields: by their numbers, rising.

    >>> encode_struct({1: 3, 4: "a"}).hex()
    '150638016100'
    """
    encoded, last = bytearray(), 0
    for number, value in fields.items():
        if not 0 < number - last < LONG_LIST:
            raise ValueError(f"field {number} after {last}, expected a step from 1 to 14")
        encoded.append((number - last) << 4 | _find_type(value))
        encoded += _encode(value)
        last = number
    return bytes(encoded) + b"\0"


def encode_count(number: int) -> bytes:
    """Encode a number from 0 up, seven bits in each byte.

    >>> encode_count(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _encode(value: Value) -> bytes:
    if isinstance(value, int):
        return encode_count(value << 1 if value >= 0 else (-value << 1) - 1)
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return encode_count(len(raw)) + raw
    if isinstance(value, dict):
        return encode_struct(value)
    size, kind = len(value), _find_type(value[0]) if value else STRUCT
    head = bytes([min(size, LONG_LIST) << 4 | kind])
    if size >= LONG_LIST:
        head += encode_count(size)
    return head + b"".join(map(_encode, value))


def _find_type(value: Value) -> int:
    if isinstance(value, int):
        return I64 if isinstance(value, Long) else I32
    if isinstance(value, str | bytes):
        return BINARY
    return STRUCT if isinstance(value, dict) else LIST
