"""Files of strangers: names, kinds, sizes, JSON, maps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files.json_files import check_fields, check_name, parse_json, read_json
from seqpack_cli.files.mapping import map_regular, open_regular, view_array
from seqpack_cli.files.places import at


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b'{"a": 1', "not JSON (Expecting ',' delimiter: line 1 column 8 (char 7))"),
        (b"\x80", "not JSON ('utf-8' codec can't decode byte 0x80 in position 0"),
        (b"[" * 200_000, "not JSON (maximum recursion depth exceeded"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON (Exceeds the limit"),
        (b"[]", "a JSON list, expected an object"),
        (b"null", "a JSON NoneType, expected an object"),
    ],
)
def test_file_that_is_no_json_object_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(FolderError) as caught:
        read_json(path)
    assert caught.value.message.startswith(f"{path}: {said}")


def test_huge_manifest_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate((128 << 20) + 1)
    with pytest.raises(FolderError) as caught:
        read_json(path)
    assert caught.value.message == f"{path}: 134,217,729 bytes, expected at most 134,217,728"


def test_only_a_plain_file_of_the_right_size_is_regular(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    at(tmp_path / "a").check_size()
    at(tmp_path / "a").check_size(3)
    cases = {"gone": "missing", "a": "3 bytes, manifest says 2,000"}
    cases |= dict.fromkeys(("link", "folder", "pipe"), "not a regular file")
    for name, said in cases.items():
        with pytest.raises(FolderError) as caught:
            at(tmp_path / name).check_size(2000)
        assert caught.value.message == f"{tmp_path / name}: {said}"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../a", "a/b", "/etc/passwd", ".hidden", "a\0", "a\n", "a\\b", "é", None, 7],
)
def test_name_that_could_leave_the_folder_is_refused(tmp_path: Path, name: object) -> None:
    with pytest.raises(FolderError) as caught:
        check_name(name, source=tmp_path)
    assert caught.value.message == f"{tmp_path}: {name!r} is not a plain file name"


@pytest.mark.parametrize("name", ["a", "part-00000.bin", "A_1.b-c..d"])
def test_plain_name_is_given_back(tmp_path: Path, name: str) -> None:
    assert check_name(name, source=tmp_path) == name


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "[], expected an object"),
        ({}, "no field 'count'"),
        ({"count": 1.0}, "field 'count' is 1.0, expected a count"),
        ({"count": -1}, "field 'count' is -1, expected a count"),
        ({"count": True}, "field 'count' is True, expected a count"),
        ({"count": 1, "name": None}, "field 'name' is None, expected a str"),
        ({"count": 1, "name": "n"}, "no field 'any'"),
    ],
)
def test_fields_that_do_not_fit_are_named(value: object, said: str) -> None:
    fields = {"count": int, "name": str, "any": object}
    with pytest.raises(FolderError) as caught:
        check_fields(value, fields, source=Path("m.json"))
    assert caught.value.message == f"m.json: {said}"


def test_fields_that_fit_pass() -> None:
    fields = {"count": int, "name": str, "any": object}
    check_fields({"count": 0, "name": "", "any": None, "more": 1}, fields, source=Path("m"))


def test_mapped_array_is_a_read_only_view(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"\xff\1\0\2\0")
    mapped = map_regular(path, num_bytes=5)
    array = view_array(mapped, "<u2", count=2, offset=1)
    assert array.tolist() == [1, 2]
    assert not array.flags.writeable
    path.write_bytes(b"")
    assert map_regular(path).view("<u2").tolist() == []


def test_object_with_twin_fields_or_no_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for data, said in [
        (b'{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}', "not JSON (field 'c' stands twice)"),
        (b'{"a": NaN}', "not JSON (NaN is no number of JSON)"),
        (b'{"a": -Infinity}', "not JSON (-Infinity is no number of JSON)"),
    ]:
        with pytest.raises(FolderError) as caught:
            parse_json(data, source=path)
        assert caught.value.message == f"{path}: {said}"


def test_items_beyond_memory_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    """128 MiB of empty lists would take 3 GB."""
    data = b'{"a": [' + b"[]," * 10_000_000 + b"[]]}"
    with pytest.raises(FolderError, match="more than 10,000,000 items"):
        parse_json(data, source=tmp_path / "a.json")


def test_file_that_may_not_be_read_is_an_error_of_the_machine(tmp_path: Path) -> None:
    """Also for root, who may read everything: a name below a file that is none."""
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FolderError, match="missing"):
        open_regular(tmp_path / "file" / "below")
    assert not at(tmp_path / "file" / "below").exists()
    with pytest.raises(MachineError, match="File name too long"):
        open_regular(tmp_path / ("x" * 300))
    with pytest.raises(FolderError, match="null"):
        open_regular(tmp_path / "a\0b")


def test_link_to_nowhere_is_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    assert at(tmp_path / "link").exists()
    assert not at(tmp_path / "gone").exists()


MAPS_MANY = """
import resource, sys
from pathlib import Path
from seqpack_cli.files.mapping import map_regular

resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
maps = [map_regular(Path(sys.argv[1])) for _ in range(1000)]
print(len(maps), set(map(len, maps)))
"""


def test_maps_do_not_keep_files_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    arguments = [sys.executable, "-c", MAPS_MANY, tmp_path / "a"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout == "1000 {3}\n"
