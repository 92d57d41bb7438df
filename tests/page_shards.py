"""A reader and a writer of shards, from docs/formats.md alone: nothing of seqpack is used."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from blake3 import blake3
from page_plan import SHARED, Options, PlannedBatch, Row, fill_in, make_plan, round_up
from page_selection import select, spell
from page_store import (
    DTYPES,
    PER_TOKEN,
    PageStore,
    describe_file,
    make_column,
    make_tensor_file,
    spell_column,
)

COUNTS = ["num_batches", "num_rows", "num_filler_rows", "num_sequences", "num_split_sequences"]
COUNTS += ["num_tokens", "num_target_tokens", "num_padding_cells"]
STORE_COUNTS = ["num_sequences", "num_tokens"]
TENSORS = {
    "packed": ["lengths", "original_indices", "batch_sizes", "sequence_offsets", "step_offsets"],
    "padded": ["lengths", "original_indices", "widths", "num_filler_rows", "sequence_offsets"],
    "varlen": ["lengths", "original_indices", "piece_starts", "row_indices", "sequence_offsets"],
    "streams": [
        *["lengths", "original_indices", "piece_starts", "row_indices", "resets", "next_ids"],
        "sequence_offsets",
    ],
}


class ShardWriter:
    """Write the shards of stores."""

    def __init__(
        self, folder: Path, stores: Sequence[PageStore], layout: str, given: dict[str, Any]
    ) -> None:
        given = dict(given)
        self.folder, self.stores, self.layout = folder, list(stores), layout
        pad_id, self.side = given.pop("pad_id", None), given.pop("padding_side", "right")
        self.pad_id = (stores[0].manifest["pad_id"] or 0) if pad_id is None else pad_id
        self.options: Options = fill_in(layout, given)
        self.store = store = combine(self.stores, self.options)
        self.dtype = np.dtype(store.manifest["dtype"]).newbyteorder("<")
        self.digests = [digest_of(each.folder) for each in stores]
        self.names = [*TENSORS[layout], "data_offsets", "data"]
        if layout == "padded" and self.options["last_batch"] != "pad":
            self.names.remove("num_filler_rows")
        if layout == "varlen" and self.options["batch_size"] is None:
            self.names.remove("row_indices")

    def write(self) -> None:
        """Write shards and manifest."""
        self.folder.mkdir()
        if self.store.manifest["tokenizer_blake3"] is not None:
            tokenizer_json = (self.store.folder / "tokenizer.json").read_bytes()
            (self.folder / "tokenizer.json").write_bytes(tokenizer_json)
        selected = select(self.stores, self.options)
        lengths = [*map(len, self.store.sequences)]
        plan = make_plan(lengths, self.layout, self.options, selected)
        entries = [self._write_shard(*numbered) for numbered in enumerate(self._cut(plan.batches))]
        ledger: dict[str, Any] = {name: sum(entry[name] for entry in entries) for name in COUNTS}
        ledger["num_dropped_sequences"] = {name: len(all_) for name, all_ in plan.dropped.items()}
        ledger["num_dropped_tokens"] = {name: sum(all_) for name, all_ in plan.dropped.items()}
        ledger["num_repeated_sequences"] = len(plan.repeated)
        ledger["num_repeated_tokens"] = sum(plan.repeated)
        ledger["stores"] = [
            {name: sum(entry["stores"][number][name] for entry in entries) for name in STORE_COUNTS}
            for number in range(len(self.stores))
        ]
        kept = ("dtype", "vocab_size", "max_id", "bos_id", "eos_id", "unk_id")
        kept += ("tokenizer_blake3", "columns")
        manifest = {
            "format": "seqpack.shards",
            "format_version": 10,
            "plan_version": 1,
            "layout": self.layout,
            **{name: self.store.manifest[name] for name in kept},
            "pad_id": self.pad_id,
            "padding_side": self.side,
            "stores": [
                {**describe_store(each, self.folder), "passes": spell(passes)}
                for each, passes in zip(self.stores, selected.passes, strict=True)
            ],
            "bucket_keys": plan.keys,
            "options": self.options,
            "ledger": ledger,
            "shards": entries,
            "decoder": None,
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest))

    def _cut(self, batches: list[PlannedBatch]) -> list[list[PlannedBatch]]:
        most, empty = self.options["shard_bytes"], self._lay_out([])
        header = self._make_file({name: array[:0] for name, array in empty.items()})
        room = most - sum(array.nbytes for array in empty.values()) - len(header)
        room -= -(-3 * len(empty) * (len(str(most)) - 1) // 8) * 8
        shards: list[list[PlannedBatch]] = []
        left = -1
        for batch in batches:
            arrays = self._lay_out([batch])
            others = [name for name in arrays if name not in self._texts]
            size = sum(arrays[name].nbytes - empty[name].nbytes for name in others)
            size += self._mean_text * len(arrays["lengths"]) if self._texts else 0
            if size > left:
                shards.append([])
                left = room
            shards[-1].append(batch)
            left -= size
        return shards

    @property
    def _texts(self) -> list[str]:
        kinds = {column["name"]: column["kind"] for column in self.store.manifest["columns"]}
        return [f"column.{name}" for name, kind in kinds.items() if kind == "text"]

    @property
    def _mean_text(self) -> int:
        """The mean bytes of all texts of a sequence, with the headers of the files, rounded up."""
        parts = [part for each in self.stores for part in each.manifest["parts"]]
        left = sum(part["files"][2]["bytes"] for part in parts) - 8 * len(self.store.hashes)
        for column in self.store.manifest["columns"]:
            size = 8 if column["kind"] == "text" else np.dtype(column["dtype"]).itemsize
            is_per_token = column["kind"] in PER_TOKEN
            for store in (each for each in self.stores if column["name"] in each.columns):
                sequences = store.sequences
                left -= size * (sum(map(len, sequences)) if is_per_token else len(sequences))
        return -(-max(left, 0) // len(self.store.sequences))

    def _make_file(self, arrays: dict[str, np.ndarray]) -> bytes:
        values = {"format": "seqpack.shards", "format_version": "10", "layout": self.layout}
        return make_tensor_file({**values, "stores_blake3": ",".join(self.digests)}, arrays)

    def _lay_out(self, batches: list[PlannedBatch]) -> dict[str, np.ndarray]:
        found: dict[str, list[int]] = {name: [] for name in self.names}
        found_of: dict[str, list[Any]] = {name: [] for name in self.store.columns}
        for name in self.names:
            if name.endswith("_offsets"):
                found[name] = [0]
        for batch in batches:
            rows, num_filler = batch.rows, batch.num_filler_rows
            lengths = [row.length for row in rows]
            found["lengths"] += lengths + [0] * num_filler
            found["original_indices"] += [row.index for row in rows] + [-1] * num_filler
            found["sequence_offsets"].append(len(found["lengths"]))
            for column in self.store.manifest["columns"]:
                name, kind = column["name"], column["kind"]
                of_store, names = self.store.columns[name], column.get("class_names")
                values: list[Any] = [of_store[row.index] for row in rows]
                fill = {"text": "", "int": 0, "float": 0.0, "targets": 0}.get(kind, -100)
                if kind in PER_TOKEN:
                    pieces = []
                    for row, tags in zip(rows, values, strict=True):
                        if names is not None:
                            tags = [-100 if tag is None else names.index(tag) for tag in tags]
                        pieces.append(tags[row.start : row.start + row.length])
                    found_of[name] += self._lay_out_cells(pieces, batch, fill)
                    continue
                values = values if names is None else [names.index(value) for value in values]
                found_of[name] += [*values, *[fill] * num_filler]
            tokens = [
                self.store.sequences[row.index][row.start : row.start + row.length] for row in rows
            ]
            found["data"] += self._lay_out_cells(tokens, batch, self.pad_id)
            if self.layout == "packed":
                sizes = [sum(n > step for n in lengths) for step in range(max(lengths))]
                found["batch_sizes"] += sizes
                found["step_offsets"].append(len(found["batch_sizes"]))
            elif self.layout == "padded":
                found["widths"].append(batch.width)
                if "num_filler_rows" in found:
                    found["num_filler_rows"].append(num_filler)
            else:
                found["piece_starts"] += [row.start for row in rows]
                if "row_indices" in found:
                    found["row_indices"] += [row.row_index for row in rows]
                if self.layout == "streams":
                    found["resets"] += [0 if row.goes_on_before else 1 for row in rows]
                    found["next_ids"] += [self._find_next_id(row) for row in rows]
            found["data_offsets"].append(len(found["data"]))
        arrays = {name: np.array(values, "<i8") for name, values in found.items() if name != "data"}
        for column in self.store.manifest["columns"]:
            arrays |= make_column(column["name"], column["kind"], found_of[column["name"]])
        return {**arrays, "data": np.array(found["data"], self.dtype)}

    def _lay_out_cells(self, rows: list[list[int]], batch: PlannedBatch, fill: int) -> list[int]:
        """Return the ids of a batch, or the entries of a column beside them, as `data` is."""
        if self.layout == "packed":
            steps = range(max(map(len, rows)))
            return [row[step] for step in steps for row in rows if len(row) > step]
        if self.layout in SHARED:
            return self._lay_out_shared(rows, batch, fill)
        cells = []
        for row in [*rows, *[[]] * batch.num_filler_rows]:
            padding = [fill] * (batch.width - len(row))
            cells += row + padding if self.side == "right" else padding + row
        return cells

    def _lay_out_shared(self, rows: list[list[int]], batch: PlannedBatch, fill: int) -> list[int]:
        """Fill one shared row after another; then turn those of streams on their side."""
        multiple, length = self.options["align_sequences"], batch.width
        shared: list[list[int]] = [[] for _ in range(batch.num_rows)]
        for row, values in zip(batch.rows, rows, strict=True):
            padding = [fill] * (round_up(len(values), multiple) - len(values))
            shared[row.row_index] += values + padding
        if self.options["batch_size"] is not None:
            shared = [values + [fill] * (length - len(values)) for values in shared]
        if self.layout == "streams":
            return [values[step] for step in range(length) for values in shared]
        return [value for values in shared for value in values]

    def _find_next_id(self, row: Row) -> int:
        if not row.goes_on_after:
            return -1
        following = row.start + row.length
        targets = self.store.columns.get("targets")
        if targets is not None and targets[row.index][following] == 0:
            return -1
        return self.store.sequences[row.index][following]

    def _write_shard(self, number: int, batches: list[PlannedBatch]) -> dict[str, Any]:
        arrays = self._lay_out(batches)
        path = self.folder / f"shard-{number:05d}.safetensors"
        path.write_bytes(self._make_file(arrays))
        starts = [row.start for batch in batches for row in batch.rows]
        num_tokens = int(arrays["lengths"].sum())
        most = self.options["max_tokens"]
        return {
            **describe_file(path),
            "num_batches": len(batches),
            "num_rows": len(arrays["lengths"]),
            "num_filler_rows": sum(batch.num_filler_rows for batch in batches),
            "num_sequences": starts.count(0),
            "num_split_sequences": sum(0 < start <= most for start in starts) if most else 0,
            "num_tokens": num_tokens,
            "num_target_tokens": int(arrays.get("column.targets", arrays["lengths"]).sum()),
            "num_padding_cells": len(arrays["data"]) - num_tokens,
            "longest": int(arrays["lengths"].max()),
            "stores": self._count_stores(batches),
            "decoder": None,
        }

    def _count_stores(self, batches: list[PlannedBatch]) -> list[dict[str, int]]:
        ends = list(accumulate(len(each.sequences) for each in self.stores))
        counts = [dict.fromkeys(STORE_COUNTS, 0) for _ in ends]
        for row in (row for batch in batches for row in batch.rows):
            of_store = counts[next(place for place, end in enumerate(ends) if row.index < end)]
            of_store["num_sequences"] += row.start == 0
            of_store["num_tokens"] += row.length
        return counts


def digest_of(folder: Path) -> str:
    """Return the checksum of a manifest."""
    return str(blake3((folder / "manifest.json").read_bytes()).hexdigest())


def describe_store(store: PageStore, folder: Path) -> dict[str, Any]:
    """Return the entry of a store in the manifest of shards or splits."""
    return {
        "path": os.path.relpath(store.folder, folder),
        "blake3": digest_of(store.folder),
        "num_sequences": len(store.sequences),
        "num_tokens": sum(map(len, store.sequences)),
    }


def combine(stores: list[PageStore], options: Options) -> PageStore:
    """Return the sequences and columns of several stores, one after another."""
    found = PageStore(stores[0].folder, dict(stores[0].manifest), [], [], {}, [], [])
    found.manifest["columns"] = []
    missing = {"targets": lambda ids: [1] * len(ids), "overlap": lambda _: 0}
    of_stores = [each for store in stores for each in store.manifest["columns"]]
    made = {each["name"]: each for each in of_stores if each["name"] in missing}
    in_order = [made[name] for name in missing if name in made]
    in_order += [each for each in stores[0].manifest["columns"] if each["name"] not in missing]
    for column in in_order:
        name = column["name"]
        if name in options["drop_column"]:
            continue
        all_names = [
            each["class_names"]
            for store in stores
            for each in store.manifest["columns"]
            if each["name"] == name and "class_names" in each
        ]
        if any(names != all_names[0] for names in all_names):
            union = {label for names in all_names for label in names}
            column = {**column, "class_names": sorted(union)}
        found.manifest["columns"].append(column)
        found.columns[name] = []
        for store in stores:
            values = store.columns.get(name)
            found.columns[name] += values or map(missing[name], store.sequences)
    for store in stores:
        found.sequences += store.sequences
        found.hashes += store.hashes
    if (added := options["store_column"]) is not None:
        labels = [store.folder.name for store in stores]
        entry = {"name": added, "kind": "class", "dtype": "int32", "class_names": labels}
        found.manifest["columns"].append(entry)
        found.columns[added] = [store.folder.name for store in stores for _ in store.sequences]
    return found


def write_splits(
    folder: Path, stores: Sequence[PageStore], layout: str, given: dict[str, Any]
) -> None:
    """Write a shard set for each split, and the manifest that names them."""
    folder.mkdir()
    defaults = {"layout": layout, "pad_id": None, "padding_side": "right"}
    apart = {name: given.get(name, value) for name, value in defaults.items()}
    filled = {name: value for name, value in given.items() if name not in apart}
    options = {**fill_in(layout, filled), **apart}
    splits = []
    for item in options["split"].split(","):
        name, _, share = item.partition("=")
        writer = ShardWriter(folder / name, stores, layout, {**given, "split_name": name})
        writer.write()
        taken = select(list(stores), writer.options).in_split
        chosen = [index for index, is_taken in enumerate(taken) if is_taken]
        first, documents = 0, list[int]()
        for store in stores:
            documents += [first + document for document in store.documents]
            first += len(store.hashes)
        entry = {
            "name": name,
            "share": share or None,
            "num_documents": len({documents[index] for index in chosen}),
            "num_sequences": len(chosen),
            "num_tokens": sum(len(writer.store.sequences[index]) for index in chosen),
            "blake3": digest_of(folder / name),
        }
        splits.append(entry)
    manifest = {
        "format": "seqpack.splits",
        "format_version": 2,
        "split_seed": options["split_seed"],
        "split_by": options["split_by"],
        "splits": splits,
        "stores": [describe_store(store, folder) for store in stores],
        "decoder_stores": None,
        "options": options,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def read_shards(folder: Path) -> dict[int, list[int]]:
    """Read the sequences of shards by their index in the store, pieces put together again."""
    return {index: found["ids"] for index, found in read_rows(folder).items()}


def read_rows(folder: Path) -> dict[int, dict[str, Any]]:
    """Read the ids of sequences, as `ids`, and their columns."""
    assert not (folder / "plan.json").exists()
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["format_version"]) == ("seqpack.shards", 10)
    pieces: dict[int, dict[int, dict[str, Any]]] = {}
    for entry in manifest["shards"]:
        path = folder / entry["name"]
        assert describe_file(path) == {name: entry[name] for name in ("name", "bytes", "blake3")}
        arrays = safetensors.numpy.load_file(path)
        by_cell, by_row = {"ids": arrays["data"].tolist()}, dict[str, list[Any]]()
        for column in manifest["columns"]:
            name, names = column["name"], column.get("class_names")
            target = by_cell if column["kind"] in PER_TOKEN else by_row
            target[name] = spell_column(name, column["kind"], arrays, names)
            assert arrays[f"column.{name}"].dtype.name == DTYPES[column["kind"]]
        for batch in range(entry["num_batches"]):
            rows = slice(*arrays["sequence_offsets"][batch : batch + 2])
            for row in range(rows.start, rows.stop):
                index, length = int(arrays["original_indices"][row]), int(arrays["lengths"][row])
                start = int(arrays["piece_starts"][row]) if "piece_starts" in arrays else 0
                if index < 0:
                    continue
                cells = [
                    arrays["data_offsets"][batch]
                    + _find_cell(manifest, arrays, batch, row - rows.start, step)
                    for step in range(length)
                ]
                found = {name: [values[cell] for cell in cells] for name, values in by_cell.items()}
                of_row = {name: values[row] for name, values in by_row.items()}
                pieces.setdefault(index, {})[start] = {**found, **of_row}
    return {index: _join(pieces[index]) for index in pieces}


def _join(pieces: dict[int, dict[str, Any]]) -> dict[str, Any]:
    first, *others = (pieces[start] for start in sorted(pieces))
    for piece in others:
        for name, value in piece.items():
            is_per_token = name == "ids" or isinstance(value, list)
            assert is_per_token or first[name] == value
            first[name] = first[name] + value if is_per_token else value
    return first


def _find_cell(
    manifest: dict[str, Any], arrays: dict[str, np.ndarray], batch: int, row: int, step: int
) -> int:
    """Return where a token lies in the data of its batch."""
    lengths = arrays["lengths"][slice(*arrays["sequence_offsets"][batch : batch + 2])]
    if manifest["layout"] == "packed":
        sizes = arrays["batch_sizes"][slice(*arrays["step_offsets"][batch : batch + 2])]
        return int(sizes[:step].sum()) + row
    if manifest["layout"] in SHARED:
        first = int(arrays["sequence_offsets"][batch])
        shared = arrays["row_indices"][first:] if "row_indices" in arrays else [0] * (row + 1)
        options, number = manifest["options"], int(shared[row])
        place = step
        for before in range(row):
            if shared[before] == number:
                place += round_up(int(lengths[before]), options["align_sequences"])
        if manifest["layout"] == "streams":
            return place * int(options["batch_size"]) + number
        return number * int(options["max_tokens"]) + place
    width = int(arrays["widths"][batch])
    padding = width - int(lengths[row]) if manifest["padding_side"] == "left" else 0
    return row * width + padding + step


def read_streams(folder: Path) -> list[tuple[list[int], list[int]]]:
    """Read what a model sees of streams between two resets, stream by stream: ids and next ids."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    streams: list[list[tuple[list[int], list[int]]]]
    streams = [[] for _ in range(manifest["options"]["batch_size"])]
    for entry in manifest["shards"]:
        arrays = safetensors.numpy.load_file(folder / entry["name"])
        for batch in range(entry["num_batches"]):
            first, end = arrays["sequence_offsets"][batch : batch + 2]
            for row in range(first, end):
                seen = streams[arrays["row_indices"][row]]
                if arrays["resets"][row]:
                    seen.append(([], []))
                cells = (
                    arrays["data_offsets"][batch]
                    + _find_cell(manifest, arrays, batch, row - first, step)
                    for step in range(arrays["lengths"][row])
                )
                ids, next_ids = seen[-1]
                ids += [int(arrays["data"][cell]) for cell in cells]
                next_ids.append(int(arrays["next_ids"][row]))
    return [run for stream in streams for run in stream]
