"""Read columns of an Arrow file, with pyarrow, one record batch after another.

An IPC stream, as Hugging Face's datasets writes, and an IPC file, which is a stream between
`ARROW1` and a footer, are both read from the beginning to the end. A record batch is in memory as
a whole; pieces of about 1 MiB are made from it. What a stranger's file says is checked by pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from seqpack_cli.corpus.blocks import OnRead, iter_raw_blocks
from seqpack_cli.corpus.parquet_columns import look_up
from seqpack_cli.corpus.parquet_rows import (
    ChooseColumns,
    Columns,
    choose_rows,
    first_line,
)
from seqpack_cli.corpus.parquet_types import is_list, is_text
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, MachineError, quote

FILE_MAGIC = b"ARROW1"
STREAM_MAGIC = b"\xff\xff\xff\xff"
MAGIC_BYTES = 8  # with padding
COPY_HINT = "download or copy the file again"


class _Stream:
    """The bytes of a file, as pyarrow reads them."""

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


def read_arrow_schema(source: Source) -> Any:
    """Return the schema of a file.

    Raises:
        DataError: it is not an Arrow file.
        MachineError: pyarrow is not installed.
    """
    whole = SourceRange(0, source, 0, source.num_bytes)
    return _open(_Stream(iter_raw_blocks(whole, len)), source)[0].schema


def iter_arrow_arrays(
    source_range: SourceRange, choose: ChooseColumns, on_read: OnRead | None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield columns of a file: see `iter_table_arrays`."""
    source = source_range.source
    stream = _Stream(iter_raw_blocks(source_range, on_read or len))
    reader, is_file = _open(stream, source)
    columns = choose(reader.schema)
    num_rows = 0
    for batch in _iter_batches(reader, source):
        for arrays in _iter_pieces(batch, columns, source):
            yield num_rows, arrays
            num_rows += len(arrays[0])
    if stream.is_at_end:
        raise DataError(f"{source.path}: truncated, expected the end of the stream", COPY_HINT)
    tail, num_bytes = stream.read_tail(4 + len(FILE_MAGIC))
    if is_file and not tail.endswith(FILE_MAGIC):
        raise DataError(f"{source.path}: truncated, expected a footer", COPY_HINT)
    # A footer ends with its length and the magic.
    num_bytes -= len(tail) + int.from_bytes(tail[:4], "little") if is_file else 0
    if num_bytes:
        raise DataError(f"{source.path}: {num_bytes:,} bytes after the end of the stream")


def _open(stream: _Stream, source: Source) -> tuple[Any, bool]:
    """Return a reader of record batches, and whether there is a footer."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MachineError(
            f"{source.path}: pyarrow is not installed, Arrow files need it",
            hint="pip install pyarrow",
        ) from error
    magic = stream.read(MAGIC_BYTES)
    is_file = magic.startswith(FILE_MAGIC)
    if not is_file:
        if not magic.startswith(STREAM_MAGIC):
            raise DataError(f"{source.path}: begins with {quote(magic)}, expected an Arrow file")
        stream.put_back(magic)
    options = pa.ipc.IpcReadOptions(use_threads=False)
    try:
        reader = pa.ipc.open_stream(pa.PythonFile(stream, mode="r"), options=options)
        _read_names(reader.schema)  # those that are not UTF-8 fail here, not later
        return reader, is_file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source.path}: not Arrow, or damaged ({first_line(error)})") from error


def _read_names(fields: Iterable[Any]) -> list[Any]:
    kinds = [(field.name, field.type) for field in fields]
    return [_read_names(map(kind.field, range(kind.num_fields))) for _, kind in kinds]


def _iter_batches(reader: Any, source: Source) -> Iterator[Any]:
    import pyarrow as pa

    try:
        yield from reader
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source.path}: damaged ({first_line(error)})") from error


def _iter_pieces(batch: Any, columns: Columns, source: Source) -> Iterator[list[Any]]:
    """Yield the columns of a record batch in pieces of about 1 MiB; one that is missing is null."""
    import pyarrow as pa

    names = batch.schema.names
    wanted = {name if name in names else name.split(".")[0] for name in columns if name}
    found = [batch.column(name) for name in sorted(wanted)]
    try:
        for array in found:
            array.view(_without_text(array.type)).validate(full=True)
        num_rows = _choose_rows(found)
        for start in range(0, len(batch), num_rows):
            piece = batch.slice(start, num_rows)
            nulls = pa.nulls(len(piece))
            yield [nulls if name is None else look_up(piece, name) for name in columns]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source.path}: damaged ({first_line(error)})") from error


def _choose_rows(arrays: list[Any]) -> int:
    """Return how many rows are converted at once."""
    num_bytes = sum(int(array.nbytes) for array in arrays)
    num_rows = max(map(len, arrays), default=0)
    longest = sum(map(_bound_length, arrays))
    return choose_rows(num_rows, num_bytes, longest)


def _bound_length(array: Any) -> int:
    """Return an upper bound, in bytes, for a string that several rows may share."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_dictionary(kind):
        return _find_longest(array.dictionary)
    if pa.types.is_string_view(kind):
        return _find_longest(array)
    if pa.types.is_struct(kind):
        lengths = [_bound_length(array.field(index)) for index in range(kind.num_fields)]
        return sum(lengths)
    return _bound_length(array.values) if is_list(kind) else 0  # their values do not overlap


def _find_longest(array: Any) -> int:
    """Return the bytes of the longest string."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_text(array.type):
        return int(array.nbytes)
    if pa.types.is_string_view(array.type):  # 16 bytes for each, which begin with its length
        lengths: np.ndarray = np.frombuffer(array.buffers()[1], np.int32)[::4]
        return int(lengths[array.offset : array.offset + len(array)].max(initial=0))
    return int(pc.max(pc.binary_length(array)).as_py() or 0)


def _without_text(kind: Any) -> Any:
    """Return a type with bytes in place of strings: what is not UTF-8 is found row by row."""
    import pyarrow as pa

    fields = [kind.field(index) for index in range(kind.num_fields)]
    inner = [field.with_type(_without_text(field.type)) for field in fields]
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_text(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    if pa.types.is_large_list(kind):
        return pa.large_list(inner[0])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(inner[0])
    for is_kind, plain in (
        (pa.types.is_string, pa.binary()),
        (pa.types.is_large_string, pa.large_binary()),
        (pa.types.is_string_view, pa.binary_view()),
    ):
        if is_kind(kind):
            return plain
    return kind
