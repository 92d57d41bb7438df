"""Every call that changes the disk fails once, or is where the process ends: nothing is lost.

All writing goes through `disk`, whose calls to the system are counted here. For one k of each kind
of call (for every k: `-m slow`), the k-th call of a run with 3 parts, or 3 shards, fails with
ENOSPC or EIO, or the process ends there, a write half done in both. Then `inspect` calls the folder
complete only if the command returned 0, the same command again gives the bytes of an uninterrupted
run, and no temporary file stays. The processes are forked from one that has imported everything,
which costs 5 ms each.
"""

from __future__ import annotations

import ast
import errno
import functools
import gc
import itertools
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import run
from reference import read_folder
from source_code import FILES, find_nodes

from seqpack_cli.files import disk

TEXT = "".join(f"line {number} of the text, é\n" for number in range(60))
FILES_OF = {
    "tokenize": {
        "rejects.jsonl",
        "special_tokens.jsonl",
        *(f"part-0000{number}.{suffix}" for number in range(3) for suffix in ("bin", "idx")),
    },
    "pack": {f"shard-0000{number}.safetensors" for number in range(3)},
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)
CHANGING = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir")
DIE = 137  # what a shell says of a process that kill -9 ended


class FaultyOs:
    """The module `os`, of whose calls that change a disk the k-th goes wrong.

    Args:
        k: from 0.
        fault: an errno, or DIE: the process ends there.
    """

    def __init__(self, k: int, fault: int) -> None:
        self.calls: list[str] = []
        self._k = k
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name) if name != "fsync" else _trust_the_page_cache
        return self._counting(name, call) if name in CHANGING else call

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            if name == "open" and Path(arguments[0]).is_file():  # to read it
                return call(*arguments)
            self.calls.append(f"{name} {_place(arguments[0])}")
            if len(self.calls) - 1 != self._k:
                return call(*arguments)
            if name == "write":
                os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
            if self._fault == DIE:
                os._exit(DIE)
            raise OSError(self._fault, os.strerror(self._fault))

        return counted


def _trust_the_page_cache(descriptor: int) -> None:
    """No test can see whether a sync happened, only whether it was asked for."""
    del descriptor


def _place(argument: Any) -> str:
    if isinstance(argument, int):
        argument = Path(f"/proc/self/fd/{argument}").readlink() if sys.platform == "linux" else "?"
    return Path(argument).name


def in_fork(action: Callable[[], int]) -> int:
    """Do something in a process that may end at any point; return its exit code."""
    gc.freeze()  # else a collection in the fork copies all that the tests before this one left
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(action())
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_with_fault(k: int, fault: int, arguments: tuple[object, ...]) -> int:
    faulty = FaultyOs(k, fault)
    disk.os = faulty  # type: ignore[assignment] # this process is a fork and ends soon
    result = run(*arguments)
    if result.exit_code != 0:
        message, _, hint = result.stderr.partition("\n\nhint: ")
        assert message.startswith("Error: /"), result.stderr
        assert message.endswith(f": {os.strerror(fault)}"), result.stderr
        assert hint.endswith("run the same command again\n"), result.stderr
    return result.exit_code


def prepare(tmp_path: Path, command: str) -> Callable[[Path], tuple[object, ...]]:
    """Write the input; return what makes the arguments for an output folder."""
    text, store = tmp_path / "text.txt", tmp_path / "store"
    # What goes to rejects.jsonl, and to special_tokens.jsonl.
    text.write_bytes(TEXT.encode() + b"no text: \xff\n" + b"a token as text: <eos>\n")
    skip = ("--encoding-errors", "skip")
    tokenize = ("tokenize", text, "--part-bytes", 600, *skip, "--num-workers", 1, "-o")
    if command == "tokenize":
        return lambda output: (*tokenize, output)
    assert run(*tokenize, store).exit_code == 0
    pack = ("pack", store, "--batch-size", 4, "--shard-bytes", 3500, "--num-workers", 1, "-o")
    return lambda output: (*pack, output)


def run_unbroken(arguments: tuple[object, ...]) -> list[str]:
    """Run a command and name its calls."""
    before, counting = disk.os, FaultyOs(-1, errno.EIO)
    disk.os = counting  # type: ignore[assignment]
    try:
        result = run(*arguments)
    finally:
        disk.os = before
    assert result.exit_code == 0, result.output
    return counting.calls


def each_kind(calls: Sequence[str]) -> list[int]:
    """Return where calls of each kind come first: after such a call, numbers in names aside."""
    kinds = [re.sub(r"\d+", "#", call) for call in calls]
    places: dict[tuple[str, str], int] = {}
    for k, pair in enumerate(zip(["", *kinds], kinds, strict=False)):
        places.setdefault(pair, k)
    return [*places.values(), len(calls) - 1]


def every(calls: Sequence[str]) -> Sequence[int]:
    """Return the places of all calls."""
    return range(len(calls))


FAIL, END = (errno.ENOSPC, errno.EIO), (DIE, DIE)
Choose = Callable[[Sequence[str]], Sequence[int]]


@pytest.mark.parametrize(
    ("command", "faults", "choose"),
    [
        pytest.param("tokenize", FAIL, every, id="tokenize-fail", marks=pytest.mark.slow),
        # Default for the end of a process: test_case_29_kill_at_any_change_of_the_disk.
        pytest.param("tokenize", END, every, id="tokenize-die", marks=pytest.mark.slow),
        pytest.param("pack", FAIL, each_kind, id="pack-fail"),
        pytest.param("pack", FAIL, every, id="pack-fail-everywhere", marks=pytest.mark.slow),
        pytest.param("pack", END, every, id="pack-die", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_whichever_call_goes_wrong(
    tmp_path: Path, command: str, faults: tuple[int, int], choose: Choose
) -> None:
    arguments_for = prepare(tmp_path, command)
    calls = run_unbroken(arguments_for(tmp_path / "unbroken" / "output"))
    expected = read_folder(tmp_path / "unbroken" / "output")
    assert FILES_OF[command] <= set(expected)
    assert not any(name.startswith(".") for name in expected)
    places = choose(calls)
    assert len(places) > 30
    codes = []
    for k in [*places, len(calls)]:
        output = tmp_path / "broken" / "output"
        arguments, fault = arguments_for(output), faults[k % 2]
        code = in_fork(functools.partial(run_with_fault, k, fault, arguments))
        codes.append(code)
        if k == len(calls):
            break
        place = f"{fault} at {k}: {calls[k]}"
        is_lock = k == len(calls) - 1  # the file of a lock that is let go: the run has ended
        assert code == (DIE if fault == DIE else 0 if is_lock else 5), place
        inspected = run("inspect", output) if output.exists() else None
        is_complete = inspected is not None and inspected.exit_code == 0
        assert is_complete == is_lock, f"{place}: {inspected and inspected.output}"
        run_unbroken(arguments)
        assert read_folder(output) == expected, place
        shutil.rmtree(output.parent)
    assert codes[-1] == 0, "beyond the last call nothing goes wrong"


@pytest.mark.parametrize(
    ("to", "replaces", "choose"),
    [
        pytest.param("parquet", True, each_kind, id="parquet-replaced"),
        pytest.param("parquet", False, every, id="parquet", marks=pytest.mark.slow),
        pytest.param("megatron", True, each_kind, id="megatron-replaced"),
        pytest.param(
            "megatron", True, every, id="megatron-replaced-everywhere", marks=pytest.mark.slow
        ),
        pytest.param("megatron", False, every, id="megatron", marks=pytest.mark.slow),
        pytest.param("nanogpt", True, every, id="nanogpt-replaced", marks=pytest.mark.slow),
    ],
)
def test_an_export_can_be_run_again_whichever_call_goes_wrong(
    tmp_path: Path, to: str, choose: Choose, *, replaces: bool
) -> None:
    output, trees = tmp_path / "made" / "out", list[dict[str, bytes]]()
    output.parent.mkdir()
    for number, text in enumerate(("before\n", TEXT)):
        store = tmp_path / f"store{number}"
        (tmp_path / "text.txt").write_text(text)
        assert run("tokenize", tmp_path / "text.txt", "-o", store).exit_code == 0
        assert run("export", store, "-o", output, "--to", to, "--overwrite").exit_code == 0
        trees.append(read_tree(output.parent))
    arguments = ("export", store, "-o", output, "--to", to, *["--overwrite"] * replaces)
    before, after = trees if replaces else ({}, trees[1])
    write_tree(output.parent, before)
    calls = run_unbroken(arguments)
    for k in choose(calls):
        call = calls[k]
        write_tree(output.parent, before)
        fault = (errno.ENOSPC, DIE)[k % 2]
        code = in_fork(functools.partial(run_with_fault, k, fault, arguments))
        tree = read_tree(output.parent)
        found = {name: tree[name] for name in tree if not re.search(r"(^|/)\.", name)}
        assert code in (5, DIE) or found == after, call
        ids = {name: data for name, data in found.items() if name[-5:] != ".json"}
        assert any(ids.items() <= each.items() for each in (before, after)), call
        if tree != after:
            is_there = found == after  # only what is temporary is left to do
            result = run(*arguments, *["--overwrite"] * (is_there and not replaces))
            assert result.exit_code == 0, f"{call}: {result.output}"
        assert read_tree(output.parent) == after, call


def write_tree(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_calls_of_a_run_are_all_there(tmp_path: Path) -> None:
    """Each file is opened, written, synced, renamed and its folder synced; the plan goes last."""
    arguments_for = prepare(tmp_path, "tokenize")
    calls = run_unbroken(arguments_for(tmp_path / "output"))
    for name in FILES_OF["tokenize"] | {"manifest.json", "tokenizer.json", "plan.json"}:
        temp = disk.name_temporary(Path(name)).name
        of_file = [call.split()[0] for call in calls if call.endswith(temp)]
        kinds = [kind for kind, _ in itertools.groupby(of_file)]
        assert kinds == ["open", "write", "fsync", "replace"], name
        after = calls[calls.index(f"replace {temp}") + 1 :]
        assert after[:2] == ["open output", "fsync output"], name
    manifest = calls.index(f"replace {disk.name_temporary(Path('manifest.json')).name}")
    removed = [f"unlink part-0000{number}.json" for number in range(3)]
    assert sorted(calls[manifest + 3 : manifest + 6]) == removed
    assert calls[manifest + 6 :] == ["unlink plan.json", "unlink .lock"]


CHANGES = {"unlink", "rename", "mkdir", "makedirs", "rmdir", "rmtree", "touch", "symlink_to"}
CHANGES |= {"write_bytes", "write_text", "tofile"}  # a method of any object
CHANGES_OF_MODULE = {"write", "fsync", "replace", "remove", "move"}  # a function of os or shutil


def _find_changes(path: Path) -> Iterator[str]:
    """Name the calls in a module that change the disk."""
    for node in find_nodes(path):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        holder = getattr(function, "value", None)
        module = holder.id if isinstance(holder, ast.Name) else ""
        if module == "disk":
            continue
        if name in CHANGES or (module in ("os", "shutil") and name in CHANGES_OF_MODULE):
            yield name
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        modes = [part.value for part in arguments if isinstance(part, ast.Constant)]
        if (name or getattr(function, "id", "")) == "open":
            yield from (mode for mode in modes if mode in ("w", "wb", "a", "ab", "a+b", "x", "xb"))


def test_only_one_module_changes_the_disk() -> None:
    assert {path.name for path in FILES if list(_find_changes(path))} == {"disk.py"}
