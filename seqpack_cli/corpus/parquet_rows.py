"""Read the rows of a Parquet file as documents, with pyarrow, one row group after another.

Only the text column is decoded, about 1 MiB of it at a time. The bytes of each row group are read a
second time for `on_read`, since pyarrow reads the file itself. Files are cut between row groups.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from seqpack_cli.corpus.blocks import OnRead, iter_raw_blocks
from seqpack_cli.corpus.decompression import BombError, check_ratio
from seqpack_cli.corpus.document_block import (
    BadEncodingError,
    BadRecordError,
    DocumentBlock,
    DocumentOptions,
    Texts,
    decode,
    missing_field_error,
    oversized_error,
)
from seqpack_cli.corpus.kept_fields import Readers
from seqpack_cli.corpus.parquet_pages import bound_length, find_first_page
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, MachineError, quote

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
    source_range: SourceRange, options: DocumentOptions, on_read: OnRead, readers: Readers = ()
) -> Iterator[DocumentBlock]:
    """Read the documents of the row groups that begin in a range; a null is a bad record."""
    source = source_range.source
    file = _open(source)
    column = _find_column(file, source, options)
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
        for values in _iter_columns(file, groups, column, source):
            block = _read_block(values, source, options, num_before, num_records)
            num_bytes += block.num_bytes
            _check_ratio(source, num_before + num_records, num_bytes)
            yield block
            num_records += len(block.texts)


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


def _read_block(
    values: Any, source: Source, options: DocumentOptions, num_before: int, num_records: int
) -> DocumentBlock:
    def find_place(index: int) -> str:
        return f"{source.path}:{num_before + num_records + index + 1}"

    import pyarrow.compute as pc

    sizes = pc.binary_length(values)
    limit = options.max_document_bytes
    if (pc.max(sizes).as_py() or 0) > limit:
        index = next(index for index, size in enumerate(sizes.to_pylist()) if (size or 0) > limit)
        raise oversized_error(find_place(index), limit)
    found = Texts(options, num_records)
    for index, value in enumerate(_decode_values(values)):
        try:
            found.texts.append(_read_text(value, options))
        except BadRecordError as error:
            found.reject(error, None, functools.partial(find_place, index))
    num_bytes = pc.sum(sizes).as_py() or 0
    return DocumentBlock(source, found.texts, found.rejects, num_bytes, find_place, [])


def _decode_values(values: Any) -> list[str | bytes | None]:
    """Return the values as strings, or all as bytes if one of them is not UTF-8."""
    import pyarrow as pa

    try:
        found: list[str | bytes | None] = values.to_pylist()
    except UnicodeDecodeError:
        found = values.cast(pa.large_binary()).to_pylist()
    return found


def _read_text(value: str | bytes | None, options: DocumentOptions) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise BadRecordError(f"field {quote(options.text_field)} is null, expected a string")
    try:
        return decode(value, options.encoding_errors)
    except BadEncodingError as error:
        raise BadEncodingError(value[error.byte], 0) from error


def _iter_columns(file: Any, groups: list[int], column: str, source: Source) -> Iterator[Any]:
    """Yield the text column of row groups in pieces of about 1 MiB."""
    import pyarrow as pa

    metadata = [file.metadata.row_group(group) for group in groups]
    num_rows = sum(group.num_rows for group in metadata)
    num_found = 0
    try:
        num_bytes = sum(_count_bytes(group, column) for group in metadata)
        rows = min(MAX_BATCH_ROWS, max(1, num_rows * BATCH_BYTES // max(1, num_bytes)))
        longest = max((bound_length(group, column, source) for group in metadata), default=0)
        rows = min(rows, max(1, MAX_BATCH_MEMORY // max(1, longest)))
        for batch in file.iter_batches(
            batch_size=rows, row_groups=groups, columns=[column], use_threads=False
        ):
            values = functools.reduce(_look_up, _path_to(column, batch.schema.names), batch)
            num_found += len(values)
            if len(values):
                yield values.cast(pa.large_string(), safe=False)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source.path}: damaged ({_first_line(error)})") from error
    if num_found != num_rows:  # pyarrow stops without an error at some damaged pages
        raise DataError(f"{source.path}: damaged ({num_found:,} rows, expected {num_rows:,})")


def _look_up(values: Any, name: str) -> Any:
    import pyarrow.compute as pc

    return values.column(name) if hasattr(values, "schema") else pc.struct_field(values, [name])


def _path_to(column: str, names: list[str]) -> list[str]:
    return [column] if column in names else column.split(".")


def _count_bytes(group: Any, column: str) -> int:
    return sum(
        chunk.total_uncompressed_size
        for chunk in (group.column(index) for index in range(group.num_columns))
        if chunk.path_in_schema == column
    )


def _find_start(group: Any) -> int:
    chunks = (group.column(index) for index in range(group.num_columns))
    return min(map(find_first_page, chunks), default=0)


def _find_column(file: Any, source: Source, options: DocumentOptions) -> str:
    """Check that the text field is a column of strings, and return its path."""
    import pyarrow as pa

    schema = file.schema_arrow
    wanted = options.text_field
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
    if not _is_text(kind):
        raise DataError(f"{source.path}: column {quote(wanted)} is {kind}, expected strings")
    return wanted


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


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
