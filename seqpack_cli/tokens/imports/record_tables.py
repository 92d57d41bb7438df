"""Check the columns of a table with ids: which there are, and their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqpack_cli.corpus.formats import TOKENIZE
from seqpack_cli.corpus.missing_fields import DOCUMENT_FIELD, IDS_FIELD
from seqpack_cli.corpus.parquet_columns import check_kept, find_needed, find_type
from seqpack_cli.corpus.parquet_types import is_integer, is_list, is_null, is_number_list, is_text
from seqpack_cli.corpus.sources import Source
from seqpack_cli.corpus.table_rows import read_schema
from seqpack_cli.errors import DataError, quote
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.imports.import_setup import (
    MASKS,
    find_named,
    hint_packed,
    hint_value,
    list_packed,
    spell_option,
)
from seqpack_cli.tokens.imports.record_cuts import MARK
from seqpack_cli.tokens.imports.unread_fields import TableFields, check_masks, check_overlap
from seqpack_cli.tokens.options import ROLES, ImportOptions

LISTS = "lists of integers"


def check_table(source: Source, names: Mapping[str, str], options: ImportOptions) -> TableFields:
    """Return the columns of a table.

    Args:
        names: of the fields that may be there, by what they are.

    Raises:
        DataError: a column is missing, or of another type.
    """
    schema = read_schema(source)
    name = options.ids_field
    kind = find_needed(schema, name, IDS_FIELD, ROLES, source)
    if not is_number_list(kind):
        raise _type_error(source, name, kind, LISTS, TOKENIZE if is_text(kind) else None)
    if options.document_field is not None:
        kind = find_needed(schema, options.document_field, DOCUMENT_FIELD, (), source)
        if not is_integer(kind):
            raise _type_error(source, options.document_field, kind, "integers", None)
    for option in check_keep(options.keep):
        check_kept(schema, option.name, source)
    _check_packed(schema, source, options)
    is_exported = MARK in (schema.metadata or {})
    if is_exported:
        check_overlap(source, schema.names, options)
    roles = {role for role, name in names.items() if _has_list(schema, role, name, source, options)}
    lists = [field.name for field in schema if is_list(field.type)]
    check_masks(f"{source.path}: column", lists, roles, options)
    return TableFields(roles, schema.names, is_exported)


def _has_list(schema: Any, role: str, name: str, source: Source, options: ImportOptions) -> bool:
    """Return whether there is a column of lists; raise DataError if it has other values."""
    is_named = find_named(options, role) is not None
    if is_named:
        kind = find_needed(schema, name, spell_option(role), (), source)
    else:
        kind = find_type(schema, name, source)
    if kind is None or (is_null(kind) and not is_named):
        return False
    if not is_number_list(kind, takes_booleans=role in MASKS):
        hint = hint_value(name) if name == role and not is_list(kind) else None
        raise _type_error(source, name, kind, LISTS, hint)
    return True


def _check_packed(schema: Any, source: Source, options: ImportOptions) -> None:
    """Raise DataError if rows have several sequences, whose borders would be lost."""
    for name in list_packed(options):
        kind = find_type(schema, name, source)
        if kind is not None and is_list(kind):
            what = f"column {quote(name)}: a row has several sequences, expected one"
            raise DataError(f"{source.path}: {what}", hint_packed(name))


def _type_error(source: Source, name: str, kind: Any, expected: str, hint: str | None) -> DataError:
    return DataError(f"{source.path}: column {quote(name)} is {kind}, expected {expected}", hint)
