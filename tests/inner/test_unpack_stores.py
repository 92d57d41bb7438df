"""Unpack of several stores, splits and passes: each sequence once, as its store has it."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from batching_reference import slow_split, slow_visits
from column_corpus import KEEP, write_records
from command import run
from here import HERE
from hypothesis import given
from hypothesis import strategies as st
from shard_reference import change_shard

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.shards import unpack as unpacked
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.shards.unpack import UnpackedSequence, iter_unpacked
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import TokenStore, open_store
from seqpack_cli.tokens.tokenize_run import tokenize

LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 7},
    "left": {"layout": "padded", "padding_side": "left", "buckets": "auto", "batch_size": 5},
    "filler": {"layout": "padded", "last_batch": "pad", "batch_size": 4, "shuffle": True},
    "pieces": {"layout": "varlen", "max_tokens": 4},
    "rows": {"layout": "varlen", "max_tokens": 9, "fill": "sequential", "shuffle": True},
    "padded rows": {"layout": "varlen", "max_tokens": 12, "batch_size": 3, "align_sequences": 4},
    "chunks": {"layout": "varlen", "max_tokens": 5, "fill": "chunk", "shuffle": True},
    "streams": {"layout": "streams", "max_tokens": 4, "batch_size": 3, "shuffle": True},
}
SHARES = {"train": Fraction("0.7"), "validation": Fraction("0.2"), "test": Fraction("0.1")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three stores of documents in pieces, whose columns have different classes."""
    folder, paths = tmp_path_factory.mktemp("stores"), list[Path]()
    for seed in range(3):
        write_records(folder / f"{seed}.jsonl", seed=seed)
        options = TokenizeOptions(keep=KEEP, max_length=11, part_bytes=2500)
        paths.append(folder / f"store{seed}")
        tokenize([folder / f"{seed}.jsonl"], paths[-1], options, executor=HERE)
    return paths


def expect(
    store: TokenStore, passes: list[Fraction], split: str, seed: int
) -> list[tuple[int, list[int], dict[str, Any]]]:
    """Return the sequences of a split that are visited, document by document."""
    expected = []
    columns = read_columns(store)
    for each, number in zip(store.folders, passes, strict=True):
        documents: dict[int, list[int]] = {}
        for index in range(each.first_sequence, each.first_sequence + each.num_sequences):
            documents.setdefault(store.locate(index).document, []).append(index)
        for indices in documents.values():
            text = b"".join(bytes(store[index].tolist()) for index in indices)
            found = xxhash.xxh3_64_intdigest(text)
            visits = slow_visits(found, number, seed) if split == "train" else 1
            if split == [*SHARES][slow_split(found, [*SHARES.values()], 3)] and visits:
                expected += [(index, store[index].tolist(), columns[index]) for index in indices]
    return expected


def read_columns(store: TokenStore) -> list[dict[str, Any]]:
    """Return the columns of every sequence of some stores."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(store))]
    for name, column in store.columns.items():
        values = [
            v for n in range(store.num_parts) for v in column.spell(store.part_column(n, name))
        ]
        ends = np.cumsum(store.lengths).tolist()
        for row, length, end in zip(rows, store.lengths.tolist(), ends, strict=True):
            row[name] = values[end - length : end] if column.is_per_token else values.pop(0)
    return rows


def unpack(shards: ShardSet) -> list[tuple[int, list[int], dict[str, Any]]]:
    """Return all that is unpacked."""
    found: list[UnpackedSequence] = list(iter_unpacked(shards, shards.columns))
    return [(each.index, each.ids.tolist(), each.columns) for each in found]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unpack_returns_what_stores_splits_and_passes_select(
    stores: list[Path], tmp_path: Path, layout: str
) -> None:
    draw = random.Random(layout)
    seed = draw.randint(0, 99)
    chosen = draw.sample(stores, draw.randint(2, 3))
    passes = [Fraction(draw.choice(["0.4", "1", "2", "2.5", "3.25"])) for _ in chosen]
    named = ",".join(f"{n}={float(number)}" for n, number in enumerate(passes, 1))
    shares = ",".join(f"{name}={float(share)}" for name, share in SHARES.items())
    options = PackOptions(
        **LAYOUTS[layout], passes=named, split=shares, split_seed=3, seed=seed, shard_bytes=9000
    )
    pack(chosen, tmp_path / "out", options, executor=HERE)
    store = open_store(chosen)
    assert len(store.folders) == len(chosen)
    num_rows = num_sequences = 0
    for split in SHARES:
        shards = open_shards(tmp_path / "out" / split)
        expected = expect(store, passes, split, seed)
        assert unpack(shards) == expected
        assert split != "train" or shards.num_shards > 1
        num_rows += shards.manifest["ledger"]["num_sequences"]
        num_sequences += len(expected)
    assert (num_rows > num_sequences) == any(number > 1 for number in passes)


def pack_passes(folder: Path, passes: str, **options: Any) -> Path:
    """Pack two stores of one sequence each, `a` in some passes, `b` in one."""
    for name, text in (("a", "abcdef"), ("b", "abcdxy")):
        (folder / f"{name}.txt").write_text(f"{text}\n")
        tokenize([folder / f"{name}.txt"], folder / name, executor=HERE)
    chosen = PackOptions(layout="varlen", max_tokens=4, passes=passes, **options)
    pack([folder / "a", folder / "b"], folder / "out", chosen, executor=HERE)
    return folder / "out"


def damage(path: Path, name: str, place: tuple[int, int, int], value: int) -> None:
    """Change an entry of the row of a piece: (sequence, first token, turn)."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        index, start, turn = place
        is_row = (arrays["original_indices"] == index) & (arrays["piece_starts"] == start)
        row = np.flatnonzero(is_row)[turn]
        if name == "data":
            row = arrays["lengths"][:row].sum()
        arrays[name][row] = value

    change_shard(path, change)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("original_indices", (1, 0, 0), 0, "pieces of sequence 1 do not follow one another"),
        ("piece_starts", (1, 4, 0), 0, "rows of sequence 1 differ in their ids"),
        ("piece_starts", (0, 4, 1), 3, "rows of sequence 0 differ in their ids"),
        ("piece_starts", (1, 4, 0), 5, "pieces of sequence 1 do not follow one another"),
        ("original_indices", (0, 4, 1), 1, "rows of sequence 1 differ in their ids"),
        ("data", (0, 4, 1), 99, "rows of sequence 0 differ in their ids"),
        ("data", (0, 0, 0), 99, "rows of sequence 0 differ in their ids"),
    ],
)
def test_unpack_refuses_visits_that_differ_and_pieces_that_are_missing(
    tmp_path: Path, name: str, place: tuple[int, int, int], value: int, message: str
) -> None:
    path = pack_passes(tmp_path, "a=2")
    damage(path, name, place, value)
    with pytest.raises(FolderError) as caught:
        list(iter_unpacked(open_shards(path), {}))
    assert str(caught.value) == f"{path}: {message}"


@given(st.data())
def test_visits_that_are_cut_anywhere_are_one_sequence(data: st.DataObject) -> None:
    ids = np.array(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12)), np.uint16)
    num_visits = data.draw(st.integers(1, 4))
    rows = list[tuple[int, int]]()  # start and end
    for _ in range(num_visits):
        cuts = sorted({0, *data.draw(st.sets(st.integers(1, len(ids)))), len(ids)})
        rows += pairwise(cuts)
    rows.sort()
    columns = {"tag": Column("tag", "tags", ()), "label": Column("label", "int")}

    def join(rows: list[tuple[int, int]]) -> unpacked.Block:
        starts, ends = np.array(rows).T
        flat, labels = np.concatenate([ids[slice(*row)] for row in rows]), np.full(len(rows), 7)
        values: dict[str, Values] = {"tag": flat.astype(np.int64), "label": labels}
        block = unpacked.Block(np.full(len(rows), 5), flat, ends - starts, values)
        return unpacked.join_pieces(columns, block, starts)

    found = join(rows)
    assert (found.indices.tolist(), found.ids.tolist()) == ([5], ids.tolist())
    assert found.lengths.tolist() == [len(ids)]
    assert np.asarray(found.columns["tag"]).tolist() == ids.tolist()
    assert np.asarray(found.columns["label"]).tolist() == [7]
    _, end = rows.pop(data.draw(st.integers(0, len(rows) - 1)))
    if num_visits > 1:  # the others have its tokens
        assert join(rows).ids.tolist() == ids.tolist()
    elif end < len(ids):
        with pytest.raises(ValueError, match="pieces of sequence 5"):
            join(rows)


def test_unpack_writes_the_store_of_each_sequence_and_refuses_a_folder_of_splits(
    tmp_path: Path, stores: list[Path]
) -> None:
    out, file = tmp_path / "out", tmp_path / "rows.jsonl"
    options = PackOptions(store_column="from", passes="store1=2", split="train=0.9,test=rest")
    pack(stores[:2], out, options, executor=HERE)
    assert run("unpack", out / "train", "-o", file).exit_code == 0
    rows = file.read_text().splitlines()
    assert {row.split('"from": ')[1][:8] for row in rows} == {'"store0"', '"store1"'}
    result = run("unpack", out, "-o", tmp_path / "all.jsonl")
    assert result.exit_code == 4
    assert str(out) in result.stderr
    assert not (tmp_path / "all.jsonl").exists()
