"""Inputs in an object store: the files of a URL, and their bytes."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pytest
from command import run
from object_store import write_object

from seqpack_cli.corpus.find_files import Reason, find_sources
from seqpack_cli.corpus.options import TEXT_FORMATS
from seqpack_cli.corpus.parts import find_record_start, plan_parts
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import check_unchanged, hash_range, iter_raw_blocks
from seqpack_cli.errors import DataError, FolderError, OptionError
from seqpack_cli.files.objects import Url, read_object, remove_objects
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize

FILES = {
    "b.txt": b"one\ntwo\n\nthree",
    "a/z.jsonl": b'{"text": "four"}\n{"text": "five"}\n',
    "a/é.txt.gz": gzip.compress(b"six\nseven\n"),
    "a/b/c.md": b"eight",
    "Z.text": b"nine\n",
    ".hidden/x.txt": b"hidden",
    "a/.x.txt": b"hidden",
    "notes.unknown": b"skipped",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Url:
    """The same files in an object store and, under `files/`, on the disk."""
    folder = Url(f"memory://{tmp_path.name}/corpus")
    for name, data in FILES.items():
        write_object(Url(f"{folder}/{name}"), data)
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def describe(sources: list[Source], root: str) -> list[tuple[object, ...]]:
    return [(source.path.removeprefix(root), *source[1:6]) for source in sources]


@pytest.mark.parametrize(
    "names",
    [
        [""],
        ["/"],
        ["/a"],
        ["/b.txt", "/a/z.jsonl"],
        ["/*.txt"],
        ["/a/*"],
        ["/**/*.txt*"],
        ["/notes.unknown"],
        ["/a", "/b.txt", "/a/z.jsonl", ""],
    ],
)
def test_a_url_names_the_files_of_a_path(corpus: Url, tmp_path: Path, names: list[str]) -> None:
    files = str(tmp_path / "files")
    there, there_over = find_sources([f"{corpus}{name}" for name in names])
    here, here_over = find_sources([f"{files}{name}" for name in names])
    assert describe(there, str(corpus)) == describe(here, files)
    over = [
        [
            name.removeprefix(root)
            for name in sorted(
                path for path, why in skipped.items() if Reason.UNKNOWN_SUFFIX in why
            )
        ]
        for root, skipped in ((str(corpus), there_over), (files, here_over))
    ]
    assert over[0] == over[1] == (["/notes.unknown"] if "" in names or "/" in names else [])


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x")
    for name in ("", "/a.txt", "/*.txt"):
        sources, _ = find_sources([f"file://{tmp_path}{name}"])
        assert [source.path for source in sources] == [str(tmp_path / "a.txt")]


def test_a_missing_object_is_an_option_error(corpus: Url) -> None:
    for name in ("none", "*.none", "b.txt.gz"):
        with pytest.raises(OptionError, match="no such object"):
            find_sources([f"{corpus}/{name}"])


def test_a_store_of_objects_has_the_bytes_of_one_of_files(corpus: Url, tmp_path: Path) -> None:
    there, _ = tokenize([str(corpus)], tmp_path / "there")
    here, _ = tokenize([str(tmp_path / "files")], tmp_path / "here")
    assert there["parts"] == here["parts"]
    assert there["ledger"] == here["ledger"]
    assert [source["path"] for source in there["sources"]] == [
        source["path"].replace(str(tmp_path / "files"), str(corpus)) for source in here["sources"]
    ]
    origin = open_store(tmp_path / "there").locate(0)
    assert origin.source == f"{corpus}/Z.text"


@pytest.mark.parametrize("document", ["line", "paragraph"])
@pytest.mark.parametrize("seek_bytes", [1, 5, 1 << 16])
def test_cuts_are_those_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str, seek_bytes: int
) -> None:
    monkeypatch.setattr(LIMITS, "seek_bytes", seek_bytes)
    data = b"".join(b"x" * (number % 7) + b"\n" for number in range(60))
    (tmp_path / "x.txt").write_bytes(data)
    url = Url(f"memory://{tmp_path.name}/x.txt")
    write_object(url, data)
    (there,), _ = find_sources([str(url)], document=document)
    (here,), _ = find_sources([str(tmp_path / "x.txt")], document=document)
    for byte in range(1, len(data)):
        assert find_record_start(there, byte) == find_record_start(here, byte)
    (first, *_), (other, *_) = plan_parts([there], part_bytes=50), plan_parts([here], part_bytes=50)
    assert [found[2:] for found in first] == [found[2:] for found in other]


@pytest.mark.parametrize(("range_bytes", "block_bytes"), [(10, 3), (3, 10), (1 << 20, 1 << 20)])
def test_a_range_comes_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, range_bytes: int, block_bytes: int
) -> None:
    monkeypatch.setattr(LIMITS, "range_bytes", range_bytes)
    monkeypatch.setattr(LIMITS, "read_bytes", block_bytes)
    url = Url(f"memory://{tmp_path.name}/x.txt")
    write_object(url, bytes(range(100)))
    (source,), _ = find_sources([str(url)])
    blocks = list(source.input.iter_range(13, 77))
    assert b"".join(blocks) == bytes(range(13, 77))
    assert max(map(len, blocks)) <= block_bytes


def test_an_object_that_changes_or_goes_is_noticed(tmp_path: Path) -> None:
    url = Url(f"memory://{tmp_path.name}/x.txt")
    write_object(url, b"first\n" * 10)
    (source,), _ = find_sources([str(url)])
    whole = SourceRange(0, source, 0, source.num_bytes)
    digest = hash_range(whole)
    check_unchanged(source)
    write_object(url, b"other\n" * 10)
    with pytest.raises(DataError, match="changed while it was read"):
        check_unchanged(source)
    assert hash_range(whole) not in (digest, "")
    write_object(url, b"short\n")
    with pytest.raises(DataError, match="ends 54 bytes early"):
        list(iter_raw_blocks(whole, lambda _: None))
    remove_objects([url])
    with pytest.raises(DataError, match=f"{url}: missing"):
        check_unchanged(source)
    assert hash_range(whole) == ""


def test_compressed_and_parquet_objects_are_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    texts = [f"document {number} é" for number in range(1000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "x.parquet", row_group_size=100)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    (tmp_path / "y.jsonl.bz2").write_bytes(bz2.compress(lines))
    folder = Url(f"memory://{tmp_path.name}/corpus")
    for name in ("x.parquet", "y.jsonl.bz2"):
        write_object(folder / name, (tmp_path / name).read_bytes())
    options = TokenizeOptions(part_bytes=3000)
    names = ["x.parquet", "y.jsonl.bz2"]
    there, _ = tokenize([str(folder)], tmp_path / "there", options)
    here, _ = tokenize([str(tmp_path / name) for name in names], tmp_path / "here", options)
    assert len(there["parts"]) > 2
    assert there["parts"] == here["parts"]


def test_an_output_that_holds_the_input_is_refused(corpus: Url) -> None:
    with pytest.raises(FolderError, match=f"{corpus}: contains the input"):
        tokenize([f"{corpus}/b.txt"], corpus)


def test_a_tokenizer_may_be_in_the_object_store(
    corpus: Url, tmp_path: Path, tiny_tokenizer: Path
) -> None:
    write_object(corpus / "tokenizer.json", tiny_tokenizer.read_bytes())
    here, _ = tokenize(
        [str(corpus)], tmp_path / "here", TokenizeOptions(tokenizer=str(tiny_tokenizer))
    )
    for name in (f"{corpus}/tokenizer.json", str(corpus)):
        there, _ = tokenize([str(corpus)], tmp_path / name[-5:], TokenizeOptions(tokenizer=name))
        assert there == here


@pytest.mark.parametrize("fault", ["missing", "short"])
def test_a_finished_run_is_not_called_complete_without_its_objects(
    corpus: Url, tmp_path: Path, fault: str
) -> None:
    store, shards = Url(f"{corpus.parent}/store"), Url(f"{corpus.parent}/shards")
    tokenize([str(corpus)], store)
    pack(store, shards)
    for folder, name in ((shards, "shard-00000.safetensors"), (store, "part-00000.bin")):
        data = read_object(folder / name)
        remove_objects([folder / name])
        if fault == "short":
            write_object(folder / name, data[:-1])
        expected = "missing" if fault == "missing" else "manifest says"
        with pytest.raises(FolderError, match=f"{folder / name}: .*{expected}"):
            tokenize([str(corpus)], store) if folder == store else pack(store, shards)
        with pytest.raises(FolderError, match=expected):
            open_store(store) if folder == store else open_shards(shards)


@pytest.mark.parametrize("pattern", ["", "/", "/**/*[lt]", "/**"])
def test_outputs_below_the_input_are_skipped(corpus: Url, tmp_path: Path, pattern: str) -> None:
    write_object(corpus / "b.txt", b"one <eos>\n")
    options = TokenizeOptions(file_format="text")
    inputs = [f"{corpus}{pattern}"]
    first, _ = tokenize(inputs, corpus / "tok", options)
    assert (corpus / "tok/special_tokens.jsonl").exists()
    again, was_complete = tokenize(inputs, corpus / "tok", options)
    assert (again, was_complete) == (first, True)
    other, _ = tokenize(inputs, tmp_path / "tok2", options)
    assert other["sources"] == first["sources"]
    skipped = json.loads((tmp_path / "tok2/run.json").read_text())["skipped"]
    assert skipped == {"seqpack_output": 1}
    _, found = find_sources(inputs, formats=TEXT_FORMATS.choose("text"))
    assert sorted(path for path, why in found.items() if Reason.SEQPACK_OUTPUT in why) == [
        f"{corpus}/tok"
    ]
    (named,), _ = find_sources([f"{corpus}/tok/special_tokens.jsonl"])
    assert named.path == f"{corpus}/tok/special_tokens.jsonl"


def test_a_manifest_of_another_program_hides_nothing(corpus: Url) -> None:
    write_object(corpus / "a/manifest.json", b'{"format": "other"}')
    write_object(corpus / "a/plan.json", b"")
    assert len(find_sources([str(corpus)])[0]) == 5


def test_an_object_is_refused_as_an_output_folder(corpus: Url) -> None:
    with pytest.raises(FolderError, match="an object, expected a folder"):
        tokenize([f"{corpus}/a"], corpus / "b.txt")


def test_memory_urls_are_refused_by_commands(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x")
    result = run("tokenize", tmp_path / "a.txt", "-o", "memory://bucket/store")
    assert result.exit_code == 2
    assert "memory:// ends with this command" in result.stderr
