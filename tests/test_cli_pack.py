from __future__ import annotations

import pytest
from command import run

from seqpack_cli import open_shards


@pytest.fixture
def tokens(tmp_path):
    (tmp_path / "a.txt").write_text("".join("x" * length + "\n" for length in (3, 1, 5, 2, 5)))
    run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "tokens")
    return tmp_path / "tokens"


def test_pack_says_what_the_shards_hold(tmp_path, tokens):
    options = ("--layout", "padded", "--batch-size", 2, "--last-batch", "drop")
    result = run("pack", tokens, "-o", tmp_path / "out", *options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        f"{tmp_path}/out: complete\n"
        "  4 sequences, 15 tokens -> 2 padded batches, 1 shard\n"
        "  6.25% of the cells are padding\n"
        "  1 sequences, 1 tokens dropped by last_batch\n"
    )


def test_pack_passes_every_option_on(tmp_path, tokens):
    result = run(
        *("pack", tokens, "-o", tmp_path / "out", "--layout", "padded", "--max-tokens", 10),
        *("--min-length", 2, "--max-length", 4, "--pad-id", 7, "--shard-bytes", "1kB", "-q"),
    )
    assert result.exit_code == 0, result.stderr
    shards = open_shards(tmp_path / "out")
    assert [batch.ids.tolist() for batch in shards] == [[[120, 120, 120], [120, 120, 7]]]
    assert shards.manifest["ledger"]["num_dropped_sequences"] == {"min_length": 1, "max_length": 2}


def test_pack_refuses_a_sequence_over_the_budget(tmp_path, tokens):
    result = run("pack", tokens, "-o", tmp_path / "out", "--max-tokens", 4)
    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: {tokens}: sequence 2 ({tmp_path}/a.txt:3) has 5 tokens, --max-tokens is 4\n\n"
        "hint: pass --max-tokens 5, drop longer ones with --max-length 4, "
        "or split them with tokenize --max-length 4\n"
    )
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--min-length", 9], 3, "no batch is left"),
        (["--pad-id", 300], 2, "--pad-id 300: expected an id from 0 to 258"),
        (["--batch-size", 0], 2, "0 is not in the range x>=1"),
    ],
)
def test_pack_refuses(tmp_path, tokens, options, code, message):
    result = run("pack", tokens, "-o", tmp_path / "out", *options)
    assert result.exit_code == code
    assert message in result.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_pack_refuses_what_is_no_finished_store(tmp_path, tokens):
    (tokens / "manifest.json").rename(tmp_path / "kept")
    result = run("pack", tokens, "-o", tmp_path / "out")
    assert result.exit_code == 4
    assert f"Error: {tokens}: no manifest.json, expected a token store or shards" in result.stderr


def test_pack_into_the_store_itself_is_refused(tokens):
    result = run("pack", tokens, "-o", tokens)
    assert result.exit_code == 2
    assert f"{tokens}: is the token store itself" in result.stderr
