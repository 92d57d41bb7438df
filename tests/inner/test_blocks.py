"""Read a range of a file in blocks: every byte once, and errors that say how much was readable."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import find_line_number, hash_range, iter_blocks, iter_raw_blocks
from seqpack_cli.errors import DataError
from seqpack_cli.limits import LIMITS

try:
    from compression import zstd
except ImportError:
    from backports import zstd

COMPRESSORS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
}
TEXT = b"one\ntwo\r\n\nfo\rur\nfive"

every_compression = pytest.mark.parametrize("compression", COMPRESSORS)
every_kind = pytest.mark.parametrize("compression", ["", *COMPRESSORS])


def write_source(path: Path, data: bytes, compression: str = "") -> Source:
    path.write_bytes(data)
    return Source(str(path), "text", "line", len(data), compression)


def compress(text: bytes, compression: str) -> bytes:
    return COMPRESSORS[compression](text) if compression else text


def whole(source: Source) -> SourceRange:
    return SourceRange(0, source, 0, source.num_bytes)


def read(source_range: SourceRange) -> tuple[bytes, bytes]:
    """Return the text of a range, and what was read of the file for it."""
    seen = bytearray()
    text = b"".join(iter_blocks(source_range, seen.extend))
    return text, bytes(seen)


def read_error(source: Source) -> DataError:
    with pytest.raises(DataError) as caught:
        read(whole(source))
    assert caught.value.exit_code == 3
    return caught.value


@every_kind
@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1 << 20])
def test_text_is_whole_and_every_byte_of_the_file_is_seen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, block_bytes: int
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", block_bytes)
    data = compress(TEXT, compression) + compress(TEXT, compression)
    source = write_source(tmp_path / "a", data, compression)
    assert read(whole(source)) == (TEXT * 2, data)


@given(data=st.binary(max_size=40), numbers=st.tuples(*[st.integers(0, 40)] * 2))
def test_range_gives_its_bytes_alone(tmp_path: Path, data: bytes, numbers: tuple[int, int]) -> None:
    start, end = sorted(min(number, len(data)) for number in numbers)
    source_range = SourceRange(0, write_source(tmp_path / "a", data), start, end)
    seen = bytearray()
    assert b"".join(iter_raw_blocks(source_range, seen.extend)) == data[start:end]
    assert seen == data[start:end]
    assert hash_range(source_range) == blake3(data[start:end]).hexdigest()


def test_blocks_are_no_larger_than_they_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", 4)
    source = write_source(tmp_path / "a", b"0123456789")
    assert list(iter_raw_blocks(whole(source), lambda _: None)) == [b"0123", b"4567", b"89"]


def test_hash_is_of_the_file_and_not_of_its_text(tmp_path: Path) -> None:
    data = gzip.compress(TEXT)
    source = write_source(tmp_path / "a.gz", data, "gzip")
    assert hash_range(whole(source)) == blake3(data).hexdigest()
    Path(source.path).unlink()
    assert hash_range(whole(source)) == ""


def test_spooled_input_is_read_where_it_lies_and_named_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(b"text")
    source = Source("-", "text", "line", 9, spool=str(tmp_path / "spool"))
    with pytest.raises(DataError) as caught:
        read(whole(source))
    assert caught.value.message == "-: changed while it was read, ends 5 bytes early"
    assert read(whole(source._replace(num_bytes=4))) == (b"text", b"text")


# Lines


@every_kind
@pytest.mark.parametrize("block_bytes", [1, 3, 1 << 20])
def test_line_number_counts_the_line_ends_before_a_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, block_bytes: int
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", block_bytes)
    source = write_source(tmp_path / "a", compress(TEXT, compression), compression)
    for byte in range(len(TEXT) + 1):
        assert find_line_number(source, byte) == 1 + TEXT[:byte].count(b"\n")


# Errors


@every_compression
def test_truncated_file_is_an_error_naming_its_size(tmp_path: Path, compression: str) -> None:
    member = compress(b"one\ntwo\n", compression)
    path = tmp_path / "a"
    error = read_error(write_source(path, member + member[:5], compression))
    assert error.message == f"{path}:3: truncated {compression} data"
    assert error.hint == "8 bytes of text could be read; download or copy the file again"


@every_compression
def test_compressed_file_of_no_bytes_is_an_error(tmp_path: Path, compression: str) -> None:
    error = read_error(write_source(tmp_path / "a", b"", compression))
    assert error.message == f"{tmp_path / 'a'}:1: 0 bytes, expected {compression} data"
    assert error.hint == "0 bytes of text could be read; download or copy the file again"


@every_compression
def test_damaged_file_is_an_error_naming_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", 128)
    data = compress(b"a\n" * 1000 + b"b", compression) + b"no compressed data " * 9
    error = read_error(write_source(tmp_path / "a", data, compression))
    assert error.message.startswith(f"{tmp_path / 'a'}:1001: not {compression}, or damaged (")
    assert error.hint == "2,001 bytes of text could be read; download or copy the file again"


@every_kind
@pytest.mark.parametrize("mark", ["fffe", "feff"])
def test_utf16_is_refused(tmp_path: Path, compression: str, mark: str) -> None:
    data = compress(bytes.fromhex(mark) + b"a\0", compression)
    path = tmp_path / "notes.txt"
    error = read_error(write_source(path, data, compression))
    quoted = repr(bytes.fromhex(mark))
    assert error.message == f"{path}:1: UTF-16 (begins with {quoted}), expected UTF-8"
    start, place = (f"{compression} -dc {path} | ", "") if compression else ("", f" {path}")
    assert error.hint == f"{start}iconv -f UTF-16 -t UTF-8{place} > notes.utf8.txt"


def test_byte_order_mark_of_utf16_inside_a_file_is_ignored(tmp_path: Path) -> None:
    source = write_source(tmp_path / "a", b"a\n\xff\xfe")
    assert read(SourceRange(0, source, 2, 4))[0] == b"\xff\xfe"


@every_kind
def test_file_that_became_shorter_is_an_error(tmp_path: Path, compression: str) -> None:
    data = compress(TEXT, compression)
    source = write_source(tmp_path / "a", data, compression)._replace(num_bytes=len(data) + 3)
    error = read_error(source)
    assert error.message == f"{tmp_path / 'a'}: changed while it was read, ends 3 bytes early"
    assert (
        error.hint
        == "wait until it is completely written, then run the same command with --overwrite"
    )


def test_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    source = Source(str(tmp_path / "gone"), "text", "line", 5)
    assert read_error(source).message == f"{tmp_path / 'gone'}: No such file or directory"
