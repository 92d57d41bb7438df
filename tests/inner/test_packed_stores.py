"""The token stores of shards: found by the manifest or by digest, each one that is not is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import run
from here import HERE
from shard_reference import make_column_store, make_store, make_texts

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_packed_stores, open_shards, share_places
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.verify_run import verify

RIGHT_ONE = "pass the right one with --tokens STORE, or pack again"


def make_several(folder: Path, *names: str) -> Path:
    """Make a store of each name, and shards of all of them with a column of the store."""
    stores = []
    for number, name in enumerate(names):
        texts = make_texts([5, 3, 9, number + 1], number)
        stores.append(make_store(folder / "made", texts).rename(folder / name))
        shutil.rmtree(folder / "made")
    options = PackOptions(batch_size=3, store_column="source")
    pack(stores, folder / "shards", options, executor=HERE)
    return folder / "shards"


def test_column_of_stores_takes_the_name_of_a_dropped_column(tmp_path: Path) -> None:
    store = make_column_store(tmp_path, make_texts([5, 3, 9], 0))
    taken = "label"
    options = PackOptions(store_column=taken, drop_column=[taken])
    pack(store, tmp_path / "shards", options, executor=HERE)
    assert open_shards(tmp_path / "shards").columns[taken].class_names == (store.name,)
    assert verify(tmp_path / "shards", VerifyOptions(level="roundtrip")).findings == []


def refuse(path: Path, *tokens: Path) -> FolderError:
    shards = open_shards(path)
    with pytest.raises(FolderError) as caught:
        open_packed_stores(shards, *share_places(shards, tokens))
    return caught.value


def test_missing_store_is_named(tmp_path: Path) -> None:
    path = make_several(tmp_path, "a", "b", "c")
    (tmp_path / "b").rename(tmp_path / "moved")
    error = refuse(path)
    assert error.message == f"{path}: its token store is not at ../b"
    assert error.hint == "pass --tokens STORE, or --level structure, which needs no store"
    assert refuse(path, tmp_path / "a").message == error.message
    found = open_packed_stores(open_shards(path), [tmp_path / "moved"])  # the others are found
    assert [store.path.name for store in found.folders] == ["a", "moved", "c"]


def test_store_that_was_replaced_is_named(tmp_path: Path) -> None:
    path = make_several(tmp_path, "a", "b")
    shutil.rmtree(tmp_path / "b")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    error = refuse(path)
    what = "not a token store that these shards were packed from"
    assert (error.message, error.hint) == (f"{tmp_path / 'b'}: {what}", RIGHT_ONE)


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_store_of_other_shards_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    path, other = make_several(tmp_path, *names), make_store(tmp_path / "x", ["other"])
    error = refuse(path, other)
    what = "not a token store that these shards were packed from"
    assert (error.message, error.hint) == (f"{other}: {what}", RIGHT_ONE)


def test_stores_are_named_in_any_order_wherever_they_are(tmp_path: Path) -> None:
    """The classes of a store column are the names that pack recorded."""
    path = make_several(tmp_path, "a", "b")
    moved = [(tmp_path / name).rename(tmp_path / f"new_{name}") for name in "ab"]
    report = verify(path, VerifyOptions(tokens=moved[::-1], level="roundtrip"))
    assert report.findings == []
    assert report.columns == ["source"]
    args = [arg for place in moved for arg in ("--tokens", place)]
    assert run("verify", path, "--level", "roundtrip", *args).exit_code == 0
    one = run("verify", path, "--level", "roundtrip", "--tokens", moved[0])
    assert one.exit_code == 4
    assert f"{path}: its token store is not at ../b" in one.stderr.replace("\n", " ")
