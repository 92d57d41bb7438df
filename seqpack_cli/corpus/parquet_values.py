"""Convert values of Parquet, and count their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqpack_cli.corpus.document_block import BadEncodingError, BadRecordError, decode
from seqpack_cli.corpus.parquet_types import is_list, is_text
from seqpack_cli.errors import quote

OTHER_BYTES = 8  # of a value that is no string


def count_bytes(values: Any) -> np.ndarray:
    """Return the bytes of the strings of each value, int64, and about those of its numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_dictionary(kind):
        return count_bytes(values.dictionary_decode())
    if is_text(kind):
        binary = values.cast(pa.large_string(), safe=False)
        sizes = pc.fill_null(pc.binary_length(binary), 0).to_numpy(zero_copy_only=False)
    elif is_list(kind) or pa.types.is_map(kind):
        lists = values.cast(pa.list_(kind.field(0))) if pa.types.is_map(kind) else values
        parents = pc.list_parent_indices(lists).to_numpy()
        sizes = np.bincount(parents, count_bytes(lists.flatten()), len(values))
    elif pa.types.is_struct(kind) and kind.num_fields:
        sizes = np.sum([count_bytes(inner) for inner in values.flatten()], axis=0)
    else:
        sizes = np.full(len(values), 0 if pa.types.is_null(kind) else OTHER_BYTES)
    return np.asarray(sizes, np.int64)


def to_python(values: Any) -> list[Any]:
    """Convert values; numbers without a null among them are ten times faster.

    Raises:
        UnicodeDecodeError: a string is not UTF-8.
    """
    import pyarrow as pa

    kind = values.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and not values.null_count:
        numbers: list[Any] = values.to_numpy(zero_copy_only=False).tolist()
        return numbers
    found: list[Any] = values.to_pylist()
    return found


def read_scalar(scalar: Any, encoding_errors: str) -> Any:
    """Convert one value.

    Raises:
        BadEncodingError: it is not UTF-8.
    """
    import pyarrow as pa

    try:
        return scalar.as_py()
    except UnicodeDecodeError as error:
        found = error.object[error.start]
        if not is_text(scalar.type):
            raise BadEncodingError(found, 0) from error
    try:
        return decode(scalar.cast(pa.large_binary()).as_py(), encoding_errors)
    except BadEncodingError as error:
        raise BadEncodingError(found, 0) from error


def to_json(value: Any, kind: Any) -> Any:
    """Return a value of Parquet as a JSON record would have it.

    All structs of a column have the same keys. One whose value is null is left out: the record may
    not have had it. A map becomes an object.

    Raises:
        BadRecordError: a map has a key twice.
    """
    import pyarrow as pa

    if value is None or is_text(kind):
        return value
    if pa.types.is_dictionary(kind):
        return to_json(value, kind.value_type)
    if is_list(kind):
        return [to_json(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {
            field.name: to_json(value[field.name], field.type)
            for field in kind
            if value[field.name] is not None
        }
    if pa.types.is_map(kind):
        keys = [key for key, _ in value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise BadRecordError(f"duplicate key {quote(twice)} in an object")
        return {key: to_json(inner, kind.item_type) for key, inner in value}
    return value
