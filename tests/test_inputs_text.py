"""Texts as tokenize reads them: lines, paragraphs, files; any bytes, any cuts, compressed."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pickle
import random
import sqlite3
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import (
    COMPRESS,
    MARK,
    ONE,
    Reading,
    Reject,
    Text,
    draw_part_bytes,
    draw_text,
    make_options,
    new_folder,
    read,
    refused,
    write,
    write_packed,
)
from safetensors.numpy import save

from seqpack_cli import DataError, Progress, tokenize

BAD = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\x80")  # not UTF-8
NAMES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def find_records(data: bytes, document: str) -> list[tuple[int, bytes]]:
    """Return the records of a text, and the byte at which each begins."""
    if document == "file":
        return [(0, data)]
    lines, start = [], 0
    for line in data.split(b"\n"):
        lines.append((start, line))
        start += len(line) + 1
    if not lines[-1][1]:
        lines.pop()
    if document == "line":
        return lines
    groups: list[list[tuple[int, bytes]]] = [[]]
    for start, line in lines:
        if (line.removeprefix(MARK) if start == 0 else line).strip():
            groups[-1].append((start, line))
        else:
            groups.append([])
    return [(group[0][0], b"\n".join(line for _, line in group)) for group in groups if group]


def read_slowly(data: bytes, document: str, policy: str) -> tuple[list[Text], list[int]]:
    """Return the text of each record, None if it is not UTF-8, and the first byte that is not."""
    texts: list[Text] = []
    wrong = []
    for start, record in find_records(data, document):
        try:
            text = record.decode(errors="replace" if policy == "replace" else "strict")
        except UnicodeDecodeError as error:
            texts.append(None)
            wrong.append(start + error.start)
            continue
        text = text.removeprefix("\ufeff") if start == 0 else text
        text = text.replace("\r\n", "\n") if document == "paragraph" else text
        texts.append(text if document == "file" else text.removesuffix("\r"))
    return texts, wrong


def draw_data(rng: random.Random, most: int = 25) -> bytes:
    """Return the bytes of a text file, some of them not UTF-8."""
    data = draw_text(rng, most).encode()
    for _ in range(rng.choice([0, 0, 1, 3])):
        place = rng.randint(0, len(data))
        data = data[:place] + rng.choice(BAD) + data[place:]
    return MARK * (rng.random() < 0.3) + data


def pack(data: bytes, suffix: str, rng: random.Random) -> bytes:
    """Compress as several members, some of them empty, with zeros at the end."""
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(0, 3)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    zeros = bytes(rng.choice([0, 0, 4, 512]) if suffix else 0)
    return b"".join(map(COMPRESS[suffix], pieces)) + zeros


def check_reading(found: Reading, plain: dict[str, bytes], document: str, policy: str) -> None:
    """Compare with plain Python, from the decompressed bytes of each source."""
    assert list(found.texts) == list(plain)
    rejects: list[Reject] = []
    for path, data in plain.items():
        texts, wrong = read_slowly(data, document, policy)
        assert found.texts[path] == texts, path
        records = [number for number, text in enumerate(texts, 1) if text is None]
        rejects += [(path, *pair) for pair in zip(records, wrong, strict=True)]
    assert found.rejects == rejects


def check_random_files(folder: Path, seed: int, num_files: int) -> None:
    """Compare random files, some compressed, however parts are cut."""
    rng = random.Random(seed)
    plain: dict[str, bytes] = {}
    for number in range(num_files):
        suffix, data = rng.choice(["", *COMPRESS]), draw_data(rng)
        plain[write(folder / f"{number}.txt{suffix}", pack(data, suffix, rng))] = data
    plain[write(folder / "z.txt", b"a token")] = b"a token"
    for document in ("line", "paragraph", "file"):
        policy = rng.choice(["replace", "skip"])
        options = {
            "part_bytes": draw_part_bytes(sum(map(len, plain.values())), rng),
            "max_document_bytes": rng.choice([64 << 20, max(map(len, plain.values()))]),
        }
        found = read(folder, plain, document=document, encoding_errors=policy, **options)
        check_reading(found, plain, document, policy)


@pytest.mark.parametrize("seed", range(18))
def test_random_files_are_read_as_by_plain_python(tmp_path: Path, seed: int) -> None:
    check_random_files(tmp_path, seed, 12)


def test_random_files_are_read_the_same_in_tiny_blocks(tmp_path: Path, tiny: int) -> None:
    for seed in range(2):
        check_random_files(tmp_path / str(seed), 100 + seed, 6)


@pytest.mark.parametrize("document", ["line", "paragraph"])
def test_parts_may_be_cut_at_every_byte(tmp_path: Path, document: str) -> None:
    """What comes before a file decides where it is cut first."""
    data = MARK + "a\r\n\r\nb\n \né\nc\n\n\x0b\n𝄞d\n\nlonger line\nend".encode()
    path = write(tmp_path / "a.txt", data)
    for room in range(1, len(data) + 1, 2):
        before = b"x" * (len(data) + 1 - room)
        plain = {write(tmp_path / "before.txt", before): before, path: data}
        found = read(tmp_path, plain, document=document, part_bytes=len(data) + 1)
        check_reading(found, plain, document, "error")
        assert found.manifest["parts"][0]["ranges"][-1]["end"] >= min(room, len(data))
    for part_bytes in (1, 2, 5):
        found = read(tmp_path, [path], document=document, part_bytes=part_bytes)
        check_reading(found, {path: data}, document, "error")
        sizes = [size for part in list_sizes(found) for _, size in part]
        assert all(size >= part_bytes for size in sizes[:-1])
        assert part_bytes > 1 or len(sizes) == len(find_records(data, document))


def list_sizes(found: Reading) -> list[list[tuple[int, int]]]:
    """Return the source and the size of each range of each part."""
    parts = [part["ranges"] for part in found.manifest["parts"]]
    return [[(each["source"], each["end"] - each["start"]) for each in part] for part in parts]


def test_small_files_share_a_part_and_large_ones_fill_it_up(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{number}.txt", b"a\n" * (size // 2) + b"b" * (size % 2))
        for number, size in enumerate([3, 3, 3, 10, 4, 40, 2, 2])
    ]
    parts = list_sizes(read(tmp_path, paths, part_bytes=10))
    assert parts[:2] == [[(0, 3), (1, 3), (2, 3), (3, 2)], [(3, 8), (4, 2)]]
    assert [sum(size for _, size in part) for part in parts[2:]] == [10, 10, 10, 10, 6]
    parts = list_sizes(read(tmp_path, paths, part_bytes=10, document="file"))
    assert [[source for source, _ in part] for part in parts] == [[0, 1, 2], [3], [4], [5], [6, 7]]


def test_large_input_has_parts_for_some_cores(tmp_path: Path) -> None:
    """At least 4 MiB each, a sixteenth of the input, or as large as was asked for."""
    path = write(tmp_path / "a.txt", (b"x" * 65_535 + b"\n") * 150)
    assert list_sizes(read(tmp_path, [path])) == [[(0, n << 16)] for n in (64, 64, 22)]


@pytest.mark.parametrize(("document", "suffix"), [("line", ""), ("paragraph", ".gz")])
def test_records_that_blocks_cut_are_whole(tmp_path: Path, document: str, suffix: str) -> None:
    rng = random.Random(len(suffix))
    lines = ["é" * rng.choice([0, 700, 30_000]) + str(number) * 3 for number in range(60)]
    lines[40] = "y" * 1_100_000
    data = "\r\n".join(lines).encode() + b"\n\xff bad\n\nlast"
    path = write_packed(tmp_path / f"a.txt{suffix}", data)
    found = read(tmp_path, [path], document=document, encoding_errors="skip")
    check_reading(found, {path: data}, document, "skip")
    refused(tmp_path, [path], "61: byte 0xff", document=document)


# Bad records


def test_first_bad_record_is_named_with_its_line(tmp_path: Path) -> None:
    rng = random.Random(5)
    good = write(tmp_path / "good.txt", b"good\n")
    for number in range(30):
        data = draw_data(rng, 20) + b"a\n" + rng.choice(BAD) + b"\nb\n"
        document, suffix = rng.choice(["line", "paragraph", "file"]), rng.choice(["", "", ".gz"])
        path = write(tmp_path / f"{number}.txt{suffix}", pack(data, suffix, rng))
        byte = read_slowly(data, document, "error")[1][0]
        said = f"{data.count(10, 0, byte) + 1}: byte {data[byte]:#04x}, expected UTF-8"
        options = {"document": document, "part_bytes": rng.choice([2, 9, 1 << 20])}
        error = refused(tmp_path, [good, path], said, on_bad_record="skip", **options)
        record = [each for start, each in find_records(data, document) if start <= byte][-1]
        assert ("NUL" in str(error.hint)) == (b"\0" in record)


@pytest.mark.parametrize("suffix", ["", ".xz"])
@pytest.mark.parametrize("document", ["line", "paragraph", "file"])
def test_document_above_the_limit_is_named(tmp_path: Path, document: str, suffix: str) -> None:
    data = b"ab\r\n\n\nfour\nlonger than that\n\nc\n"
    path = write_packed(tmp_path / f"a.txt{suffix}", data)
    records = find_records(data, document)
    longest = max(len(record) for _, record in records)
    start = next(start for start, record in records if len(record) == longest)
    said = f"{data.count(10, 0, start) + 1}: document larger than {longest - 1} bytes"
    for part_bytes in (1, 1 << 20):
        options = {"document": document, "part_bytes": part_bytes}
        found = read(tmp_path, [path], max_document_bytes=longest, **options)
        check_reading(found, {path: data}, document, "error")
        error = refused(tmp_path, [path], said, max_document_bytes=longest - 1, **options)
        assert "--max-document-bytes" in str(error.hint)


def test_line_without_an_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"first\n")
    os.truncate(path, 100_000_000)  # of NULs, which take no room on the disk
    refused(tmp_path, [path], "2: document larger", max_document_bytes=2_000_000)


def test_name_of_the_folder_of_a_file_can_be_kept(tmp_path: Path) -> None:
    names = ("en/a.txt", "de/b.txt.gz", "de/c d")
    paths = [write_packed(tmp_path / name, b"text\n") for name in names]
    for keep in ("folder:text", "folder:class", "folder"):
        found = read(tmp_path, paths, document="file", keep=[keep], part_bytes=6)
        assert found.column("folder") == ["en", "de", "de"]


# Compression


@pytest.mark.parametrize("suffix", NAMES)
def test_cut_or_damaged_stream_is_never_another_text(tmp_path: Path, suffix: str) -> None:
    text = b"some text\nand more of it\n" * 3
    first = COMPRESS[suffix](text)
    packed = first + COMPRESS[suffix](b"second\n")
    path = tmp_path / f"a.txt{suffix}"
    for end in range(0, len(packed), 9):
        write(path, packed[:end])
        if end != len(first):
            assert NAMES[suffix] in refused(tmp_path, [path]).message
    rng = random.Random(3)
    for _ in range(12):
        damaged = bytearray(packed)
        damaged[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
        write(path, bytes(damaged))
        with contextlib.suppress(DataError):
            found = read(tmp_path, [path])
            check_reading(found, {str(path): text + b"second\n"}, "line", "error")


@pytest.mark.parametrize("suffix", NAMES)
def test_stream_that_is_not_one_is_refused(tmp_path: Path, suffix: str) -> None:
    packed = COMPRESS[suffix](b"text\n")
    good = write(tmp_path / "good.txt", b"good\n")
    for data, said in (
        (b"", "0 bytes, expected"),
        (b"plain text\n" * 9, "not "),
        (packed[:-1], "truncated"),
        (packed + packed[:9], "truncated"),
        (packed + b"garbage" * 5, "not "),
        (packed + bytes(20) + b"garbage" * 5, "not "),
        (bytes(20) + packed, "not "),
    ):
        error = refused(tmp_path, [good, write(tmp_path / f"a.txt{suffix}", data)])
        assert said in error.message
    lines = COMPRESS[suffix](b"a\n" * 100)
    path = write(tmp_path / f"a.txt{suffix}", lines + lines[:10])
    refused(tmp_path, [path], "101: truncated")


def test_compression_of_nothing_is_an_empty_file(tmp_path: Path) -> None:
    paths = [write_packed(tmp_path / f"a.txt{suffix}", b"") for suffix in NAMES]
    good = write(tmp_path / "good.txt", b"good")
    assert read(tmp_path, [*paths, good]).documents == ["good"]
    assert read(tmp_path, [*paths, good], document="file").documents == [*[""] * 4, "good"]


# Files that are not text


def make_file(kind: str) -> bytes:
    """Return the bytes of a file of a well-known format."""
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.txt", "text")
    elif kind == "tar":
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("a.txt"))
    elif kind == "NumPy":
        np.save(file, np.arange(10))
    elif kind == "SQLite":
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("create table a (b)")
            return connection.serialize()
    return file.getvalue()


KINDS = {
    **{name: COMPRESS[suffix](b"text") for suffix, name in NAMES.items()},
    **{kind: make_file(kind) for kind in ("zip", "tar", "NumPy", "SQLite")},
    "7z": b"7z\xbc\xaf\x27\x1c\0\4",
    "Parquet": b"PAR1\x15\4\x15 ",
    "Arrow": b"ARROW1\0\0\xff\xff\xff\xff",
    "pickle": pickle.dumps({"a": 1}),
    "Python bytecode": importlib.util.MAGIC_NUMBER + bytes(12),
    "safetensors": save({"a": np.arange(3)}),
    "indexed dataset": b"MMIDIDX\0\0\1",
    "HDF5": b"\x89HDF\r\n\x1a\n\0",
    "PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "PNG": b"\x89PNG\r\n\x1a\n\0",
    "JPEG": b"\xff\xd8\xff\xe0",
    "ELF": b"\x7fELF\2\1",
    "UTF-32": "text".encode("utf-32"),
    "UTF-16": "text".encode("utf-16"),
    "UTF-16BE": "a\n".encode("utf-16-be"),
    "UTF-16LE": ("text line\n" * 30).encode("utf-16-le"),
}


CONVERT = "convert it to text, JSON lines or Parquet"
HINTS = {
    "gzip,bzip2,xz,zstd": "{unpack} | seqpack tokenize -",
    "zip,tar,7z": "unpack it into a folder and pass the folder",
    "Parquet": "pass --format parquet",
    "Arrow": "pass --format arrow",
    "NumPy,indexed dataset": "run seqpack import to read ids",
    "UTF-32,UTF-16,UTF-16BE,UTF-16LE": "iconv -f ",
    "pickle,Python bytecode,safetensors,SQLite,HDF5,PDF,PNG,JPEG,ELF": CONVERT,
}


@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_files_that_are_not_text_are_named(tmp_path: Path, suffix: str) -> None:
    good = write(tmp_path / "good.txt", b"good\n")
    for kind, data in KINDS.items():
        path = write_packed(tmp_path / f"a{suffix}", data)
        said = f" {kind} (begins with"
        hint = str(refused(tmp_path, [good, path], said, encoding_errors="replace").hint)
        wanted = next(hint for kinds, hint in HINTS.items() if kind in kinds.split(","))
        if suffix and kind in ("Parquet", "Arrow"):
            wanted = CONVERT
        unpack = f"xz -dc {path} | {kind} -dc" if suffix else f"{kind} -dc {path}"
        assert wanted.format(unpack=unpack) in hint


def test_hint_about_utf16_makes_a_text(tmp_path: Path) -> None:
    for name, encoding in (("my notes.txt", "utf-16"), ("b.txt.gz", "utf-16-le")):
        path = write_packed(tmp_path / name, ("Grüße\n" * 30).encode(encoding))
        subprocess.run(["sh", "-c", str(refused(tmp_path, [path]).hint)], cwd=tmp_path, check=True)
        (converted,) = tmp_path.glob("*utf8*")
        assert set(read(tmp_path, [converted]).documents) == {"Grüße"}
        converted.unlink()


def test_text_that_begins_like_another_format_is_text(tmp_path: Path) -> None:
    texts = ["BZh is", "PK", "7z", "PAR1", "%PDF-1.4 is", "ARROW1", "a\0b\0", "ELF", "\0a" * 9]
    paths = [write(tmp_path / f"{n}.txt", text.encode()) for n, text in enumerate(texts)]
    assert read(tmp_path, paths).documents == texts


# Changes while it is read


@pytest.mark.parametrize("part_bytes", [50, 1 << 20])
@pytest.mark.parametrize("change", ["grow", "shrink", "touch"])
def test_file_that_changes_is_an_error(tmp_path: Path, change: str, part_bytes: int) -> None:
    first, last = (write(tmp_path / name, b"a\n" * 100) for name in ("a.txt", "b.txt"))

    def disturb(_: int) -> None:
        if change == "touch":
            os.utime(last, (1, 1))
        else:
            os.truncate(last, 201 if change == "grow" else 99)

    options: dict[str, Any] = {"executor": ONE, "progress": Progress(on_advance=disturb)}
    with pytest.raises(DataError, match=r"b\.txt: changed while it was read"):
        parts = make_options({"part_bytes": part_bytes})
        tokenize([first, last], new_folder(tmp_path), parts, **options)
