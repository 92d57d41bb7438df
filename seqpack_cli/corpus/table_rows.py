"""Read the rows of a table, a Parquet or an Arrow file, as documents.

A format yields pieces of about 1 MiB: a pyarrow array for each column that is wanted. What is made
of them is the same for all formats.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from seqpack_cli.corpus.arrow_rows import iter_arrow_arrays, read_arrow_schema
from seqpack_cli.corpus.blocks import OnRead
from seqpack_cli.corpus.decompression import BombError, check_ratio
from seqpack_cli.corpus.document_block import BadRecordError, DocumentBlock, Texts, oversized_error
from seqpack_cli.corpus.kept_fields import Readers, read_values
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.parquet_columns import find_columns
from seqpack_cli.corpus.parquet_rows import ChooseColumns, iter_parquet_arrays, read_parquet_schema
from seqpack_cli.corpus.parquet_values import count_bytes, read_scalar, to_json, to_python
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.text_reader import TextReader
from seqpack_cli.errors import DataError

FORMATS = {"parquet": iter_parquet_arrays, "arrow": iter_arrow_arrays}
SCHEMAS = {"parquet": read_parquet_schema, "arrow": read_arrow_schema}


def read_schema(source: Source) -> Any:
    """Return the schema of a table, with its metadata.

    Raises:
        DataError: the file is damaged, or another format.
        MachineError: pyarrow is not installed.
    """
    return SCHEMAS[source.format](source)


def iter_table_arrays(
    source_range: SourceRange, choose: ChooseColumns, on_read: OnRead | None
) -> Iterator[tuple[int, list[Any]]]:
    """Read columns of the rows of a range, piece by piece, none of them empty.

    Args:
        choose: returns the names of the columns, from the schema of the file; at least one.
        on_read: called with the bytes of the file as they are read; None if nobody needs them.

    Returns:
        For each piece, the number of rows of the file before it, and the array of each column.

    Raises:
        DataError: the file is damaged, or another format.
        MachineError: pyarrow is not installed.
    """
    return FORMATS[source_range.source.format](source_range, choose, on_read)


def iter_table_documents(
    source_range: SourceRange,
    options: DocumentOptions,
    on_read: OnRead,
    readers: Readers,
    text: TextReader,
) -> Iterator[DocumentBlock]:
    """Read the documents of a range, piece by piece; a null is a bad record."""
    source = source_range.source
    choose = functools.partial(find_columns, source=source, text=text, readers=readers)
    num_records = num_bytes = 0
    for num_before, arrays in iter_table_arrays(source_range, choose, on_read):
        find_place = functools.partial(find_row, source, num_before)
        num_lists = text.num_values + len(readers)
        found = Texts(options, num_records, fields=[[] for _ in range(num_lists)])
        num_text_bytes = _read_arrays(arrays, found, text, readers, find_place)
        _, kept = _divide(arrays, text)
        num_bytes += num_text_bytes + sum(array.nbytes for array in kept)
        check_row_ratio(source, num_before, num_bytes)
        yield DocumentBlock(
            source, found.texts, found.rejects, num_text_bytes, find_place, found.fields
        )
        num_records += len(found.texts)


def find_row(source: Source, num_before: int, index: int) -> str:
    """Return the place of a row, by how many come before its piece."""
    return f"{source.path}:{num_before + index + 1}"


def check_row_ratio(source: Source, num_rows: int, num_bytes: int) -> None:
    """Raise DataError if the rows of a file are far larger than the file."""
    try:
        check_ratio(source.num_bytes, num_bytes)
    except BombError as error:
        hint = "if this is intended, write its text to another file"
        raise DataError(f"{source.path}:{num_rows + 1}: {error}", hint=hint) from error


def _read_arrays(
    arrays: list[Any],
    found: Texts,
    text: TextReader,
    readers: Readers,
    find_place: Callable[[int], str],
) -> int:
    """Read a batch of rows; return the bytes of its texts."""
    sizes = np.sum([count_bytes(array) for array in _divide(arrays, text)[0]], axis=0)
    limit = found.options.max_document_bytes
    if (sizes > limit).any():
        raise oversized_error(find_place(int((sizes > limit).argmax())), limit)
    try:
        of_text, kept = _divide([to_python(array) for array in arrays], text)
        if not text.takes_strings:
            of_text = [
                [to_json(value, array.type) for value in values]
                for values, array in zip(of_text, arrays, strict=False)
            ]
        found.texts, beside = text.read_all(of_text)
        found.fields = beside + [
            read_values(reader, values, of_text[0])
            for reader, values in zip(readers, kept, strict=True)
        ]
    except (UnicodeDecodeError, TypeError, ValueError, BadRecordError):
        found.texts = []
        found.fields = [[] for _ in range(text.num_values + len(readers))]
        _read_each(arrays, found, text, readers, find_place)
    return int(sizes.sum())


def _divide(columns: list[Any], text: TextReader) -> tuple[list[Any], list[Any]]:
    """Divide what was read into the fields of the text and the kept ones.

    Args:
        columns: the fields that the text needs, those that it may have, and the kept ones.
    """
    num_text = len(text.names) + len(text.optional)
    return columns[:num_text], columns[num_text:]


def _read_each(
    arrays: list[Any],
    found: Texts,
    text: TextReader,
    readers: Readers,
    find_place: Callable[[int], str],
) -> None:
    """Read a batch row by row."""
    policy = found.options.encoding_errors
    for index, row in enumerate(zip(*arrays, strict=True)):
        try:
            of_text, kept = _divide([read_scalar(scalar, policy) for scalar in row], text)
            if not text.takes_strings:
                of_text = [
                    to_json(value, scalar.type) for value, scalar in zip(of_text, row, strict=False)
                ]
            made, beside = text.read(of_text)
            fields = [
                reader.read(value, of_text[0]) for reader, value in zip(readers, kept, strict=True)
            ]
            found.add(made, [*beside, *fields])
        except BadRecordError as error:
            found.reject(error, None, functools.partial(find_place, index))
