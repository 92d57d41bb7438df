"""Every reader and exporter on stores and shards that were written from docs/formats.md alone.

`tests/oracle/` writes them and reads them back in plain Python; what the package reads is compared
with that, batch by batch, row by row and file by file.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import random
import re
import resource
import shutil
import sys
import types
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors
import safetensors.numpy
import tokenizers
from batch_checks import check_batch
from blake3 import blake3
from command import run
from oracle.batches import join_rows, read_batches
from oracle.imports import Documents
from oracle.shards import read_pairs, read_streams
from oracle.stores import PageStore
from oracle.stores import read_store as read_page
from page_sets import (
    ALL,
    EOS,
    PAIRS,
    SETS,
    SOURCES,
    Arrays,
    Exported,
    Rows,
    Sets,
    change_shard,
    draw_value,
    edit,
    find_source,
    write_stores,
)

from seqpack_cli import (
    Batch,
    Progress,
    Shard,
    ShardSet,
    diff,
    export,
    inspect,
    open_shards,
    open_store,
    unpack,
)
from seqpack_cli.errors import DataError, FolderError, MachineError, OptionError


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    folder = tmp_path_factory.mktemp("page")
    (folder / "sets").mkdir()
    return Sets(folder, write_stores(folder))


every_set = pytest.mark.parametrize("name", ALL)


# Batches


def list_ways(shards: ShardSet) -> list[Callable[[int], Batch]]:
    """Return the ways to read a batch."""
    number, again = len(shards), pickle.loads(pickle.dumps(shards))  # noqa: S301 - our own
    return [
        shards.__getitem__,
        shards.take,
        lambda place: shards.take(place, bytes_kept=0),
        lambda place: shards[place - number],
        lambda place: again[np.int64(place)],
        lambda place: again.take(place - number),
    ]


def check_sets(sets: Sets, name: str) -> None:
    """Compare every batch of a set with the page's reading, each read in another way."""
    whole = open_shards(sets[name])
    assert (whole.decoder is None) == (len(sets.sides(name)) == 1)
    for pages, shards in zip(sets.sides(name), [whole, whole.decoder], strict=False):
        assert shards is not None
        number, ways = len(pages), list_ways(shards)
        assert len(shards) == number == len(list(shards))
        for place, page in enumerate(pages):
            check_batch(shards, ways[place % len(ways)](place), page)
        for batch, page in zip(shards, pages, strict=True):
            assert batch.data.tolist() == page.arrays["data"].tolist()
        some = slice(number - 1, None, -max(number // 5, 1))
        for batch, page in zip(shards[some], pages[some], strict=True):
            check_batch(shards, batch, page)
        for place in (-number - 1, number):
            for read in (shards.__getitem__, shards.take):
                with pytest.raises(IndexError, match=f"^batch {place} of {number}$"):
                    read(place)


@every_set
def test_batches_are_those_of_the_page(sets: Sets, name: str) -> None:
    check_sets(sets, name)


@every_set
def test_sequences_of_a_set_are_those_of_its_stores(sets: Sets, name: str) -> None:
    """So says the page's reader, with which all others are compared."""
    for rows, source in zip(sets.rows(name), [SOURCES[name], "decoder"], strict=False):
        sequences = [ids for store in sets.stores[source] for ids in store.sequences]
        assert {index: row["ids"] for index, row in rows.items()} == {
            index: sequences[index] for index in rows
        }


@pytest.mark.parametrize("name", ["packed files", "padded", "varlen chunks", "pairs"])
def test_shard_is_a_sequence_of_its_batches(sets: Sets, name: str) -> None:
    shards = open_shards(sets[name])
    assert shards.num_shards == len(list(sets[name].glob("shard-*"))) > 1
    pages, first = sets.sides(name)[0], 0
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        assert isinstance(shard, Shard)
        assert shard is shards.open_shard(number)
        assert shard.path == sets[name] / f"shard-{number:05d}.safetensors"
        assert shard.first_batch == first
        own = pages[first : first + len(shard)]
        for place, page in enumerate(own):
            check_batch(shards, shard[place], page)
            check_batch(shards, shard.take(place), page)
            assert shards.find_name(first + place) == shard.path.name
        for batch, page in zip(shard[::-1], own[::-1], strict=True):
            check_batch(shards, batch, page)
        rows = [row for page in own for row in page.rows]
        order = random.Random(number).sample(range(len(rows)), len(rows))
        assert [shard.row(place).tolist() for place in order] == [rows[place] for place in order]
        stored = safetensors.numpy.load_file(shard.path)
        assert {each: array.tolist() for each, array in shard.tensors.items()} == {
            each: array.tolist() for each, array in stored.items() if "decoder." not in each
        }
        shard.check_digest()
        with pytest.raises(IndexError, match=f"^batch {len(shard)} of {len(shard)}$"):
            shard[len(shard)]
        first += len(shard)
    assert first == len(shards) == len(pages)


def test_streams_carry_the_state_through_sequences(sets: Sets) -> None:
    """Between two resets lies a run of tokens of one sequence, across any number of batches."""
    name = "streams columns"
    sequences, joined = [row["ids"] for row in sets.rows(name)[0].values()], list[int]()
    num_torn = 0
    for ids, next_ids in read_streams(sets[name]):
        assert (next_ids[-1], -1 in next_ids[:-1]) == (-1, False)
        joined += ids
        if joined in sequences:
            sequences.remove(joined)
            joined = []
        else:  # the stream ends in the middle of it, and the next begins with the rest
            num_torn += 1
    assert (sequences, joined) == ([], [])
    assert 0 < num_torn < open_shards(sets[name]).manifest["options"]["batch_size"]


# Unpack


def drop_overlap(row: dict[str, Any]) -> dict[str, Any]:
    """Return a sequence without the tokens that repeat the one before."""
    first = row.get("overlap", 0)
    return {name: each[first:] if isinstance(each, list) else each for name, each in row.items()}


def expect_sides(sets: Sets, name: str, *, as_text: bool = False) -> list[dict[str, Any]]:
    """Return what unpack writes of each sequence, or of each pair: `index`, `ids` and columns."""
    sides = list[Rows]()
    for rows, prefix in zip(sets.rows(name), ["", "decoder."], strict=False):
        cut = {index: drop_overlap(row) for index, row in rows.items()}
        if as_text:
            path = sets[name] / f"{prefix}tokenizer.json"
            decoder = tokenizers.Tokenizer.from_file(str(path))
            for row in cut.values():
                row["text"] = decoder.decode(row.pop("ids"), skip_special_tokens=False)
        sides.append(cut)
    if len(sides) == 1:
        return [{"index": index, **row} for index, row in sides[0].items()]
    pairs = sorted(set(read_pairs(sets[name])))
    return [
        {
            **{"index": first, **sides[0][first]},
            **{f"decoder.{key}": value for key, value in sides[1][second].items()},
            "decoder.index": second,
        }
        for first, second in pairs
    ]


def flatten_line(line: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields of a line beside each other, as they are in Parquet."""
    found = {**line, **line.get("columns", {})}
    found = {f"{prefix}{name}": found[name] for name in found if name not in ("columns", "decoder")}
    return {**found, **flatten_line(line["decoder"], "decoder.")} if "decoder" in line else found


def read_lines(text: str) -> list[dict[str, Any]]:
    assert text.endswith("\n")
    return [flatten_line(json.loads(line)) for line in text.splitlines()]


def check_unpack(sets: Sets, name: str, folder: Path) -> None:
    """Unpack into JSON lines, and compare them and the progress."""
    advanced, totals = list[int](), list[int]()
    progress = Progress(on_total=totals.append, on_advance=advanced.append)
    number = unpack(sets[name], folder / "rows.jsonl", progress=progress)
    expected = expect_sides(sets, name)
    assert read_lines((folder / "rows.jsonl").read_text()) == expected
    assert number == len(expected)
    lengths = [page.arrays["lengths"] for side in sets.sides(name) for page in side]
    assert totals == [sum(advanced)] == [np.count_nonzero(np.concatenate(lengths))]


@every_set
def test_unpack_writes_each_sequence_once_in_the_order_of_the_stores(
    sets: Sets, tmp_path: Path, name: str
) -> None:
    check_unpack(sets, name, tmp_path)


WITH_TEXT = [name for name in ALL if name not in ("packed imported",)]


@pytest.mark.parametrize("name", [*WITH_TEXT[::3], "pairs ties"])
def test_unpack_writes_the_text_of_each_sequence(sets: Sets, name: str) -> None:
    result = run("unpack", sets[name], "--text", "-o", "-")
    assert read_lines(result.stdout) == expect_sides(sets, name, as_text=True)
    assert result.exit_code == 0


def test_unpack_writes_plain_json_lines(sets: Sets, tmp_path: Path) -> None:
    result, rows = run("unpack", sets["packed"], "-o", "-"), sets.rows("packed columns")[0]
    first = sets.rows("packed")[0][0]["ids"]
    assert result.stdout.splitlines()[0] == f'{{"index": 0, "ids": {first}}}'
    path = tmp_path / "rows"
    result = run("unpack", sets["packed columns"], "-o", path, "--json")
    assert json.loads(result.stdout) == {"num_sequences": len(rows), "file": str(path)}
    columns = json.loads(path.read_text().splitlines()[0])["columns"]
    assert columns == {name: value for name, value in rows[0].items() if name != "ids"}


def name_type(kind: pa.DataType) -> str:
    """Return the name of a type, whatever the size of its offsets, and of the items of a list."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {name_type(kind.value_type)}"
    return str(kind).removeprefix("large_")


TYPES = {"int": "int64", "float": "double", "text": "string", "targets": "list of uint8"}
TYPES |= {"tags": "list of string"}
CLASS_TYPES = {bool: "bool", str: "string", int: "int64", float: "double"}


def expect_types(manifest: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the types of the columns of one side in Parquet."""
    return {
        f"{prefix}{column['name']}": TYPES.get(column["kind"])
        or CLASS_TYPES[type(column["class_names"][0])]
        for column in manifest["columns"]
    }


def check_types(schema: pa.Schema, expected: dict[str, str]) -> None:
    assert {each.name: name_type(each.type) for each in schema} == expected
    assert [each.name for each in schema] == list(expected)
    assert not any(each.nullable for each in schema)


@pytest.mark.parametrize("name", [*WITH_TEXT[1::3], "padded targets", "pairs", "pairs split/a"])
def test_parquet_of_unpack_has_what_the_lines_have(sets: Sets, tmp_path: Path, name: str) -> None:
    path, as_text = tmp_path / "rows.parquet", len(name) % 2 == 0
    number = unpack(sets[name], path, as_text=as_text, file_format="parquet")
    expected = expect_sides(sets, name, as_text=as_text)
    assert pq.read_table(path).to_pylist() == expected
    manifest = json.loads((sets[name] / "manifest.json").read_bytes())
    types, of_ids = dict[str, str](), {"text": "string"} if as_text else {"ids": "list of int32"}
    for prefix in ["", "decoder."][: len(sets.sides(name))]:
        types |= {f"{prefix}index": "int64"}
        types |= {f"{prefix}{each}": kind for each, kind in of_ids.items()}
        types |= expect_types(manifest["decoder"] if prefix else manifest, prefix)
    metadata = pq.read_metadata(path)
    check_types(pq.read_schema(path), types)
    assert metadata.num_rows == number == len(expected)
    mark = json.loads(metadata.metadata[b"seqpack.unpack"])
    assert (mark["format"], mark["num_rows"]) == ("seqpack.unpack", number)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_unpack_writes_one_side_of_pairs(sets: Sets, name: str, side: str) -> None:
    result, start = run("unpack", sets[name], "--side", side, "-o", "-"), "decoder."
    assert read_lines(result.stdout) == [
        {
            key.removeprefix(start): row[key]
            for key in row
            if key.startswith(start) == (side == "decoder")
        }
        for row in expect_sides(sets, name)
    ]


def test_commands_refuse_sets_that_they_can_not_read(sets: Sets, tmp_path: Path) -> None:
    one = f"these are splits: name one of them, such as {sets['splits/train']}"
    for command, name, code, fragment in (
        ("unpack --side encoder", "packed", 2, "holds no pairs"),
        ("unpack --text", "packed imported", 2, "has no tokenizer"),
        ("unpack", "splits", 4, one),
        ("export", "splits", 4, one),
        ("export --to megatron", "splits", 4, one),
    ):
        result = run(*command.split(), sets[name], "-o", tmp_path / "out")
        assert (result.exit_code, fragment in result.stderr) == (code, True), command
    assert not any(tmp_path.iterdir())


# Export


def label(ids: list[int], targets: list[int] | None) -> list[int]:
    """Return the labels of ids."""
    return ids if targets is None else [i if t else -100 for i, t in zip(ids, targets, strict=True)]


def read_parquet(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], pa.Schema]:
    """Return the rows of a folder of Parquet files, their marks, and their schema."""
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"part-{n:05d}.parquet" for n in range(len(files))]
    marks = [json.loads(pq.read_metadata(file).metadata[b"seqpack.export"]) for file in files]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return rows, marks, pq.read_schema(files[0])


def check_marks(marks: list[dict[str, Any]], folder: Path, source: Exported) -> None:
    """Check that files say what they were made from, and how many rows they hold."""
    digest = blake3((source.path / "manifest.json").read_bytes()).hexdigest()
    about = {"format": "seqpack.export", "source_format": source.manifest["format"]}
    for mark, file in zip(marks, sorted(folder.iterdir()), strict=True):
        num_rows = pq.read_metadata(file).num_rows
        assert mark == {**about, "source_blake3": digest, "num_rows": num_rows}


def check_parquet(sets: Sets, name: str, folder: Path) -> None:
    """Export rows of sequences, and compare them."""
    source = find_source(sets, name)
    found = export(source.path, folder)
    expected = []
    for row, document in zip(source.rows, source.documents, strict=True):
        ids, targets = row["ids"], row.get("targets")
        made: dict[str, Any] = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        made["labels"] = label(ids, targets)
        if source.has_documents:
            made["document"] = document
        columns = {key: value for key, value in row.items() if key not in ("ids", "targets")}
        expected.append({**made, **columns})
    rows, marks, schema = read_parquet(folder)
    assert rows == expected
    types = {"input_ids": "list of int32", "attention_mask": "list of int8"}
    types |= {"labels": "list of int32"} | ({"document": "int64"} if source.has_documents else {})
    columns = expect_types(source.manifest)
    columns.pop("targets", None)
    check_types(schema, types | columns)
    check_marks(marks, folder, source)
    length, files = (
        sum(map(len, source.sequences)),
        [str(path) for path in sorted(folder.iterdir())],
    )
    numbers = {"num_rows": len(rows), "num_tokens": length}
    assert found == {"format": "parquet", **numbers, "files": files}


def check_packed_rows(sets: Sets, name: str, folder: Path) -> None:
    """Export the packed rows of varlen shards, and compare them."""
    found, expected, length = export(sets[name], folder), list[dict[str, Any]](), 0
    manifest = json.loads((sets[name] / "manifest.json").read_bytes())
    for page in sets.sides(name)[0]:
        of_rows = page.arrays.get("row_indices", np.zeros(len(page.rows), int)).tolist()
        for _, some in groupby(range(len(of_rows)), of_rows.__getitem__):
            made: dict[str, list[int]]
            made = {"input_ids": [], "labels": [], "seq_lengths": [], "position_ids": []}
            for row in some:
                ids, targets = page.rows[row], page.columns.get("targets")
                targets = [1 if targets is None else targets[cell] for cell in page.cells[row]]
                made["input_ids"] += ids
                made["labels"] += [-100, *label(ids, targets)[1:]]
                made["seq_lengths"].append(len(ids))
                made["position_ids"] += range(len(ids))
                length += len(ids)
            expected.append(made)
    rows, marks, schema = read_parquet(folder)
    assert rows == expected
    check_types(schema, dict.fromkeys(expected[0], "list of int32"))
    check_marks(marks, folder, Exported(sets[name], [], [], 0, manifest))
    assert (found["num_rows"], found["num_tokens"]) == (len(rows), length)


def read_pair(prefix: Path, dtype: str) -> Documents:
    """Read an indexed dataset, as docs/formats.md describes a part of a store."""
    index = prefix.with_name(f"{prefix.name}.idx").read_bytes()
    number, num_firsts = (int.from_bytes(index[at : at + 8], "little") for at in (18, 26))
    assert index[:18] == b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes(
        [4 + 4 * (dtype == "uint16")]
    )
    lengths = np.frombuffer(index, "<i4", number, 34)
    starts = np.frombuffer(index, "<i8", number, 34 + 4 * number)
    firsts = np.frombuffer(index, "<i8", num_firsts, 34 + 12 * number)
    assert len(index) == 34 + 12 * number + 8 * num_firsts
    ids = np.fromfile(prefix.with_name(f"{prefix.name}.bin"), dtype)
    size = ids.itemsize
    assert starts.tolist() == [int(sum(lengths[:n])) * size for n in range(number)]
    sequences = [
        ids[s // size : s // size + n].tolist() for s, n in zip(starts, lengths, strict=True)
    ]
    assert sum(lengths) == len(ids)
    return [sequences[first:end] for first, end in pairwise(firsts.tolist())]


def check_megatron(sets: Sets, name: str, prefix: Path) -> None:
    """Export an indexed dataset, and compare its documents."""
    source, notices = find_source(sets, name), list[str]()
    totals, advanced = list[int](), list[int]()
    progress = Progress(totals.append, advanced.append, on_notice=notices.append)
    found = export(source.path, prefix, to="megatron", progress=progress)
    assert totals == [sum(advanced)]
    expected: Documents = [[] for _ in range(source.num_documents)]
    for ids, document in zip(source.sequences, source.documents, strict=True):
        expected[document].append(ids)
    assert read_pair(prefix, source.manifest["dtype"]) == expected
    assert {each: found[each] for each in found if each.startswith("num_")} == {
        "num_documents": len(expected),
        "num_sequences": len(source.rows),
        "num_tokens": sum(map(len, source.sequences)),
    }
    assert found["files"] == [f"{prefix}.bin", f"{prefix}.idx"]
    columns = [key for key in source.rows[0] if key not in ("ids", "targets")]
    assert any("targets" in notice for notice in notices) == ("targets" in source.rows[0])
    assert any("left out" in notice for notice in notices) == bool(columns)
    assert all(column in notices[-1] for column in columns)


def check_nanogpt(sets: Sets, name: str, path: Path, eos: int | None = None) -> None:
    """Export one file of ids with end tokens, and compare it."""
    source, end = find_source(sets, name), EOS if eos is None else eos
    found = export(source.path, path, to="nanogpt", eos=eos)
    texts: dict[int, list[int]] = {}
    for row, document in zip(source.rows, source.documents, strict=True):
        texts.setdefault(document, []).extend(drop_overlap(row)["ids"])
    missing = [ids for ids in texts.values() if ids[-1] != end]
    inside = sum(ids[:-1].count(end) for ids in texts.values())
    expected = [i for ids in texts.values() for i in [*ids, *[end] * (ids[-1] != end)]]
    assert np.fromfile(path, "<u2").tolist() == expected
    assert {each: found[each] for each in found if each.startswith("num_")} == {
        **{"num_documents": len(texts), "num_tokens": len(expected)},
        **{"num_end_tokens_added": len(missing), "num_end_tokens_inside": inside},
    }
    assert found["files"] == [str(path)]


def check_exports(sets: Sets, name: str, folder: Path) -> None:
    """Export to every format that can hold a store or shards, and compare the files."""
    has_rows = name.startswith(("varlen", "values"))
    (check_packed_rows if has_rows else check_parquet)(sets, name, folder / "parquet")
    check_megatron(sets, name, folder / "megatron")
    if "imported" not in name:
        check_nanogpt(sets, name, folder / "nanogpt", eos=None if len(name) % 2 else 97)


STORES = ["lines", "whole", "ends", "kept", "overlap", "imported"]


@pytest.mark.parametrize("name", [*STORES, *SETS])
def test_files_of_export_have_what_the_source_has(sets: Sets, tmp_path: Path, name: str) -> None:
    check_exports(sets, name, tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "error", "fragment"),
    [
        ("lines", {"to": "nanogpt", "eos": 259}, OptionError, "expected an id from 0 to 258"),
        ("lines", {"to": "nanogpt", "eos": -1}, OptionError, "not a token of"),
        ("imported", {"to": "nanogpt"}, OptionError, "no end token is known"),
        ("imported", {"to": "nanogpt", "eos": 69_999}, DataError, "id 69,999 does not fit uint16"),
        ("imported", {"to": "nanogpt", "eos": 65_535}, DataError, "id 69,999 does not fit uint16"),
        ("lines", {"to": "parquet", "eos": 5}, OptionError, "--eos has no effect"),
        ("lines", {"to": "csv"}, ValueError, "to is 'csv'"),
        ("pairs", {}, OptionError, "holds pairs"),
        ("lines", {"to": "megatron", "output": "a.bin"}, OptionError, "hint: -o .*/a$"),
        ("lines", {"to": "megatron", "output": "b.idx"}, OptionError, "hint: -o .*/b$"),
        ("lines", {"to": "megatron", "output": ".idx"}, OptionError, "hint: -o .*/dataset$"),
    ],
)
def test_export_refuses_what_a_format_cannot_hold(
    sets: Sets, tmp_path: Path, name: str, options: dict[str, Any], error: Any, fragment: str
) -> None:
    options, path = {**options}, sets[name] if name in ALL else sets.stores[name][0].folder
    with pytest.raises(error, match=fragment):
        export(path, tmp_path / options.pop("output", "out"), **options)
    assert not any(tmp_path.iterdir())


def test_commands_say_what_they_wrote(sets: Sets, tmp_path: Path) -> None:
    shards = sets["packed"]
    rows = sets.rows("packed")[0].values()
    size, number = sum(len(row["ids"]) for row in rows), len(rows)
    inside = sum(row["ids"][:-1].count(97) for row in rows)
    added = sum(row["ids"][-1] != 97 for row in rows)
    wrote = {
        "unpack": f"{number} sequences",
        "export": f"{number} rows, {size} tokens, 1 file",
        "export --to megatron": f"{number} documents, {number} sequences, {size} tokens, 2 files",
        "export --to nanogpt --eos 97": f"{number} documents, {size + added} tokens, "
        f"{added} end tokens added, 1 file",
    }
    for command, summary in wrote.items():
        folder = tmp_path / command
        folder.mkdir()
        result = run(*command.split(), shards, "-o", folder / "out")
        assert result.stdout == f"{folder / 'out'}: {summary}\n"
        assert (f"{inside} end tokens" in result.stderr) == ("97" in command)
        assert run(*command.split(), shards, "-o", folder / "out").exit_code == 4


@pytest.mark.parametrize("kind", [int, float, bool, str])
def test_classes_of_any_type_are_exported(tmp_path: Path, kind: Any) -> None:
    values = [kind(f"{n % 2}.5" if kind is float else n % 2) for n in range(5)]
    lines = [json.dumps({"text": "ab", "label": value}) for value in values]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    given = ("tokenize", tmp_path / "a.jsonl", "--keep", "label:class", "-o", tmp_path / "tokens")
    assert run(*given).exit_code == 0
    assert run("pack", tmp_path / "tokens", "-o", tmp_path / "shards").exit_code == 0
    for name in ("tokens", "shards"):
        export(tmp_path / name, tmp_path / f"{name}-out")
        rows, _, schema = read_parquet(tmp_path / f"{name}-out")
        assert [row["label"] for row in rows] == values
        assert name_type(schema.field("label").type) == CLASS_TYPES[kind]


@pytest.mark.parametrize(
    ("made", "command"),
    [("labels", "export"), ("input_ids", "export"), ("index", "unpack"), ("ids", "unpack")],
)
def test_column_with_the_name_of_one_that_is_made_is_refused(
    tmp_path: Path, made: str, command: str
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "ab", made: 7}))
    run("tokenize", tmp_path / "a.jsonl", "--keep", made, "-o", tmp_path / "tokens")
    run("pack", tmp_path / "tokens", "-o", tmp_path / "shards")
    options = ["--format", "parquet"] if command == "unpack" else []
    result = run(command, tmp_path / "shards", "-o", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert f"column '{made}' has the name of one" in result.stderr
    hint = f"--drop-column {made}" if command == "export" else "--format jsonl"
    assert hint in result.stderr


@pytest.mark.filterwarnings("ignore")  # of the reader's imports
def test_megatron_core_reads_what_is_exported(
    sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Megatron's own reader, but not the rest of its package, which takes 7 s to import."""
    folder = next(iter(pytest.importorskip("megatron").__path__))
    for name in ("core", "core.datasets", "core.utils"):
        module = types.ModuleType(f"megatron.{name}")
        module.__path__ = [f"{folder}/{name.replace('.', '/')}"]
        module.log_single_rank = print  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    before = set(sys.modules)
    try:
        from megatron.core.datasets.indexed_dataset import IndexedDataset

        for name in ("lines", "imported", "streams wide"):
            source = find_source(sets, name)
            export(source.path, tmp_path / name, to="megatron")
            dataset = IndexedDataset(str(tmp_path / name))
            assert [dataset[place].tolist() for place in range(len(dataset))] == source.sequences
            firsts = [source.documents.index(number) for number in sorted({*source.documents})]
            assert {*firsts, len(dataset)} == {*dataset.document_indices.tolist()}
    finally:
        for name in set(sys.modules) - before:
            if name.startswith("megatron."):
                del sys.modules[name]


# Back again


def import_again(folder: Path, name: str, *options: object) -> PageStore:
    """Import what was exported."""
    result = run("import", folder / name, *options, "-o", folder / "again", "-q")
    assert result.exit_code == 0, result.output
    return read_page(folder / "again")


@pytest.mark.parametrize("name", ["lines", "imported", "ends", "packed visits", "streams columns"])
def test_import_of_megatron_has_the_same_documents(sets: Sets, tmp_path: Path, name: str) -> None:
    source = find_source(sets, name)
    export(source.path, tmp_path / "out", to="megatron")
    vocabulary = ["--vocab-size", 70_000]
    if "imported" not in name:
        vocabulary = ["--tokenizer", source.path / "tokenizer.json"]
    found = import_again(tmp_path, "out.idx", *vocabulary)
    assert (found.sequences, found.documents) == (source.sequences, source.documents)
    export(found.folder, tmp_path / "twice", to="megatron")
    for suffix in ("bin", "idx"):
        one = (tmp_path / "again" / f"part-00000.{suffix}").read_bytes()
        assert (tmp_path / f"twice.{suffix}").read_bytes() == one
        assert (tmp_path / f"out.{suffix}").read_bytes() == one


@pytest.mark.parametrize("name", ["whole", "kept", "packed columns", "padded targets", "streams"])
def test_import_of_parquet_has_the_same_rows(sets: Sets, tmp_path: Path, name: str) -> None:
    source = find_source(sets, name)
    export(source.path, tmp_path / "out")
    kept = {each["name"]: each["kind"] for each in source.manifest["columns"]}
    kept = {name: kind for name, kind in kept.items() if kind not in ("tags", "targets")}
    keep = [f"--keep={each}:{kind}" for each, kind in kept.items() if each != "overlap"]
    keep += ["--keep=document:int"] if source.has_documents else []
    keep += ["--ignore-field=overlap"] if "overlap" in kept else []
    found = import_again(tmp_path, "out", "--tokenizer", source.path / "tokenizer.json", *keep)
    assert found.sequences == source.sequences
    whole = [[1] * len(row["ids"]) for row in source.rows]
    expected = [row.get("targets", one) for row, one in zip(source.rows, whole, strict=True)]
    assert found.columns.get("targets", whole) == expected
    if source.has_documents:
        assert found.columns["document"] == source.documents
    for each in kept.keys() - {"overlap"}:
        assert found.columns[each] == [row[each] for row in source.rows]


@pytest.mark.parametrize("name", ["ends", "packed ends"])
def test_import_of_nanogpt_has_the_same_documents(sets: Sets, tmp_path: Path, name: str) -> None:
    source = find_source(sets, name)
    export(source.path, tmp_path / "out.bin", to="nanogpt")
    options = ["--dtype", "uint16", "--eos", EOS, "--tokenizer", source.path / "tokenizer.json"]
    found = import_again(tmp_path, "out.bin", *options)
    documents: dict[int, list[int]] = {}
    for ids, document in zip(source.sequences, source.documents, strict=True):
        documents.setdefault(document, []).extend(ids)
    assert found.sequences == [[*ids, *[EOS] * (ids[-1] != EOS)] for ids in documents.values()]


@pytest.mark.parametrize("name", ["packed visits", "streams targets", "pairs padded"])
def test_set_does_not_differ_from_itself(sets: Sets, tmp_path: Path, name: str) -> None:
    assert diff(sets[name], sets[name])["identical"]
    found = diff(sets[name], sets.copy(name, tmp_path))
    assert found["sequences"]["num_compared"] == len(sets.rows(name)[0])
    assert found["sequences"]["num_differing"] == 0
    assert found["same_arrays"]


@pytest.mark.parametrize(
    "name", ["packed visits", "varlen rows", "streams columns", "pairs padded"]
)
def test_set_is_verified(sets: Sets, name: str) -> None:
    result = run("verify", sets[name], "--level", "roundtrip")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["padded filler", "varlen rows", "streams", "packed visits"])
def test_numbers_of_inspect_are_those_of_the_page(sets: Sets, name: str) -> None:
    found, (pages,) = inspect(sets[name]), sets.sides(name)
    lengths = [length for page in pages for length in page.arrays["lengths"].tolist()]
    num_cells, num_tokens = sum(len(page.arrays["data"]) for page in pages), sum(lengths)
    numbers = {"num_batches": len(pages), "num_rows": len(lengths), "num_tokens": num_tokens}
    numbers |= {"num_filler_rows": lengths.count(0), "num_padding_cells": num_cells - num_tokens}
    assert {each: found["ledger"][each] for each in numbers} == numbers
    assert found["padding_ratio"] == pytest.approx(1 - num_tokens / num_cells, abs=1e-6)


# Blocks of one to seven entries


FEW = {
    1: ["varlen rows", "overlap"],
    2: ["packed visits", "streams columns"],
    3: ["padded filler", "pairs padded"],
    7: ["varlen chunks", "kept"],
}


def test_sizes_of_blocks_change_nothing(sets: Sets, tmp_path: Path, tiny: int) -> None:
    for name in FEW[tiny]:
        folder = tmp_path / name
        folder.mkdir()
        if name in ALL:
            check_sets(sets, name)
            check_unpack(sets, name, folder)
        if name not in PAIRS:
            check_exports(sets, name, folder)


# Damage


def check_damaged(sets: Sets, name: str, number: int, folder: Path, output: Path) -> None:
    """Check that readers refuse what breaks a rule in a changed shard, and nothing else."""
    whole, is_sound = open_shards(folder), True
    counts = [entry["num_batches"] for entry in sets.sides(name)[0][0].manifest["shards"]]
    first, end = sum(counts[:number]), sum(counts[: number + 1])
    for side, shards in enumerate([whole] if whole.decoder is None else [whole, whole.decoder]):
        pages = list(read_batches(folder, ["", "decoder."][side], number))
        for place, page in enumerate(pages, first):
            if page is not None and page.has_equal_arrays(sets.sides(name)[side][place]):
                assert shards.take(place).data.tolist() == page.arrays["data"].tolist()
                continue
            is_good = page is not None and page.is_sound()
            is_sound &= is_good
            for read in (shards.__getitem__, shards.take):
                if is_good:
                    check_batch(shards, read(place), page)
                else:
                    with pytest.raises(FolderError):
                        read(place)
    if whole.decoder is not None:
        if not is_sound:
            with pytest.raises(FolderError):
                unpack(folder, output)
        return
    others = sets.sides(name)[0]
    try:
        rows = join_rows([*others[:first], *pages, *others[end:]]) if is_sound else {}
        is_whole = all(0 <= row.get("overlap", 0) < len(row["ids"]) for row in rows.values())
    except ValueError:
        is_whole = False
    if is_sound and is_whole:
        unpack(folder, output)
        expected = [{"index": index, **drop_overlap(row)} for index, row in rows.items()]
        assert read_lines(output.read_text()) == expected
        return
    with pytest.raises(FolderError):
        unpack(folder, output)
    if not is_sound:
        with pytest.raises(FolderError):
            export(folder, output)
    assert not output.exists()


DAMAGED = "packed visits/packed targets/padded left/padded filler/varlen/varlen rows/varlen pieces/"
DAMAGED += "varlen sequential/varlen aligned/varlen visits/streams columns/pairs/pairs padded"


@pytest.mark.parametrize("name", DAMAGED.split("/"))
def test_changed_entry_is_refused_where_it_breaks_a_rule(
    sets: Sets, tmp_path: Path, name: str
) -> None:
    drawn, folder = random.Random(name), sets.copy(name, tmp_path)
    paths = [folder / "manifest.json", *sorted(folder.glob("shard-*"))]
    before = {path: path.read_bytes() for path in paths}
    names = [*safetensors.numpy.load_file(paths[-1])]
    for turn, array in enumerate(drawn.sample(names, min(len(names), 9))):

        def change(found: Arrays, array: str = array) -> None:
            if len(found[array]):
                place = drawn.randrange(len(found[array]))
                found[array][place] = draw_value(drawn, found[array], found[array][place].item())

        number = drawn.randrange(len(paths) - 1)
        change_shard(folder, change, number)
        check_damaged(sets, name, number, folder, tmp_path / f"{turn}.jsonl")
        for path, data in before.items():
            path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("original_indices", (1, 0, 0), 0, "pieces of sequence 1 do not follow one another"),
        ("piece_starts", (1, 4, 0), 0, "rows of sequence 1 differ in their ids"),
        ("piece_starts", (0, 4, 1), 3, "rows of sequence 0 differ in their ids"),
        ("data", (0, 4, 1), 99, "rows of sequence 0 differ in their ids"),
        ("column.n", (1, 4, 0), 9, "rows of sequence 1 differ in column 'n'"),
        ("original_indices", (1, 4, 0), 2, "original index 2, the store has 2 sequences"),
    ],
)
def test_unpack_refuses_visits_that_differ(
    tmp_path: Path, name: str, place: tuple[int, int, int], value: int, said: str
) -> None:
    """Two sequences of six ids in pieces of four and two; the first is visited twice."""
    for store, text in (("a", "abcdef"), ("b", "abcdxy")):
        (tmp_path / f"{store}.jsonl").write_text(json.dumps({"text": text, "n": 1}))
        words = ("tokenize", tmp_path / f"{store}.jsonl", "--keep", "n", "-o", tmp_path / store)
        assert run(*words).exit_code == 0
    words = ("pack", tmp_path / "a", tmp_path / "b", "--layout", "varlen", "--max-tokens", 4)
    assert run(*words, "--passes", "a=2", "-o", tmp_path / "out").exit_code == 0

    def change(found: Arrays) -> None:
        index, start, turn = place
        is_row = (found["original_indices"] == index) & (found["piece_starts"] == start)
        row = np.flatnonzero(is_row)[turn]
        found[name][found["lengths"][:row].sum() if name == "data" else row] = value

    change_shard(tmp_path / "out", change)
    result = run("unpack", tmp_path / "out", "-o", "-")
    assert result.exit_code == 4
    assert re.fullmatch(rf"Error: {tmp_path}/out(/{SHARD})?: {said}\n", result.stderr)


def test_filler_row_that_names_a_sequence_is_refused(sets: Sets, tmp_path: Path) -> None:
    folder = sets.copy("padded filler", tmp_path)
    number = open_shards(folder).num_shards - 1

    def change(found: Arrays) -> None:
        assert found["lengths"][-1] == 0
        found["original_indices"][-1] = 0

    change_shard(folder, change, number)
    for read in (open_shards(folder).take, open_shards(folder).__getitem__):
        with pytest.raises(FolderError, match="has length 0 and original index 0, expected 0 and"):
            read(-1)


@pytest.mark.parametrize("prefix", ["", "decoder."])
def test_pairs_that_are_not_in_the_order_of_both_sides_are_refused(
    sets: Sets, tmp_path: Path, prefix: str
) -> None:
    folder = sets.copy("pairs padded", tmp_path)

    def swap(found: Arrays) -> None:
        indices = found[f"{prefix}original_indices"]
        indices[[0, 1]] = indices[[1, 0]]

    change_shard(folder, swap)
    for side in ([], ["--side", "encoder"]):
        result = run("unpack", folder, "-o", tmp_path / "out", *side)
        assert result.exit_code == 4
        assert "expected rising ones" in result.stderr


def arrays(change: Callable[[Arrays], object]) -> Callable[[Path], object]:
    return lambda folder: change_shard(folder, change)


def rename(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace(SHARD, "../other"))


SHARD = "shard-00000.safetensors"
REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (shutil.rmtree, "no such folder"),
    (lambda folder: (folder / "manifest.json").unlink(), r"no manifest\.json, expected a token"),
    (lambda folder: (folder / "plan.json").write_text("{}"), "incomplete run, interrupted at its"),
    (lambda folder: (folder / "manifest.json").rename(folder / "plan.json"), "0 shards finished"),
    (edit(format="seqpack.tokens"), "run seqpack pack on it first"),
    (edit(format="other"), "format 'other', expected 'seqpack.shards'"),
    (edit(format_version=9), "format version 9, expected 11"),
    (edit(format_version="11"), "format version '11', expected 11"),
    (edit(format_version=...), "no format version, expected 11"),
    (edit(pad_id=...), "pad_id"),
    (edit(pad_id="1"), "pad_id"),
    (edit(ledger=None), "ledger"),
    (rename, "the manifest contradicts itself"),
    (lambda folder: (folder / SHARD).unlink(), "missing"),
    (lambda folder: (folder / SHARD).write_bytes(b""), "0 bytes, manifest says 1,"),
    (lambda folder: os.truncate(folder / SHARD, 800), "800 bytes, manifest says 1,"),
    (edit(padding_side="left", layout="padded"), "widths is missing, expected int64"),
    (edit(max_id=70_000, dtype="int32"), "data is uint16, expected int32"),
    (arrays(lambda found: found.pop("lengths")), "lengths is missing, expected int64"),
    (
        arrays(lambda found: found.update(more=found["lengths"])),
        "more is int64, expected no such array",
    ),
    (arrays(lambda found: found.update(lengths=found["lengths"][:-1])), "sequence_offsets"),
    (arrays(lambda found: found.update(data=found["data"].repeat(2))), "data_offsets"),
    (lambda folder: (folder / SHARD).write_bytes(b"{}" * 398 + bytes(8)), "bytes"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_folder_that_is_not_a_finished_set_is_refused(
    sets: Sets, tmp_path: Path, number: int
) -> None:
    change, fragment = REFUSED[number]
    folder = sets.copy("packed files", tmp_path)
    change(folder)
    with pytest.raises(FolderError, match=fragment):
        open_shards(folder)[0]
    assert run("unpack", folder, "-o", tmp_path / "out").exit_code == 4


@pytest.mark.parametrize("size", [1, 800, 10_000])
def test_shard_that_changes_its_size_after_it_was_opened_is_refused(
    sets: Sets, tmp_path: Path, size: int
) -> None:
    folder = sets.copy("packed files", tmp_path)
    shards = open_shards(folder)
    os.truncate(folder / SHARD, size)
    with pytest.raises(FolderError, match=f"{size:,} bytes?, manifest says"):
        shards[0]


@pytest.mark.parametrize(
    ("name", "data", "fragment"),
    [
        ("part-00001.bin", b"", "0 bytes, manifest says"),
        ("part-00001.idx", None, "missing"),
        ("tokenizer.json", b"{}", "blake3 differs"),
        ("tokenizer.json", None, "missing"),
    ],
)
def test_damaged_files_are_refused_by_all_who_need_them(
    sets: Sets, tmp_path: Path, name: str, data: bytes | None, fragment: str
) -> None:
    is_part, folder = name.startswith("part"), tmp_path / "folder"
    shutil.copytree(sets.stores["lines"][0].folder if is_part else sets["packed"], folder)
    (folder / name).unlink() if data is None else (folder / name).write_bytes(data)
    command = ["export"] if is_part else ["unpack", "--text"]
    result = run(*command, folder, "-o", tmp_path / "out")
    assert (result.exit_code, fragment in result.stderr) == (4, True)
    with pytest.raises(FolderError, match=fragment):
        if is_part:
            open_store(folder)
        else:
            open_shards(folder).read_tokenizer_json()


@pytest.mark.parametrize("to", ["parquet", "megatron", "nanogpt"])
@pytest.mark.parametrize("name", ["lines", "packed", "varlen"])
def test_export_refuses_files_that_differ_from_their_checksums(
    sets: Sets, tmp_path: Path, name: str, to: str
) -> None:
    shutil.copytree(find_source(sets, name).path, tmp_path / "folder")
    path = sorted((tmp_path / "folder").glob("*[0-9].[bs]*"))[-1]
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FolderError, match=rf"{path.name}: blake3 differs"):
        export(tmp_path / "folder", tmp_path / "out", to=to)
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


# Files


def test_file_that_the_system_does_not_map_is_named(sets: Sets, tmp_path: Path) -> None:
    folder, size = sets.copy("packed files", tmp_path), 1 << 40
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["shards"][0]["bytes"] = size
    (folder / "manifest.json").write_text(json.dumps(manifest))
    os.truncate(folder / SHARD, size)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
    try:
        with pytest.raises(MachineError, match=rf"{SHARD}: {os.strerror(errno.ENOMEM)}"):
            open_shards(folder)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_shards_keep_no_file_open(sets: Sets, tmp_path: Path) -> None:
    folder = sets.copy("packed ends", tmp_path)
    num_open, (soft, hard) = (
        len([*Path("/proc/self/fd").iterdir()]),
        resource.getrlimit(resource.RLIMIT_NOFILE),
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + 3, hard))
    try:
        shards = open_shards(folder)
        assert shards.num_shards > 6
        kept = list(shards)
        assert unpack(folder, tmp_path / "rows") > 6
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(ValueError, match="read-only"):
        kept[0].data[0] = 1
    assert read_maps(folder)
    del shards, kept
    gc.collect()  # the error of the line above holds frames, in a circle
    assert not read_maps(folder)


def read_maps(folder: Path) -> list[int]:
    """Return how many kB of each mapped file of a folder are in memory."""
    parts = Path("/proc/self/smaps").read_text().split(str(folder))[1:]
    return [int(part.split("Rss:")[1].split()[0]) for part in parts]


def test_take_lets_pages_go(sets: Sets, tmp_path: Path) -> None:
    shards = open_shards(sets.copy("packed ends", tmp_path))
    for place in range(len(shards)):
        shards.take(place)
    assert all(read_maps(shards.path))
    shards.take(0, bytes_kept=0)
    assert sum(map(bool, read_maps(shards.path))) == 1
    for place, page in enumerate(sets.sides("packed ends")[0]):
        check_batch(shards, shards.take(place), page)


def test_set_that_was_replaced_is_refused(sets: Sets, tmp_path: Path) -> None:
    folder = sets.copy("packed files", tmp_path)
    shards = open_shards(folder)
    assert len(shards[0].lengths) == 3
    shutil.rmtree(folder)
    sets.copy("packed ends", tmp_path)
    assert len(shards[0].lengths) == 3
    with pytest.raises(FolderError, match="its files were replaced or removed"):
        shards[-1]
