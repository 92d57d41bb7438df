"""What `pack` and `diff` say of pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import run

# Source, target and language of each document; the decoder's ids also have <bos> and <eos>.
DOCUMENTS = [
    ("hi you", "salut toi", "fr"),
    ("yes", "oui", "fr"),
    ("", "x", "de"),
    ("no thanks", "nein", "de"),
    ("y", "", "de"),
    ("a long sentence", "kurz", "de"),
    ("good day", "guten tag", "de"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two aligned stores, and packed and padded shards of their pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    names = ("src", "tgt", "lang")
    lines = [json.dumps(dict(zip(names, document, strict=True))) for document in DOCUMENTS]
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    make = ("tokenize", folder / "pairs.jsonl", "--keep", "lang:class", "-q")
    run(*make, "--text-field", "src", "--no-add-special-tokens", "-o", folder / "src")
    run(*make, "--text-field", "tgt", "--bos", "<bos>", "--eos", "<eos>", "-o", folder / "tgt")
    pack = ("pack", folder / "src", "--decoder", folder / "tgt", "--drop-longer", 14, "-q")
    run(*pack, "--batch-size", 3, "-o", folder / "packed")
    keys = ("--layout", "padded", "--buckets", "(4,6),(9,12)")
    run(*pack, *keys, "-o", folder / "padded")
    return folder


def ask(*arguments: object) -> Any:
    """Return the answer of a command as JSON; its lines fit the terminal."""
    shown = run(*arguments).stdout
    assert all(len(line) <= 80 for line in shown.splitlines())
    return json.loads(run(*arguments, "--json").stdout)


def test_pack_tells_both_sides_and_why_pairs_are_left_out(folder: Path, tmp_path: Path) -> None:
    pack = ("pack", folder / "src", "--decoder", folder / "tgt", "--drop-longer", 14)
    keys = ("--layout", "padded", "--buckets", "(4,6),(9,12)")
    result = run(*pack, *keys, "-o", tmp_path / "out")
    # 26 and 33 tokens in cells of one row of (4, 6) and three of (9, 12)
    assert result.stdout.splitlines() == [
        f"{tmp_path}/out: complete",
        "  4 pairs, 59 tokens -> 2 padded batches, 1 shard",
        "  encoder: 26 tokens, 16.13% of the cells are padding",
        "    columns: lang (class, 2 classes)",
        "  decoder: 33 tokens, 21.43% of the cells are padding",
        "    columns: lang (class, 2 classes)",
        "  both sides: 19.18% of the cells are padding",
        "  buckets: (4, 6), (9, 12)",
        "  1 pair, 1 token (1.19%) with no sequence on the decoder's side",
        "  1 pair, 21 tokens (25.00%) dropped by --drop-longer (encoder)",
        "  1 pair, 3 tokens (3.57%) with no sequence on the encoder's side",
    ]


def test_pack_tells_the_splits_of_pairs(folder: Path, tmp_path: Path) -> None:
    pack = ("pack", folder / "src", "--decoder", folder / "tgt", "-o", tmp_path / "out")
    result = run(*pack, "--split-by", "lang", "--split", "fr,de")
    lines = result.stdout.splitlines()
    assert "  fr: 2 pairs, 9 + 16 tokens, 0.00% padding" in lines
    left_out = [line for line in lines if line.endswith("with no sequence on the decoder's side")]
    assert left_out == ["  de: 1 pair, 1 token (1.69%) with no sequence on the decoder's side"]
    assert ask("inspect", tmp_path / "out")["splits"][0]["both"]["num_tokens"] == 25


def test_diff_compares_side_by_side(folder: Path) -> None:
    found = ask("diff", folder / "packed", folder / "padded")
    assert not found["identical"]
    same = {"num_compared": 4, "num_differing": 0}
    for side in (found, found["decoder"]):
        assert {**side["sequences"], **same} == side["sequences"]
    assert found["pairing"] == {**same, "first": None}
    assert ask("diff", folder / "packed", folder / "packed")["verdict"] == "identical"


def test_diff_compares_no_partners_of_other_stores(folder: Path, tmp_path: Path) -> None:
    """Where a document of the decoder is empty now, those behind it have other numbers."""
    records = (folder / "pairs.jsonl").read_text().replace("salut toi", "")
    (tmp_path / "pairs.jsonl").write_text(records)
    make = ("tokenize", tmp_path / "pairs.jsonl", "--keep", "lang:class", "-q")
    run(*make, "--text-field", "src", "--no-add-special-tokens", "-o", tmp_path / "src")
    run(*make, "--text-field", "tgt", "--bos", "<bos>", "--eos", "<eos>", "-o", tmp_path / "tgt")
    pack = ("pack", tmp_path / "src", "--decoder", tmp_path / "tgt", "--drop-longer", 14, "-q")
    run(*pack, "--batch-size", 3, "-o", tmp_path / "packed")
    found = ask("diff", folder / "packed", tmp_path / "packed")
    assert found["pairing"] is None
    assert "put together" not in found["verdict"]


def test_diff_of_pairs_and_single_sequences(folder: Path, tmp_path: Path) -> None:
    run("pack", folder / "src", "--drop-longer", 14, "-o", tmp_path / "single")
    found = ask("diff", folder / "packed", tmp_path / "single")
    assert found["facts"] == [{"name": "pairs", "a": True, "b": False}]
    assert found["verdict"] == (
        "A holds pairs, B holds single sequences; the encoder's side compared: "
        "4 sequences identical, 1 only in B"
    )
