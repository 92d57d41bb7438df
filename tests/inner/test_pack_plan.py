"""The plan of a store, the size of its batches on disk, and where shards are cut."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from batching_reference import Parts
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import LENGTHS, make_shards, make_store, make_texts

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import BatchTable, Plan, plan_batches
from seqpack_cli.errors import DataError, MachineError, OptionError
from seqpack_cli.shards.manifest import find_geometry
from seqpack_cli.shards.pack_plan import (
    check_memory,
    count_bytes,
    cut_shards,
    plan_store,
)
from seqpack_cli.shards.selection import Selection
from seqpack_cli.shards.shard import ARRAYS
from seqpack_cli.tokens.store import open_store

IDS: Any = SimpleNamespace(dtype="uint16", columns={})
WIDE_IDS: Any = SimpleNamespace(dtype="int32", columns={})
OPTIONS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3},
    "padded": {"layout": "padded", "batch_size": 3, "pad_to_multiple": 4},
    "filler": {"layout": "padded", "batch_size": 3, "last_batch": "pad"},
    "varlen": {"layout": "varlen", "max_tokens": 12},
    "varlen split": {"layout": "varlen", "max_tokens": 4},
}


def plan_of(lengths: list[int], **options: Any) -> tuple[BatchTable, PackOptions]:
    resolved = PackOptions(**options).resolve()
    return plan_batches(Parts([lengths]), resolved).table, resolved


@pytest.mark.parametrize("values", OPTIONS.values(), ids=OPTIONS)
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_count_bytes_is_what_the_arrays_of_a_shard_take(
    values: dict[str, Any], lengths: list[int]
) -> None:
    options, source = PackOptions(**values).resolve(), Parts([lengths])
    plan = plan_batches(source, options)
    (rows,) = plan.cut([0, plan.num_batches])
    tensors = ARRAYS[options.layout]({}, find_geometry(options)).make_tensors(rows.find(source))
    num_cells, table = np.diff(tensors["data_offsets"]), plan.table.expand()
    assert table.num_cells.tolist() == num_cells.tolist()
    for itemsize, ids in ((2, IDS), (4, WIDE_IDS)):
        num_bytes = sum(array.nbytes for array in tensors.values())
        num_bytes += int(num_cells.sum()) * itemsize
        num_bytes -= 8 * sum(name.endswith("_offsets") for name in tensors)  # one more each
        counted = count_bytes(table, options, [ids])
        assert len(counted) == plan.num_batches
        missed = num_bytes - int(counted.sum())
        fillers = tensors.get("num_filler_rows")  # may be left out
        assert 0 <= missed <= (0 if fillers is None else fillers.nbytes)


@pytest.mark.parametrize("values", OPTIONS.values(), ids=OPTIONS)
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    shard_bytes=st.integers(1, 2500),
)
def test_cut_shards_fills_each_as_far_as_it_goes(
    values: dict[str, Any], lengths: list[int], shard_bytes: int
) -> None:
    table, options = plan_of(lengths, shard_bytes=shard_bytes, **values)
    sizes = count_bytes(table.expand(), options, [IDS])
    cuts = cut_shards(table, count_bytes(table, options, [IDS]), shard_bytes)
    assert cut_shards(table.expand(), sizes, shard_bytes) == cuts
    assert (cuts[0], cuts[-1]) == (0, table.num_batches)
    for first, last in pairwise(cuts):
        assert last > first
        assert last == first + 1 or sum(sizes[first:last]) <= shard_bytes
        assert last == table.num_batches or sum(sizes[first : last + 1]) > shard_bytes


def test_count_bytes_does_not_wrap_around() -> None:
    table, _ = plan_of([2**31 - 1] * 5, layout="padded", batch_size=5)
    assert table.num_cells.tolist() == [5 * (2**31 - 1)]
    assert count_bytes(table, PackOptions("padded"), [WIDE_IDS])[0] > 20 * (2**31 - 1)
    table, _ = plan_of([2**31 - 1] * 5, batch_size=5)
    assert table.num_cells.tolist() == [5 * (2**31 - 1)]
    assert count_bytes(table, PackOptions("packed"), [IDS])[0] > 10 * (2**31 - 1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("plan"), make_texts(LENGTHS))


def plan_opened(path: Path, **values: Any) -> Plan:
    options = PackOptions(**values).resolve()
    return plan_store(Selection(open_store(path), options), options)


def test_plan_store_holds_sequences_only_where_it_has_to(store: Path) -> None:
    opened = open_store(store)
    options = PackOptions(window=3).resolve()
    plan_store(Selection(opened, options), options)
    assert "lengths" not in vars(opened)


@pytest.mark.parametrize(
    ("values", "option", "limit"),
    [
        ({"max_tokens": 11}, "--max-tokens", 11),
        ({"layout": "padded", "max_tokens": 11}, "--max-tokens", 11),
        ({"layout": "varlen", "max_tokens": 5, "overflow": "error"}, "--max-tokens", 5),
        (
            {"layout": "padded", "buckets": (4, 8), "batch_size": 3, "overflow": "error"},
            "--buckets",
            8,
        ),
    ],
    ids=str,
)
def test_plan_store_names_the_place_of_a_sequence_that_is_too_long(
    store: Path, values: dict[str, Any], option: str, limit: int
) -> None:
    cure = "add a bucket of" if option == "--buckets" else f"pass {option}"
    is_varlen = values.get("layout") == "varlen"
    splitting = "--overflow split" if is_varlen else f"tokenize --max-length {limit}"
    with pytest.raises(OptionError) as caught:
        plan_opened(store, **values)
    assert str(caught.value) == (
        f"{store}: sequence 5 ({store.parent / 'corpus.txt'}:6) has 12 tokens, "
        f"{option} allows {limit}\n\n"
        f"hint: {cure} 12, drop longer ones with --overflow drop, or split them with {splitting}"
    )


def test_a_sequence_of_several_stores_is_named_by_its_index_over_all(
    store: Path, tmp_path: Path
) -> None:
    other = make_store(tmp_path / "other", ["x", "y"])
    source = Selection(open_store([other, store]), PackOptions(max_tokens=8).resolve())
    place = f"sequence 7 ({store}: {store.parent / 'corpus.txt'}:6) has 12 tokens"
    with pytest.raises(OptionError, match=re.escape(f"{other}, {store}: {place}")):
        plan_store(source, source.options)


def test_plan_store_hints_at_the_values_of_its_store(store: Path) -> None:
    with pytest.raises(DataError) as caught:
        plan_opened(store, where=["@length > 99"])
    hint = f"leave out a --where, or look at the values: seqpack inspect {store}"
    assert caught.value.hint == hint


def test_plan_store_hints_at_a_budget_that_suffices(store: Path) -> None:
    values = {"layout": "padded", "pad_to_multiple": 8}
    with pytest.raises(OptionError, match="--max-tokens allows 8") as caught:
        plan_opened(store, max_tokens=15, **values)
    assert caught.value.hint is not None
    hinted = int(caught.value.hint.split("pass --max-tokens ")[1].split(",")[0])
    plan_opened(store, max_tokens=hinted, **values)


@pytest.mark.parametrize("values", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("shard_bytes", [1500, 2000, 9_999, 10_001])
def test_the_data_of_no_file_is_larger_than_shard_bytes(
    tmp_path: Path, values: dict[str, Any], shard_bytes: int
) -> None:
    lengths = [1 + number * 7 % 12 for number in range(400)]
    path = make_shards(
        tmp_path, lengths, **{"batch_size": None, **values, "shard_bytes": shard_bytes}
    )
    files = [file.read_bytes() for file in sorted(path.glob("*.safetensors"))]
    sizes = [len(data) - 8 - int.from_bytes(data[:8], "little") for data in files]
    assert len(sizes) > 1
    assert max(sizes) <= shard_bytes + 8 * 3  # the last entry of each array of offsets
    assert min(sizes[:-1]) > shard_bytes - 300  # a batch takes less


def test_batch_above_the_memory_of_the_machine_is_refused() -> None:
    table, options = plan_of([1])
    check_memory(table, count_bytes(table, options, [IDS]))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    with pytest.raises(MachineError) as caught:
        table = replace(table, num_cells=np.array([10**15]))
        check_memory(table, count_bytes(table, options, [IDS]))
    assert caught.value.message == (
        f"the largest batch takes 2,000,000.0 GB, this machine has {memory:,.1f} GB of memory"
    )
    assert caught.value.hint == (
        "pass a smaller --batch-size or --max-tokens, or drop long sequences with --drop-longer"
    )
