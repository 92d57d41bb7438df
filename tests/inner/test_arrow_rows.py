"""Read Arrow files: types, pieces, and every cut of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from seqpack_cli.corpus.UNKNOWN_document_block import DocumentBlock
from seqpack_cli.corpus.UNKNOWN_documents import iter_documents
from seqpack_cli.corpus.UNKNOWN_parquet_values import count_bytes

from seqpack_cli.corpus.find_files import find_sources
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.corpus.table_records import iter_table_arrays
from seqpack_cli.errors import DataError
from seqpack_cli.limits import LIMITS

pa = pytest.importorskip("pyarrow")

WRITERS = {"stream": pa.ipc.new_stream, "file": pa.ipc.new_file}
TEXTS = ["a", "", None, "é" * 9, "x" * 50, "end"]


def write(
    path: Path, columns: dict[str, Any], form: str = "stream", compression: Any = None
) -> Path:
    table = pa.table(columns)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with WRITERS[form](str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=4)
    return path


def read(path: Path, **options: Any) -> list[DocumentBlock]:
    (source,), _ = find_sources([str(path)])
    whole = SourceRange(0, source, 0, source.num_bytes)
    seen: list[int] = []
    found = list(iter_documents(whole, DocumentOptions(**options), lambda it: seen.append(len(it))))
    assert sum(seen) == source.num_bytes  # every byte is hashed
    return found


def read_texts(path: Path, **options: Any) -> list[str]:
    return [text for block in read(path, **options) for text in block.texts]


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary", "struct"])
def test_every_form_gives_the_texts(
    tmp_path: Path, form: str, compression: str | None, kind: str
) -> None:
    texts = pa.array(TEXTS, pa.string())
    if kind == "dictionary":
        texts = texts.dictionary_encode()
    elif kind == "struct":
        texts = pa.StructArray.from_arrays([texts], ["inner"])
    else:
        texts = texts.cast(getattr(pa, kind)())
    path = write(tmp_path / "a.arrow", {"id": range(6), "text": texts}, form, compression)
    field = "text.inner" if kind == "struct" else "text"
    found = read_texts(path, text_field=field, on_bad_record="skip")
    assert found == [text or "" for text in TEXTS]


@pytest.mark.parametrize("form", WRITERS)
def test_every_cut_of_a_file_is_an_error(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "a.arrow", {"text": list("abcdef")}, form)
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(DataError, match=r"damaged \(|truncated|expected an Arrow file"):
            read(path)
    path.write_bytes(data * 2)
    with pytest.raises(DataError, match=f"a.arrow: {len(data)} bytes after the end of the stream"):
        read(path)


def test_a_record_batch_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "batch_bytes", 10)
    lists = [[{"role": "user", "content": str(n)}] * (n % 3) for n in range(12)]
    path = write(tmp_path / "a.arrow", {"text": [str(n) for n in range(12)], "m": lists})
    found = read(path)
    assert [text for block in found for text in block.texts] == [str(n) for n in range(12)]
    assert len(found) > 3
    places = [block.find_place(index) for block in found for index in range(len(block.texts))]
    assert places == [f"{path}:{row}" for row in range(1, 13)]
    (source,), _ = find_sources([str(path)])
    whole = SourceRange(0, source, 0, source.num_bytes)
    pieces = [arrays for _, (arrays,) in iter_table_arrays(whole, lambda _: ["m"], len)]
    assert [value for piece in pieces for value in piece.to_pylist()] == lists
    for piece in pieces:  # a slice of a record batch
        copied = pa.array(piece.to_pylist(), piece.type)
        assert count_bytes(piece).tolist() == count_bytes(copied).tolist()


@pytest.mark.parametrize("kind", ["string_view", "dictionary"])
def test_rows_that_share_a_long_text_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(LIMITS, "batch_memory", 250)
    texts = pa.array(["x" * 100] * 4)
    texts = texts.dictionary_encode() if kind == "dictionary" else texts.cast(pa.string_view())
    path = write(tmp_path / "a.arrow", {"text": texts})
    assert [len(block.texts) for block in read(path)] == [2, 2]


def test_text_that_is_not_utf8_is_found_by_row(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff"]).view(pa.string())
    path = write(tmp_path / "a.arrow", {"text": texts})
    with pytest.raises(DataError, match=r"a.arrow:2: byte 0xff, expected UTF-8"):
        read(path)
    assert read_texts(path, encoding_errors="replace") == ["a", "\ufffd"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with b'', expected an Arrow file"),
        (b"FEA1\0\0\0\0", "begins with b'FEA1\\x00\\x00\\x00\\x00', expected an Arrow file"),
        (b"ARROW1\0\0", "not Arrow, or damaged ("),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.arrow")
    assert caught.value.message.startswith(f"{tmp_path}/a.arrow: {message}")
