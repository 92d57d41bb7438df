"""Write Parquet files, one row group at a time, and read them back with pyarrow.

A file that seqpack wrote has a mark in its footer, by which `parquet_marks` knows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seqpack_cli import __version__
from seqpack_cli.errors import MachineError
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.shards.exports.parquet_chunks import Chunk, encode_chunk
from seqpack_cli.shards.exports.parquet_schema import describe_chunk, describe_schema, find_place
from seqpack_cli.shards.exports.thrift import Long, Value, encode_struct

MARK = "seqpack.{command}"  # key of the mark in the metadata of a file
MAGIC = b"PAR1"  # the first and last bytes of a file
WRITER = "seqpack version "  # and the number
FOOTER_BYTES = 512  # of each column of a row group; about 100


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


class ParquetWriter:
    """A new Parquet file; `open_parquet` opens it."""

    def __init__(self, write: Callable[[bytes], object], schema: Any) -> None:
        self._pa, self._write, self._schema = import_pyarrow("output"), write, schema
        self._groups: list[Value] = []
        self._marks: list[Value] = []
        self._num_bytes = 0
        self.num_rows = 0
        self._add(MAGIC)

    @property
    def num_groups(self) -> int:
        """The number of row groups so far."""
        return len(self._groups)

    def bound_size(self, table: Any) -> int:
        """Return the size that the file has at most if a table and the footer are added."""
        num_chunks = (self.num_groups + 1) * table.num_columns
        return int(self._num_bytes + table.nbytes * 2 + (num_chunks + 8) * FOOTER_BYTES)

    def write(self, table: Any) -> None:
        """Write a table of at least one row as a row group."""
        first, columns, num_raw = self._num_bytes, list[Value](), 0
        known: dict[object, Chunk] = {}  # a column with the values of an earlier one is copied
        for field, column in zip(self._schema, table.columns, strict=True):
            array = column.combine_chunks() if column.num_chunks > 1 else column.chunk(0)
            place = find_place(array)
            chunk = known.get(place) or encode_chunk(self._pa, array)
            known[place] = chunk
            columns.append(describe_chunk(self._pa, field, chunk, self._num_bytes))
            num_raw += chunk.num_bytes
            for page in chunk.pages:
                self._add(page)
        self.num_rows += table.num_rows
        sizes = {2: Long(num_raw), 3: Long(table.num_rows), 5: Long(first)}
        self._groups.append({1: columns, **sizes})

    def mark(self, command: str, description: Mapping[str, Any]) -> None:
        """Put the mark of a command into the footer, with what describes the file."""
        text = encode_json(dict(description))
        self._marks.append({1: MARK.format(command=command), 2: text})

    def finish(self) -> None:
        """Write the footer."""
        footer = encode_struct(
            {
                1: 2,  # the version of the format
                2: list(describe_schema(self._pa, self._schema)),
                3: Long(self.num_rows),
                4: self._groups,
                5: self._marks,
                6: f"{WRITER}{__version__}",
            }
        )
        self._add(footer + len(footer).to_bytes(4, "little") + MAGIC)

    def _add(self, data: bytes) -> None:
        self._write(data)
        self._num_bytes += len(data)


@contextlib.contextmanager
def open_parquet(write: Callable[[bytes], object], schema: Any) -> Iterator[ParquetWriter]:
    """Write a Parquet file; its footer is written when the block ends without an error.

    Args:
        write: called with the bytes of the file, in order.
    """
    writer = ParquetWriter(write, schema)
    yield writer
    writer.finish()


def iter_row_groups(path: Path, output: object) -> Iterator[Any]:
    """Read a local Parquet file back with pyarrow, a table for each row group.

    Raises:
        MachineError: it cannot be read.
    """
    pa = import_pyarrow(output)
    try:
        with pa.parquet.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
            for number in range(file.metadata.num_row_groups):
                yield file.read_row_group(number)
    except (pa.ArrowException, OSError) as error:
        raise MachineError(
            f"{output}: cannot be read back ({str(error).splitlines()[0]})",
            hint="run the same command again; if it fails again, check the disk",
        ) from error
