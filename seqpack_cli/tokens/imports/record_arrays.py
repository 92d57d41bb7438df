"""Read ids, and what stands beside them, from columns of Arrow arrays, of which none is copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from seqpack_cli.corpus.fields import BadRecordError
from seqpack_cli.corpus.records import read_lists
from seqpack_cli.corpus.table_records import iter_table_arrays, read_scalar, to_python
from seqpack_cli.errors import quote
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.imports.number_lists import flatten_array
from seqpack_cli.tokens.imports.record_batch import IDS, UNKNOWN, RecordBatch
from seqpack_cli.tokens.imports.record_cuts import find_span
from seqpack_cli.tokens.imports.record_documents import iter_blocks

LARGEST = 2**63 - 1


def iter_array_blocks(opened: RangeInput, setup: ImportSetup) -> Iterator[IdBlock]:
    """Read the documents of the rows of a range.

    Raises:
        DataError: a row cannot be read and is not to be skipped, or the file is damaged.
    """
    field = setup.options.document_field
    span = None if field is None else find_span(opened.range, field)
    return iter_blocks(_iter_batches(opened, setup), setup, span)


def _iter_batches(opened: RangeInput, setup: ImportSetup) -> Iterator[RecordBatch]:
    source, names = opened.range.source, setup.list_names()
    for num_before, arrays in iter_table_arrays(opened.range, lambda _: names, opened.on_read):
        yield _read_arrays(arrays, setup, f"{source.path}:", num_before)


def _read_arrays(arrays: list[Any], setup: ImportSetup, path: str, num_before: int) -> RecordBatch:
    bad: dict[int, BadRecordError] = {}
    lists = {}
    roles = {IDS: setup.options.ids_field, **setup.fields.names}
    for (role, name), array in zip(roles.items(), arrays, strict=False):
        lists[role], found = flatten_array(name, array)
        bad = found | bad
    numbers, rest = None, arrays[len(roles) :]
    if setup.options.document_field is not None:
        numbers, found = _read_numbers(setup.options.document_field, rest.pop(0))
        bad |= found
    return RecordBatch(
        lists,
        _read_fields(rest, setup, bad),
        numbers,
        bad,
        lambda row: f"{path}{num_before + row + 1}",
        lambda _: None,
    )


def _read_numbers(name: str, array: Any) -> tuple[np.ndarray, dict[int, BadRecordError]]:
    """Return the number of the document of each row, int64, and the error about wrong ones."""
    found = array.fill_null(0).to_numpy(zero_copy_only=False)
    is_wrong = array.is_null().to_numpy(zero_copy_only=False) | (found < 0) | (found > LARGEST)
    bad = {}
    for row in np.flatnonzero(is_wrong).tolist():
        value = array[row].as_py()
        shown = "null" if value is None else value
        reason = f"field {quote(name)} is {shown}, expected a whole number"
        bad[row] = BadRecordError(reason)
    return np.where(is_wrong, UNKNOWN, found.astype(np.int64)), bad


def _read_fields(
    arrays: list[Any], setup: ImportSetup, bad: dict[int, BadRecordError]
) -> list[list[Any]]:
    """Return the values of each kept field, and note rows with a bad one."""
    fields = []
    for each, array in zip(setup.list_fields(), arrays, strict=True):
        reader = each.make_reader()
        try:
            fields += read_lists([to_python(array)], [reader])
        except (UnicodeDecodeError, BadRecordError):
            fields.append([])
            for row, scalar in enumerate(array):
                fields[-1].append(None)
                try:
                    fields[-1][row] = reader.read([read_scalar(scalar, "error")])[0]
                except BadRecordError as error:
                    bad.setdefault(row, error)
    return fields
