"""Read the rows of a Parquet file as documents, with pyarrow, one row group after another.

Only the text and the kept fields are decoded, about 1 MiB at a time. The bytes of each row group
are read a second time for `on_read`, since pyarrow reads the file itself. Files are cut between row
groups.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from seqpack_cli.corpus.blocks import OnRead, iter_raw_blocks
from seqpack_cli.corpus.decompression import BombError, check_ratio
from seqpack_cli.corpus.document_block import (
    BadRecordError,
    DocumentBlock,
    DocumentOptions,
    Texts,
    oversized_error,
)
from seqpack_cli.corpus.kept_fields import Readers, read_values
from seqpack_cli.corpus.parquet_columns import find_columns, look_up
from seqpack_cli.corpus.parquet_pages import bound_length, find_chunks, find_first_page
from seqpack_cli.corpus.parquet_values import count_bytes, read_scalar, to_json, to_python
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.text_reader import TextReader
from seqpack_cli.errors import DataError, MachineError

BATCH_BYTES = 1 << 20
MAX_BATCH_ROWS = 1 << 14
MAX_BATCH_MEMORY = 64 << 20  # of rows that repeat a long value, which a file stores once
BUFFER_BYTES = 1 << 20


def find_row_groups(source: Source) -> list[int]:
    """Return the byte at which each row group begins, the first at 0, and the file's size last."""
    metadata = _open(source).metadata
    starts = [_find_start(metadata.row_group(group)) for group in range(metadata.num_row_groups)]
    if starts != sorted(set(starts)):
        starts = starts[:1]  # not in the order of the file: read them as one
    return [0, *starts[1:], source.num_bytes]


def iter_parquet_documents(
    source_range: SourceRange,
    options: DocumentOptions,
    on_read: OnRead,
    readers: Readers,
    text: TextReader,
) -> Iterator[DocumentBlock]:
    """Read the documents of the row groups that begin in a range; a null is a bad record."""
    source = source_range.source
    file = _open(source)
    columns = find_columns(file, source, text, readers)
    offsets = find_row_groups(source)
    inside = [
        group
        for group, start in enumerate(offsets[:-1])
        if source_range.start <= start < source_range.end
    ]
    num_before = _count_rows(file, offsets, inside[0]) if inside else 0
    num_records = num_bytes = 0
    for group in inside:
        start, end = offsets[group], offsets[group + 1]
        for _ in iter_raw_blocks(source_range._replace(start=start, end=end), on_read):
            pass
        groups = [group] if len(offsets) > 2 else list(range(file.num_row_groups))
        for arrays in _iter_arrays(file, groups, columns, source):
            find_place = functools.partial(_find_place, source, num_before + num_records)
            num_lists = text.num_values + len(readers)
            found = Texts(options, num_records, fields=[[] for _ in range(num_lists)])
            num_text_bytes = _read_arrays(arrays, found, text, readers, find_place)
            _, kept = _divide(arrays, text)
            num_bytes += num_text_bytes + sum(array.nbytes for array in kept)
            _check_ratio(source, num_before + num_records, num_bytes)
            yield DocumentBlock(
                source, found.texts, found.rejects, num_text_bytes, find_place, found.fields
            )
            num_records += len(found.texts)


def _find_place(source: Source, num_before: int, index: int) -> str:
    return f"{source.path}:{num_before + index + 1}"


def _check_ratio(source: Source, num_rows: int, num_bytes: int) -> None:
    try:
        check_ratio(source.num_bytes, num_bytes)
    except BombError as error:
        hint = "if this is intended, write its text to another file"
        raise DataError(f"{source.path}:{num_rows + 1}: {error}", hint=hint) from error


def _count_rows(file: Any, offsets: list[int], first_group: int) -> int:
    if len(offsets) == 2:
        return 0
    return sum(file.metadata.row_group(group).num_rows for group in range(first_group))


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


def _iter_arrays(
    file: Any, groups: list[int], columns: list[str | None], source: Source
) -> Iterator[list[Any]]:
    """Yield the columns of row groups in pieces of about 1 MiB; one that is missing is null."""
    import pyarrow as pa

    metadata = [file.metadata.row_group(group) for group in groups]
    num_rows = sum(group.num_rows for group in metadata)
    num_found = 0
    names = [column for column in columns if column is not None]
    try:
        rows = _choose_rows(metadata, names, source, num_rows)
        for batch in file.iter_batches(
            batch_size=rows, row_groups=groups, columns=names, use_threads=False
        ):
            num_found += len(batch)
            if len(batch):
                nulls = pa.nulls(len(batch))
                yield [nulls if it is None else look_up(batch, it) for it in columns]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source.path}: damaged ({_first_line(error)})") from error
    if num_found != num_rows:  # pyarrow stops without an error at some damaged pages
        raise DataError(f"{source.path}: damaged ({num_found:,} rows, expected {num_rows:,})")


def _choose_rows(metadata: list[Any], columns: list[str], source: Source, num_rows: int) -> int:
    """Return how many rows are decoded at once."""
    num_bytes = longest = 0
    for column in columns:
        chunks = [chunk for group in metadata for chunk in find_chunks(group, column)]
        num_bytes += sum(chunk.total_uncompressed_size for chunk in chunks)
        longest += max((bound_length(group, column, source) for group in metadata), default=0)
    rows = min(MAX_BATCH_ROWS, max(1, num_rows * BATCH_BYTES // max(1, num_bytes)))
    return min(rows, max(1, MAX_BATCH_MEMORY // max(1, longest)))


def _find_start(group: Any) -> int:
    chunks = (group.column(index) for index in range(group.num_columns))
    return min(map(find_first_page, chunks), default=0)


def _open(source: Source) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MachineError(
            f"{source.path}: pyarrow is not installed, .parquet files need it",
            hint="pip install pyarrow",
        ) from error
    try:
        file = pq.ParquetFile(
            source.input.open_natively(source.num_bytes),
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,  # if the file has checksums
        )
        for index in range(file.metadata.num_columns):
            _ = file.schema.column(index).path  # names that are not UTF-8 fail here, not later
        return file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source.path}: not Parquet, or damaged ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
