"""The arrays of whole shards beside batches laid out one by one from single sequences."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import Arrays, join_batches, lay_out, make_store, make_texts

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import ShardRows, plan_batches
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards import time_steps
from seqpack_cli.shards.manifest import find_geometry
from seqpack_cli.shards.pack_shard import fill_cells
from seqpack_cli.shards.shard import ARRAYS
from seqpack_cli.tokens.store import Slices, TokenStore, open_store

LENGTHS = (3, 9, 5, 1, 5, 12, 2, 30, 7, 1, 1, 16, 4, 4, 25, 3, 8, 2)
PAD_ID = 256

OPTIONS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3},
    "packed by tokens": {"max_tokens": 40},
    "packed in the order of the store": {"batch_size": 4, "order": "none"},
    "packed, shuffled, buckets": {"batch_size": 3, "shuffle": True, "buckets": "auto"},
    "padded": {"layout": "padded", "batch_size": 4},
    "padded left": {"layout": "padded", "batch_size": 4, "padding_side": "left"},
    "padded to a multiple": {"layout": "padded", "batch_size": 4, "pad_to_multiple": 8},
    "padded left to a multiple": {
        "layout": "padded",
        "max_tokens": 64,
        "pad_to_multiple": 8,
        "padding_side": "left",
        "window": 5,
    },
    "padded with filler": {"layout": "padded", "batch_size": 5, "last_batch": "pad"},
    "padded, filler in every bucket": {
        "layout": "padded",
        "batch_size": 4,
        "last_batch": "pad",
        "buckets": (2, 8, 32),
        "shuffle": True,
        "seed": 5,
    },
    "padded left with filler": {
        "layout": "padded",
        "max_tokens": 64,
        "last_batch": "pad",
        "buckets": (4, 16, 32),
        "padding_side": "left",
    },
    "no filler though asked for": {"layout": "padded", "batch_size": 9, "last_batch": "pad"},
    "varlen": {"layout": "varlen", "max_tokens": 32},
    "varlen with split pieces": {"layout": "varlen", "max_tokens": 7},
    "varlen in the order of the store": {
        "layout": "varlen",
        "max_tokens": 7,
        "fill": "sequential",
    },
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Make a store of several parts."""
    folder = tmp_path_factory.mktemp("lay_out")
    opened = open_store(make_store(folder, make_texts(LENGTHS), part_bytes=30))
    assert opened.lengths.tolist() == list(LENGTHS)
    assert len(opened.part_offsets) > 4
    return opened


def find_all(store: TokenStore, options: PackOptions) -> ShardRows:
    plan = plan_batches(store, options)
    return plan.cut([0, plan.num_batches])[0].find(store)


def make_fast(store: TokenStore, rows: ShardRows, options: PackOptions) -> Arrays:
    """Return all arrays of a shard as pack makes them."""
    empty = ARRAYS[options.layout]({}, find_geometry(options, pad_id=PAD_ID))
    tensors = empty.make_tensors(rows)
    slices = Slices(rows.indices, rows.lengths.astype(np.int64), rows.piece_starts)
    read = functools.partial(fill_cells, store, slices)
    pieces = empty.with_tensors(tensors).iter_data(read, store.dtype, PAD_ID)
    return {**tensors, "data": np.concatenate(list(pieces))}


def make_slow(store: TokenStore, rows: ShardRows, options: PackOptions) -> Arrays:
    """Return all arrays of a shard, batch by batch and row by row."""
    batches = []
    for number, (first, last) in enumerate(pairwise(rows.batch_offsets.tolist())):
        indices, ids = rows.indices[first:last], []
        starts = np.zeros(last - first, np.int64)
        if rows.piece_starts is not None:
            starts = rows.piece_starts[first:last].astype(np.int64)
        lengths = rows.lengths[first:last]
        for index, start, length in zip(indices, starts, lengths, strict=True):
            ids.append(store[index][start : start + length])
            assert len(ids[-1]) == length
        batches.append(
            lay_out(
                options.layout,
                ids,
                indices,
                pad_id=PAD_ID,
                width=int(rows.num_cells[number] // (last - first + rows.num_filler_rows[number])),
                padding_side=options.padding_side,
                num_filler_rows=int(rows.num_filler_rows[number]),
                piece_starts=starts,
            )
        )
    return join_batches(options.layout, batches, find_geometry(options, pad_id=PAD_ID))


def assert_same(found: Arrays, expected: Arrays) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == (np.uint16 if name == "data" else np.int64), name
        assert found[name].tolist() == array.tolist(), name


@pytest.mark.parametrize("values", OPTIONS.values(), ids=OPTIONS)
def test_shard_is_its_batches_joined(store: TokenStore, values: dict[str, Any]) -> None:
    options = PackOptions(**values).resolve()
    plan = plan_batches(store, options)
    cuts = sorted({0, 1, plan.num_batches // 2, plan.num_batches})
    for first, last in [*pairwise(cuts), (0, plan.num_batches)]:
        rows = plan.cut([first, last])[0].find(store)
        found = make_fast(store, rows, options)
        assert_same(found, make_slow(store, rows, options))
        arrays = ARRAYS[options.layout](found, find_geometry(options, pad_id=PAD_ID))
        arrays.check_offsets()
        arrays.check(max_id=int(found["data"].max()))


@pytest.mark.parametrize("values", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("small", [1, 6])
def test_shard_is_the_same_in_small_pieces(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], small: int
) -> None:
    options = PackOptions(**values).resolve()
    rows = find_all(store, options)
    expected = make_slow(store, rows, options)
    for name in ("ids_per_piece", "entries_in_cache", "ids_per_run", "ids_per_copy"):
        monkeypatch.setattr(LIMITS, name, small)
    for name in ("entries_per_block", "long_range", "longest_window", "ranges_per_length"):
        monkeypatch.setattr(LIMITS, name, small)
    assert_same(make_fast(store, rows, options), expected)


def test_options_of_this_file_make_filler_pieces_and_several_batches(store: TokenStore) -> None:
    found = {
        name: find_all(store, PackOptions(**values).resolve()) for name, values in OPTIONS.items()
    }
    assert all(len(rows.batch_offsets) > 2 for rows in found.values())
    assert {name for name, rows in found.items() if rows.num_filler_rows.any()} == {
        "padded with filler",
        "padded, filler in every bucket",
        "padded left with filler",
    }
    assert {name for name, rows in found.items() if rows.piece_starts is not None} == {
        "varlen with split pieces",
        "varlen in the order of the store",
    }


@st.composite
def draw_rows(draw: st.DrawFn, *, layout: str, with_filler: bool) -> ShardRows:
    """Draw batches of any sequences, some more than once, longest first within each batch."""
    batches = draw(
        st.lists(
            st.lists(st.integers(0, len(LENGTHS) - 1), min_size=1, max_size=6),
            min_size=1,
            max_size=4,
        )
    )
    if layout != "varlen":
        batches = [sorted(batch, key=lambda index: -LENGTHS[index]) for batch in batches]
    lengths = np.array([LENGTHS[index] for batch in batches for index in batch], np.int32)
    starts = None
    if layout == "varlen" and draw(st.booleans()):
        starts = np.array([draw(st.integers(0, length - 1)) for length in lengths], np.int32)
        lengths = np.array([draw(st.integers(1, n)) for n in lengths - starts], np.int32)
    extra = draw(st.lists(st.integers(0, 3), min_size=len(batches), max_size=len(batches)))
    widths = [max(LENGTHS[index] for index in batch) for batch in batches]
    num_filler = np.array(extra[::-1]) * with_filler
    num_cells = (np.array(widths) + np.array(extra)) * (np.array([*map(len, batches)]) + num_filler)
    if layout != "padded":
        offsets = np.cumsum([0, *map(len, batches)])
        num_cells = np.add.reduceat(lengths, offsets[:-1], dtype=np.int64)
    return ShardRows(
        np.array([index for batch in batches for index in batch]),
        lengths,
        np.cumsum([0, *map(len, batches)]),
        num_cells,
        num_filler,
        starts,
    )


@pytest.mark.parametrize(
    ("layout", "values"),
    [
        ("packed", {}),
        ("padded", {}),
        ("padded", {"padding_side": "left"}),
        ("padded", {"last_batch": "pad"}),
        ("padded", {"last_batch": "pad", "padding_side": "left"}),
        ("varlen", {"max_tokens": 99}),
    ],
    ids=str,
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_shard_of_any_rows_is_its_batches_joined(
    store: TokenStore, layout: str, values: dict[str, Any], data: st.DataObject
) -> None:
    options = PackOptions(layout=layout, **values)
    filler = options.last_batch == "pad"
    rows = data.draw(draw_rows(layout=layout, with_filler=filler))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "ids_per_piece", data.draw(st.sampled_from([1, 5, 1 << 16])))
        for name in ("entries_in_cache", "ids_per_run", "ids_per_copy"):
            patch.setattr(LIMITS, name, data.draw(st.sampled_from([1, 4, 2048])))
        patch.setattr(time_steps, "ALIASING", data.draw(st.sampled_from([1, 4, 2048])))
        found = make_fast(store, rows, options)
    assert_same(found, make_slow(store, rows, options))
