"""Read and write the JSON files of runs; what is read is checked first.

Size, nesting and number of items are bounded, and file names are plain names. Of equal fields of an
object the last one counts. Equal values are written as equal bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from types import UnionType
from typing import Any

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.places import Place, at

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
MAX_JSON_COUNT = 2**53  # the sum of a few still fits int64
MAX_JSON_BYTES = 128 << 20  # 100,000 parts and sources take about 90 MB
MAX_JSON_ITEMS = 10_000_000  # 100,000 parts have 2 million; each takes up to 100 bytes of memory
Kind = type | UnionType
KIND_NAMES: dict[Kind, str] = {
    int: "a count",
    str: "a string",
    list: "a list",
    dict: "an object",
    str | None: "a string or null",
    dict | None: "an object or null",
    list | None: "a list or null",
}
JSON_TYPES = {
    type(None): "null",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
MAX_LINES = 10_000  # a longer list is written on one line


def read_json(path: Place) -> dict[str, Any]:
    """Read a JSON object that seqpack wrote.

    Raises:
        FolderError: it is not a regular file, too large, or fails `parse_json`.
    """
    return parse_json(at(path).read(max_bytes=MAX_JSON_BYTES), source=path)


def parse_json(data: bytes, *, source: Place | str) -> dict[str, Any]:
    """Parse a JSON object; source names it in errors.

    Raises:
        FolderError: it is not JSON, has too many items, or is not an object.
    """
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MAX_JSON_ITEMS:
        raise FolderError(f"{source}: more than {MAX_JSON_ITEMS:,} items")
    try:
        value = json.loads(data, parse_constant=_read_float, parse_float=_read_float)
    except RecursionError as error:
        raise FolderError(f"{source}: not JSON (nested too deeply)") from error
    except ValueError as error:
        raise FolderError(f"{source}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FolderError(f"{source}: {JSON_TYPES[type(value)]}, expected an object")
    return value


def _read_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{quote(text)} is not a number of JSON, or too large")
    return number


def check_name(name: object, *, source: Place) -> str:
    """Return a file name from a manifest; raise FolderError unless it is a plain name."""
    if not isinstance(name, str) or not SAFE_NAME.fullmatch(name):
        raise FolderError(f"{source}: {quote(name)} is not a plain file name")
    return name


def check_fields(value: object, fields: Mapping[str, Kind], *, source: Place | str) -> None:
    """Raise FolderError unless value is an object with these fields of these types.

    An `int` is a count: not negative, at most MAX_JSON_COUNT. An `object` may be anything.
    """
    if not isinstance(value, dict):
        raise FolderError(f"{source}: {quote(value)}, expected an object")
    for name, kind in fields.items():
        if name not in value:
            raise FolderError(f"{source}: no field {quote(name)}")
        found = value[name]
        is_count = type(found) is int and 0 <= found <= MAX_JSON_COUNT
        if not (is_count if kind is int else isinstance(found, kind)):
            raise FolderError(
                f"{source}: field {quote(name)} is {quote(found)}, expected {KIND_NAMES[kind]}"
            )


def write_json(path: Place, value: dict[str, Any]) -> str:
    """Publish a JSON object and return the BLAKE3 checksum of the file."""
    with at(path).publish() as file:
        file.write(encode_lines(value))
    return str(file.describe()["blake3"])


def encode_json(value: object) -> bytes:
    """Return JSON on one line without a line end; ASCII only if a string has a lone surrogate."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def encode_lines(value: dict[str, Any]) -> bytes:
    """Return JSON with each field, and each item of a list of objects, on its own line."""
    fields = []
    for name, field in value.items():
        if isinstance(field, list) and field and isinstance(field[0], dict):
            many = len(field) > MAX_LINES
            items = [encode_json(field)[1:-1]] if many else map(encode_json, field)
            text = b"[\n  " + b",\n  ".join(items) + b"\n ]"
        else:
            text = encode_json(field)
        fields.append(b" " + encode_json(name) + b": " + text)
    return b"{\n" + b",\n".join(fields) + b"\n}\n"
