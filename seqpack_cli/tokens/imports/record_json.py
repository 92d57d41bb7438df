"""Read ids, and what stands beside them, from JSON records.

A block is parsed by orjson, and its lists become flat arrays. If that fails, each record is read on
its own, by the standard library where something is wrong, which says what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seqpack_cli.corpus.document_block import (
    BadRecordError,
    NotJsonError,
    check_unicode,
    decode,
)
from seqpack_cli.corpus.documents import ARRAY_HINT, find_record, iter_record_blocks
from seqpack_cli.corpus.json_fields import find_needed, find_optional, may_differ, read_columns
from seqpack_cli.corpus.json_lines import find_parser, list_keys, parse_object
from seqpack_cli.corpus.kept_fields import read_values
from seqpack_cli.corpus.missing_fields import DOCUMENT_FIELD, KEEP
from seqpack_cli.corpus.number_lists import LARGEST, check_list
from seqpack_cli.corpus.records import MARK, RecordBlock
from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import DataError, quote
from seqpack_cli.tokens.columns.kind import wrong_value_error
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.import_setup import (
    MASKS,
    ImportSetup,
    hint_unread,
    hint_value,
)
from seqpack_cli.tokens.imports.record_batch import IDS, UNKNOWN, RecordBatch
from seqpack_cli.tokens.imports.record_cuts import is_document_number, parse_number
from seqpack_cli.tokens.imports.record_documents import iter_blocks
from seqpack_cli.tokens.imports.record_wanted import Wanted
from seqpack_cli.tokens.options import ROLES

NOT_SIMPLE = (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError)

Columns = list[list[Any]]  # the values of each field, in the order of `Wanted.names`


def iter_json_blocks(opened: RangeInput, setup: ImportSetup) -> Iterator[IdBlock]:
    """Read the documents of a range of records.

    Raises:
        DataError: a record cannot be read and is not to be skipped.
    """
    return iter_blocks(_iter_batches(opened, setup), setup)


def _iter_batches(opened: RangeInput, setup: ImportSetup) -> Iterator[RecordBatch]:
    wanted = Wanted.of(setup)
    limit = setup.options.max_document_bytes
    for block in iter_record_blocks(opened.range, max_document_bytes=limit, on_read=opened.on_read):
        if block.records and block.find_start(0) == 0:
            block.records[0] = block.records[0].removeprefix(MARK)
        places: Sequence[int] = range(len(block.records))
        if wanted.number is not None and not block.is_array:  # a blank line is of no document
            places = [place for place in places if block.records[place].strip()]
        yield _read_block(block, places, wanted, opened.range.source)


def _read_block(
    block: RecordBlock, places: Sequence[int], wanted: Wanted, source: Source
) -> RecordBatch:
    """Read the records of a block.

    Args:
        places: of the records to read.
    """
    records = [block.records[place] for place in places]
    bad: dict[int, BadRecordError] = {}
    num_lists, num_fields = len(wanted.lists), len(wanted.readers)

    def find_byte(record: int) -> int:
        return block.find_start(places[record])

    def find_place(record: int) -> str:
        return find_record(source, block, places[record], find_byte(record))

    try:
        columns = _read_all(records, wanted)
        lists = wanted.join(columns)
    except NOT_SIMPLE:
        columns, bad = _read_each(records, wanted, is_array=block.is_array)
        lists = wanted.join(columns)
    for record, error in bad.items():
        if block.is_array and isinstance(error, NotJsonError):  # whatever the options say
            raise DataError(f"{find_place(record)}: {error.reason}", ARRAY_HINT)

    return RecordBatch(
        lists,
        columns[len(columns) - num_fields :],
        None if wanted.number is None else np.array(columns[num_lists], np.int64),
        bad,
        find_place,
        find_byte,
    )


def _read_all(records: list[bytes], wanted: Wanted) -> Columns:
    """Read simple records at once; raise one of NOT_SIMPLE if any must be read on its own."""
    columns = read_columns(records, wanted.names, [*wanted.unexpected, *wanted.refused])
    columns, others = columns[: len(wanted.names)], columns[len(wanted.names) :]
    if any(values.count(None) < len(values) for values in others):
        raise ValueError("a field that is not expected")
    if wanted.number is not None:
        numbers = columns[len(wanted.lists)]
        is_whole = set(map(type, numbers)) <= {int}
        if not is_whole or not 0 <= min(numbers, default=0) <= max(numbers, default=0) <= LARGEST:
            raise ValueError("a number that is not whole")
    first = len(columns) - len(wanted.readers)
    for reader, values in zip(wanted.readers, columns[first:], strict=True):
        if may_differ(values):
            raise ValueError("a large number")
        try:
            if find_parser().may_return_surrogates:
                check_unicode(reader.name, values)
            columns[first] = read_values(reader, values, records)
        except BadRecordError as error:
            raise ValueError("a bad value") from error
        first += 1
    return columns


def _read_each(
    records: list[bytes], wanted: Wanted, *, is_array: bool
) -> tuple[Columns, dict[int, BadRecordError]]:
    """Read records one by one; the lists of a bad record, or a blank line, are empty."""
    rows, bad = [], {}
    unknown = [] if wanted.number is None else [UNKNOWN]
    nothing: list[Any] = [*([] for _ in wanted.lists), *unknown, *(None for _ in wanted.readers)]
    for place, record in enumerate(records):
        try:
            columns = _read_all([record], wanted)
            wanted.join(columns)
            rows.append([values[0] for values in columns])
        except NOT_SIMPLE:
            rows.append(list(nothing))
            try:
                if is_array:
                    rows[-1] = _read_record(record.strip(), wanted)
                elif record.strip():
                    rows[-1] = _read_record(record, wanted)
            except BadRecordError as error:
                bad[place] = error
                if wanted.number is not None:
                    number = parse_number(record, wanted.number)
                    rows[-1][len(wanted.lists)] = UNKNOWN if number is None else number
    return [list(values) for values in zip(*rows, strict=True)], bad


def _read_record(record: bytes, wanted: Wanted) -> list[Any]:
    """Return the fields of a record.

    Raises:
        BadRecordError: it is not JSON, or a field is missing, unexpected or of another type.
    """
    if not record:
        raise NotJsonError("nothing between commas, expected an object")
    try:
        line = decode(record, "error")
    except BadRecordError as error:
        raise BadRecordError(error.reason) from error
    names = (*wanted.names, *wanted.unexpected, *wanted.refused)
    keys = {key for name in names for key in list_keys(name)}
    value = parse_object(line, keys, wanted.lists[IDS])
    row: list[Any] = []
    for role, name in wanted.lists.items():
        row.append(_read_list(role, name, value, wanted.options.get(role)))
    for name in wanted.unexpected:
        if find_optional(value, name) is not None:
            raise BadRecordError(
                f"field {quote(name)}, which the first records do not have",
                f"pass --ignore-field {name} to leave it unread in all records",
            )
    for name, (reason, hint) in wanted.refused.items():
        if isinstance(find_optional(value, name), list):
            raise BadRecordError(f"field {reason}", hint)
    if wanted.number is not None:
        row.append(_check_number(wanted.number, find_needed(value, wanted.number, DOCUMENT_FIELD)))
    for reader in wanted.readers:
        found = find_needed(value, reader.name, KEEP)
        check_unicode(reader.name, found)
        row.append(reader.read(found, line))
    return row


def _read_list(role: str, name: str, record: dict[str, Any], option: str | None) -> list[int]:
    """Return the list of numbers in a field.

    Args:
        option: that names the field; None if it has the name that such fields have.
    """
    if option is not None:
        value = find_needed(record, name, option, ROLES)
    elif (value := find_optional(record, name)) is None:
        expected = "expected a list of integers, as other records have"
        reason = f"field {quote(name)} is missing or null, {expected}"
        raise BadRecordError(reason, hint_unread(role, name))
    try:
        check_list(name, value, takes_booleans=role in MASKS)
    except BadRecordError as error:
        is_class = role == name and type(value) is not list
        hint = hint_value(name) if is_class else error.hint
        raise BadRecordError(error.reason, hint) from error
    return list(value)


def _check_number(name: str, value: Any) -> int:
    if not is_document_number(value):
        raise wrong_value_error(name, value, "a whole number")
    return int(value)
