"""The folders of splits: nothing outside the output, no link and no other run is removed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from reference import change_json

from seqpack_cli import PackOptions, TokenizeOptions, pack, tokenize
from seqpack_cli.errors import FolderError
from seqpack_cli.runs.run_folder import find_splits
from seqpack_cli.shards.split_manifest import open_splits


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("".join(f"document {number}\n" for number in range(20)))
    tokenize([str(tmp_path / "a.txt")], tmp_path / "store", TokenizeOptions(), executor=HERE)
    return tmp_path / "store"


def split(store: Path, output: Path, names: str = "train=0.5,test=0.5", *, seed: int = 0) -> None:
    packing = PackOptions(split=names, split_seed=seed)
    pack(store, output, packing, executor=HERE, overwrite=output.exists())


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("file", ["manifest.json", "plan.json"])
def test_a_manifest_that_names_a_folder_elsewhere_has_no_effect(
    store: Path, tmp_path: Path, file: str
) -> None:
    pack(store, tmp_path / "others", executor=HERE)
    before = list_files(tmp_path / "others")
    split(store, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").rename(tmp_path / "out" / file)
    strange = {"name": "../others"}, [str(tmp_path / "others"), "../others", ".."]

    def forge(found: dict[str, Any]) -> None:
        found["splits"][0], found["replaced"] = strange

    change_json(tmp_path / "out" / file, forge)
    assert find_splits(tmp_path / "out") == ["test"]
    with pytest.raises(FolderError, match=r"holds train, which no pack --split wrote"):
        split(store, tmp_path / "out")
    split_again = "dev=0.5,test=0.5"
    split(store, tmp_path / "out", split_again)
    assert list_files(tmp_path / "others") == before


@pytest.mark.parametrize("names", ["train=0.4,test=0.6", "dev=0.5,test=0.5"])
def test_a_link_in_the_place_of_a_split_is_refused_before_anything_changes(
    store: Path, tmp_path: Path, names: str
) -> None:
    pack(store, tmp_path / "others", executor=HERE)
    split(store, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "train")
    (tmp_path / "out" / "train").symlink_to(tmp_path / "others")
    before = list_files(tmp_path)
    with pytest.raises(FolderError, match=r"out/train: a link, expected the folder of a split"):
        split(store, tmp_path / "out", names)
    assert list_files(tmp_path) == before


def test_a_store_or_a_file_in_the_place_of_a_split_is_refused_before_anything_changes(
    store: Path, tmp_path: Path
) -> None:
    split(store, tmp_path / "out")
    train = tmp_path / "out" / "train"
    shutil.rmtree(train)
    shutil.copytree(store, train)
    before = list_files(tmp_path)
    with pytest.raises(FolderError, match=r"holds 'seqpack.tokens', expected shards of a split"):
        split(store, tmp_path / "out", "train=0.4,test=0.6")
    assert list_files(tmp_path) == before
    shutil.rmtree(train)
    train.write_text("mine")
    with pytest.raises(FolderError, match=r"out/train: a file, expected the folder of a split"):
        split(store, tmp_path / "out", "train=0.4,test=0.6")
    assert train.read_text() == "mine"


def test_the_largest_seed_makes_splits_that_open(store: Path, tmp_path: Path) -> None:
    split(store, tmp_path / "out", seed=2**64 - 1)
    assert open_splits(tmp_path / "out").manifest["split_seed"] == 2**64 - 1


def test_a_folder_that_is_kept_for_other_files_may_be_a_split_again(
    store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    split(store, out)
    (out / "train" / "notes").write_text("mine")
    split(store, out, "dev=0.5,test=0.5")
    assert list_files(out / "train") == ["notes"]
    with pytest.raises(FolderError, match="holds train, which no pack --split wrote") as caught:
        pack(store, out, PackOptions(split="train=0.5,test=0.5"), executor=HERE)
    assert "pass --overwrite, which keeps these files" in str(caught.value.hint)
    split(store, out)
    open_splits(out)
    assert (out / "train" / "notes").read_text() == "mine"
    assert not (out / "dev").exists()
