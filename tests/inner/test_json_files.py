"""JSON of runs: what is refused when it is read, and one stable text for one value."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from seqpack_cli.errors import FolderError
from seqpack_cli.files.json_files import check_fields, check_name, parse_json, read_json, write_json


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b'{"a": 1', "not JSON (Expecting ',' delimiter: line 1 column 8 (char 7))"),
        (b"\x80", "not JSON ('utf-8' codec can't decode byte 0x80 in position 0"),
        (b"[" * 200_000, "not JSON (nested too deeply)"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON (Exceeds the limit"),
        (b"[]", "a list, expected an object"),
        (b"null", "null, expected an object"),
        (b"7", "an integer, expected an object"),
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
        ({"count": 1, "name": None}, "field 'name' is None, expected a string"),
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


def test_items_beyond_memory_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    """128 MiB of empty lists would take 3 GB."""
    data = b'{"a": [' + b"[]," * 10_000_000 + b"[]]}"
    with pytest.raises(FolderError, match="more than 10,000,000 items"):
        parse_json(data, source=tmp_path / "a.json")


def test_json_round_trips_as_one_stable_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {"b": [1, None], "a": "é漢𝄞\u2028", "c": {"d": []}, "e": [{"f": 1}, {"g": [2]}]}
    digest = write_json(path, value)
    assert read_json(path) == value
    assert digest == blake3(path.read_bytes()).hexdigest()
    golden = [
        "{",
        ' "b": [1, null],',
        ' "a": "é漢𝄞\u2028",',
        ' "c": {"d": []},',
        ' "e": [',
        '  {"f": 1},',
        '  {"g": [2]}',
        " ]",
        "}",
    ]
    assert path.read_bytes() == "".join(line + "\n" for line in golden).encode()
