"""What the footer of a Parquet file says of its columns and their chunks.

The numbers of fields and the codes are those of parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seqpack_cli.shards.exports.parquet_chunks import (
    CODEC_CODE,
    PLAIN,
    RLE,
    RLE_DICTIONARY,
    Chunk,
)
from seqpack_cli.shards.exports.thrift import Long, Value

REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
LIST = 3  # a converted type, as the second numbers here
TYPES: dict[str, tuple[int, int | None]] = {
    "bool": (0, None),
    "int8": (1, 15),
    "uint8": (1, 11),
    "int32": (1, None),
    "int64": (2, None),
    "double": (5, None),
    "string": (6, 0),
    "large_string": (6, 0),
}


def describe_schema(pa: Any, schema: Any) -> Iterator[Value]:
    """Yield the elements of the schema: the root, then each column, a list as three of them."""
    yield {4: "schema", 5: len(schema)}
    for field in schema:
        if not pa.types.is_list(field.type):
            yield _describe_leaf(field.type, field.name, REQUIRED)
            continue
        item = field.type.value_field
        yield {3: REQUIRED, 4: field.name, 5: 1, 6: LIST}
        yield {3: REPEATED, 4: "list", 5: 1}
        yield _describe_leaf(item.type, "element", OPTIONAL if item.nullable else REQUIRED)


def _describe_leaf(kind: Any, name: str, repetition: int) -> Value:
    physical, converted = TYPES[str(kind)]
    leaf: dict[int, Value] = {1: physical, 3: repetition, 4: name}
    return leaf if converted is None else {**leaf, 6: converted}


def describe_chunk(pa: Any, field: Any, chunk: Chunk, start: int) -> Value:
    """Return the description of a chunk that begins at a byte of the file."""
    is_list = pa.types.is_list(field.type)
    kind = field.type.value_type if is_list else field.type
    has_dictionary = len(chunk.pages) > 1
    data_start = start + (len(chunk.pages[0]) if has_dictionary else 0)
    description: dict[int, Value] = {
        1: TYPES[str(kind)][0],
        2: [PLAIN, RLE, RLE_DICTIONARY] if has_dictionary else [PLAIN, RLE],
        3: [field.name, "list", "element"] if is_list else [field.name],
        4: CODEC_CODE,
        5: Long(chunk.num_values),
        6: Long(chunk.num_bytes),
        7: Long(chunk.size),
        9: Long(data_start),
    }
    if has_dictionary:
        description[11] = Long(start)
    return {2: Long(0), 3: description}  # 0: described in the footer alone


def find_place(array: Any) -> tuple[object, ...]:
    """Return what two living arrays share only if they have the same values in memory."""
    places = [0 if buffer is None else buffer.address for buffer in array.buffers()]
    return str(array.type), len(array), *places
