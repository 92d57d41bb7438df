"""Columns of two stores, or of shards: what `compare` finds is what a slow look finds."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from shard_reference import change_manifest

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.limits import LIMITS
from seqpack_cli.reporting.differences import compare
from seqpack_cli.reporting.terminal.difference_lines import show_differences
from seqpack_cli.reporting.wording import count_columns
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_any
from seqpack_cli.tokens.options import TargetOptions, TokenizeOptions
from seqpack_cli.tokens.tokenize_run import tokenize

Record = dict[str, Any]
KEEP = ("label:class", "score:float", "number:int", "id:text")


def store(
    folder: Path, name: str, records: Sequence[Record], keep: Sequence[str] = KEEP, **options: Any
) -> Path:
    """Tokenize records, always from the same file, into folder/name."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    tokenize([str(corpus)], folder / name, TokenizeOptions(keep=keep, **options), executor=HERE)
    return folder / name


def make_records(generator: random.Random, count: int) -> list[Record]:
    return [
        {
            "text": "x" * generator.randint(1, 9),
            "label": generator.choice(["ham", "spam", "überschuss"]),
            "score": generator.choice([0.0, 0.5, -1.25]),
            "number": generator.randint(-(2**63), 2**63 - 1),
            "id": "é" * generator.randint(0, 3) + str(number % 7),
        }
        for number in range(count)
    ]


def find(a: Path, b: Path) -> dict[str, Any]:
    """Compare two folders; what is found is JSON, and its lines fit the terminal."""
    found = compare(open_any(a), open_any(b))
    assert all(count_columns(line) <= 80 for line in show_differences(found))
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(4))
def test_values_are_compared_as_a_slow_look_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    generator = random.Random(seed)
    monkeypatch.setattr(LIMITS, "ids_per_block", generator.choice([1, 20, 1000]))
    monkeypatch.setattr(LIMITS, "mapped_ids", 50)
    records = make_records(generator, 40)
    others = [dict(record) for record in records]
    for _ in range(12):
        changed = generator.choice(make_records(generator, 3))
        name = generator.choice(["label", "score", "number", "id"])
        others[generator.randrange(40)][name] = changed[name]
    a = store(tmp_path, "a", records, part_bytes=generator.choice([1, 500, 10_000]))
    b = store(tmp_path, "b", others, part_bytes=generator.choice([500, 10_000]))
    found = find(a, b)["columns"]
    for values, name in zip(found["values"], ("label", "score", "number", "id"), strict=True):
        places = [
            {"sequence": index, "position": None, "a": record[name], "b": other[name]}
            for index, (record, other) in enumerate(zip(records, others, strict=True))
            if record[name] != other[name]
        ]
        assert values == {"name": name, "num_differing": len(places), "places": places[:5]}


def test_classes_are_compared_by_name(tmp_path: Path) -> None:
    """A class that only one side has moves the numbers of the others."""
    records = [{"text": "x", "label": label} for label in ("b", "c", "b", "d")]
    others = [{"text": "x", "label": label} for label in ("b", "c", "a", "d")]
    a = store(tmp_path, "a", records, ["label:class"])
    b = store(tmp_path, "b", others, ["label:class"])
    other_order = store(tmp_path, "other_order", records, ["label:class=d,c,b"])
    found = find(a, b)
    place = {"sequence": 2, "position": None, "a": "b", "b": "a"}
    assert found["columns"] == {
        "only_in_a": [],
        "only_in_b": [],
        "changed": [
            {
                "name": "label",
                "a": {"kind": "class", "only_classes": []},
                "b": {"kind": "class", "only_classes": ["a"]},
                "same_order": True,
                "same_numbers": False,
            }
        ],
        "same_order": True,
        "values": [{"name": "label", "num_differing": 1, "places": [place]}],
    }
    lines = show_differences(compare(open_any(a), open_any(b)))
    assert "                     the classes in both have other numbers" in lines
    found = find(a, other_order)
    assert [change["same_order"] for change in found["columns"]["changed"]] == [False]
    assert [values["num_differing"] for values in found["columns"]["values"]] == [0]
    assert found["verdict"] == "different options and columns; same sequences"


def test_columns_of_one_side_or_of_another_kind_are_listed(tmp_path: Path) -> None:
    records = [{"text": "x", "label": 1, "old": 1, "new": 1}]
    a = store(tmp_path, "a", records, ["label:class", "old"])
    b = store(tmp_path, "b", records, ["new", "label:int"])
    assert show_differences(compare(open_any(a), open_any(b)))[4:] == [
        "options                        A                        B",
        '  keep                         [{"name": "label", "kin… [{"name": "new", "kind"…',
        "",
        "columns",
        '  only in A          "old"',
        '  only in B          "new"',
        "  label              class in A, int in B",
        "",
        "sequences",
        "  in both            1",
        "  differ             0",
        "",
        "different options and columns; same sequences",
    ]


def test_values_that_differ_are_shown_with_their_place(tmp_path: Path) -> None:
    records = [{"text": "xy", "label": "ham", "id": "a\x1b[2J"} for _ in range(12)]
    others = [{**record, "id": "雨" * 60} for record in records]
    others[1]["label"] = "spam"
    a = store(tmp_path, "a", records, ["label:class", "id"])
    b = store(tmp_path, "b", others, ["label:class", "id"])
    wide = f'B "{"雨" * 10}…'
    assert show_differences(compare(open_any(a), open_any(b)))[7:] == [
        "columns",
        '  label              1 class only in B: "spam"',
        "  label              differs in 1 sequence",
        '    sequence 1       A "ham", B "spam"',
        "  id                 differs in 12 sequences",
        *(f'    sequence {index}       A "a\\u001b[2J", {wide}' for index in range(5)),
        "",
        "sequences",
        "  in both            12",
        "  differ             0",
        "",
        "different sources and columns; same sequences",
    ]


def test_long_values_are_shown_from_where_they_differ(tmp_path: Path) -> None:
    records = [{"text": "xy", "label": "雨" * 30, "id": "z" * 2_000} for _ in range(2)]
    a = store(tmp_path, "a", records, ["label:class", "id"])
    for record in records:
        record.update({name: f"{record[name]}B" for name in ("label", "id")})
    b = store(tmp_path, "b", records, ["label:class", "id"])
    shown = show_differences(compare(open_any(a), open_any(b)))
    assert shown[shown.index("columns") + 1 :][:7] == [
        '  label              1 class only in A: …雨雨"',
        '                     1 class only in B: …雨雨B"',
        "  label              differs in 2 sequences",
        *(f'    sequence {index}       A …雨雨", B …雨雨B"' for index in range(2)),
        "  id                 differs in 2 sequences",
        '    sequence 0       A …zzzz", B …zzzzB"',
    ]


def test_zeros_of_either_sign_differ(tmp_path: Path) -> None:
    """Of stores and of shards."""
    paths = []
    for name, zero in (("a", 0.0), ("b", -0.0)):
        tokens = store(tmp_path, name, [{"text": "x", "score": zero}], ["score"])
        pack(tokens, tmp_path / f"shards-{name}", PackOptions(), executor=HERE)
        paths.append((tokens, tmp_path / f"shards-{name}"))
    for a, b in zip(*paths, strict=True):
        (values,) = find(a, b)["columns"]["values"]
        assert str(values["places"]) == str([place(0, None, 0.0, -0.0)])


def test_equal_columns_are_no_difference(tmp_path: Path) -> None:
    records = make_records(random.Random(0), 5)
    a, b = (store(tmp_path, name, records) for name in "ab")
    found = find(a, b)
    assert found["identical"]
    assert "columns" not in show_differences(found)


TAGGED = ("label:class", "id", "tags:tags")


def make_tagged(folder: Path, name: str, records: Sequence[Record]) -> tuple[Path, list[Path]]:
    """Tokenize records with tags, and pack them in some layouts."""
    tokens = store(folder, name, records, TAGGED, part_bytes=300)
    layouts = ({"batch_size": 3}, {"layout": "padded"}, {"layout": "varlen", "max_tokens": 4})
    shards = []
    for number, options in enumerate(layouts):
        shards.append(folder / f"{name} packed {number}")
        pack(tokens, shards[-1], PackOptions(**options), executor=HERE)
    return tokens, shards


def test_values_of_shards_are_compared_by_sequence_whatever_the_layout(tmp_path: Path) -> None:
    records = [
        {"text": "abcdefg"[: 1 + n % 7], "label": n % 3, "id": str(n), "tags": [[0, 1, "X"]]}
        for n in range(20)
    ]
    others = [dict(record) for record in records]
    others[5] |= {"label": 7, "tags": [[1, 3, "X"]]}
    others[6] |= {"tags": [[0, 1, "Y"]]}
    others[9] |= {"id": "é", "text": "abx"}
    a, of_a = make_tagged(tmp_path, "a", records)
    b, of_b = make_tagged(tmp_path, "b", others)
    expected = [
        {"name": "label", "num_differing": 1, "places": [place(5, None, 2, 7)]},
        {"name": "id", "num_differing": 1, "places": [place(9, None, "9", "é")]},
        {
            "name": "tags",
            "num_differing": 2,
            "num_differing_tokens": 4,
            "places": [place(5, 0, "X", "O"), place(6, 0, "X", "Y")],
        },
    ]
    assert find(a, b)["columns"]["values"] == expected
    for one, other in zip(of_a, [*of_b[1:], of_b[0]], strict=True):
        assert find(one, other)["columns"]["values"] == expected
    assert find(of_a[0], of_a[1])["columns"]["changed"] == []


def test_targets_that_differ_are_counted_by_sequence_and_token(tmp_path: Path) -> None:
    """The same ids, of which other completions are targets; the third lacks one token."""
    pairs = [("ab", "cd"), ("efgh", ""), ("x", "yz")]
    others = [("a", "bcd"), ("efgh", ""), ("", "xy")]
    stores = []
    for name, texts in (("a", pairs), ("b", others)):
        records = [{"q": prompt, "r": completion} for prompt, completion in texts]
        targets = TargetOptions(prompt_field="q", completion_field="r")
        stores.append(store(tmp_path, name, records, (), targets=targets))
    counts = {"name": "targets", "num_differing": 2, "num_differing_tokens": 3}
    expected = {**counts, "places": [place(0, 1, 0, 1), place(2, 0, 0, 1)]}
    assert find(*stores)["columns"]["values"] == [expected]
    shards = [tmp_path / f"{tokens.name} packed" for tokens in stores]
    for tokens, folder in zip(stores, shards, strict=True):
        pack(tokens, folder, PackOptions(keep_without_target=True), executor=HERE)
    assert find(*shards)["columns"]["values"] == [expected]
    pack(stores[1], tmp_path / "short", PackOptions(drop_shorter=4), executor=HERE)
    shorter = find(shards[0], tmp_path / "short")
    assert shorter["verdict"] == "different columns; 1 sequence with identical ids, 2 only in A"
    lines = show_differences(compare(*map(open_any, stores)))
    assert "  targets            differs in 2 sequences, 3 tokens" in lines


def test_documents_of_equal_ids_and_text_may_differ_in_their_targets(tmp_path: Path) -> None:
    stores = []
    for name, record in (("a", {"q": "a", "r": "bc"}), ("b", {"q": "ab", "r": "c"})):
        targets = TargetOptions(prompt_field="q", completion_field="r")
        stores.append(store(tmp_path, name, [record], (), targets=targets))
    verdict = find(*stores)["verdict"]
    assert verdict == "different counts, sources, documents and columns; same sequences"


def place(sequence: int, position: int | None, a: object, b: object) -> Record:
    return {"sequence": sequence, "position": position, "a": a, "b": b}


def test_equal_arrays_of_other_class_names_are_not_equal_values(tmp_path: Path) -> None:
    records = make_records(random.Random(1), 8)
    tokens = store(tmp_path, "tokens", records)
    for name in "ab":
        pack(tokens, tmp_path / name, PackOptions(), executor=HERE)

    def swap(manifest: dict[str, Any]) -> None:
        names = manifest["columns"][0]["class_names"]
        names[0], names[1] = names[1], names[0]

    change_manifest(tmp_path / "b", swap)
    found = find(tmp_path / "a", tmp_path / "b")
    assert found["same_arrays"]
    assert not found["identical"]
    swapped = sorted({record["label"] for record in records})[:2]
    num_swapped = sum(record["label"] in swapped for record in records)
    assert found["columns"]["values"][0]["num_differing"] == num_swapped
