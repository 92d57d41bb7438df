"""Read the raw records of ranges of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_lines, slow_paragraphs
from strategies import line_files, paragraph_files

from seqpack_cli.corpus.records import iter_records
from seqpack_cli.corpus.sources import KINDS, Source, SourceRange
from seqpack_cli.errors import DataError
from seqpack_cli.limits import LIMITS


def read_records(
    path: Path, document: str = "line", *, max_document_bytes: int = 1 << 20
) -> list[tuple[bytes, int]]:
    size = path.stat().st_size
    whole = SourceRange(0, Source(str(path), "text", document, size), 0, size)
    return [
        (record, block.find_start(index))
        for block in iter_records(
            whole, max_document_bytes=max_document_bytes, on_read=lambda _: None
        )
        for index, record in enumerate(block.records)
    ]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\x00b\n", [b"a\x00b"]),
        ("a\u2028b\x0bc\x0cd\x85e\x1cf\u2029g\n".encode(),) * 2,
    ],
)
def test_lines_end_at_newline_alone(tmp_path: Path, data: bytes, expected: object) -> None:
    if isinstance(expected, bytes):
        expected = [expected.removesuffix(b"\n")]
    found = [record for record, _ in read_records(write(tmp_path / "a.txt", data))]
    assert found == expected


def test_records_begin_where_the_file_has_them(tmp_path: Path) -> None:
    data = b"one\r\n\ntwo\nthree"
    path = write(tmp_path / "a.txt", data)
    assert read_records(path) == [(b"one\r", 0), (b"", 5), (b"two", 6), (b"three", 10)]
    assert read_records(path, "paragraph") == [(b"one\r", 0), (b"two\nthree", 6)]
    assert read_records(path, "file") == [(data, 0)]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1 << 20])
@given(data=line_files())
def test_lines_equal_slow_splitter_at_any_block_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, data: bytes
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", block_bytes)
    found = read_records(write(tmp_path / "a.txt", data))
    texts = [record.removesuffix(b"\r").decode() for record, _ in found]
    if texts:
        texts[0] = texts[0].removeprefix("\ufeff")
    assert texts == slow_lines(data)
    assert all(data[start : start + len(record)] == record for record, start in found)


@pytest.mark.parametrize("block_bytes", [1, 3, 1 << 20])
@given(data=paragraph_files())
def test_paragraphs_equal_slow_splitter_at_any_block_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, data: bytes
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", block_bytes)
    found = read_records(write(tmp_path / "a.txt", data), "paragraph")
    texts = [record.replace(b"\r\n", b"\n").removesuffix(b"\r") for record, _ in found]
    assert [text.decode() for text in texts] == slow_paragraphs(data)
    assert all(data[start:].startswith(record) for record, start in found), "so errors find bytes"


@given(
    data=st.binary(max_size=40).filter(
        lambda data: not KINDS.match(data) and not data.startswith((b"\xff\xfe", b"\xfe\xff"))
    )
)
def test_file_documents_are_the_bytes_of_the_file(tmp_path: Path, data: bytes) -> None:
    assert read_records(write(tmp_path / "a.txt", data), "file") == [(data, 0)]


def test_records_are_hashed_as_read(tmp_path: Path) -> None:
    data = b"one\r\ntwo\n\nthree"
    path = write(tmp_path / "a.txt", data)
    for document in ("line", "paragraph", "file"):
        digest = blake3()
        whole = SourceRange(0, Source(str(path), "text", document, len(data)), 0, len(data))
        list(iter_records(whole, max_document_bytes=99, on_read=digest.update))
        assert digest.digest() == blake3(data).digest()


@pytest.mark.parametrize(
    ("encoding", "mark"), [("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]
)
def test_utf16_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, encoding: str, mark: bytes
) -> None:
    path = write(tmp_path / "notes.txt", mark + "hello\n".encode(encoding))
    with pytest.raises(DataError) as caught:
        read_records(path)
    assert caught.value.message == f"{path}:1: UTF-16 (begins with {mark!r}), expected UTF-8"
    assert caught.value.hint == f"iconv -f UTF-16 -t UTF-8 {path} > notes.utf8.txt"
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("document", ["line", "paragraph", "file"])
@pytest.mark.parametrize("data", [b"12345678", b"12345678\n"])
def test_document_of_exactly_the_limit_is_read(tmp_path: Path, document: str, data: bytes) -> None:
    """A line end that is no part of the document does not count against it."""
    limit = len(data) if document == "file" else 8
    path = write(tmp_path / "a.txt", data)
    assert len(read_records(path, document, max_document_bytes=limit)) == 1


@pytest.mark.parametrize(
    ("document", "line"), [("line", 3), ("paragraph", 3), ("file", 1)], ids=str
)
@pytest.mark.parametrize("end", [b"", b"\n", b"\nc\n"])
@pytest.mark.parametrize("block_bytes", [4, 1 << 20])
def test_document_above_the_limit_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    document: str,
    line: int,
    end: bytes,
    block_bytes: int,
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", block_bytes)
    path = write(tmp_path / "a.txt", b"ab\n\n123456789" + end)
    with pytest.raises(DataError) as caught:
        read_records(path, document, max_document_bytes=8)
    assert caught.value.message == f"{path}:{line}: document larger than 8 bytes"
    assert caught.value.hint == ("pass a larger --max-document-bytes, or split the document")


def test_oversized_document_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A sparse file of 4 GiB without a line end costs no more than the limit."""
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(4 << 30)
    with pytest.raises(DataError, match="document larger than 3,000,000 bytes"):
        read_records(path, max_document_bytes=3_000_000)
    with pytest.raises(DataError, match="document larger than 3,000,000 bytes"):
        read_records(path, "file", max_document_bytes=3_000_000)


def test_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntwo\n")
    planned = SourceRange(0, Source(str(path), "text", "line", 1008), 0, 1008)
    with pytest.raises(DataError) as caught:
        list(iter_records(planned, max_document_bytes=99, on_read=lambda _: None))
    assert caught.value.message == f"{path}: changed while it was read, ends 1,000 bytes early"


def test_file_that_went_away_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "gone.txt"
    planned = SourceRange(0, Source(str(path), "text", "line", 8), 0, 8)
    with pytest.raises(DataError) as caught:
        list(iter_records(planned, max_document_bytes=99, on_read=lambda _: None))
    assert caught.value.message == f"{path}: No such file or directory"
