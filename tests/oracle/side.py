"""One side of shards, from docs/formats.md alone: what its stores hold, laid out as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from oracle.plan import SHARED, Options, PlannedBatch, Row, round_up
from oracle.selection import Refused
from oracle.stores import PER_TOKEN, PageStore, make_column

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


class Side:
    """Lay out batches of stores. Shards have one side, those of pairs two."""

    def __init__(
        self,
        stores: Sequence[PageStore],
        layout: str,
        options: Options,
        padding: tuple[int | None, str],
        prefix: str = "",
    ) -> None:
        self.stores, self.layout, self.options, self.prefix = list(stores), layout, options, prefix
        pad_id, self.padding_side = padding
        manifest = stores[0].manifest
        aligned = self.options["align_sequences"] > 1
        needs_padding = layout == "padded" or (
            layout in SHARED and (self.options["batch_size"] is not None or aligned)
        )
        if needs_padding and {pad_id, manifest["pad_id"], manifest["tokenizer_blake3"]} == {None}:
            raise Refused("pad_id")
        self.pad_id = (stores[0].manifest["pad_id"] or 0) if pad_id is None else pad_id
        self.store = store = combine(self.stores, self.options)
        self.dtype = np.dtype(store.manifest["dtype"]).newbyteorder("<")
        self.digests = [digest_of(each.folder) for each in stores]
        self.names = [*TENSORS[layout], "data_offsets", "data"]
        if layout == "padded" and self.options["last_batch"] != "pad":
            self.names.remove("num_filler_rows")
        if layout == "varlen" and self.options["batch_size"] is None:
            self.names.remove("row_indices")
        if layout == "packed" and prefix:
            self.names.insert(self.names.index("original_indices") + 1, "encoder_rows")

    @property
    def texts(self) -> list[str]:
        kinds = {column["name"]: column["kind"] for column in self.store.manifest["columns"]}
        return [f"column.{name}" for name, kind in kinds.items() if kind == "text"]

    @property
    def mean_text(self) -> int:
        """The page's M: what the texts of a row take, however long they are."""
        parts = [part for each in self.stores for part in each.manifest["parts"]]
        left = sum(part["files"][2]["bytes"] for part in parts) - 8 * len(self.store.hashes)
        for column in self.store.manifest["columns"]:
            if column["name"] == self.options["store_column"]:
                continue  # also if it is called like a column that was dropped
            size = 8 if column["kind"] == "text" else np.dtype(column["dtype"]).itemsize
            is_per_token = column["kind"] in PER_TOKEN
            for store in (each for each in self.stores if column["name"] in each.columns):
                sequences = store.sequences
                left -= size * (sum(map(len, sequences)) if is_per_token else len(sequences))
        return -(-max(left, 0) // len(self.store.sequences))

    def size_of(self, batch: PlannedBatch) -> int:
        """Return the bytes of a batch, M for the texts of each row."""
        arrays, empty = self.lay_out([batch]), self.lay_out([])
        others = [name for name in arrays if name.removeprefix(self.prefix) not in self.texts]
        size = sum(arrays[name].nbytes - empty[name].nbytes for name in others)
        num_rows = len(batch.rows) + batch.num_filler_rows
        return size + (self.mean_text * num_rows if self.texts else 0)

    def lay_out(self, batches: list[PlannedBatch]) -> dict[str, np.ndarray]:
        """Return the tensors of batches by their names."""
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
                if "encoder_rows" in found:
                    found["encoder_rows"] += batch.encoder_rows or []
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
        arrays["data"] = np.array(found["data"], self.dtype)
        return {self.prefix + name: array for name, array in arrays.items()}

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
            cells += row + padding if self.padding_side == "right" else padding + row
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

    def count(self, batches: list[PlannedBatch], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return the counts of batches and of their tensors."""
        arrays = {name.removeprefix(self.prefix): array for name, array in arrays.items()}
        starts = [row.start for batch in batches for row in batch.rows]
        num_tokens = int(arrays["lengths"].sum())
        most = self.options["max_tokens"]
        return {
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


def combine(stores: list[PageStore], options: Options) -> PageStore:
    """Return the sequences and columns of several stores, one after another."""
    found = PageStore(stores[0].folder, dict(stores[0].manifest), [], [], {}, [], [])
    _check_columns(stores, options)
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
        labels = name_stores(stores)
        entry = {"name": added, "kind": "class", "dtype": "int32", "class_names": labels}
        found.manifest["columns"].append(entry)
        numbered = zip(labels, stores, strict=True)
        found.columns[added] = [label for label, store in numbered for _ in store.sequences]
    return found


def name_stores(stores: list[PageStore]) -> list[str]:
    """Return the names of the folders; in place of empty and equal ones their positions from 1."""
    names = [store.folder.name for store in stores]
    while True:
        clashing = [
            place
            for place, name in enumerate(names)
            if name != str(place + 1) and (not name or names.count(name) > 1)
        ]
        if not clashing:
            return names
        for place in clashing:
            names[place] = str(place + 1)


def _check_columns(stores: list[PageStore], options: Options) -> None:
    """Refuse stores whose columns differ."""
    left_out = {*options["drop_column"], "targets", "overlap"}
    kinds = [
        {
            each["name"]: (each["kind"], {_type_of(name) for name in each.get("class_names", [])})
            for each in store.manifest["columns"]
            if each["name"] not in left_out
        }
        for store in stores
    ]
    if any(found != kinds[0] for found in kinds):
        raise Refused("column")


def _type_of(label: str | float | bool) -> str:
    """Return the type of a class name: a number may be an integer or not."""
    if isinstance(label, str):
        return "string"
    return "boolean" if isinstance(label, bool) else "number"
