"""Opened shards: they return the batches of the store, and never hostile data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from here import HERE
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import (
    LENGTHS,
    change_manifest,
    flip_byte,
    make_shards,
    make_store,
    mend_manifest,
    to_arrays,
)

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.shards.shared_rows import VarlenBatch
from seqpack_cli.tokens.store import open_store

SHARD = "shard-00000.safetensors"
BATCHES = [[5, 1, 2], [4, 0, 6], [3]]  # LENGTHS, longest first, three rows at a time


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("shard_bytes", [1, 1 << 20])
def test_shard_set_gives_the_batches_of_the_store(
    tmp_path: Path, layout: str, shard_bytes: int
) -> None:
    shards = open_shards(make_shards(tmp_path, layout=layout, shard_bytes=shard_bytes))
    store = open_store(tmp_path / "store")
    assert len(shards) == 3
    assert shards.num_shards == (3 if shard_bytes == 1 else 1)
    assert len(list(shards)) == 3
    for batch, indices in zip(shards, BATCHES, strict=True):
        assert batch.original_indices is not None
        assert batch.original_indices.tolist() == indices
        assert batch.lengths.tolist() == [LENGTHS[index] for index in indices]
        for row, index in zip(batch.rows(), indices, strict=True):
            assert row.tolist() == store[index].tolist()


def test_shard_set_finds_batches_and_refuses_others(tmp_path: Path) -> None:
    shards = open_shards(make_shards(tmp_path, shard_bytes=304))
    assert [shards.find(index) for index in range(3)] == [(0, 0), (1, 0), (1, 1)]
    for index in (-4, 3):
        with pytest.raises(IndexError, match=f"^batch {index} of 3$"):
            shards[index]
    shard = shards.open_shard(1)
    assert shards.open_shard(1) is shard
    with pytest.raises(IndexError, match=r"^batch 2 of 2$"):
        shard[2]


def test_shard_row_counts_through_the_shard(tmp_path: Path) -> None:
    for layout in ("packed", "padded"):
        shard = open_shards(make_shards(tmp_path / layout, layout=layout)).open_shard(0)
        store = open_store(tmp_path / layout / "store")
        found = [shard.row(position).tolist() for position in range(len(LENGTHS))]
        assert found == [store[index].tolist() for batch in BATCHES for index in batch]


FILLER = {"layout": "padded", "last_batch": "pad"}
LEFT = {**FILLER, "padding_side": "left"}
# Sequences 1 and 5, of 9 and 12 tokens, are in two pieces.
VARLEN = {"layout": "varlen", "max_tokens": 8, "fill": "sequential"}


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_shard_set_gives_filler_rows_and_the_padding_side(
    tmp_path: Path, padding_side: str
) -> None:
    path = make_shards(tmp_path, **{**FILLER, "padding_side": padding_side})
    shards, store = open_shards(path), open_store(tmp_path / "store")
    for batch, indices in zip(shards, BATCHES, strict=True):
        assert isinstance(batch, PaddedBatch)
        assert batch.padding_side == padding_side
        assert batch.num_filler_rows == 3 - len(indices)
        assert batch.original_indices is not None
        assert batch.original_indices.tolist() == [*indices, *[-1] * batch.num_filler_rows]
        for row, ids, index in zip(batch.mask, batch.ids, indices, strict=False):
            assert ids[row].tolist() == store[index].tolist()
            assert row[-1 if padding_side == "left" else 0]
    shard = shards.open_shard(0)
    found = [shard.row(position).tolist() for position in range(9)]
    expected = [store[index].tolist() for batch in BATCHES for index in batch]
    assert found == [*expected, [], []]


def test_shard_set_gives_the_pieces_of_varlen_rows(tmp_path: Path) -> None:
    path = make_shards(tmp_path, **VARLEN, shuffle=False)
    shards, store = open_shards(path), open_store(tmp_path / "store")
    found = []
    for batch in shards:
        assert isinstance(batch, VarlenBatch)
        assert batch.original_indices is not None
        assert batch.piece_starts is not None
        pieces = zip(batch.original_indices, batch.piece_starts, batch.rows(), strict=True)
        for index, start, row in pieces:
            assert row.tolist() == store[index].tolist()[start : start + len(row)]
            found.append((int(index), int(start), len(row)))
        assert len(batch.data) <= 8
    assert found == [
        (0, 0, 3),
        (1, 0, 8),
        (1, 8, 1),
        (2, 0, 5),
        (3, 0, 1),
        (4, 0, 5),
        (5, 0, 8),
        (5, 8, 4),
        (6, 0, 2),
    ]


def test_shard_with_filler_needs_the_option(tmp_path: Path) -> None:
    path = make_shards(tmp_path, **FILLER)
    change_manifest(path, lambda manifest: manifest["options"].update(last_batch="keep"))
    with pytest.raises(FolderError, match="num_filler_rows is int64, expected no such array"):
        open_shards(path)[0]


def test_shard_without_filler_is_refused_where_the_options_promise_it(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="padded")
    change_manifest(path, lambda manifest: manifest["options"].update(last_batch="pad"))
    with pytest.raises(FolderError, match="num_filler_rows is missing, expected int64"):
        open_shards(path)[0]


def test_padding_side_of_the_manifest_decides_where_padding_is(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="padded")
    change_manifest(path, lambda manifest: manifest.update(padding_side="left"))
    with pytest.raises(FolderError, match=r"batch 0: cell \[1, \d+\] is padding and holds \d+"):
        open_shards(path)[0]


def test_shard_of_another_store_is_refused(tmp_path: Path) -> None:
    path = make_shards(tmp_path / "a", layout="packed")
    other = make_shards(tmp_path / "b", layout="packed", seed=1)
    (path / SHARD).write_bytes((other / SHARD).read_bytes())
    mend_manifest(path)
    with pytest.raises(FolderError, match=r"stores_blake3 is '\w+…, manifest says '\w+…$"):
        open_shards(path)[0]
    padded = make_shards(tmp_path / "c", layout="padded")
    change_manifest(padded, lambda manifest: manifest.update(layout="packed"))
    with pytest.raises(FolderError, match="batch_sizes is missing, expected int64"):
        open_shards(padded)[0]


@pytest.mark.parametrize("name", ["num_batches", "num_rows"])
def test_shard_of_other_counts_is_refused(tmp_path: Path, name: str) -> None:
    path = make_shards(tmp_path)
    found = {"num_batches": 3, "num_rows": 7}[name]
    mend_manifest(path, **{name: found - 1})
    message = f"{path / SHARD}: {name} is {found}, manifest says {found - 1}"
    with pytest.raises(FolderError) as caught:
        open_shards(path)[0]
    assert str(caught.value) == message


def test_fingerprint_is_of_every_shard(tmp_path: Path) -> None:
    first = open_shards(make_shards(tmp_path, shard_bytes=1))
    pack(
        tmp_path / "store",
        tmp_path / "other",
        PackOptions(drop_shorter=2, batch_size=3, shard_bytes=1),
        executor=HERE,
    )
    other = open_shards(tmp_path / "other")
    digests = [
        [entry["blake3"] for entry in shards.manifest["shards"]] for shards in (first, other)
    ]
    assert digests[0][:2] == digests[1]  # the third held the row of one token
    assert first.fingerprint != other.fingerprint


def test_open_shards_refuses_other_folders(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no such folder"):
        open_shards(tmp_path / "nowhere")
    with pytest.raises(FolderError, match=r"no manifest.json, expected a token store or shards"):
        open_shards(tmp_path)
    store = make_store(tmp_path, ["ab"])
    with pytest.raises(FolderError) as caught:
        open_shards(store)
    assert str(caught.value) == (
        f"{store / 'manifest.json'}: format 'seqpack.tokens', expected 'seqpack.shards'\n\n"
        "hint: this is a token store: run seqpack pack on it first"
    )


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_damaged_shard_gives_valid_batches_or_a_folder_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["packed", "padded", "filler", "left", "varlen"]))
    path = tmp_path_factory.getbasetemp() / f"fuzz_{name}" / "shards"
    if not path.exists():
        options = {"filler": FILLER, "left": LEFT, "varlen": VARLEN}
        make_shards(path.parent, **options.get(name, {"layout": name}))
        (path.parent / "good").write_bytes((path / SHARD).read_bytes())
    raw = bytearray((path.parent / "good").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    (path / SHARD).write_bytes(raw)
    try:
        for batch in open_shards(path):
            assert_valid(batch)
    except FolderError:
        pass


def assert_valid(batch: Any) -> None:
    """Assert what torch relies on, in the slow way."""
    lengths = batch.lengths.tolist()
    arrays = to_arrays(batch)
    if isinstance(batch, PaddedBatch) and batch.num_filler_rows:
        kept = len(lengths) - batch.num_filler_rows
        assert set(lengths[kept:]) == {0}
        assert not batch.mask[kept:].any()
        lengths = lengths[:kept]
    assert min(lengths) >= 1
    if isinstance(batch, VarlenBatch):
        assert batch.cu_seqlens.tolist()[-1] == sum(lengths) == len(batch.data)
        return
    assert lengths == sorted(lengths, reverse=True)
    assert all(0 <= id_ <= 258 for id_ in arrays["data"].tolist())
    if "batch_sizes" in arrays:
        expected = [sum(length > step for length in lengths) for step in range(lengths[0])]
        assert arrays["batch_sizes"].tolist() == expected
        assert len(arrays["data"]) == sum(lengths)
    else:
        assert len(arrays["data"]) == len(batch.lengths) * int(arrays["widths"][0])


def test_shard_checksum_is_checked_when_asked_for(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    shards: ShardSet = open_shards(path)
    shards.open_shard(0).check_digest()
    flip_byte(path / SHARD, -2)
    with pytest.raises(FolderError) as caught:
        open_shards(path).open_shard(0).check_digest()
    assert str(caught.value) == f"{path / SHARD}: blake3 differs from the manifest's"


def test_shards_keep_their_tokenizer(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    assert open_shards(path).read_tokenizer_json() == (path / "tokenizer.json").read_bytes()
    flip_byte(path / "tokenizer.json", 5)
    with pytest.raises(FolderError) as caught:
        open_shards(path).read_tokenizer_json()
    assert str(caught.value) == (f"{path / 'tokenizer.json'}: blake3 differs from the manifest's")
