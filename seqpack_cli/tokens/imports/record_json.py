"""Read ids, and what stands beside them, from JSON records.

A block is parsed by orjson, and its lists become flat arrays. If that fails, each record is read on
its own, by the standard library where something is wrong, which says what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seqpack_cli.corpus.fields import (
    DOCUMENT_FIELD,
    KEEP,
    BadRecordError,
    Field,
    decode,
    missing_field_error,
)
from seqpack_cli.corpus.json_records import (
    ARRAY_HINT,
    check_object,
    find_field,
    find_optional,
    iter_raw_json,
    parse_json,
    read_columns,
)
from seqpack_cli.corpus.records import read_lists
from seqpack_cli.corpus.sources import Source
from seqpack_cli.corpus.streams import MARK, RawBlock
from seqpack_cli.errors import DataError, quote
from seqpack_cli.tokens.columns.kind import wrong_value_error
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.import_setup import (
    MASKS,
    ROLES,
    ImportSetup,
    hint_unread,
    hint_value,
)
from seqpack_cli.tokens.imports.number_lists import LARGEST, check_list
from seqpack_cli.tokens.imports.record_batch import IDS, UNKNOWN, RecordBatch
from seqpack_cli.tokens.imports.record_cuts import is_document_number, parse_number
from seqpack_cli.tokens.imports.record_documents import iter_blocks
from seqpack_cli.tokens.imports.record_wanted import Wanted

NOT_SIMPLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


class NotJsonError(BadRecordError):
    """A record is not JSON."""


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
    for block in iter_raw_json(opened.range, limit, opened.on_read):
        if block.records and block.find_start(0) == 0:
            block.records[0] = block.records[0].removeprefix(MARK)
        places: Sequence[int] = range(len(block.records))
        if wanted.number is not None and not block.is_array:  # a blank line is of no document
            places = [place for place in places if block.records[place].strip()]
        yield _read_block(block, places, wanted, opened.range.source)


def _read_block(
    block: RawBlock, places: Sequence[int], wanted: Wanted, source: Source
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
        return block.find_place(source, places[record])

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
    optional = [*wanted.unexpected, *wanted.refused]
    fields = [Field(name, KEEP) for name in wanted.names]
    fields += [Field(name, KEEP, is_optional=True) for name in optional]
    columns = read_columns(records, fields)
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
        try:
            (columns[first],) = read_lists([values], [reader])
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
    try:
        parsed = parse_json(line.removeprefix("\ufeff"))
    except BadRecordError as error:
        raise NotJsonError(error.reason, error.hint) from error
    value = check_object(parsed, wanted.lists[IDS])
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
        row.append(_check_number(wanted.number, _find_needed(value, wanted.number, DOCUMENT_FIELD)))
    for reader in wanted.readers:
        (field,) = reader.fields
        row += reader.read([_find_needed(value, field.name, KEEP)])
    return row


def _read_list(role: str, name: str, record: dict[str, Any], option: str | None) -> list[int]:
    """Return the list of numbers in a field.

    Args:
        option: that names the field; None if it has the name that such fields have.
    """
    if option is not None:
        value = _find_needed(record, name, option, ROLES)
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


def _find_needed(record: dict[str, Any], name: str, option: str, taken: Sequence[str] = ()) -> Any:
    """Return a field of a record; raises BadRecordError if there is none."""
    try:
        return find_field(record, name)
    except (KeyError, TypeError) as error:
        raise missing_field_error("field", option, name, record, taken=taken) from error


def _check_number(name: str, value: Any) -> int:
    if not is_document_number(value):
        raise wrong_value_error(name, value, "a whole number")
    return int(value)
