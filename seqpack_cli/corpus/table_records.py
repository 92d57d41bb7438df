"""Read the rows of tables: Parquet and Arrow with pyarrow, CSV with Python's csv module.

Parquet and Arrow yield pieces of about 1 MiB: an array for each column that is wanted. Parquet is
read one row group after another, whose bytes are read a second time for `on_read`, since pyarrow
reads the file itself. A quoted field of CSV may contain line ends, so one worker reads the whole
file; a row with more or fewer fields than the first is an error.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    RawRecords,
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

FILE_MAGIC = b"ARROW1"
STREAM_MAGIC = b"\xff\xff\xff\xff"
MAGIC_BYTES = 8  # with padding
COPY_HINT = "download or copy the file again"
TABLE_FORMATS = ("parquet", "arrow")
NUMBER_BYTES = 4  # of a number in a list, at least: a file stores repeated ones once
MAX_CHARACTER_BYTES = 4  # in UTF-8
MAX_FIELD = 2**31 - 1  # the limit of the csv module
CLOSE_HINT = "close the value with a quotation mark, or write one inside a text as two"
SEPARATOR_HINT = "the columns seem to be separated by {!r}: use commas (.csv) or tabs (.tsv)"

# The fields of a row of CSV that are read, none of a blank line, or why there are none; its line,
# and the byte at which it begins.
CsvRow = tuple[list[str] | BadRecordError, int, int]


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


def are_leaves(kind: Any, *names: str) -> bool:
    """Return whether a type, or all inner types of a nested one, are text or of some kinds."""
    kind = kind.value_type if is_kind(kind, "dictionary") else kind
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    if is_kind(kind, "map"):
        return is_text(kind.key_type) and are_leaves(kind.item_type, *names)
    if inner:
        return all(are_leaves(each, *names) for each in inner)
    return is_text(kind) or is_kind(kind, *names)


class Accepted(NamedTuple):
    """The types of columns that can hold the values of a field."""

    accepts: Callable[[Any], bool]
    expected: str
    hint: str | None = None


NUMBERS = ("integer", "floating", "boolean")
TYPES = {  # by the values of a `Field`
    "text": Accepted(is_text, "strings"),
    "words": Accepted(
        lambda kind: is_text(kind) or (is_list(kind) and is_text(kind.value_type)), "strings"
    ),
    "kept": Accepted(
        lambda kind: not is_kind(kind, "struct", "map") and are_leaves(kind, *NUMBERS),
        "numbers, booleans, strings or lists of them",
        "convert the column, or keep another one",
    ),
    "integers": Accepted(
        lambda kind: is_list(kind) and is_kind(kind.value_type, "integer"), "lists of integers"
    ),
    "masks": Accepted(
        lambda kind: is_list(kind) and is_kind(kind.value_type, "integer", "boolean"),
        "lists of integers or booleans",
    ),
    "json": Accepted(
        lambda kind: are_leaves(kind, "null", "struct", *NUMBERS),
        "strings, numbers, booleans, and lists, structs or maps of them",
        "convert the column, or write the records as JSON lines",
    ),
}
LISTS = ("integers", "masks")  # of which arrays are made, not Python's lists


def check_column(
    schema: Any, field: Field, source: Source, fields: Iterable[Field], hint: str | None = None
) -> str | None:
    """Return the name of a column, None if it is optional and missing.

    Args:
        fields: all that are read.
        hint: what to do about a column of another type, if there is only one way.

    Raises:
        DataError: it is missing, of a type that cannot hold the values of the field, or there are
            two of that name.
    """
    kind: Any = None
    with _naming_damage(source):  # names that are not UTF-8 fail here
        likes = {inner.name: _make_like(inner.type) for inner in schema}
    for name in _split(field.name, schema.names):
        inside = list(schema if kind is None else kind if is_kind(kind, "struct") else ())
        found = [inner.type for inner in inside if inner.name == name]
        if not found and field.is_optional:
            return None
        check_count(len(found), source.path, field, likes, fields)
        kind = found[0]
    if field.is_optional and is_kind(kind, "null"):
        return None
    accepts, expected, known_hint = TYPES[field.values]
    if not accepts(kind):
        hint = hint or known_hint or (WORDS_HINT if TYPES["words"].accepts(kind) else None)
        raise DataError(
            f"{source.path}: column {quote(field.name)} is {kind}, expected {expected}",
            hint=hint or hint_about(_make_like(kind), field.name, field.option),
        )
    return field.name


def check_count(
    count: int,
    place: str,
    field: Field,
    likes: Mapping[str, Any],
    fields: Iterable[Field],
    hint: str | None = None,
) -> None:
    """Raise DataError unless there is one column of the name of a field.

    Args:
        likes: an empty value of each column that is there, by its name.
        hint: about a missing one, if it is not another name.
    """
    if count > 1:
        raise DataError(f"{place}: {count} columns named {quote(field.name)}")
    if not count:
        error = missing_field_error("column", field, likes, fields)
        raise DataError(f"{place}: {error.reason}", hint=hint or error.hint)


def _split(column: str, names: Sequence[str]) -> list[str]:
    return [column] if column in names else column.split(".")


def _make_like(kind: Any) -> Any:
    """Return an empty value of a type, None for one that cannot be a text."""
    if is_kind(kind, "struct"):
        return {field.name: _make_like(field.type) for field in kind}
    if is_list(kind):
        return [_make_like(kind.value_type)]
    return "" if is_text(kind) else None


def iter_table_records(
    source_range: SourceRange,
    fields: Sequence[Field],
    options: DocumentOptions,
    on_read: OnRead | None,
) -> Iterator[RawRecords]:
    """Read the rows of a range of a Parquet or Arrow file, about 1 MiB at a time.

    Raises:
        DataError: a column is missing or of another type, a row is too large, or the file is
            damaged, or of another format.
        MachineError: pyarrow is not installed.
    """
    source = source_range.source
    for num_before, arrays in TABLES[source.format](source_range, fields, on_read):
        yield _make_table_records(arrays, num_before, source, fields, options)


def _make_table_records(
    arrays: list[Any],
    num_before: int,
    source: Source,
    fields: Sequence[Field],
    options: DocumentOptions,
) -> RawRecords:
    """Return rows of a table, an array for each field."""
    sizes, limit = np.zeros(len(arrays[0]), np.int64), options.max_document_bytes
    of_text = {
        field.name: array
        for field, array in zip(fields, arrays, strict=True)
        if field.option != KEEP and (field.values not in LISTS or field.option == IDS_FIELD)
    }
    for array in of_text.values():
        sizes += _count_bytes(array, limit)

    def find_place(row: int, byte: int = 0) -> str:
        del byte
        return f"{source.path}:{num_before + row + 1}"

    def read_columns() -> list[list[Any]]:
        return [
            array if field.values in LISTS else _to_python(array, field)
            for field, array in zip(fields, arrays, strict=True)
        ]

    def read_row(row: int) -> list[Any]:
        return [
            _read_value(array.slice(row, 1), field, options.encoding_errors)
            for field, array in zip(fields, arrays, strict=True)
        ]

    if (sizes > limit).any():
        raise oversized_error(find_place(int((sizes > limit).argmax())), limit)
    return RawRecords(len(sizes), int(sizes.sum()), read_columns, read_row, find_place)


def _count_bytes(array: Any, limit: int) -> np.ndarray:
    """Return the bytes of each value, int64, for nested ones about, and only near the limit."""
    import pyarrow.compute as pc

    if is_text(array.type) or TYPES["integers"].accepts(array.type):
        is_one = is_text(array.type)
        lengths = (pc.binary_length if is_one else pc.list_value_length)(array)
        sizes = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        sizes *= 1 if is_one else NUMBER_BYTES
    elif array.nbytes <= limit:
        sizes = np.full(len(array), array.nbytes // len(array))
    else:
        sizes = np.array([array.slice(row, 1).nbytes for row in range(len(array))])
    return np.asarray(sizes, np.int64)


def _to_python(values: Any, field: Field) -> list[Any]:
    """Convert values; numbers without a null among them are ten times faster.

    Raises:
        UnicodeDecodeError: a string is not UTF-8.
    """
    if is_kind(values.type, "integer", "floating") and not values.null_count:
        return list(values.to_numpy(zero_copy_only=False).tolist())
    if values.null_count == len(values):
        return [None] * len(values)
    found = values.to_pylist()
    return [_to_json(each, values.type) for each in found] if field.values == "json" else found


def flatten_lists(array: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return lists of numbers as one array, not copied, and the length of each.

    Raises:
        BadRecordError: a list or a number is null.
    """
    import pyarrow.compute as pc

    values, lengths = array.flatten(), pc.list_value_length(array)
    if lengths.null_count or values.null_count:
        raise BadRecordError("a null")
    lengths = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return values.to_numpy(zero_copy_only=False), lengths


def _read_value(values: Any, field: Field, encoding_errors: str) -> Any:
    """Convert the one value of an array; raises BadEncodingError if it is not UTF-8."""
    import pyarrow as pa

    try:
        return _to_python(values, field)[0]
    except UnicodeDecodeError as error:
        if is_text(values.type) and encoding_errors == "replace":
            return decode(values.cast(pa.large_binary())[0].as_py(), encoding_errors)
        raise BadEncodingError(error.object[error.start], 0) from error


def _to_json(value: Any, kind: Any) -> Any:
    """Return a value of a table as a JSON record would have it.

    All structs of a column have the same keys. One whose value is null is left out: the record may
    not have had it. A map becomes an object; of equal keys the last one counts.
    """
    if value is None or is_text(kind):
        return value
    if is_kind(kind, "dictionary"):
        return _to_json(value, kind.value_type)
    if is_list(kind):
        return [_to_json(each, kind.value_type) for each in value]
    if is_kind(kind, "struct"):
        return {
            field.name: _to_json(value[field.name], field.type)
            for field in kind
            if value[field.name] is not None
        }
    if is_kind(kind, "map"):
        return {key: _to_json(inner, kind.item_type) for key, inner in value}
    return value


def read_schema(source: Source) -> Any:
    """Return the schema of a table, with its metadata; raises as `iter_table_records`."""
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
    source_range: SourceRange, fields: Sequence[Field], on_read: OnRead | None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of rows before each piece of the row groups in a range, and its columns."""
    source, file = source_range.source, _open_parquet(source_range.source)
    columns = [check_column(file.schema_arrow, field, source, fields) for field in fields]
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
                        yield num_rows + num_found, [_take_column(batch, each) for each in columns]
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


def _take_column(batch: Any, column: str | None) -> Any:
    """Return a column of a batch, a dictionary spelled out; one that is missing is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column is None:
        return pa.nulls(len(batch))
    name, *inner = _split(column, batch.schema.names)
    values = batch.column(name)
    values = pc.struct_field(values, inner) if inner else values
    if is_text(values.type):
        return values.cast(pa.large_string(), safe=False)
    return values.dictionary_decode() if is_kind(values.type, "dictionary") else values


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
    source_range: SourceRange, fields: Sequence[Field], on_read: OnRead | None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the same of an IPC stream, or of a file: a stream between `ARROW1` and a footer."""
    source = source_range.source
    stream = Stream(iter_raw_blocks(source_range, on_read))
    reader, is_file = _open_arrow(stream, source)
    columns = [check_column(reader.schema, field, source, fields) for field in fields]
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
                yield num_rows, [_take_column(piece, each) for each in columns]
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
    return reader, is_file


TABLES = {"parquet": _iter_parquet_arrays, "arrow": _iter_arrow_arrays}


def iter_csv_records(
    source_range: SourceRange,
    fields: Sequence[Field],
    options: DocumentOptions,
    on_read: OnRead | None,
) -> Iterator[RawRecords]:
    """Read the rows of a CSV file, block by block; the first one names the columns.

    Raises:
        DataError: a column is missing, or a field is too large.
    """
    source, limit = source_range.source, options.max_document_bytes
    csv = _open_csv(min(limit, MAX_FIELD))
    position = [0]  # the byte after the lines read so far
    lines = _iter_lines(source_range, options, on_read, position)
    reader = csv.reader(lines, delimiter=source.delimiter, strict=True)
    places: list[int] | None = None
    rows: list[CsvRow] = []
    num_columns = num_bytes = 0
    values: list[str] | BadRecordError
    while True:
        line, byte = reader.line_num + 1, position[0]
        try:
            row = next(reader, None)
        except csv.Error as error:
            place = f"{source.path}:{line}"
            is_large, num_lines = "field limit" in str(error), reader.line_num - line + 1
            is_open = num_lines > 1 and "unexpected end" in str(error)
            if rows and (is_large or is_open):  # an error in an earlier row comes first
                yield _make_csv_records(rows, num_bytes, source, fields, limit)
            if is_large:
                raise oversized_error(place, limit) from error
            if is_open:  # skipping it would lose all rows behind it
                what = f"a quotation mark opens a value of {num_lines:,} lines that nothing closes"
                raise DataError(f"{place}: {what}", CLOSE_HINT) from error
            if places is None:
                raise DataError(f"{place}: not CSV ({error})") from error
            values = BadRecordError(f"not CSV ({error})")
        else:
            if row is None:
                break
            if places is None:
                likes = dict.fromkeys(filter(None, row), "")
                mark = re.search(r"[,;|\t]", *row) if len(row) == 1 else None
                hint = SEPARATOR_HINT.format(mark[0]) if mark else None
                place = f"{source.path}:{line}"
                for field in fields:
                    check_count(row.count(field.name), place, field, likes, fields, hint)
                places, num_columns = [row.index(field.name) for field in fields], len(row)
                continue
            if row and len(row) != num_columns:
                expected = f"expected {num_columns} as in the first row"
                values = BadRecordError(f"{len(row)} fields, {expected}")
            else:
                values = [row[place] for place in places] if row else row
                num_bytes += sum(map(len, values))
        rows.append((values, line, byte))
        if num_bytes >= LIMITS.batch_bytes or len(rows) >= LIMITS.rows_per_batch:
            yield _make_csv_records(rows, num_bytes, source, fields, limit)
            rows, num_bytes = [], 0
    if rows:
        yield _make_csv_records(rows, num_bytes, source, fields, limit)


def _make_csv_records(
    rows: list[CsvRow], num_characters: int, source: Source, fields: Sequence[Field], limit: int
) -> RawRecords:
    """Return rows of a CSV file; one whose text is too large is a DataError."""

    def find_place(index: int, byte: int = 0) -> str:
        del byte
        return f"{source.path}:{rows[index][1]}"

    def parse(columns: list[list[str]]) -> list[list[Any]]:
        return [
            list(map(field.parse, values)) if field.option == KEEP else values
            for field, values in zip(fields, columns, strict=True)
        ]

    def read_columns() -> list[list[Any]]:
        columns = list(map(list, zip(*[values for values, _, _ in rows], strict=True)))
        if not columns or num_characters * MAX_CHARACTER_BYTES > limit:
            raise ValueError("rows that must be read one by one")
        for values in columns:
            "".join(values).encode()
        return parse(columns)

    def read_row(index: int) -> list[Any] | None:
        values = rows[index][0]
        if isinstance(values, BadRecordError):
            raise values
        if not values:
            return None
        try:
            sizes = {
                field.name: len(value.encode()) * (field.option != KEEP)
                for field, value in zip(fields, values, strict=True)
            }
        except UnicodeEncodeError as error:
            byte = ord(error.object[error.start]) & 0xFF  # surrogateescape keeps the byte there
            raise BadEncodingError(byte, 0) from error
        if sum(sizes.values()) > limit:
            raise oversized_error(find_place(index), limit)
        return [value for [value] in parse([[value] for value in values])]

    return RawRecords(
        len(rows), num_characters, read_columns, read_row, find_place, lambda row: rows[row][2]
    )


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
