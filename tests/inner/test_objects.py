"""Whole objects: streamed, hashed, uploaded when they are whole, removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from blake3 import blake3
from object_store import write_object

from seqpack_cli.errors import FolderError, MachineError, OptionError
from seqpack_cli.files.inputs import Input
from seqpack_cli.files.json_files import read_json, write_json
from seqpack_cli.files.objects import (
    Url,
    create_object,
    find_object,
    iter_object,
    read_object,
    remove_objects,
    upload,
)
from seqpack_cli.files.places import at
from seqpack_cli.limits import LIMITS


@pytest.fixture
def folder(tmp_path: Path) -> Url:
    return Url(f"memory://{tmp_path.name}/folder")


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (0, 0), (3, 998), (999, 1000), (900, 2000)])
@pytest.mark.parametrize("range_bytes", [1, 7, 64, 5000])
def test_a_range_is_streamed_in_pieces(
    folder: Url, monkeypatch: pytest.MonkeyPatch, start: int, end: int, range_bytes: int
) -> None:
    data = os.urandom(1000)
    write_object(folder / "x", data)
    monkeypatch.setattr(LIMITS, "range_bytes", range_bytes)
    pieces = list(iter_object(folder / "x", start, end))
    assert b"".join(pieces) == data[start:end]
    assert max(map(len, pieces), default=0) <= range_bytes


def test_an_object_is_read_hashed_and_looked_at(folder: Url) -> None:
    data = os.urandom(100_000)
    write_object(folder / "x", data)
    assert read_object(folder / "x") == at(folder / "x").read(max_bytes=100_000) == data
    assert at(folder / "x").hash() == blake3(data).hexdigest()
    with Input(str(folder / "x")).open(len(data)) as file:
        file.seek(70_000)
        assert file.read(10) == data[70_000:70_010]


def test_a_missing_object_is_an_error_with_its_name(folder: Url) -> None:
    place = at(folder / "x")
    named = Input(f"{folder}/x")
    for read in (place.hash, place.check_size, named.read, named.find_version):
        with pytest.raises(FolderError) as caught:
            read()
        assert caught.value.message == f"{folder}/x: missing"
    assert not at(folder / "x").exists()


def test_sizes_are_checked_before_anything_is_read(folder: Url) -> None:
    write_object(folder / "x", b"abc")
    with pytest.raises(FolderError, match="3 bytes, manifest says 4"):
        at(folder / "x").check_size(4)
    with pytest.raises(FolderError, match="3 bytes, expected at most 2"):
        at(folder / "x").read(max_bytes=2)
    with pytest.raises(FolderError, match="not a regular file"):
        at(folder).check_size()
    at(folder / "x").check_size(3)


def test_an_upload_replaces_the_object_at_once(folder: Url, tmp_path: Path) -> None:
    for data in (b"first", b"second, longer"):
        (tmp_path / "file").write_bytes(data)
        upload(tmp_path / "file", folder / "x")
        assert read_object(folder / "x") == data
    assert [url.name for url in folder.iterdir()] == ["x"]


def test_publishing_shows_the_object_only_when_it_is_whole(folder: Url) -> None:
    with at(folder / "x").publish() as file:
        file.write(b"abc")
        assert not folder.exists()
        assert file.describe() == {"bytes": 3, "blake3": blake3(b"abc").hexdigest()}
    assert read_object(folder / "x") == b"abc"
    with pytest.raises(ZeroDivisionError), at(folder / "x").publish() as file:
        file.write(b"other")
        _ = 1 // 0
    assert read_object(folder / "x") == b"abc"
    write_json(folder / "y.json", {"a": 1})
    assert read_json(folder / "y.json") == {"a": 1}


def test_names_are_no_globs(tmp_path: Path) -> None:
    folder = Url(f"memory://{tmp_path.name}")
    for name in ("a1", "a?", "a[1]", "*"):
        with at(folder / name / "x").publish() as file:
            file.write(name.encode())
    for name in ("a?", "a[1]", "*"):
        remove_objects([folder / name / "x", folder / name / "none"])
    assert [(folder / name / "x").exists() for name in ("a1", "a?", "*")] == [True, False, False]
    assert read_object(folder / "a1" / "x") == b"a1"


def test_a_full_local_disk_is_an_error_that_names_the_object(
    folder: Url, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(MachineError), at(folder / "x").publish() as file:
        file.write(b"abc")
    assert not folder.exists()


def test_what_is_put_over_nothing_replaces_no_object(folder: Url) -> None:
    assert create_object(folder / "x", b"first")
    assert not create_object(folder / "x", b"second")
    assert read_object(folder / "x") == b"first"


def test_remove_objects_removes_those_that_are_there(folder: Url) -> None:
    for name in ("a", "b", "c"):
        write_object(folder / name, b"x")
    remove_objects([folder / "a", folder / "none", folder / "b"])
    assert [url.name for url in folder.iterdir()] == ["c"]
    remove_objects([])


def test_the_version_changes_when_an_object_is_written_again(folder: Url) -> None:
    write_object(folder / "x", b"abc")
    first = find_object(folder / "x")
    assert first == find_object(folder / "x")
    assert first[0] == 3
    remove_objects([folder / "x"])
    write_object(folder / "x", b"abd")
    assert find_object(folder / "x") != first


def test_an_unknown_protocol_is_a_wrong_option() -> None:
    with pytest.raises(OptionError, match="nonsense"):
        Url("nonsense://x/y").exists()
