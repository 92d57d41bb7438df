"""The Parquet file that unpack writes: a row for each sequence, a row group for each group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.errors import OptionError, quote
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.exports.arrow_tables import (
    list_values,
    make_lists,
    make_table,
    make_values,
)
from seqpack_cli.shards.exports.parquet_files import import_pyarrow, open_parquet
from seqpack_cli.shards.exports.parquet_marks import make_kind
from seqpack_cli.shards.shard_columns import Columns
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.unpacked import UnpackedSequence

PARQUET = make_kind("unpack")
Group = tuple[Sequence[UnpackedSequence], Sequence[str] | None]  # sequences, and their texts


def write_parquet(
    shards: ShardSet, groups: Iterator[Group], write: Callable[[bytes], object]
) -> None:
    """Write sequences with their columns beside `index`, and `ids` or `text`.

    Raises:
        MachineError: pyarrow is not installed.
        OptionError: a column has one of these names.
    """
    pa = import_pyarrow(shards.path)
    made = (_make_table(pa, shards.columns, *group) for group in groups)
    first = next(made)
    _check_names(shards, first)
    with open_parquet(write, first.schema) as file:
        for table in chain([first], made):
            file.write(table)
        file.mark("unpack", {"format": "seqpack.unpack", "num_rows": file.num_rows})


def _check_names(shards: ShardSet, table: Any) -> None:
    twice = [name for name in shards.columns if table.column_names.count(name) > 1]
    if twice:
        raise OptionError(
            f"{shards.path}: column {quote(twice[0])} has the name of one that unpack makes",
            hint="pass --format jsonl",
        )


def _make_table(
    pa: Any, columns: Columns, rows: Sequence[UnpackedSequence], texts: Sequence[str] | None
) -> Any:
    offsets = pa.array(to_offsets([len(row.ids) for row in rows]).astype(np.int32))
    arrays = [("index", pa.array([row.index for row in rows], pa.int64()))]
    if texts is None:
        ids = np.concatenate([row.ids for row in rows]).astype(np.int32)
        arrays.append(("ids", make_lists(pa, ids, offsets)))
    else:
        arrays.append(("text", pa.array(texts, pa.large_string())))
    for name, column in columns.items():
        values = [row.columns[name] for row in rows]
        if column.is_per_token:
            flat = make_values(pa, column, list(chain.from_iterable(values)))
            arrays.append((name, list_values(pa, flat, offsets)))
        else:
            arrays.append((name, make_values(pa, column, values)))
    return make_table(pa, arrays)
