"""Faults from outside, with real processes: kills at random times, changing input, a refusing disk.

Whatever happens, a folder is called complete only when it is, the same command again ends it with
the bytes of an uninterrupted run, and nothing of the run outlives it. `kills.py` is the campaign.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import run
from here import HERE
from kills import (
    campaign_of_both,
    count_receipts,
    find_difference,
    hash_folder,
    list_session,
    run_campaign,
    run_until,
    start,
    wait_for_end,
    write_long_tokenizer,
    write_text,
)
from reference import read_folder

from seqpack_cli.errors import DataError, FolderError
from seqpack_cli.runs.workers import Progress
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.tokenize_run import tokenize

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

DEADLINE_SECONDS = 60
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PR_CAPBSET_DROP = 24
TWO = ("--num-workers", "2")
ONE = ("--num-workers", "1")  # the same bytes, without new processes


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a text of about a megabyte."""
    return write_text(tmp_path_factory.mktemp("text") / "text.txt", 1_200_000)


@pytest.fixture(scope="module")
def store(text: Path) -> Path:
    """Return its token store, one id a byte, twelve parts."""
    path = text.with_name("store")
    assert run("tokenize", text, "--part-bytes", "100kB", "-o", path).exit_code == 0
    return path


def call(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own and wait for its end."""
    with start([str(argument) for argument in arguments], subprocess.PIPE, **options) as process:
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert wait_for_end(process.pid) == []
    return subprocess.CompletedProcess(arguments, process.returncode, "", stderr.decode())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# Kills at random times


def write_pairs(path: Path, text: Path) -> Path:
    """Write the lines of a text as prompts and completions."""
    lines = text.read_text().split("\n")
    pairs = zip(lines[::2], lines[1::2], strict=False)
    path.write_text("".join(json.dumps({"q": q, "a": a}) + "\n" for q, a in pairs))
    return path


def copy_pairs(store: Path, folder: Path) -> Path:
    """Copy the parts of a store, which are indexed datasets."""
    folder.mkdir()
    for path in (*store.glob("*.bin"), *store.glob("*.idx")):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.slow  # cases 29 to 31 of test_cases_folders.py kill at known places
@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("tokenize", ("parent", "worker", "interrupt")),
        ("tokenize prompts", ("parent", "worker")),
        ("import", ("parent", "interrupt", "terminate")),
        ("pack", ("parent, at once", "all", "terminate")),
    ],
)
def test_runs_killed_at_random_times_end_with_the_same_bytes(
    tmp_path: Path, text: Path, store: Path, command: str, kinds: tuple[str, ...]
) -> None:
    """The campaign is the same with more of them."""
    tokenizer = write_long_tokenizer(tmp_path / "tokenizer.json")
    arguments = {
        "tokenize": ["tokenize", text, "--tokenizer", tokenizer, "--part-bytes", "100kB"],
        "tokenize prompts": [
            *("tokenize", write_pairs(tmp_path / "pairs.jsonl", text), "--tokenizer", tokenizer),
            *("--prompt-field", "q", "--completion-field", "a", "--part-bytes", "100kB"),
            *("--max-length", "16", "--overlap", "4"),
        ],
        "import": [
            *("import", copy_pairs(store, tmp_path / "in")),
            *("--vocab-size", "300", "--part-bytes", "50kB"),
        ],
        "pack": ["pack", store, "--shard-bytes", "150kB"],
    }[command]
    (tmp_path / "runs").mkdir()
    counts = run_campaign(
        [*map(str, arguments), *TWO],
        tmp_path / "runs",
        num_kills=len(kinds),
        seed=7,
        kinds=kinds,
    )
    assert counts.faults == []
    assert set(counts.kinds) == set(kinds)
    assert counts.num_chains >= 1


@pytest.mark.slow
def test_campaign_of_200_kills_over_200_megabytes_loses_nothing(tmp_path: Path) -> None:
    assert campaign_of_both(tmp_path, 200, 200_000_000, seed=0, share=0.4) == []


@pytest.mark.parametrize("name", ["part-00000.bin", "part-00003.idx", "tokenizer.json"])
def test_comparison_of_the_campaign_notices_one_byte(
    tmp_path: Path, store: Path, name: str
) -> None:
    """Without this the campaign could pass by comparing nothing."""
    whole = hash_folder(store)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in store.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert find_difference(copy, whole) is None
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    assert find_difference(copy, whole) == f"other bytes: ['{name}']"
    (copy / "plan.json").write_text("{}")
    assert find_difference(copy, whole) == "files differ: ['plan.json']"


# Input that changes


def kill_half_way(arguments: list[str], output: Path) -> None:
    """Kill a run and all its workers when the first parts are finished and the last ones not."""
    with start([*arguments, "-o", str(output)], subprocess.DEVNULL) as process:
        wait_until(lambda: count_receipts(output) >= 3 or process.poll() is not None)
        for pid in list_session(process.pid):
            os.kill(pid, signal.SIGKILL)
        assert wait_for_end(process.pid) == []
    assert not (output / "manifest.json").exists(), "it was over before it was killed"


def change_byte(path: Path) -> None:
    """Change what the first of the finished parts was made from."""
    receipt = min(path.with_name("store").glob("part-*.json"))
    place = json.loads(receipt.read_bytes())["ranges"][0]["start"] + 50
    data = path.read_bytes()
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"one more line\n")


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100_000)


def test_input_changed_between_kill_and_rerun_is_refused_and_named(tmp_path: Path) -> None:
    text, output = write_text(tmp_path / "text.txt", 1_200_000), tmp_path / "store"
    arguments = ["tokenize", str(text), "--part-bytes", "40kB", *TWO]
    kill_half_way(arguments, output)
    whole = text.read_bytes()
    for change in (change_byte, append, cut_off):
        change(text)
        ended = run(*arguments, "-o", output)
        assert ended.exit_code == 4, (change, ended.stderr)
        assert str(text) in ended.stderr.splitlines()[0]
        assert run("inspect", output).exit_code == 4
        text.write_bytes(whole)
    assert run(*arguments, "-o", output).exit_code == 0
    assert run(*arguments[: -len(TWO)], *ONE, "-o", tmp_path / "fresh").exit_code == 0
    assert read_folder(output) == read_folder(tmp_path / "fresh")


def test_finished_part_is_not_taken_where_the_cut_before_it_has_moved(tmp_path: Path) -> None:
    """The worker of the first part was slower: its end is found anew, in another text."""
    text, output = tmp_path / "text.txt", tmp_path / "store"
    text.write_bytes(b"".join(b"%07d\n" % number for number in range(150_000)))
    arguments = ["tokenize", str(text), "--part-bytes", "15001", *TWO]
    kill_half_way(arguments, output)
    (output / "part-00000.json").unlink(missing_ok=True)
    data = text.read_bytes()
    text.write_bytes(data[:15_002] + b"\n" + data[15_003:])  # the first cut was at 15008
    ended = run(*arguments, "-o", output)
    assert ended.exit_code == 4
    assert str(text) in ended.stderr


def while_it_is_read(text: Path, output: Path, change: Callable[[], object]) -> None:
    """Tokenize, and change something after the first part was read."""
    waiting = [change]

    def on_advance(_: int) -> None:
        while waiting:
            waiting.pop()()

    options = TokenizeOptions(part_bytes=1000)
    progress = Progress(on_advance=on_advance)
    tokenize([str(text)], output, options, executor=HERE, progress=progress)


def replace_whole(path: Path) -> None:
    """Put another file of the same size in its place, as an editor does."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().upper())
    other.replace(path)


def rewrite(path: Path) -> None:
    """Write other bytes into the same file."""
    later = path.stat().st_mtime_ns + 10**9
    path.write_bytes(path.read_bytes().upper())
    os.utime(path, ns=(later, later))


@pytest.mark.parametrize("change", [append, cut_off, replace_whole, rewrite, Path.unlink])
def test_input_that_changes_while_it_is_read_is_refused_and_named(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    text, output = write_text(tmp_path / "text.txt", 150_000), tmp_path / "store"
    with pytest.raises((DataError, FolderError)) as caught:
        while_it_is_read(text, output, lambda: change(text))
    assert str(text) in caught.value.message
    assert run("inspect", output).exit_code == 4


def test_input_that_does_not_change_is_read(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", 150_000)
    while_it_is_read(text, tmp_path / "store", lambda: None)
    assert run("inspect", tmp_path / "store").exit_code == 0


# A disk that refuses


def obey_permissions() -> None:
    """Return up, in a child that is root, the right to pass over permission bits."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                os._exit(99)


@pytest.mark.slow  # the cases of test_cases_folders.py show one of each
@pytest.mark.parametrize("command", ["tokenize", "pack"])
@pytest.mark.parametrize("is_there", [True, False])
def test_read_only_folder_is_an_error_that_names_it(
    tmp_path: Path, text: Path, store: Path, command: str, is_there: bool
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    output = closed if is_there else closed / "output"
    closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        source = text if command == "tokenize" else store
        ended = call(command, source, "-o", output, preexec_fn=obey_permissions)
    finally:
        closed.chmod(stat.S_IRWXU)
    assert ended.returncode == 5, ended.stderr
    assert f"Error: {output}" in ended.stderr
    assert "Permission denied" in ended.stderr
    assert list(closed.iterdir()) == []


def test_runs_without_a_fault_have_none(tmp_path: Path, text: Path) -> None:
    ended, session = run_until(["tokenize", str(text), *TWO], tmp_path / "output")
    assert (ended.code, ended.was_killed, ended.hanging) == (0, False, ())
    assert list_session(session) == {}
