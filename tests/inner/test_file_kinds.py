"""Files that are not text: the error names their type and what to type."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib.util
import io
import lzma
import pickle
import py_compile
import sqlite3
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command import run
from here import HERE, import_zstd
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.corpus.sources import Source, check_text
from seqpack_cli.errors import DataError
from seqpack_cli.tokens.tokenize_run import tokenize

TEXT = b"a line of text\n" * 100
CONVERT = "pass text files only, or convert it to text, JSON lines or Parquet"
IMPORT = "run seqpack import to read ids"
UNPACK = "unpack it into a folder and pass the folder"


def make_zip() -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.txt", TEXT)
        return file.getvalue()


def make_tar() -> bytes:
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            entry = tarfile.TarInfo("a.txt")
            entry.size = len(TEXT)
            archive.addfile(entry, io.BytesIO(TEXT))
        return file.getvalue()


def make_array() -> bytes:
    with io.BytesIO() as file:
        np.save(file, np.arange(10))
        return file.getvalue()


def make_arrow() -> bytes:
    pa = pytest.importorskip("pyarrow")
    sink = pa.BufferOutputStream()
    table = pa.table({"text": ["a"]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def make_arrow_stream() -> bytes:
    pa = pytest.importorskip("pyarrow")
    sink = pa.BufferOutputStream()
    table = pa.table({"text": ["a"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def make_parquet() -> bytes:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["a"]}), sink)
    return bytes(sink.getvalue())


def make_bytecode() -> bytes:
    return importlib.util.MAGIC_NUMBER + bytes(12) + b"\xe3"


def make_safetensors() -> bytes:
    from safetensors.numpy import save

    return save({"a": np.arange(3)})


def make_sqlite() -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table a (b)")
        return connection.serialize()


FILES: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "dump": (lambda: gzip.compress(TEXT), "gzip", "gzip -dc dump | seqpack tokenize -"),
    "a.jsonl": (
        lambda: gzip.compress(TEXT),
        "gzip",
        "gzip -dc a.jsonl | seqpack tokenize - --format jsonl",
    ),
    "a b": (lambda: bz2.compress(TEXT), "bzip2", "bzip2 -dc 'a b' | seqpack tokenize -"),
    "empty": (lambda: bz2.compress(b""), "bzip2", "bzip2 -dc empty | seqpack tokenize -"),
    "x": (lambda: lzma.compress(TEXT), "xz", "xz -dc x | seqpack tokenize -"),
    "z": (
        lambda: import_zstd().compress(TEXT),
        "zstd",
        "zstd -dc z | seqpack tokenize -",
    ),
    "twice.gz": (
        lambda: gzip.compress(lzma.compress(TEXT)),
        "xz",
        "gzip -dc twice.gz | xz -dc | seqpack tokenize -",
    ),
    "a.docx": (make_zip, "zip", UNPACK),
    "a": (make_tar, "tar", UNPACK),
    "a.gz": (lambda: gzip.compress(make_tar()), "tar", UNPACK),
    "a.table": (make_parquet, "Parquet", "pass --format parquet"),
    "a.file": (make_arrow, "Arrow", "pass --format arrow"),
    "a.stream": (make_arrow_stream, "Arrow", "pass --format arrow"),
    "a.pkl": (lambda: pickle.dumps({"a": 1}), "pickle", CONVERT),
    "a.pyc": (make_bytecode, "Python bytecode", CONVERT),
    "a.npy": (make_array, "NumPy", IMPORT),
    "a.safetensors": (make_safetensors, "safetensors", CONVERT),
    "a.db": (make_sqlite, "SQLite", CONVERT),
    "a.idx": (lambda: b"MMIDIDX\0\0" + bytes(50), "indexed dataset", IMPORT),
    "a.h5": (lambda: b"\x89HDF\r\n\x1a\n" + bytes(50), "HDF5", CONVERT),
    "a.pdf": (lambda: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", "PDF", CONVERT),
    "a.png": (lambda: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG", CONVERT),
    "a.jpg": (lambda: b"\xff\xd8\xff\xe0\0\x10JFIF", "JPEG", CONVERT),
    "a.so": (lambda: b"\x7fELF\2\1\1\0", "ELF", CONVERT),
}


@pytest.mark.parametrize("name", FILES)
def test_file_that_is_not_text_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make, kind, hint = FILES[name]
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(make())
    with pytest.raises(DataError) as caught:
        tokenize([name], Path("store"), executor=HERE)
    assert caught.value.message.startswith(f"{name}: {kind} (begins with b")
    assert caught.value.message.endswith("), expected UTF-8 text")
    assert caught.value.hint == hint


def test_hint_about_a_compressed_file_can_be_typed(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(gzip.compress(TEXT))
    result = run("tokenize", tmp_path / "dump", "-o", tmp_path / "store")
    hint = result.stderr.partition("hint: ")[2].strip()
    command = hint.replace("seqpack", f"{sys.executable} -m seqpack_cli")
    typed = f"{command} -o {tmp_path / 'store'}"
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "100 documents" in done.stdout


@pytest.mark.parametrize("compression", ["gzip", "xz"])
def test_standard_input_that_is_compressed_says_so(compression: str) -> None:
    source = Source("-", "text", "line", 9, spool="spool")
    data = {"gzip": gzip.compress(TEXT), "xz": lzma.compress(TEXT)}[compression]
    with pytest.raises(DataError) as caught:
        check_text(data, source)
    assert caught.value.hint == (
        f"pipe it through {compression} -dc: … | {compression} -dc | seqpack tokenize -"
    )


def test_utf16_in_standard_input_and_utf32_are_named() -> None:
    with pytest.raises(DataError) as caught:
        check_text("é\n".encode("utf-16"), Source("-", "text", "line", 9))
    command = "iconv -f UTF-16 -t UTF-8"
    assert caught.value.hint == f"pipe it through {command}: … | {command} | seqpack tokenize -"
    for encoding in ("utf-32", "utf-32-be"):
        with pytest.raises(DataError, match="UTF-32") as caught:
            check_text("\ufeffé\n".encode(encoding), Source("a.txt", "text", "line", 9))
        assert caught.value.hint == "iconv -f UTF-32 -t UTF-8 a.txt > a.utf8.txt"


def test_bytes_without_a_known_signature_are_called_binary(tmp_path: Path) -> None:
    (tmp_path / "a.data").write_bytes(struct.pack("<500H", *range(500)))
    with pytest.raises(DataError) as caught:
        tokenize([str(tmp_path / "a.data")], tmp_path / "store", executor=HERE)
    assert "expected UTF-8" in caught.value.message
    assert caught.value.hint == (
        "the record contains NUL bytes, so the file is probably not text: pass text files only"
    )


def test_compiled_file_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    path = py_compile.compile(str(tmp_path / "a.py"), str(tmp_path / "a.pyc"))
    with pytest.raises(DataError, match="Python bytecode"):
        check_text(Path(str(path)).read_bytes(), Source("a.pyc", "text", "line", 9))


@pytest.mark.parametrize("magic", [b"\xa7\r", b"\xcb\r", b"\xf3\r", b"+\x0e"], ids=str)
def test_files_compiled_by_python_3_11_to_3_14_are_known(magic: bytes) -> None:
    with pytest.raises(DataError, match="Python bytecode"):
        check_text(magic + b"\r\n" + bytes(12) + b"\xe3", Source("a.pyc", "text", "line", 9))


NO_CONTROLS = st.characters(exclude_categories=["Cs"], exclude_characters=[*map(chr, range(9))])
BEGINS = st.sampled_from(["PK", "PAR1", "ARROW1", "BZh9", "%PDF-1.4\n%", "7z", "GIF89a", "\ufeff"])


@given(begin=st.just("") | BEGINS, text=st.text(NO_CONTROLS))
def test_text_is_never_refused_as_another_type(begin: str, text: str) -> None:
    check_text((begin + text).encode(), Source("a.txt", "text", "line", 9))
