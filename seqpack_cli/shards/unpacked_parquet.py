"""The Parquet file that unpack writes: a row for each sequence, a row group for each group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.errors import OptionError, quote
from seqpack_cli.files.places import Place
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.arrays import Columns
from seqpack_cli.shards.exports.arrow_tables import (
    list_values,
    make_lists,
    make_table,
    make_values,
)
from seqpack_cli.shards.exports.parquet_files import import_pyarrow, open_parquet
from seqpack_cli.shards.exports.parquet_marks import make_kind
from seqpack_cli.shards.manifest import PREFIX
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.unpacked import UnpackedSequence
from seqpack_cli.shards.unpacked_lines import Group

PARQUET = make_kind("unpack")


def write_parquet(
    sides: Sequence[ShardSet], groups: Iterator[Sequence[Group]], write: Callable[[bytes], object]
) -> None:
    """Write sequences with their columns beside `index`, and `ids` or `text`.

    Of pairs, the columns of the decoder's side follow those of the encoder's, with a prefix.

    Args:
        groups: the sequences of each side.

    Raises:
        MachineError: pyarrow is not installed.
        OptionError: a column has one of these names.
    """
    pa = import_pyarrow(sides[0].path)
    made = (_make_table(pa, sides, group) for group in groups)
    first = next(made)
    _check_names(sides[0].path, first)
    with open_parquet(write, first.schema) as file:
        for table in chain([first], made):
            file.write(table)
        file.mark("unpack", {"format": "seqpack.unpack", "num_rows": file.num_rows})


def _check_names(path: Place, table: Any) -> None:
    names = table.column_names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise OptionError(
            f"{path}: column {quote(twice[0])} has the name of one that unpack makes",
            hint="pass --format jsonl",
        )


def _make_table(pa: Any, sides: Sequence[ShardSet], group: Sequence[Group]) -> Any:
    arrays = list[tuple[str, Any]]()
    found = [_make_arrays(pa, side.columns, *each) for side, each in zip(sides, group, strict=True)]
    for prefix, made in zip(("", PREFIX), found, strict=False):
        arrays += [(f"{prefix}{name}", array) for name, array in made]
    return make_table(pa, arrays)


def _make_arrays(
    pa: Any, columns: Columns, rows: Sequence[UnpackedSequence], texts: Sequence[str] | None
) -> list[tuple[str, Any]]:
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
    return arrays
