"""Every reader and exporter on stores and shards that were written from docs/formats.md alone.

`tests/oracle/` writes them and reads them back in plain Python; what the package reads is compared
with that, batch by batch, row by row and file by file.
"""

from __future__ import annotations

import json
import pickle
import random
import resource
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import tokenizers
import torch
from blake3 import blake3
from command import run
from oracle.imports import Documents, write_pair, write_store
from oracle.shards import ShardWriter, read_batches, read_pairs, read_rows, write_splits
from oracle.stores import PER_TOKEN, PageStore, StoreWriter, describe_file, make_tensor_file
from oracle.stores import read_store as read_page
from torch.nn.utils import rnn

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
    pack_sequence,
    pad_sequence,
    tokenize,
    unpack,
    unpack_sequence,
    unpad_sequence,
)
from seqpack_cli.errors import DataError, FolderError, OptionError, SeqpackError

EOS = 258  # of the tokenizer `bytes`, whose other ids are bytes, <pad> and <bos>
KEEP = ["label:class", "id:int", "score:float", "title:text", "flag:class", "tags:tags"]
KEEP_ANSWERS = ["id:int", "title:text"]
Rows = dict[int, dict[str, Any]]  # ids and columns by the index of a sequence


# Stores


def draw_records(drawn: random.Random, number: int) -> list[dict[str, Any]]:
    """Draw records with fields of every kind; some have no text."""
    records = []
    for place in range(number):
        words = [drawn.choice(["ab", "é", "word", "x"]) for _ in range(drawn.choice([0, 1, 3, 9]))]
        record = {"text": words, "tags": [word[0].upper() for word in words], "id": place - 20}
        record |= {"label": drawn.choice("üba"), "flag": len(words) > 3, "title": "ü" * (place % 4)}
        records.append({**record, "score": place / 7})
    return records


def draw_answers(drawn: random.Random, number: int) -> list[dict[str, Any]]:
    """Draw prompts and completions, some of them empty."""
    records = []
    for place in range(number):
        prompt, completion = ("é".join("y" * drawn.randint(0, 9)) for _ in "pc")
        record = {"prompt": prompt, "completion": completion if place % 3 else "", "id": place}
        records.append({**record, "title": "ü" * (place % 3), "text": prompt + completion})
    return records


def spell(records: list[dict[str, Any]]) -> bytes:
    return "\n".join(map(json.dumps, records)).encode()


def draw_lines(drawn: random.Random) -> list[bytes]:
    """Draw files of lines: short and long ones, empty ones, and a file of nothing."""
    lengths = [min(int(drawn.lognormvariate(1.6, 0.9)), 40) for _ in range(36)]
    lines = ["".join(drawn.choices("abc de", k=length)) for length in [0, *lengths, 0, 40]]
    return ["\n".join(some).encode() for some in (lines[:20], [], lines[20:21], lines[21:])]


IMPORTED: Documents = [[], [[1, 2, 3], [4]], [[0], [69_999, 5]], [], [[6] * 20], [[7, EOS]], []]


def write_stores(folder: Path) -> dict[str, list[PageStore]]:
    """Write the stores of the sets by name; of pairs each side has some."""
    drawn = random.Random(7)
    (folder / "a.txt").write_text("a\n")
    tokenize(folder / "a.txt", folder / "bytes")
    tokenizer_json = (folder / "bytes" / "tokenizer.json").read_bytes()
    wide = json.loads(tokenizer_json)
    wide["model"]["vocab"]["far"] = 70_000

    def write(name: str, files: list[bytes], parts: list[list[int]], **given: Any) -> PageStore:
        suffix = "jsonl" if files[0].startswith(b"{") else "txt"
        sources = {f"{name}-{number}.{suffix}": data for number, data in enumerate(files)}
        text = json.dumps(wide).encode() if given.pop("is_wide", False) else tokenizer_json
        StoreWriter(folder / name, text, given).write(sources, parts)
        return read_page(folder / name)

    lines, parts = draw_lines(drawn), [[0], [1, 2], [3]]
    records = draw_records(drawn, 45)
    cut = [spell(records[:25]), spell(records[25:27]), spell(records[27:])]
    kept = write("kept", cut, [[0], [1], [2]], keep=KEEP, max_length=15)
    more = [{**record, "label": "c"} for record in draw_records(drawn, 14)]
    targets: dict[str, Any] = {"prompt_field": "prompt", "completion_field": "completion"}
    overlap = {"max_length": 12, "overlap": 5, "eos": "<eos>"}
    plain = [{**record, "id": -record["id"]} for record in draw_records(drawn, 12)]
    encoders, decoders = draw_records(drawn, 40), draw_answers(drawn, 40)
    for record in encoders:
        record["text"], record["tags"] = record["text"][:7], record["tags"][:7]
    pairs = {
        "encoder": [
            write(f"encoder-{n}", [spell(encoders[some])], [[0]], keep=["label:class", "tags:tags"])
            for n, some in enumerate((slice(25), slice(25, None)))
        ],
        "decoder": [
            write("decoder-0", [spell(decoders[:25])], [[0]], keep=["title:text"], is_wide=True),
            write(
                *("decoder-1", [spell(decoders[25:])], [[0]]),
                **{**targets, "keep": ["title:text"], "is_wide": True, "bos": "<bos>"},
            ),
        ],
    }
    write_pair(folder / "pair", IMPORTED, "int32")
    write_store(folder / "imported", folder / "pair", IMPORTED, 70_000)
    return {
        "lines": [write("lines", lines, parts, max_length=9)],
        "whole": [write("whole", [b"ab\n", b"c\nlong one"], [[0, 1]])],
        "ends": [write("ends", lines, parts, is_wide=True, eos="<eos>", max_length=20)],
        "kept": [kept],
        "two": [kept, write("more", [spell(more)], [[0]], keep=KEEP, max_length=15)],
        "targets": [
            write("plain", [spell(plain)], [[0]], keep=KEEP_ANSWERS),
            write(
                *("answers", [spell(draw_answers(drawn, 30))], [[0]]),
                **{**targets, **overlap, "keep": KEEP_ANSWERS},
            ),
        ],
        "overlap": [write("overlap", lines, parts, bos="<bos>", **overlap)],
        "imported": [read_page(folder / "imported")],
        **pairs,
    }


# Sets of shards: the stores, the layout, and the options of pack

SETS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "packed": ("lines", "packed", {}),
    "packed files": ("lines", "packed", {"batch_size": 3, "shard_bytes": 1500}),
    "packed columns": ("kept", "packed", {"batch_size": 5, "shuffle": True, "shard_bytes": 3500}),
    "packed dropped": (
        *("kept", "packed"),
        {"drop_shorter": 3, "where": ["score > 1"], "last_batch": "drop", "batch_size": 4},
    ),
    "packed visits": (
        *("two", "packed"),
        {"passes": "1=2.5,2=0.3", "batch_size": 4, "seed": 5, "store_column": "from"},
    ),
    "packed targets": ("targets", "packed", {"batch_size": 5, "shard_bytes": 3000, "seed": 3}),
    "packed ends": ("ends", "packed", {"max_tokens": 61, "order": "none", "shard_bytes": 1}),
    "packed imported": ("imported", "packed", {"batch_size": 2}),
    "padded": ("lines", "padded", {"max_tokens": 130, "pad_to_multiple": 8, "shard_bytes": 2000}),
    "padded left": ("lines", "padded", {"padding_side": "left", "pad_id": 3, "batch_size": 7}),
    "padded filler": (
        *("kept", "padded"),
        {"batch_size": 9, "last_batch": "pad", "padding_side": "left", "shard_bytes": 6000},
    ),
    "padded buckets": (
        *("two", "padded"),
        {"buckets": [4, 9, 15], "batch_size": 4, "last_batch": "pad", "passes": "2=2"},
    ),
    "padded targets": ("targets", "padded", {"keep_without_target": True, "padding_side": "left"}),
    "padded without": ("targets", "padded", {"drop_column": ["targets", "title"]}),
    "varlen": ("lines", "varlen", {"max_tokens": 24, "shard_bytes": 1500}),
    "varlen pieces": ("kept", "varlen", {"max_tokens": 6, "shard_bytes": 4000}),
    "varlen single": ("ends", "varlen", {"max_tokens": 1}),
    "varlen sequential": ("overlap", "varlen", {"max_tokens": 20, "fill": "sequential"}),
    "varlen aligned": (
        *("ends", "varlen"),
        {"max_tokens": 24, "align_sequences": 8, "pad_id": 3, "shuffle": False},
    ),
    "varlen rows": (
        *("targets", "varlen"),
        {"max_tokens": 16, "batch_size": 3, "align_sequences": 4, "last_batch": "pad"},
    ),
    "varlen chunks": (
        *("two", "varlen"),
        {"max_tokens": 7, "fill": "chunk", "batch_size": 2, "shard_bytes": 6000, "shuffle": True},
    ),
    "varlen visits": ("targets", "varlen", {"max_tokens": 7, "passes": "1=0.5,2=2.5", "seed": 3}),
    "varlen chunk visits": (
        *("two", "varlen"),
        {"max_tokens": 9, "fill": "chunk", "batch_size": 3, "passes": "1=3"},
    ),
    "streams": ("lines", "streams", {"max_tokens": 9, "batch_size": 4, "shuffle": True}),
    "streams columns": (
        *("kept", "streams"),
        {"max_tokens": 5, "batch_size": 4, "shuffle": True, "shard_bytes": 4000},
    ),
    "streams targets": ("targets", "streams", {"max_tokens": 4, "batch_size": 5, "seed": 3}),
    "streams visits": ("two", "streams", {"max_tokens": 6, "batch_size": 3, "passes": "1=2.3"}),
    "streams wide": ("ends", "streams", {"max_tokens": 1, "batch_size": 3, "pad_id": 2}),
    "splits/train": (
        *("two", "packed"),
        {"split": "train=0.75,test=0.25", "split_seed": 2, "passes": "2=2", "seed": 3},
    ),
    "splits/test": ("", "", {}),
    "values/true": ("kept", "varlen", {"split": "true,false", "split_by": "flag", "max_tokens": 9}),
}
PAIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "pairs": ("packed", {"batch_size": 9, "shuffle": True, "shard_bytes": 6000}),
    "pairs ties": ("packed", {"max_tokens": 60, "keep_without_target": True}),
    "pairs padded": ("padded", {"batch_size": 9, "last_batch": "pad", "padding_side": "left"}),
    "pairs visits": ("padded", {"batch_size": 5, "passes": "1=2", "store_column": "from"}),
    "pairs split/a": ("packed", {"split": "a=0.6,b=0.4", "batch_size": 4, "where": ["label != ü"]}),
}
ALL = [*SETS, *PAIRS]
FEW = ["packed visits", "padded filler", "varlen rows", "varlen chunk visits", "streams targets"]


@dataclass
class Sets:
    """Stores and sets by name; a set is written when it is first asked for."""

    folder: Path
    stores: dict[str, list[PageStore]]
    known: dict[str, list[Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Path:
        path = self.folder / "sets" / name
        whole = self.folder / "sets" / name.partition("/")[0]
        if not whole.exists():
            decoder: list[PageStore] = []
            if name in PAIRS:
                stores, decoder = self.stores["encoder"], self.stores["decoder"]
                layout, given = PAIRS[name]
            else:
                source, layout, given = SETS[name]
                stores = self.stores[source]
            if "split" in given:
                write_splits(whole, stores, layout, given, decoder=decoder)
            else:
                ShardWriter(whole, stores, layout, given, decoder=decoder).write()
        return path

    def pages(self, name: str) -> list[list[dict[str, Any]]]:
        """Return the batches of each side as the page's reader reads them."""
        if name not in self.known:
            prefixes = list_prefixes(self[name])
            self.known[name] = [list(read_batches(self[name], prefix)) for prefix in prefixes]
        return self.known[name]

    def rows(self, name: str) -> list[Rows]:
        """Return the sequences of each side in the order of their stores."""
        manifest = json.loads((self[name] / "manifest.json").read_bytes())
        sides = [manifest, manifest["decoder"]][: len(self.pages(name))]
        columns = [
            {each["name"] for each in side["columns"] if each["kind"] in PER_TOKEN}
            for side in sides
        ]
        return [join_rows(*side) for side in zip(self.pages(name), columns, strict=True)]

    def copy(self, name: str, folder: Path) -> Path:
        """Return a copy of a set that may be changed."""
        self[name]
        shutil.copytree(self.folder / "sets" / name, folder / "shards")
        return folder / "shards"


def join_rows(pages: list[dict[str, Any]], per_token: set[str]) -> Rows:
    """Put the pieces and the visits of each sequence together, token by token."""
    rows: Rows = {}
    for page in pages:
        arrays = page["arrays"]
        starts = arrays.get("piece_starts", np.zeros_like(arrays["lengths"])).tolist()
        for row, index in enumerate(arrays["original_indices"].tolist()):
            if index < 0:
                continue
            known = rows.setdefault(index, {"ids": {}, **{name: {} for name in per_token}})
            for step, cell in enumerate(page["cells"][row], starts[row]):
                found = {"ids": page["rows"][row][step - starts[row]]}
                found |= {name: page["columns"][name][cell] for name in per_token}
                for name, value in found.items():
                    assert known[name].setdefault(step, value) == value
            for name in page["columns"].keys() - per_token:
                assert known.setdefault(name, page["columns"][name][row]) == page["columns"][name][row]
    for row in rows.values():
        for name in {"ids", *per_token}:
            row[name] = [row[name][step] for step in range(len(row[name]))]
    return {index: rows[index] for index in sorted(rows)}


def list_prefixes(folder: Path) -> list[str]:
    """Return what comes before the names of each side."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    return [""] if manifest["decoder"] is None else ["", "decoder."]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    folder = tmp_path_factory.mktemp("page")
    (folder / "sets").mkdir()
    return Sets(folder, write_stores(folder))


every_set = pytest.mark.parametrize("name", ALL)
every_single_set = pytest.mark.parametrize("name", SETS)


# Batches


def flatten(values: Any) -> list[Any]:
    """Return the entries of a rectangle one after another."""
    return [cell for row in values for cell in row]


def check_batch(shards: ShardSet, batch: Batch, page: dict[str, Any]) -> None:
    """Compare a batch with the page's reading of it."""
    arrays, lengths = page["arrays"], page["arrays"]["lengths"].tolist()
    for name, expected in arrays.items():
        if name == "widths":
            assert batch.shape[1] == expected[0]
        elif name == "num_filler_rows":
            assert batch.num_filler_rows == expected[0]
        else:
            found = getattr(batch, name)
            assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist()), name
    assert batch.num_filler_rows == lengths.count(0)
    assert [row.tolist() for row in batch.rows()] == page["rows"]
    assert [batch.row(row).tolist() for row in range(len(lengths))] == page["rows"]
    assert prod(batch.shape) == len(batch.data)
    assert batch.count_padding() == len(batch.data) - sum(lengths)
    assert list(batch.columns) == list(shards.columns) == list(page["columns"])
    for name, column in shards.columns.items():
        values, spelled = batch.columns[name], column.spell(batch.columns[name])
        if column.kind in PER_TOKEN:
            assert values.shape == batch.shape  # type: ignore[union-attr]
            spelled = flatten(spelled) if len(batch.shape) > 1 else spelled
        assert spelled == page["columns"][name], name
    check_own(batch, page["cells"], lengths)


def check_own(batch: Any, cells: list[list[int]], lengths: list[int]) -> None:
    """Check what only the batches of a layout have."""
    size, starts = len(batch.data), [some[0] for some in cells if some]
    is_token = np.zeros(size, bool)
    is_token[flatten(cells)] = True
    kind = type(batch).__name__
    if kind == "PaddedBatch":
        assert np.array_equal(batch.ids.reshape(-1), batch.data)
        assert batch.mask.tolist() == is_token.reshape(batch.shape).tolist()
        kept = batch.without_filler()
        assert len(kept.ids) == len(kept.lengths) == len(lengths) - lengths.count(0)
        assert kept.num_filler_rows == 0
        assert {len(values) for values in kept.columns.values()} <= {len(kept.lengths)}
        assert kept.original_indices.tolist() == batch.original_indices.tolist()[: len(kept.ids)]
        assert [row.tolist() for row in kept.rows()] == [
            row.tolist() for row in batch.rows() if len(row)
        ]
    if kind == "VarlenBatch":
        assert batch.starts.tolist() == starts
        sums = [sum(lengths[:end]) for end in range(len(lengths) + 1)]
        assert batch.cu_seqlens.dtype == np.int32
        assert batch.cu_seqlens.tolist() == sums
        has_padding = size > sum(lengths)
        padded = [*starts, size] if has_padding else None
        found = batch.cu_seqlens_padded
        assert (None if found is None else found.tolist()) == padded
        positions = np.zeros(size, int)
        positions[flatten(cells)] = [step for length in lengths for step in range(length)]
        assert batch.position_ids.tolist() == positions.reshape(batch.shape).tolist()
    if kind == "StreamsBatch":
        resets = np.zeros(size, bool)
        resets[starts] = batch.resets == 1
        assert batch.is_reset.tolist() == resets.reshape(batch.shape).tolist()


def check_sets(sets: Sets, name: str) -> None:
    """Compare every batch of a set, read in every way, with the page's reading."""
    whole = open_shards(sets[name])
    assert (whole.decoder is None) == (len(sets.pages(name)) == 1)
    for pages, shards in zip(sets.pages(name), [whole, whole.decoder], strict=False):
        assert shards is not None
        number = len(pages)
        assert len(shards) == number == len(list(shards))
        again = pickle.loads(pickle.dumps(shards))  # noqa: S301 - our own
        ways: list[Callable[[int], Batch]] = [
            shards.__getitem__,
            shards.take,
            lambda place: shards.take(place, bytes_kept=0),
            lambda place: shards[place - number],
            lambda place: again[np.int64(place)],
            lambda place: again.take(place - number),
        ]
        for place, page in enumerate(pages):
            check_batch(shards, ways[place % len(ways)](place), page)
        for batch, page in zip(shards, pages, strict=True):
            assert batch.data.tolist() == page["arrays"]["data"].tolist()
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
    source = SETS["splits/train" if name == "splits/test" else name][0] if name in SETS else ""
    sides = [sets.stores[source]] if source else [sets.stores["encoder"], sets.stores["decoder"]]
    for rows, stores in zip(sets.rows(name), sides, strict=True):
        sequences = [ids for store in stores for ids in store.sequences]
        assert rows
        assert {index: row["ids"] for index, row in rows.items()} == {
            index: sequences[index] for index in rows
        }
        for column in {*stores[0].columns} & {*next(iter(rows.values()))}:
            values = [value for store in stores for value in store.columns.get(column, [])]
            if len(values) == len(sequences):
                assert all(row[column] == values[index] for index, row in rows.items())


@pytest.mark.parametrize("name", ["packed files", "padded filler", "varlen chunks", "pairs"])
def test_shard_is_a_sequence_of_its_batches(sets: Sets, name: str) -> None:
    shards = open_shards(sets[name])
    assert shards.num_shards == len(list(sets[name].glob("shard-*"))) > 1
    pages, first = sets.pages(name)[0], 0
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
        rows = [row for page in own for row in page["rows"]]
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
