"""Read columns of a Parquet file, with pyarrow, one row group after another.

Only the columns that are wanted are decoded, about 1 MiB at a time. The bytes of each row group are
read a second time for `on_read`, since pyarrow reads the file itself. Files are cut between row
groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from seqpack_cli.corpus.blocks import OnRead, iter_raw_blocks
from seqpack_cli.corpus.parquet_columns import look_up
from seqpack_cli.corpus.parquet_pages import bound_length, find_chunks, find_first_page
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, MachineError
from seqpack_cli.files.places import is_url
from seqpack_cli.limits import LIMITS

Columns = Sequence[str | None]  # names; None is a column of nulls
ChooseColumns = Callable[[Any], Columns]  # from the schema of a file

VALUE_BYTES = 4  # of a number in a list, at least: a file stores repeated ones once


def find_row_groups(source: Source) -> list[int]:
    """Return the byte at which each row group begins, the first at 0, and the file's size last."""
    metadata = _open(source).metadata
    starts = [_find_start(metadata.row_group(group)) for group in range(metadata.num_row_groups)]
    if starts != sorted(set(starts)):
        starts = starts[:1]  # not in the order of the file: read them as one
    return [0, *starts[1:], source.num_bytes]


def read_parquet_schema(source: Source) -> Any:
    """Return the schema of a file, as Arrow's, with its metadata."""
    return _open(source).schema_arrow


def iter_parquet_arrays(
    source_range: SourceRange, choose: ChooseColumns, on_read: OnRead | None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield columns of the row groups that begin in a range: see `iter_table_arrays`."""
    source = source_range.source
    file = _open(source)
    columns = choose(file.schema_arrow)
    offsets = find_row_groups(source)
    inside = [
        group
        for group, start in enumerate(offsets[:-1])
        if source_range.start <= start < source_range.end
    ]
    num_rows = _count_rows(file, offsets, inside[0]) if inside else 0
    for group in inside:
        start, end = offsets[group], offsets[group + 1]
        if on_read is not None:
            for _ in iter_raw_blocks(source_range._replace(start=start, end=end), on_read):
                pass
        groups = [group] if len(offsets) > 2 else list(range(file.num_row_groups))
        for arrays in _iter_arrays(file, groups, columns, source):
            yield num_rows, arrays
            num_rows += len(arrays[0])


def _count_rows(file: Any, offsets: list[int], first_group: int) -> int:
    if len(offsets) == 2:
        return 0
    return sum(file.metadata.row_group(group).num_rows for group in range(first_group))


def _iter_arrays(
    file: Any, groups: list[int], columns: Columns, source: Source
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
        raise DataError(f"{source.path}: damaged ({first_line(error)})") from error
    if num_found != num_rows:  # pyarrow stops without an error at some damaged pages
        raise DataError(f"{source.path}: damaged ({num_found:,} rows, expected {num_rows:,})")


def _choose_rows(metadata: list[Any], columns: list[str], source: Source, num_rows: int) -> int:
    num_bytes = longest = 0
    for column in columns:
        chunks = [chunk for group in metadata for chunk in find_chunks(group, column)]
        num_bytes += sum(
            max(chunk.total_uncompressed_size, VALUE_BYTES * chunk.num_values) for chunk in chunks
        )
        longest += max((bound_length(group, column, source) for group in metadata), default=0)
    return choose_rows(num_rows, num_bytes, longest)


def choose_rows(num_rows: int, num_bytes: int, longest: int) -> int:
    """Return how many rows are decoded at once.

    Args:
        num_rows, num_bytes: of a table.
        longest: the most bytes of a value that several rows may share.
    """
    rows = min(LIMITS.rows_per_batch, max(1, num_rows * LIMITS.batch_bytes // max(1, num_bytes)))
    return min(rows, max(1, LIMITS.batch_memory // max(1, longest)))


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
            # pyarrow opens a path itself, and reads it faster
            source.input.open(source.num_bytes) if is_url(source.location) else source.location,
            buffer_size=LIMITS.read_bytes,
            pre_buffer=False,
            page_checksum_verification=True,  # if the file has checksums
        )
        for index in range(file.metadata.num_columns):
            _ = file.schema.column(index).path  # names that are not UTF-8 fail here, not later
        return file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source.path}: not Parquet, or damaged ({first_line(error)})") from error


def first_line(error: Exception) -> str:
    """Return what an error says, on one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
