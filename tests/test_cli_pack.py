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


@pytest.mark.parametrize(
    ("layout", "options", "note"),
    [
        ("padded", (), True),
        ("padded", ("--pad-id", 1), False),
        ("packed", (), False),
        ("varlen", ("--max-tokens", 8), False),
    ],
)
def test_pack_says_which_token_pads_where_the_tokenizer_names_none(
    tmp_path: Path, layout: str, options: tuple[object, ...], note: bool
) -> None:
    tokenizer = Tokenizer(models.WordLevel({"!": 0, "x": 1}, unk_token="!"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "words.json"))
    (tmp_path / "a.txt").write_text("x x\n")
    store = tmp_path / "store"
    tokenizer_options = ("--tokenizer", tmp_path / "words.json", "--encoder", "tokenizers")
    assert run("tokenize", tmp_path / "a.txt", "-o", store, *tokenizer_options).exit_code == 0
    result = run("pack", store, "-o", tmp_path / "out", "--layout", layout, *options)
    assert result.exit_code == 0
    assert result.stderr == note * (
        "note: the tokenizer names no pad token; padding with id 0, token '!'; "
        "pass --pad-id to choose another\n"
    )


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
