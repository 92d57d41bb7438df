"""Find the columns of a Parquet or Arrow file by their names, and check their types.

A name is that of a column, or a dotted path of the fields of structs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from seqpack_cli.corpus.conversations import hint_about
from seqpack_cli.corpus.kept_fields import Readers, takes_words
from seqpack_cli.corpus.missing_fields import KEEP, missing_field_error
from seqpack_cli.corpus.parquet_types import (
    JSON_TYPES,
    KEPT_TYPES,
    is_json,
    is_kept,
    is_list,
    is_text,
    make_like,
)
from seqpack_cli.corpus.sources import Source
from seqpack_cli.corpus.text_reader import TextReader
from seqpack_cli.corpus.words import WORDS_HINT
from seqpack_cli.errors import DataError, quote


def find_columns(
    schema: Any, source: Source, text: TextReader, readers: Readers
) -> list[str | None]:
    """Check the types of the text's columns and of the kept ones; return their names.

    One that the text may lack is None if it is missing.

    Raises:
        DataError: a column is missing, or of another type.
    """
    for name, option in zip(text.names, text.options, strict=True):
        kind = find_needed(schema, name, option, text.names, source)
        if text.takes_strings:
            hint = hint_about(make_like(kind), name, option)
            _check_strings(kind, name, source, takes_words=takes_words(readers), hint=hint)
        else:
            _check_json(kind, name, source)
    optional: list[str | None] = []
    for name in text.optional:
        kind = find_type(schema, name, source)
        optional.append(None if kind is None else name)
        if kind is not None:
            _check_json(kind, name, source)
    for reader in readers:
        check_kept(schema, reader.name, source)
    return [*text.names, *optional, *(reader.name for reader in readers)]


def check_kept(schema: Any, name: str, source: Source) -> None:
    """Raise DataError unless there is a column of this name that can be kept."""
    kind = find_needed(schema, name, KEEP, (), source)
    if not is_kept(kind):
        raise DataError(
            f"{source.path}: column {quote(name)} is {kind}, expected {KEPT_TYPES}",
            hint="convert the column, or keep another one",
        )


def _check_strings(
    kind: Any, name: str, source: Source, *, takes_words: bool, hint: str | None
) -> None:
    is_words = is_list(kind) and is_text(kind.value_type)
    if not is_text(kind) and not (is_words and takes_words):
        message = f"{source.path}: column {quote(name)} is {kind}, expected strings"
        raise DataError(message, hint=WORDS_HINT if is_words else hint)


def _check_json(kind: Any, name: str, source: Source) -> None:
    if not is_json(kind):
        raise DataError(
            f"{source.path}: column {quote(name)} is {kind}, expected {JSON_TYPES}",
            hint="convert the column, or write the records as JSON lines",
        )


def look_up(batch: Any, column: str) -> Any:
    """Return the values of a column of a batch, those of a dictionary spelled out."""
    import pyarrow as pa

    values = functools.reduce(_look_up, _path_to(column, batch.schema.names), batch)
    if is_text(values.type):
        return values.cast(pa.large_string(), safe=False)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _look_up(values: Any, name: str) -> Any:
    import pyarrow.compute as pc

    return values.column(name) if hasattr(values, "schema") else pc.struct_field(values, [name])


def _path_to(column: str, names: Sequence[str]) -> list[str]:
    return [column] if column in names else column.split(".")


def find_needed(schema: Any, name: str, option: str, taken: Sequence[str], source: Source) -> Any:
    """Return the type of a column.

    Args:
        option: which asks for the column.
        taken: columns that other options ask for.

    Raises:
        DataError: there is none, or two of that name.
    """
    kind = find_type(schema, name, source)
    if kind is None:
        found = {field.name: make_like(field.type) for field in schema}
        error = missing_field_error("column", option, name, found, taken=taken)
        raise DataError(f"{source.path}: {error.reason}", hint=error.hint)
    return kind


def find_type(schema: Any, wanted: str, source: Source) -> Any:
    """Return the type of a column, None if there is none."""
    import pyarrow as pa

    kind: Any = None
    for name in _path_to(wanted, schema.names):
        inside = list(schema if kind is None else kind if pa.types.is_struct(kind) else ())
        fields = {inner.name: inner for inner in inside}
        num_same = sum(inner.name == name for inner in inside)
        if num_same > 1:
            raise DataError(f"{source.path}: {num_same} columns named {quote(name)}")
        if name not in fields:
            return None
        kind = fields[name].type
    return kind
