"""What was opened stays the same: in another working folder, as a copy, and in another process."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from shard_reference import make_shards

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.shards.pack_run import pack
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.open_store import open_store
from seqpack_cli.training.batch_tensors import PackedTensors
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.training.store_dataset import StoreDataset
from seqpack_cli.training.token_sequences import TokenSequence

OPENERS: dict[str, Callable[..., Any]] = {
    "shards": open_shards,
    "shard dataset": ShardDataset,
    "store": open_store,
    "store dataset": StoreDataset,
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda opened: opened,
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
    "pickle": lambda opened: pickle.loads(pickle.dumps(opened)),  # noqa: S301 - our own
}
SHARD_BYTES = 954  # several shards
REPLACED = "its files were replaced or removed since they were opened"


@pytest.fixture(params=OPENERS)
def open_folder(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return OPENERS[request.param]


@pytest.fixture(params=COPIES)
def copy_of(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return COPIES[request.param]


def find_folder(open_folder: Callable[..., Any], parent: Path) -> Path:
    return parent / ("store" if open_folder in (open_store, StoreDataset) else "shards")


def read(opened: Any) -> list[list[int]]:
    """Return the ids of all items."""
    found = []
    for index in range(len(opened)):
        item = opened[index]
        if isinstance(item, PackedTensors):
            item = item.sequences.data
        elif isinstance(item, PackedBatch):
            item = item.data
        elif isinstance(item, TokenSequence):
            item = item.ids
        found.append(item.tolist())
    return found


def test_what_was_opened_is_found_from_another_working_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_folder: Callable[..., Any],
    copy_of: Callable[[Any], Any],
) -> None:
    for seed, name in enumerate(("here", "there")):
        make_shards(tmp_path / name, shard_bytes=SHARD_BYTES, seed=seed)
    here, there = tmp_path / "here", tmp_path / "there"
    monkeypatch.chdir(here)
    folder = find_folder(open_folder, Path())
    opened = open_folder(folder)
    assert opened.path == folder  # as the caller named it
    monkeypatch.chdir(there)
    again = copy_of(opened)
    assert again.path == here / folder
    expected = read(open_folder(here / folder))
    assert read(again) == expected
    assert read(open_folder(folder)) != expected


def test_working_folder_may_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_folder: Callable[..., Any]
) -> None:
    make_shards(tmp_path, shard_bytes=SHARD_BYTES)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    opened = open_folder(Path("..") / find_folder(open_folder, Path()))
    gone.rmdir()
    assert read(opened) == read(open_folder(find_folder(open_folder, tmp_path)))


def test_replaced_files_are_refused(
    tmp_path: Path, open_folder: Callable[..., Any], copy_of: Callable[[Any], Any]
) -> None:
    for seed, name in enumerate(("old", "new")):
        make_shards(tmp_path / name, shard_bytes=SHARD_BYTES, seed=seed)
    folder = find_folder(open_folder, tmp_path / "old")
    opened = open_folder(folder)
    shutil.rmtree(folder)
    shutil.copytree(find_folder(open_folder, tmp_path / "new"), folder)
    again = copy_of(opened)
    assert again.path == folder
    with pytest.raises(FolderError) as raised:
        again[0]
    assert raised.value.message == f"{folder}: {REPLACED}"
    assert raised.value.hint == "open the folder again"


def test_shards_that_are_mapped_stay_those_that_were_opened(tmp_path: Path) -> None:
    options = {"batch_size": 2, "shard_bytes": SHARD_BYTES}
    shards = make_shards(tmp_path, **options)
    dataset = ShardDataset(shards)
    first, last = len(dataset) - 1, 0
    before = dataset[first].sequences.data.tolist()
    other = PackOptions(shuffle=True, seed=1, **options)
    pack(tmp_path / "store", shards, other, executor=HERE, overwrite=True)
    assert dataset[first].sequences.data.tolist() == before
    with pytest.raises(FolderError, match=REPLACED):
        dataset[last]
    with pytest.raises(FolderError, match=REPLACED):
        copy.copy(dataset)[first]


def test_same_files_written_again_are_the_same(
    tmp_path: Path, open_folder: Callable[..., Any], copy_of: Callable[[Any], Any]
) -> None:
    make_shards(tmp_path, shard_bytes=SHARD_BYTES)
    folder = find_folder(open_folder, tmp_path)
    opened = open_folder(folder)
    shutil.copytree(folder, tmp_path / "again")
    shutil.rmtree(folder)
    (tmp_path / "again").rename(folder)
    assert read(copy_of(opened)) == read(open_folder(folder))


def test_removed_folder_is_named(tmp_path: Path) -> None:
    shards = open_shards(make_shards(tmp_path))
    shutil.rmtree(shards.path)
    with pytest.raises(FolderError, match=REPLACED):
        shards[0]


@pytest.mark.parametrize("opener", ["shards", "store"])
def test_mapped_files_do_not_travel(tmp_path: Path, opener: str) -> None:
    make_shards(tmp_path, [4000])
    opened = OPENERS[opener](tmp_path / opener)
    num_bytes = len(pickle.dumps(opened))
    read(opened)
    if opener == "store":
        assert opened.lengths.tolist() == [4000]
    assert len(pickle.dumps(opened)) < num_bytes + 200
