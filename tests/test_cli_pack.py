from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from command import run
from pages import split_commands
from tokenizers import Tokenizer, models, pre_tokenizers

from seqpack_cli import open_shards

LENGTHS = (3, 1, 5, 2, 5)
SUMMARIES = Path(__file__).parent / "data" / "pack_summaries.txt"  # of such sequences


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("".join("x" * length + "\n" for length in LENGTHS))
    run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "tokens")
    return tmp_path / "tokens"


def test_pack_says_what_the_shards_hold(tmp_path: Path, tokens: Path) -> None:
    options = ("--layout", "padded", "--batch-size", 2, "--last-batch", "drop")
    result = run("pack", tokens, "-o", tmp_path / "out", *options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        f"{tmp_path}/out: complete\n"
        "  4 sequences, 15 tokens -> 2 padded batches, 1 shard\n"
        "  6.25% of the cells are padding\n"
        "  1 sequence, 1 token (6.25%) dropped by --last-batch\n"
    )


SUBSTITUTE = (
    "note: the tokenizer names no pad token; padding with id 0, token '!'; "
    "pass --pad-id to choose another\n"
)
NO_PADDING = "note: --pad-id is only recorded: these {} batches have no padding\n"


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ("--layout padded", SUBSTITUTE),
        ("--layout padded --decoder {store}", SUBSTITUTE),
        ("--layout padded --pad-id 1", ""),
        ("--layout streams --max-tokens 8 --pad-id 1", ""),
        ("--layout packed", ""),
        ("--layout packed --pad-id 1", NO_PADDING.format("packed")),
        ("--layout packed --decoder {store} --pad-id 1", NO_PADDING.format("packed")),
        ("--layout varlen --max-tokens 8", ""),
        ("--layout varlen --max-tokens 8 --pad-id 1", NO_PADDING.format("varlen")),
    ],
)
def test_pack_says_once_what_pads_where_the_tokenizer_names_no_pad_token(
    tmp_path: Path, options: str, note: str
) -> None:
    tokenizer = Tokenizer(models.WordLevel({"!": 0, "x": 1}, unk_token="!"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "words.json"))
    (tmp_path / "a.txt").write_text("x x\n")
    store = tmp_path / "store"
    tokenizer_options = ("--tokenizer", tmp_path / "words.json", "--encoder", "tokenizers")
    assert run("tokenize", tmp_path / "a.txt", "-o", store, *tokenizer_options).exit_code == 0
    result = run("pack", store, "-o", tmp_path / "out", *options.format(store=store).split())
    assert result.exit_code == 0
    assert result.stderr == note


def test_pack_notes_splits_that_do_not_fill_a_batch(tmp_path: Path, tokens: Path) -> None:
    options = ("--split", "a=0.6,b=0.4", "--batch-size", 5)
    result = run("pack", tokens, "-o", tmp_path / "out", *options)
    numbers = {"a": 3, "b": 2}
    assert result.stderr.splitlines() == [
        f"note: split {name!r} does not fill a batch: it has {number} sequences, fewer than "
        "--batch-size 5"
        for name, number in numbers.items()
    ]


def test_pack_notes_stores_and_batches_that_are_no_use(tmp_path: Path, tokens: Path) -> None:
    (tmp_path / "b.txt").write_text("long text\n")
    other, options = tmp_path / "other", ("--drop-longer", 5, "--batch-size", 4)
    assert run("tokenize", tmp_path / "b.txt", "-o", other, "-q").exit_code == 0
    result = run("pack", tokens, other, "-o", tmp_path / "out", *options)
    assert result.stderr.splitlines() == [
        f"note: no sequence of {other} was packed",
        "note: 1 of 2 batches have no next-token label: their sequences have one token each; pass "
        "--drop-shorter 2",
    ]


def test_pack_passes_every_option_on(tmp_path: Path, tokens: Path) -> None:
    result = run(
        *("pack", tokens, "-o", tmp_path / "out", "--layout", "padded", "--max-tokens", 10),
        *("--drop-shorter", 2, "--drop-longer", 4, "--pad-id", 7, "--shard-bytes", "1kB", "-q"),
    )
    assert result.exit_code == 0, result.stderr
    shards = open_shards(tmp_path / "out")
    assert [batch.ids.tolist() for batch in shards] == [[[120, 120, 120], [120, 120, 7]]]
    assert shards.manifest["ledger"]["num_dropped_sequences"] == {
        "drop_shorter": 1,
        "drop_longer": 2,
    }


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ("--share a=13,b=11", []),
        ("--share 2=1,1=3", ["a has 68.42% of the tokens packed, asked for 75.00%"]),
        (
            "--share a=1,b=3 --split x=0.5,y=0.5",
            ["a has 37.50% of the tokens packed into split 'x', asked for 25.00%"],
        ),
    ],
)
def test_pack_says_if_a_store_misses_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, notes: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", "abc\nabcdefgh\nde\n"), ("b", "one\ntwo\nthree\n")):
        Path(f"{name}.txt").write_text(text)
        run("tokenize", f"{name}.txt", "-o", name)
    result = run("pack", "a", "b", "-o", "out", *options.split())
    found = [line for line in result.stderr.splitlines() if "--share" in line]
    assert found == [f"note: --share: {note}" for note in notes]


@pytest.mark.parametrize(("options", "summary"), split_commands(SUMMARIES.read_text()))
def test_pack_sums_up_what_each_option_leads_to(tokens: Path, options: str, summary: str) -> None:
    path = tokens.parent / "out"
    result = run("pack", tokens, "-o", path, *shlex.split(options))
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{path}: complete\n{summary}"
    again = run("pack", tokens, "-o", path, *shlex.split(options))
    assert again.stdout == f"{path}: already complete\n{summary}"


def test_pack_json_is_the_manifest(tokens: Path) -> None:
    output = tokens.parent / "out"
    options = ("--layout", "padded", "--buckets", "5,2", "--batch-size", 2, "--last-batch", "pad")
    arguments = ("pack", tokens, "-o", output, *options, "--padding-side", "left", "--json")
    manifest = json.loads(run(*arguments).stdout)
    assert manifest.pop("already_complete") is False
    assert manifest == json.loads((output / "manifest.json").read_bytes())
    assert json.loads(run(*arguments).stdout) == {**manifest, "already_complete": True}
