"""Blocks of sequences and packed rows as tables of Arrow, whose lists share the block's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.shards.exports.packed_rows import Rows
from seqpack_cli.shards.exports.source import Block
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.text_values import TextValues

NO_LABEL = -100  # what losses ignore
MADE = ("input_ids", "attention_mask", "labels")
DOCUMENT = "document"


class SequenceTables:
    """Tables of one row for each sequence.

    Args:
        pa: pyarrow.
        has_documents: add the number of each sequence's document.
    """

    def __init__(self, pa: Any, columns: Mapping[str, Column], *, has_documents: bool) -> None:
        self._pa = pa
        self._columns = {name: each for name, each in columns.items() if name != TARGETS}
        self._has_documents = has_documents
        self.names = (*MADE, DOCUMENT) if has_documents else MADE

    def make(self, block: Block) -> Any:
        """Return the table of a block."""
        pa, offsets = self._pa, self._pa.array(block.offsets.astype(np.int32))
        ids = block.ids.astype(np.int32)
        arrays = {
            "input_ids": make_lists(pa, ids, offsets),
            "attention_mask": make_lists(pa, np.ones(len(ids), np.int8), offsets),
            "labels": make_lists(pa, _make_labels(ids, block.targets), offsets),
        }
        if self._has_documents:
            arrays[DOCUMENT] = pa.array(block.documents)
        for name, column in self._columns.items():
            values = make_values(pa, column, block.columns[name])
            arrays[name] = list_values(pa, values, offsets) if column.is_per_token else values
        return make_table(pa, [*arrays.items()])


class PackedTables:
    """Tables of one row for each row that several sequences share."""

    names = ("input_ids", "labels", "seq_lengths", "position_ids")

    def __init__(self, pa: Any) -> None:
        self._pa = pa

    def make(self, rows: Rows) -> Any:
        """Return the table of some rows."""
        pa, offsets = self._pa, self._pa.array(to_offsets(rows.lengths).astype(np.int32))
        ids = rows.ids.astype(np.int32)
        labels = _make_labels(ids, rows.targets).copy()
        labels[to_offsets(rows.sequence_lengths)[:-1]] = NO_LABEL
        lengths = rows.sequence_lengths
        positions = expand_ranges(np.zeros(len(lengths), np.int64), lengths).astype(np.int32)
        of_sequences = pa.array(to_offsets(rows.num_sequences).astype(np.int32))
        arrays = {
            "input_ids": make_lists(pa, ids, offsets),
            "labels": make_lists(pa, labels, offsets),
            "seq_lengths": make_lists(pa, lengths.astype(np.int32), of_sequences),
            "position_ids": make_lists(pa, positions, offsets),
        }
        return make_table(pa, [*arrays.items()])


def make_table(pa: Any, arrays: Sequence[tuple[str, Any]]) -> Any:
    """Return a table of named columns, none of which has a missing value."""
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays]
    return pa.Table.from_arrays([array for _, array in arrays], schema=pa.schema(fields))


def make_values(pa: Any, column: Column, values: Any) -> Any:
    """Return values of a column: numbers, texts, or the names of classes, null for none.

    Args:
        values: an array, `TextValues`, or a list as `Column.spell` returns it.
    """
    kind = _find_type(pa, column)
    if isinstance(values, TextValues):
        first, last = int(values.offsets[0]), int(values.offsets[-1])
        data = np.ascontiguousarray(values.data[first:last])
        buffers = [None, pa.py_buffer(values.offsets - first), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, len(values), buffers)
    if column.class_names is None or isinstance(values, list):
        return pa.array(values, type=kind)
    places = pa.array(values, mask=values < 0)
    return pa.array(column.class_names, type=kind).take(places)


def _find_type(pa: Any, column: Column) -> Any:
    """Return the type of a column's values."""
    if column.is_text:
        return pa.large_string()
    if column.class_names is None:
        return pa.from_numpy_dtype(column.dtype)
    kinds = set(map(type, column.class_names))
    if kinds <= {str}:
        return pa.string()
    if kinds == {bool}:
        return pa.bool_()
    return pa.int64() if kinds == {int} else pa.float64()


def _make_labels(ids: np.ndarray, targets: np.ndarray | None) -> np.ndarray:
    """Return each id, or NO_LABEL where it is not a target."""
    return ids if targets is None else np.where(targets, ids, np.int32(NO_LABEL))


def make_lists(pa: Any, values: np.ndarray, offsets: Any) -> Any:
    """Return lists of numbers, none of which is missing.

    Args:
        offsets: an array of Arrow, where each list begins; shared by all lists of a table.
    """
    item = pa.field("element", pa.from_numpy_dtype(values.dtype), nullable=False)
    return pa.ListArray.from_arrays(offsets, pa.array(values), type=pa.list_(item))


def list_values(pa: Any, values: Any, offsets: Any) -> Any:
    """Return lists of values, some of which may be missing."""
    item = pa.field("element", values.type)
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(item))
