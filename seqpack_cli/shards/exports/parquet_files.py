"""Write Parquet files with pyarrow, one row group at a time, and read them back.

Lists of numbers are split into the bytes of each significance and compressed with zstd, which is
the smallest and hardly slower than no compression; other columns have dictionaries. A file that
seqpack wrote has a mark in its footer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seqpack_cli.errors import MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.single_file import FileKind
from seqpack_cli.files.url import Place

MARK = "seqpack.export"  # key of the mark in the metadata of a file
MAGIC = b"PAR1"  # the first and last bytes of a file
TAIL_BYTES = 4096  # the mark is at the end of the footer
FOOTER_BYTES = 512  # of each column of a row group; about 100
ROWS_PER_STEP = 1 << 13  # pyarrow's default of 1,024 values is a fifth slower
PARQUET = FileKind(
    "a Parquet file that seqpack wrote",
    lambda tail: tail.endswith(MAGIC) and MARK.encode() in tail,
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
    """An open file as pyarrow writes to it."""

    closed = False

    def __init__(self, file: Any, shown: Place) -> None:
        self._file, self._shown = file, shown
        self.num_bytes = 0
        self.is_lost = False  # an error has ended the file: what comes after it is not written

    def write(self, data: bytes) -> int:
        if not self.is_lost:
            disk.write_all(self._file, data, self._shown)
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
        return int(self._sink.num_bytes + table.nbytes + num_chunks * FOOTER_BYTES + TAIL_BYTES)

    def write(self, table: Any) -> None:
        """Write a table as one row group."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.num_rows += table.num_rows
        self.num_groups += 1

    def mark(self, description: Mapping[str, Any]) -> None:
        """Put the mark of seqpack into the footer, with what describes the file."""
        self._writer.add_key_value_metadata({MARK: encode_json(dict(description)).decode()})


@contextlib.contextmanager
def open_parquet(path: Path, shown: Place, schema: Any) -> Iterator[ParquetWriter]:
    """Write a new local Parquet file; its footer is written when the block ends.

    Args:
        shown: its final name, for errors.

    Raises:
        MachineError: the disk is full or fails.
    """
    pa = import_pyarrow(shown)
    with disk.create_file(path) as file:
        sink = _Sink(file, shown)
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
