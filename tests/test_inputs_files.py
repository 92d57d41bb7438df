"""Which files tokenize and import read: folders, globs, patterns, lists, URLs, standard input."""

from __future__ import annotations

import bz2
import contextlib
import fnmatch
import glob
import gzip
import io
import json
import lzma
import os
import random
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from documents import Reading, new_folder, read, read_store, refused, write
from oracle.imports import write_pair

from seqpack_cli import (
    DataError,
    Executor,
    FileOptions,
    FolderError,
    ImportOptions,
    MachineError,
    OptionError,
    Progress,
    SeqpackError,
    TokenizeOptions,
    TrainTokenizerOptions,
    Url,
    import_store,
    open_store,
    pack,
    tokenize,
    train_tokenizer,
)
from seqpack_cli.cli.main import main

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NOBODY = 65534


def find(root: object, *inputs: str, folder: Path | None = None, **options: Any) -> list[str]:
    """Return the paths of the files that are read, below a root."""
    return [
        path.removeprefix(f"{root}/") for path in run(root, *inputs, folder=folder, **options).texts
    ]


def run(root: object, *inputs: str, folder: Path | None = None, **options: Any) -> Reading:
    folder = folder or Path(str(root)).parent
    return read(folder, [f"{root}{name}" for name in inputs], **options)


def fail(root: object, *inputs: str, folder: Path | None = None, **options: Any) -> SeqpackError:
    """Return the error about inputs below a root."""
    with pytest.raises(SeqpackError) as caught:
        run(root, *inputs, folder=folder, **options)
    return caught.value


def make_files(root: object, *names: str) -> None:
    """Write files or objects, each with its name as its text."""
    for name in names:
        write(f"{root}/{name}", os.fsencode(name))


@pytest.fixture(params=["here", "there"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on this machine, and one in an object store."""
    if request.param == "here":
        return str(tmp_path / "data")
    return f"memory://{tmp_path.name}/data"


# Random trees


NAMES = [
    "a",
    "b.txt",
    "B.txt",
    "c.md",
    "d-e",
    "d",
    "x.png",
    ".hid",
    "é.txt",
    "[a].txt",
    "-r",
    "a b",
]
ODD_NAMES = ["\n", "*", "?", "a\x1b.txt", os.fsdecode(b"\xff.txt"), "**", "..x", "~", "a\\b"]
PATTERNS = [
    "",
    "/**",
    "/**/*.txt",
    "/*",
    "/*/*",
    "/*/*.txt",
    "/**/d*",
    "/d/**/*",
    "/**/",
    "/*/",
    "/.*",
]


def make_tree(root: Path, rng: random.Random, *, with_links: bool = True) -> None:
    """Fill `root/in` and `root/out` with folders, files, links and other entries."""
    folders = [root / "in", root / "out"]
    for folder in folders:
        folder.mkdir(parents=True)
    paths = list(folders)
    for number in range(rng.randrange(4, 28)):
        path = rng.choice(folders) / rng.choice(NAMES if rng.random() < 0.8 else ODD_NAMES)
        if os.path.lexists(path):
            continue
        kind = rng.random()
        with contextlib.suppress(OSError):  # a name too long for a socket
            if kind < 0.35:
                path.mkdir()
                folders.append(path)
            elif kind < 0.65 or not with_links:
                path.write_text(f"{number}\n")
            elif kind < 0.92:
                target = rng.choice(paths)
                spelled = rng.choice([str(target), os.path.relpath(target, path.parent)])
                path.symlink_to(rng.choice([spelled] * 3 + ["nowhere", path.name, f"{spelled}/x"]))
            elif kind < 0.95:
                os.mkfifo(path)
            elif kind < 0.97:
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(os.fsencode(os.path.relpath(path)))
            else:
                (path.parent / "manifest.json").write_text('{\n "format": "seqpack.tokens"\n}')
        paths.append(path)


class Oracle:
    """All files that a pattern matches, by real path; it visits every path that exists."""

    def __init__(self) -> None:
        self.files: dict[str, set[tuple[str, bool]]] = {}  # real path: spelled paths, named or not
        self.dangling: set[str] = set()
        self.special: set[str] = set()
        self.unreadable: set[str] = set()
        self.outputs: set[str] = set()
        self._seen: set[tuple[str, tuple[str, ...] | None]] = set()

    def visit(self, path: str, parts: tuple[str, ...] | None) -> None:
        """Go through a folder; without parts everything matches."""
        if (os.path.realpath(path), parts) in self._seen:
            return
        self._seen.add((os.path.realpath(path), parts))
        if parts in (("**", ""), ("",)):
            self.visit(path, None)
            return
        try:
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except PermissionError:
            self.unreadable.add(os.path.realpath(path))
            return
        manifest = f"{path}/manifest.json"
        if os.path.lexists(manifest) and os.access(manifest, os.R_OK, effective_ids=True):
            self.outputs.add(os.path.realpath(path))
            return
        if parts and parts[0] == "**" and len(parts) > 1:
            self.visit(path, parts[1:])
        for entry in found:
            if not (entry.is_file(follow_symlinks=False) and parts and len(parts) > 1):
                self._take(f"{path}/{entry.name}", entry.name, parts)

    def _take(self, path: str, name: str, parts: tuple[str, ...] | None) -> None:
        hidden = name.startswith(".")
        if parts is None:
            if not hidden:
                self._enter(path, None, file=True, named=False)
        elif parts[0] == "**":
            if not hidden:
                self._enter(path, parts, file=len(parts) == 1, named=True)
        elif fnmatch.fnmatchcase(name, parts[0]) and (not hidden or parts[0].startswith(".")):
            is_last = len(parts) == 1
            self._enter(path, None if is_last else parts[1:], file=is_last, named=True)

    def _enter(self, path: str, parts: tuple[str, ...] | None, *, file: bool, named: bool) -> None:
        real = os.path.realpath(path)
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116
        except PermissionError:
            self.unreadable.add(real)
        except OSError:
            self.dangling.add(path)
        else:
            if stat.S_ISDIR(mode):
                self.visit(path, parts)
            elif file and stat.S_ISREG(mode):
                self.files.setdefault(real, set()).add((path, named))
            elif file:
                self.special.add(real)

    def wanted(self) -> set[str]:
        """Return the real paths of the files to read."""
        return {
            real
            for real, spelled in self.files.items()
            if any(named or path.endswith((".txt", ".md")) for path, named in spelled)
        }


def check_tree(root: Path, pattern: str) -> None:
    name = f"{root}/in{pattern}"
    first = f"{root}/in/{pattern[1:].partition('/')[0]}"
    if glob.has_magic(pattern) and (os.path.lexists(name) or os.path.lexists(first)):
        return  # what exists is no pattern
    oracle = Oracle()
    start, parts = f"{root}/in", tuple(pattern[1:].split("/")) if pattern else None
    if parts and not glob.has_magic(parts[0]):
        start, parts = f"{start}/{parts[0]}", parts[1:]
    if Path(start).is_dir():
        oracle.visit(start, parts)
    try:
        found = read(root, [name])
    except MachineError:
        assert oracle.unreadable, "an error, and all can be read"
        return
    except OptionError as error:
        assert not oracle.wanted(), error
        return
    assert not oracle.unreadable, "unreadable, and no error"
    paths = list(found.texts)
    assert sorted(map(os.path.realpath, paths)) == sorted(oracle.wanted())
    for path in paths:  # the real path, where the pattern passes it
        spelled = {each for each, _ in oracle.files[os.path.realpath(path)]}
        assert os.path.normpath(path) in {os.path.normpath(each) for each in spelled}
        real = os.path.realpath(path)
        assert path == real or real not in spelled or not real.endswith((".txt", ".md"))
    assert found.skipped.get("special_file", 0) >= len(oracle.special)
    assert ("special_file" in found.skipped) == bool(oracle.special)
    assert ("dangling_link" in found.skipped) == bool(oracle.dangling)
    assert found.skipped.get("seqpack_output", 0) >= len(oracle.outputs)
    assert ("unknown_suffix" in found.skipped) == bool(set(oracle.files) - oracle.wanted())


def test_random_trees_are_walked_as_by_a_slow_oracle(tmp_path: Path) -> None:
    for seed in range(50):
        rng = random.Random(seed)
        make_tree(tmp_path / str(seed), rng)
        for pattern in rng.sample(PATTERNS, 2):
            check_tree(tmp_path / str(seed), pattern)


def test_order_is_that_of_the_bytes_of_paths(tmp_path: Path) -> None:
    """Without links, a glob has the files of Python's own, and a folder those of rglob."""
    for seed in range(25):
        rng = random.Random(seed)
        root = tmp_path / str(seed)
        make_tree(root, rng, with_links=False)
        texts = [path for path in (root / "in").rglob("*") if path.suffix in (".txt", ".md")]
        seen = [
            str(path)
            for path in texts
            if path.is_file() and "/." not in str(path.relative_to(root / "in").parent / "x")
        ]
        expected = sorted(seen, key=os.fsencode)
        if expected and not any("/." in path for path in expected):
            assert list(read(root, [root / "in"]).texts) == expected
        for pattern in ("/**/*.txt", "/*.txt", "/*/*.md", "/d/*.txt", "/**/b*.txt"):
            name = f"{root}/in{pattern}"
            expected = sorted(glob.glob(name, recursive=True), key=os.fsencode)  # noqa: PTH207
            if expected and not os.path.lexists(name) and not any(map(os.path.isdir, expected)):
                assert list(read(root, [name]).texts) == expected, f"{seed} {pattern}"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_what_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o755)
    tmp_path.chmod(0o777)
    for seed in range(15):
        rng = random.Random(seed)
        root = tmp_path / str(seed)
        make_tree(root, rng)
        root.chmod(0o777)
        made = [Path(path) for path, _, _ in os.walk(root / "in")][1:]
        for path in rng.sample(made, min(len(made), 1)):
            path.chmod(rng.choice([0, 0o111, 0o444]))
        os.seteuid(NOBODY)
        try:
            for pattern in ("", "/**/*.txt"):
                check_tree(root, pattern)
        finally:
            os.seteuid(0)
        for path in made:
            path.chmod(0o755)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o777 if path == tmp_path else 0o755)
    make_files(tmp_path, "in/a.txt", "in/b.json", "locked/c.txt")
    for path in tmp_path.glob("in/*"):
        path.chmod(0)
    (tmp_path / "locked").chmod(0)
    os.seteuid(NOBODY)
    try:
        for name in ("in/a.txt", "in/b.json"):
            error = fail(tmp_path, f"/{name}", folder=tmp_path)
            assert (type(error), error.message) == (
                DataError,
                f"{tmp_path}/{name}: Permission denied",
            )
        for name in ("locked", "locked/c.txt"):
            error = fail(tmp_path, f"/{name}", folder=tmp_path)
            assert type(error) is MachineError
            assert error.message == f"{tmp_path}/{name}: Permission denied"
    finally:
        os.seteuid(0)


# Which files


def make_contents(root: object) -> None:
    make_files(
        root,
        *("a.txt", "b.TXT", "c.text", "d.md", "sub/e.txt", "sub/deep/f.txt", "x.png", "notes"),
        *(".hidden.txt", ".git/g.txt", "sub/.h/i.txt"),
    )


@pytest.mark.parametrize(
    ("inputs", "found", "skipped"),
    [
        ([""], "a.txt b.TXT c.text d.md sub/deep/f.txt sub/e.txt", {"unknown_suffix": 2}),
        (["/"], "a.txt b.TXT c.text d.md sub/deep/f.txt sub/e.txt", {"unknown_suffix": 2}),
        (["/sub", "/a.txt"], "sub/deep/f.txt sub/e.txt a.txt", {}),
        (["/c.text", "/a.txt", "/*.t*", "/a.txt"], "c.text a.txt", {}),
        (["/d.md", ""], "d.md a.txt b.TXT c.text sub/deep/f.txt sub/e.txt", {"unknown_suffix": 2}),
        (["/x.png", "/notes"], "x.png notes", {}),
        (["/x*", "/n?tes", "/[a-c].t?xt"], "x.png notes c.text", {}),
        (["/.hidden.txt"], ".hidden.txt", {}),
        (["/.git"], ".git/g.txt", {}),
        (["/*/*.txt"], "sub/e.txt", {}),
        (["/**/*.txt"], "a.txt sub/deep/f.txt sub/e.txt", {}),
        (["/s*"], "sub/deep/f.txt sub/e.txt", {}),
        (
            ["/x.png", ""],
            "x.png a.txt b.TXT c.text d.md sub/deep/f.txt sub/e.txt",
            {"unknown_suffix": 1},
        ),
    ],
)
def test_inputs_are_files_folders_and_globs(
    root: str, tmp_path: Path, inputs: list[str], found: str, skipped: dict[str, int]
) -> None:
    make_contents(root)
    made = run(root, *inputs, folder=tmp_path)
    assert [path.removeprefix(f"{root}/") for path in made.texts] == found.split()
    assert made.documents == found.split()  # each file holds its name
    assert made.skipped == skipped
    assert len(made.notices) == bool(skipped)


@pytest.mark.parametrize("name", ["/none.txt", "/none/", "/none-*.txt", "/none/**", "/a.txt/b"])
def test_input_that_is_not_there_is_an_error(root: str, tmp_path: Path, name: str) -> None:
    make_contents(root)
    error = fail(root, name, folder=tmp_path)
    assert (type(error), "no such" in error.message) == (OptionError, True)


def test_folder_without_a_file_to_read_is_an_error(root: str, tmp_path: Path) -> None:
    make_files(root, "in/x.png", "settings/config.json", "dots/.a.txt")
    error = fail(root, "/in", folder=tmp_path)
    assert (type(error), "x.png" in error.message) == (OptionError, True)
    assert ".jsonl" in str(error.hint)
    assert "--include '*.json'" in str(fail(root, "/settings", folder=tmp_path).hint)
    assert "no file" in fail(root, "/dots", folder=tmp_path).message


def test_named_format_reads_every_file_of_a_folder(root: str, tmp_path: Path) -> None:
    for name in ("a.txt", "b.png", "c", "d.zip", "e.json"):
        write(f"{root}/{name}", b'{"text": "x"}\n{"text": "y"}\n')
    found = run(root, "", folder=tmp_path, file_format="jsonl")
    assert [path.removeprefix(f"{root}/") for path in found.texts] == [
        "a.txt",
        "b.png",
        "c",
        "d.zip",
        "e.json",
    ]
    assert found.documents == ["x", "y"] * 5
    assert found.skipped == {}


@pytest.mark.parametrize("name", ["a.zip", "a.TAR", "a.tgz", "a.bin", "a.tar.gz"])
def test_suffix_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    make_files(tmp_path / "in", name)
    for inputs, said in (
        (f"/{name}", "are not supported"),
        ("/*", "are not supported"),
        ("", "no file"),
    ):
        error = fail(tmp_path / "in", inputs)
        assert (type(error), said in error.message) == (OptionError, True)
        assert error.hint
    if not name.endswith("gz"):
        assert find(tmp_path / "in", f"/{name}", file_format="text") == [name]


def test_pipe_and_dangling_link_that_are_named_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "link.txt").symlink_to("gone")
    assert "not a regular file" in fail(tmp_path, "/pipe.txt", folder=tmp_path).message
    assert "dangling link" in fail(tmp_path, "/link.txt", folder=tmp_path).message


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def make_table(form: str) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": ["a"]})
    if form == "parquet":
        pq.write_table(table, sink)
    else:
        with (pa.ipc.new_file if form == "file" else pa.ipc.new_stream)(
            sink, table.schema
        ) as writer:
            writer.write_table(table)
    return sink.getvalue()


CONTENTS = {
    **dict.fromkeys([".txt", ".text", ".md", ".log", ""], b"a"),
    **dict.fromkeys([".jsonl", ".ndjson"], b'{"text": "a"}'),
    ".json": b'[{"text": "a"}]',
    ".csv": b"id,text\n1,a",
    ".tsv": b"i,d\ttext\n1\ta",
}


def test_suffix_decides_the_format(tmp_path: Path) -> None:
    paths = []
    for suffix, data in CONTENTS.items():
        for compression, compress in COMPRESS.items():
            for case in (str.lower, str.upper):
                name = case(f"f.x{suffix}{compression}")
                paths.append(write(tmp_path / case("In") / name, compress(data)))
    for suffix, form in {
        **{".parquet": "parquet", ".PARQUET": "parquet", ".parquet.gz": "parquet"},
        **{".arrow": "file", ".arrows": "stream", ".feather": "file", ".IPC": "stream"},
    }.items():
        paths.append(write(tmp_path / "tables" / f"f{suffix}", make_table(form)))
    found = read(tmp_path, paths)
    assert found.texts == {path: ["a"] for path in paths}
    for name, compress in ((".txt", gzip.compress), (".csv.gz", bz2.compress)):
        path = write(tmp_path / f"wrong{name}", compress(b"text\na"))
        assert refused(tmp_path, [path]).message.startswith(f"{path}:")
    write(tmp_path / "a.arrow.gz", gzip.compress(make_table("file")))
    assert "a compressed arrow file" in fail(tmp_path, "/a.arrow.gz", folder=tmp_path).message


def test_json_of_a_folder_is_read_only_if_it_is_asked_for(root: str, tmp_path: Path) -> None:
    write(f"{root}/a.jsonl", b'{"text": "a"}')
    write(f"{root}/b.json", b'[{"text": "b"}]')
    made = run(root, "", folder=tmp_path)
    assert (made.documents, made.skipped) == (["a"], {"unnamed_json": 1})
    for inputs, options in (
        (["/*"], {}),
        (["/a.jsonl", "/b.json"], {}),
        ([""], {"include": ["*.json", "*.jsonl"]}),
    ):
        made = run(root, *inputs, folder=tmp_path, **options)
        assert (made.documents, made.skipped) == (["a", "b"], {})
    assert run(root, "", folder=tmp_path, include=["b*"]).documents == ["b"]


# Links


@pytest.mark.parametrize("name", ["", "/*", "/**/*.txt", "/**"])
def test_file_that_is_reached_twice_is_read_once(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    make_files(data, "z.txt", "sub/a.txt")
    make_files(tmp_path, "out/x.txt")
    (data / "a.txt").symlink_to("z.txt")
    (data / "up").symlink_to("..")
    (data / "sub/latest").symlink_to("../../data")
    (data / "link").symlink_to("../out")
    (data / "more").symlink_to(tmp_path / "out")
    made = run(data, name)
    paths = [path.removeprefix(f"{data}/") for path in made.texts]
    assert sorted(map(os.path.realpath, made.texts)) == sorted(
        map(str, (data / "z.txt", data / "sub/a.txt", tmp_path / "out/x.txt"))
    )
    assert {"z.txt", "sub/a.txt"} < set(paths)  # their own names, not those of links
    assert made.skipped["repeated_link"] >= 2


def test_names_of_links_and_files(tmp_path: Path) -> None:
    make_files(tmp_path, "real/a.txt", "b.txt", "hub/blobs/9f8a", "data/.versions/3/c.txt")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "hub/train.txt").symlink_to("blobs/9f8a")
    (tmp_path / "data/current").symlink_to(".versions/3")
    (tmp_path / "real/hard.txt").hardlink_to(tmp_path / "real/a.txt")
    for inputs, found in (
        (["/link", "/b.txt", "/real"], "real/a.txt real/hard.txt b.txt"),
        (["/link"], "link/a.txt link/hard.txt"),
        (["/hub"], "hub/train.txt"),
        (["/hub/train.txt", "/hub/blobs/*"], "hub/blobs/9f8a"),
        (["/data"], "data/current/c.txt"),
        (["/b.txt", "/./b.txt", "/real/../b.txt"], "b.txt"),
    ):
        assert find(tmp_path, *inputs, folder=tmp_path) == found.split()


def test_entries_that_are_not_files_are_skipped(tmp_path: Path, monkeypatch: Any) -> None:
    data = tmp_path / "data"
    make_files(data, "a.txt")
    (data / "gone.txt").symlink_to("nowhere")
    (data / "loop.txt").symlink_to("loop.txt")
    os.mkfifo(data / "pipe.txt")
    monkeypatch.chdir(data)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.txt")
    for name in ("", "/*", "/**/*.txt"):
        made = run(data, name)
        assert (made.documents, made.skipped) == (
            ["a.txt"],
            {"dangling_link": 2, "special_file": 2},
        )
        assert "2 dangling links" in made.notices[0]
    assert find("", ".", folder=tmp_path) == ["a.txt"]


# Patterns

CHOSEN = (
    *("a.txt", "stray.csv", "note.log", "en/b.txt", "en/c.csv", "en/drafts/d.txt"),
    *("en/drafts/old/e.txt", "drafts/f.txt", "drafts.txt", "x.zip"),
)


def make_chosen(root: object) -> None:
    for name in CHOSEN:
        write(f"{root}/{name}", b"text\n1")


@pytest.mark.parametrize(
    ("patterns", "found", "skipped"),
    [
        # Without a slash: names at any depth.
        (
            {"exclude": ["*.csv", "drafts", "*.zip"]},
            "a.txt drafts.txt en/b.txt",
            {"unknown_suffix": 1, "excluded": 5},
        ),
        ({"include": ["drafts/"]}, "drafts/f.txt en/drafts/d.txt en/drafts/old/e.txt", None),
        # With one: paths below the folder; * does not cross a slash, ** does.
        ({"include": ["drafts/**"]}, "drafts/f.txt", {"not_included": 6}),
        ({"include": ["/*.txt"]}, "a.txt drafts.txt", None),
        ({"include": ["en/*.txt"]}, "en/b.txt", None),
        ({"include": ["en/**/*.txt"], "exclude": ["**/old/**"]}, "en/b.txt en/drafts/d.txt", None),
        ({"include": ["en"], "exclude": ["*.csv", "old"]}, "en/b.txt en/drafts/d.txt", None),
        # A file that matches is text where its suffix says nothing, one below a match is not.
        ({"include": ["*.log", "[ab].txt"]}, "a.txt en/b.txt note.log", None),
    ],
)
def test_patterns_choose_files(
    root: str, tmp_path: Path, patterns: dict[str, list[str]], found: str, skipped: Any
) -> None:
    make_chosen(root)
    made = run(root, "", folder=tmp_path, **patterns)
    assert [path.removeprefix(f"{root}/") for path in made.texts] == found.split()
    assert skipped is None or made.skipped == skipped


def test_patterns_choose_among_the_matches_of_a_glob_and_named_files_stay(
    root: str, tmp_path: Path
) -> None:
    make_chosen(root)

    def found(*inputs: str, **patterns: list[str]) -> str:
        return " ".join(find(root, *inputs, folder=tmp_path, **patterns))

    patterns = {"include": ["en/**"], "exclude": ["en/drafts/*.txt"]}
    assert found("/e*/**/*.txt", **patterns) == "en/b.txt en/drafts/old/e.txt"
    assert found("", "/en/c.csv", exclude=["*.csv", "en"], include=["a*", "*.csv"]) == (
        "a.txt en/c.csv"
    )
    made = run(root, "", "/stray.csv", folder=tmp_path, exclude=["*.csv", "*.zip"])
    assert (list(made.texts)[-1], made.skipped["excluded"]) == (f"{root}/stray.csv", 2)
    assert found("/en", exclude=["drafts", "drafts/x.txt"]) == "en/b.txt en/c.csv"
    error = fail(root, "/*", folder=tmp_path, include=["*.txt", "x*"])
    assert ".zip files are not supported" in error.message


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_pattern_that_matches_nothing_is_an_error(root: str, tmp_path: Path, option: str) -> None:
    make_chosen(root)
    for inputs, patterns, said in (
        ("", ["*.txt", "draft/**"], "'draft/**': matches no file"),
        ("", ["*.txt", "TXT"], "'TXT': matches no file"),
        ("/a.txt", ["*.txt"], "a file that is named is always read"),
    ):
        error = fail(root, inputs, folder=tmp_path, **{option: patterns})
        assert (type(error), f"--{option} " in error.message) == (OptionError, True)
        assert said in error.message
    error = fail(root, "", folder=tmp_path, **{option: ["*.txt", ".git/"]})
    assert "hidden files are skipped" in str(error.hint)
    for pattern in ("./", "", "/", "."):
        with pytest.raises(OptionError, match="expected a pattern like"):
            FileOptions(**{option: [pattern]})
    error = fail(root, "/drafts", folder=tmp_path, exclude=["*"])
    assert "no file left to read" in error.message
    assert "--exclude" in str(error.hint)


def test_no_link_leads_back_to_what_is_excluded(tmp_path: Path) -> None:
    make_chosen(tmp_path / "data")
    (tmp_path / "data/latest").symlink_to("en/drafts/old")
    (tmp_path / "data/new.txt").symlink_to("en/b.txt")
    (tmp_path / "data/gone.txt").symlink_to("nowhere")
    patterns = ["en/drafts", "en/*.txt", "gone*", "*.csv", "*.zip"]
    made = run(tmp_path / "data", "", exclude=patterns)
    assert [path.rpartition("data/")[2] for path in made.texts] == [
        "a.txt",
        "drafts.txt",
        "drafts/f.txt",
    ]
    assert made.skipped == {"unknown_suffix": 1, "excluded": 8}


def matches(pattern: str, path: str) -> bool:
    """Match a path, or a folder above it, by the rules that the help states."""
    is_folder_pattern, names = pattern.endswith("/"), path.split("/")
    parts = [part for part in pattern.split("/") if part]
    if "/" not in pattern.rstrip("/"):
        parts = ["**", *parts]
    ends = range(len(names)) if is_folder_pattern else range(1, len(names) + 1)
    return any(match_parts(parts, names[:end], is_folder_pattern) for end in ends)


def match_parts(parts: list[str], names: list[str], takes_none: bool) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        if not parts[1:]:
            return takes_none or bool(names)
        rest = match_parts(parts[1:], names, takes_none)
        return rest or (bool(names) and match_parts(parts, names[1:], takes_none))
    rest = parts[1:], names[1:], takes_none
    return bool(names) and fnmatch.fnmatchcase(names[0], parts[0]) and match_parts(*rest)


def draw_patterns(rng: random.Random) -> list[str]:
    parts = ["a", "b.txt", "*", "a*", "[!a]*", "**", "**", "*b*"]
    return [
        rng.choice(["", "", "/"])
        + "/".join(rng.choices(parts, k=rng.randint(1, 3)))
        + rng.choice(["", "", "/"])
        for _ in range(rng.randint(0, 2))
    ]


def test_random_patterns_choose_what_a_slow_oracle_matches(tmp_path: Path) -> None:
    for seed in range(80):
        rng = random.Random(seed)
        folders = ["/".join(rng.choices(["a", "b", "ab"], k=rng.randint(0, 3))) for _ in range(8)]
        names = {f"{folder}/{rng.choice(['a', 'b', 'ab'])}.txt".lstrip("/") for folder in folders}
        root = rng.choice([f"memory://{tmp_path.name}-{seed}/x", str(tmp_path / str(seed))])
        for name in names:
            write(f"{root}/{name}", b"x")

        include, exclude = draw_patterns(rng), draw_patterns(rng)
        expected = [
            name
            for name in sorted(names)
            if not any(matches(pattern, name) for pattern in exclude)
            and (not include or any(matches(pattern, name) for pattern in include))
        ]
        used = all(any(matches(each, name) for name in names) for each in include + exclude)
        try:
            found = find(root, "", folder=tmp_path, include=include, exclude=exclude)
        except OptionError as error:
            assert not used or not expected, (seed, include, exclude, error.message)
        else:
            assert found == expected, (seed, include, exclude)


# Folders that seqpack wrote


def test_own_folders_are_not_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_files("data", "a.txt", "sub/b.txt")
    first = tokenize(["data"], "data/store")[0]
    pack("data/store", "data/shards")
    Path("data/link").symlink_to("store")
    write("data/unfinished/plan.json", Path("data/store/manifest.json").read_bytes())
    write("data/unfinished/rejects.jsonl", b"{}\n")
    for name in ("data/store-2", "store-3"):
        manifest, _ = tokenize(["data"], name)
        assert manifest["parts"] == first["parts"]
    skipped = json.loads(Path("store-3/run.json").read_bytes())["skipped"]
    assert skipped == {"seqpack_output": 4, "repeated_link": 1}
    assert tokenize(["data"], "data/store-2")[1], "complete: its own folder is no input either"
    write("data/other/manifest.json", b'{"format": "other"}')
    write("data/other/c.txt", b"c")
    assert read_all("data") == ["data/a.txt", "data/other/c.txt", "data/sub/b.txt"]
    with pytest.raises(OptionError, match=r"skipped 1 folder written by seqpack: data/store"):
        tokenize(["data/store"], "none")


def read_all(*inputs: str, **options: Any) -> list[str]:
    return list(read(Path(), inputs, **options).texts)


def test_own_objects_are_not_input(tmp_path: Path) -> None:
    root = f"memory://{tmp_path.name}/data"
    make_files(root, "a.txt", "sub/b.txt")
    tokenize([root], f"{root}/store")
    made = run(root, "", folder=tmp_path)
    assert ([*made.texts], made.skipped) == (
        [f"{root}/a.txt", f"{root}/sub/b.txt"],
        {"seqpack_output": 1},
    )
    assert tokenize([root], f"{root}/store")[1]
    with pytest.raises(OptionError):
        tokenize([f"{root}/store"], tmp_path / "none")


@pytest.mark.parametrize("inputs", [[""], ["/*.txt"], ["/a.txt"], ["/sub"]])
def test_output_that_holds_an_input_is_refused(root: str, inputs: list[str]) -> None:
    make_files(root, "a.txt", "sub/b.txt")
    with pytest.raises(FolderError, match="data: contains the input"):
        tokenize([f"{root}{name}" for name in inputs], root)


# Lists


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"b.txt\nc.log\na.txt", "b.txt c.log a.txt"),
        (b"\xef\xbb\xbfb.txt\r\n\r\n \n\na.txt\r\nb.txt\r\n", "b.txt a.txt"),
        (b"*.txt\n", "*.txt"),
        (b"n\n.txt\0b.txt\0", "n\n.txt|b.txt"),
        (b"\xff d.txt\n", os.fsdecode(b"\xff d.txt")),
        (b"-\n./a.txt\n", "./- ./a.txt"),
        (b"c\n", "c/d.txt c/e.csv"),
    ],
)
def test_list_names_files_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, found: str
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = os.fsdecode(b"\xff d.txt")
    for name in ("a.txt", "b.txt", "c/d.txt", "c/e.csv", "c.log", "*.txt", odd, "n\n.txt", "-"):
        write(name, b"text\n1")
    write("list", data)
    expected = [found] if found == odd else found.split("|" if "|" in found else " ")
    assert read_all(files_from="list") == expected
    write("memory://lists/list", data)
    assert read_all("c.log", "c/e*", files_from="memory://lists/list") == [
        *("c.log", "c/e.csv"),
        *(name for name in expected if name not in ("c.log", "c/e.csv")),
    ]
    patterns: dict[str, Any] = {"exclude": ["e*"]} if found.startswith("c/") else {}
    if patterns:
        assert read_all(files_from="list", **patterns) == ["c/d.txt"]


def test_list_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_files(".", "a.txt", "x.zip", "c/d.txt")
    for line, said in (
        ("none.txt", "none.txt: no such file"),
        ("a*", "a*: no such file"),
        ("x" * 300, "x: no such file"),
        ("x.zip", ".zip files are not supported"),
        ("memory://none/a.txt", "no such object"),
        ("a.txt/b", "no such file"),
    ):
        write("list", f"a.txt\n\n{line}\n".encode())
        error = fail("", folder=tmp_path, files_from="list")
        assert (type(error), error.message.startswith("list:3: ")) == (OptionError, True)
        assert said[1:] in error.message.replace("x" * 199 + "…", "")
    write("empty", b"\n \n")
    write("wide", "a.txt\n".encode("utf-16"))
    for name, said in (
        ("none", "no such file"),
        ("a.txt/b", "no such file"),
        ("memory://none/list", "no such file"),
        ("c", "a folder"),
        ("empty", "lists no file"),
        ("wide", "UTF-16"),
        ("", "expected the path of a file"),
    ):
        with pytest.raises(OptionError, match=f"--files-from .*: .*{said}"):
            read(tmp_path, [], files_from=name)


def test_list_may_be_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_files(".", "a.txt", "b.txt")
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_bytes, args=[b"b.txt\n"])
    writer.start()
    assert read_all("a.txt", files_from="pipe") == ["a.txt", "b.txt"]
    writer.join()


# Standard input


def pipe(data: bytes, *arguments: object) -> Result:
    """Run a command with these bytes on its standard input."""
    names = [str(argument) for argument in arguments]
    result = CliRunner().invoke(main, [*names, "--num-workers", "1"], input=data)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_standard_input_is_read_like_a_file(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": f"é {n}\n"}) + "\n" for n in range(40)).encode()
    for name, data, options in (
        ("a.txt", b"\xef\xbb\xbfone\r\n\ntwo", ()),
        ("b.txt", b"a\nb\n\nc", ("--document", "paragraph")),
        ("c.jsonl", lines, ("--format", "jsonl", "--part-bytes", "100")),
        ("d.csv", b"text\n1\n2\n", ("--format", "csv")),
        ("e.parquet", make_table("parquet"), ("--format", "parquet")),
    ):
        output = tmp_path / f"store-{name}"
        assert pipe(data, "tokenize", "-", "-o", output, *options).exit_code == 0
        path = write(tmp_path / name, data)
        assert pipe(b"", "tokenize", path, "-o", tmp_path / name[0], *options).exit_code == 0
        found, plain = read_store(output), read_store(tmp_path / name[0])
        assert found.texts == {"-": plain.documents}
        assert found.manifest["sources"][0]["bytes"] == len(data)
        parts = [part | {"name": ""} for part in found.manifest["parts"]]
        assert parts == [part | {"name": ""} for part in plain.manifest["parts"]]
        assert not list(output.glob(".*"))  # its copy is removed


def test_standard_input_has_its_place_among_the_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_files(".", "a.txt", "b.txt", "-")
    assert (
        pipe(b"in\n", "tokenize", "b.txt", "-", "./-", "a.txt", "-", "-o", "store").exit_code == 0
    )
    assert list(read_store(Path("store")).texts) == ["b.txt", "-", "./-", "a.txt"]
    assert (
        pipe(b"b.txt\n-\n", "tokenize", "a.txt", "--files-from", "-", "-o", "other").exit_code == 0
    )
    assert list(read_store(Path("other")).texts) == ["a.txt", "b.txt", "./-"]
    result = pipe(b"", "tokenize", "-", "--files-from", "-", "-o", "none")
    assert (result.exit_code, "conflicts" in result.stderr) == (2, True)


def test_standard_input_is_compared_with_that_of_an_earlier_run(tmp_path: Path) -> None:
    arguments = ("tokenize", "-", "-o", tmp_path / "store")
    for first in (b"", b"\n\n"):  # a broken pipe: then the same command is run again
        assert "no document with a token" in pipe(first, *arguments).stderr
    assert pipe(b"one\n", *arguments).exit_code == 0
    assert "already complete" in pipe(b"one\n", *arguments).stdout
    for other in (b"two\n", b"longer\n"):
        assert pipe(other, *arguments).exit_code == 4
    assert read_store(tmp_path / "store").documents == ["one"]
    bad = ("tokenize", "-", "-o", tmp_path / "bad")
    for data, options, said in (
        (b"a\n\xff\n", (), "-:2: byte 0xff"),
        (b"a\n", ("--format", "csv"), "-:1: no column 'text'"),
        (gzip.compress(b"a"), (), "| gzip -dc | seqpack tokenize -"),
        (gzip.compress(b"a"), ("--format", "jsonl"), "seqpack tokenize - --format jsonl"),
        ("a\n".encode("utf-16"), (), "… | iconv -f UTF-16 -t UTF-8 | seqpack"),
    ):
        result = pipe(data, *bad, *options)
        assert (result.exit_code, said in result.stderr) == (3, True), result.stderr
        assert not list(tmp_path.glob("bad/.stdin*"))


def test_standard_input_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            del size
            raise OSError(5, "Input/output error")

    for stdin, error, said in (
        (SimpleNamespace(buffer=Broken()), MachineError, "-: Input/output error"),
        (None, OptionError, "standard input is closed"),
    ):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(error, match=said):
            tokenize(["-"], tmp_path / "store")
        assert not list(tmp_path.glob("store/*"))


def test_training_reads_standard_input(tmp_path: Path) -> None:
    data = "".join(f"word {n} and word\n" for n in range(50)).encode()
    path = write(tmp_path / "a.txt", data)
    for name in (path, "-"):
        output = tmp_path / f"{len(name)}.json"
        result = CliRunner().invoke(
            main, ["train-tokenizer", name, "-o", str(output), "--vocab-size", "270"], input=data
        )
        assert result.exit_code == 0
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / f"{len(path)}.json").read_bytes()
    with pytest.raises(OptionError, match="no such file"):
        train_tokenizer([tmp_path / "none"], tmp_path / "t.json", TrainTokenizerOptions())


# Options that do not fit the files, and notes


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("a.jsonl", {"document": "paragraph"}, "--document paragraph"),
        ("a.txt", {"text_field": "body"}, "--text-field body"),
        ("a.txt", {"keep": ["n:int"]}, "--keep n"),
        ("a.txt", {"keep": ["folder:class"]}, "--keep folder"),
        ("a.txt", {"keep": ["n:int"], "document": "file"}, "--keep n"),
        ("a.txt", {"prompt_field": "q", "completion_field": "a"}, "--prompt-field q"),
        ("a.csv", {"messages_field": "m"}, "--messages-field m"),
    ],
)
def test_option_that_has_no_effect_is_an_error(
    tmp_path: Path, name: str, options: dict[str, Any], said: str
) -> None:
    if "messages_field" in options:
        options = options | {"chat_template": write(tmp_path / "t", b"{{ messages }}")}
    make_files(tmp_path, name)
    error = fail(tmp_path, f"/{name}", folder=tmp_path, **options)
    assert (type(error), said in error.message) == (OptionError, True)
    assert error.hint


def test_kept_folder_needs_files_that_are_texts(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt")
    write(tmp_path / "b.jsonl", b'{"text": "a", "folder": "x"}')
    options = {"document": "file", "keep": ["folder:class"]}
    error = fail(tmp_path, "/a.txt", "/b.jsonl", folder=tmp_path, **options)
    assert "tokenize them into two stores" in str(error.hint)
    result = pipe(
        b"a", "tokenize", "-", "-o", tmp_path / "s", "--document", "file", "--keep", "folder"
    )
    assert (result.exit_code, "standard input" in result.stderr) == (2, True)


LINE = b'{"id": 1, "text": "one"}\n'


def test_notes_about_files_that_look_like_another_format(tmp_path: Path) -> None:
    unpacked = write(tmp_path / "rows.jsonl", b'{"index": 0, "text": "x"}\n')
    notes = read(tmp_path, [unpacked]).notices
    assert len(notes) == 1
    assert "unpack --text: " + unpacked in notes[0]
    assert read(tmp_path, [write(tmp_path / "b.jsonl", LINE)]).notices == []
    for data, is_noted in (
        (LINE, True),
        (b"\xef\xbb\xbf" + LINE, True),
        (b'  { "a b" : [1]}', True),
        (b"{", False),
        (b"{'a': 1}\n", False),
        (b"text\n" + LINE, False),
    ):
        path = write(tmp_path / "a", data)
        for options in ({}, {"file_format": "text"}):
            notes = read(tmp_path, [path], **options).notices
            assert (len(notes) == 1) == (is_noted and not options)
            assert not notes or "--format jsonl" in notes[0]
        assert read(tmp_path, [write(tmp_path / "a.txt", data)]).notices == []


def test_hint_about_a_stray_file_names_exclude(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    write(corpus / "a.jsonl", LINE)
    stray = write(corpus / "my table.csv", b"body\nx\n")
    advice = "--exclude 'my table.csv'"
    assert advice in str(fail(corpus, "").hint)
    for names in ([stray], [stray, f"{corpus}/a.jsonl"]):  # a file that is named is always read
        assert advice not in str(fail("", *names, folder=tmp_path).hint)
    assert find(corpus, "", exclude=["my table.csv"]) == ["a.jsonl"]
    write(stray, b"text\nx\n")
    assert advice in str(fail(corpus, "", keep=["id:int"]).hint)
    write(stray, b"text\n\xff\n")
    assert advice not in str(fail(corpus, "").hint)
    Path(stray).unlink()
    write(corpus / "config.json", b'{\n "a": 1\n}\n')
    assert "--exclude config.json" in str(fail(corpus, "/*").hint)


# Datasets that Hugging Face's `save_to_disk` wrote

DATA = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]  # in the order of state.json
CACHE = "cache-0123456789abcdef_00000_of_00004.arrow"


def make_saved(root: str, folder: str, names: list[str] = DATA, **state: Any) -> None:
    for name in (*DATA, CACHE):
        write(f"{root}/{folder}/{name}", make_table("stream"))
    write(f"{root}/{folder}/dataset_info.json", b"{}")
    state = {"_data_files": [{"filename": name} for name in names], **state}
    write(f"{root}/{folder}/state.json", json.dumps(state).encode())


def test_saved_dataset_is_what_its_state_lists(root: str, tmp_path: Path) -> None:
    make_saved(root, "one")
    made = run(root, "/one", folder=tmp_path)
    assert [path.removeprefix(f"{root}/one/") for path in made.texts] == DATA
    assert made.skipped == {"unlisted_arrow": 1}
    assert find(root, "/one", folder=tmp_path, exclude=["data-00001*"]) == [f"one/{DATA[1]}"]
    assert find(root, f"/one/{CACHE}", "/one/data-*", folder=tmp_path) == [
        f"one/{name}" for name in (CACHE, *reversed(DATA))
    ]
    write(f"{root}/b.txt", b"text")
    write(f"{root}/two/x.arrow", make_table("file"))
    assert find(root, "", folder=tmp_path) == [
        *("b.txt", f"one/{DATA[0]}", f"one/{DATA[1]}", "two/x.arrow")
    ]
    for state in (b'{"epoch": 3}', b"not JSON", b"[]"):  # of another program
        write(f"{root}/one/state.json", state)
        assert find(root, "/one", folder=tmp_path) == [f"one/{name}" for name in reversed(DATA)]


def test_saved_dataset_that_is_not_whole_is_an_error(root: str, tmp_path: Path) -> None:
    make_saved(root, "one", [*DATA, "data-2.arrow"])
    assert f"{root}/one/data-2.arrow: no such file" in fail(root, "/one", folder=tmp_path).message
    for field in ("_indices_data_files", "_indices_files"):
        make_saved(root, "one", **{field: [{"filename": "indices.arrow"}]})
        assert "flatten_indices" in str(fail(root, "/one", folder=tmp_path).hint)
    for split in ("test", "train"):
        make_saved(root, f"splits/{split}")
    write(f"{root}/splits/dataset_dict.json", b'{"splits": ["train", "test"]}')
    for name in ("/splits", "/splits/", ""):
        make_saved(root, "one")
        error = fail(root, name, folder=tmp_path)
        assert "holds the splits test, train" in error.message
        assert error.hint == f"pass {root}/splits/train"
    assert find(root, "/splits/train", folder=tmp_path) == [f"splits/train/{name}" for name in DATA]


def test_dataset_that_the_library_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    texts = [f"text {number}" for number in range(10)]
    data = datasets.Dataset.from_dict({"text": texts})
    data.save_to_disk(str(tmp_path / "saved"), num_shards=3)
    assert read(tmp_path, [tmp_path / "saved"]).documents == texts
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "both"))
    assert "holds the splits" in fail(tmp_path, "/both", folder=tmp_path).message


# Inputs of import


def import_ids(
    folder: Path, *inputs: str, **options: Any
) -> tuple[list[str], list[list[int]], Any]:
    """Return the sources of a store of ids, its sequences, and what was skipped."""
    inside = {"include", "exclude", "files_from"} & set(options)
    files = FileOptions(**{name: options.pop(name) for name in inside})
    made = ImportOptions(**{"vocab_size": 1000, "files": files, **options})
    output = new_folder(folder)
    manifest, _ = import_store(list(inputs), output, made, executor=Executor(num_workers=1))
    skipped = json.loads((output / "run.json").read_bytes()).get("skipped", {})
    sources = [source["path"] for source in manifest["sources"]]
    return sources, [ids.tolist() for ids in open_store(output)], skipped


def make_ids(root: str, tmp_path: Path) -> None:
    """Write a pair, flat ids and records."""
    write_pair(tmp_path / "pair", [[[1, 2]], [[3], [4]]], "uint16")
    for suffix in (".bin", ".idx"):
        write(f"{root}/sub/a_document{suffix}", (tmp_path / f"pair{suffix}").read_bytes())
    write(f"{root}/b.bin", np.array([5, 6, 0, 7, 0], np.uint16).tobytes())
    file = io.BytesIO()
    np.save(file, np.array([8, 0], np.uint16))
    write(f"{root}/c.npy", file.getvalue())
    write(f"{root}/d.jsonl", b'{"input_ids": [9]}')
    make_files(root, "e.txt")
    write(f"{root}/f.data", np.array([5, 0], np.uint16).tobytes())


PAIR = [[1, 2], [3], [4]]
FLAT = {"dtype": "uint16", "eos": 0}


@pytest.mark.parametrize(
    "names",
    [
        ["/sub"],
        ["/sub/a_document"],
        ["/sub/a_document.bin"],
        ["/sub/a_document.idx"],
        ["/**/*.idx"],
        ["/sub/*"],
        ["/sub/a_document", "/sub/*.bin", "/sub/a_document.idx", "/sub"],
    ],
)
def test_pair_is_read_once_whatever_names_it(root: str, tmp_path: Path, names: list[str]) -> None:
    make_ids(root, tmp_path)
    inputs = [f"{root}{name}" for name in names]
    expected = ([f"{root}/sub/a_document.bin"], PAIR, {})
    assert import_ids(tmp_path, *inputs) == expected
    write(
        tmp_path / "list", "\n".join(name for name in inputs if "*" not in name).encode() + b"\n\n"
    )
    if "*" not in str(inputs):
        assert import_ids(tmp_path, files_from=tmp_path / "list") == expected


def test_folder_of_ids(root: str, tmp_path: Path) -> None:
    make_ids(root, tmp_path)
    ids = [[5, 6, 0], [7, 0], [8, 0]]
    names = [f"{root}/b.bin", f"{root}/c.npy"]
    paths, found, skipped = import_ids(tmp_path, root, exclude=["d*", "e*"], **FLAT)
    assert (paths, found) == ([*names, f"{root}/sub/a_document.bin"], [*ids, *PAIR])
    assert skipped == {"unknown_suffix": 1, "excluded": 2}
    paths, found, _ = import_ids(tmp_path, root, include=["*.jsonl"])
    assert (paths, found) == ([f"{root}/d.jsonl"], [[9]])
    for pattern in ("*.bin", "*.idx"):
        assert import_ids(tmp_path, f"{root}/sub", include=[pattern])[1:] == (PAIR, {})
        options = {"exclude": [f"a_{pattern}", "[de]*"], **FLAT}
        paths, found, skipped = import_ids(tmp_path, root, **options)
        assert (paths, found) == (names, ids)
        assert skipped == {"unknown_suffix": 1, "excluded": 4}
    assert import_ids(tmp_path, root, file_format="megatron", exclude=["b.bin"])[1] == PAIR
    flat = import_ids(tmp_path, f"{root}/sub", file_format="flat", **(FLAT | {"eos": 4}))
    assert flat[:2] == ([f"{root}/sub/a_document.bin"], [[1, 2, 3, 4]])
    assert import_ids(tmp_path, f"{root}/f.data", file_format="flat", **FLAT)[0] == [
        f"{root}/f.data"
    ]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("x.idx", {}, "x.bin: no such file, expected beside"),
        ("x", {}, "x.bin: no such file, expected beside"),
        ("b", {}, "b.idx: no such file, expected beside"),
        ("b.bin", {"file_format": "megatron"}, "b.idx: no such file, expected beside"),
        ("e.txt", {}, ".txt files are not supported"),
        ("f.data", {}, "expected one of the suffixes"),
        ("g.bin.gz", FLAT, "a compressed flat file"),
        ("none", {}, "no such"),
    ],
)
def test_files_that_hold_no_ids_are_refused(
    root: str, tmp_path: Path, name: str, options: dict[str, Any], said: str
) -> None:
    make_ids(root, tmp_path)
    make_files(root, "x.idx", "g.bin.gz")
    with pytest.raises(OptionError) as caught:
        import_ids(tmp_path, f"{root}/{name}", **options)
    assert said in caught.value.message


def test_token_store_is_not_imported(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"a")
    tokenize([path], tmp_path / "in/tok store")
    with pytest.raises(OptionError, match="already a token store") as caught:
        import_ids(tmp_path, f"{tmp_path}/in/tok store")
    assert caught.value.hint == f"run seqpack pack '{tmp_path}/in/tok store'"
    pack(tmp_path / "in/tok store", tmp_path / "shards")
    with pytest.raises(OptionError, match="written by seqpack, expected the output of another"):
        import_ids(tmp_path, f"{tmp_path}/shards")
    write(tmp_path / "in/b.jsonl", b'{"input_ids": [1]}')
    assert import_ids(tmp_path, f"{tmp_path}/in")[1:] == ([[1]], {"seqpack_output": 1})


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_pair_that_changes_while_it_is_read_is_an_error(tmp_path: Path, suffix: str) -> None:
    write_pair(tmp_path / "p", [[[1, 2]], [[3], [4]]], "uint16")
    options = ImportOptions(vocab_size=10)
    progress = Progress(on_advance=lambda _: os.utime(tmp_path / f"p{suffix}", (1, 1)))
    with pytest.raises(DataError, match=rf"p\{suffix}: changed while it was read"):
        import_store(
            [tmp_path / "p"],
            tmp_path / "store",
            options,
            executor=Executor(num_workers=1),
            progress=progress,
        )


# Objects


@contextlib.contextmanager
def in_memory(name: str) -> Iterator[str]:
    yield f"memory://{name}/corpus"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def test_objects_are_read_like_files(tmp_path: Path) -> None:
    files = {
        "Z.text": b"zed\n" * 30,
        "a/z.jsonl": b'{"text": "x"}\n' * 9,
        "a/y.txt.bz2": bz2.compress(b"y\n" * 40),
        "b.csv": b"text\n1\n",
        "p.parquet": make_table("parquet"),
        "q.arrow": make_table("file"),
        "s.json": b'[{"text": "s"}]',
    }
    with in_memory(tmp_path.name) as there:
        here = tmp_path / "files"
        for name, data in files.items():
            write(here / name, data)
            write(f"{there}/{name}", data)
        for document, part_bytes in (("line", 50), ("paragraph", 1 << 20), ("file", 70)):
            options = {"document": document, "part_bytes": part_bytes, "include": ["*"]}
            objects, local = (read(tmp_path, [each], **options) for each in (there, here))
            assert objects.manifest["parts"] == local.manifest["parts"]
            assert objects.documents == local.documents
            assert [path.removeprefix(there) for path in objects.texts] == [
                path.removeprefix(str(here)) for path in local.texts
            ]
        assert "two slashes" in fail("memory://", f"{tmp_path.name}//a", folder=tmp_path).message


def test_folders_of_an_object_store_may_be_objects(tmp_path: Path) -> None:
    with in_memory(tmp_path.name) as there:
        make_files(there, "a.txt", "b/c.txt")
        system = fsspec.filesystem("memory")
        system.makedirs(f"/{tmp_path.name}/corpus/empty")
        assert find(there, "", folder=tmp_path) == ["a.txt", "b/c.txt"]
        assert find(there, "/*", folder=tmp_path) == ["a.txt", "b/c.txt"]
    file = tmp_path / "x/a.txt"
    make_files(tmp_path, "x/a.txt")
    for name in ("", "/a.txt", "/*.txt"):
        assert list(read(tmp_path, [f"file://{tmp_path}/x{name}"]).texts) == [str(file)]


def test_many_named_objects_are_found_by_listing_their_folder(tmp_path: Path, tiny: int) -> None:
    with in_memory(tmp_path.name) as there:
        names = [f"{there}/{number}.txt" for number in range(9)]
        for name in names:
            write(name, b"x")
        list_ = write(tmp_path / "list", "\n".join(reversed(names)).encode())
        assert list(read(tmp_path, [], files_from=list_).texts) == names[::-1]
        write(tmp_path / "list", "\n".join([*names, f"{there}/none.txt"]).encode())
        assert "none.txt: no such object" in fail("", folder=tmp_path, files_from=list_).message


@pytest.mark.parametrize("change", ["other", "shorter", "gone"])
@pytest.mark.parametrize("part_bytes", [50, 1 << 20])
def test_object_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, change: str, part_bytes: int
) -> None:
    with in_memory(tmp_path.name) as there:
        make_files(there, "a.txt")
        last = write(f"{there}/b.txt", b"first\n" * 20)

        def disturb(_: int) -> None:
            if change == "gone":
                with contextlib.suppress(FileNotFoundError):
                    fsspec.filesystem("memory").rm_file(last)
            else:
                write(last, b"other\n" * (20 if change == "other" else 1))

        with pytest.raises(DataError, match=r"b\.txt: (changed|missing)"):
            tokenize(
                [there],
                tmp_path / "store",
                TokenizeOptions(part_bytes=part_bytes),
                executor=Executor(num_workers=1),
                progress=Progress(on_advance=disturb),
            )


def test_web_address_is_refused(tmp_path: Path) -> None:
    assert "web addresses" in fail("", "http://a/b.txt", folder=tmp_path).message
    assert str(Url("memory://a/b")) == "memory://a/b"
