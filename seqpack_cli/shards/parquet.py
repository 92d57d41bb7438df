"""Tables of Arrow, and the Parquet files of them: what `unpack` and `export` share.

Lists of ids share the memory of the arrays that they are made of. Files are compressed with zstd,
ids without a dictionary: 50 to 70 MB/s of uint16 ids a core, most of it for the places where lists
begin. Every file has a mark in its footer, by which `--overwrite` knows it.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np

from seqpack_cli.errors import MachineError, OptionError, quote
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.outputs import FileKind
from seqpack_cli.files.places import Place
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import TextValues

FOOTER_BYTES = 32 << 20  # about 100 for each column of a row group: 300 million short sequences
# Values at a time, and bytes of a page: with pyarrow's defaults writing takes a fifth more time.
SETTINGS: dict[str, Any] = {"write_batch_size": 1 << 16, "data_page_size": 4 << 20}
SETTINGS |= {"compression": "zstd", "use_dictionary": False}
SETTINGS |= {"write_statistics": False, "store_schema": False}


def import_pyarrow() -> Any:
    """Return pyarrow, with its module `parquet`.

    Raises:
        MachineError: it is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise MachineError(
            "pyarrow is not installed, Parquet needs it", hint="pip install pyarrow"
        ) from error
    return pa


def make_kind(command: str) -> FileKind:
    """Return the kind of Parquet files that a command writes."""
    mark = f"seqpack.{command}".encode()

    def matches(tail: bytes) -> bool:
        if mark not in tail:  # before pyarrow, which some files end
            return False
        pa = import_pyarrow()
        try:
            found = pa.parquet.read_metadata(io.BytesIO(tail)).metadata
        except (pa.ArrowException, OSError):
            return False
        return [*(found or ())] == [mark]  # other programs keep it, and add their own

    name = f"a Parquet file that seqpack {command} wrote"
    return FileKind(name, matches, max_bytes=FOOTER_BYTES, at_end=True)


def write_parquet(
    write: Callable[[bytes], object], tables: Iterator[Any], command: str, about: Mapping[str, Any]
) -> int:
    """Write at least one table to a Parquet file, each as a row group; return the number of rows.

    Args:
        write: called with the bytes of the file, in order.
        command: which writes it, for the mark.
        about: what else the mark says.
    """
    pa = import_pyarrow()
    first, num_rows, name = next(tables), 0, f"seqpack.{command}"
    file = SimpleNamespace(write=write, flush=bool, close=bool, closed=False)
    with pa.parquet.ParquetWriter(file, first.schema, **SETTINGS) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
            num_rows += table.num_rows
        mark = {"format": name, **about, "num_rows": num_rows}
        writer.add_key_value_metadata({name: encode_json(mark)})
    return num_rows


def make_table(
    arrays: Sequence[tuple[str, Any]], path: Place, command: str, *, hint: str = ""
) -> Any:
    """Return a table of named columns, none of which has a missing value.

    Args:
        path, command: what is written, and by which command, for errors.
        hint: what to do if two columns have the same name, which stands for `{}`.

    Raises:
        OptionError: two columns have the same name.
    """
    pa = import_pyarrow()
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays]
    name, number = Counter(name for name, _ in arrays).most_common(1)[0]
    if number > 1:
        what = f"column {quote(name)} has the name of one that {command} makes"
        raise OptionError(f"{path}: {what}", hint=hint.format(name))
    return pa.Table.from_arrays([array for _, array in arrays], schema=pa.schema(fields))


def make_lists(values: Any, offsets: np.ndarray, *, may_miss: bool = False) -> Any:
    """Return lists of values, of which only the values may be missing.

    Args:
        values: an array of numpy or Arrow.
        offsets: where each list begins, and the end of the last.
    """
    pa = import_pyarrow()
    values = pa.array(values) if isinstance(values, np.ndarray) else values
    item = pa.field("element", values.type, nullable=may_miss)
    starts = pa.array(offsets.astype(np.int32))
    return pa.ListArray.from_arrays(starts, values, type=pa.list_(item))


def make_column(column: Column, values: Values, offsets: np.ndarray) -> Any:
    """Return a column of the token stores: classes by their names, null for none.

    Args:
        values: one for each sequence or each token.
        offsets: of the sequences.
    """
    pa = import_pyarrow()
    if isinstance(values, TextValues):
        texts = values.trim()
        buffers = [None, pa.py_buffer(texts.offsets), pa.py_buffer(texts.data)]
        array = pa.Array.from_buffers(pa.large_string(), len(values), buffers)
    elif column.class_names is None:
        array = pa.array(values)
    else:
        names = pa.array(column.class_names or [""])
        array = names.take(pa.array(values, mask=values < 0))
    return make_lists(array, offsets, may_miss=True) if column.is_per_token else array
