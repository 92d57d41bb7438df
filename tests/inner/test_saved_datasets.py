"""Choose the files of a folder that Hugging Face's `save_to_disk` wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from object_store import write_object

from seqpack_cli.corpus.find_files import find_sources
from seqpack_cli.corpus.options import FileOptions
from seqpack_cli.errors import OptionError
from seqpack_cli.files.objects import Url

DATA = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]  # in the order of state.json
CACHE = "cache-0123456789abcdef_00000_of_00004.arrow"


@pytest.fixture(params=["here", "there"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A saved dataset and one with two splits, on this machine or in an object store."""
    root = f"memory://{tmp_path.name}-saved" if request.param == "there" else str(tmp_path)
    for folder in ("one", "splits/test", "splits/train"):
        write(root, f"{folder}/state.json", json.dumps(make_state(DATA)))
        write(root, f"{folder}/dataset_info.json", "{}")
        for name in (*DATA, CACHE):
            write(root, f"{folder}/{name}", name)
    write(root, "splits/dataset_dict.json", '{"splits": ["train", "test"]}')
    return root


def write(root: str, name: str, text: str) -> None:
    if "://" in root:
        write_object(Url(f"{root}/{name}"), text.encode())
    else:
        (Path(root) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(root) / name).write_text(text)


def make_state(names: Sequence[str]) -> dict[str, object]:
    return {"_data_files": [{"filename": name} for name in names], "_split": None}


def find(root: str, *names: str, exclude: Sequence[str] = ()) -> tuple[list[str], dict[str, int]]:
    sources, skipped = find_sources(
        [f"{root}/{name}" for name in names], patterns=FileOptions(exclude=exclude)
    )
    return [source.path.removeprefix(f"{root}/") for source in sources], skipped.count()


def test_files_are_those_of_the_state_in_its_order(root: str) -> None:
    counts = {"unlisted_arrow": 1}
    assert find(root, "one") == ([f"one/{name}" for name in DATA], counts)
    assert find(root, "splits/train")[0] == [f"splits/train/{name}" for name in DATA]
    assert find(root, "one", exclude=["data-00001*"])[0] == [f"one/{DATA[1]}"]
    assert find(root, f"one/{CACHE}", "one/data-*")[0] == [
        f"one/{name}" for name in (CACHE, *reversed(DATA))
    ]


def test_caches_are_no_data_without_a_state_either(root: str) -> None:
    write(root, "one/state.json", '{"epoch": 3}')
    assert find(root, "one")[0] == [f"one/{name}" for name in reversed(DATA)]


@pytest.mark.parametrize("name", ["", "splits", "splits/"])
def test_several_splits_are_refused(root: str, name: str) -> None:
    with pytest.raises(OptionError) as caught:
        find(root, name)
    expected = "holds the splits test, train of a dataset, expected one"
    assert caught.value.message == f"{root}/splits: {expected}"
    assert caught.value.hint == f"pass {root}/splits/train"


def test_missing_file_and_chosen_rows_are_errors(root: str) -> None:
    write(root, "one/state.json", json.dumps(make_state([*DATA, "data-2.arrow"])))
    with pytest.raises(OptionError) as caught:
        find(root, "one")
    assert (
        caught.value.message == f"{root}/one/data-2.arrow: no such file, expected as in state.json"
    )
    state = {**make_state(DATA), "_indices_data_files": [{"filename": "indices.arrow"}]}
    write(root, "one/state.json", json.dumps(state))
    with pytest.raises(OptionError, match=r"one/state.json: the rows are chosen by another file"):
        find(root, "one")
