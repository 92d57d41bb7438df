"""Parquet files as pyarrow and a strict reader of our own read them, with every type."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strict_parquet import read_strictly

from seqpack_cli.errors import OptionError
from seqpack_cli.shards.exports import parquet_chunks
from seqpack_cli.shards.exports.parquet_files import open_parquet
from seqpack_cli.shards.exports.parquet_marks import make_kind

LENGTHS = (1, 7, 300, 2, 9, 70_000, 8)


def write(*tables: pa.Table) -> bytes:
    written = bytearray()
    with open_parquet(written.extend, tables[0].schema) as file:
        for table in tables:
            file.write(table)
        file.mark("export", {"format": "seqpack.export", "num_rows": file.num_rows})
    return bytes(written)


def make(**columns: pa.Array) -> pa.Table:
    fields = [pa.field(name, each.type, nullable=False) for name, each in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def lists(values: Any, *, is_optional: bool = False) -> pa.Array:
    values = pa.array(values)
    ends = np.append(0, np.cumsum(LENGTHS)).astype(np.int32)
    item = pa.field("element", values.type, nullable=is_optional)
    return pa.ListArray.from_arrays(pa.array(ends), values, type=pa.list_(item))


def draw(number: int, low: int, high: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(number).integers(low, high, sum(LENGTHS)).astype(dtype)


COLUMNS = {
    "one value": lists(np.ones(sum(LENGTHS), np.int8)),
    "places of a byte": lists(draw(0, -100, 100, "int32")),
    "places of two bytes": lists(draw(1, -100, 50_000, "int32")),
    "far from zero": lists(draw(1, 2**31 - 9, 2**31, "int32")),
    "plain": lists(draw(2, -(2**31), 2**31, "int32")),
    "plain int8": lists(np.array([-128, 127, *[0] * (sum(LENGTHS) - 2)], np.int8)[::-1].copy()),
    "uint8": lists(draw(3, 0, 2, "uint8")),
    "tags": lists(np.array(["N", "", None, "é"])[draw(4, 0, 4, "int8")], is_optional=True),
    "no tags": lists(pa.nulls(sum(LENGTHS), pa.string()), is_optional=True),
    "all tags": lists(pa.array(["x"] * sum(LENGTHS)), is_optional=True),
    "bool": pa.array([True, False, True, True, True, False, False]),
    "float": pa.array([0.0, -0.0, 1e300, -1.5, 5e-324, 1.0, 2.0]),
    "int64": pa.array([-(2**63), 2**63 - 1, 0, 1, 2, 3, 4]),
    "rising": pa.array(np.arange(2**40, 2**40 + 7)),
    "text": pa.array(["", "a\0b", "雨", "x" * 70_000, "", "a", "b"], pa.large_string()),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_every_type_is_read_back(column: pa.Array) -> None:
    table = make(first=column, second=column)
    written = write(table, table.slice(0).combine_chunks())
    with pq.ParquetFile(io.BytesIO(written), page_checksum_verification=True) as file:
        assert file.metadata.num_row_groups == 2
        found = file.read()
    assert found.cast(table.schema).equals(pa.concat_tables([table, table]))
    assert read_strictly(written) == found.to_pydict()


@pytest.mark.parametrize("num_rows", [*range(1, 18), 300])
def test_files_are_as_the_format_says(num_rows: int) -> None:
    """Groups of 8 values are whole, whatever their number, in every place that has some."""
    rows = np.arange(num_rows)
    item = pa.field("element", pa.string())
    table = make(
        classes=pa.array([f"class {number % 7}" for number in rows]),
        many=pa.array([f"class {number}" for number in rows]),
        score=pa.array(rows / 7),
        is_even=pa.array(rows % 2 == 0),
        place=pa.array(rows + 300),
        ids=pa.array([[number, 7] for number in rows], pa.list_(pa.int32())).cast(
            pa.list_(pa.field("element", pa.int32(), nullable=False))
        ),
        tags=pa.array(([["a"], [None], ["b"]] * num_rows)[:num_rows], pa.list_(item)),
        flags=pa.array(([[True], [None]] * num_rows)[:num_rows], pa.list_(pa.bool_())),
    )
    assert read_strictly(write(table, table)) == {
        name: values * 2 for name, values in table.to_pydict().items()
    }


def test_classes_may_be_many() -> None:
    """Places of one, two and four bytes."""
    for num_classes in (1, 2, 256, 257, 1 << 16, (1 << 16) + 1):
        table = make(label=pa.array([f"class {number}" for number in range(num_classes)]))
        assert pq.read_table(io.BytesIO(write(table))).equals(table), num_classes


def test_equal_columns_are_encoded_once() -> None:
    ids = COLUMNS["places of two bytes"]
    assert len(write(make(a=ids, b=ids))) - len(write(make(a=ids))) > 100_000
    other = lists(draw(7, -100, 50_000, "int32"))
    table = make(a=ids, b=ids, c=other)
    assert pq.read_table(io.BytesIO(write(table))).equals(table)


def test_files_are_known_by_their_mark() -> None:
    written = write(make(a=pa.array([1])))
    assert make_kind("export").matches(written)
    assert not make_kind("unpack").matches(written)
    rewritten = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(written)), rewritten)
    assert b"seqpack.export" in rewritten.getvalue()
    assert not make_kind("export").matches(rewritten.getvalue())
    assert not make_kind("export").matches(b"mine: seqpack.export PAR1")


def test_too_large_a_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_chunks, "MAX_PAGE_BYTES", 1000)
    with pytest.raises(OptionError, match="a page of 1,001 bytes"):
        write(make(a=pa.array(["x" * 997])))


def test_a_table_is_about_as_large_as_was_said() -> None:
    table = make(**COLUMNS)
    with open_parquet(lambda _: None, table.schema) as file:
        bound = file.bound_size(table)
    assert len(write(table)) <= bound
