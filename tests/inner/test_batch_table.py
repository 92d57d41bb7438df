"""Equal batches counted together, compared with the same batches one by one."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.batching.batch_table import BatchTable

NAMES = [column.name for column in fields(BatchTable)]
MAY_BE_EMPTY = ("index", "shortest", "num_later_pieces", "num_split_sequences")


@st.composite
def draw_table(draw: st.DrawFn) -> BatchTable:
    counts = draw(st.lists(st.integers(1, 4), max_size=6))
    places = np.arange(len(counts))
    columns = {name: places + 10 * number for number, name in enumerate(NAMES)}
    for name in draw(st.sets(st.sampled_from(MAY_BE_EMPTY))):
        columns[name] = np.empty(0, np.int64)
    fillers = draw(st.lists(st.integers(0, 2), min_size=len(counts), max_size=len(counts)))
    rows = draw(st.lists(st.integers(3, 9), min_size=len(counts), max_size=len(counts)))
    columns |= {"counts": np.array(counts), "num_filler_rows": np.array(fillers)}
    columns |= {"num_rows": np.array(rows)}
    return BatchTable(**{name: column.astype(np.int64) for name, column in columns.items()})


def list_batches(table: BatchTable) -> list[dict[str, int]]:
    """Return the numbers of each batch, without the counts of equal ones."""
    batches = []
    for place, count in enumerate(table.counts.tolist()):
        first = {name: column.tolist()[place] for name, column in list_columns(table).items()}
        num_real_rows = first["num_rows"] - first["num_filler_rows"]
        for number in range(count):
            batch = {**first, "counts": 1, "starts": first["starts"] + number * num_real_rows}
            if "index" in batch:
                batch["index"] += number
            batches.append(batch)
    return batches


def list_columns(table: BatchTable) -> dict[str, np.ndarray]:
    columns = {name: getattr(table, name) for name in NAMES}
    return {name: column for name, column in columns.items() if len(column)}


@given(draw_table())
def test_expand_gives_every_batch_a_row(table: BatchTable) -> None:
    expanded = table.expand()
    assert list_batches(expanded) == list_batches(table)
    assert expanded.counts.tolist() == [1] * table.num_batches
    assert {getattr(expanded, name).dtype for name in NAMES} == {np.dtype(np.int64)}


@given(draw_table(), st.data())
def test_cut_gives_the_batches_between(table: BatchTable, data: st.DataObject) -> None:
    batches = list_batches(table)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(batches)), min_size=2, max_size=6)))
    pieces = table.cut(cuts)
    assert [list_batches(piece) for piece in pieces] == [
        batches[first:last] for first, last in pairwise(cuts)
    ]
    assert all((piece.counts > 0).all() for piece in pieces)


@given(draw_table(), st.data())
def test_take_keeps_rows_given_as_places_or_bool(table: BatchTable, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table)))
    mask = np.array(kept, bool)
    found = [table.take(mask), table.take(np.flatnonzero(mask))]
    expected = [
        batch
        for place, is_kept in enumerate(kept)
        if is_kept
        for batch in list_batches(table.take(slice(place, place + 1)))
    ]
    assert [list_batches(some) for some in found] == [expected] * 2


@given(draw_table())
def test_join_concatenates_tables(table: BatchTable) -> None:
    joined = BatchTable.join([table, BatchTable.join([]), table])
    assert list_batches(joined) == list_batches(table) * 2
    assert len(BatchTable.join([])) == BatchTable.join([]).num_batches == 0
    assert {getattr(joined, name).dtype for name in NAMES} == {np.dtype(np.int64)}


@given(draw_table())
def test_sums_count_every_batch(table: BatchTable) -> None:
    batches = list_batches(table)
    assert table.num_batches == len(batches)
    assert table.add_up(table.num_tokens) == sum(batch["num_tokens"] for batch in batches)
    begun = sum(
        batch["num_rows"] - batch["num_filler_rows"] - batch.get("num_later_pieces", 0)
        for batch in batches
    )
    assert table.add_up(table.num_sequences) == begun
    split = sum(batch.get("num_split_sequences", 0) for batch in batches)
    assert table.add_up(table.num_split_sequences) == split


@given(st.lists(st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=4), max_size=5))
def test_of_batches_counts_rows_and_tokens(batches: list[list[int]]) -> None:
    lengths = np.array([length for batch in batches for length in batch], np.int32)
    offsets = np.cumsum([0, *map(len, batches)])
    table = BatchTable.of_batches(lengths, offsets)
    assert table.starts.tolist() == offsets[:-1].tolist()
    assert table.num_rows.tolist() == list(map(len, batches))
    assert table.num_tokens.tolist() == table.num_cells.tolist() == list(map(sum, batches))
    assert table.longest.tolist() == list(map(max, batches))
    assert table.counts.tolist() == [1] * len(batches)
    assert table.num_filler_rows.tolist() == [0] * len(batches)


def test_padding_is_what_cells_have_beside_tokens() -> None:
    table = BatchTable.of_batches(np.array([4, 2, 1]), np.array([0, 2, 3]))
    table = replace(
        table, num_cells=np.array([8, 4]), num_rows=np.array([2, 4]), counts=np.array([1, 2])
    )
    assert table.widths.tolist() == [4, 1]
    assert table.padding_ratios.tolist() == [0.25, 0.75]
    assert table.padding_ratio == 1 - 8 / 16
