"""What `inspect`, `plan` and `diff` show: their numbers, and the lines on a terminal.

The numbers are compared with those of stores and shards that `oracle/` wrote and reads. The lines
are those of data/reports.txt.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from make_golden import words_tokenizer_json
from oracle.batches import PageBatch, read_batches
from oracle.stores import PER_TOKEN, PageStore
from page_sets import ALL, PAIRS, SOURCES, Sets, change_shard, write_stores
from pages import MEASURED, split_commands

from seqpack_cli import inspect, plan
from seqpack_cli.errors import OptionError

Json = dict[str, Any]
LINES = Path(__file__).parent / "data" / "reports.txt"
SPECIAL = {256: b"<pad>", 257: b"<bos>", 258: b"<eos>", 70_000: b"far"}  # of `bytes`
SHARES = (1, 10, 25, 50, 75, 90, 99)
SINGLE = ["lines", "whole", "ends", "kept", "overlap", "imported"]
TARGETS_FROM = ["plain", "answers"]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    folder = tmp_path_factory.mktemp("page")
    (folder / "sets").mkdir()
    return Sets(folder, write_stores(folder))


@pytest.fixture(autouse=True)
def here(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name stores and sets by relative paths."""
    monkeypatch.chdir(sets.folder)


every_set = pytest.mark.parametrize("name", ALL)


def ask(*arguments: object) -> Any:
    """Return the answer of a command as JSON; its lines fit the terminal."""
    shown = run(*arguments)
    assert shown.exit_code == 0, shown.stderr
    check_lines(shown.stdout)
    return json.loads(run(*arguments, "--json").stdout)


def check_lines(shown: str) -> None:
    """Assert that nothing is wider than a terminal, and that nothing moves its cursor."""
    for line in shown.split("\n"):
        assert sum(map(measure, line)) <= 80, line
        assert not any(unicodedata.category(x) in ("Cc", "Zl", "Zp", "Cs") for x in line), line
        assert not set(line) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), line


def measure(character: str) -> int:
    """Return the columns of a character."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 1 + (unicodedata.east_asian_width(character) in "WF")


def decode(ids: list[int]) -> str:
    return b"".join(SPECIAL.get(id_) or bytes([id_]) for id_ in ids).decode(errors="replace")


def share(part: int, whole: int) -> float:
    return round(part / max(whole, 1), 6)


def share_of_targets(part: int, whole: int) -> float:
    """Return the share; only all are 1, only none are 0."""
    return {0: 0.0, whole: 1.0}.get(part, min(max(share(part, whole), 1e-6), 1 - 1e-6))


# The numbers of columns and lengths, in plain Python


@dataclass
class Rows:
    """What is counted: the sequences of a store, or the rows of one side of shards."""

    lengths: list[int]
    columns: dict[str, list[Any]]  # values of rows, of all tokens a flat list
    described: list[Json]  # the columns, as the manifest has them
    entry: str


def rows_of_store(store: PageStore) -> Rows:
    described = store.manifest["columns"]
    columns = dict(store.columns)
    for column in described:
        if column["kind"] in PER_TOKEN:
            columns[column["name"]] = sum(columns[column["name"]], [])
    return Rows(list(map(len, store.sequences)), columns, described, "sequence")


def rows_of_side(batches: list[PageBatch]) -> Rows:
    """Return the rows in the order of the batches, without filler rows."""
    side, layout = batches[0].side, batches[0].manifest["layout"]
    entry = "sequence" if layout in ("varlen", "streams") else "row"
    found = Rows([], {each["name"]: [] for each in side["columns"]}, side["columns"], entry)
    for batch in batches:
        values, lengths = batch.columns, batch.arrays["lengths"].tolist()
        found.lengths += [length for length in lengths if length]
        for column in side["columns"]:
            name, beside = column["name"], values[column["name"]]
            for row, cells in enumerate(batch.cells):
                places = cells if column["kind"] in PER_TOKEN else [row] * bool(cells)
                found.columns[name] += [beside[place] for place in places]
    return found


def count_lengths(lengths: list[int]) -> Json:
    low, high, ordered = min(lengths), max(lengths), sorted(lengths)
    if high >= 64 * low:
        edges = [2**n for n in range(low.bit_length() - 1, high.bit_length() + 1)]
    else:
        width = -(-(high - low + 1) // 16)
        edges = [*range(low, high + width + 1, width)]
        edges = edges[: bisect_right(edges, high) + 1]
    return {
        "shortest": low,
        "longest": high,
        "mean": round(sum(lengths) / len(lengths), 2),
        "percentiles": {
            str(each): ordered[max(-(-each * len(lengths) // 100), 1) - 1] for each in SHARES
        },
        "histogram": [
            {
                "from": max(a, low),
                "to": min(b - 1, high),
                "num_sequences": sum(a <= length < b for length in lengths),
            }
            for a, b in pairwise(edges)
        ],
    }


def count_column(column: Json, rows: Rows) -> Json:
    """Return what `inspect` tells of a column."""
    values, kind = rows.columns[column["name"]], column["kind"]
    unit = "tokens" if kind in PER_TOKEN else f"{rows.entry}s"
    found = {"name": column["name"], "kind": kind, "unit": unit, "num_values": len(values)}
    if kind == "targets":
        return found | count_targets(values, rows)
    if "class_names" in column:
        return found | count_classes(values, column)
    return found | (count_texts(values) if kind == "text" else count_numbers(values))


def count_targets(values: list[int], rows: Rows) -> Json:
    ends = [*accumulate(rows.lengths, initial=0)]
    sums = [sum(values[a:b]) for a, b in pairwise(ends)]
    places = [min(10 * n // length, 9) for n, length in zip(sums, rows.lengths, strict=True)]
    return {
        "num_targets": sum(values),
        "share": share_of_targets(sum(values), len(values)),
        "row": rows.entry,
        "num_rows": len(sums),
        "num_rows_without": sums.count(0),
        "shares": [
            {"from": n / 10, "to": (n + 1) / 10, "count": places.count(n)} for n in range(10)
        ],
    }


def count_classes(values: list[Any], column: Json) -> Json:
    names = column["class_names"]
    counts = [sum(repr(value) == repr(name) for value in values) for name in names]
    order = sorted(range(len(names)), key=lambda number: (-counts[number], number))
    found: Json = {
        "num_classes": len(names),
        "num_unused_classes": counts.count(0),
        "classes": [
            {"name": names[n], "count": counts[n], "share": share(counts[n], sum(counts))}
            for n in order
        ],
    }
    if column["kind"] in PER_TOKEN:
        found["num_without_class"] = len(values) - sum(counts)
    return found


def count_texts(values: list[str]) -> Json:
    sizes = [len(text.encode()) for text in values]
    return {
        "num_bytes": sum(sizes),
        "longest": max(sizes),
        "num_empty": sizes.count(0),
        "example": next(filter(None, values), None),
    }


def count_numbers(values: list[float]) -> Json:
    low, high = min(values), max(values)
    if isinstance(low, int):
        starts: list[float] = [*range(low, int(high) + 1, -(-(int(high) - low + 1) // 8))]
        ends = [start - 1 for start in starts[1:]]
    else:
        parts = [n / 8 for n in range(8)]
        starts = sorted({low * (1 - part) + high * part for part in parts})
        ends = starts[1:]
    places = Counter(bisect_right(starts, value) - 1 for value in values)
    return {
        "smallest": low,
        "mean": pytest.approx(sum(values) / len(values), rel=1e-11),
        "largest": high,
        "histogram": [
            {"from": start, "to": end, "count": places[n]}
            for n, (start, end) in enumerate(zip(starts, [*ends, high], strict=True))
        ],
    }


def count_columns(rows: Rows) -> list[Json]:
    return [count_column(column, rows) for column in rows.described]


# Numbers of stores and shards


@pytest.mark.parametrize("name", [*SINGLE, *TARGETS_FROM])
def test_inspect_counts_a_store(sets: Sets, name: str) -> None:
    (store,) = [x for some in sets.stores.values() for x in some if x.folder.name == name][:1]
    found, rows, manifest = ask("inspect", name), rows_of_store(store), store.manifest
    assert found == json.loads(json.dumps(inspect(name)))
    fields = "made_by dtype vocab_size max_id pad_id bos_id eos_id unk_id tokenizer_blake3"
    assert {**found, "warnings": [], "target_options": None} == {
        "kind": "token store",
        "path": name,
        **{field: manifest.get(field) for field in fields.split()},
        "num_sources": len(manifest["sources"]),
        "num_parts": len(manifest["parts"]),
        "bytes": sum(file["bytes"] for part in manifest["parts"] for file in part["files"]),
        "ledger": manifest["ledger"],
        "duplicates": count_duplicates(store),
        "columns": count_columns(rows),
        "target_options": None,
        "warnings": [],
        "options": manifest["options"],
        "lengths": count_lengths(rows.lengths),
        "run": None,
    }


def count_duplicates(store: PageStore) -> Json:
    hashes = [store.hashes[document] for document in {*store.documents}]
    return {
        "num_documents_with_tokens": len(hashes),
        "num_distinct_documents": len({*hashes}),
        "num_duplicate_documents": len(hashes) - len({*hashes}),
    }


def test_lengths_far_apart_have_bins_that_double(tmp_path: Path) -> None:
    lengths = [2, 3, 3, 5, 60, 64, 127, 128]
    (tmp_path / "a.txt").write_text("\n".join("x" * length for length in lengths))
    run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "store", "-q")
    assert ask("inspect", tmp_path / "store")["lengths"] == count_lengths(lengths)


def count_side(batches: list[PageBatch]) -> Json:
    """Return the numbers that each side of shards has."""
    side, rows = batches[0].side, rows_of_side(batches)
    cells = sum(len(batch.arrays["data"]) for batch in batches)
    counts, total = side["ledger"]["stores"], sum(rows.lengths)
    assert (side["ledger"]["num_tokens"], side["ledger"]["num_padding_cells"]) == (
        total,
        cells - total,
    )
    return {
        **{name: side[name] for name in ("dtype", "pad_id", "vocab_size", "max_id")},
        "tokenizer_blake3": side["tokenizer_blake3"],
        "stores": [
            {
                **entry,
                "num_packed_sequences": packed["num_sequences"],
                "num_packed_tokens": packed["num_tokens"],
                "packed_share": share(packed["num_tokens"], total),
            }
            for entry, packed in zip(side["stores"], counts, strict=True)
        ],
        "ledger": side["ledger"],
        "padding_ratio": share(cells - total, cells),
        "columns": count_columns(rows),
        "lengths": count_lengths(rows.lengths),
    }


def add_up(ledgers: list[Json]) -> Json:
    """Return the counts of both sides of pairs together."""
    tokens, padding, repeated = (
        sum(ledger[f"num_{name}"] for ledger in ledgers)
        for name in ("tokens", "padding_cells", "repeated_tokens")
    )
    reasons = [{**ledger["num_dropped_sequences"]} for ledger in ledgers]
    dropped = [{**ledger["num_dropped_tokens"]} for ledger in ledgers]
    names = {**reasons[0], **reasons[1]}
    return {
        "num_pairs": ledgers[0]["num_sequences"],
        "num_tokens": tokens,
        "num_padding_cells": padding,
        "num_repeated_tokens": repeated,
        "padding_ratio": share(padding, tokens + padding),
        "num_dropped_pairs": {x: max(side.get(x, 0) for side in reasons) for x in names},
        "num_dropped_tokens": {x: sum(side.get(x, 0) for side in dropped) for x in names},
        "num_repeated_pairs": ledgers[0]["num_repeated_sequences"],
    }


@every_set
def test_inspect_counts_shards(sets: Sets, name: str) -> None:
    path, sides = sets[name], sets.sides(name)
    found, manifest = ask("inspect", f"sets/{name}"), sides[0][0].manifest
    assert {**found, "path": str(path)} == json.loads(json.dumps(inspect(path)))
    counted = [count_side(batches) for batches in sides]
    shares_rows = manifest["layout"] in ("varlen", "streams")
    rows = [len(batch.arrays["lengths"]) for batch in sides[0]]
    expected = {
        "kind": "shards",
        "path": f"sets/{name}",
        **{field: manifest[field] for field in ("layout", "padding_side", "bucket_keys")},
        **counted[0],
        "num_shards": len(manifest["shards"]),
        "bytes": sum(entry["bytes"] for entry in manifest["shards"]),
        "sequences_of_batch" if shares_rows else "rows_of_batch": {
            "fewest": min(rows),
            "most": max(rows),
        },
        "options": manifest["options"],
        "run": None,
    }
    assert (found.pop("batch_shape") is None) == (not shares_rows)
    for one in (found, found.get("decoder", {})):
        one.pop("target_options", None)
        one.pop("warnings", None)
    if name in PAIRS:
        expected["decoder"] = counted[1]
        expected["both"] = add_up([side["ledger"] for side in counted])
        alone = ask("inspect", f"sets/{name}", "--side", "decoder")
        assert alone["side"] == "decoder"
        assert {**alone, **counted[1]} == alone
    assert found == expected


@pytest.mark.parametrize("name", ["splits", "values", "pairs split"])
def test_inspect_counts_splits(sets: Sets, name: str) -> None:
    parts = [part for part in ALL if part.startswith(f"{name}/")]
    every = [path.name for path in sets[parts[0]].parent.iterdir() if path.is_dir()]
    found = ask("inspect", f"sets/{name}")
    manifest = json.loads(Path(f"sets/{name}/manifest.json").read_bytes())
    total = sum(entry["num_tokens"] for entry in manifest["splits"])
    assert sorted(each["name"] for each in found["splits"]) == sorted(every)
    for each, entry in zip(found["splits"], manifest["splits"], strict=True):
        of_split = inspect(f"sets/{name}/{entry['name']}")
        same = ["layout", "num_shards", "bytes", "padding_ratio", "stores", "ledger"]
        expected = {**entry, "token_share": share(entry["num_tokens"], total)}
        expected |= {"path": of_split["path"], **{field: of_split[field] for field in same}}
        if name == "pairs split":
            decoder = of_split["decoder"]
            expected["decoder"] = {field: decoder[field] for field in same if field in decoder}
            targets = decoder["columns"][0]["share"]
            expected["decoder"]["target_share"] = targets
            expected["both"] = of_split["both"]
        assert each == json.loads(json.dumps(expected))


# Batches and sequences


def spell_rows(batch: PageBatch, has_text: bool) -> Iterator[Json]:
    """Yield the rows of a batch, or its sequences and their places."""
    layout, options, columns = batch.manifest["layout"], batch.manifest["options"], batch.columns
    per_token = {each["name"] for each in batch.side["columns"] if each["kind"] in PER_TOKEN}
    for row, (ids, cells) in enumerate(zip(batch.rows, batch.cells, strict=True)):
        if not ids:
            continue
        found: Json = {"original_index": int(batch.arrays["original_indices"][row])}
        if layout == "streams":
            step, stream = divmod(cells[0], options["batch_size"])
            found |= {"stream": stream, "step": step}
        elif layout == "varlen" and options["batch_size"]:
            found |= dict(
                zip(("row", "column"), divmod(cells[0], options["max_tokens"]), strict=True)
            )
        elif layout == "varlen":
            found["cell"] = cells[0]
        if "piece_starts" in batch.arrays:
            found["piece_start"] = int(batch.arrays["piece_starts"][row])
        values = {
            name: [some[cell] for cell in cells] if name in per_token else some[row]
            for name, some in columns.items()
        }
        yield {
            **found,
            "length": len(ids),
            **count_row(values),
            "columns": values,
            "ids": ids,
            "text": decode(ids) if has_text else None,
        }


def count_row(values: Json) -> Json:
    if "targets" not in values:
        return {}
    number = sum(values["targets"])
    part = share_of_targets(number, len(values["targets"]))
    return {"num_targets": number, "target_share": part}


@every_set
def test_inspect_shows_each_batch(sets: Sets, name: str) -> None:
    sides, has_text = sets.sides(name), SOURCES[name] != "imported"
    numbers = [*range(len(sides[0]))]
    for number in numbers[:2] + numbers[2::7] + numbers[-1:]:
        found = ask("inspect", f"sets/{name}", "--batch", number)
        shards = [
            (s, n)
            for s, x in enumerate(sides[0][0].manifest["shards"])
            for n in range(x["num_batches"])
        ]
        shard, inside = shards[number]
        assert (found["batch"], found["batch_in_shard"]) == (number, inside)
        assert found["shard"] == f"shard-{shard:05d}.safetensors"
        answers = [found, found["decoder"]] if name in PAIRS else [found]
        for answer, batches in zip(answers, sides, strict=True):
            batch = batches[number]
            arrays, lengths = batch.arrays, batch.arrays["lengths"].tolist()
            for each in answer.get("rows", []) if name in PAIRS else []:
                each.pop("decoder_row", None), each.pop("encoder_row", None)
            rows = answer.get("rows", answer.get("sequences"))
            assert rows == list(spell_rows(batch, has_text))
            assert answer["num_tokens"] == sum(lengths)
            assert answer["num_padding_cells"] == len(arrays["data"]) - sum(lengths)
            assert answer["longest"] == max(lengths)
            if "rows" in answer:
                assert answer["num_rows"] == len(lengths)
                assert answer["num_filler_rows"] == lengths.count(0)
            else:
                assert answer["num_sequences"] == len(lengths)
                assert prod(answer["shape"]) == len(arrays["data"])
                assert answer["max_tokens"] == batch.manifest["options"]["max_tokens"]
            for field in {"batch_sizes", "row_indices", "resets", "next_ids"} & answer.keys():
                assert answer[field] == arrays[field].tolist()
            if "widths" in arrays:
                assert answer["width"] == int(arrays["widths"][0])
                assert answer["padding_side"] == batch.manifest["padding_side"]


@pytest.mark.parametrize("name", PAIRS)
def test_inspect_matches_the_rows_of_pairs(sets: Sets, name: str) -> None:
    encoder, decoder = sets.sides(name)
    for number, (batch, other) in enumerate(zip(encoder, decoder, strict=True)):
        found = ask("inspect", f"sets/{name}", "--batch", number)
        num_rows = int((batch.arrays["lengths"] > 0).sum())
        matched = other.arrays.get("encoder_rows", np.arange(num_rows))[:num_rows].tolist()
        assert [row["encoder_row"] for row in found["decoder"]["rows"]] == matched
        assert [matched[row["decoder_row"]] for row in found["rows"]] == [*range(num_rows)]


def name_stores(stores: list[PageStore]) -> list[PageStore]:
    return [store for store in stores for _ in store.sequences]


def spell_sequence(stores: list[PageStore], index: int, has_text: bool) -> Json:
    """Return a sequence of some stores, and where it comes from."""
    store, first = name_stores(stores)[index], 0
    for each in stores[: stores.index(store)]:
        first += len(each.sequences)
    inside = index - first
    ids, document = store.sequences[inside], store.documents[inside]
    pieces = [n for n, other in enumerate(store.documents) if other == document]
    source, record = store.places[inside]
    values = {name: values[inside] for name, values in store.columns.items()}
    found = {
        "sequence": index,
        "length": len(ids),
        "origin": {
            "source": source,
            "record": record,
            "document": document,
            "piece": pieces.index(inside),
            "num_pieces": len(pieces),
        },
        "columns": values,
        "ids": ids,
        "text": decode(ids) if has_text else None,
    }
    if len(stores) > 1:
        found["origin"]["store_name"] = store.folder.name
    return found


def check_tokens(tokens: list[Json], expected: Json) -> None:
    """Assert that tokens are those of a sequence, cut where characters end."""
    assert sum((token["ids"] for token in tokens), []) == expected["ids"]
    if expected["text"] is None:
        assert all(token["text"] is None for token in tokens)
    else:
        assert [token["text"] for token in tokens] == [decode(token["ids"]) for token in tokens]
        assert "".join(token["text"] for token in tokens) == expected["text"]
    assert all(len(token["ids"]) == 1 or min(token["ids"]) >= 128 for token in tokens)
    if "targets" in expected["columns"]:
        left = list(expected["columns"]["targets"])
        for token in tokens:
            some = [left.pop(0) for _ in token["ids"]]
            word = "all" if all(some) else "some" if any(some) else "none"
            assert token["targets"] == word


@pytest.mark.parametrize("name", [*SINGLE, *TARGETS_FROM])
def test_inspect_shows_each_sequence_of_a_store(sets: Sets, name: str) -> None:
    (store,) = [x for some in sets.stores.values() for x in some if x.folder.name == name][:1]
    for index in range(0, len(store.sequences), 4):
        found = ask("inspect", name, "--sequence", index)
        expected = spell_sequence([store], index, name != "imported")
        check_tokens(found.pop("tokens"), expected)
        assert found["origin"].pop("store") == name
        expected["origin"]["source"] = (
            found["origin"]["source"] if name == "imported" else str(expected["origin"]["source"])
        )
        assert found == {**expected, **count_row(expected["columns"])}


@pytest.mark.parametrize("name", [name for name in ALL if name not in PAIRS])
def test_inspect_finds_sequences_in_shards(sets: Sets, name: str) -> None:
    (batches,), stores = sets.sides(name), sets.stores[SOURCES[name]]
    has_text, rows = SOURCES[name] != "imported", sets.rows(name)[0]
    visits: dict[int, list[Json]] = {}
    for number, batch in enumerate(batches):
        for each in spell_rows(batch, has_text):
            index = each["original_index"]
            if not each.get("piece_start"):
                place = {
                    x: each[x] for x in ("row", "stream", "column", "step", "cell") if x in each
                }
                if batch.manifest["layout"] in ("packed", "padded"):
                    place = {"row": batch.arrays["original_indices"].tolist().index(index)}
                visits.setdefault(index, []).append({"batch": number, **place})
    for index in [*rows][::5]:
        found = ask("inspect", f"sets/{name}", "--sequence", index)
        expected = spell_sequence(stores, index, has_text)
        expected["columns"] = {x: y for x, y in rows[index].items() if x != "ids"}
        check_tokens(found.pop("tokens"), expected)
        seen = [{k: v for k, v in x.items() if k != "shard"} for x in found["visits"]]
        assert seen == visits[index]
        assert {**found, **found["visits"][0]} == found
        origin = {k: v for k, v in found["origin"].items() if k not in ("store", "source")}
        expected["origin"].pop("source")
        assert origin == expected["origin"]
        for field in ("length", "columns", "ids", "text"):
            assert found[field] == expected[field]


def test_inspect_finds_sequences_in_splits_and_pairs(sets: Sets) -> None:
    for part in ("train", "test"):
        (index, row), *_ = sets.rows(f"splits/{part}")[0].items()
        found = ask("inspect", "sets/splits", "--sequence", index)
        assert (found["split"], found["ids"]) == (part, row["ids"])
    encoder, decoder = sets.sides("pairs ties")
    index = int(encoder[0].arrays["original_indices"][1])
    place = decoder[0].arrays["encoder_rows"].tolist().index(1)
    found = ask("inspect", "sets/pairs ties", "--sequence", index)
    assert found["decoder"]["sequence"] == int(decoder[0].arrays["original_indices"][place])
    assert found["decoder"]["ids"] == decoder[0].rows[place]
    other = ask(
        "inspect",
        "sets/pairs ties",
        "--sequence",
        found["decoder"]["sequence"],
        "--side",
        "decoder",
    )
    assert other == found["decoder"]


# The vocabulary


@pytest.mark.parametrize(
    "name",
    [
        "ends",
        "kept",
        "imported",
        "packed",
        "padded left",
        "pairs",
        "padded filler",
        "varlen aligned",
        "streams wide",
        "two stores",
    ],
)
def test_vocabulary_counts_each_id(sets: Sets, name: str) -> None:
    if name == "two stores":
        paths, stores = ["kept", "more"], sets.stores["two"]
        found, ids = ask("inspect", *paths, "--vocabulary"), [x.sequences for x in stores]
        answers = [(found, sum(sum(ids, []), []), stores[0].manifest)]
    elif name in sets.stores:
        found, (store,) = ask("inspect", name, "--vocabulary"), sets.stores[name]
        answers = [(found, sum(store.sequences, []), store.manifest)]
    else:
        sides = sets.sides(name)  # makes the set, if no test has
        found = ask("inspect", f"sets/{name}", "--vocabulary")
        answers = [
            (answer, sum((sum(x.rows, []) for x in side), []), side[0].side)
            for answer, side in zip([found, found.get("decoder")], sides, strict=False)
        ]
    for answer, ids, manifest in answers:
        counts, is_wide = Counter(ids), manifest["max_id"] == 70_000
        known = [*range(259), *[70_000] * is_wide]
        special = [256, 257, 258]
        if name == "imported":
            known, special = [*range(manifest["max_id"] + 1)], []
        unused = [id_ for id_ in known if id_ not in counts]
        assert answer["num_tokens"] == len(ids)
        assert (answer["vocab_size"], answer["num_ids"]) == (manifest["vocab_size"], len(known))
        assert answer["num_never_used_ids"] == len(unused)
        assert answer["num_used_ids"] == len(known) - len(unused)
        assert answer["never_used_share"] == share(len(unused), len(known))
        for kind, is_chosen in (("ordinary", False), ("special", True)):
            some = [id_ for id_ in unused if (id_ in special) == is_chosen]
            listed = answer["never_used"][kind]
            assert (listed["num_ids"], listed["ids"]) == (len(some), some)
            assert [each["id"] for each in listed["examples"]] == some[:5]
        most = sorted(counts, key=lambda id_: (-counts[id_], id_))[:10]
        for field, chosen in (("most_frequent", most), ("special_tokens", special)):
            assert [(x["id"], x["num_tokens"], x["share"]) for x in answer[field]] == [
                (id_, counts[id_], share(counts[id_], len(ids))) for id_ in chosen
            ]
        assert answer["missing"]["num_ids"] == manifest["max_id"] + 1 - len(known)
        assert answer["missing"]["num_tokens"] == 0


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with unknown words, spelled special tokens and a hole in the vocabulary."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "words.json").write_bytes(words_tokenizer_json())
    lines = ["ab zz x", "x <eos> ab", "zz", "<bos>", "ab ab ab ab ab ab ab ab zz zz ab", "é zz"] * 2
    (folder / "a.txt").write_text("\n".join(lines))
    make = ("tokenize", folder / "a.txt", "-q", "--tokenizer", folder / "words.json")
    assert run(*make, "-o", folder / "tokens").exit_code == 0
    run(
        "pack",
        folder / "tokens",
        "-o",
        folder / "shards",
        "-q",
        "--layout",
        "varlen",
        "--max-tokens",
        7,
    )
    return folder


def test_vocabulary_shows_unknown_words_and_where(words: Path) -> None:
    tokens = [ask("inspect", words / "tokens", "--sequence", n) for n in range(12)]
    unk = inspect(words / "tokens")["unk_id"]
    places = [(each["sequence"], each["ids"].index(unk)) for each in tokens if unk in each["ids"]]
    for path in ("tokens", "shards"):
        found = ask("inspect", words / path, "--vocabulary")["unknown"]
        assert found["num_tokens"] == sum(each["ids"].count(unk) for each in tokens)
        assert found["id"] == unk
        shown = [(each["sequence"], each["position"]) for each in found["examples"]]
        assert len(shown) == 5
        if path == "tokens":
            assert shown == places[:5]
        for each in found["examples"]:
            sequence = tokens[each["sequence"]]
            assert sequence["ids"][each["position"]] == unk
            assert each["origin"]["record"] == sequence["origin"]["record"]
    spelled = ask("inspect", words / "tokens", "--vocabulary")["spelled_in_text"]
    assert spelled["num_tokens"] == 4
    assert len(spelled["tokens"]) == 2


# Plans


def measure_way(path: Path, is_pair: bool) -> Json:
    """Return the numbers of shards that were packed one way."""
    prefixes = ["", "decoder."][: 1 + is_pair]
    sides = [[x for x in read_batches(path, prefix) if x] for prefix in prefixes]
    manifest = sides[0][0].manifest
    cells = [[len(batch.arrays["data"]) for batch in side] for side in sides]
    ledgers = [side[0].side["ledger"] for side in sides]
    ratios = [
        share(x["num_padding_cells"], x["num_padding_cells"] + x["num_tokens"]) for x in ledgers
    ]
    total, padding = (sum(x[f"num_{n}"] for x in ledgers) for n in ("tokens", "padding_cells"))
    found: Json = {
        "num_batches": len(sides[0]),
        "padding_ratio": share(padding, padding + total),
        "most_cells": max(map(sum, zip(*cells, strict=True))),
        "bucket_keys": manifest["bucket_keys"],
    }
    if is_pair:
        sides_named = zip(("encoder", "decoder"), ratios, strict=True)
        return found | {name: {"padding_ratio": ratio} for name, ratio in sides_named}
    options, layout = manifest["options"], manifest["layout"]
    if layout in ("varlen", "streams"):
        num_rows = -(-total // options["max_tokens"])
        found["longest"] = max(cells[0]) // (options["batch_size"] or 1)
        found["lower_bound_batches"] = -(-num_rows // (options["batch_size"] or 1))
        found["num_split_sequences"] = ledgers[0]["num_split_sequences"]
    else:
        found["longest"] = max(
            int(batch.arrays["lengths"].max())
            if layout == "packed"
            else int(batch.arrays["widths"][0])
            for batch in sides[0]
        )
    return found


@pytest.mark.parametrize("name", ["lines", "targets", "pairs"])
def test_plan_tells_what_pack_makes(sets: Sets, name: str, tmp_path: Path) -> None:
    given = ["encoder", "decoder"] if name == "pairs" else [name]
    encoder, *decoder = ([str(x.folder) for x in sets.stores[side]] for side in given)
    both = [x for path in (decoder[0] if decoder else []) for x in ("--decoder", path)]
    found = ask("plan", *encoder, *both)
    for number, way in enumerate(found["plans"][::3]):
        options = way.pop("options")
        made = tmp_path / str(number)
        run("pack", *encoder, *both, "-o", made, "-q", "--no-shuffle", *shlex.split(options))
        expected = measure_way(made, bool(decoder))
        shutil.rmtree(made)
        assert way.pop("bytes") > 0  # estimated
        assert way == expected, options
    ledger = json.loads(json.dumps(inspect(sets["pairs"]))) if decoder else None
    if ledger is not None:
        assert {name: found[name] for name in ("num_pairs", "num_tokens")} == {
            name: ledger["both"][name] for name in ("num_pairs", "num_tokens")
        }
        assert found["num_dropped_pairs"] == ledger["both"]["num_dropped_pairs"]
        assert found["num_dropped_tokens"] == ledger["both"]["num_dropped_tokens"]
        assert found["longest"] == [
            ledger["lengths"]["longest"],
            ledger["decoder"]["lengths"]["longest"],
        ]
        assert found["decoder_stores"] == decoder[0]
    else:
        rows = sum((store.sequences for store in sets.stores[name]), [])
        targets = [
            sum(x)
            for store in sets.stores[name]
            for x in store.columns.get("targets", store.sequences)
        ]  # all tokens of a store without such a column are
        kept = [x for x, number in zip(rows, targets, strict=True) if number]
        assert (found["num_sequences"], found["num_tokens"]) == (len(kept), sum(map(len, kept)))
        assert found["num_sequences_without_target"] == len(rows) - len(kept)
        assert found["longest"] == max(map(len, kept))
    assert found["stores"] == encoder


def test_plan_counts_sequences_without_target_when_asked(sets: Sets) -> None:
    paths = [store.folder for store in sets.stores["targets"]]
    found = ask("plan", *paths, "--keep-without-target")
    assert found["num_sequences"] == sum(len(x.sequences) for x in sets.stores["targets"])
    assert found == plan(paths, keep_without_target=True)
    with pytest.raises(OptionError):
        plan("lines", keep_without_target=True)


# Lines


def split_lines() -> list[tuple[str, str]]:
    return split_commands(LINES.read_text()) if LINES.exists() else []


def trim(command: str, shown: str) -> str:
    """Leave out the sentences of `diff`."""
    return shown if not command.startswith("seqpack diff") else shown.rpartition("\n\n")[0] + "\n"


@pytest.mark.parametrize(("command", "shown"), split_lines())
def test_lines(one_thread: None, sets: Sets, command: str, shown: str) -> None:
    for name in ALL:
        if f"sets/{name}" in command or name.startswith("splits/") or "split" in name:
            sets[name]
    printed = run(*shlex.split(command)[1:])
    assert printed.exit_code == 0
    assert MEASURED.sub("#", trim(command, printed.stdout)) == MEASURED.sub("#", shown)
    if not command.startswith("seqpack verify"):
        check_lines(printed.stdout)


# Warnings

DOUBLE = "".join(
    f'{{"input_ids": {ids}}}\n' for ids in ([257, 5], [257, 257, 6], [5, 257, 257], [257, 257])
)
ASKED, ANSWERED = "tokenize --prompt-field p --completion-field c", '{"p": "a", "c": "b"}'
WARNINGS = [  # a file, the command that reads it, and what inspect says of what was made
    (DOUBLE, "import --tokenizer bytes", "2 sequences begin with two BOS tokens, the first is 1"),
    ('{"text": "<bos>a"}', "tokenize --bos <bos> --allow-special-tokens", "sequence 0 begins with"),
    ('{"text": "a"}', "tokenize --bos <bos>", ""),
    (ANSWERED, f"{ASKED} --eos <eos>", ""),
    (ANSWERED, ASKED, "no special token is a target: a model does not learn where an answer ends"),
    ('{"p": "", "c": "b"}', f"{ASKED} --eos <eos>", "every token is a target, although the texts"),
    ('{"p": "a", "c": ""}', ASKED, "no token is a target: a loss has nothing to learn from"),
]


@pytest.mark.parametrize(("data", "command", "warning"), WARNINGS)
def test_inspect_warns(tmp_path: Path, data: str, command: str, warning: str) -> None:
    (tmp_path / "a.jsonl").write_text(data)
    name, *options = command.split()
    run(name, tmp_path / "a.jsonl", "-o", tmp_path / "store", "-q", *options)
    keep = ["--keep-without-target"] if command.startswith(ASKED) else []
    run("pack", tmp_path / "store", "-o", tmp_path / "shards", "-q", *keep)
    for folder in (tmp_path / "store", tmp_path / "shards"):
        shown, warnings = run("inspect", folder), ask("inspect", folder)["warnings"]
        assert len(warnings) == shown.stderr.count("warning: ") == bool(warning)
        for each in warnings:
            assert each["message"].startswith(warning)
            assert f"warning: {each['message']}\nhint: {each['hint']}\n" in shown.stderr


# Differences


@every_set
def test_diff_finds_copies_identical(sets: Sets, name: str, tmp_path: Path) -> None:
    found = ask("diff", sets[name], sets.copy(name, tmp_path))
    assert found["identical"] is True
    for side in [found, *([found["decoder"]] if name in PAIRS else [])]:
        assert not side["options"] and not side["facts"] and not side["ledger"]
        assert side["sequences"]["num_differing"] == 0
        assert side["batches"]["num_same"] == side["batches"]["num_a"]


def list_places(found: Json) -> list[str]:
    """Return where two sets differ."""
    places = [
        f"{field} {each['name']}"
        for field in ("options", "facts", "ledger")
        for each in found[field]
    ]
    numbers = found["sequences"]
    places += [
        f"{field} {numbers[field]}"
        for field in ("num_differing", "num_only_in_a", "num_only_in_b")
        if numbers[field]
    ]
    columns = found["columns"] or {"values": []}
    for field in ("only_in_a", "only_in_b"):
        places += [f"{field} {column}" for column in columns.get(field, [])]
    places += [
        f"{each['name']} {each['num_differing']}"
        for each in columns["values"]
        if each["num_differing"]
    ]
    batches = found["batches"]
    if batches and batches["num_same"] < max(batches["num_a"], batches["num_b"]):
        places.append(f"batch {batches['first']['batch']}")
    return places


def add_one(name: str, place: int, arrays: dict[str, np.ndarray]) -> None:
    arrays[name][place] += 1


CHANGED: list[tuple[str, str, int, list[str]]] = [
    ("packed", "data", 0, ["num_differing 1"]),
    ("padded left", "data", -1, ["num_differing 1"]),
    ("packed columns", "column.id", 1, ["id 1"]),
    ("padded filler", "column.score", 0, ["score 1"]),
]


@pytest.mark.parametrize(("name", "array", "place", "places"), CHANGED)
def test_diff_names_the_changed_place(
    sets: Sets, tmp_path: Path, name: str, array: str, place: int, places: list[str]
) -> None:
    copy = sets.copy(name, tmp_path)
    change_shard(copy, partial(add_one, array, place))
    for paths in ((sets[name], copy), (copy, sets[name])):
        found = ask("diff", *paths)
        assert found["identical"] is False
        assert list_places(found) == places


PACKED: list[tuple[list[str], list[str], list[str]]] = [
    (["--shuffle"], ["--shuffle", "--seed", "1"], ["options seed", "batch 0"]),
    ([], ["--shard-bytes", "90000"], ["options shard_bytes"]),
    ([], ["--drop-column", "title"], ["options drop_column", "only_in_a title"]),
    (["--order", "none"], [], ["options order", "batch 0"]),
]


@pytest.mark.parametrize(("given", "other", "places"), PACKED)
def test_diff_names_the_changed_option(
    tmp_path: Path, given: list[str], other: list[str], places: list[str]
) -> None:
    for name, options in (("a", given), ("b", other)):
        run("pack", "kept", "-o", tmp_path / name, "-q", "--batch-size", 4, *options)
    found = list_places(ask("diff", tmp_path / "a", tmp_path / "b"))
    assert found == places


def test_diff_counts_missing_and_shared_documents(tmp_path: Path) -> None:
    lines = ["one", "two", "three", "two", "four"]
    for name, some in (("a", lines), ("b", lines[:3]), ("c", ["zero", "two", "one"])):
        (tmp_path / f"{name}.txt").write_text("\n".join(some))
        run("tokenize", tmp_path / f"{name}.txt", "-o", tmp_path / name, "-q")
    found = ask("diff", tmp_path / "a", tmp_path / "b")
    assert found["sequences"]["num_only_in_a"] == 2
    assert found["sequences"]["first_only_in_a"] == 3
    documents = found["documents"]
    fields = ("num_in_a", "num_shared_in_a", "num_in_b", "num_shared_in_b", "num_shared_texts")
    assert [documents[field] for field in fields] == [5, 4, 3, 3, 3]
    found = ask("diff", tmp_path / "a", tmp_path / "c")
    assert [found["documents"][field] for field in fields] == [5, 3, 3, 2, 2]
    assert found["sequences"]["num_differing"] == 2
    run("pack", tmp_path / "a", "-o", tmp_path / "shards", "-q")
    for name, by_number in (("a", ""), ("c", " by number; the token stores differ")):
        run("pack", tmp_path / name, "-o", tmp_path / f"{name}-2", "-q", "--batch-size", 2)
        shown = run("diff", tmp_path / "shards", tmp_path / f"{name}-2").stdout
        assert re.search(rf"in both +\d{by_number}\n", shown)
        assert ("  in both, for example\n" in shown) is (name == "c")
    for each in found["documents"]["examples"]:
        texts = [
            (tmp_path / f"{side}.txt").read_text().split()[each[x]["record"] - 1]
            for side, x in (("a", "a"), ("c", "b"))
        ]
        assert texts[0] == texts[1]


def test_diff_refuses_a_store_and_shards(sets: Sets) -> None:
    assert run("diff", "lines", sets["packed"]).exit_code == 2


# Texts of all scripts


ODD = [
    "\u001b[31m\u202e",
    "海の上は",
    "e\u0301" * 30,
    "🛶👩‍👩‍👧",
    "عربي",
    "\x9b\x07\u2028",
    "ก็ a",
    "x" * 90,
]


def test_lines_fit_the_terminal_whatever_the_texts(tmp_path: Path) -> None:
    drawn = random.Random(5)
    records = [
        {
            "text": "".join(drawn.choices(ODD, k=drawn.randint(1, 5))) or "x",
            "title": drawn.choice(ODD),
            "label": drawn.choice(ODD),
        }
        for _ in range(12)
    ]
    name = "a\u202e\u001b.jsonl"
    (tmp_path / name).write_text("\n".join(map(json.dumps, records)))
    keep = ("--keep", "title:text", "--keep", "label:class")
    made = run("tokenize", tmp_path / name, "-o", tmp_path / "tokens", "-q", *keep)
    assert made.exit_code == 0, made.stderr
    run("pack", tmp_path / "tokens", "-o", tmp_path / "shards", "-q")
    run("pack", tmp_path / "tokens", "-o", tmp_path / "few", "-q", "--drop-longer", 90)
    for path in (tmp_path / "tokens", tmp_path / "shards"):
        for question in ([], ["--sequence", 3], ["--vocabulary"]):
            ask("inspect", path, *question)
    ask("inspect", tmp_path / "shards", "--batch", 0)
    ask("plan", tmp_path / "tokens")
    ask("diff", tmp_path / "shards", tmp_path / "few")
