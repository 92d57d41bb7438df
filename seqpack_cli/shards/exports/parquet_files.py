"""Write Parquet files with pyarrow, one row group at a time, and read them back.

Lists of numbers are split into the bytes of each significance and compressed with zstd, which is
the smallest and hardly slower than no compression; other columns have dictionaries. A file that
seqpack wrote has a mark in its footer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seqpack_cli.errors import MachineError
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.single_file import FileKind

MARK = "seqpack.{command}"  # key of the mark in the metadata of a file
MAGIC = b"PAR1"  # the first and last bytes of a file
TAIL_BYTES = 1 << 16  # the mark is at the end of the footer
REWRITTEN = b"ARROW:schema"  # which pyarrow adds if it writes what it has read, mark included
FOOTER_BYTES = 512  # of each column of a row group; about 100
ROWS_PER_STEP = 1 << 13  # pyarrow's default of 1,024 values is a fifth slower


def make_kind(command: str) -> FileKind:
    """Return the kind of Parquet files that a command writes."""
    mark = MARK.format(command=command).encode()
    return FileKind(
        f"a Parquet file that seqpack {command} wrote",
        lambda tail: tail.endswith(MAGIC) and mark in tail and REWRITTEN not in tail,
        max_bytes=TAIL_BYTES,
        at_end=True,
    )


def import_pyarrow(output: object) -> Any:
    """Return pyarrow, with its module `parquet`.

    Raises:
        MachineError: it is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise MachineError(
            f"{output}: pyarrow is not installed, Parquet needs it", hint="pip install pyarrow"
        ) from error
    return pa


class _Sink:
    """What pyarrow writes to, as a file."""

    closed = False

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self.num_bytes = 0
        self.is_lost = False  # an error has ended the file: what comes after it is not written

    def write(self, data: bytes) -> int:
        if not self.is_lost:
            self._write(data)
        self.num_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.num_bytes

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class ParquetWriter:
    """A new Parquet file; `open_parquet` opens it."""

    def __init__(self, writer: Any, sink: _Sink) -> None:
        self._writer, self._sink = writer, sink
        self.num_rows = self.num_groups = 0

    def bound_size(self, table: Any) -> int:
        """Return the size that the file has at most if a table and the footer are added."""
        num_chunks = (self.num_groups + 1) * table.num_columns
        return int(self._sink.num_bytes + table.nbytes + (num_chunks + 8) * FOOTER_BYTES)

    def write(self, table: Any) -> None:
        """Write a table as one row group."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.num_rows += table.num_rows
        self.num_groups += 1

    def mark(self, command: str, description: Mapping[str, Any]) -> None:
        """Put the mark of a command into the footer, with what describes the file."""
        text = encode_json(dict(description)).decode()
        self._writer.add_key_value_metadata({MARK.format(command=command): text})


@contextlib.contextmanager
def open_parquet(write: Callable[[bytes], object], schema: Any) -> Iterator[ParquetWriter]:
    """Write a Parquet file; its footer is written when the block ends.

    Args:
        write: called with the bytes of the file, in order.
    """
    pa, sink = import_pyarrow("output"), _Sink(write)
    writer = pa.parquet.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        schema,
        store_schema=False,
        write_statistics=False,
        write_batch_size=ROWS_PER_STEP,
        compression="zstd",
        **_choose_encodings(pa, schema),
    )
    try:
        yield ParquetWriter(writer, sink)
        writer.close()
    except BaseException:
        sink.is_lost = True
        with contextlib.suppress(Exception):  # the first error is the one to report
            writer.close()
        raise


def _choose_encodings(pa: Any, schema: Any) -> dict[str, Any]:
    """Return the encodings of the columns: split bytes for lists of int32, dictionaries else."""
    names = {
        f"{field.name}.list.element": pa.types.is_list(field.type)
        and field.type.value_type == pa.int32()
        for field in schema
    }
    return {
        "use_dictionary": [
            name if pa.types.is_list(field.type) else field.name
            for (name, is_split), field in zip(names.items(), schema, strict=True)
            if not is_split
        ],
        "column_encoding": {
            name: "BYTE_STREAM_SPLIT" for name, is_split in names.items() if is_split
        },
    }


def iter_row_groups(path: Path, output: object) -> Iterator[Any]:
    """Read a local Parquet file back, a table for each row group."""
    pa = import_pyarrow(output)
    with pa.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.metadata.num_row_groups):
            yield file.read_row_group(number)
