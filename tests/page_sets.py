"""Stores and sets of shards of every kind, written from docs/formats.md by `tests/oracle/`."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from oracle.batches import PageBatch, join_rows, read_batches
from oracle.imports import Documents, write_pair, write_store
from oracle.shards import ShardWriter, write_splits
from oracle.stores import PageStore, StoreWriter, describe_file, make_tensor_file
from oracle.stores import read_store as read_page

from seqpack_cli import tokenize

Arrays = dict[str, np.ndarray]
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
    records = draw_records(drawn, 32)
    cut = [spell(records[:18]), spell(records[18:20]), spell(records[20:])]
    kept = write("kept", cut, [[0], [1], [2]], keep=KEEP, max_length=15)
    more = [{**record, "label": "c"} for record in draw_records(drawn, 9)]
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
                *("answers", [spell(draw_answers(drawn, 20))], [[0]]),
                **{**targets, **overlap, "keep": KEEP_ANSWERS},
            ),
        ],
        "overlap": [write("overlap", lines, parts, bos="<bos>", **overlap)],
        "imported": [read_page(folder / "imported")],
        **pairs,
    }


# Sets of shards: the stores, the layout, and the options of pack

SETS = {
    "packed": "lines packed",
    "packed files": "lines packed batch_size=3 shard_bytes=788",
    "packed columns": "kept packed batch_size=5 shuffle=true shard_bytes=2268",
    "packed dropped": 'kept packed drop_shorter=3 where=["score>1"] last_batch=drop batch_size=4',
    "packed visits": "two packed passes=1=2.5,2=0.3 batch_size=4 seed=5 store_column=from",
    "packed targets": "targets packed batch_size=5 shard_bytes=1840",
    "packed ends": "ends packed max_tokens=41 order=none shard_bytes=1",
    "packed imported": "imported packed batch_size=2",
    "padded": "lines padded max_tokens=130 pad_to_multiple=8 shard_bytes=1376",
    "padded left": "lines padded padding_side=left pad_id=3 batch_size=7",
    "padded filler": "kept padded last_batch=pad padding_side=left shard_bytes=7776 batch_size=9",
    "padded buckets": "two padded buckets=[4,9,15] batch_size=4 last_batch=pad passes=2=2",
    "padded targets": "targets padded keep_without_target=true padding_side=left",
    "padded without": 'targets padded drop_column=["targets","title"]',
    "varlen": "lines varlen max_tokens=24 shard_bytes=868",
    "varlen pieces": "kept varlen max_tokens=6 shard_bytes=2848",
    "varlen single": "ends varlen max_tokens=1",
    "varlen sequential": "overlap varlen max_tokens=20 fill=sequential",
    "varlen aligned": "ends varlen max_tokens=24 align_sequences=8 pad_id=3 shuffle=false",
    "varlen rows": "targets varlen max_tokens=16 batch_size=3 align_sequences=4 last_batch=pad",
    "varlen chunks": "two varlen max_tokens=7 fill=chunk batch_size=2 shard_bytes=4712",
    "varlen visits": "targets varlen max_tokens=9 passes=1=0.5,2=2.5 shard_bytes=4920",
    "varlen chunk visits": "two varlen max_tokens=9 fill=chunk batch_size=3 passes=1=3",
    "streams": "lines streams max_tokens=9 batch_size=4 shuffle=true",
    "streams columns": "kept streams max_tokens=5 batch_size=4 shuffle=true shard_bytes=2640",
    "streams targets": "targets streams max_tokens=4 batch_size=5",
    "streams visits": "two streams max_tokens=6 batch_size=3 passes=1=2.3",
    "streams wide": "ends streams max_tokens=1 batch_size=3 pad_id=2",
    "splits/train": "two packed split=train=0.75,test=0.25 passes=2=2 seed=3",
    "splits/test": "two packed split=train=0.75,test=0.25 passes=2=2 seed=3",
    "values/true": "kept varlen split=true,false split_by=flag max_tokens=9",
}
PAIRS = {
    "pairs": "encoder packed batch_size=9 shuffle=true shard_bytes=4000",
    "pairs ties": "encoder packed max_tokens=60 keep_without_target=true",
    "pairs padded": "encoder padded batch_size=9 last_batch=pad padding_side=left",
    "pairs visits": "encoder padded batch_size=5 passes=1=2 store_column=from",
    "pairs split/a": 'encoder packed split=a=0.6,b=0.4 batch_size=4 where=["label!=ü"]',
}
ALL = [*SETS, *PAIRS]
SOURCES = {name: given.split()[0] for name, given in {**SETS, **PAIRS}.items()}


def parse(text: str) -> Any:
    """Return the value of an option: JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(repr=False)
class Sets:
    """Stores and sets by name; a set is written when it is first asked for."""

    folder: Path
    stores: dict[str, list[PageStore]]
    known: dict[str, list[list[PageBatch]]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Path:
        path = self.folder / "sets" / name
        if not path.exists():
            source, layout, *options = {**SETS, **PAIRS}[name].split()
            texts = dict(option.split("=", 1) for option in options)
            given = {option: parse(value) for option, value in texts.items()}
            stores, decoder = self.stores[source], self.stores["decoder"] if name in PAIRS else []
            if "split" in given:
                write_splits(path.parent, stores, layout, given, decoder=decoder)
            else:
                ShardWriter(path, stores, layout, given, decoder=decoder).write()
        return path

    def sides(self, name: str) -> list[list[PageBatch]]:
        """Return the batches of each side as the page's reader reads them."""
        if name not in self.known:
            prefixes = ["", "decoder."][: 1 + (name in PAIRS)]
            batches = [list(read_batches(self[name], prefix)) for prefix in prefixes]
            self.known[name] = [[one for one in side if one is not None] for side in batches]
        return self.known[name]

    def rows(self, name: str) -> list[Rows]:
        """Return the sequences of each side in the order of their stores."""
        return [join_rows(side) for side in self.sides(name)]

    def copy(self, name: str, folder: Path) -> Path:
        """Return a copy of a set that may be changed."""
        shutil.copytree(self[name], folder / "shards")
        return folder / "shards"


@dataclass(repr=False)
class Exported:
    """What is exported: sequences with their documents, in order."""

    path: Path
    rows: list[dict[str, Any]]  # ids and columns
    documents: list[int]
    num_documents: int
    manifest: dict[str, Any]

    @property
    def sequences(self) -> list[list[int]]:
        return [row["ids"] for row in self.rows]

    @property
    def has_documents(self) -> bool:
        """Whether documents and sequences are not one to one."""
        return self.documents != list(range(self.num_documents))


def find_source(sets: Sets, name: str) -> Exported:
    """Return the sequences of a store, or of shards."""
    if name in sets.stores:
        (store,) = sets.stores[name]
        rows = [
            {"ids": ids, **{key: store.columns[key][index] for key in store.columns}}
            for index, ids in enumerate(store.sequences)
        ]
        return Exported(store.folder, rows, store.documents, len(store.hashes), store.manifest)
    rows = list(sets.rows(name)[0].values())
    manifest = json.loads((sets[name] / "manifest.json").read_bytes())
    return Exported(sets[name], rows, list(range(len(rows))), len(rows), manifest)


def change_shard(folder: Path, change: Callable[[Arrays], object], number: int = 0) -> None:
    """Change the arrays of a shard, and the manifest with them."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    path = folder / manifest["shards"][number]["name"]
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
        arrays = {name: file.get_tensor(name).copy() for name in file.offset_keys()}
    change(arrays)
    path.unlink()
    path.write_bytes(make_tensor_file(metadata, arrays))
    manifest["shards"][number] |= describe_file(path)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def draw_value(drawn: random.Random, array: np.ndarray, old: Any) -> Any:
    """Draw another value for an entry."""
    if array.dtype.kind == "f":
        return drawn.choice([np.nan, -np.inf, -0.0, 1.5])
    ends = np.iinfo(array.dtype)
    others = [-100, -1, 0, 1, old - 1, old + 1, 2 * old, 2**31, ends.min, ends.max]
    return drawn.choice([value for value in others if ends.min <= value <= ends.max])


def edit(**changes: Any) -> Callable[[Path], object]:
    """Return what changes fields of a manifest, or drops those that are `...`."""

    def change(folder: Path) -> None:
        manifest = {**json.loads((folder / "manifest.json").read_bytes()), **changes}
        manifest = {name: value for name, value in manifest.items() if value is not ...}
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return change
