"""Read the texts of raw records, and reject bad records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from reference import slow_jsonl_texts, slow_lines
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents, make_text
from strategies import jsonl_files, line_files

from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.records import Reject, read_block_file
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError
from seqpack_cli.limits import LIMITS

WORDS_HINT = (
    "join the words with one space into a string, or keep their tags with --keep FIELD:tags"
)
SKIP_HINT = "fix the record and add --overwrite, or pass --on-bad-record skip"
AS_OBJECT = 'write each record as an object: {"text": …}'
ENCODING_HINT = "convert the file with iconv and add --overwrite, or pass --encoding-errors replace"


def read_documents(
    path: Path, data: bytes, document: str = "line", **options: object
) -> tuple[list[str], list[Reject]]:
    path.write_bytes(data)
    file_format = path.suffix.removeprefix(".").replace("txt", "text")
    modified = path.stat().st_mtime_ns
    source = Source(str(path), file_format, document, len(data), modified=modified)
    whole = SourceRange(0, source, 0, len(data))
    texts: list[str] = []
    rejects: list[Reject] = []
    chosen = DocumentOptions(**options)  # type: ignore[arg-type]
    for block in iter_documents(whole, chosen, lambda _: None):
        texts += block.texts
        rejects += block.rejects
    at_once = read_block_file(whole, chosen, (), make_text(chosen, ()))
    if at_once is not None:
        assert (at_once[0], at_once[1].texts, at_once[1].rejects) == (data, texts, rejects)
    return texts, rejects


def read_error(path: Path, data: bytes, document: str = "line", **options: object) -> DataError:
    with pytest.raises(DataError) as caught:
        read_documents(path, data, document, **options)
    assert caught.value.exit_code == 3
    return caught.value


@given(data=line_files())
def test_line_documents_equal_slow_reader(tmp_path: Path, data: bytes) -> None:
    assert read_documents(tmp_path / "a.txt", data) == (slow_lines(data), [])


@given(data=jsonl_files())
def test_json_documents_equal_slow_reader(tmp_path: Path, data: bytes) -> None:
    assert read_documents(tmp_path / "a.jsonl", data) == (slow_jsonl_texts(data), [])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\r\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\r\n", [""]),
        (b"a\0b\n", ["a\0b"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("a\u2028b\x0bc\x85d\n".encode(), ["a\u2028b\x0bc\x85d"]),
    ],
)
def test_line_document_loses_only_its_line_end(
    tmp_path: Path, data: bytes, expected: list[str]
) -> None:
    assert read_documents(tmp_path / "a.txt", data) == (expected, [])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\r\nb\r\n\r\nc\r\n", ["a\nb", "c"]),
        (b"\n\n a \n\tb\n \t\n\nc", [" a \n\tb", "c"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\nb\n", ["a\nb"]),
    ],
)
def test_paragraph_documents_keep_inner_line_ends(
    tmp_path: Path, data: bytes, expected: list[str]
) -> None:
    assert read_documents(tmp_path / "a.txt", data, "paragraph") == (expected, [])


def test_paragraph_loses_one_carriage_return_a_line(tmp_path: Path) -> None:
    """The last line is no exception: a line file keeps the first CR of CR CR LF, so does this."""
    texts, _ = read_documents(tmp_path / "a.txt", b"a\r\r\nb\r\r\n", "paragraph")
    assert texts == ["a\r\nb\r"]


def test_byte_order_mark_before_a_blank_line_makes_no_paragraph(tmp_path: Path) -> None:
    texts, _ = read_documents(tmp_path / "a.txt", b"\xef\xbb\xbf\n\na\n", "paragraph")
    assert texts == ["a"]


def test_file_document_is_the_text_without_its_byte_order_mark(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbfa\r\n\n b\r\n"
    assert read_documents(tmp_path / "a.txt", data, "file") == (["a\r\n\n b\r\n"], [])


def test_byte_order_mark_before_json_is_dropped(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"text": "a"}\n'
    assert read_documents(tmp_path / "a.jsonl", data) == (["a"], [])


def test_blank_json_lines_are_empty_documents(tmp_path: Path) -> None:
    data = b'{"text": "a"}\n\n \t\n{"text": ""}\n'
    assert read_documents(tmp_path / "a.jsonl", data) == (["a", "", "", ""], [])


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ('{"text": "a", "other": 1}', "text", "a"),
        ('{"page": {"body": "a"}}', "page.body", "a"),
        ('{"a": {"b": {"c": "deep"}}}', "a.b.c", "deep"),
        ('{"page.body": "whole key", "page": {"body": "path"}}', "page.body", "whole key"),
        ('{"text": "\\ud834\\udd1e"}', "text", "𝄞"),
        ('{"text": "\\u0000"}', "text", "\0"),
        ('{"\\u0074ext": "escaped key"}', "text", "escaped key"),
        ('{"text": "a", "score": NaN}', "text", "a"),
        ('{"text": "a", "more": {"x": 1, "x": 2}, "more": 3}', "text", "a"),
        ('{"text": "\\\\ud800"}', "text", "\\ud800"),
    ],
)
def test_json_field_is_found(tmp_path: Path, line: str, field: str, expected: str) -> None:
    found, _ = read_documents(tmp_path / "a.jsonl", line.encode(), text_field=field)
    assert found == [expected]


BAD_LINES = [
    (
        '{"text": "a"',
        "not JSON at column 13 (Expecting ',' delimiter): '{\"text\": \"a\"'",
        SKIP_HINT,
    ),
    (
        '{"id": "7", "body": "a text"}',
        "no field 'text' (found: 'id', 'body')",
        "pass --text-field body",
    ),
    (
        '{"body": "a", "id": 7}',
        "no field 'text' (found: 'body', 'id')",
        "pass --text-field body",
    ),
    ('{"id": 7}', "no field 'text' (found: 'id')", SKIP_HINT),
    ("{}", "no field 'text' (found: none)", SKIP_HINT),
    ('{"text": null}', "field 'text' is null, expected a string", SKIP_HINT),
    ('{"text": 7}', "field 'text' is int, expected a string", SKIP_HINT),
    ('{"text": ["a"]}', "field 'text' is a list, expected a string", WORDS_HINT),
    ('{"text": [1]}', "field 'text' is a list, expected a string", SKIP_HINT),
    ('["text"]', "a list, expected an object with field 'text'", AS_OBJECT),
    ('"text"', "a string, expected an object with field 'text'", AS_OBJECT),
    ('{"text": "a", "text": "b"}', "duplicate key 'text' in an object", SKIP_HINT),
    (
        '{"text": "a", "more": {"text": 1, "text": 2}}',
        "duplicate key 'text' in an object",
        SKIP_HINT,
    ),
    (
        '{"text": "a\\ud800b"}',
        "field 'text' has the lone surrogate \\ud800, expected Unicode text",
        SKIP_HINT,
    ),
    (
        '{"text": "\\udd1e\\ud834"}',
        "field 'text' has the lone surrogate \\udd1e, expected Unicode text",
        SKIP_HINT,
    ),
]


@pytest.mark.parametrize(("line", "reason", "hint"), BAD_LINES)
def test_bad_json_record_is_named_by_line_and_reason(
    tmp_path: Path, line: str, reason: str, hint: str | None
) -> None:
    path = tmp_path / "a.jsonl"
    error = read_error(path, b'{"text": "good"}\n\n' + line.encode() + b"\n")
    assert error.message == f"{path}:3: {reason}"
    assert error.hint == hint


@pytest.mark.parametrize(("line", "reason", "hint"), BAD_LINES)
def test_bad_json_record_is_rejected_if_asked(
    tmp_path: Path, line: str, reason: str, hint: str | None
) -> None:
    data = b'{"text": "good"}\n' + line.encode() + b'\n{"text": "more"}\n'
    texts, rejects = read_documents(tmp_path / "a.jsonl", data, on_bad_record="skip")
    assert texts == ["good", "", "more"]
    assert rejects == [Reject(record=1, byte=17, reason=reason)]


DEEP = "nested too deeply)"


@pytest.mark.parametrize(
    ("inner", "reason"),
    [("[" * 200_000, DEEP), ('{"a":' * 200_000, DEEP), ("1" * 5000, "Exceeds the limit (")],
    ids=["arrays", "objects", "digits"],
)
def test_json_too_deep_or_too_long_to_read_is_an_error(
    tmp_path: Path, inner: str, reason: str
) -> None:
    path = tmp_path / "a.jsonl"
    error = read_error(path, b'{"text": ' + inner.encode() + b"}\n")
    assert error.message.startswith(f"{path}:1: cannot be parsed as JSON ({reason}")
    assert error.hint == SKIP_HINT


def test_long_broken_line_is_quoted_in_part(tmp_path: Path) -> None:
    error = read_error(tmp_path / "a.jsonl", b'{"text": "' + b"x" * 100_000 + b'" y}')
    assert len(error.message) < 200 + len(str(tmp_path))


def test_deep_path_into_something_else_is_a_missing_field(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    error = read_error(path, b'{"page": "a"}', text_field="page.body")
    assert error.message == f"{path}:1: no field 'page.body' (found: 'page')"
    assert error.hint == "pass --text-field page"


@pytest.mark.parametrize("document", ["line", "paragraph", "file"])
def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path: Path, document: str) -> None:
    path = tmp_path / "a.txt"
    error = read_error(path, b"one\ntwo\nth\xe9\xe8\nfour", document)
    assert error.message == f"{path}:3: byte 0xe9, expected UTF-8"
    assert error.hint == ENCODING_HINT


@pytest.mark.parametrize("document", ["paragraph", "file"])
def test_line_of_bad_bytes_is_right_with_windows_line_ends(tmp_path: Path, document: str) -> None:
    path = tmp_path / "a.txt"
    error = read_error(path, b"one\r\ntwo\r\nthree\r\n\xe9\r\n", document)
    assert error.message == f"{path}:4: byte 0xe9, expected UTF-8"


@pytest.mark.parametrize("document", ["paragraph", "file"])
def test_line_of_bad_bytes_is_right_after_a_byte_order_mark(tmp_path: Path, document: str) -> None:
    path = tmp_path / "a.txt"
    error = read_error(path, b"\xef\xbb\xbfone\n\xe9\n", document)
    assert error.message == f"{path}:2: byte 0xe9, expected UTF-8"


def test_bad_bytes_are_replaced_if_asked(tmp_path: Path) -> None:
    found = read_documents(tmp_path / "a.txt", b"a\xffb\nc\n", encoding_errors="replace")
    assert found == (["a\ufffdb", "c"], [])


def test_bad_bytes_are_rejected_if_asked(tmp_path: Path) -> None:
    data = b"a\nb\xff\n\nc\n\xc3\n"
    texts, rejects = read_documents(tmp_path / "a.txt", data, encoding_errors="skip")
    assert texts == ["a", "", "", "c", ""]
    reason = "byte 0xff, expected UTF-8"
    assert rejects == [Reject(1, 3, reason), Reject(4, 8, "byte 0xc3, expected UTF-8")]


def test_rejects_are_numbered_through_all_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", 4)
    data = b"a\nb\nc\nd\n\xff\ne\nf\n\xfe\n"
    _, rejects = read_documents(tmp_path / "a.txt", data, encoding_errors="skip")
    assert [(reject.record, reject.byte) for reject in rejects] == [(4, 8), (7, 14)]


def test_byte_of_a_reject_counts_from_the_start_of_the_file(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbfab\xff\n"
    _, rejects = read_documents(tmp_path / "a.txt", data, encoding_errors="skip")
    assert [data[reject.byte] for reject in rejects] == [0xFF]


def test_bad_bytes_in_json_follow_the_encoding_policy(tmp_path: Path) -> None:
    data = b'{"text": "a\xff"}\n{"text": "b"}\n'
    path = tmp_path / "a.jsonl"
    assert read_documents(path, data, encoding_errors="skip")[0] == ["", "b"]
    assert read_documents(path, data, encoding_errors="replace")[0] == ["a\ufffd", "b"]
    error = read_error(path, data, on_bad_record="skip")
    assert error.message == f"{path}:1: byte 0xff, expected UTF-8"


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"])
def test_surrogates_overlong_and_cut_characters_are_not_utf8(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "a.txt"
    error = read_error(path, b"x" + bad + b"\n")
    assert error.message == f"{path}:1: byte {bad[0]:#04x}, expected UTF-8"


def test_error_of_a_later_range_has_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    data = b"one\ntwo\nthr\xffee\n"
    path.write_bytes(data)
    later = SourceRange(0, Source(str(path), "text", "line", len(data)), 4, len(data))
    with pytest.raises(DataError) as caught:
        list(iter_documents(later, DocumentOptions(), lambda _: None))
    assert caught.value.message == f"{path}:3: byte 0xff, expected UTF-8"


def test_field_names_in_a_hint_can_be_printed(tmp_path: Path) -> None:
    """The hint is something to type: a name with a lone surrogate or a line end cannot be."""
    error = read_error(tmp_path / "a.jsonl", json.dumps({"\ud800\n": "a"}).encode())
    str(error).encode()
    assert len(str(error.hint).splitlines()) == 1


@pytest.mark.parametrize("document", ["line", "file"])
def test_a_small_file_is_read_at_once_unless_it_changed(tmp_path: Path, document: str) -> None:
    path, options = tmp_path / "a.txt", DocumentOptions()

    def read(modified: int, num_bytes: int = 4) -> list[str] | None:
        source = Source(str(path), "text", document, num_bytes, modified=modified)
        whole = SourceRange(0, source, 0, num_bytes)
        found = read_block_file(whole, options, (), make_text(options, ()))
        return None if found is None else found[1].texts

    assert read(0) is None  # there is no such file
    path.write_bytes(b"a\nb\n")
    modified = path.stat().st_mtime_ns
    assert read(modified) == (["a", "b"] if document == "line" else ["a\nb\n"])
    assert read(modified + 1) is None
    assert read(modified, 3) is None
    assert read(modified, 5) is None
