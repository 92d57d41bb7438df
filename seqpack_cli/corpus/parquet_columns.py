"""Find the columns of a Parquet file by their names, and convert their values.

A name is that of a column, or a dotted path of the fields of structs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqpack_cli.corpus.document_block import BadEncodingError, decode, missing_field_error
from seqpack_cli.corpus.kept_fields import Readers, takes_words
from seqpack_cli.corpus.sources import Source
from seqpack_cli.corpus.text_reader import TextReader
from seqpack_cli.corpus.words import WORDS_HINT
from seqpack_cli.errors import DataError, quote

KEPT_TYPES = "numbers, booleans, strings or lists of them"


def find_columns(file: Any, source: Source, text: TextReader, readers: Readers) -> list[str | None]:
    """Check the types of the text's columns and of the kept ones; return their names.

    One that the text may lack is None if it is missing.

    Raises:
        DataError: a column is missing, or of another type.
    """
    schema = file.schema_arrow
    for name in text.names:
        kind = _find_type(schema, name, source)
        is_words = _is_list(kind) and _is_text(kind.value_type)
        is_right = _is_text(kind) or (is_words and takes_words(readers))
        if text.takes_strings and not is_right:
            message = f"{source.path}: column {quote(name)} is {kind}, expected strings"
            raise DataError(message, hint=WORDS_HINT if is_words else None)
    optional = [name if _has_column(schema, name, source) else None for name in text.optional]
    for reader in readers:
        try:
            kind = _find_type(schema, reader.name, source)
        except DataError as error:
            raise DataError(error.message) from error  # without the hint about the text
        if not _is_kept(kind):
            raise DataError(
                f"{source.path}: column {quote(reader.name)} is {kind}, expected {KEPT_TYPES}",
                hint="convert the column, or keep another one",
            )
    return [*text.names, *optional, *(reader.name for reader in readers)]


def _has_column(schema: Any, name: str, source: Source) -> bool:
    try:
        _find_type(schema, name, source)
    except DataError:
        return False
    return True


def look_up(batch: Any, column: str) -> Any:
    """Return the values of a column of a batch, those of a dictionary spelled out."""
    import pyarrow as pa

    values = functools.reduce(_look_up, _path_to(column, batch.schema.names), batch)
    if _is_text(values.type):
        return values.cast(pa.large_string(), safe=False)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def count_bytes(texts: Any) -> np.ndarray:
    """Return the bytes of each text, or of the words of each, int64; 0 for null.

    Of other values, about as many on average.
    """
    import pyarrow.compute as pc

    is_words = _is_list(texts.type) and _is_text(texts.type.value_type)
    if not is_words and not _is_text(texts.type):
        return np.full(len(texts), texts.nbytes // max(len(texts), 1), np.int64)
    words = texts.flatten() if _is_list(texts.type) else texts
    sizes = pc.fill_null(pc.binary_length(words), 0).to_numpy(zero_copy_only=False)
    if _is_list(texts.type):
        parents = pc.list_parent_indices(texts).to_numpy()
        sizes = np.bincount(parents, sizes, len(texts))
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
        if not _is_text(scalar.type):
            raise BadEncodingError(found, 0) from error
    try:
        return decode(scalar.cast(pa.large_binary()).as_py(), encoding_errors)
    except BadEncodingError as error:
        raise BadEncodingError(found, 0) from error


def _look_up(values: Any, name: str) -> Any:
    import pyarrow.compute as pc

    return values.column(name) if hasattr(values, "schema") else pc.struct_field(values, [name])


def _path_to(column: str, names: Sequence[str]) -> list[str]:
    return [column] if column in names else column.split(".")


def _find_type(schema: Any, wanted: str, source: Source) -> Any:
    """Return the type of a column."""
    import pyarrow as pa

    kind: Any = None
    for name in _path_to(wanted, schema.names):
        inside = list(schema if kind is None else kind if pa.types.is_struct(kind) else ())
        fields = {inner.name: inner for inner in inside}
        num_same = sum(inner.name == name for inner in inside)
        if num_same > 1:
            raise DataError(f"{source.path}: {num_same} columns named {quote(name)}")
        if name not in fields:
            strings = {inner.name: "" if _is_text(inner.type) else None for inner in schema}
            error = missing_field_error("column", wanted, strings, hint=None)
            raise DataError(f"{source.path}: {error.reason}", hint=error.hint)
        kind = fields[name].type
    return kind


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_kept(kind: Any) -> bool:
    """Return whether values of a type can be kept; in lists, structs of such values too."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_kept(kind.value_type)
    if _is_list(kind):
        inner = kind.value_type
        fields = [field.type for field in inner] if pa.types.is_struct(inner) else [inner]
        return all(map(_is_kept, fields))
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or pa.types.is_boolean(kind) or _is_text(kind))
