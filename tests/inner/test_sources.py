"""Find the source files of inputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from blake3 import blake3

from seqpack_cli.corpus.find_files import Reason, find_sources
from seqpack_cli.corpus.options import TEXT_FORMATS
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import find_line_number, hash_range
from seqpack_cli.errors import OptionError


def make_files(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return [str(folder / name) for name in names]


def paths(*inputs: str, file_format: str = "auto") -> list[str]:
    formats = TEXT_FORMATS.choose(file_format)
    return [source.path for source in find_sources(inputs, formats=formats)[0]]


def test_folder_gives_its_files_by_path_bytes(tmp_path: Path) -> None:
    names = ["B.txt", "a b.txt", "a-b.txt", "a/x.txt", "a/y/z.md", "a0.txt", "ab.jsonl", "é.txt"]
    made = make_files(tmp_path, *reversed(names))
    assert paths(str(tmp_path)) == sorted(made, key=os.fsencode)
    assert paths(str(tmp_path))[0].endswith("B.txt")


def test_inputs_keep_their_order_and_come_once(tmp_path: Path) -> None:
    b, a, c = make_files(tmp_path, "b.txt", "a.txt", "c.txt")
    assert paths(c, a, str(tmp_path), b, a) == [c, a, b]


def test_hidden_files_and_folders_are_skipped_below_a_folder(tmp_path: Path) -> None:
    seen, hidden, _ = make_files(tmp_path, "a.txt", ".b.txt", ".git/c.txt")
    assert paths(str(tmp_path)) == [seen]
    assert paths(hidden) == [hidden]  # named by the user


def test_hidden_folder_named_by_the_user_is_read(tmp_path: Path) -> None:
    (inside,) = make_files(tmp_path, ".corpus/a.txt")
    assert paths(str(tmp_path / ".corpus")) == [inside]


def test_unknown_suffixes_below_a_folder_are_skipped_and_named(tmp_path: Path) -> None:
    text, *others = make_files(tmp_path, "a.txt", "b.png", "c.gz", "d")
    sources, skipped = find_sources([str(tmp_path)])
    assert [source.path for source in sources] == [text]
    assert sorted(path for path, why in skipped.items() if Reason.UNKNOWN_SUFFIX in why) == others
    _, skipped = find_sources([str(tmp_path), others[0], str(tmp_path / "c*")])
    assert (
        sorted(path for path, why in skipped.items() if Reason.UNKNOWN_SUFFIX in why) == others[2:]
    )


def test_format_named_by_the_user_takes_every_file_of_a_folder(tmp_path: Path) -> None:
    made = make_files(tmp_path, "a.txt", "b.png", "c.gz", "d")
    sources, skipped = find_sources([str(tmp_path)], formats=TEXT_FORMATS.choose("jsonl"))
    assert [(source.path, source.format) for source in sources] == [(p, "jsonl") for p in made]
    assert skipped.count() == {}


@pytest.mark.parametrize(
    ("name", "file_format", "document", "compression", "delimiter"),
    [
        ("a.txt", "text", "paragraph", "", ","),
        ("a.TXT", "text", "paragraph", "", ","),
        ("a.text", "text", "paragraph", "", ","),
        ("a.md", "text", "paragraph", "", ","),
        ("a.log", "text", "paragraph", "", ","),
        ("a", "text", "paragraph", "", ","),
        ("a.jsonl", "jsonl", "line", "", ","),
        ("a.ndjson", "jsonl", "line", "", ","),
        ("a.csv", "csv", "row", "", ","),
        ("a.TSV", "csv", "row", "", "\t"),
        ("a.parquet", "parquet", "row", "", ","),
        ("a.gz", "text", "paragraph", "gzip", ","),
        ("a.log.BZ2", "text", "paragraph", "bzip2", ","),
        ("a.jsonl.zst", "jsonl", "line", "zstd", ","),
        ("a.tsv.xz", "csv", "row", "xz", "\t"),
    ],
)
def test_format_follows_from_the_suffix(
    tmp_path: Path, name: str, file_format: str, document: str, compression: str, delimiter: str
) -> None:
    (path,) = make_files(tmp_path, name)
    (source,), _ = find_sources([path], document="paragraph")
    assert source.modified == (tmp_path / name).stat().st_mtime_ns
    assert source._replace(modified=None) == Source(
        path, file_format, document, len(name), compression, delimiter
    )


@pytest.mark.parametrize("suffix", TEXT_FORMATS.refused)
def test_suffix_that_cannot_be_read_is_refused(tmp_path: Path, suffix: str) -> None:
    (path,) = make_files(tmp_path, f"a{suffix.upper()}")
    with pytest.raises(OptionError) as caught:
        find_sources([path])
    assert caught.value.message == f"{path}: {suffix} files are not supported"
    assert caught.value.hint == TEXT_FORMATS.refused[suffix]
    assert paths(path, file_format="text") == [path]


def test_globs_are_sorted_and_may_cross_folders(tmp_path: Path) -> None:
    b, a, _, deep = make_files(tmp_path, "b.txt", "a.txt", "c.md", "x/y/d.txt")
    assert paths(str(tmp_path / "*.txt")) == [a, b]
    assert paths(str(tmp_path / "**" / "*.txt")) == [a, b, deep]


def test_glob_that_matches_a_folder_reads_below_it(tmp_path: Path) -> None:
    (inside,) = make_files(tmp_path, "corpus-1/a.txt")
    assert paths(str(tmp_path / "corpus-*")) == [inside]


def test_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    odd, _ = make_files(tmp_path, "a[1].txt", "a1.txt")
    assert paths(odd) == [odd]


@pytest.mark.parametrize("name", ["gone.txt", "gone/", "gone-*.txt"])
def test_missing_input_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError) as caught:
        find_sources([f"{tmp_path}/{name}"])
    assert caught.value.message == f"{tmp_path}/{name}: no such file or folder"
    assert caught.value.hint == ("pass a file, a folder, or a glob in quotes: 'corpus/**/*.jsonl'")
    assert caught.value.exit_code == 2


def test_folder_without_a_known_suffix_is_refused(tmp_path: Path) -> None:
    make_files(tmp_path, "a.png")
    with pytest.raises(OptionError) as caught:
        find_sources([str(tmp_path)])
    assert caught.value.message == (
        f"{tmp_path}: no file with a known suffix "
        f"(skipped 1 file with an unknown suffix: {tmp_path}/a.png)"
    )
    assert caught.value.hint == (
        "known suffixes: .txt .text .md .jsonl .ndjson .json .parquet .arrow .arrows .feather .ipc "
        ".csv .tsv .gz .bz2 .xz .zst; "
        "or pass --format text to read every file"
    )


def test_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(OptionError) as caught:
        find_sources([str(tmp_path / "pipe.txt")])
    assert caught.value.message == (
        f"{tmp_path / 'pipe.txt'}: not a regular file, expected a file, a folder or a glob"
    )


def test_line_number_of_a_byte_counts_the_line_ends_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n\r\nb\rc\n")
    source = Source(str(path), "text", "line", 8)
    found = [find_line_number(source, byte) for byte in range(8)]
    assert found == [1, 1, 2, 2, 3, 3, 3, 3]


def test_range_is_hashed_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"0123456789")
    source = Source(str(path), "text", "line", 10)
    assert hash_range(SourceRange(0, source, 2, 5)) == blake3(b"234").hexdigest()
    assert hash_range(SourceRange(0, source, 0, 0)) == blake3(b"").hexdigest()
    path.unlink()
    assert hash_range(SourceRange(0, source, 2, 5)) == ""
