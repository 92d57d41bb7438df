"""The format of each suffix, and every format through the command line: same ids, or an error."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import run
from reference import read_folder, read_store_documents

from seqpack_cli import open_store
from seqpack_cli.corpus import decompression
from seqpack_cli.corpus.sources import FORMATS, TEXT_FORMATS, FileFormat, find_file_format
from seqpack_cli.errors import FolderError

try:
    from compression import zstd
except ImportError:
    from backports import zstd

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TEXTS = ["plain", "", "two\nlines\r\n", 'say "yes", or no', "é漢𝄞\t\u2028", "<eos>", "\r", "end"]
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def make_jsonl(texts: Sequence[str | None]) -> bytes:
    return "".join(json.dumps({"id": 7, "text": text}) + "\n" for text in texts).encode()


def make_json(texts: Sequence[str | None]) -> bytes:
    return json.dumps([{"id": 7, "text": text} for text in texts], indent=1).encode()


def make_csv(texts: Sequence[str | None], delimiter: str = ",") -> bytes:
    """Write rows, for None one of a field too many."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    rows = [[n, "bad", n] if text is None else [n, text] for n, text in enumerate(texts)]
    writer.writerows([["id", "text"], *rows])
    return file.getvalue().encode()


def make_tsv(texts: Sequence[str | None]) -> bytes:
    return make_csv(texts, "\t")


def make_parquet(texts: Sequence[str | None]) -> bytes:
    file = io.BytesIO()
    table = pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.string())})
    pq.write_table(table, file, row_group_size=3)
    return file.getvalue()


def make_arrow(texts: Sequence[str | None], open_writer: Any = pa.ipc.new_stream) -> bytes:
    file = io.BytesIO()
    table = pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.string())})
    with open_writer(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return file.getvalue()


def make_feather(texts: Sequence[str | None]) -> bytes:
    return make_arrow(texts, pa.ipc.new_file)


MAKERS = {
    ".jsonl": make_jsonl,
    ".json": make_json,
    ".csv": make_csv,
    ".tsv": make_tsv,
    ".parquet": make_parquet,
    ".arrow": make_arrow,
    ".feather": make_feather,
}
BINARY = (".parquet", ".arrow", ".feather")
FILES = [
    (kind, packing)
    for kind in MAKERS
    for packing in COMPRESSORS
    if not (kind in BINARY and packing)
]


def write_file(folder: Path, name: str, kind: str, packing: str, texts: Sequence[str]) -> Path:
    path = folder / f"{name}{kind}{packing}"
    path.write_bytes(COMPRESSORS[packing](MAKERS[kind](texts)))
    return path


def tokenize(*arguments: object) -> None:
    result = run("tokenize", *arguments, "--num-workers", 1)
    assert result.exit_code == 0, result.output


def read_rows(store: Path) -> list[list[int]]:
    return [ids.tolist() for ids in open_store(store)]


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", FileFormat("text", "", ",", None)),
        ("A.TXT.GZ", FileFormat("text", "gzip", ",", None)),
        ("a.md.bz2", FileFormat("text", "bzip2", ",", None)),
        ("a.text.xz", FileFormat("text", "xz", ",", None)),
        ("a.jsonl", FileFormat("jsonl", "", ",", None)),
        ("x/a.b.ndjson.zst", FileFormat("jsonl", "zstd", ",", None)),
        ("a.csv.xz", FileFormat("csv", "xz", ",", None)),
        ("a.Tsv.Zst", FileFormat("csv", "zstd", "\t", None)),
        ("a.parquet", FileFormat("parquet", "", ",", None)),
        ("a.arrow", FileFormat("arrow", "", ",", None)),
        ("a.Feather", FileFormat("arrow", "", ",", None)),
        ("a.gz", FileFormat(None, "gzip", ",", None)),
        ("a.gz.txt", FileFormat("text", "", ",", None)),
        ("a.txt.bak", FileFormat(None, "", ",", None)),
        ("a", FileFormat(None, "", ",", None)),
        ("txt", FileFormat(None, "", ",", None)),
        (".txt", FileFormat(None, "", ",", None)),
        ("x.csv/a", FileFormat(None, "", ",", None)),
        ("a.json", FileFormat("json", "", ",", None)),
        ("a.json.gz", FileFormat("json", "gzip", ",", None)),
        ("a.tar", FileFormat(None, "", ",", ".tar")),
        ("a.TAR.gz", FileFormat(None, "gzip", ",", ".tar")),
        ("a.tgz", FileFormat(None, "", ",", ".tgz")),
        ("a.jsonl.zip", FileFormat(None, "", ",", ".zip")),
    ],
)
def test_name_says_what_a_file_is(name: str, expected: FileFormat) -> None:
    assert find_file_format(name) == expected
    assert expected.format is None or expected.format in FORMATS


# Through the command line


@pytest.fixture(scope="module")
def plain_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the texts as JSON lines, which the others must equal."""
    folder = tmp_path_factory.mktemp("plain")
    tokenize(write_file(folder, "a", ".jsonl", "", TEXTS), "-o", folder / "store")
    assert read_store_documents(folder / "store") == [
        [list(text.encode())] if text else [] for text in TEXTS
    ]
    return folder / "store"


@pytest.mark.parametrize(("kind", "packing"), FILES)
def test_every_format_gives_the_ids_of_plain_json_lines(
    tmp_path: Path, plain_store: Path, kind: str, packing: str
) -> None:
    path = write_file(tmp_path, "a", kind, packing, TEXTS)
    tokenize(path, "-o", tmp_path / "store", "--part-bytes", "100")
    store = open_store(tmp_path / "store")
    assert read_rows(tmp_path / "store") == read_rows(plain_store)
    assert read_store_documents(tmp_path / "store") == read_store_documents(plain_store)
    assert store.manifest["ledger"] == open_store(plain_store).manifest["ledger"]
    assert store.manifest["sources"] == [
        {
            "path": str(path),
            "bytes": path.stat().st_size,
            "num_documents": len(TEXTS),
            "first_document": 0,
        }
    ]


@pytest.mark.parametrize("packing", COMPRESSORS)
@pytest.mark.parametrize("document", ["line", "paragraph", "file"])
def test_compressed_text_gives_the_documents_of_plain_text(
    tmp_path: Path, packing: str, document: str
) -> None:
    text = "\ufeffone\r\ntwo é\n\n \nthree\n\nfour".encode()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / f"b.txt{packing}").write_bytes(COMPRESSORS[packing](text))
    options = ("--document", document, "-o")
    tokenize(tmp_path / "a.txt", *options, tmp_path / "a")
    tokenize(tmp_path / f"b.txt{packing}", *options, tmp_path / "b", "--part-bytes", "3")
    assert read_store_documents(tmp_path / "b") == read_store_documents(tmp_path / "a")
    assert (
        len(read_store_documents(tmp_path / "b"))
        == {"line": 7, "paragraph": 3, "file": 1}[document]
    )


def test_folder_of_mixed_formats_is_read_file_by_file(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    expected = []
    files = [each for each in FILES if each[0] != ".json"]  # which would have to be named
    for number, (kind, packing) in enumerate(files):
        texts = [f"{number} {text}" for text in TEXTS]
        write_file(corpus, f"{number:02}", kind, packing, texts)
        expected += texts
    (corpus / "99.tar.gz").write_bytes(b"skipped")
    (corpus / "99.json").write_bytes(b"skipped")
    for part_bytes in ("1", "700", "64MiB"):
        output = tmp_path / part_bytes
        tokenize(corpus, "-o", output, "--part-bytes", part_bytes)
        assert read_rows(output) == [list(text.encode()) for text in expected]
        store = open_store(output)
        origins = [store.locate(index) for index in range(len(store))]
        assert [origin.record for origin in origins] == [*range(1, len(TEXTS) + 1)] * len(files)
        assert [origin.source for origin in origins[:: len(TEXTS)]] == sorted(
            str(path) for path in corpus.iterdir() if not path.name.startswith("99")
        )


def test_two_workers_give_the_bytes_of_one(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for kind, packing in FILES:
        write_file(corpus, "a", kind, packing, [f"{kind} {n} {TEXTS[n % 8]}" for n in range(20)])
    for num_workers in (1, 2):
        output = tmp_path / f"by-{num_workers}"
        result = run(
            *("tokenize", f"{corpus}/*", "-o", output, "--part-bytes", 300),
            *("--num-workers", num_workers),
        )
        assert result.exit_code == 0, result.output
    assert read_folder(tmp_path / "by-2") == read_folder(tmp_path / "by-1")
    assert len(open_store(tmp_path / "by-2").manifest["parts"]) > len(FILES)


@pytest.mark.parametrize("kind", [".json", ".csv", ".csv.gz", ".parquet", ".arrow"])
def test_rejects_are_numbered_as_in_their_file(tmp_path: Path, kind: str) -> None:
    texts = ["a", None, "c", "d", None, "f", "g", None]
    name, packing = (kind.removesuffix(".gz"), ".gz" if kind.endswith(".gz") else "")
    path = tmp_path / f"a{kind}"
    path.write_bytes(COMPRESSORS[packing](MAKERS[name](texts)))
    (tmp_path / "0.jsonl").write_bytes(make_jsonl(["x", "y"]))
    result = run(
        *("tokenize", f"{tmp_path}/*", "-o", tmp_path / "out" / "store", "--on-bad-record", "skip"),
        *("--part-bytes", 1, "--num-workers", 1),
    )
    assert result.exit_code == 0, result.output
    assert "records skipped, listed in rejects.jsonl: 3\n" in result.stdout
    lines = (tmp_path / "out" / "store" / "rejects.jsonl").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    assert [(reject["source"], reject["record"]) for reject in rejects] == [
        (str(path), 2),
        (str(path), 5),
        (str(path), 8),
    ]
    assert all((reject["byte"] is None) == (kind in BINARY) for reject in rejects)
    assert read_rows(tmp_path / "out" / "store") == [[*text.encode()] for text in "xyacdfg"]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz", "a.zip", "a.jsonl.zip"])
def test_archive_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK")
    result = run("tokenize", tmp_path / name, "-o", tmp_path / "store")
    suffix = find_file_format(name).refused
    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: {tmp_path / name}: {suffix} files are not supported\n\n"
        f"hint: {TEXT_FORMATS.refused[str(suffix)]}\n"
    )
    assert not (tmp_path / "store").exists()


def test_format_that_is_named_goes_before_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "a.data.gz"
    path.write_bytes(gzip.compress(make_csv(["a", "b"])))
    tokenize(path, "-o", tmp_path / "store", "--format", "csv")
    assert read_rows(tmp_path / "store") == [[97], [98]]
    (tmp_path / "b.txt").write_bytes(make_parquet(["a", "b"]))
    tokenize(tmp_path / "b.txt", "-o", tmp_path / "other", "--format", "parquet")
    assert read_rows(tmp_path / "other") == [[97], [98]]


# Errors


def check_nothing_counts(store: Path) -> None:
    names = {path.name for path in store.iterdir()} if store.exists() else set()
    assert not {name for name in names if name.startswith(("manifest", "part-", "."))} - {".lock"}
    with pytest.raises(FolderError):
        open_store(store)


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".jsonl", ".csv"])
def test_cut_file_ends_the_run_and_nothing_counts(tmp_path: Path, packing: str, kind: str) -> None:
    path = write_file(tmp_path, "a", kind, packing, TEXTS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    arguments = ("tokenize", path, "-o", tmp_path / "store", "--num-workers", 1)
    result = run(*arguments)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"Error: {path}:")
    assert ": truncated " in result.stderr
    assert result.stderr.endswith("bytes of text could be read; download or copy the file again\n")
    check_nothing_counts(tmp_path / "store")
    path.write_bytes(whole)
    assert run(*arguments).exit_code == 0


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl.gz", b"", ":1: 0 bytes, expected gzip data"),
        ("a.csv", b"body\na\n", ":1: no column 'text' (found: 'body')"),
        ("a.tsv", b"text,id\na,1\n", ":1: no column 'text' (found: 'text,id')"),
        ("a.csv", b'text\n"a\n', ":2: not CSV (unexpected end of data)"),
        ("a.csv", b"text\n", ": no document with a token (0 documents read)"),
        ("a.csv", b"", ": no document with a token (0 documents read)"),
        ("a.parquet", b"", ": not Parquet, or damaged (Parquet file size is 0 bytes)"),
        ("a.parquet", make_parquet([]), ": no document with a token (0 documents read)"),
        ("a.parquet", make_parquet(["a", None]), ":2: field 'text' is null, expected a string"),
    ],
)
def test_bad_file_is_refused_and_nothing_counts(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    result = run("tokenize", tmp_path / name, "-o", tmp_path / "store", "--num-workers", 1)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"Error: {tmp_path / name}{message}\n")
    assert not (tmp_path / "store" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("name", "hidden", "message", "package"),
    [
        (
            "a.jsonl.zst",
            ("compression", "compression.zstd", "backports", "backports.zstd"),
            "backports.zstd is not installed, .zst files need it",
            "backports.zstd",
        ),
        (
            "a.parquet",
            ("pyarrow", "pyarrow.parquet"),
            "a.parquet: pyarrow is not installed, .parquet files need it",
            "pyarrow",
        ),
    ],
)
def test_package_that_is_not_installed_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    hidden: Sequence[str],
    message: str,
    package: str,
) -> None:
    kind, packing = (".jsonl", ".zst") if package == "backports.zstd" else (".parquet", "")
    write_file(tmp_path, "a", kind, packing, TEXTS)
    for module in hidden:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    decompression._load_zstd.cache_clear()
    result = run("tokenize", name, "-o", "store", "--num-workers", 1)
    decompression._load_zstd.cache_clear()
    assert result.exit_code == 5
    assert result.stderr == f"Error: {message}\n\nhint: pip install {package}\n"
    check_nothing_counts(tmp_path / "store")


def test_error_in_a_worker_is_the_same_error(tmp_path: Path) -> None:
    """It comes back pickled, with its exit code and its hint."""
    for number in range(2):
        path = write_file(tmp_path, str(number), ".csv", ".gz", TEXTS)
    path.write_bytes(path.read_bytes()[:-1])
    result = run(
        *("tokenize", tmp_path, "-o", tmp_path / "out" / "store", "--part-bytes", 1),
        *("--num-workers", 2),
    )
    assert result.exit_code == 3
    assert f"Error: {path}:" in result.stderr
    assert ": truncated gzip data\n\nhint: " in result.stderr
    assert not (tmp_path / "out" / "store" / "manifest.json").exists()
