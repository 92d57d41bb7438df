"""Read the rows of tables: Parquet and Arrow with pyarrow, CSV with Python's csv module.

Parquet and Arrow yield pieces of about 1 MiB: an array for each column that is wanted. Parquet is
read one row group after another, whose bytes are read a second time for `on_read`, since pyarrow
reads the file itself. A quoted field of CSV may contain line ends, so one worker reads the whole
file; a row with more or fewer fields than the first is an error.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.corpus.fields import (
    IDS_FIELD,
    KEEP,
    WORDS_HINT,
    BadEncodingError,
    BadRecordError,
    Field,
    Reader,
    decode,
    hint_about,
    missing_field_error,
    oversized_error,
)
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import MARK, OnRead, iter_blocks, iter_raw_blocks, split_lines
from seqpack_cli.errors import DataError, MachineError, quote
from seqpack_cli.files.places import is_url
from seqpack_cli.limits import LIMITS

Columns = Sequence[str | None]  # names; None is a column of nulls
ChooseColumns = Callable[[Any], Columns]  # from the schema of a file

FILE_MAGIC = b"ARROW1"
STREAM_MAGIC = b"\xff\xff\xff\xff"
MAGIC_BYTES = 8  # with padding
COPY_HINT = "download or copy the file again"
NUMBERS = ("integers", "masks")  # the values of a `Field` that stay arrays
NUMBER_BYTES = 4  # of a number in a list, at least: a file stores repeated ones once
MAX_CHARACTER_BYTES = 4  # in UTF-8
MAX_FIELD = 2**31 - 1  # the limit of the csv module


def is_kind(kind: Any, *names: str) -> bool:
    """Return whether a type of pyarrow is one of some kinds."""
    from pyarrow import types

    return any(getattr(types, f"is_{name}")(kind) for name in names)


def is_text(kind: Any) -> bool:
    """Return whether values of a type are strings."""
    kind = kind.value_type if is_kind(kind, "dictionary") else kind
    return is_kind(kind, "string", "large_string", "string_view")


def is_list(kind: Any) -> bool:
    """Return whether values of a type are lists."""
    return is_kind(kind, "list", "large_list", "fixed_size_list")


def is_number_list(kind: Any, *, takes_booleans: bool = False) -> bool:
    """Return whether values of a type are lists of integers."""
    names = ("integer", "boolean") if takes_booleans else ("integer",)
    return is_list(kind) and is_kind(kind.value_type, *names)


def is_kept(kind: Any) -> bool:
    """Return whether values of a type can be kept; in lists, structs of such values too."""
    if is_kind(kind, "dictionary"):
        return is_kept(kind.value_type)
    if is_list(kind):
        inner = kind.value_type
        return all(
            map(is_kept, [each.type for each in inner] if is_kind(inner, "struct") else [inner])
        )
    return is_kind(kind, "integer", "floating", "boolean") or is_text(kind)


def is_json(kind: Any) -> bool:
    """Return whether values of a type can be written as JSON."""
    if is_kind(kind, "dictionary") or is_list(kind):
        return is_json(kind.value_type)
    if is_kind(kind, "struct"):
        return all(is_json(field.type) for field in kind)
    if is_kind(kind, "map"):
        return is_text(kind.key_type) and is_json(kind.item_type)
    return is_kind(kind, "null") or is_kept(kind)


class Accepted(NamedTuple):
    """The types of columns that can hold the values of a field."""

    accepts: Callable[[Any], bool]
    expected: str
    hint: str | None = None


TYPES = {  # by the values of a `Field`
    "text": Accepted(is_text, "strings"),
    "words": Accepted(
        lambda kind: is_text(kind) or (is_list(kind) and is_text(kind.value_type)), "strings"
    ),
    "kept": Accepted(
        is_kept,
        "numbers, booleans, strings or lists of them",
        "convert the column, or keep another one",
    ),
    "integers": Accepted(is_number_list, "lists of integers"),
    "masks": Accepted(
        lambda kind: is_number_list(kind, takes_booleans=True), "lists of integers or booleans"
    ),
    "json": Accepted(
        is_json,
        "strings, numbers, booleans, and lists, structs or maps of them",
        "convert the column, or write the records as JSON lines",
    ),
}


def find_column(schema: Any, field: Field, source: Source, *, taken: Sequence[str] = ()) -> Any:
    """Return the type of a column, None for an optional one that is missing.

    Args:
        taken: columns that other options ask for.

    Raises:
        DataError: it is missing, or there are two of that name.
    """
    kind: Any = None
    for name in _split(field.name, schema.names):
        inside = list(schema if kind is None else kind if is_kind(kind, "struct") else ())
        found = [inner.type for inner in inside if inner.name == name]
        if len(found) > 1:
            raise DataError(f"{source.path}: {len(found)} columns named {quote(name)}")
        if not found:
            if field.is_optional:
                return None
            likes = {inner.name: _make_like(inner.type) for inner in schema}
            error = missing_field_error("column", field.option, field.name, likes, taken=taken)
            raise DataError(f"{source.path}: {error.reason}", hint=error.hint)
        kind = found[0]
    return kind


def check_column(
    schema: Any, field: Field, source: Source, *, taken: Sequence[str] = ()
) -> str | None:
    """Return the name of a column, None if it is optional and missing.

    Raises:
        DataError: it is missing, or of a type that cannot hold the values of the field.
    """
    kind = find_column(schema, field, source, taken=taken)
    accepts, expected, hint = TYPES[field.values]
    if kind is None:
        return None
    if not accepts(kind):
        if TYPES["words"].accepts(kind):
            hint = hint or WORDS_HINT
        raise DataError(
            f"{source.path}: column {quote(field.name)} is {kind}, expected {expected}",
            hint=hint or hint_about(_make_like(kind), field.name, field.option),
        )
    return field.name


def _split(column: str, names: Sequence[str]) -> list[str]:
    return [column] if column in names else column.split(".")


def _make_like(kind: Any) -> Any:
    """Return an empty value of a type, None for one that cannot be a text."""
    if is_kind(kind, "struct"):
        return {field.name: _make_like(field.type) for field in kind}
    if is_list(kind):
        return [_make_like(kind.value_type)]
    return "" if is_text(kind) else None


class TableRecords:
    """Some rows of a Parquet or Arrow file, an array for each field."""

    def __init__(
        self,
        arrays: list[Any],
        num_before: int,
        source: Source,
        fields: Sequence[Field],
        options: DocumentOptions,
    ) -> None:
        self.num_records, self._num_before = len(arrays[0]), num_before
        self._arrays, self._source, self._fields, self._options = arrays, source, fields, options
        sizes = np.zeros(self.num_records, np.int64)
        of_text = {
            field.name: array
            for field, array in zip(fields, arrays, strict=True)
            if field.option != KEEP and (field.values not in NUMBERS or field.option == IDS_FIELD)
        }
        for array in of_text.values():
            sizes += _count_bytes(array, options.max_document_bytes)
        self.num_bytes = int(sizes.sum())
        if (sizes > options.max_document_bytes).any():
            row = int((sizes > options.max_document_bytes).argmax())
            raise oversized_error(self.find_place(row), options.max_document_bytes)

    def read_columns(self) -> list[list[Any]]:
        """Return the values of each column; raise UnicodeDecodeError if one is not UTF-8."""
        found: dict[str, list[Any]] = {}
        for field, array in zip(self._fields, self._arrays, strict=True):
            if field.name not in found:
                are_numbers = field.values in NUMBERS
                found[field.name] = array if are_numbers else to_python(array)
        return [
            [to_json(value, array.type) for value in found[field.name]]
            if field.values == "json"
            else found[field.name]
            for field, array in zip(self._fields, self._arrays, strict=True)
        ]

    def read_row(self, index: int) -> list[Any]:
        """Return the values of a row; raises BadRecordError."""
        row = []
        for field, array in zip(self._fields, self._arrays, strict=True):
            value = read_scalar(array[index], self._options.encoding_errors)
            row.append(to_json(value, array.type) if field.values == "json" else value)
        return row

    def find_byte(self, index: int) -> None:
        """Return None: rows have no byte."""
        del index

    def find_place(self, index: int, byte: int = 0) -> str:
        """Return "path:row"."""
        del byte
        return f"{self._source.path}:{self._num_before + index + 1}"


def iter_table_records(
    source_range: SourceRange,
    fields: Sequence[Field],
    options: DocumentOptions,
    on_read: OnRead | None,
) -> Iterator[TableRecords]:
    """Read the rows of a range, piece by piece.

    Raises:
        DataError: a column is missing or of another type, a row is too large, or the file is
            damaged.
    """
    source = source_range.source
    taken = [field.name for field in fields if field.option != KEEP]

    def choose(schema: Any) -> Columns:
        return [
            check_column(schema, field, source, taken=() if field.option == KEEP else taken)
            for field in fields
        ]

    for num_before, arrays in iter_table_arrays(source_range, choose, on_read):
        yield TableRecords(arrays, num_before, source, fields, options)


def _count_bytes(array: Any, limit: int) -> np.ndarray:
    """Return the bytes of each value, int64, for nested ones about, and only near the limit."""
    import pyarrow.compute as pc

    if is_text(array.type):
        sizes = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    elif is_number_list(array.type):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        sizes = NUMBER_BYTES * lengths.astype(np.int64)
    elif array.nbytes <= limit:
        sizes = np.full(len(array), array.nbytes // len(array))
    else:
        sizes = np.array([array.slice(row, 1).nbytes for row in range(len(array))])
    return np.asarray(sizes, np.int64)


def to_python(values: Any) -> list[Any]:
    """Convert values; numbers without a null among them are ten times faster.

    Raises:
        UnicodeDecodeError: a string is not UTF-8.
    """
    if is_kind(values.type, "integer", "floating") and not values.null_count:
        return list(values.to_numpy(zero_copy_only=False).tolist())
    return list(values.to_pylist())


def flatten_lists(array: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return lists of numbers as one array, not copied if nothing is null.

    Returns:
        The numbers, 0 for null; the length of each list; which lists are null; which numbers are.
    """
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    values = array.flatten()
    are_missing = values.is_null().to_numpy(zero_copy_only=False)
    values = values.fill_null(0) if values.null_count else values
    lengths = np.where(nulls, 0, lengths).astype(np.int64)
    return values.to_numpy(zero_copy_only=False), lengths, nulls, are_missing


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
        if is_text(scalar.type) and encoding_errors == "replace":
            return decode(scalar.cast(pa.large_binary()).as_py(), encoding_errors)
        raise BadEncodingError(found, 0) from error


def to_json(value: Any, kind: Any) -> Any:
    """Return a value of a table as a JSON record would have it.

    All structs of a column have the same keys. One whose value is null is left out: the record may
    not have had it. A map becomes an object; of equal keys the last one counts.
    """
    if value is None or is_text(kind):
        return value
    if is_kind(kind, "dictionary"):
        return to_json(value, kind.value_type)
    if is_list(kind):
        return [to_json(each, kind.value_type) for each in value]
    if is_kind(kind, "struct"):
        return {
            field.name: to_json(value[field.name], field.type)
            for field in kind
            if value[field.name] is not None
        }
    if is_kind(kind, "map"):
        return {key: to_json(inner, kind.item_type) for key, inner in value}
    return value


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
    return ARRAYS[source_range.source.format](source_range, choose, on_read)


def read_schema(source: Source) -> Any:
    """Return the schema of a table, with its metadata; raises as `iter_table_arrays`."""
    if source.format == "parquet":
        return _open_parquet(source).schema_arrow
    whole = SourceRange(0, source, 0, source.num_bytes)
    return _open_arrow(Stream(iter_raw_blocks(whole, None)), source)[0].schema


def find_row_groups(source: Source) -> list[int]:
    """Return the byte at which each row group begins, the first at 0, and the file's size last."""
    metadata = _open_parquet(source).metadata
    starts = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = map(group.column, range(group.num_columns))
        pages = [(chunk.dictionary_page_offset, chunk.data_page_offset) for chunk in chunks]
        starts.append(min((page for each in pages for page in each if page), default=0))
    if starts != sorted(set(starts)):
        starts = starts[:1]  # not in the order of the file: read them as one
    return [0, *starts[1:], source.num_bytes]


def _iter_parquet_arrays(
    source_range: SourceRange, choose: ChooseColumns, on_read: OnRead | None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield columns of the row groups that begin in a range."""

    source, file = source_range.source, _open_parquet(source_range.source)
    columns = choose(file.schema_arrow)
    names = [column for column in columns if column is not None]
    offsets = find_row_groups(source)
    is_one = len(offsets) == 2
    num_rows = 0
    for number, (start, end) in enumerate(pairwise(offsets)):
        groups = list(range(file.num_row_groups)) if is_one else [number]
        count = sum(file.metadata.row_group(group).num_rows for group in groups)
        if source_range.start <= start < source_range.end:
            if on_read is not None:
                for _ in iter_raw_blocks(source_range._replace(start=start, end=end), on_read):
                    pass
            num_found = 0
            with _naming_damage(source):
                rows = _choose_rows(count, _count_group_bytes(file, groups, names))
                for batch in file.iter_batches(rows, groups, names, use_threads=False):
                    if len(batch):
                        yield num_rows + num_found, _take_columns(batch, columns)
                    num_found += len(batch)
            if num_found != count:  # pyarrow stops without an error at some damaged pages
                raise DataError(f"{source.path}: damaged ({num_found:,} rows, expected {count:,})")
        num_rows += count


def _count_group_bytes(file: Any, groups: list[int], names: list[str]) -> int:
    """Return the bytes of columns in row groups, decompressed."""
    num_bytes = 0
    for group in map(file.metadata.row_group, groups):
        for chunk in map(group.column, range(group.num_columns)):
            if any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in names):
                num_bytes += max(chunk.total_uncompressed_size, NUMBER_BYTES * chunk.num_values)
    return num_bytes


def _choose_rows(num_rows: int, num_bytes: int) -> int:
    """Return how many rows of a table of so many bytes are converted at once."""
    return min(LIMITS.rows_per_batch, max(1, num_rows * LIMITS.batch_bytes // max(1, num_bytes)))


def _take_columns(batch: Any, columns: Columns) -> list[Any]:
    """Return columns of a batch, dictionaries spelled out; one that is missing is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str | None, Any] = {None: pa.nulls(len(batch))}
    for column in columns:
        if column is not None and column not in found:
            name, *inner = _split(column, batch.schema.names)
            values = batch.column(name)
            values = pc.struct_field(values, inner) if inner else values
            if is_text(values.type):
                values = values.cast(pa.large_string(), safe=False)
            found[column] = (
                values.dictionary_decode() if is_kind(values.type, "dictionary") else values
            )
    return [found[column] for column in columns]


def _import_pyarrow(source: Source) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise MachineError(
            f"{source.path}: pyarrow is not installed, {source.format} files need it",
            hint="pip install pyarrow",
        ) from error
    return pa


@contextlib.contextmanager
def _naming_damage(source: Source, what: str = "damaged") -> Iterator[None]:
    """Turn an error of pyarrow into a DataError that names the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise DataError(f"{source.path}: {what} ({reason})") from error


def _open_parquet(source: Source) -> Any:
    pa = _import_pyarrow(source)
    with _naming_damage(source, "not Parquet, or damaged"):
        file = pa.parquet.ParquetFile(
            # pyarrow opens a path itself, and reads it faster
            source.input.open(source.num_bytes) if is_url(source.location) else source.location,
            buffer_size=LIMITS.read_bytes,
            pre_buffer=False,
            page_checksum_verification=True,  # if the file has checksums
        )
        for index in range(file.metadata.num_columns):
            _ = file.schema.column(index).path  # names that are not UTF-8 fail here, not later
    return file


class Stream:
    """The bytes of some blocks, as many at a time as are asked for."""

    closed = False

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""
        self.is_at_end = False  # more was asked for than there is

    def read(self, num_bytes: int) -> bytes:
        """Return so many bytes, fewer at the end."""
        pieces: list[bytes] = []
        while num_bytes:
            piece = self._rest or next(self._blocks, b"")
            if not piece:
                self.is_at_end = True
                break
            pieces.append(piece[:num_bytes])
            self._rest = piece[num_bytes:]
            num_bytes -= len(pieces[-1])
        return b"".join(pieces)

    def put_back(self, data: bytes) -> None:
        """Put bytes back that were read."""
        self._rest = data + self._rest

    def read_tail(self, num_bytes: int) -> tuple[bytes, int]:
        """Read to the end; return the last bytes, and how many there were in all."""
        tail, count = b"", 0
        while block := self._rest or next(self._blocks, b""):
            self._rest = b""
            tail = (tail + block)[-num_bytes:]
            count += len(block)
        return tail, count


def _iter_arrow_arrays(
    source_range: SourceRange, choose: ChooseColumns, on_read: OnRead | None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield columns of an IPC stream, or a file: one between `ARROW1` and a footer."""
    source = source_range.source
    stream = Stream(iter_raw_blocks(source_range, on_read))
    reader, is_file = _open_arrow(stream, source)
    columns = choose(reader.schema)
    num_rows = 0
    with _naming_damage(source):
        for batch in reader:
            used = {_split(column, batch.schema.names)[0] for column in columns if column}
            arrays = [batch.column(name) for name in sorted(used)]
            for array in arrays:
                _validate(array)
            rows = _choose_rows(len(batch), sum(array.nbytes for array in arrays))
            for start in range(0, len(batch), rows):
                piece = batch.slice(start, rows)
                yield num_rows, _take_columns(piece, columns)
                num_rows += len(piece)
    if stream.is_at_end:
        raise DataError(f"{source.path}: truncated, expected the end of the stream", COPY_HINT)
    tail, num_bytes = stream.read_tail(4 + len(FILE_MAGIC))
    if is_file and not tail.endswith(FILE_MAGIC):
        raise DataError(f"{source.path}: truncated, expected a footer", COPY_HINT)
    # A footer ends with its length and the magic.
    num_bytes -= len(tail) + int.from_bytes(tail[:4], "little") if is_file else 0
    if num_bytes:
        raise DataError(f"{source.path}: {num_bytes:,} bytes after the end of the stream")


def _validate(array: Any) -> None:
    """Raise ArrowInvalid if offsets lead out of an array; what is not UTF-8 is found row by row."""
    import pyarrow as pa

    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise


def _open_arrow(stream: Stream, source: Source) -> tuple[Any, bool]:
    """Return a reader of record batches, and whether there is a footer."""
    pa = _import_pyarrow(source)
    magic = stream.read(MAGIC_BYTES)
    is_file = magic.startswith(FILE_MAGIC)
    if not is_file:
        if not magic.startswith(STREAM_MAGIC):
            raise DataError(f"{source.path}: begins with {quote(magic)}, expected an Arrow file")
        stream.put_back(magic)
    with _naming_damage(source, "not Arrow, or damaged"):
        options = pa.ipc.IpcReadOptions(use_threads=False)
        reader = pa.ipc.open_stream(pa.PythonFile(stream, mode="r"), options=options)
        _read_names(reader.schema)  # those that are not UTF-8 fail here, not later
    return reader, is_file


def _read_names(fields: Iterable[Any]) -> list[Any]:
    kinds = [(field.name, field.type) for field in fields]
    return [_read_names(map(kind.field, range(kind.num_fields))) for _, kind in kinds]


ARRAYS = {"parquet": _iter_parquet_arrays, "arrow": _iter_arrow_arrays}


class CsvRecords:
    """Some rows of a CSV file: the fields of each that are wanted; none for a blank line."""

    def __init__(
        self, source: Source, wanted: Sequence[tuple[Field, Callable[[str], Any]]], limit: int
    ) -> None:
        self._source, self._wanted, self._limit = source, wanted, limit
        self._rows: list[list[str] | BadRecordError] = []
        self._lines: list[int] = []
        self._bytes: list[int] = []  # where each begins
        self.num_records = 0
        self.num_bytes = 0  # counted in characters

    @property
    def is_full(self) -> bool:
        """Whether it is time for the next block."""
        return self.num_bytes >= LIMITS.batch_bytes or self.num_records >= LIMITS.rows_per_batch

    def add(self, row: list[str] | BadRecordError, line: int, byte: int) -> None:
        """Add the fields of a row, or why there are none."""
        self.num_records += 1
        self._rows.append(row)
        self._lines.append(line)
        self._bytes.append(byte)
        if isinstance(row, list):
            self.num_bytes += sum(map(len, row))

    def read_columns(self) -> list[list[Any]]:
        """Return the values of each column; raise an error if a row is bad or blank."""
        columns = list(map(list, zip(*self._rows, strict=True)))
        if not columns or self.num_bytes * MAX_CHARACTER_BYTES > self._limit:
            raise ValueError("rows that must be read one by one")
        for values in columns:
            "".join(values).encode()
        return self._parse(columns)

    def read_row(self, index: int) -> list[Any] | None:
        """Return the values of a row, None for a blank line.

        Raises:
            BadRecordError: it is not CSV, not UTF-8, or has too many or too few fields.
            DataError: its text is too large.
        """
        row = self._rows[index]
        if isinstance(row, BadRecordError):
            raise row
        if not row:
            return None
        try:
            sizes = {
                field.name: len(value.encode()) * (field.option != KEEP)
                for (field, _), value in zip(self._wanted, row, strict=True)
            }
        except UnicodeEncodeError as error:
            byte = ord(error.object[error.start]) & 0xFF  # surrogateescape keeps the byte there
            raise BadEncodingError(byte, 0) from error
        if sum(sizes.values()) > self._limit:
            raise oversized_error(self.find_place(index), self._limit)
        return [value for (value,) in self._parse([[value] for value in row])]

    def _parse(self, columns: list[list[str]]) -> list[list[Any]]:
        return [
            list(map(parse, values)) if field.option == KEEP else values
            for (field, parse), values in zip(self._wanted, columns, strict=True)
        ]

    def find_byte(self, index: int) -> int:
        """Return the byte at which a row begins."""
        return self._bytes[index]

    def find_place(self, index: int, byte: int = 0) -> str:
        """Return "path:line"."""
        del byte
        return f"{self._source.path}:{self._lines[index]}"


def iter_csv_records(
    source_range: SourceRange,
    readers: Sequence[Reader],
    options: DocumentOptions,
    on_read: OnRead | None,
) -> Iterator[CsvRecords]:
    """Read the rows of a CSV file, block by block; the first one names the columns.

    Raises:
        DataError: a column is missing, or a field is too large.
    """
    source, limit = source_range.source, options.max_document_bytes
    wanted = [(field, reader.parse) for reader in readers for field in reader.fields]
    csv = _open_csv(min(limit, MAX_FIELD))
    position = [0]  # the byte after the lines read so far
    reader = csv.reader(
        _iter_lines(source_range, options, on_read, position),
        delimiter=source.delimiter,
        strict=True,
    )
    places: list[int] | None = None
    num_columns = 0
    rows = CsvRecords(source, wanted, limit)
    while True:
        line, byte = reader.line_num + 1, position[0]
        place = f"{source.path}:{line}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            if "field limit" in str(error):
                yield rows  # an error in an earlier row comes first
                raise oversized_error(place, limit) from error
            if places is None:
                raise DataError(f"{place}: not CSV ({error})") from error
            rows.add(BadRecordError(f"not CSV ({error})"), line, byte)
        else:
            if row is None:
                break
            if places is None:
                fields = [field for field, _ in wanted]
                places = [_find_place(row, field, fields, place) for field in fields]
                num_columns = len(row)
            elif row and len(row) != num_columns:
                expected = f"expected {num_columns} as in the first row"
                rows.add(BadRecordError(f"{len(row)} fields, {expected}"), line, byte)
            else:
                rows.add([row[place] for place in places] if row else row, line, byte)
        if rows.is_full:
            yield rows
            rows = CsvRecords(source, wanted, limit)
    if rows.num_records:
        yield rows


def _open_csv(field_limit: int) -> Any:
    """Return a csv module of our own: the limit of the one that is imported holds for a process."""
    spec = importlib.util.find_spec("_csv")
    if spec is None or spec.loader is None:
        raise MachineError("this Python has no csv module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.field_size_limit(field_limit)
    return module


def _iter_lines(
    source_range: SourceRange, options: DocumentOptions, on_read: OnRead | None, position: list[int]
) -> Iterator[str]:
    """Yield the lines with their ends; a byte that is not UTF-8 becomes a lone surrogate."""
    errors = "replace" if options.encoding_errors == "replace" else "surrogateescape"
    blocks = iter_blocks(source_range, on_read)
    for block in split_lines(blocks, source_range, options.max_document_bytes):
        for record in block.records:
            line = record.decode(errors=errors)
            if position[0] == 0:
                line = line.removeprefix(MARK.decode())
            position[0] += len(record) + 1
            yield line + "\n"


def _find_place(row: list[str], field: Field, fields: Sequence[Field], place: str) -> int:
    """Return the number of a column."""
    if row.count(field.name) == 1:
        return row.index(field.name)
    if field.name in row:
        raise DataError(f"{place}: {row.count(field.name)} columns named {quote(field.name)}")
    found = dict.fromkeys(filter(None, row), "")
    taken = [each.name for each in fields if each.option != KEEP]
    error = missing_field_error("column", field.option, field.name, found, taken=taken)
    raise DataError(f"{place}: {error.reason}", hint=error.hint)
