"""Read .json files: the elements of one array, or JSON lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from command import run
from hypothesis import given
from hypothesis import strategies as st
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents
from seqpack_cli.corpus.UNKNOWN_json_array import iter_json_records

from seqpack_cli.corpus import json_array
from seqpack_cli.corpus.find_files import UNNAMED_JSON, find_sources
from seqpack_cli.corpus.options import DocumentOptions, FileOptions
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError

LEAVES = st.none() | st.integers() | st.text('ab"\\[]{},:\n é😀') | st.floats(allow_nan=False)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\}'), inner, max_size=3)
    ),
)


@given(
    values=st.lists(VALUES, max_size=5),
    indent=st.none() | st.just(1),
    is_ascii=st.booleans(),
    begin=st.sampled_from(["", "\ufeff", " \r\n"]),
    block_bytes=st.sampled_from([1, 2, 5, 1000]),
)
def test_elements_are_those_of_the_standard_library(
    values: list[Any], indent: int | None, is_ascii: bool, begin: str, block_bytes: int
) -> None:
    text = begin + json.dumps(values, indent=indent, ensure_ascii=is_ascii) + "\n"
    data = text.encode()
    blocks = [data[place : place + block_bytes] for place in range(0, len(data), block_bytes)]
    source_range = SourceRange(0, Source("a.json", "json", "row", 0), 0, 0)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "iter_blocks", lambda *_: iter(blocks))
        for block in iter_json_records(source_range, max_document_bytes=1 << 20, on_read=len):
            assert block.num_before == len(found)
            for index, record in enumerate(block.records):
                assert data[block.find_start(index) :].startswith(record.strip())
                found.append(json.loads(record))
    assert found == values


def read(path: Path, data: bytes, **options: Any) -> tuple[list[str], list[str], list[str]]:
    """Return the texts of a file, the place of each, and why records were rejected."""
    path.write_bytes(data)
    (source,), _ = find_sources([str(path)])
    texts: list[str] = []
    places: list[str] = []
    reasons: list[str] = []
    whole = SourceRange(0, source, 0, source.num_bytes)
    for block in iter_documents(whole, DocumentOptions(**options), len):
        places += [block.find_place(index) for index in range(len(block.texts))]
        texts += block.texts
        reasons += [f"{reject.record} {reject.byte} {reject.reason}" for reject in block.rejects]
    return texts, [place.removeprefix(str(path)) for place in places], reasons


def test_place_is_line_and_record(tmp_path: Path) -> None:
    data = b'[{"text": "a"}, {"text": "b"},\n\n  {"text": "c"}]'
    texts, places, _ = read(tmp_path / "a.json", data)
    assert texts == ["a", "b", "c"]
    assert places == [":1: record 1", ":1: record 2", ":3: record 3"]


def test_bad_elements_are_skipped(tmp_path: Path) -> None:
    data = b'[{"text": "a"},\n 7, "x, ]", {"text": "\xff"}, {"text": "a", "text": "b"}]'
    texts, _, reasons = read(
        tmp_path / "a.json", data, on_bad_record="skip", encoding_errors="skip"
    )
    assert texts == ["a", "", "", "", ""]
    assert reasons == [
        "1 17 an integer, expected an object with field 'text'",
        "2 20 a string, expected an object with field 'text'",
        "3 38 byte 0xff, expected UTF-8",
        "4 43 duplicate key 'text' in an object",
    ]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_json_lines_are_recognized(tmp_path: Path, name: str) -> None:
    data = b'\xef\xbb\xbf\n{"text": "a"}\n\n{"text": "b"}\n'
    packed = gzip.compress(data) if name.endswith(".gz") else data
    assert read(tmp_path / name, packed)[:2] == (["", "a", "", "b"], [":1", ":2", ":3", ":4"])


LINES = "pass --format jsonl if each line is one JSON object"
CORRECT = "correct the file, or write its records as JSON lines"
COPY = "download or copy the file again"
TRUNCATED = "truncated, expected ']' at the end of the array"
NO_ARRAY = "expected an array of objects"


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"", f": no JSON, {NO_ARRAY}", None),
        (
            b'{"text": "a"}',
            f""": an object that begins with '{{"text": "a"}}', {NO_ARRAY}""",
            LINES,
        ),
        (b'{"a": 1}\n[', f""": an object that begins with '{{"a": 1}}\\n[', {NO_ARRAY}""", LINES),
        (
            b'{"data": [{"text": "a"}]}',
            f""": an object that begins with '{{"data": [{{"text": "a"}}]}}', {NO_ARRAY}""",
            "write its records as JSON lines: jq -c '.data[]' {path} > a.jsonl",
        ),
        (b"text", f": a file that begins with 'text', {NO_ARRAY}", LINES),
        (b'[{"text": "a"},\n{"text": "b"', f":2: {TRUNCATED}", COPY),
        (b'[{"text": "a"}', f":1: {TRUNCATED}", COPY),
        (b"[", f":1: {TRUNCATED}", COPY),
        (b'[{"text": "a"}}', ":1: '}', expected ']' at the end of the array", None),
        (b"[]\n ]", ":2: ']', expected the end of the file after the array", None),
        (
            b'[{"text": "a"}, ]',
            ":1: record 2: nothing between commas, expected an object",
            CORRECT,
        ),
        (
            b'[\n{"text": "a"\n"b"}]',
            ":2: record 1: not JSON at line 2 of the record, column 1 "
            '(Expecting \',\' delimiter): \'{"text": "a"\\n"b"}\'',
            CORRECT,
        ),
        (b'["%s"]' % (b"a" * 99), ":1: document larger than 90 bytes", "pass a larger"),
        (b'["%s' % (b"a" * 99), ":1: document larger than 90 bytes", "pass a larger"),
    ],
)
def test_file_that_is_not_an_array_is_an_error(
    tmp_path: Path, data: bytes, message: str, hint: str | None
) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(DataError) as caught:
        read(path, data, on_bad_record="skip", max_document_bytes=90)
    assert caught.value.message == f"{path}{message}"
    expected = None if hint is None else hint.replace("{path}", str(path))
    found = caught.value.hint
    assert found == expected or (found and expected and found.startswith(expected))


def test_empty_array_has_no_records(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", b"\xef\xbb\xbf [ \n] ") == ([], [], [])


def test_stray_json_of_a_glob_is_named_before_the_run(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text('{"text": "a"}\n')
    (corpus / "config.json").write_text('{\n "a": 1\n}\n')
    result = run("tokenize", f"{corpus}/*", "-o", tmp_path / "store")
    assert result.exit_code == 3
    assert result.stderr.endswith(
        f"hint: {LINES}, or pass --exclude config.json to leave out this file\n"
    )
    assert not (tmp_path / "store").exists()


def test_unnamed_json_below_a_folder_is_skipped(tmp_path: Path) -> None:
    for name in ("a.jsonl", "config.json"):
        (tmp_path / name).write_text("[]")
    folder = str(tmp_path)
    assert [source.format for source in find_sources([folder])[0]] == ["jsonl"]
    assert find_sources([folder])[1].count() == {"unnamed_json": 1}
    for inputs, patterns in (
        ([f"{folder}/*.json"], FileOptions()),
        ([f"{folder}/config.json", folder], FileOptions(exclude=["*.jsonl"])),
        ([folder], FileOptions(include=["*.json"])),
    ):
        sources, skipped = find_sources(inputs, patterns=patterns)
        assert [source.format for source in sources] == ["json"]
        assert UNNAMED_JSON not in skipped.count()
