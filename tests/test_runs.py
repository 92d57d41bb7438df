"""Runs that stop, continue, are refused or replaced: the folder that a command writes, and a file.

Commands run in this process. `Disk` counts the calls of `os` that change something below a folder;
the k-th of them fails, or from it on nothing is done any more, as if the process had been killed.
Whatever happens, the same command again ends with the bytes of a run that nothing disturbed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command import run

import seqpack_cli
from seqpack_cli import (
    Executor,
    FolderError,
    PackOptions,
    Progress,
    TokenizeOptions,
    open_shards,
    open_store,
    pack,
    tokenize,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names of open files are in /proc")

Tree = dict[str, bytes | str | None]
HERE = Executor(num_workers=1)
TEXT = "".join(f"line {number} of the text, é\n" for number in range(60))


# Folders, and a disk that fails


def read_tree(folder: Path) -> Tree:
    """Return what lies below a folder: bytes, targets of links, None for folders and pipes.

    Without run.json, which says only how a run was done.
    """
    tree: Tree = {}
    for path in sorted(folder.rglob("*")):
        data: bytes | str | None = None
        if path.is_symlink():
            data = os.readlink(path)
        elif path.is_file():
            data = path.read_bytes()
        if path.name != "run.json":
            tree[str(path.relative_to(folder))] = data
    return tree


def find_temporary(folder: Path) -> list[str]:
    return [name for name in read_tree(folder) if Path(name).name.startswith(".")]


DEAD = r"\.lock$|\.tmp$"  # names of what a killed process leaves


class Stop(BaseException):
    """Stands for a kill: no `except Exception` sees it."""


@dataclass
class Disk:
    """Stands between this process and the calls of `os` that change something below a folder.

    Args:
        k: the call that goes wrong, from 0.
        code: the error of that call; None: from there on nothing is done, like after a kill.
        only: a pattern of the calls to count, such as "replace .*manifest.json".
    """

    folder: Path
    k: int = -1
    code: int | None = None
    only: str = ""
    calls: list[str] = field(default_factory=list)
    is_dead: bool = False

    @contextlib.contextmanager
    def between(self) -> Iterator[Disk]:
        with pytest.MonkeyPatch.context() as patch:
            for name in CHANGING:
                patch.setattr(os, name, self._stand_before(name, getattr(os, name)))
            yield self

    def _stand_before(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            is_read = name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR)
            path = None if is_read or options.get("dir_fd") else self._find(arguments[0])
            called = f"{name} {path}"
            if path is not None and self.is_dead:
                raise Stop
            if path is None or not re.search(self.only, called):
                return call(*arguments, **options)
            self.calls.append(called)
            if len(self.calls) - 1 != self.k:
                return call(*arguments, **options)
            if name == "write":
                call(arguments[0], arguments[1][: len(arguments[1]) // 2])
            if self.code is not None:
                raise OSError(self.code, os.strerror(self.code))
            self.is_dead = True
            raise Stop

        return counted

    def _find(self, place: Any) -> str | None:
        """Return the name of a file or open file below the folder."""
        name = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else str(place)
        return name if Path(name).is_relative_to(self.folder) else None


CHANGING = ("open", "write", "fsync", "replace", "link", "unlink", "mkdir", "rmdir", "ftruncate")


def run_stopped(folder: Path, k: int, *arguments: object, only: str = "") -> Disk:
    """Run a command that is killed at its k-th change of a folder."""
    with Disk(folder, k, only=only).between() as disk, contextlib.suppress(Stop):
        run(*arguments)
    return disk


def choose(calls: list[str]) -> list[int]:
    """Return where calls of each kind come first: after such a call, numbers in names aside."""
    kinds = [re.sub(r"\d+", "#", call) for call in calls]
    places: dict[tuple[str, str], int] = {}
    for k, pair in enumerate(zip(["", *kinds], kinds, strict=False)):
        places.setdefault(pair, k)
    return [*places.values(), len(calls) - 1]


# The commands


@dataclass(frozen=True)
class Work:
    """What commands read, and the words of each command but for its output."""

    folder: Path
    words: dict[str, tuple[object, ...]]
    whole: dict[str, Tree]

    def start(
        self, name: str, out: Path, *options: object, other: bool = False
    ) -> tuple[object, ...]:
        """Return the words of a command; those of another plan have one option more."""
        return (*self.words[name], "-o", out, *options, *(OTHER[name] if other else ()))

    def run(self, name: str, out: Path, *options: object, other: bool = False) -> Result:
        return run(*self.start(name, out, *options, other=other))


RUNS = ("tokenize", "import", "pack", "split")  # which are continued
OTHER: dict[str, tuple[object, ...]] = {  # one option more, which changes the plan
    "tokenize": ("--eos", "<eos>"),
    "import": ("--on-bad-record", "skip"),
    "pack": ("--drop-longer", 22),
    "split": ("--drop-longer", 22),
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    folder = tmp_path_factory.mktemp("work")
    # What goes to rejects.jsonl, and to special_tokens.jsonl.
    (folder / "text.txt").write_bytes(TEXT.encode() + b"no text: \xff\na token as text: <eos>\n")
    rows = [{"input_ids": [n % 7 + 1] * (n % 5 + 1)} for n in range(70)]
    (folder / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store, one = folder / "store", ("--num-workers", 1)
    words: dict[str, tuple[object, ...]] = {
        "tokenize": ("tokenize", folder / "text.txt", "--part-bytes", 600, *one)
        + ("--encoding-errors", "skip"),
        "import": ("import", folder / "ids.jsonl", "--vocab-size", 9, "--part-bytes", 600, *one),
        "pack": ("pack", store, "--batch-size", 4, "--shard-bytes", 3500, *one),
        "split": ("pack", store, "--split", "a=0.5,b=0.5", "--batch-size", 4, *one),
        "nanogpt": ("export", store, "--to", "nanogpt"),
        "megatron": ("export", store, "--to", "megatron"),
        "unpack": ("unpack", folder / "shards"),
        "train": ("train-tokenizer", folder / "text.txt", "--vocab-size", 300)
        + ("--encoding-errors", "skip"),
        "plot": ("inspect", store, "--plot"),
    }
    whole: dict[str, Tree] = {}
    made = Work(folder, words, whole)
    for name, out in (("tokenize", store), ("pack", folder / "shards")):
        assert made.run(name, out).exit_code == 0
    for name in RUNS:
        result = made.run(name, folder / name / "out")
        assert result.exit_code == 0, result.stderr
        whole[name] = read_tree(folder / name / "out")
        assert find_temporary(folder / name) == []
    return made


@pytest.fixture
def place(work: Work, tmp_path: Path) -> Iterator[Path]:
    """Return a new folder beside those of the whole outputs: relative paths are the same."""
    folder = work.folder / tmp_path.name
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


# What is in the folder of the output, and what becomes of it

PIECE = {
    "tokenize": "part-00000.bin",
    "import": "part-00000.idx",
    "pack": "shard-00000.safetensors",
    "split": "a/shard-00000.safetensors",
}
STRANGE = ("notes.txt", "model.safetensors", ".hidden", ".a.tmp", "deep")  # names of no run


def finish(work: Work, name: str, out: Path) -> None:
    shutil.copytree(work.folder / name / "out", out)


def finish_other(work: Work, name: str, out: Path) -> None:
    assert work.run(name, out, other=True).exit_code == 0


def stop_at(only: str, *, other: bool = False) -> Callable[..., None]:
    """Return what kills a run at the first call of a pattern."""

    def stop(work: Work, name: str, out: Path) -> None:
        words = work.start(name, out, other=other)
        assert run_stopped(out, 0, *words, only=only).is_dead
        assert (out / ".lock").exists(), "nothing is cleaned up by the dead"

    return stop


AT_END = r"replace .*/out/\.manifest.json"


def put(file: str, data: bytes | None, *, first: Callable[..., None] | None = None) -> Any:
    """Return what writes a file, or makes a folder, into the output."""

    def write(work: Work, name: str, out: Path) -> None:
        if first is not None:
            first(work, name, out)
        path = out / file.format(piece=PIECE[name], receipt=PIECE[name].split(".")[0] + ".json")
        if data is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    return write


def lose_piece(work: Work, name: str, out: Path) -> None:
    finish(work, name, out)
    (out / PIECE[name]).unlink()


def cut_piece(work: Work, name: str, out: Path) -> None:
    finish(work, name, out)
    os.truncate(out / PIECE[name], 7)


def cut_unfinished(work: Work, name: str, out: Path) -> None:
    stop_at(AT_END)(work, name, out)
    os.truncate(out / PIECE[name], 7)


def link(target: str) -> Callable[..., None]:
    def make(work: Work, name: str, out: Path) -> None:
        (out.parent / "real").mkdir()
        out.symlink_to(target)

    return make


def of_other_command(work: Work, name: str, out: Path) -> None:
    others = {"tokenize": "import", "import": "tokenize", "pack": "tokenize", "split": "pack"}
    shutil.copytree(work.folder / others[name] / "out", out)


# (state, what makes it, then the same command, and with --overwrite): "made": the whole output,
# and what is strange stays; "done": nothing changes; else the error, and nothing changes.
STATES: list[tuple[str, Callable[..., None], str, str]] = [
    ("nothing", lambda *_: None, "made", "made"),
    ("empty", lambda _, __, out: out.mkdir(), "made", "made"),
    ("finished", finish, "done", "made"),
    ("finished, other", finish_other, "4 holds a run that differs", "made"),
    ("stopped", stop_at(AT_END), "made", "made"),
    ("stopped at the first file", stop_at("replace"), "made", "made"),
    ("stopped at its last", stop_at("unlink .*/plan.json"), "done", "made"),
    ("stopped, other", stop_at(AT_END, other=True), "4 holds a run that differs", "made"),
    (
        "stopped early, other",
        stop_at(r"replace .*/\.(part|shard|tokenizer)", other=True),
        "made",
        "made",
    ),
    ("stranger", put("notes.txt", b"x"), "4 holds other files (notes.txt)", "made"),
    ("hidden stranger", put(".hidden", b"x"), "4 holds other files (.hidden)", "made"),
    ("strange folder", put("deep/notes.txt", b"x"), "4 holds other files (deep)", "made"),
    ("finished, stranger", put("model.safetensors", b"x", first=finish), "4 holds other", "made"),
    ("temporary", put(".x.bin.123.tmp", b"x"), "made", "made"),
    ("like temporary", put(".a.tmp", b"x"), "4 holds other files (.a.tmp)", "made"),
    ("lock of the dead", put(".lock", b"host 1"), "made", "made"),
    ("half a lock", put(".lock", b"ho"), "made", "made"),
    ("strange lock", put(".lock", b"{}"), "4 .lock: not a lock file", "4 .lock: not a lock"),
    ("folder as lock", put(".lock", None), "4 .lock: not a lock file", "4 .lock: not a lock"),
    ("of another command", of_other_command, "4 holds", "4 holds"),
    ("strange manifest", put("manifest.json", b'{"name": "web page"}'), "4 ", "4 "),
    ("strange plan", put("plan.json", b"plan: go home"), "4 ", "4 "),
    ("piece alone", put("{piece}", b"ids"), "4 holds", "4 holds"),
    ("folder as file", put("{receipt}", None, first=finish), "5 ", "4 "),
    ("lost piece", lose_piece, "4 ", "made"),
    ("cut piece", cut_piece, "4 ", "made"),
    ("stopped, cut piece", cut_unfinished, "made", "made"),
    ("stopped, cut receipt", put("{receipt}", b"{", first=stop_at(AT_END)), "made", "made"),
    ("file", lambda _, __, out: out.write_text("x"), "5 File exists", "5 File exists"),
    ("link", link("real"), "made", "made"),
    ("broken link", link("none"), "5 ", "5 "),
]
OF_SPLITS = {  # whose folders are runs of their own
    "stopped at its last": ("made", "made"),
    "stopped early, other": ("4 holds a run that differs", "made"),
    "stopped, cut piece": ("4 ", "made"),
}
NOT_OF_SPLITS = ("piece alone", "folder as file")


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(("state", "make", "plain", "overwritten"), STATES)
def test_output_that_holds_something(
    work: Work,
    place: Path,
    name: str,
    state: str,
    make: Callable[..., None],
    plain: str,
    overwritten: str,
) -> None:
    out = place / "out"
    if name == "split":
        if state in NOT_OF_SPLITS:
            return
        plain, overwritten = OF_SPLITS.get(state, (plain, overwritten))
    for options, expected in [((), plain), (("--overwrite",), overwritten)]:
        make(work, name, out)
        before, inside = read_tree(place), read_tree(out)
        strange = {key: inside[key] for key in inside if key.split("/")[0] in STRANGE}
        result = work.run(name, out, *options)
        if expected in ("made", "done"):
            assert result.exit_code == 0, result.stderr
            assert ("already complete" in result.stdout) == (expected == "done")
            assert read_tree(out) == work.whole[name] | strange
        else:
            code, _, fragment = expected.partition(" ")
            assert result.exit_code == int(code), result.stderr
            assert result.stdout == ""
            assert fragment in result.stderr
            assert str(out) in result.stderr
            after = read_tree(place)
            if state.startswith("stopped"):  # what the dead left may go
                before = {key: before[key] for key in before if not re.search(DEAD, key)}
            assert after == before
        for path in place.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


# A disk that fails, and kills, at every call


CODES = (None, errno.ENOSPC, errno.EIO)
SAID = {
    errno.ENOSPC: "free some disk space, then run the same command again",
    errno.EIO: "fix the disk, then run the same command again",
}


def check_fault(result: Result, code: int, out: Path) -> None:
    """Assert that an error of the disk names a file, and says what to do."""
    assert result.exit_code == 5, result.output
    found = f"Error: {re.escape(str(out))}\\S*: {os.strerror(code)}\n\nhint: {SAID[code]}\n"
    assert re.fullmatch(found, result.stderr), result.stderr
    assert not re.search(r"\.tmp:", result.stderr), "the name that the file will have"
    assert find_temporary(out.parent) == []


def can_open(folder: Path) -> bool:
    """Return whether a folder counts as a finished store or shard set."""
    is_store = b"seqpack.tokens" in (folder / "manifest.json").read_bytes()
    try:
        (open_store if is_store else open_shards)(folder)
    except FolderError:
        return False
    return True


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_lost_whichever_call_goes_wrong(
    work: Work, place: Path, name: str, replaces: bool
) -> None:
    """Each kind of call once; the run after it has the bytes of one that nothing disturbed."""
    earlier = place / "earlier"
    if replaces:
        assert work.run(name, earlier, other=True).exit_code == 0
    words = work.start(name, place / "out", *["--overwrite"] * replaces)
    k, calls = -1, [""]
    places = [-1]  # first without a fault
    while places:
        k = places.pop(0)
        out = place / "out"
        if replaces:
            shutil.copytree(earlier, out)
        code = CODES[k % 3]
        result = None
        with Disk(place, k, code).between() as disk, contextlib.suppress(Stop):
            result = run(*words)
        if k < 0:
            calls = disk.calls
            places = choose(calls)[replaces :: 4 if replaces else 2]
            assert len(places) > 5
        elif code is not None and "/.lock" not in calls[k]:
            assert result is not None
            check_fault(result, code, out)
        is_begun = (out / "plan.json").exists()
        is_finished = (out / "manifest.json").exists() and not is_begun
        if is_finished:
            found = {key: data for key, data in read_tree(out).items() if not re.search(DEAD, key)}
            assert found in (work.whole[name], read_tree(earlier)), calls[k]
        elif (out / "manifest.json").exists() and name != "split":
            assert not can_open(out), calls[k]
        again = run(*words[: len(words) - (replaces and is_begun)])
        assert again.exit_code == 0, f"{calls[k]}: {again.output}"
        assert read_tree(out) == work.whole[name], calls[k]
        shutil.rmtree(out)


@pytest.mark.parametrize(
    ("name", "replaces"),
    [("megatron", True), ("nanogpt", False), ("unpack", True), ("unpack", False), ("train", False)],
)
def test_export_can_be_run_again_whichever_call_goes_wrong(
    work: Work, place: Path, name: str, replaces: bool
) -> None:
    """All files are those of before or the new ones, and nothing temporary stays at the end."""
    out, trees = place / "made" / "out", list[Tree]()
    out.parent.mkdir()
    for words in (LESS[name](work), work.words[name]):
        assert run(*words, "-o", out, "--overwrite").exit_code == 0
        trees.append(read_tree(out.parent))
    assert trees[0] != trees[1]
    before, after = trees if replaces else ({}, trees[1])
    words = (*work.words[name], "-o", out, *["--overwrite"] * replaces)
    write_tree(out.parent, before)
    with Disk(out.parent).between() as disk:
        assert run(*words).exit_code == 0
    places = choose(disk.calls)
    for k in places:
        write_tree(out.parent, before)
        result = None
        with Disk(out.parent, k, CODES[k % 3]).between(), contextlib.suppress(Stop):
            result = run(*words)
        tree = read_tree(out.parent)
        found = {key: tree[key] for key in tree if not re.search(r"(^|/)\.", key)}
        assert (
            (result is not None and result.exit_code == 5) or CODES[k % 3] is None or found == after
        )
        ids = {key for key in found if found[key] is not None and not key.endswith(".json")}
        assert any({key: found[key] for key in ids}.items() <= each.items() for each in trees)
        if tree != after:
            again = run(*words, *["--overwrite"] * (found == after and not replaces))
            assert again.exit_code == 0, f"{disk.calls[k]}: {again.output}"
        assert read_tree(out.parent) == after, disk.calls[k]


LESS: dict[str, Callable[[Work], tuple[object, ...]]] = {  # what makes other files
    "megatron": lambda work: ("export", work.folder / "import" / "out", "--to", "megatron"),
    "nanogpt": lambda work: (*work.words["nanogpt"], "--dtype", "uint32"),
    "unpack": lambda work: (*work.words["unpack"], "--text"),
    "train": lambda work: (*work.words["train"], "--vocab-size", 290),
}


def write_tree(folder: Path, files: Tree) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in files.items():
        if isinstance(data, bytes):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
