"""Every command that reads shards of pairs shows both sides, checked against the documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import run

from seqpack_cli import inspect, plan, unpack

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
# Index on each side, source, target and language of those that are packed, with --drop-longer 14.
PAIRS = [
    (0, 0, "hi you", "salut toi", "fr"),
    (1, 1, "yes", "oui", "fr"),
    (2, 3, "no thanks", "nein", "de"),
    (5, 5, "good day", "guten tag", "de"),
]
BOS, EOS = 257, 258


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


def encode(text: str, *, is_decoder: bool = False) -> list[int]:
    """Return the ids of a text."""
    return [BOS, *text.encode(), EOS] if is_decoder else list(text.encode())


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
        "  1 pair, 1 token with no sequence on the decoder's side",
        "  1 pair, 21 tokens dropped by --drop-longer (encoder)",
        "  1 pair, 3 tokens with no sequence on the encoder's side",
    ]


def test_pack_tells_the_splits_of_pairs(folder: Path, tmp_path: Path) -> None:
    pack = ("pack", folder / "src", "--decoder", folder / "tgt", "-o", tmp_path / "out")
    result = run(*pack, "--split-by", "lang", "--split", "fr,de")
    lines = result.stdout.splitlines()
    assert "  fr: 2 pairs, 9 + 16 tokens, 0.00% padding" in lines
    assert "  de: 1 pair, 1 token with no sequence on the decoder's side" in lines
    assert ask("inspect", tmp_path / "out")["splits"][0]["both"]["num_tokens"] == 25


def test_inspect_shows_the_numbers_of_both_sides(folder: Path) -> None:
    found = ask("inspect", folder / "padded")
    assert found == json.loads(json.dumps(inspect(folder / "padded")))
    decoder, both = found["decoder"], found["both"]
    assert [found["lengths"]["longest"], decoder["lengths"]["longest"]] == [9, 11]
    assert [found["ledger"]["num_tokens"], decoder["ledger"]["num_tokens"]] == [26, 33]
    assert both["padding_ratio"] == round(1 - 59 / (31 + 42), 6)
    assert both["num_dropped_pairs"] == {
        "decoder.empty": 1,
        "encoder.drop_longer": 1,
        "decoder.drop_longer": 0,
        "encoder.overflow": 0,
        "decoder.overflow": 0,
        "overflow": 0,
        "encoder.empty": 1,
    }
    alone = ask("inspect", folder / "padded", "--side", "decoder")
    assert alone["side"] == "decoder"
    shown = run("inspect", folder / "padded", "--side", "decoder").stdout
    assert "  bucket keys        (4, 6) (9, 12)\n" in shown  # as in --buckets
    assert {**alone, **decoder} == alone


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_inspect_matches_the_rows_of_a_batch(folder: Path, layout: str) -> None:
    found = ask("inspect", folder / layout, "--batch", 0)
    others = found["decoder"]["rows"]
    rows = {row["original_index"]: others[row["decoder_row"]] for row in found["rows"]}
    expected = {first: f"<bos>{target}<eos>" for first, _, _, target, _ in PAIRS if first != 1}
    assert {first: row["text"] for first, row in rows.items()} == expected
    assert [found["rows"][row["encoder_row"]]["columns"] for row in others] == [
        row["columns"] for row in others
    ]
    assert found.get("bucket_key") == ([9, 12] if layout == "padded" else None)


def test_inspect_shows_the_pair_of_a_sequence(folder: Path) -> None:
    found = ask("inspect", folder / "packed", "--sequence", 2)
    assert [found["text"], found["decoder"]["text"]] == ["no thanks", "<bos>nein<eos>"]
    assert [side["origin"]["record"] for side in (found, found["decoder"])] == [4, 4]
    assert [found["decoder"][name] for name in ("sequence", "batch", "row")] == [3, 0, 2]
    alone = ask("inspect", folder / "packed", "--sequence", 3, "--side", "decoder")
    assert alone == found["decoder"]


def test_inspect_counts_the_ids_of_each_side(folder: Path) -> None:
    found = ask("inspect", folder / "packed", "--vocabulary")
    special = {side["special_tokens"][1]["num_tokens"] for side in (found, found["decoder"])}
    assert [found["num_tokens"], found["decoder"]["num_tokens"], special] == [26, 33, {0, 4}]


def test_plan_is_what_pack_makes(folder: Path, tmp_path: Path) -> None:
    found = ask("plan", folder / "src", "--decoder", folder / "tgt")
    assert found == plan(folder / "src", decoder=folder / "tgt")
    assert [found["num_pairs"], found["num_tokens"], found["longest"]] == [5, 80, [15, 11]]
    assert found["num_dropped_pairs"] == {"decoder.empty": 1, "encoder.empty": 1}
    ways = [way for way in found["plans"] if "padded" in way["options"]]
    for number, way in enumerate(ways):
        output = tmp_path / str(number)
        pack = ("pack", folder / "src", "--decoder", folder / "tgt", "-o", output, "-q")
        assert run(*pack, *way["options"].split()).exit_code == 0
        made = inspect(output)
        assert way["num_batches"] == made["ledger"]["num_batches"]
        assert way["padding_ratio"] == made["both"]["padding_ratio"]
        assert way["decoder"]["padding_ratio"] == made["decoder"]["padding_ratio"]
        assert way["bucket_keys"] == made["bucket_keys"]


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_unpack_writes_the_pairs_in_their_order(folder: Path, tmp_path: Path, layout: str) -> None:
    shown = run("unpack", folder / layout, "--text", "-o", "-").stdout.splitlines()
    assert [json.loads(line) for line in shown] == [
        {
            "index": first,
            "text": source,
            "columns": {"lang": language},
            "decoder": {
                "index": second,
                "text": f"<bos>{target}<eos>",
                "columns": {"lang": language},
            },
        }
        for first, second, source, target, language in PAIRS
    ]
    result = run("unpack", folder / layout, "-o", tmp_path / "a.jsonl")
    assert result.stdout == f"{tmp_path}/a.jsonl: 4 pairs\n"
    assert unpack(folder / layout, tmp_path / "a.jsonl", side="decoder", overwrite=True) == 4
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    expected = [encode(pair[3], is_decoder=True) for pair in PAIRS]
    assert [json.loads(line)["ids"] for line in lines] == expected


def test_unpack_writes_both_sides_into_parquet(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    unpack(folder / "packed", tmp_path / "a.parquet", file_format="parquet")
    table = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert list(table) == ["index", "ids", "lang", "decoder.index", "decoder.ids", "decoder.lang"]
    assert table["ids"] == [encode(pair[2]) for pair in PAIRS]
    assert table["decoder.ids"] == [encode(pair[3], is_decoder=True) for pair in PAIRS]
    assert table["decoder.index"] == [pair[1] for pair in PAIRS]


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
