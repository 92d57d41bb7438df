"""Which files tokenize and import read: folders, globs, patterns, lists, URLs, standard input."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import gzip
import io
import json
import os
import random
import socket
import stat
import sys
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from documents import (
    COMPRESS,
    ONE,
    Reading,
    make_options,
    new_folder,
    read,
    read_store,
    refused,
    write,
    write_packed,
)
from oracle.imports import write_pair

from seqpack_cli import (
    DataError,
    FileOptions,
    FolderError,
    ImportOptions,
    MachineError,
    OptionError,
    Progress,
    import_store,
    open_store,
    pack,
    tokenize,
)
from seqpack_cli.cli.main import main
from seqpack_cli.limits import LIMITS

NOBODY = 65534


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a folder of the test."""
    monkeypatch.chdir(tmp_path)


def run(root: object, *inputs: str, **options: Any) -> Reading:
    """Read inputs below a root."""
    return read(Path("stores"), [f"{root}{name}" for name in inputs], **options)


def find(root: object, *inputs: str, **options: Any) -> str:
    """Return the paths of the files that are read, below the root."""
    return " ".join(path.removeprefix(f"{root}/") for path in run(root, *inputs, **options).texts)


def fail(root: object, *inputs: str, said: str = "", **options: Any) -> str:
    """Assert what an error says about inputs below a root, and return its hint."""
    with pytest.raises(OptionError) as caught:
        run(root, *inputs, **options)
    assert said in caught.value.message
    return str(caught.value.hint)


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


ENTRIES = "a b.txt B.txt c.md d-e d x.png .hid é.txt [a].txt -r a.b"
ODD_ENTRIES = [*"\n*?~", "a\x1b.txt", os.fsdecode(b"\xff.txt"), "**", "..x", "a\\b"]
GLOBS = " /** /**/*.txt /* /*/* /*/*.txt /**/d* /d/**/* /**/ /*/ /.*"


def make_tree(root: Path, rng: random.Random) -> None:
    """Fill `root/in` and `root/out` with folders, files, links and other entries."""
    folders = [root / "in", root / "out"]
    for folder in folders:
        folder.mkdir(parents=True)
    paths = list(folders)
    for number in range(rng.randrange(4, 28)):
        path = rng.choice(folders) / rng.choice(
            ENTRIES.split() if rng.random() < 0.8 else ODD_ENTRIES
        )
        if os.path.lexists(path):
            continue
        kind = rng.random()
        with contextlib.suppress(OSError):  # a name too long for a socket
            if kind < 0.35:
                path.mkdir()
                folders.append(path)
            elif kind < 0.65:
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
        with os.scandir(path) as entries:
            found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        if os.path.lexists(f"{path}/manifest.json"):
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
    except OptionError as error:
        assert not oracle.wanted(), error
        return
    paths = list(found.texts)
    assert sorted(map(os.path.realpath, paths)) == sorted(oracle.wanted())
    assert glob.has_magic(pattern) or paths == sorted(paths, key=os.fsencode)
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
        for pattern in rng.sample(GLOBS.split(" "), 2):
            check_tree(tmp_path / str(seed), pattern)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o777 if path == tmp_path else 0o755)
    make_files("in", "a.txt", "b.json")
    make_files("locked", "c.txt")
    make_files("links", "d.txt")
    Path("links/c.txt").symlink_to("../locked/c.txt")
    for path in (*Path("in").iterdir(), Path("locked")):
        path.chmod(0)
    os.seteuid(NOBODY)
    try:
        for name, kind in (("in/a.txt", DataError), ("in/b.json", DataError)):
            with pytest.raises(kind, match=f"^{name}: Permission denied"):
                read(tmp_path, [name])
        for name in ("locked", "locked/c.txt", "./*", "links"):
            with pytest.raises(MachineError, match=r"(locked|c.txt): Permission denied"):
                read(tmp_path, [name])
        assert read(tmp_path, ["links"], exclude=["c.txt"]).documents == ["d.txt"]
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
        (["/x.png", "/[bn]*", "/sub"], "x.png b.TXT notes sub/deep/f.txt sub/e.txt", {}),
    ],
)
def test_inputs_are_files_folders_and_globs(
    root: str, tmp_path: Path, inputs: list[str], found: str, skipped: dict[str, int]
) -> None:
    make_contents(root)
    made = run(root, *inputs)
    assert made.documents == found.split()  # each file holds its name
    assert [path.removeprefix(f"{root}/") for path in made.texts] == found.split()
    assert (made.skipped, len(made.notices)) == (skipped, bool(skipped))


def test_order_of_a_glob_is_that_of_python(root: str) -> None:
    """The files of a matched folder are sorted by its name; the name of a file is never a glob."""
    make_files(root, "en-US/a.txt", "en/b.txt", "en.txt", "en/a/c.txt", "B.txt", "v1/d.txt")
    found = "B.txt en/a/c.txt en/b.txt en-US/a.txt en.txt"
    assert find(root, "/[Be]*") == found
    assert find(root, "", exclude=["v1"]) == " ".join(sorted(found.split()))
    if "://" not in root:
        make_files(root, "v[1]/e.txt")
        assert find(root, "/v[1]/*.txt") == "v[1]/e.txt"


@pytest.mark.parametrize(
    "name", ["/none.txt", "/none/", "/none-*.txt", "/none/**", "/a.txt/b", "/" + "x" * 5000]
)
def test_input_that_is_not_there_is_an_error(root: str, name: str) -> None:
    make_contents(root)
    fail(root, name, said="no such")


def test_folder_without_a_file_to_read_is_an_error(root: str) -> None:
    make_files(root, "in/x.png", "settings/config.json", "dots/.a.txt")
    assert ".jsonl" in fail(root, "/in", said="x.png")
    assert "--include '*.json'" in fail(root, "/settings", said="no file")
    fail(root, "/dots", said="no file")


def test_named_format_reads_every_file_of_a_folder(root: str) -> None:
    for name in ("a.txt", "b.png", "c", "d.zip", "e.json"):
        write(f"{root}/{name}", b'{"text": "x"}\n{"text": "y"}\n')
    assert find(root, "", file_format="jsonl") == "a.txt b.png c d.zip e.json"
    found = run(root, "", file_format="jsonl")
    assert (found.documents, found.skipped) == (["x", "y"] * 5, {})


@pytest.mark.parametrize("name", ["a.zip", "a.TAR", "a.tgz", "a.bin", "a.tar.gz"])
def test_suffix_that_cannot_be_read_is_refused(name: str) -> None:
    make_files("in", name)
    for inputs, said in ((f"/{name}", "are not supported"), ("/*", "are not supported")):
        assert fail("in", inputs, said=said) != "None"
    fail("in", "", said="no file")
    if not name.endswith("gz"):
        assert find("in", f"/{name}", file_format="text") == name


def make_table(form: str) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": ["a"]})
    if form == "parquet":
        pq.write_table(table, sink)
    else:
        new = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with new(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


CONTENTS = {
    **dict.fromkeys([".txt", ".text", ".md", ".log", ""], b"a"),
    **dict.fromkeys([".jsonl", ".ndjson"], b'{"text": "a"}'),
    ".json": b'[{"text": "a"}]',
    ".csv": b"id,text\n1,a",
    ".tsv": b"i,d\ttext\n1\ta",
}


def test_suffix_decides_the_format() -> None:
    paths = []
    for suffix, data in CONTENTS.items():
        for compression in COMPRESS:
            for case in (str.lower, str.upper):
                name = case(f"in/f.x{suffix}{compression}")
                paths.append(write_packed(Path(name), data) if compression else write(name, data))
    for suffix in (".parquet", ".PARQUET", ".parquet.gz"):
        paths.append(write(f"tables/f{suffix}", make_table("parquet")))
    for suffix, form in ((".arrow", "file"), (".arrows", "stream"), (".IPC", "stream")):
        paths.append(write(f"tables/f{suffix}", make_table(form)))
    assert run("", *paths).texts == {path: ["a"] for path in paths}
    for name, suffix in (("wrong.txt", ".gz"), ("wrong.csv.gz", ".bz2")):
        refused(Path(), [write(name, COMPRESS[suffix](b"text\na"))])
    write("a.arrow.gz", gzip.compress(make_table("file")))
    fail("", "a.arrow.gz", said="a compressed arrow file")


def test_json_of_a_folder_is_read_only_if_it_is_asked_for(root: str) -> None:
    write(f"{root}/a.jsonl", b'{"text": "a"}')
    write(f"{root}/b.json", b'[{"text": "b"}]')
    made = run(root, "")
    assert (made.documents, made.skipped) == (["a"], {"unnamed_json": 1})
    named = (["/*"], ["/a.jsonl", "/b.json"], ["/b.json", "/a.jsonl", ""])
    for made in (*(run(root, *names) for names in named), run(root, "", include=["*.json*"])):
        assert (sorted(made.texts.values()), made.skipped) == ([["a"], ["b"]], {})
    assert run(root, "", include=["b*"]).documents == ["b"]


# Links


@pytest.mark.parametrize("name", ["", "/*", "/**/*.txt", "/**"])
def test_file_that_is_reached_twice_is_read_once(tmp_path: Path, name: str) -> None:
    make_files(".", "data/z.txt", "data/sub/a.txt", "out/x.txt")
    for link, target in (
        *(("a.txt", "z.txt"), ("up", ".."), ("sub/latest", "../../data"), ("link", "../out")),
        ("more", tmp_path / "out"),
    ):
        Path("data", link).symlink_to(target)
    made = run("data", name)
    real = {os.path.relpath(os.path.realpath(path)) for path in made.texts}
    assert real == {"data/z.txt", "data/sub/a.txt", "out/x.txt"}
    assert len(made.texts) == 3
    assert {"data/z.txt", "data/sub/a.txt"} < set(made.texts)  # not the names of links
    assert made.skipped["repeated_link"] >= 2


def test_names_of_links_and_files() -> None:
    make_files(".", "real/a.txt", "b.txt", "hub/blobs/9f8a", "data/.versions/3/c.txt")
    for link, target in (
        *(("link", "real"), ("hub/train.txt", "blobs/9f8a"), ("data/current", ".versions/3")),
    ):
        Path(link).symlink_to(target)
    Path("real/hard.txt").hardlink_to("real/a.txt")
    for inputs, found in (
        (["link", "b.txt", "real"], "real/a.txt real/hard.txt b.txt"),
        (["link"], "link/a.txt link/hard.txt"),
        (["hub"], "hub/train.txt"),
        (["hub/train.txt", "hub/blobs/*"], "hub/blobs/9f8a"),
        (["data"], "data/current/c.txt"),
        (["b.txt", "./b.txt", "real/../b.txt"], "b.txt"),
    ):
        assert find("", *inputs) == found


class Vanished:
    """An entry of a folder that is gone when it is looked at."""

    name = "gone"
    is_symlink, is_dir, is_file = (lambda _: False, lambda _: True, lambda _: False)

    def stat(self, code: int = errno.ENOENT) -> Any:
        raise OSError(code, os.strerror(code))


def test_entries_that_are_not_files_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    make_files("data", "a.txt")
    Path("data/gone.txt").symlink_to("nowhere")
    Path("data/loop.txt").symlink_to("loop.txt")
    os.mkfifo("data/pipe.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("data/socket.txt")
    for name in ("", "/*", "/**/*.txt"):
        made = run("data", name)
        assert made.documents == ["a.txt"]
        assert made.skipped == {"dangling_link": 2, "special_file": 2}
        assert "2 dangling links" in made.notices[0]
    with pytest.MonkeyPatch.context() as patch:  # more of them come and go during the walk
        scan = os.scandir
        patch.setattr(os, "scandir", lambda path: [*scan(path), Vanished()])
        assert run("data", "").skipped == {"dangling_link": 2, "special_file": 2, "vanished": 1}
        patch.setattr(os, "scandir", lambda _: Vanished().stat(5))
        with pytest.raises(MachineError, match=r"^data: Input/output error$"):
            run("data", "")
    fail("data", "/pipe.txt", said="not a regular file")
    fail("data", "/gone.txt", said="dangling link")
    monkeypatch.chdir("data")
    assert find("", ".") == "a.txt"


# Patterns

CHOSEN = "a.txt stray.csv note.log en/b.txt en/c.csv en/drafts/d.txt en/drafts/old/e.txt"
CHOSEN += " drafts/f.txt drafts.txt x.zip"


def make_chosen(root: object) -> None:
    for name in CHOSEN.split():
        write(f"{root}/{name}", b"text\n1")


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        # Without a slash: names at any depth.
        ({"exclude": ["*.csv", "drafts", "*.zip"]}, "a.txt drafts.txt en/b.txt"),
        ({"include": ["drafts/"]}, "drafts/f.txt en/drafts/d.txt en/drafts/old/e.txt"),
        # With one: paths below the folder; * does not cross a slash, ** does.
        ({"include": ["drafts/**"]}, "drafts/f.txt"),
        ({"include": ["/*.txt"]}, "a.txt drafts.txt"),
        ({"include": ["en/*.txt"]}, "en/b.txt"),
        ({"include": ["en/**/*.txt"], "exclude": ["**/old/**"]}, "en/b.txt en/drafts/d.txt"),
        ({"include": ["en"], "exclude": ["*.csv", "old"]}, "en/b.txt en/drafts/d.txt"),
        # A file that matches is text where its suffix says nothing, one below a match is not.
        ({"include": ["*.log", "[ab].txt"]}, "a.txt en/b.txt note.log"),
    ],
)
def test_patterns_choose_files(root: str, patterns: dict[str, list[str]], found: str) -> None:
    make_chosen(root)
    assert find(root, "", **patterns) == found


def test_folder_that_is_included_names_no_file_in_it(root: str) -> None:
    make_files(root, "en/a.txt", "en/b.log", "c.txt")
    found = run(root, "", include=["*/"])
    assert (found.documents, found.skipped) == (
        ["en/a.txt"],
        {"not_included": 1, "unknown_suffix": 1},
    )


def test_patterns_leave_named_files_and_are_counted(root: str) -> None:
    make_chosen(root)
    patterns = {"include": ["en/**"], "exclude": ["en/drafts/*.txt"]}
    assert find(root, "/e*/**/*.txt", **patterns) == "en/b.txt en/drafts/old/e.txt"
    patterns = {"include": ["a*", "*.csv"], "exclude": ["*.csv", "en"]}
    assert find(root, "", "/en/c.csv", **patterns) == "a.txt en/c.csv"
    assert find(root, "/en", exclude=["drafts", "drafts/x.txt"]) == "en/b.txt en/c.csv"
    made = run(root, "", "/stray.csv", exclude=["*.csv", "*.zip"])
    assert list(made.texts)[-1] == f"{root}/stray.csv"
    assert made.skipped == {"unknown_suffix": 1, "excluded": 2}
    made = run(root, "", exclude=["*.csv", "drafts", "*.zip"])
    assert made.skipped == {"unknown_suffix": 1, "excluded": 5}
    assert run(root, "", include=["drafts/**"]).skipped == {"not_included": 6}
    made = run(root, "", include=["en/**"], exclude=["old", "d*s/f.txt", "drfats", "*.csv"])
    assert made.skipped == {"not_included": 5, "excluded": 3, "unmatched": 2}
    what = "; 2 patterns that match nothing outside skipped folders: d*s/f.txt, drfats"
    assert made.notices[0].endswith(what)
    fail(root, "/*", include=["*.txt", "x*"], said=".zip files are not supported")


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_pattern_that_matches_nothing_is_an_error(root: str, option: str) -> None:
    make_chosen(root)
    for inputs, pattern, said in (
        ("", "draft/**", "matches no file"),
        ("", "TXT", "matches no file"),
        ("", "drafts[!a]f.txt", "matches no file"),  # brackets match no slash
        ("/a.txt", "a.txt", "no input is a folder or a glob"),
    ):
        patterns = {option: [*["*.txt"] * (not inputs), pattern]}
        assert fail(root, inputs, said=f"--{option} '{pattern}': {said}", **patterns)
    assert "hidden files are skipped" in fail(root, "", **{option: ["*.txt", ".git/"]})
    for pattern in ("./", "", "/", "."):
        with pytest.raises(OptionError, match="expected a pattern like"):
            FileOptions(**{option: [pattern]})
    assert "--exclude" in fail(root, "/drafts", exclude=["*"], said="no file left to read")


def test_no_link_leads_back_to_what_is_excluded() -> None:
    make_chosen("data")
    Path("data/latest").symlink_to("en/drafts/old")
    Path("data/new.txt").symlink_to("en/b.txt")
    Path("data/gone.txt").symlink_to("nowhere")
    made = run("data", "", exclude=["en/drafts", "en/*.txt", "gone*", "*.csv", "*.zip"])
    assert list(made.texts) == ["data/a.txt", "data/drafts.txt", "data/drafts/f.txt"]
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
    below = parts[1:], names[1:], takes_none
    return bool(names) and fnmatch.fnmatchcase(names[0], parts[0]) and match_parts(*below)


def draw_patterns(rng: random.Random) -> list[str]:
    parts, ends = ["a", "b.txt", "*", "a*", "[!a]*", "**", "**", "*b*"], ["", "", "/"]
    drawn = ["/".join(rng.choices(parts, k=rng.randint(1, 3))) for _ in range(rng.randint(0, 2))]
    return [rng.choice(ends) + each + rng.choice(ends) for each in drawn]


def test_random_patterns_choose_what_a_slow_oracle_matches(tmp_path: Path) -> None:
    for seed in range(80):
        rng = random.Random(seed)
        folders = ["/".join(rng.choices(["a", "b", "ab"], k=rng.randint(0, 3))) for _ in range(8)]
        names = {f"{folder}/{rng.choice(['a', 'b', 'ab'])}.txt".lstrip("/") for folder in folders}
        root = rng.choice([f"memory://{tmp_path.name}-{seed}/x", str(seed)])
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
            found = find(root, "", include=include, exclude=exclude)
        except OptionError as error:
            assert not used or not expected, (seed, include, exclude, error.message)
        else:
            assert found == " ".join(expected), (seed, include, exclude)


# Folders that seqpack wrote


def test_own_folders_are_not_input() -> None:
    make_files("data", "a.txt", "sub/b.txt")
    first = tokenize(["data"], "data/store")[0]
    pack("data/store", "data/shards")
    Path("data/link").symlink_to("store")
    write("data/unfinished/plan.json", Path("data/store/manifest.json").read_bytes())
    write("data/unfinished/rejects.jsonl", b"{}\n")
    for name in ("data/store-2", "store-3"):
        assert tokenize(["data"], name)[0]["parts"] == first["parts"]
    skipped = json.loads(Path("store-3/run.json").read_bytes())["skipped"]
    assert skipped == {"seqpack_output": 4, "repeated_link": 1}
    assert tokenize(["data"], "data/store-2")[1], "complete: its own folder is no input either"
    write("data/other/manifest.json", b'{"format": "other"}')
    write("data/other/c.txt", b"c")
    assert find("", "data") == "data/a.txt data/other/c.txt data/sub/b.txt"
    fail("", "data/store", said="skipped 1 folder written by seqpack: data/store")


def test_own_objects_are_not_input(tmp_path: Path) -> None:
    root = f"memory://{tmp_path.name}/data"
    make_files(root, "a.txt", "sub/b.txt")
    tokenize([root], f"{root}/store")
    made = run(root, "")
    assert list(made.texts) == [f"{root}/a.txt", f"{root}/sub/b.txt"]
    assert made.skipped == {"seqpack_output": 1}
    assert tokenize([root], f"{root}/store")[1]
    fail(root, "/store", said="no file")


@pytest.mark.parametrize("inputs", [[""], ["/*.txt"], ["/a.txt"], ["/sub"]])
def test_output_that_holds_an_input_is_refused(root: str, inputs: list[str]) -> None:
    make_files(root, "a.txt", "sub/b.txt")
    with pytest.raises(FolderError, match="data: contains the input"):
        tokenize([f"{root}{name}" for name in inputs], root)


# Lists

ODD = os.fsdecode(b"\xff.txt")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"b.txt\nc.log\na.txt", "b.txt c.log a.txt"),
        (b"\xef\xbb\xbfb.txt\r\n\r\n \n\na.txt\r\nb.txt\r\n", "b.txt a.txt"),
        (b"*.txt\n", "*.txt"),
        (b"n\n.txt\0b.txt\0", "n\n.txt b.txt"),
        (b"\xff.txt\n", ODD),
        (b"-\n./a.txt\n", "./- ./a.txt"),
        (b"c\n", "c/d.txt"),
    ],
)
def test_list_names_files_in_its_order(data: bytes, found: str) -> None:
    for name in ("a.txt", "b.txt", "c/d.txt", "c/.e.txt", "c.log", "*.txt", ODD, "n\n.txt", "-"):
        write(name, b"text\n1")
    for list_ in (write("list", data), write("memory://lists/list", data)):
        assert find("", files_from=list_) == found
        others = [name for name in found.split(" ") if name != "c.log"]
        assert find("", "c.log", files_from=list_) == " ".join(["c.log", *others])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("none.txt", "none.txt: no such file"),
        ("a*", "a*: no such file"),
        ("x" * 300, "x" * 200 + "…: no such file"),
        ("x.zip", "x.zip: .zip files are not supported"),
        ("memory://none/a.txt", "memory://none/a.txt: no such object"),
        ("a.txt/b", "a.txt/b: no such file"),
        ("http://a/b.txt", "http://a/b.txt: web addresses"),
    ],
)
def test_line_that_cannot_be_read_is_named(line: str, said: str) -> None:
    make_files(".", "a.txt", "x.zip")
    fail("", files_from=write("list", f"a.txt\n\n{line}\n".encode()), said=f"list:3: {said}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "no such file"),
        ("a.txt/b", "no such file"),
        ("memory://none/list", "no such file"),
        ("c", "a folder"),
        ("empty", "lists no file"),
        ("wide", "UTF-16"),
        ("", "expected the path of a file"),
    ],
)
def test_list_that_names_nothing_is_an_error(name: str, said: str) -> None:
    make_files(".", "a.txt", "c/d.txt")
    write("empty", b"\n \n")
    write("wide", "a.txt\n".encode("utf-16"))
    fail("", files_from=name, said=said)


# Standard input


def pipe(data: bytes, *arguments: str) -> Result:
    """Run `seqpack tokenize` with these bytes on its standard input."""
    result = CliRunner().invoke(main, ["tokenize", *arguments, "--num-workers", "1"], input=data)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_standard_input_is_read_like_a_file() -> None:
    lines = "".join(json.dumps({"text": f"é {n}\n"}) + "\n" for n in range(40)).encode()
    for name, data, options in (
        ("a.txt", b"\xef\xbb\xbfone\r\n\ntwo", ()),
        ("b.txt", b"a\nb\n\nc", ("--document", "paragraph")),
        ("c.jsonl", lines, ("--format", "jsonl", "--part-bytes", "100")),
        ("d.csv", b"text\n1\n2\n", ("--format", "csv")),
        ("e.parquet", make_table("parquet"), ("--format", "parquet")),
    ):
        made = []
        for source in ("-", write(name, data)):
            assert pipe(data, source, "-o", f"{name}{source}", *options).exit_code == 0
            made.append(read_store(Path(f"{name}{source}")))
        assert made[0].texts == {"-": made[1].documents}
        assert made[0].manifest["sources"][0]["bytes"] == len(data)
        assert made[0].manifest["parts"] == made[1].manifest["parts"]
        assert not list(made[0].folder.glob(".*"))  # its copy is removed


def test_standard_input_has_its_place_among_the_inputs() -> None:
    make_files(".", "a.txt", "b.txt", "-")
    pipe(b"in\n", "b.txt", "-", "./-", "a.txt", "-", "-o", "store")
    assert list(read_store(Path("store")).texts) == ["b.txt", "-", "./-", "a.txt"]
    pipe(b"b.txt\n-\n", "a.txt", "--files-from", "-", "-o", "other")
    assert list(read_store(Path("other")).texts) == ["a.txt", "b.txt", "./-"]
    os.mkfifo("pipe")
    Thread(target=Path("pipe").write_bytes, args=[b"b.txt\n"]).start()
    assert find("", files_from="pipe") == "b.txt"
    result = pipe(b"", "-", "--files-from", "-", "-o", "none")
    assert (result.exit_code, "conflicts" in result.stderr) == (2, True)


def test_standard_input_is_compared_with_that_of_an_earlier_run() -> None:
    for first in (b"", b"\n\n"):  # a broken pipe: then the same command is run again
        assert "no document with a token" in pipe(first, "-", "-o", "store").stderr
    assert pipe(b"one\n", "-", "-o", "store").exit_code == 0
    assert "already complete" in pipe(b"one\n", "-", "-o", "store").stdout
    for other in (b"two\n", b"longer\n"):
        assert pipe(other, "-", "-o", "store").exit_code == 4
    assert read_store(Path("store")).documents == ["one"]


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (b"a\n\xff\n", (), "-:2: byte 0xff"),
        (b"a\n", ("--format", "csv"), "-:1: no column 'text'"),
        (gzip.compress(b"a", mtime=0), (), "| gzip -dc | seqpack tokenize -"),
        (gzip.compress(b"a", mtime=0), ("--format", "jsonl"), "seqpack tokenize - --format jsonl"),
        ("a\n".encode("utf-16"), (), "… | iconv -f UTF-16 -t UTF-8 | seqpack"),
    ],
)
def test_fault_of_standard_input_is_named(data: bytes, options: tuple[str], said: str) -> None:
    result = pipe(data, "-", "-o", "store", *options)
    assert (result.exit_code, said in result.stderr) == (3, True), result.stderr
    assert not list(Path().glob("store/.stdin*"))


class Broken(io.RawIOBase):
    """A pipe that fails."""

    def read(self, size: int = -1) -> bytes:
        del size
        raise OSError(5, "Input/output error")


def test_standard_input_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin, error, said in (
        (SimpleNamespace(buffer=Broken()), MachineError, "-: Input/output error"),
        (None, OptionError, "standard input is closed"),
    ):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(error, match=said):
            tokenize(["-"], "store")
        assert not list(Path().glob("store/*"))


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
        ("a.csv", {"messages_field": "m", "chat_template": "t"}, "--messages-field m"),
    ],
)
def test_option_that_has_no_effect_is_an_error(name: str, options: Any, said: str) -> None:
    write("t", b"{{ messages }}")
    make_files(".", name)
    assert fail("", name, said=said, **options) != "None"


def test_option_that_has_an_effect_on_some_files_is_taken() -> None:
    write("a.txt", b"one\ntwo\n")
    write("b.jsonl", b'{"body": "x", "text": "y"}\n')
    assert run("", "b.jsonl", "a.txt", document="file").documents == ["y", "one\ntwo\n"]
    assert run("", "a.txt", "b.jsonl", text_field="body").documents == ["one", "two", "x"]


def test_kept_folder_needs_files_that_are_texts() -> None:
    make_files(".", "a.txt")
    write("b.jsonl", b'{"text": "a", "folder": "x"}')
    options = {"document": "file", "keep": ["folder:class"]}
    assert "tokenize them into two stores" in fail("", "a.txt", "b.jsonl", **options)
    result = pipe(b"a", "-", "-o", "store", "--document", "file", "--keep", "folder")
    assert (result.exit_code, "standard input" in result.stderr) == (2, True)


LINE = b'{"id": 1, "text": "one"}\n'


def test_notes_about_files_that_look_like_another_format() -> None:
    write("rows.jsonl", b'{"index": 0, "text": "x"}\n')
    assert "unpack --text: rows.jsonl" in run("", "rows.jsonl").notices[0]
    for name in ("b.jsonl", "c.gz"):
        write_packed(Path(name), LINE)
        assert run("", name).notices == []
    arguments = ["train-tokenizer", "-", "-o", "t.json", "--vocab-size", "280"]
    assert "--format jsonl" in CliRunner().invoke(main, arguments, input=LINE).stderr
    for data, is_noted in (
        (LINE, True),
        (b"\xef\xbb\xbf" + LINE, True),
        (b'  { "a b" : [1]}', True),
        (b"{", False),
        (b"{'a': 1}\n", False),
        (b"text\n" + LINE, False),
    ):
        for name in ("a", "a.txt"):
            write(name, data)
            notes = run("", name).notices
            assert ["--format jsonl" in note for note in notes] == [True] * (
                is_noted and name == "a"
            )
            assert run("", name, file_format="text").notices == []


def test_hint_about_a_stray_file_names_exclude() -> None:
    write("corpus/a.jsonl", LINE)
    stray = "corpus/my table.csv"
    advice = "--exclude 'my table.csv'"
    for data, inputs, options, is_advised in (
        (b"body\nx\n", ["corpus"], {}, True),
        (b"body\nx\n", ["corpus", stray], {}, False),  # a file that is named is always read
        (b"body\nx\n", [stray], {}, False),
        (b"text\nx\n", ["corpus"], {"keep": ["id:int"]}, True),
        (b"text\n\xff\n", ["corpus"], {}, False),
    ):
        write(stray, data)
        with pytest.raises(DataError) as caught:
            run("", *inputs, **options)
        assert (advice in str(caught.value.hint)) == is_advised
    assert find("", "corpus", exclude=["my table.csv"]) == "corpus/a.jsonl"
    write("corpus/my table.csv", b"text\n1")
    write("corpus/config.json", b'{\n "a": 1\n}\n')
    with pytest.raises(DataError) as caught:
        run("", "corpus/*")
    assert "--exclude config.json" in str(caught.value.hint)


# Datasets that Hugging Face's `save_to_disk` wrote

DATA = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]  # in the order of state.json
CACHE = "cache-0123456789abcdef_00000_of_00004.arrow"


def make_saved(folder: str, *more: str, **state: Any) -> None:
    for name in (*DATA, CACHE):
        write(f"{folder}/{name}", make_table("stream"))
    write(f"{folder}/dataset_info.json", b"{}")
    state = {"_data_files": [{"filename": name} for name in (*DATA, *more)], **state}
    write(f"{folder}/state.json", json.dumps(state).encode())


def test_saved_dataset_is_what_its_state_lists(root: str) -> None:
    make_saved(f"{root}/one")
    made = run(root, "/one")
    assert list(made.texts) == [f"{root}/one/{name}" for name in DATA]
    assert made.skipped == {"unlisted_arrow": 1}
    one = f"{root}/one"
    assert find(one, "", exclude=["data-00001*"]) == DATA[1]
    assert find(one, f"/{CACHE}", "/data-*") == f"{CACHE} {DATA[1]} {DATA[0]}"
    write(f"{root}/b.txt", b"text")
    write(f"{root}/two/x.arrow", make_table("file"))
    assert find(root, "") == f"b.txt one/{DATA[0]} one/{DATA[1]} two/x.arrow"
    for state in (b'{"epoch": 3}', b"not JSON", b"[]"):  # of another program
        write(f"{one}/state.json", state)
        assert find(one, "") == f"{DATA[1]} {DATA[0]}"


def test_saved_dataset_that_is_not_whole_is_an_error(root: str) -> None:
    make_saved(f"{root}/one", "data-2.arrow")
    fail(root, "/one", said=f"{root}/one/data-2.arrow: no such file")
    for field in ("_indices_data_files", "_indices_files"):
        make_saved(f"{root}/one", **{field: [{"filename": "indices.arrow"}]})
        assert "flatten_indices" in fail(root, "/one")
    for folder in ("one", "splits/test", "splits/train"):
        make_saved(f"{root}/{folder}")
    write(f"{root}/splits/dataset_dict.json", b'{"splits": ["train", "test"]}')
    for name in ("/splits", "/splits/", ""):
        hint = fail(root, name, said="holds the splits test, train")
        assert hint == f"pass {root}/splits/train"
    assert find(f"{root}/splits/train", "") == " ".join(DATA)


def test_splits_are_refused_however_their_folder_is_spelled() -> None:
    for folder in ("splits/test", "splits/train"):
        make_saved(folder)
    write("splits/dataset_dict.json", b'{"splits": ["train", "test"]}')
    for name in ("./splits", "splits/.", "."):
        fail("", name, said="splits: holds the splits test, train")


def test_dataset_that_the_library_saved() -> None:
    datasets = pytest.importorskip("datasets")
    texts = [f"text {number}" for number in range(10)]
    data = datasets.Dataset.from_dict({"text": texts})
    data.save_to_disk("saved", num_shards=3)
    assert run("", "saved").documents == texts
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk("both")
    fail("", "both", said="holds the splits")


# Inputs of import


def import_ids(*inputs: str, **options: Any) -> tuple[list[str], list[list[int]], Any]:
    """Return the sources of a store of ids, its sequences, and what was skipped."""
    inside = {"include", "exclude", "files_from"} & set(options)
    files = FileOptions(**{name: options.pop(name) for name in inside})
    made = ImportOptions(**{"vocab_size": 1000, "files": files, **options})
    output = new_folder(Path("stores"))
    manifest, _ = import_store(list(inputs), output, made, executor=ONE)
    skipped = json.loads((output / "run.json").read_bytes()).get("skipped", {})
    sources = [source["path"] for source in manifest["sources"]]
    return sources, [ids.tolist() for ids in open_store(output)], skipped


def make_ids(root: str) -> None:
    """Write a pair, flat ids and records."""
    write_pair(Path("pair"), [[[1, 2]], [[3], [4]]], "uint16")
    for suffix in (".bin", ".idx"):
        write(f"{root}/sub/a_document{suffix}", Path(f"pair{suffix}").read_bytes())
    write(f"{root}/b.bin", np.array([5, 6, 0, 7, 0], np.uint16).tobytes())
    file = io.BytesIO()
    np.save(file, np.array([8, 0], np.uint16))
    write(f"{root}/c.npy", file.getvalue())
    write(f"{root}/d.jsonl", b'{"input_ids": [9]}')
    write(f"{root}/f.data", np.array([5, 0], np.uint16).tobytes())
    make_files(root, "e.txt")


PAIR = [[1, 2], [3], [4]]
FLAT = {"dtype": "uint16", "eos": 0}


@pytest.mark.parametrize(
    "names",
    [
        *(["/sub"], ["/sub/a_document"], ["/sub/a_document.bin"], ["/sub/a_document.idx"]),
        *(["/**/*.idx"], ["/sub/*"]),
        ["/sub/a_document", "/sub/*.bin", "/sub/a_document.idx", "/sub"],
    ],
)
def test_pair_is_read_once_whatever_names_it(root: str, names: list[str]) -> None:
    make_ids(root)
    inputs = [f"{root}{name}" for name in names]
    expected = ([f"{root}/sub/a_document.bin"], PAIR, {})
    assert import_ids(*inputs) == expected
    if "*" not in str(inputs):
        assert import_ids(files_from=write("list", "\n".join(inputs).encode())) == expected


def test_folder_of_ids(root: str) -> None:
    make_ids(root)
    ids, names = [[5, 6, 0], [7, 0], [8, 0]], [f"{root}/b.bin", f"{root}/c.npy"]
    pair = f"{root}/sub/a_document.bin"
    found = import_ids(root, exclude=["d*", "e*"], **FLAT)
    assert found == ([*names, pair], [*ids, *PAIR], {"unknown_suffix": 1, "excluded": 2})
    assert import_ids(root, include=["*.jsonl"])[:2] == ([f"{root}/d.jsonl"], [[9]])
    for pattern in ("*.bin", "*.idx"):
        assert import_ids(f"{root}/sub", include=[pattern]) == ([pair], PAIR, {})
        found = import_ids(root, exclude=[f"a_{pattern}", "[de]*"], **FLAT)
        assert found == (names, ids, {"unknown_suffix": 1, "excluded": 4})
    assert import_ids(root, file_format="megatron", exclude=["b.bin"])[1] == PAIR
    flat = import_ids(f"{root}/sub", file_format="flat", **(FLAT | {"eos": 4}))
    assert flat[:2] == ([pair], [[1, 2, 3, 4]])
    assert import_ids(f"{root}/f.data", file_format="flat", **FLAT)[1] == [[5, 0]]


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
def test_files_that_hold_no_ids_are_refused(root: str, name: str, options: Any, said: str) -> None:
    make_ids(root)
    make_files(root, "x.idx", "g.bin.gz")
    with pytest.raises(OptionError) as caught:
        import_ids(f"{root}/{name}", **options)
    assert said in caught.value.message


def test_token_store_is_not_imported() -> None:
    make_files(".", "a.txt")
    tokenize(["a.txt"], "in/tok store")
    pack("in/tok store", "shards")
    for name in ("in/tok store", "shards"):
        with pytest.raises(OptionError, match=f"1 folder written by seqpack: {name}") as caught:
            import_ids(name)
        assert caught.value.hint == "run seqpack pack to read a token store"
    write("in/b.jsonl", b'{"input_ids": [1]}')
    assert import_ids("in")[1:] == ([[1]], {"seqpack_output": 1})


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_pair_that_changes_while_it_is_read_is_an_error(suffix: str) -> None:
    write_pair(Path("p"), [[[1, 2]], [[3], [4]]], "uint16")
    progress = Progress(on_advance=lambda _: os.utime(f"p{suffix}", (1, 1)))
    options: dict[str, Any] = {"executor": ONE, "progress": progress}
    with pytest.raises(DataError, match=rf"p\{suffix}: changed while it was read"):
        import_store(["p"], "store", ImportOptions(vocab_size=10), **options)


# Objects


@pytest.mark.parametrize("size", [7, 1 << 20])
def test_objects_are_read_like_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_tokenizer: Path, size: int
) -> None:
    """However many requests it takes."""
    for name in ("range_bytes", "seek_bytes"):
        monkeypatch.setattr(LIMITS, name, size)
    there = f"memory://{tmp_path.name}/corpus"
    for name, data in {
        "Z.text": b"zed\n" * 30,
        "a/z.jsonl": b'{"text": "x"}\n' * 9,
        "a/y.txt.bz2": COMPRESS[".bz2"](b"y\n" * 40),
        "b.csv": b"text\n1\n",
        "p.parquet": make_table("parquet"),
        "q.arrow": make_table("file"),
        "s.json": b'[{"text": "s"}]',
    }.items():
        for root in ("here", there):
            write(f"{root}/{name}", data)
    for document, part_bytes in (("line", 50), ("paragraph", 1 << 20), ("file", 70)):
        options = {"document": document, "part_bytes": part_bytes, "include": ["*"]}
        objects, local = (run(each, "", **options) for each in (there, "here"))
        assert objects.manifest["parts"] == local.manifest["parts"]
        texts = {path.replace("here", there): texts for path, texts in local.texts.items()}
        assert objects.texts == texts
    write(f"{there}/model/tokenizer.json", tiny_tokenizer.read_bytes())
    places = (tiny_tokenizer, f"{there}/model", f"{there}/model/tokenizer.json")
    made = [tokenize(f"{there}/Z.text", f"by-{n}", tokenizer=it)[0] for n, it in enumerate(places)]
    assert made[0] == made[1] == made[2]
    fail("memory://", f"{tmp_path.name}//a", said="two slashes")
    for name in ("Z.text", "*.text"):
        assert list(run("file://", f"{tmp_path}/here/{name}").texts) == [f"{tmp_path}/here/Z.text"]


def test_many_named_objects_are_found_by_listing_their_folder(tmp_path: Path, tiny: int) -> None:
    names = [f"memory://{tmp_path.name}/{number}.txt" for number in range(9)]
    for name in names:
        write(name, b"x")
    write("list", "\n".join(reversed(names)).encode())
    assert find("", files_from="list") == " ".join(reversed(names))
    write("list", "\n".join([*names, f"memory://{tmp_path.name}/none.txt"]).encode())
    fail("", files_from="list", said="none.txt: no such object")


@pytest.mark.parametrize("change", ["other", "shorter", "gone"])
@pytest.mark.parametrize("part_bytes", [50, 1 << 20])
def test_object_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, change: str, part_bytes: int
) -> None:
    there = f"memory://{tmp_path.name}/{change}"
    make_files(there, "a.txt")
    last = write(f"{there}/b.txt", b"first\n" * 20)

    def disturb(_: int) -> None:
        if change != "gone":
            write(last, b"other\n" * (20 if change == "other" else 1))
        elif (system := fsspec.filesystem("memory")).exists(last):
            system.rm_file(last)

    options: dict[str, Any] = {"executor": ONE, "progress": Progress(on_advance=disturb)}
    with pytest.raises(DataError, match=r"b\.txt: (changed|missing)"):
        tokenize([there], "store", make_options({"part_bytes": part_bytes}), **options)
