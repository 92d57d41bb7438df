"""Decompress blocks: all members, bounded memory, and no silently truncated text."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from seqpack_cli.corpus.UNKNOWN_decompression import (
    OPENERS,
    BadCompressionError,
    BombError,
    check_ratio,
    iter_decompressed,
)

from seqpack_cli.corpus import decompression
from seqpack_cli.errors import MachineError
from seqpack_cli.limits import LIMITS

try:
    from compression import zstd
except ImportError:
    from backports import zstd

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda text: gzip.compress(text, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    # As the zstd program does, and Python's function does not unless asked.
    "zstd": lambda text: zstd.compress(
        text, options={zstd.CompressionParameter.checksum_flag: True}
    ),
}
TEXT = b"one line\nand another, and another\n"
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18" + b"\x04\x00\x00\x00" + b"skip"

every_compression = pytest.mark.parametrize("compression", COMPRESSORS)


def cut(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    """Cut bytes into blocks of these sizes, as a slow pipe would."""
    start = 0
    while start < len(data):
        size = next(sizes)
        yield data[start : start + size]
        start += size


def decompress(data: bytes, compression: str, size: int = 1 << 20) -> bytes:
    return b"".join(iter_decompressed(cut(data, itertools.repeat(size)), compression))


def find_error(data: bytes, compression: str, size: int = 1 << 20) -> str:
    with pytest.raises(BadCompressionError) as caught:
        decompress(data, compression, size)
    return str(caught.value)


def give_text_or_error(data: bytes, compression: str) -> bytes | None:
    try:
        return decompress(data, compression)
    except BadCompressionError:
        return None


# Complete streams


@every_compression
@pytest.mark.parametrize("text", [b"", b"a", TEXT, TEXT * 1000])
def test_one_member_gives_its_text(compression: str, text: bytes) -> None:
    assert decompress(COMPRESSORS[compression](text), compression) == text


@every_compression
@given(
    members=st.lists(st.one_of(st.just(b""), st.binary(max_size=200)), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
@example(members=[b"", b"", b"a", b""], sizes=[1])
@example(members=[b"a" * 5000, b"b" * 5000], sizes=[2, 3, 7])
def test_members_follow_one_another_however_they_are_read(
    compression: str, members: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(map(COMPRESSORS[compression], members))
    blocks = cut(data, itertools.cycle(sizes))
    assert b"".join(iter_decompressed(blocks, compression)) == b"".join(members)


@every_compression
def test_many_members_are_read(compression: str) -> None:
    texts = [b"%d\n" % number for number in range(100)]
    data = b"".join(map(COMPRESSORS[compression], texts))
    for size in (1 << 20, 11):
        assert decompress(data, compression, size) == b"".join(texts)


@pytest.mark.parametrize("compression", ["gzip", "xz"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
def test_files_may_be_padded_with_zeros(compression: str, size: int) -> None:
    member = COMPRESSORS[compression](TEXT)
    assert decompress(member + b"\0" * 8, compression, size) == TEXT
    assert decompress(member + b"\0" * 4 + member + b"\0" * 512, compression, size) == TEXT * 2


def test_zstd_frames_that_are_to_be_skipped_hold_no_text() -> None:
    frame = COMPRESSORS["zstd"](TEXT)
    for size in (1, 3, 1 << 20):
        assert decompress(SKIPPABLE_FRAME + frame + SKIPPABLE_FRAME, "zstd", size) == TEXT
    assert find_error(frame + SKIPPABLE_FRAME[:-1], "zstd") == "truncated zstd data"


# Bounded blocks


@every_compression
def test_no_block_is_larger_than_a_block(compression: str) -> None:
    num_bytes = 3 * LIMITS.read_bytes + 17
    data = COMPRESSORS[compression](b"a" * num_bytes)
    assert len(data) < num_bytes // 500
    sizes = [len(block) for block in iter_decompressed(iter([data]), compression)]
    assert max(sizes) <= LIMITS.read_bytes
    assert sum(sizes) == num_bytes


@every_compression
@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_texts_that_end_where_a_block_does_are_whole(
    compression: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "read_bytes", 16)
    for num_bytes in (0, 1, 15, 16, 17, 31, 32, 33, 160):
        text = bytes(range(48, 48 + 10)) * 16
        member = COMPRESSORS[compression](text[:num_bytes])
        blocks = list(iter_decompressed(cut(member * 2, itertools.repeat(size)), compression))
        assert b"".join(blocks) == text[:num_bytes] * 2
        assert all(0 < len(block) <= 16 for block in blocks)


@every_compression
def test_input_is_read_as_text_is_asked_for(compression: str) -> None:
    """Otherwise a bomb of many members would be in memory as a whole."""
    member = COMPRESSORS[compression](TEXT)
    num_read = 0

    def blocks() -> Iterator[bytes]:
        nonlocal num_read
        for _ in range(10):
            num_read += 1
            yield member

    texts = iter_decompressed(blocks(), compression)
    assert next(texts) == TEXT
    assert num_read == 1


# Damaged streams


@every_compression
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_every_cut_of_a_file_is_an_error(compression: str, size: int) -> None:
    data = COMPRESSORS[compression](TEXT)
    assert find_error(b"", compression, size) == f"0 bytes, expected {compression} data"
    for end in range(1, len(data)):
        message = find_error(data[:end], compression, size)
        assert message == f"truncated {compression} data"


@every_compression
def test_every_cut_of_a_second_member_is_an_error(compression: str) -> None:
    member = COMPRESSORS[compression](TEXT)
    for end in range(1, len(member)):
        message = find_error(member + member[:end], compression)
        assert message == f"truncated {compression} data"


@every_compression
@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("garbage", [b"x", b"garbage " * 20, b"\0\0\0\0x", b"\n"])
def test_other_bytes_after_the_end_are_an_error(
    compression: str, size: int, garbage: bytes
) -> None:
    find_error(COMPRESSORS[compression](TEXT) + garbage, compression, size)


@every_compression
def test_zeros_before_the_first_member_are_an_error(compression: str) -> None:
    message = find_error(b"\0\0\0\0" + COMPRESSORS[compression](TEXT), compression)
    assert message.startswith(f"not {compression}, or damaged (")


@every_compression
@pytest.mark.parametrize("num_bytes", [1, 12, 13, 14, 40, 4096])
def test_file_of_nothing_but_zeros_is_an_error(compression: str, num_bytes: int) -> None:
    """As after a download that allocated its file and never wrote it."""
    for size in (1, 1 << 20):
        assert find_error(b"\0" * num_bytes, compression, size).startswith(
            (f"not {compression}, or damaged (", "truncated ")
        )


def test_lzma_without_the_container_of_xz_is_an_error() -> None:
    """It has no checksum, and zeros are a complete stream of it."""
    data = lzma.compress(TEXT, lzma.FORMAT_ALONE)
    assert find_error(data, "xz").startswith("not xz, or damaged (")


@every_compression
@pytest.mark.parametrize("other", ["", *COMPRESSORS])
def test_file_of_another_kind_is_an_error(compression: str, other: str) -> None:
    data = COMPRESSORS[other](TEXT) if other else TEXT
    if other != compression:
        message = find_error(data, compression)
        assert message.startswith(f"not {compression}, or damaged (")
        assert find_error(COMPRESSORS[compression](TEXT) + data, compression)


@every_compression
def test_every_flipped_bit_is_an_error_or_changes_no_text(compression: str) -> None:
    data = COMPRESSORS[compression](TEXT)
    num_errors = 0
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        text = give_text_or_error(bytes(damaged), compression)
        assert text in (None, TEXT), f"bit {bit}"
        num_errors += text is None
    assert num_errors > 4 * len(data)


def test_xz_that_wants_too_much_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "MAX_XZ_MEMORY", 1 << 20)
    assert find_error(lzma.compress(TEXT, preset=9), "xz").startswith("not xz, or damaged (")
    assert decompress(lzma.compress(TEXT, preset=0), "xz") == TEXT


def test_error_of_ours_in_the_blocks_is_not_hidden() -> None:
    def blocks() -> Iterator[bytes]:
        yield gzip.compress(TEXT)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(iter_decompressed(blocks(), "gzip"))


def test_missing_zstd_package_is_named() -> None:
    hidden = dict.fromkeys(("compression", "compression.zstd", "backports", "backports.zstd"))
    data = COMPRESSORS["zstd"](TEXT)
    decompression._load_zstd.cache_clear()
    with mock.patch.dict(sys.modules, hidden), pytest.raises(MachineError) as caught:
        decompress(data, "zstd")
    decompression._load_zstd.cache_clear()
    assert caught.value.message == "backports.zstd is not installed, .zst files need it"
    assert caught.value.hint == "pip install backports.zstd"
    assert caught.value.exit_code == 5


# Bombs


def iter_repeated(line: bytes, num_bytes: int) -> Iterator[bytes]:
    packer = zlib.compressobj(9, wbits=31)
    block = line * ((1 << 20) // len(line))
    for _ in range(num_bytes // len(block)):
        yield packer.compress(block)
    yield packer.flush()


@pytest.mark.parametrize(
    ("line", "expected"),
    [(b"0" * 1023 + b"\n", 63 << 20), (b"0\n", (64 << 20) // 9)],  # 2 bytes count as 18
)
def test_text_that_expands_too_much_is_a_bomb(line: bytes, expected: int) -> None:
    given = 0
    with pytest.raises(BombError) as caught:
        for text in iter_decompressed(iter_repeated(line, 80 << 20), "gzip"):
            given += len(text)
    assert (
        str(caught.value)
        == "expands to more than 256 times its compressed size, far more than text does"
    )
    assert expected - (1 << 20) < given <= expected


@pytest.mark.parametrize(
    ("line", "num_bytes"), [(b"0" * 1023 + b"\n", 62 << 20), (b"0\n", 7 << 20)]
)
def test_small_texts_may_have_any_ratio(line: bytes, num_bytes: int) -> None:
    assert sum(map(len, iter_decompressed(iter_repeated(line, num_bytes), "gzip"))) == num_bytes


@every_compression
def test_short_members_are_not_copied_again_and_again(compression: str) -> None:
    """Each of some thousand members in a block leaves what follows it as a copy."""
    member = COMPRESSORS[compression](b"a\n")
    num_members = (1 << 18) // len(member)
    open_member = OPENERS[compression]
    copied = 0

    class Counting:
        def __init__(self) -> None:
            self._inner = open_member()

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal copied
            copied += len(data)
            return bytes(self._inner.decompress(data, max_length))

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    with mock.patch.dict(OPENERS, {compression: Counting}):
        text = b"".join(iter_decompressed(iter([member * num_members]), compression))
    assert text == b"a\n" * num_members
    assert copied < 16 << 20


@every_compression
def test_endless_empty_members_are_an_error(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decompression, "MAX_EMPTY_MEMBERS", 10)
    full, empty = COMPRESSORS[compression](TEXT), COMPRESSORS[compression](b"")
    assert decompress((full + empty) * 5 + empty * 5, compression) == TEXT * 5
    found = find_error((full + empty) * 5 + empty * 6, compression)
    assert found == f"not {compression}, or damaged (more than 10 members without data)"


@pytest.mark.parametrize("block_bytes", [7, 100, 1 << 20])
def test_members_of_all_sizes_follow_one_another(block_bytes: int) -> None:
    texts = [b"", b"a", TEXT, b"", bytes(range(256)) * 5000, b"b", TEXT * 3]
    data = b"".join(gzip.compress(text) + b"\0" * (len(text) % 5) for text in texts)
    blocks = (data[at : at + block_bytes] for at in range(0, len(data), block_bytes))
    assert b"".join(iter_decompressed(blocks, "gzip")) == b"".join(texts)


@pytest.mark.parametrize(("num_read", "num_given"), [(0, 64 << 20), (1 << 20, 256 << 20)])
def test_ratio_is_bounded_beyond_what_is_free(num_read: int, num_given: int) -> None:
    check_ratio(num_read, num_given)
    with pytest.raises(BombError):
        check_ratio(num_read, num_given + 1)
