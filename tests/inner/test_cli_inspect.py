from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command import run

from seqpack_cli.errors import CONTROLS
from seqpack_cli.reporting.facts import _SPECIAL_TOKENS, _STORE_LEDGER
from seqpack_cli.reporting.lengths import summarize_lengths
from seqpack_cli.reporting.terminal.contents_lines import show_numbers
from seqpack_cli.reporting.wording import WIDTH, count_columns, show_bytes


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ab\n\nc\n" + "d" * 200 + "\n")
    assert run("tokenize", "a.txt", "-o", "tokens", "--max-length", 150).exit_code == 0
    assert run("pack", "tokens", "-o", "packed").exit_code == 0
    assert run("pack", "tokens", "-o", "padded", "--layout", "padded").exit_code == 0
    return tmp_path


@pytest.mark.usefixtures("work")
def test_inspect_shows_the_numbers_of_a_store() -> None:
    result = run("inspect", "tokens")
    assert result.exit_code == 0
    assert result.stdout == (
        "token store  tokens\n"
        "  documents          4\n"
        "  duplicates         none\n"
        "  sequences          4\n"
        "  tokens             203\n"
        "  size               688 bytes in 1 part of 1 source, uint16\n"
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
def test_inspect_shows_the_numbers_of_shards() -> None:
    shown = run("inspect", "padded").stdout.splitlines()
    assert shown[0] == "shards  padded  (padded)"
    assert "  padding            66.17% of all cells, on the right, id 256" in shown
    assert all(len(line) <= 80 for line in shown)
    numbers = json.loads(run("inspect", "padded", "--json").stdout)
    assert numbers["ledger"]["num_padding_cells"] == 4 * 150 - 203
    assert numbers["padding_ratio"] == round(397 / 600, 6)
    assert numbers["rows_of_batch"] == {"fewest": 4, "most": 4}
    assert sum(entry["num_sequences"] for entry in numbers["lengths"]["histogram"]) == 4


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("path", ["tokens", "packed"])
def test_inspect_sequence_shows_the_way_back(path: str) -> None:
    shown = json.loads(run("inspect", path, "--sequence", 3, "--json").stdout)
    assert Path(shown["origin"].pop("store")).name == "tokens"
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


def test_inspect_sequence_of_shards_without_their_store(work: Path) -> None:
    (work / "tokens").rename(work / "moved")
    shown = run("inspect", "packed", "--sequence", 0)
    assert shown.exit_code == 0
    assert (
        "  source             unknown: the token store is missing, changed or damaged"
        in shown.stdout
    )
    assert '  text               "ab"' in shown.stdout


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("path", ["packed", "padded"])
def test_inspect_batch_shows_its_rows(path: str) -> None:
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
        (["packed", "--sequence", 4], 2, "--sequence 4: packed has sequences 0 to 3"),
        (["tokens", "--sequence", 4], 2, "--sequence 4: tokens has sequences 0 to 3"),
        (["tokens", "--batch", 0], 2, "tokens: a token store has no batches"),
        (
            ["tokens", "--batch", 0, "--sequence", 0],
            2,
            "use only one of --batch, --sequence",
        ),
        (["none"], 4, "none: no such folder"),
        (["."], 4, ".: no manifest.json, expected a token store or shards"),
    ],
)
def test_inspect_refuses(arguments: list[object], code: int, message: str) -> None:
    result = run("inspect", *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_inspect_says_that_a_run_is_incomplete(work: Path) -> None:
    (work / "tokens" / "manifest.json").rename(work / "tokens" / "plan.json")
    result = run("inspect", "tokens")
    assert result.exit_code == 4
    assert result.stderr == (
        "Error: tokens: incomplete run, 0 parts finished, no manifest.json\n\n"
        "hint: run the same tokenize command again: it continues where it stopped\n"
    )


@pytest.mark.parametrize("longest", [1, 2, 15, 16, 17, 63, 64, 65, 1000, 70_000])
def test_histogram_counts_every_length_once(longest: int) -> None:
    lengths = np.arange(1, longest + 1)
    histogram = summarize_lengths(lengths)["histogram"]
    assert sum(entry["num_sequences"] for entry in histogram) == longest
    for entry in histogram:
        inside = (lengths >= entry["from"]) & (lengths <= entry["to"])
        assert entry["num_sequences"] == inside.sum()


def test_percentiles_are_lengths_that_occur() -> None:
    lengths = np.array([1] * 50 + [10] * 49 + [1000])
    percentiles = summarize_lengths(lengths)["percentiles"]
    assert (percentiles["50"], percentiles["75"], percentiles["99"]) == (1, 10, 10)


@pytest.fixture
def several(work: Path) -> Path:
    """A store of sequences of 3, 1, 5, 2 and 5 tokens."""
    (work / "b.txt").write_text("abc\nd\nefghi\njk\nlmnop\n")
    assert run("tokenize", "b.txt", "-o", "several").exit_code == 0
    return work


def pack(*options: object) -> None:
    result = run("pack", "several", "-o", "out", *options)
    assert result.exit_code == 0, result.stderr


@pytest.mark.usefixtures("several")
def test_inspect_batch_of_varlen_shows_where_each_sequence_begins() -> None:
    pack("--layout", "varlen", "--max-tokens", 8, "--fill", "sequential")
    shown = json.loads(run("inspect", "out", "--batch", 1, "--json").stdout)
    assert shown == {
        "batch": 1,
        "layout": "varlen",
        "shard": "shard-00000.safetensors",
        "batch_in_shard": 1,
        "num_sequences": 2,
        "num_tokens": 7,
        "num_padding_cells": 0,
        "longest": 5,
        "max_tokens": 8,
        "cu_seqlens": [0, 5, 7],
        "shape": [7],
        "sequences": [
            {
                "cell": 0,
                "original_index": 2,
                "length": 5,
                "columns": {},
                "ids": list(b"efghi"),
                "text": "efghi",
                "piece_start": 0,
            },
            {
                "cell": 5,
                "original_index": 3,
                "length": 2,
                "columns": {},
                "ids": list(b"jk"),
                "text": "jk",
                "piece_start": 0,
            },
        ],
    }
    assert run("inspect", "out", "--batch", 1).stdout == (
        "batch 1  (shard-00000.safetensors, batch 1)\n"
        "  shape              1 row of 7 cells\n"
        "  sequences          2\n"
        "  longest            5\n"
        "  tokens             7\n"
        "  padding cells      0\n"
        "  cu_seqlens         0 5 7\n"
        "\n"
        "  one row of up to 8 cells, 1 of them free; 1 cell = 4 blocks\n"
        "  2 sequences, alternately █ and ▓, free ·\n"
        "  row    ████████████████████▓▓▓▓▓▓▓▓····\n"
        "  cell   0                              8\n"
        "\n"
        "  cell  sequence   length  text\n"
        '     0         2        5  "efghi"\n'
        '     5         3        2  "jk"\n'
    )


@pytest.mark.usefixtures("several")
def test_inspect_batch_of_several_shared_rows_shows_their_padding() -> None:
    options = ("--layout", "varlen", "--max-tokens", 8, "--fill", "sequential")
    pack(*options, "--batch-size", 2, "--align-sequences", 2)
    shown = json.loads(run("inspect", "out", "--batch", 0, "--json").stdout)
    assert (shown["shape"], shown["row_indices"]) == ([2, 8], [0, 0, 1, 1])
    assert run("inspect", "out", "--batch", 0).stdout == (
        "batch 0  (shard-00000.safetensors, batch 0)\n"
        "  shape              2 rows x 8 cells\n"
        "  sequences          4\n"
        "  longest            5\n"
        "  tokens             11\n"
        "  padding cells      5\n"
        "  cu_seqlens         0 3 4 9 11\n"
        "  cu_seqlens_padded  0 4 8 14 16\n"
        "\n"
        "  2 rows x 8 columns; 1 column = 4 blocks\n"
        "  4 sequences, alternately █ and ▓, padding ░\n"
        "  row 0   ████████████░░░░▓▓▓▓░░░░░░░░░░░░\n"
        "  row 1   ████████████████████░░░░▓▓▓▓▓▓▓▓\n"
        "  column  0                              8\n"
        "\n"
        "  row column  sequence   length  text\n"
        '    0      0         0        3  "abc"\n'
        '    0      4         1        1  "d"\n'
        '    1      0         2        5  "efghi"\n'
        '    1      6         3        2  "jk"\n'
    )


@pytest.mark.usefixtures("several")
def test_inspect_batch_of_streams_shows_resets_and_what_comes_next() -> None:
    pack("--layout", "streams", "--max-tokens", 4, "--batch-size", 2)
    assert run("inspect", "out", "--batch", 0).stdout == (
        "batch 0  (shard-00000.safetensors, batch 0)\n"
        "  shape              4 steps x 2 streams\n"
        "  sequences          5\n"
        "  longest            3\n"
        "  tokens             8\n"
        "  padding cells      0\n"
        "  resets             5; 0 sequences go on from the batch before\n"
        "\n"
        "  2 streams x 4 steps; 1 step = 4 blocks\n"
        "  5 sequences, alternately █ and ▓\n"
        "  stream 0   ████████████▓▓▓▓\n"
        "  stream 1   ████▓▓▓▓▓▓▓▓████\n"
        "  step       0              4\n"
        "\n"
        "  stream step  sequence   length state next id  text\n"
        '       0    0         0        3 reset       -  "abc"\n'
        '       0    3         1        1 reset       -  "d"\n'
        '       1    0         2        1 reset       -  (from token 4) "i"\n'
        '       1    1         3        2 reset       -  "jk"\n'
        '       1    3         4        1 reset     109  "l"\n'
    )
    shown = run("inspect", "out", "--batch", 1).stdout
    assert "  stream 1  ›████████████████\n" in shown
    assert '       1    0         4        4  kept       -  (from token 1) "mnop"\n' in shown
    place = "  shard              shard-00000.safetensors, batch 0, stream 1, step 3\n"
    assert place in run("inspect", "out", "--sequence", 4).stdout


@pytest.mark.usefixtures("several")
def test_inspect_joins_pieces_of_visits_that_are_cut_differently() -> None:
    options = ("--layout", "varlen", "--max-tokens", 3, "--fill", "chunk", "--shuffle")
    for seed in range(4):
        pack(*options, "--passes", "several=2", "--seed", seed, "--overwrite")
        for index, text in enumerate(["abc", "d", "efghi", "jk", "lmnop"]):
            shown = json.loads(run("inspect", "out", "--sequence", index, "--json").stdout)
            assert (shown["text"], len(shown["visits"])) == (text, 2)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("side", ["left", "right"])
def test_inspect_batch_shows_filler_rows_and_the_width(side: str) -> None:
    options = ("--layout", "padded", "--buckets", "2,6", "--batch-size", 4, "--last-batch", "pad")
    pack(*options, "--padding-side", side)
    shown = json.loads(run("inspect", "out", "--batch", 0, "--json").stdout)
    rows = shown.pop("rows")
    assert [(row["original_index"], row["text"]) for row in rows] == [
        (2, "efghi"),
        (4, "lmnop"),
        (0, "abc"),
    ]
    assert shown == {
        "batch": 0,
        "layout": "padded",
        "shard": "shard-00000.safetensors",
        "batch_in_shard": 0,
        "num_rows": 4,
        "num_filler_rows": 1,
        "num_tokens": 13,
        "num_padding_cells": 11,
        "longest": 5,
        "width": 6,
        "padding_side": side,
    }
    bars = ["████████████████████░░░░"] * 2 + ["████████████░░░░░░░░░░░░", "░" * 24]
    bars = [bar[::-1] if side == "left" else bar for bar in bars]
    assert run("inspect", "out", "--batch", 0).stdout == (
        "batch 0  (shard-00000.safetensors, batch 0)\n"
        "  rows               4\n"
        "  longest            5\n"
        "  tokens             13\n"
        "  padding cells      11\n"
        "  filler rows        1\n"
        "  width              6\n"
        "\n"
        "  6 columns; 1 column = 4 blocks\n"
        "  █ tokens, ░ padding\n"
        f"  row 0   {bars[0]}\n"
        f"  row 1   {bars[1]}\n"
        f"  row 2   {bars[2]}\n"
        f"  row 3   {bars[3]}\n"
        "  column  0                      6\n"
        "\n"
        "  row  sequence   length  text\n"
        '    0         2        5  "efghi"\n'
        '    1         4        5  "lmnop"\n'
        '    2         0        3  "abc"\n'
    )


@pytest.mark.usefixtures("several")
def test_inspect_batch_of_packed_names_its_bucket() -> None:
    pack("--buckets", "2,6")
    keys = []
    for index in range(2):
        shown = json.loads(run("inspect", "out", "--batch", index, "--json").stdout)
        keys.append(shown["bucket_key"])
        table = run("inspect", "out", "--batch", index).stdout
        assert f"  bucket key         {keys[-1]}\n" in table
    assert keys == [6, 2]
    assert (
        "  2 time steps; 1 step = 4 blocks\n"
        "  row 0        ████████\n"
        "  row 1        ████\n"
        "  step         0   1  2\n"
        "  batch_sizes  2   1\n"
        "\n"
    ) in table


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("fill", ["sequential", "best-fit"])
def test_inspect_sequence_that_was_split_shows_it_whole(fill: str) -> None:
    pack("--layout", "varlen", "--max-tokens", 2, "--fill", fill, "--no-shuffle")
    shown = json.loads(run("inspect", "out", "--sequence", 2, "--json").stdout)
    place = {name: shown.pop(name) for name in ("shard", "batch", "cell", "num_pieces")}
    assert shown.pop("visits") == [{name: place[name] for name in ("shard", "batch", "cell")}]
    assert Path(shown["origin"].pop("store")).name == "several"
    assert shown == {
        "sequence": 2,
        "length": 5,
        "origin": {"source": "b.txt", "record": 3, "document": 2, "piece": 0, "num_pieces": 1},
        "columns": {},
        "ids": list(b"efghi"),
        "text": "efghi",
        "tokens": [{"text": letter, "ids": [ord(letter)]} for letter in "efghi"],
    }
    assert (place["shard"], place["num_pieces"]) == ("shard-00000.safetensors", 3)
    batch = json.loads(run("inspect", "out", "--batch", place["batch"], "--json").stdout)
    assert [it["text"] for it in batch["sequences"] if it["cell"] == place["cell"]] == ["ef"]
    assert run("inspect", "out", "--sequence", 2).stdout == (
        "sequence 2\n"
        "  source             b.txt, record 3\n"
        "  document           2\n"
        f"  shard              shard-00000.safetensors, batch {place['batch']}, "
        f"cell {place['cell']}\n"
        "  packed pieces      3; the place is that of the first\n"
        "  length             5 tokens\n"
        "\n"
        "  │e  │f  │g  │h  │i  │\n"
        "  │101│102│103│104│105│\n"
        "\n"
        '  text               "efghi"\n'
    )


@pytest.mark.usefixtures("several")
def test_inspect_sequence_beside_filler_names_its_row() -> None:
    options = ("--layout", "padded", "--buckets", "2,6", "--batch-size", 4, "--last-batch", "pad")
    pack(*options, "--padding-side", "left")
    shown = json.loads(run("inspect", "out", "--sequence", 3, "--json").stdout)
    assert (shown["batch"], shown["row"], shown["num_pieces"]) == (1, 0, 1)
    assert shown["text"] == "jk"


@pytest.mark.usefixtures("several")
def test_inspect_shows_the_numbers_of_varlen_shards() -> None:
    pack("--layout", "varlen", "--max-tokens", 4, "--fill", "sequential")
    numbers = json.loads(run("inspect", "out", "--json").stdout)
    assert numbers["layout"] == "varlen"
    assert numbers["padding_ratio"] == 0
    assert numbers["batch_shape"] == "1 row of up to 4"
    assert numbers["sequences_of_batch"] == {"fewest": 1, "most": 2}
    assert numbers["ledger"]["num_rows"] == 7  # pieces: two sequences are split
    assert numbers["ledger"]["num_sequences"] == 5
    assert numbers["ledger"]["num_split_sequences"] == 2
    assert numbers["lengths"]["longest"] == 4
    lines = run("inspect", "out").stdout.splitlines()
    assert lines[0] == "shards  out  (varlen)"
    assert "  sequences          5" in lines


@pytest.mark.usefixtures("several")
def test_inspect_does_not_count_filler_rows_as_sequences() -> None:
    pack("--layout", "padded", "--batch-size", 4, "--last-batch", "pad")
    numbers = json.loads(run("inspect", "out", "--json").stdout)
    assert numbers["lengths"]["shortest"] == 1
    assert numbers["lengths"]["mean"] == 3.2
    assert sum(entry["num_sequences"] for entry in numbers["lengths"]["histogram"]) == 5


NAME = "long-name-雨-" + "x" * 60 + ".jsonl"
HARD_TEXTS = [
    "אני הולך הביתה " * 20,
    "雨が降る日は、" * 30,
    "e\u0301\u0323" * 90,
    "👨\u200d👩\u200d👧🏽" * 30,
    "\x1b[2J\t\r\x00\u202e\u2028" * 20,
    " " * 300,
    "x",
]
LAYOUTS = [
    ("packed",),
    ("padded", "--padding-side", "left", "--last-batch", "pad", "--batch-size", 4),
    ("varlen", "--max-tokens", 4096),
    ("varlen", "--max-tokens", 4096, "--batch-size", 20, "--align-sequences", 8),
    ("streams", "--max-tokens", 64, "--batch-size", 8),
]


@pytest.fixture
def hard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of texts that are hard to show, from a file with a long name."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ("folder" * 8)
    folder.mkdir()
    kinds = ("class", "text", "tags")
    names = [kind + "\u202e\x1b雨" + "e\u0301" * 40 for kind in kinds]
    values = [(text, text, [[0, 1, text]]) for text in HARD_TEXTS]
    records = [
        {"text": text, **dict(zip(names, row, strict=True))}
        for text, row in zip(HARD_TEXTS, values, strict=True)
    ]
    (folder / NAME).write_text("".join(json.dumps(record) + "\n" for record in records))
    named = [f"{name}:{kind}" for name, kind in zip(names, kinds, strict=True)]
    keep = [word for name in named for word in ("--keep", name)]
    result = run("tokenize", folder / NAME, *keep, "-o", "store" * 20, "-q")
    assert result.exit_code == 0, result.stderr
    return tmp_path


def check_lines(shown: str) -> list[str]:
    lines = shown.splitlines()
    for line in lines:
        assert count_columns(line) <= WIDTH, line
        assert not re.search(CONTROLS, line)
    return lines


@pytest.mark.usefixtures("hard")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout[0])
def test_inspect_fits_the_terminal_whatever_the_texts_and_names(layout: tuple[object, ...]) -> None:
    packed = run("pack", "store" * 20, "-o", "shards" * 20, "-q", "--layout", *layout)
    assert packed.exit_code == 0, packed.stderr
    for path in ("store" * 20, "shards" * 20):
        lines = check_lines(run("inspect", path).stdout)
        assert lines[0].split("  (")[0].endswith(path[-40:])
        for index in range(len(HARD_TEXTS)):
            lines = check_lines(run("inspect", path, "--sequence", index).stdout)
            assert lines[1].startswith("  source             …")
            assert sum(line.startswith("  below the ids: tags") for line in lines) == 1
            assert lines[1].endswith(f"xxx.jsonl, record {index + 1}")
    for index in range(2 if layout[0] in ("padded", "streams") else 1):
        check_lines(run("inspect", "shards" * 20, "--batch", index).stdout)


@pytest.mark.usefixtures("hard")
def test_inspect_plan_fits_the_terminal() -> None:
    check_lines(run("plan", "store" * 20).stdout)


def test_inspect_numbers_fit_the_terminal_however_large() -> None:
    most = 2**63 - 1
    counted = ("num_documents_with_tokens", "num_distinct_documents", "num_duplicate_documents")
    classes = [{"name": "雨" * 99, "count": most, "share": 0.5}] * 99
    lengths = {
        **{"shortest": most - 9, "longest": most, "mean": float(most)},
        "percentiles": {str(share): most for share in (1, 10, 25, 50, 75, 90, 99)},
        "histogram": [{"from": most - 9, "to": most, "num_sequences": 2**40}],
    }
    ledger = dict.fromkeys(
        (*_STORE_LEDGER, *_SPECIAL_TOKENS, "num_documents", "num_sequences", "num_tokens"), most
    )
    numbers = {
        **{"kind": "token store", "path": "p" * 300, "ledger": ledger, "lengths": lengths},
        **{"num_parts": most, "num_sources": most, "bytes": most, "dtype": "uint16"},
        **{"vocab_size": most, "max_id": most, "run": {"encoder": "雨" * 100}},
        **dict.fromkeys(("pad_id", "bos_id", "eos_id", "unk_id"), most),
        **{"made_by": "tokenize", "tokenizer_blake3": None},
        "duplicates": dict.fromkeys(counted, most),
        "columns": [
            {"name": "n" * 99, "kind": "class", "num_classes": most, "num_unused_classes": most}
            | {"classes": classes}
        ],
    }
    lines = check_lines("\n".join(show_numbers(numbers)))
    assert lines[-1].endswith(" to 9,223,372,036,854,775,807 1,099,511,627,776 █████")


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949_999, "999.9 MB"),
        (999_950_000, "1.0 GB"),
        (1_234_567_890_123, "1.2 TB"),
    ],
)
def test_bytes_are_shown_in_at_most_four_digits(count: int, shown: str) -> None:
    assert show_bytes(count) == shown


@pytest.mark.usefixtures("several")
def test_inspect_sequence_splits_only_the_beginning_of_a_long_one() -> None:
    Path("long.txt").write_text("雨" * 2000 + "\n")
    assert run("tokenize", "long.txt", "-o", "long", "-q").exit_code == 0
    shown = json.loads(run("inspect", "long", "--sequence", 0, "--json").stdout)
    assert len(shown["ids"]) == 6000
    assert shown["tokens"] == [{"text": "雨", "ids": [0xE9, 0x9B, 0xA8]}] * 85
    lines = run("inspect", "long", "--sequence", 0).stdout.splitlines()
    assert lines[5:7] == ["  " + "│雨         " * 6 + "│", "  " + "│233 155 168" * 6 + "│"]
    assert "  and 5,892 more tokens (all with --json)" in lines


@pytest.mark.usefixtures("work")
def test_a_sequence_of_one_token_has_one_token() -> None:
    assert "  length             1 token\n" in run("inspect", "tokens", "--sequence", 1).stdout
