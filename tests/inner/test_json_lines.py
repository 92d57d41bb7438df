"""Read the texts of JSON lines: the fast path equals the slow path, with orjson and without."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents
from seqpack_cli.corpus.UNKNOWN_json_lines import read_json_text, read_json_texts
from strategies import texts

from seqpack_cli.corpus import json_lines
from seqpack_cli.corpus.fields import BadRecordError
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.records import Reject
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError

# Fields whose keys JSON can spell in more ways than one, or that a path and a key share.
FIELDS = ["text", "a.b", "é", "a.a", "a.", 'q"/']
SPACES = st.sampled_from(["", "", "", " ", "\t", " \r "])
STRINGS = [
    *('""', '"a"', '"text"', '"a.b"', '"b"', '"\\"text\\": 1"', '"é漢𝄞"', '"\\u00e9"', '"\\u0000"'),
    *(
        '"\\ud800"',
        '"x\\udd1e\\ud834"',
        '"\\ud834\\udd1e"',
        '"\\\\ud800"',
        '"\\u0074ext"',
        '"\x7f"',
    ),
    *('"a\\nb"', '"a\\/b"', '"\u2028"', '"\\', '"\t"', '"\\x"', '"\\u12"'),
]
SCALARS = [
    *("null", "true", "1", "-0.0", "1.5e3", "NaN", "Infinity", "-Infinity", "1e999", "1" * 30),
    *("1" * 4000, "1" * 5000, "01", "1.", "nul", "+1", "'a'"),
]


@contextlib.contextmanager
def without_orjson() -> Iterator[None]:
    json_lines.find_parser.cache_clear()
    with mock.patch.dict(sys.modules, {"orjson": None}):
        try:
            yield
        finally:
            json_lines.find_parser.cache_clear()


@st.composite
def spelled_keys(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    """A key as JSON may spell it: some characters as escapes, in either case."""
    spelled = ""
    for character in draw(st.sampled_from(names)):
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        code = f"{ord(character):04x}"
        ways = [plain, plain, plain, f"\\u{code}", f"\\u{code.upper()}"]
        spelled += draw(st.sampled_from(ways))
    return f'"{spelled}"'


@functools.cache  # to build strategies takes longer than to draw from them
def values(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    """JSON values, mostly good ones, with any spelling that JSON allows."""
    strings = st.one_of(
        texts().map(json.dumps),
        texts().map(lambda text: json.dumps(text, ensure_ascii=False)),
        st.sampled_from(STRINGS),
        spelled_keys(names),
    )
    flat = st.one_of(strings, strings, st.sampled_from(SCALARS))
    lists = st.lists(flat, max_size=2).map(lambda items: f"[{','.join(items)}]")
    return st.one_of(flat, flat, lists, objects(names, st.one_of(flat, objects(names, flat))))


@functools.cache
def objects(names: tuple[str, ...], inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(SPACES, spelled_keys(names), SPACES, st.just(":"), SPACES, inner, SPACES)
    return st.lists(pairs.map("".join), max_size=4).map(lambda items: f"{{{','.join(items)}}}")


@functools.cache
def lines(field: str) -> st.SearchStrategy[bytes]:
    """Lines without their ends: objects with a text field, and other content of files."""
    names = tuple(sorted({field, *field.split("."), "id"}))
    key = json.dumps(field, ensure_ascii=False)
    plain = texts().map(lambda text: f'{{"id": 1, {key}: {json.dumps(text)}}}')
    odd = objects(names, values(names))
    others = st.sampled_from(["", " ", "\u00a0", "[]", '"text"', "{", "{}", '{"text": "a"} x'])
    ends = st.sampled_from(["", "", "\r"])
    return st.tuples(st.one_of(plain, odd, odd, others), ends).map(
        lambda pair: "".join(pair).replace("\n", " ").encode()
    )


def json_records(field: str) -> st.SearchStrategy[list[bytes]]:
    return st.lists(lines(field), min_size=1, max_size=4)


def check_quick_way(records: list[bytes], field: str) -> None:
    """Compare with the slow path."""
    found = read_json_texts(records, field)
    if found is not None:
        assert found == [read_json_text(record.decode(), field) for record in records]


def read_file(
    path: Path, data: bytes, **options: object
) -> tuple[list[str], list[Reject]] | tuple[str, str | None]:
    """Return the texts and rejects of a file, or its error."""
    path.write_bytes(data)
    source = Source(str(path), "jsonl", "line", len(data))
    found: tuple[list[str], list[Reject]] = ([], [])
    try:
        for block in iter_documents(
            SourceRange(0, source, 0, len(data)),
            DocumentOptions(**options),  # type: ignore[arg-type]
            lambda _: None,
        ):
            found[0].extend(block.texts)
            found[1].extend(block.rejects)
    except DataError as error:
        return error.message, error.hint
    return found


# The fast path


@pytest.mark.parametrize("field", FIELDS)
def test_fast_path_equals_the_slow_path(field: str) -> None:
    @settings(max_examples=40)
    @given(records=json_records(field))
    def check(records: list[bytes]) -> None:
        check_quick_way(records, field)
        with without_orjson():
            check_quick_way(records, field)

    check()


@pytest.mark.parametrize(
    ("lines", "field", "expected"),
    [
        (['{"text": "a"}'], "text", ["a"]),
        (['{"text":"a"}', '{"id":1,"text":"b"}'], "text", ["a", "b"]),
        (['\t{ "text"  :"a" } \r'], "text", ["a"]),
        (['{"text": "\\u00e9\\ud834\\udd1e", "score": 1e9}'], "text", ["é𝄞"]),
        (['{"a": {"b": "x", "c": {"d": 1}}}'], "a.b", ["x"]),
        (['{"é": "x"}'], "é", ["x"]),
        (['{"id": ["texts", "a text"], "text": ""}'], "text", [""]),
    ],
)
@pytest.mark.parametrize("hides_orjson", [False, True])
def test_plain_lines_are_read_at_once(
    lines: list[str], field: str, expected: list[str], hides_orjson: bool
) -> None:
    """Else the comparison above compares nothing, and a run takes ten times as long."""
    with without_orjson() if hides_orjson else contextlib.nullcontext():
        assert read_json_texts([line.encode() for line in lines], field) == expected
        assert [read_json_text(line, field) for line in lines] == expected


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        (['{"text": "a", "text": "b"}'], "text"),
        (['{"text": "a", "\\u0074ext": "b"}', '{"id": 1}'], "text"),
        (['{"text": "a", "x": {"text": "b", "text": "c"}}'], "text"),
        (['{"a": {"b": "x"}, "a.b": "y"}'], "a.b"),
        (['{"a": {"b": "x", "b": "y"}}'], "a.b"),
        (['{"a": {"b": "x"}, "a": {"c": "y"}}'], "a.b"),
        (['{"a": "text", "b": 1}', '{"a": {"b": "x"}}'], "a.b"),
        (['{"id": "text"}', '{"text": "a", "id": 1}'], "text"),
        (['{"text": "a\\ud800"}'], "text"),
        (['{"text": 1}'], "text"),
        (['{"text": null}'], "text"),
        (['{"text": "a"}', "", '{"text": "a", "id": "text"}'], "text"),
        (['"text"'], "text"),
        (['["text"]'], "text"),
        (['{"text": "a"} {"text": "b"}', '{"id": 1}'], "text"),
        (['{"text": "a"'], "text"),
        (['{"text": "a\tb"}'], "text"),
        (['\ufeff{"text": "a"}'], "text"),
    ],
)
@pytest.mark.parametrize("hides_orjson", [False, True])
def test_lines_that_fail_the_fast_path_are_read_one_by_one(
    lines: list[str], field: str, hides_orjson: bool
) -> None:
    with without_orjson() if hides_orjson else contextlib.nullcontext():
        assert read_json_texts([line.encode() for line in lines], field) is None


@pytest.mark.parametrize(
    ("line", "field", "found"),
    [
        ('{"text": "a", "\\u0074ext": "b"}', "text", "b"),
        ('{"漢": "a", "\\u6f22": "b"}', "漢", "b"),
        ('{"a/b": "a", "a\\/b": "b"}', "a/b", "b"),
        ('{"a": {"b": "x"}, "a\\u002eb": "y"}', "a.b", "x"),
    ],
)
def test_second_key_in_escapes_is_not_noticed(line: str, field: str, found: str) -> None:
    """On neither path: no program writes one beside the same key without escapes."""
    assert read_json_text(line, field) == found
    assert read_json_texts([line.encode()], field) == [found]
    with without_orjson():
        assert read_json_texts([line.encode()], field) == [found]


def test_bytes_that_are_not_utf8_fail_the_fast_path() -> None:
    for bad in (b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"):
        line = b'{"text": "a", "other": "' + bad + b'"}'
        assert read_json_texts([line], "text") is None
        with without_orjson():
            assert read_json_texts([line], "text") is None


# The slow path


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ('{"a.b": "key", "a": {"b": "path"}}', "a.b", "key"),
        ('{"a": {"b": "path"}, "a.b": "key"}', "a.b", "key"),
        ('{"id": 1, "id": 2, "text": "a"}', "text", "a"),
        ('{"text": "a", "other": "\\ud800", "\\udfff": 1}', "text", "a"),
        ('{"text": "a", "n": 1e999, "m": -Infinity}', "text", "a"),
        ('{"text": "a", "n": ' + "7" * 4000 + "}", "text", "a"),
        ('{"a": {"a": "x"}}', "a.a", "x"),
        ('{"": {"": "x"}}', ".", "x"),
    ],
)
def test_text_is_found_one_line_at_a_time(line: str, field: str, expected: str) -> None:
    assert read_json_text(line, field) == expected


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        ('{"a.b": 1, "a": {"b": "path"}}', "a.b", "field 'a.b' is int, expected a string"),
        (
            '{"a": {"b": "x"}, "a.b": "y", "a.b": "z"}',
            "a.b",
            "duplicate key 'a.b' in an object",
        ),
        ('{"a": {"b": "x"}, "x": {"b": 1, "b": 2}}', "a.b", "duplicate key 'b' in an object"),
        (
            '{"text": "a", "x": {"text": 1, "text": 2}}',
            "text",
            "duplicate key 'text' in an object",
        ),
        ('{"a\\u002eb": "y"}', "a.b", "no field 'a.b' (found: 'a.b')"),
        ('{"a": ["b"]}', "a.b", "no field 'a.b' (found: 'a')"),
        ('{"a": "b"}', "a.b", "no field 'a.b' (found: 'a')"),
    ],
)
def test_line_without_one_text_is_refused(line: str, field: str, reason: str) -> None:
    with pytest.raises(BadRecordError) as caught:
        read_json_text(line, field)
    assert caught.value.reason == reason


# With orjson and without


@pytest.mark.parametrize("field", ["text", "a.b", "é"])
def test_files_read_the_same_without_orjson(tmp_path: Path, field: str) -> None:
    path = tmp_path / "a.jsonl"

    @settings(max_examples=40)
    @given(
        records=json_records(field),
        odd=st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xff", b'{"text": "\xff"}\n']),
        policy=st.sampled_from(["error", "replace", "skip"]),
    )
    @example(records=[b'{"text": "a"}', b'{"text": "b"}'], odd=b"\xef\xbb\xbf", policy="error")
    def check(records: list[bytes], odd: bytes, policy: str) -> None:
        data = odd + b"\n".join(records)
        for on_bad_record in ("error", "skip"):
            options = {
                "text_field": field,
                "encoding_errors": policy,
                "on_bad_record": on_bad_record,
            }
            found = read_file(path, data, **options)
            with without_orjson():
                assert read_file(path, data, **options) == found

    check()


def test_second_key_in_escapes_reads_the_same_without_orjson(tmp_path: Path) -> None:
    """NaN sends a line to the slow path with orjson, and not without."""
    data = b'{"text": "a", "\\u0074ext": "b", "score": NaN}\n'
    found = read_file(tmp_path / "a.jsonl", data)
    with without_orjson():
        assert read_file(tmp_path / "a.jsonl", data) == found


@pytest.mark.parametrize("depth", [10, 500, 800, 2000])
def test_deep_lines_read_the_same_without_orjson(tmp_path: Path, depth: int) -> None:
    """Only near a depth of 1,000 does orjson read what the standard library does not."""
    line = '{"text": "a", "deep": ' + "[" * depth + "]" * depth + "}\n"
    found = read_file(tmp_path / "a.jsonl", line.encode(), on_bad_record="skip")
    with without_orjson():
        hidden = read_file(tmp_path / "a.jsonl", line.encode(), on_bad_record="skip")
    assert hidden[0] == found[0]


def test_orjson_is_used_where_it_is_installed() -> None:
    orjson = pytest.importorskip("orjson")
    json_lines.find_parser.cache_clear()
    assert json_lines.find_parser()[:3] == (orjson.loads, orjson.dumps, False)
    with without_orjson():
        assert json_lines.find_parser()[0] is not orjson.loads
