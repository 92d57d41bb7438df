"""Find the inputs of `import`: pairs of .bin and .idx, and other files of ids."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from object_store import write_object

from seqpack_cli import tokenize
from seqpack_cli.corpus.find_files import Skipped, find_sources
from seqpack_cli.corpus.options import IDS_FORMATS, FileOptions
from seqpack_cli.corpus.sources import Source
from seqpack_cli.corpus.streams import check_unchanged
from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.files.inputs import ListedName
from seqpack_cli.files.objects import Url

NOT_IDS = "write ids as JSON lines with a field input_ids, or run seqpack tokenize to read text"
NAMES = ["b.bin", "c.npy", "d.jsonl", "e.txt", "sub/a_document.bin", "sub/a_document.idx"]
PAIR = [("sub/a_document.bin", "megatron", "sub/a_document.idx")]
FLAT = [("b.bin", "flat", None), ("c.npy", "flat", None)]


@pytest.fixture(params=["here", "there"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder with a pair, flat ids and records, on this machine or in an object store."""
    folder = str(tmp_path / "in")
    if request.param == "there":
        folder = f"memory://{tmp_path.name}-pairs/in"
    for name in NAMES:
        write(f"{folder}/{name}")
    return folder


def write(name: str) -> None:
    if "://" in name:
        write_object(Url(name), name.encode())
    else:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)


def find(
    folder: str, *names: str, file_format: str = "auto", **options: Any
) -> tuple[list[tuple[object, ...]], Skipped]:
    """Find the sources of names below the folder: path, format and index of each."""
    inputs = [f"{folder}/{name}" for name in names]
    sources, skipped = find_sources(inputs, formats=IDS_FORMATS.choose(file_format), **options)
    return [_describe(source, f"{folder}/") for source in sources], skipped


def _describe(source: Source, root: str) -> tuple[object, ...]:
    index = source.index_file
    assert index is None or (index.num_bytes, index.format) == (len(index.path), "megatron")
    name = None if index is None else index.path.removeprefix(root)
    return source.path.removeprefix(root), source.format, name


def test_folder_of_ids(folder: str) -> None:
    sources, skipped = find(folder, "")
    assert sources == [*FLAT, ("d.jsonl", "jsonl", None), *PAIR]
    assert skipped.count() == {"unknown_suffix": 1}


@pytest.mark.parametrize(
    "names",
    [
        ["sub"],
        ["sub/a_document"],
        ["sub/a_document.bin"],
        ["sub/a_document.idx"],
        ["**/*.idx"],
        ["sub/*"],
        ["sub/a_document", "sub/*.bin", "sub/a_document.idx", "sub"],
    ],
)
def test_pair_is_found_once_whatever_names_it(folder: str, names: list[str]) -> None:
    sources, skipped = find(folder, *names)
    assert sources == PAIR
    assert not skipped.count()


def test_pair_of_a_list(folder: str) -> None:
    inputs = [ListedName(f"{folder}/sub/a_document", "list:1")]
    sources, _ = find_sources(inputs, formats=IDS_FORMATS)
    assert [_describe(source, f"{folder}/") for source in sources] == PAIR


@pytest.mark.parametrize("pattern", ["*.bin", "*.idx"])
def test_pair_is_chosen_by_either_file(folder: str, pattern: str) -> None:
    sources, skipped = find(folder, "sub", patterns=FileOptions(include=[pattern]))
    assert sources == PAIR
    assert not skipped.count()
    sources, skipped = find(folder, "", patterns=FileOptions(exclude=[f"a_{pattern}"]))
    assert sources == [*FLAT, ("d.jsonl", "jsonl", None)]
    assert skipped.count() == {"unknown_suffix": 1, "excluded": 2}


def test_binary_format_that_is_named_goes_by_the_suffix(folder: str) -> None:
    assert find(folder, "sub", file_format="megatron")[0] == PAIR
    found = [*FLAT, ("sub/a_document.bin", "flat", None)]
    assert find(folder, "", file_format="flat")[0] == found
    assert find(folder, "e.txt", file_format="flat")[0] == [("e.txt", "flat", None)]
    assert find(folder, "e.txt", file_format="jsonl")[0] == [("e.txt", "jsonl", None)]


@pytest.mark.parametrize(
    ("name", "missing", "beside", "options"),
    [
        ("x.idx", "x.bin", "x.idx", {}),
        ("", "x.bin", "x.idx", {}),
        ("x", "x.bin", "x.idx", {}),
        ("b", "b.idx", "b.bin", {}),
        ("b.bin", "b.idx", "b.bin", {"file_format": "megatron"}),
    ],
)
def test_missing_file_of_a_pair(
    folder: str, name: str, missing: str, beside: str, options: dict[str, str]
) -> None:
    if missing == "x.bin":
        write(f"{folder}/x.idx")
    with pytest.raises(OptionError) as caught:
        find(folder, name, **options)
    assert caught.value.message == (
        f"{folder}/{missing}: no such file, expected beside {folder}/{beside}"
    )
    assert caught.value.hint == "copy both files of the pair to one folder"


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("e.txt", ".txt files are not supported", NOT_IDS),
        (
            "f.data",
            "expected one of the suffixes .idx .bin .npy .jsonl .ndjson .json .parquet .arrow "
            ".arrows .feather .ipc",
            "pass --format flat if the file holds ids alone, or --format jsonl",
        ),
        ("f.bin.gz", "a compressed flat file", "decompress it"),
    ],
)
def test_file_that_holds_no_ids(folder: str, name: str, message: str, hint: str) -> None:
    write(f"{folder}/{name}")
    with pytest.raises(OptionError) as caught:
        find(folder, name)
    assert (caught.value.message, caught.value.hint) == (f"{folder}/{name}: {message}", hint)


def test_changed_index_is_noticed(folder: str) -> None:
    (source,), _ = find_sources([f"{folder}/sub"], formats=IDS_FORMATS)
    check_unchanged(source)
    write(f"{folder}/sub/a_document.idx")
    if "://" not in folder:
        os.utime(f"{folder}/sub/a_document.idx", (1, 1))
    with pytest.raises(DataError, match=r"a_document.idx: changed while it was read"):
        check_unchanged(source)


def test_token_store_is_not_imported(tmp_path: Path) -> None:
    write(f"{tmp_path}/in/a.txt")
    tokenize([f"{tmp_path}/in/a.txt"], tmp_path / "in/tok store")
    with pytest.raises(OptionError) as caught:
        find(str(tmp_path), "in/tok store")
    assert "skipped 1 folder written by seqpack" in caught.value.message
    assert caught.value.hint == "run seqpack pack to read a token store"
    (tmp_path / "in/tok store/plan.json").write_bytes(b'{"format": "seqpack.shards"}')
    (tmp_path / "in/tok store/manifest.json").unlink()
    with pytest.raises(OptionError, match="skipped 1 folder written by seqpack"):
        find(str(tmp_path), "in/tok store")
    write(f"{tmp_path}/in/b.bin")
    sources, skipped = find(str(tmp_path), "in")
    assert sources == [("in/b.bin", "flat", None)]
    assert skipped.count() == {"unknown_suffix": 1, "seqpack_output": 1}
