from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import run
from tokenizers import Tokenizer, models

from seqpack_cli import open_shards

LENGTHS = (3, 1, 5, 2, 5)


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
        "  1 sequence, 1 token dropped by --last-batch\n"
    )


def test_pack_takes_the_sequences_for_which_all_conditions_hold(tmp_path: Path) -> None:
    records = [("x" * (n % 7 + 1), "de" if n % 3 else "en", n % 4) for n in range(24)]
    lines = [
        json.dumps(dict(zip(("text", "lang", "label"), each, strict=True))) for each in records
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    store, output = tmp_path / "tokens", tmp_path / "shards"
    kept = ("--keep", "lang:class", "--keep", "label", "--part-bytes", 300)
    run("tokenize", tmp_path / "a.jsonl", "-o", store, *kept)
    conditions = ("--where", "lang = de", "--where", "label >= 2", "--where", "@length != 7")
    result = run("pack", store, "-o", output, *conditions)
    assert result.exit_code == 0, result.stderr
    chosen = [
        number
        for number, (text, lang, label) in enumerate(records)
        if lang == "de" and label >= 2 and len(text) != 7
    ]
    num_tokens = sum(len(records[number][0]) for number in chosen)
    num_dropped = sum(len(text) for text, _, _ in records) - num_tokens
    dropped = f"{24 - len(chosen)} sequences, {num_dropped} tokens dropped by --where"
    assert f"{len(chosen)} sequences, {num_tokens} tokens ->" in result.stdout
    assert dropped in result.stdout
    (batch,) = open_shards(output)
    assert batch.original_indices is not None
    assert sorted(batch.original_indices.tolist()) == chosen
    verified = run("verify", output, "--level", "roundtrip")
    assert verified.exit_code == 0
    assert "plan: compared" in verified.stdout
    again = run("pack", store, "-o", output, *conditions[:2])
    assert again.exit_code == 4  # other options


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
    tokenizer.save(str(tmp_path / "words.json"))
    (tmp_path / "a.txt").write_text("x\n")
    store = tmp_path / "store"
    tokenizer_options = ("--tokenizer", tmp_path / "words.json", "--encoder", "tokenizers")
    assert run("tokenize", tmp_path / "a.txt", "-o", store, *tokenizer_options).exit_code == 0
    result = run("pack", store, "-o", tmp_path / "out", "--layout", layout, *options)
    assert result.exit_code == 0
    assert result.stderr == note * (
        "note: the tokenizer names no pad token; padding with id 0, token '!'; "
        "pass --pad-id to choose another\n"
    )


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


def pack(tokens: Path, *options: object) -> Path:
    """Pack the store, and give the shards' folder."""
    output = tokens.parent / "-".join(str(option).strip("-") for option in ("out", *options))
    result = run("pack", tokens, "-o", output, *options)
    assert result.exit_code == 0, result.stderr
    return output


def indices_of(path: Path) -> list[list[int]]:
    """Return the sequences of each batch."""
    return [batch.original_indices.tolist() for batch in open_shards(path)]


# Of sequences of 3, 1, 5, 2 and 5 tokens: the options, the sequences of each batch, the summary.
PLANS: dict[str, tuple[str, list[list[int]], str]] = {
    "max-tokens": (
        "--max-tokens 8",
        [[2], [4, 0], [3, 1]],
        "  5 sequences, 16 tokens -> 3 packed batches, 1 shard\n  0.00% of the cells are padding\n",
    ),
    "batch-size and max-tokens of cells": (
        "--layout padded --batch-size 2 --max-tokens 9",
        [[2], [4], [0, 3], [1]],
        "  5 sequences, 16 tokens -> 4 padded batches, 1 shard\n  5.88% of the cells are padding\n",
    ),
    "order none": (
        "--order none --batch-size 2",
        [[0, 1], [2, 3], [4]],
        "  5 sequences, 16 tokens -> 3 packed batches, 1 shard\n  0.00% of the cells are padding\n",
    ),
    "window": (
        "--window 3 --batch-size 2",
        [[2, 0], [4, 1], [3]],
        "  5 sequences, 16 tokens -> 3 packed batches, 1 shard\n  0.00% of the cells are padding\n",
    ),
    "bucket keys": (
        "--layout padded --buckets 5,2 --batch-size 2",
        [[2, 4], [0], [3, 1]],
        "  5 sequences, 16 tokens -> 3 padded batches, 1 shard\n"
        "  15.79% of the cells are padding\n"
        "  buckets: 2, 5\n",
    ),
    "bucket keys that not all sequences fit": (
        "--layout padded --buckets 2,4 --batch-size 2",
        [[0], [3, 1]],
        "  3 sequences, 6 tokens -> 2 padded batches, 1 shard\n"
        "  25.00% of the cells are padding\n"
        "  buckets: 2, 4\n"
        "  2 sequences, 10 tokens dropped by --overflow\n",
    ),
    "bucket keys and a budget": (
        "--layout padded --buckets 2,6 --max-tokens 12",
        [[2, 4], [0], [3, 1]],
        "  5 sequences, 16 tokens -> 3 padded batches, 1 shard\n"
        "  27.27% of the cells are padding\n"
        "  buckets: 2, 6\n",
    ),
    "buckets auto": (
        "--layout padded --buckets auto",
        [[2, 4], [0], [3], [1]],
        "  5 sequences, 16 tokens -> 4 padded batches, 1 shard\n"
        "  0.00% of the cells are padding\n"
        "  buckets: 1, 2, 3, 5\n",
    ),
    "num-buckets": (
        "--layout padded --buckets auto --num-buckets 1 --pad-to-multiple 4",
        [[2, 4, 0, 3, 1]],
        "  5 sequences, 16 tokens -> 1 padded batch, 1 shard\n"
        "  60.00% of the cells are padding\n"
        "  buckets: 8\n",
    ),
    "buckets of packed": (
        "--buckets 2,5",
        [[2, 4, 0], [3, 1]],
        "  5 sequences, 16 tokens -> 2 packed batches, 1 shard\n"
        "  0.00% of the cells are padding\n"
        "  buckets: 2, 5\n",
    ),
    "last-batch pad": (
        "--layout padded --batch-size 2 --last-batch pad",
        [[2, 4], [0, 3], [1, -1]],
        "  5 sequences, 16 tokens -> 3 padded batches, 1 shard\n"
        "  11.11% of the cells are padding\n"
        "  filler rows that complete last batches: 1\n",
    ),
    "last-batch pad of buckets": (
        "--layout padded --buckets 2,5 --max-tokens 10 --last-batch pad",
        [[2, 4], [0, -1], [3, 1, -1, -1, -1]],
        "  5 sequences, 16 tokens -> 3 padded batches, 1 shard\n"
        "  46.67% of the cells are padding\n"
        "  buckets: 2, 5\n"
        "  filler rows that complete last batches: 4\n",
    ),
    "last-batch drop of buckets": (
        "--layout padded --buckets 2,5 --batch-size 2 --last-batch drop",
        [[2, 4], [3, 1]],
        "  4 sequences, 13 tokens -> 2 padded batches, 1 shard\n"
        "  7.14% of the cells are padding\n"
        "  buckets: 2, 5\n"
        "  1 sequence, 3 tokens dropped by --last-batch\n",
    ),
    "overflow drop": (
        "--max-tokens 4 --overflow drop",
        [[0], [3, 1]],
        "  3 sequences, 6 tokens -> 2 packed batches, 1 shard\n"
        "  0.00% of the cells are padding\n"
        "  2 sequences, 10 tokens dropped by --overflow\n",
    ),
    "varlen": (
        "--layout varlen --max-tokens 8 --no-shuffle",
        [[0, 2], [1, 3, 4]],
        "  5 sequences, 16 tokens -> 2 varlen batches, 1 shard\n"
        "  0.00% above the lower bound 2: all tokens / 8, rounded up\n",
    ),
    "varlen in the order of the input": (
        "--layout varlen --max-tokens 6 --fill sequential",
        [[0, 1], [2], [3], [4]],
        "  5 sequences, 16 tokens -> 4 varlen batches, 1 shard\n"
        "  33.33% above the lower bound 3: all tokens / 6, rounded up\n",
    ),
    "varlen with split sequences": (
        "--layout varlen --max-tokens 4 --fill sequential",
        [[0, 1], [2], [2, 3], [4], [4]],
        "  5 sequences, 16 tokens -> 5 varlen batches, 1 shard\n"
        "  25.00% above the lower bound 4: all tokens / 4, rounded up\n"
        "  sequences split into pieces: 2\n",
    ),
    "varlen without the long ones": (
        "--layout varlen --max-tokens 4 --fill sequential --overflow drop --drop-shorter 2",
        [[0], [3]],
        "  2 sequences, 5 tokens -> 2 varlen batches, 1 shard\n"
        "  0.00% above the lower bound 2: all tokens / 4, rounded up\n"
        "  1 sequence, 1 token dropped by --drop-shorter\n"
        "  2 sequences, 10 tokens dropped by --overflow\n",
    ),
}


@pytest.mark.parametrize(("options", "indices", "summary"), PLANS.values(), ids=PLANS)
def test_pack_follows_each_option_and_sums_it_up(
    tokens: Path, options: str, indices: list[list[int]], summary: str
) -> None:
    path = tokens.parent / "out"
    result = run("pack", tokens, "-o", path, *options.split())
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{path}: complete\n{summary}"
    assert indices_of(path) == indices
    again = run("pack", tokens, "-o", path, *options.split())
    assert again.stdout == f"{path}: already complete\n{summary}"


def test_pack_json_is_the_manifest(tokens: Path) -> None:
    output = tokens.parent / "out"
    options = ("--layout", "padded", "--buckets", "5,2", "--batch-size", 2, "--last-batch", "pad")
    arguments = ("pack", tokens, "-o", output, *options, "--padding-side", "left", "--json")
    shown = json.loads(run(*arguments).stdout)
    assert shown == {"already_complete": False, **open_shards(output).manifest}
    assert (shown["layout"], shown["padding_side"]) == ("padded", "left")
    assert shown["bucket_keys"] == [2, 5]
    assert shown["ledger"] == {
        "num_batches": 3,
        "num_rows": 6,
        "num_filler_rows": 1,
        "num_sequences": 5,
        "num_split_sequences": 0,
        "num_tokens": 16,
        "num_target_tokens": 16,
        "num_padding_cells": 8,
        "num_dropped_sequences": {},
        "num_dropped_tokens": {},
        "num_repeated_sequences": 0,
        "num_repeated_tokens": 0,
        "stores": [{"num_sequences": 5, "num_tokens": 16}],
    }
    assert shown["options"] == {
        "batch_size": 2,
        "max_tokens": None,
        "count": None,
        "order": "length",
        "window": None,
        "shuffle": False,
        "seed": 0,
        "buckets": [2, 5],
        "num_buckets": None,
        "fill": None,
        "overflow": None,
        "last_batch": "pad",
        "drop_shorter": None,
        "drop_longer": None,
        "where": [],
        "keep_without_target": False,
        "split": None,
        "split_name": None,
        "split_seed": 0,
        "split_by": None,
        "passes": None,
        "share": None,
        "max_passes": None,
        "drop_column": [],
        "store_column": None,
        "align_sequences": 1,
        "pad_to_multiple": 1,
        "shard_bytes": 64 << 20,
    }
    assert json.loads(run(*arguments).stdout) == {**shown, "already_complete": True}


@pytest.mark.parametrize(
    "multiple",
    [
        1,
        4,
        8,
    ],
)
def test_pack_can_follow_the_hint_for_a_sequence_that_does_not_fit(
    tokens: Path, multiple: int
) -> None:
    options = ("--layout", "padded", "--pad-to-multiple", multiple, "--max-tokens")
    result = run("pack", tokens, "-o", tokens.parent / "out", *options, 4)
    assert result.exit_code == 2
    found = re.search(r"hint: pass --max-tokens ([0-9]+),", result.stderr)
    assert found is not None
    result = run("pack", tokens, "-o", tokens.parent / "out", *options, int(found[1]))
    assert result.exit_code == 0, result.stderr
