"""Kills of real processes at random times: `kills.py` is the campaign, this runs it.

Whatever happens, a folder is called complete only when it is, the same command again ends it with
the bytes of an uninterrupted run, and nothing of the run outlives it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command import run
from kills import (
    campaign_of_both,
    find_difference,
    hash_folder,
    list_session,
    run_campaign,
    run_until,
    write_long_tokenizer,
    write_text,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

TWO = ("--num-workers", "2")


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


@pytest.mark.slow  # tests/test_runs.py kills at known places
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


def test_runs_without_a_fault_have_none(tmp_path: Path, text: Path) -> None:
    ended, session = run_until(["tokenize", str(text), *TWO], tmp_path / "output")
    assert (ended.code, ended.was_killed, ended.hanging) == (0, False, ())
    assert list_session(session) == {}
