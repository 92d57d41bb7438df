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
            data = str(path.readlink())
        elif path.is_file():
            data = path.read_bytes()
        if path.name != "run.json":
            tree[str(path.relative_to(folder))] = data
    return tree


def find_temporary(folder: Path) -> list[str]:
    return [name for name in read_tree(folder) if Path(name).name.startswith(".")]


OPENED = "/proc/self/fd"
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
        name = str(Path(OPENED, str(place)).readlink() if isinstance(place, int) else place)
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
SKIP = ("--encoding-errors", "skip")
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
        "tokenize": ("tokenize", folder / "text.txt", "--part-bytes", 600, *one, *SKIP),
        "import": ("import", folder / "ids.jsonl", "--vocab-size", 9, "--part-bytes", 600, *one),
        "pack": ("pack", store, "--batch-size", 4, "--shard-bytes", 3500, *one),
        "split": ("pack", store, "--split", "a=0.5,b=0.5", "--batch-size", 4, *one),
        "nanogpt": ("export", store, "--to", "nanogpt"),
        "megatron": ("export", store, "--to", "megatron"),
        "parquet": ("export", store),
        "unpack": ("unpack", folder / "shards"),
        "train": ("train-tokenizer", folder / "text.txt", "--vocab-size", 300, *SKIP),
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
OUTSIDE = b"a thesis"
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


def link_file(file: str, *, first: Callable[..., None] | None = None) -> Callable[..., None]:
    """Return what puts a link to a file outside in the place of one of the output."""

    def make(work: Work, name: str, out: Path) -> None:
        if first is not None:
            first(work, name, out)
        path, outside = out / file.format(piece=PIECE[name]), out.parent / "outside"
        outside.write_bytes(OUTSIDE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(outside)

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
    ("link as piece", link_file("{piece}"), "4 holds", "4 holds"),
    ("link as plan", link_file("plan.json"), "4 ", "4 "),
    ("link as manifest", link_file("manifest.json"), "4 ", "4 "),
    ("link as lock", link_file(".lock"), "4 .lock: not a lock file", "4 .lock: not a lock file"),
    ("stopped, link as piece", link_file("{piece}", first=stop_at(AT_END)), "made", "4 "),
    ("stopped, link as record", link_file("run.json", first=stop_at(AT_END)), "made", "4 "),
]
OF_SPLITS = {  # whose folders are made when the run begins, so that it has begun
    "stopped early, other": ("4 holds a run that differs", "made"),
    "link as piece": ("4 holds a", "made"),
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
                after = {key: after[key] for key in after if not re.search(DEAD, key)}
            assert after == before
        if (place / "outside").exists():
            assert (place / "outside").read_bytes() == OUTSIDE
        for path in place.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("name", ["part-00000.bin", "shard-00000.safetensors"])
def test_file_that_is_lost_during_a_run_is_said_and_made_again(
    tmp_path: Path, name: str, is_cut: bool
) -> None:
    """Something removes or cuts a file while others are still being made."""
    (tmp_path / "text.txt").write_text("".join(f"document {number}\n" for number in range(40)))
    tokenize(tmp_path / "text.txt", tmp_path / "store", TokenizeOptions(), executor=HERE)
    harmed: list[Path] = []

    def harm(_: int) -> None:
        path = tmp_path / "out" / name
        if not harmed and path.exists():
            harmed.append(path)
            path.write_bytes(b"12") if is_cut else path.unlink()

    def make(folder: str, progress: Progress) -> None:
        places, by = tmp_path / folder, {"executor": HERE, "progress": progress}
        if name.startswith("shard"):
            options = PackOptions(batch_size=8, shard_bytes=300)
            pack(tmp_path / "store", places, options, **by)
        else:
            tokenize(tmp_path / "text.txt", places, TokenizeOptions(part_bytes=300), **by)

    progress = Progress(on_advance=harm)
    with pytest.raises(FolderError, match="another program changed it during this run"):
        make("out", progress)
    assert not (tmp_path / "out" / "manifest.json").exists()
    make("out", progress)
    make("whole", Progress())
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "whole")


# A disk that fails, and kills, at every call


CODES = (None, errno.ENOSPC, errno.EIO)
LEFT = {"split": ("a/.lock", "b/.lock")}  # of dead processes, in a split that is finished
SAID = {
    errno.ENOSPC: "free some disk space, then run the same command again",
    errno.EIO: "fix the disk, then run the same command again",
}


def check_fault(result: Result, code: int, out: Path) -> None:
    """Assert that an error of the disk names a file, and says what to do."""
    assert result.exit_code == 5, result.output
    place = rf"{re.escape(str(out.parent))}(/{out.name}\S*)?"  # the folder above is synced too
    found = f"Error: {place}: {os.strerror(code)}\n\nhint: {SAID[code]}\n"
    assert re.search(found + "$", result.stderr), result.stderr
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


EVERY = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_lost_whichever_call_goes_wrong(
    work: Work, place: Path, name: str, replaces: bool, every: bool
) -> None:
    """Some kinds of call, or every one; the run after it has the bytes of an undisturbed one."""
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
            step = (11 if replaces else 5) * (2 if name == "split" else 1)
            places = [*range(len(calls))] if every else choose(calls)[replaces::step]
            assert len(places) >= 3
        elif code is not None and not re.search(r"^rmdir|^unlink .*/\.lock", calls[k]):
            assert result is not None
            check_fault(result, code, out)
        is_begun = (out / "plan.json").exists()
        is_new = is_begun and not (out / "manifest.json").exists()  # without --overwrite too
        is_finished = (out / "manifest.json").exists() and not is_begun
        if is_finished:
            found = {key: data for key, data in read_tree(out).items() if not re.search(DEAD, key)}
            assert found in (work.whole[name], read_tree(earlier)), calls[k]
        elif (out / "manifest.json").exists() and name != "split":
            assert not can_open(out), calls[k]
        again = run(*words[: len(words) - (replaces and is_new)])
        assert again.exit_code == 0, f"{calls[k]}: {again.output}"
        found = read_tree(out)
        for lock in LEFT.get(name, ()):
            found.pop(lock, None)
        assert found == work.whole[name], calls[k]
        shutil.rmtree(out)


def test_each_file_is_on_the_disk_before_it_has_its_name(work: Work, place: Path) -> None:
    """So after a power cut a name means a whole file; the plan goes when the manifest is there."""
    out = place / "out"
    with Disk(place).between() as disk:
        assert work.run("tokenize", out).exit_code == 0
    replaced = [call for call in disk.calls if call.startswith("replace ")]
    assert {*work.whole["tokenize"]} < {call.split("/.")[-1].rsplit(".", 2)[0] for call in replaced}
    for call in replaced:
        temporary = call.removeprefix("replace ")
        own = [each.split()[0] for each in disk.calls if each.endswith(temporary)]
        assert list(dict.fromkeys(own)) == ["open", "write", "fsync", "replace"]
        assert disk.calls[disk.calls.index(call) + 1] == f"fsync {out}"
    assert "/.manifest.json." in replaced[-1]
    assert disk.calls[-2:] == [f"unlink {out}/plan.json", f"unlink {out}/.lock"]


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize(
    ("name", "replaces"),
    [
        *(("megatron", True), ("nanogpt", False), ("unpack", True), ("unpack", False)),
        *(("parquet", False), ("train", False)),
    ],
)
def test_export_can_be_run_again_whichever_call_goes_wrong(
    work: Work, place: Path, name: str, replaces: bool, every: bool
) -> None:
    """All files are those of before or the new ones, and nothing temporary stays at the end."""
    out, trees = place / "made" / "out", list[Tree]()
    out.parent.mkdir()
    for words in ([LESS[name](work)] if replaces else []) + [work.words[name]]:
        assert run(*words, "-o", out, "--overwrite").exit_code == 0
        trees.append(read_tree(out.parent))
    before, after = trees if replaces else ({}, trees[0])
    assert before != after
    words = (*work.words[name], "-o", out, *["--overwrite"] * replaces)
    write_tree(out.parent, before)
    with Disk(out.parent).between() as disk:
        assert run(*words).exit_code == 0
    for k in range(len(disk.calls)) if every else choose(disk.calls)[::2]:
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
    "unpack": lambda work: (*work.words["unpack"], "--text"),
}


def write_tree(folder: Path, files: Tree) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in files.items():
        if isinstance(data, bytes):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)


# Errors of the user, between two runs and during one


@pytest.mark.parametrize("name", ["tokenize", "import"])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: data.replace(b"1", b"2", 1), 4),
        (lambda data: data + data[: data.index(b"\n") + 1], 4),
        (lambda data: data[: data.rindex(b"\n", 0, -60) + 1], 4),
        (lambda data: data, 0),
    ],
    ids=["other", "longer", "shorter", "same"],
)
def test_input_that_changed_between_two_runs_is_named(
    work: Work, place: Path, name: str, change: Callable[[bytes], bytes], code: int
) -> None:
    source = place / Path(str(work.words[name][1])).name
    source.write_bytes((work.folder / source.name).read_bytes())
    words = (name, source, *work.words[name][2:], "-o", place / "out")
    assert run_stopped(place / "out", 0, *words, only=AT_END).is_dead
    source.write_bytes(change(source.read_bytes()))
    result = run(*words)
    assert result.exit_code == code, result.output
    if code:
        assert str(source) in result.stderr.splitlines()[0]
        assert run("inspect", place / "out").exit_code == 4
        assert run(*words, "--overwrite").exit_code == 0
    run(*words[:-1], place / "fresh")
    assert read_tree(place / "out") == read_tree(place / "fresh")


def test_finished_part_is_not_taken_where_the_cut_before_it_has_moved(place: Path) -> None:
    """Only the first part was unfinished, and ends elsewhere in the text of now."""
    text, out = place / "text.txt", place / "out"
    text.write_bytes(b"".join(b"%07d\n" % number for number in range(300)))
    words = ("tokenize", text, "-o", out, "--part-bytes", 601, "--num-workers", 1)
    assert run_stopped(out, 0, *words, only=AT_END).is_dead
    (out / "part-00000.json").unlink()
    data = text.read_bytes()
    text.write_bytes(data[:602] + b"\n" + data[603:])  # the first cut was at 608
    result = run(*words)
    assert (result.exit_code, f"{text} changed since" in result.stderr) == (4, True)


LATE = [  # a bad record in the last part, the options of the next run, and whether parts are kept
    (b'"\xff"', "--encoding-errors replace", True),
    (b'"\xff"', "--encoding-errors skip", True),
    (b"7", "--on-bad-record skip", True),
    (b'"%s"' % (b"x" * 400), "--overflow drop --max-document-bytes 500", True),
    *((b'"%s"' % (b"x" * 200), f"--overflow {name}", True) for name in ("split", "truncate")),
    (b'"%s"' % (b"x" * 200), "--max-length 250", True),
    (b'"%s"' % (b"x" * 200), "--max-length 90", False),
    (b'"%s"' % (b"x" * 400), "--max-document-bytes 200", False),
]


@pytest.mark.parametrize(("last", "options", "is_kept"), LATE)
def test_options_that_a_hint_names_keep_the_finished_parts(
    place: Path, last: bytes, options: str, is_kept: bool
) -> None:
    good, pairs = b'{"text": "good"}\n', options.split()
    for name in ("a", "b", "c"):
        (place / f"{name}.jsonl").write_bytes(good * 10)
    (place / "c.jsonl").write_bytes(good * 5 + b'{"text": ' + last + b"}\n")
    given = {"--max-length": 100, "--overflow": "error", "--max-document-bytes": 300}
    start = ("tokenize", *sorted(place.glob("*.jsonl")), "--part-bytes", 170, "--num-workers", 1)
    first = sum(given.items(), start)
    assert run(*first, "-o", place / "out").exit_code == 3
    finished = [(place / "out" / f"part-{number:05}.bin").stat() for number in range(2)]
    second = sum((given | dict(zip(pairs[::2], pairs[1::2], strict=True))).items(), start)
    result = run(*second, "-o", place / "out")
    if not is_kept:
        assert (result.exit_code, "a run that differs: was --max-" in result.stderr) == (4, True)
        return
    assert result.exit_code == 0, result.stderr
    assert [(place / "out" / f"part-{n:05}.bin").stat() for n in range(2)] == finished
    assert run(*second, "-o", place / "fresh").exit_code == 0
    assert read_tree(place / "out") == read_tree(place / "fresh")


def rewrite(path: Path) -> None:
    later = path.stat().st_mtime_ns + 10**9
    path.write_bytes(path.read_bytes().upper())
    os.utime(path, ns=(later, later))


def replace_whole(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().upper())
    other.replace(path)


@pytest.mark.parametrize(
    "change", [rewrite, replace_whole, Path.unlink, lambda path: os.truncate(path, 700)]
)
def test_input_that_changes_while_it_is_read_is_named(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    text, waiting = tmp_path / "text.txt", [change]
    text.write_text(TEXT * 3)

    def on_advance(_: int) -> None:
        while waiting:
            waiting.pop()(text)

    progress, options = Progress(on_advance=on_advance), TokenizeOptions(part_bytes=600)
    with pytest.raises(seqpack_cli.SeqpackError, match=re.escape(str(text))):
        tokenize(text, tmp_path / "out", options, executor=HERE, progress=progress)
    assert run("inspect", tmp_path / "out").exit_code == 4


def change_length(place: int, length: int) -> Callable[[Path], None]:
    """Return what changes the length of a sequence in an index."""

    def change(store: Path) -> None:
        with (store / "part-00000.idx").open("r+b") as file:
            file.seek(34 + 4 * place)
            file.write(length.to_bytes(4, "little"))

    return change


def make_labelled(store: Path, texts: list[str]) -> None:
    lines = [json.dumps({"text": text, "l": "ab"[n % 2]}) + "\n" for n, text in enumerate(texts)]
    source = store.with_suffix(".jsonl")
    source.write_text("".join(lines))
    tokenize(source, store, TokenizeOptions(keep=["l:class"]), executor=HERE)


def replace_store(store: Path) -> None:
    make_labelled(store.with_name("other"), TEXT.upper().splitlines())
    shutil.rmtree(store)
    store.with_name("other").rename(store)


@pytest.mark.parametrize(
    ("change", "given"),
    [
        (replace_store, {"split": "a,b", "split_by": "l"}),  # each of which opens the store
        (change_length(30, 99), {"order": "none"}),
        (change_length(59, 99), {"order": "none", "drop_longer": 40}),
    ],
)
def test_store_that_changes_while_it_is_packed_is_named(
    tmp_path: Path, change: Callable[[Path], object], given: dict[str, Any]
) -> None:
    store, waiting = tmp_path / "store", [change]
    make_labelled(store, TEXT.splitlines())

    def on_advance(_: int) -> None:
        while waiting:
            waiting.pop()(store)

    progress = Progress(on_advance=on_advance)
    options = PackOptions(batch_size=1, shard_bytes=1, **given)
    with pytest.raises(FolderError, match=f"^{store}: changed since this run began"):
        pack(store, tmp_path / "out", options, executor=HERE, progress=progress)
    assert run("inspect", tmp_path / "out").exit_code == 4


def test_failure_is_told_to_who_looks_at_the_unfinished_run(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"body": "b"}\n')
    words = ("tokenize", tmp_path / "a.jsonl", "-o", tmp_path / "out", "--part-bytes", 14)
    error = run(*words)
    assert error.exit_code == 3
    shown = run("inspect", tmp_path / "out")
    assert shown.exit_code == 4
    assert f"it ended with: {error.stderr.splitlines()[0].removeprefix('Error: ')}" in shown.stderr
    assert error.stderr.splitlines()[-1].removeprefix("hint: ") in shown.stderr
    assert "hint: for tokenize: " in shown.stderr


@pytest.mark.parametrize(
    ("name", "again", "shown"),
    [
        ("tokenize", "3 of 3 parts were already finished", "3 parts finished"),
        ("import", "3 of 3 parts were already finished", "3 parts finished"),
        ("pack", "3 of 3 shards were finished before", "3 shards finished"),
        ("split", "split 'a': 1 of 1 shards were finished before", "2 of 2 splits finished"),
    ],
)
def test_stopped_run_says_how_far_it_is(
    work: Work, place: Path, name: str, again: str, shown: str
) -> None:
    out = place / "out"
    stop_at(AT_END)(work, name, out)
    result = run("inspect", out)
    assert result.exit_code == 4
    assert f"incomplete run, {shown}, no manifest.json" in result.stderr
    command = {"split": "pack --split"}.get(name, name)
    hint = f"hint: run the same {command} command again: it continues where it stopped\n"
    assert result.stderr.endswith(hint)
    result = work.run(name, out, "--json")
    assert result.exit_code == 0
    assert again in result.stderr
    assert json.loads(result.stdout)
    result = work.run(name, out, "-q")
    assert (result.exit_code, result.output) == (0, "")


# Two at a time


def test_folder_in_use_is_refused_until_its_holder_is_dead(work: Work, place: Path) -> None:
    """The lock is the kernel's; the file only says whose it is."""
    out = place / "out"
    out.mkdir()
    script = (
        "import fcntl, os, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "file.write(f'{os.uname().nodename} {os.getpid()}')\n"
        "file.flush()\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(out / ".lock")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == "held\n"
        before = read_tree(place)
        for name in RUNS:
            for options in ((), ("--overwrite",)):
                result = work.run(name, out, *options)
                assert result.exit_code == 4
                assert f"{out}: process {holder.pid} on {os.uname().nodename}" in result.stderr
                assert "hint: wait until it ends" in result.stderr
        assert read_tree(place) == before
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert work.run("pack", out).exit_code == 0
    assert read_tree(out) == work.whole["pack"]


def test_second_thread_is_refused_and_disturbs_nothing(work: Work, place: Path) -> None:
    results: list[Result] = []

    def on_advance(_: int) -> None:
        if not results:
            results.append(work.run("pack", place / "out", "--overwrite"))

    store, progress = work.folder / "store", Progress(on_advance=on_advance)
    options = PackOptions(batch_size=4, shard_bytes=3500)
    pack(store, place / "out", options, executor=HERE, progress=progress)
    assert results[0].exit_code == 4
    assert f"process {os.getpid()} on" in results[0].stderr
    assert read_tree(place / "out") == work.whole["pack"]


def test_runs_in_two_threads_are_those_of_one(work: Work, place: Path) -> None:
    def make(number: int) -> None:
        pack(work.folder / "store", place / str(number), options, executor=HERE)

    options = PackOptions(batch_size=4, shard_bytes=3500)
    threads = [threading.Thread(target=make, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        found = read_tree(place / str(number))
        assert found.keys() == work.whole["pack"].keys()
        assert found["shard-00000.safetensors"] == work.whole["pack"]["shard-00000.safetensors"]


# Processes


@pytest.mark.parametrize("name", ["tokenize", "pack"])
def test_workers_write_the_same_bytes(work: Work, place: Path, name: str) -> None:
    words = [2 if word == 1 else word for word in work.words[name]]
    assert run(*words, "-o", place / "out").exit_code == 0
    assert read_tree(place / "out") == work.whole[name]
    assert json.loads((place / "out" / "run.json").read_text())["versions"]["seqpack"]


HELD = """
import os, signal, sys
from seqpack_cli.__main__ import run

def stop(event, values):
    if event == "os.rename" and ".part-00001.bin" in str(values[0]):
        os.kill(os.getpid(), number)

number = getattr(signal, sys.argv.pop(1))
sys.addaudithook(stop)
run()
"""


@pytest.mark.parametrize(("number", "code"), [("SIGKILL", -9), ("SIGINT", 130), ("SIGTERM", 130)])
def test_process_that_is_ended_leaves_a_run_that_continues(
    work: Work, place: Path, number: str, code: int
) -> None:
    words = work.start("tokenize", place / "out")
    command = [sys.executable, "-c", HELD, number, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr == ("" if code < 0 else "\nInterrupted: run the same command again\n")
    assert bool(find_temporary(place / "out")) == (code < 0)
    result = run(*words)
    assert result.stderr == "note: 1 of 3 parts were already finished\n"
    assert read_tree(place / "out") == work.whole["tokenize"]


@pytest.mark.parametrize("is_worker", [True, False], ids=["worker", "run"])
def test_kill_of_a_worker_is_told_and_no_worker_stays(place: Path, is_worker: bool) -> None:
    (place / "a.txt").write_text(TEXT * 4000)
    words = ["tokenize", place / "a.txt", "--part-bytes", "50KB", "--num-workers", 2]
    assert run(*words, "-o", place / "whole").exit_code == 0
    command = [sys.executable, "-m", "seqpack_cli", *map(str, words), "-o", place / "out"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not any((place / "out").glob("part-*.json")):
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        workers = list(map(int, children.split()))
        assert len(workers) == 2
        os.kill(workers[0] if is_worker else process.pid, signal.SIGKILL)
        _, stderr = process.communicate()  # the workers hold stderr open as long as they live
    assert process.returncode == (5 if is_worker else -signal.SIGKILL)
    assert re.fullmatch(KILLED if is_worker else "", stderr)
    result = run(*words, "-o", place / "out")
    assert "parts were already finished" in result.stderr
    assert read_tree(place / "out") == read_tree(place / "whole")


KILLED = (
    r"Error: a worker process died while (working on: part-\d{5} \(.*/a\.txt\)|it started)\n\n"
    r"hint: run the same command again with fewer workers \(--num-workers 1\): it continues\n"
)


# A single file


FILES = ("unpack", "train")


def cut_off(path: Path, data: bytes) -> None:
    path.write_bytes(data[:3000])


# (state, what makes it, then the exit code, and with --overwrite; a fragment of both errors)
FILE_STATES: list[tuple[str, Callable[[Path, bytes], object], int, int, str]] = [
    ("nothing", lambda *_: None, 0, 0, ""),
    ("the same", lambda path, data: path.write_bytes(data), 4, 0, "already exists"),
    ("its beginning", cut_off, 4, 0, "already exists"),
    ("empty", lambda path, _: path.write_bytes(b""), 4, 0, "already exists"),
    ("of others", lambda path, _: path.write_bytes(b"a thesis"), 4, 4, "already exists|not "),
    ("JSON", lambda path, _: path.write_bytes(b'{"a": 1}\n'), 4, 4, "already exists|not "),
    ("folder", lambda path, _: path.mkdir(), 4, 4, "a folder, expected a file"),
    ("pipe", lambda path, _: os.mkfifo(path), 4, 4, "already exists|not a regular file"),
    ("link", lambda path, _: path.symlink_to("none"), 4, 4, "a symbolic link, expected"),
    (
        "in a store",
        lambda path, _: (path.parent / "manifest.json").write_text(
            '{\n "format": "seqpack.tokens",\n "options": {}\n}\n'
        ),
        4,
        4,
        "holds a store or shards",
    ),
    (
        "beside a manifest of others",
        lambda path, _: (path.parent / "manifest.json").write_text('{"name": "page"}'),
        0,
        0,
        "",
    ),
    (
        "left over",
        lambda path, _: (path.parent / f".{path.name}.12.tmp").write_bytes(b"half"),
        0,
        0,
        "",
    ),
]


@pytest.mark.parametrize("name", FILES)
def test_file_is_replaced_only_if_it_is_of_the_same_command(
    work: Work, place: Path, name: str
) -> None:
    assert work.run(name, place / "whole.json").exit_code == 0
    data = (place / "whole.json").read_bytes()
    for state, make, plain, overwritten, fragment in FILE_STATES:
        if (state, name) == ("its beginning", "train"):
            continue  # no JSON, so nobody's tokenizer
        for options, code in (((), plain), (("--overwrite",), overwritten)):
            folder = place / "in"
            folder.mkdir()
            path = folder / "out.json"
            make(path, data)
            before = read_tree(folder)
            result = work.run(name, path, *options)
            assert result.exit_code == code, (state, result.output)
            if code:
                assert re.search(fragment, result.stderr), (state, result.stderr)
                assert read_tree(folder) == before, state
            else:
                kept = {key: before[key] for key in before if not re.search(DEAD, key)}
                assert read_tree(folder) == {**kept, "out.json": data}, state
            shutil.rmtree(folder)
    for out in (place / "none" / "out.json", place / "in/"):
        assert work.run(name, out, "--overwrite").exit_code in (2, 4, 0)
    assert not (place / "none").exists()


def test_file_that_appears_during_the_work_stays(work: Work, place: Path) -> None:
    """Without --overwrite the new name is a link, which never replaces another."""
    out = place / "rows.jsonl"
    write = os.write

    def appear(file: int, data: bytes) -> int:
        out.write_bytes(b"a thesis")
        return write(file, data)

    for options in ((), ("--overwrite",)):
        out.unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", appear)
            assert work.run("unpack", out, *options).exit_code in (4, 5)
        assert out.read_bytes() == b"a thesis"
        assert [path.name for path in place.iterdir()] == ["rows.jsonl"]


def test_disk_without_hard_links_takes_files_too(
    work: Work, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert work.run("unpack", place / "rows.jsonl").exit_code == 0
    assert [path.name for path in place.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENAMETOOLONG])
@pytest.mark.parametrize("name", [*RUNS, *FILES])
def test_folder_that_takes_no_file_is_named(work: Work, place: Path, name: str, code: int) -> None:
    with Disk(place, 0, code).between():
        result = work.run(name, place / "out")
    assert result.exit_code == 5
    assert f"Error: {place}/out" in result.stderr
    assert result.stderr.endswith(f": {os.strerror(code)}\n\nhint: choose another -o\n")
    assert list(place.iterdir()) == []


def test_inputs_that_differ_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        Path(f"{name}.txt").write_text(f"{name}\n")
    assert run("tokenize", "a.txt", "b.txt", "-o", "store", "-q").exit_code == 0
    for inputs, change in (
        (["a.txt"], "b.txt is not among the inputs"),
        (["a.txt", "b.txt", "c.txt"], "c.txt is new"),
        (["b.txt", "a.txt"], "other sources, or another order"),
    ):
        result = run("tokenize", *inputs, "-o", "store")
        assert result.exit_code == 4
        assert f"store: holds a run that differs: {change}; it was made by: " in result.stderr
    Path("b.txt").write_text("other\n")
    result = run("tokenize", "a.txt", "b.txt", "-o", "store")
    assert "holds a run that differs: b.txt has changed; it was made by: seqpack" in result.stderr


# (command that was run, command that is refused, exactly what it says has changed)
DIFFERENCES = [
    ("pack t u", "pack t u --layout padded", "was --layout packed, is padded"),
    ("pack t u", "pack u", "../t has changed or is not among the inputs"),
    ("pack t u", "pack t u v", "other stores, or another order"),
    ("pack t u --shuffle --seed 1", "pack t u --shuffle", "was --seed 1, is 0"),
    ("pack t --decoder u", "pack t --decoder v", "the decoder has changed"),
    (
        "pack t --split x=0.5,y=0.5",
        "pack t --split x=0.5,y=0.5 --split-seed 1",
        "was --split-seed 0, is 1",
    ),
    ("tokenize a.txt b.txt", "tokenize c.txt b.txt", "c.txt is new, a.txt is not among the inputs"),
    ("tokenize a.txt --eos <eos>", "tokenize a.txt", "was --eos <eos>, is no --eos"),
    ("tokenize a.txt --format text", "tokenize a.txt", "was --format text, is auto"),
    ("tokenize j.jsonl --keep l", "tokenize j.jsonl --keep l:text", "was --keep l:int, is l:text"),
    ("tokenize a.txt --tokenizer w.json", "tokenize a.txt", "was --tokenizer w.json, is bytes"),
    ("tokenize a.txt", "tokenize a.txt --tokenizer w.json", "was --tokenizer bytes, is w.json"),
]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three texts, their stores, and records."""
    folder = tmp_path_factory.mktemp("three")
    (folder / "j.jsonl").write_text('{"text": "one two", "l": 1}\n' * 9)
    for name, store in zip("abc", "tuv", strict=True):
        text = folder / f"{name}.txt"
        text.write_text("".join(f"{name} {number}\n" for number in range(40)))
        assert run("tokenize", text, "-o", folder / store, "-q").exit_code == 0
    words = ("train-tokenizer", folder / "a.txt", "--vocab-size", 300, "-o", folder / "w.json")
    assert run(*words).exit_code == 0
    return folder


@pytest.mark.parametrize(("first", "second", "change"), DIFFERENCES)
def test_a_run_that_differs_is_told_what_changed_and_nothing_else(
    three: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, change: str
) -> None:
    monkeypatch.chdir(three)
    assert run(*first.split(), "-o", "out", "-q", "--overwrite").exit_code == 0
    result = run(*second.split(), "-o", "out")
    shutil.rmtree("out")
    assert result.exit_code == 4
    told = result.stderr.partition("differs: ")[2].partition("; it was made by: ")
    assert told[0] == change
    assert told[2].startswith(f"seqpack {' '.join(first.split()[:2])}")


def test_folder_of_a_split_that_is_no_longer_asked_for_is_removed(
    three: Path, tmp_path: Path
) -> None:
    for shares in ("x=0.5,y=0.5", "x=0.5,z=0.5"):
        words = ("pack", three / "t", "--split", shares, "-o", tmp_path / "out", "--overwrite")
        assert run(*words).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["x", "z"]
