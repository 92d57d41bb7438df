from __future__ import annotations

import json

import numpy as np
import pytest
from command import run

from seqpack_cli.reporting.lengths import summarize_lengths


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ab\n\nc\n" + "d" * 200 + "\n")
    assert run("tokenize", "a.txt", "-o", "tokens", "--max-length", 150).exit_code == 0
    assert run("pack", "tokens", "-o", "packed").exit_code == 0
    assert run("pack", "tokens", "-o", "padded", "--layout", "padded").exit_code == 0
    return tmp_path


@pytest.mark.usefixtures("work")
def test_inspect_shows_the_numbers_of_a_store():
    result = run("inspect", "tokens")
    assert result.exit_code == 0
    assert result.stdout == (
        "token store  tokens\n"
        "  documents          4\n"
        "  sequences          4\n"
        "  tokens             203\n"
        "  size               528 bytes in 1 part of 1 source, uint16\n"
        "  vocabulary         259 tokens, ids 0 to 258\n"
        "  special ids        pad 256, bos 257, eos 258\n"
        "  encoder            bytes\n"
        "  empty documents    1\n"
        "\n"
        "lengths  1 to 150 tokens, mean 50.75\n"
        "  p1 1  p10 1  p25 1  p50 2  p75 50  p90 150  p99 150\n"
        "\n"
        f"                      1          1 {'█' * 40}\n"
        f"                 2 to 3          1 {'█' * 40}\n"
        "                 4 to 7          0\n"
        "                8 to 15          0\n"
        "               16 to 31          0\n"
        f"               32 to 63          1 {'█' * 40}\n"
        "              64 to 127          0\n"
        f"             128 to 150          1 {'█' * 40}\n"
    )


@pytest.mark.usefixtures("work")
def test_inspect_shows_the_numbers_of_shards():
    shown = run("inspect", "padded").stdout.splitlines()
    assert shown[0] == "shards  padded  (padded)"
    assert "  padding            66.17% of all cells, id 256" in shown
    assert all(len(line) <= 80 for line in shown)
    numbers = json.loads(run("inspect", "padded", "--json").stdout)
    assert numbers["ledger"]["num_padding_cells"] == 4 * 150 - 203
    assert numbers["padding_ratio"] == round(397 / 600, 6)
    assert numbers["rows_of_batch"] == {"fewest": 4, "most": 4}
    assert sum(entry["num_sequences"] for entry in numbers["lengths"]["histogram"]) == 4


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("path", ["tokens", "packed"])
def test_inspect_sequence_shows_the_way_back(path):
    shown = json.loads(run("inspect", path, "--sequence", 3, "--json").stdout)
    assert shown["origin"] == {
        "source": "a.txt",
        "record": 4,
        "document": 3,
        "piece": 1,
        "num_pieces": 2,
    }
    assert shown["ids"] == [100] * 50
    assert shown["text"] == "d" * 50
    lines = run("inspect", path, "--sequence", 3).stdout.splitlines()
    assert "  source             a.txt, record 4" in lines
    assert "  piece              2 of 2" in lines


def test_inspect_sequence_of_shards_without_their_store(work):
    (work / "tokens").rename(work / "moved")
    shown = run("inspect", "packed", "--sequence", 0)
    assert shown.exit_code == 0
    assert "  source             unknown: the token store is no longer there" in shown.stdout
    assert '  text               "ab"' in shown.stdout


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("path", ["packed", "padded"])
def test_inspect_batch_shows_its_rows(path):
    shown = json.loads(run("inspect", path, "--batch", 0, "--json").stdout)
    assert [row["original_index"] for row in shown["rows"]] == [2, 3, 0, 1]
    assert [row["text"] for row in shown["rows"]] == ["d" * 150, "d" * 50, "ab", "c"]
    if path == "packed":
        assert shown["batch_sizes"] == [4, 3] + [2] * 48 + [1] * 100
    table = run("inspect", path, "--batch", 0).stdout
    assert '    2         0        2  "ab"\n' in table
    assert all(len(line) <= 80 for line in table.splitlines())


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["packed", "--batch", 1], 2, "--batch 1: packed has batches 0 to 0"),
        (["packed", "--sequence", 4], 2, "--sequence 4: not in packed"),
        (["tokens", "--sequence", 4], 2, "--sequence 4: tokens has sequences 0 to 3"),
        (["tokens", "--batch", 0], 2, "tokens: a token store has no batches"),
        (["tokens", "--batch", 0, "--sequence", 0], 2, "--batch and --sequence are two questions"),
        (["none"], 4, "none: no such folder"),
        (["."], 4, ".: no manifest.json, expected a token store or shards"),
    ],
)
def test_inspect_refuses(arguments, code, message):
    result = run("inspect", *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_inspect_says_that_a_run_is_incomplete(work):
    (work / "tokens" / "manifest.json").rename(work / "tokens" / "plan.json")
    result = run("inspect", "tokens")
    assert result.exit_code == 4
    assert result.stderr == (
        "Error: tokens: incomplete run, 0 parts or shards finished, no manifest.json\n\n"
        "hint: run the same command again: it continues where it stopped\n"
    )


@pytest.mark.parametrize("longest", [1, 2, 15, 16, 17, 63, 64, 65, 1000, 70_000])
def test_histogram_counts_every_length_once(longest):
    lengths = np.arange(1, longest + 1)
    histogram = summarize_lengths(lengths)["histogram"]
    assert sum(entry["num_sequences"] for entry in histogram) == longest
    for entry in histogram:
        inside = (lengths >= entry["from"]) & (lengths <= entry["to"])
        assert entry["num_sequences"] == inside.sum()


def test_percentiles_are_lengths_that_occur():
    lengths = np.array([1] * 50 + [10] * 49 + [1000])
    percentiles = summarize_lengths(lengths)["percentiles"]
    assert (percentiles["50"], percentiles["75"], percentiles["99"]) == (1, 10, 10)
