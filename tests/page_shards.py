"""A reader and a writer of shards, from docs/formats.md alone: nothing of seqpack is used."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from blake3 import blake3
from page_plan import Options, PlannedBatch, fill_in, make_plan
from page_store import PageStore, describe_file

COUNTS = ["num_batches", "num_rows", "num_filler_rows", "num_sequences", "num_split_sequences"]
COUNTS += ["num_tokens", "num_padding_cells"]
TENSORS = {
    "packed": ["lengths", "original_indices", "batch_sizes", "sequence_offsets", "step_offsets"],
    "padded": ["lengths", "original_indices", "widths", "num_filler_rows", "sequence_offsets"],
    "varlen": ["lengths", "original_indices", "piece_starts", "sequence_offsets"],
}


class ShardWriter:
    """Write the shards of a store."""

    def __init__(self, folder: Path, store: PageStore, layout: str, given: dict[str, Any]) -> None:
        given = dict(given)
        self.folder, self.store, self.layout = folder, store, layout
        pad_id, self.side = given.pop("pad_id", None), given.pop("padding_side", "right")
        self.pad_id = (store.manifest["pad_id"] or 0) if pad_id is None else pad_id
        self.options: Options = fill_in(layout, given)
        self.dtype = np.dtype(store.manifest["dtype"]).newbyteorder("<")
        self.tokens_blake3 = blake3((store.folder / "manifest.json").read_bytes()).hexdigest()
        self.names = [*TENSORS[layout], "data_offsets", "data"]
        if layout == "padded" and self.options["last_batch"] != "pad":
            self.names.remove("num_filler_rows")

    def write(self) -> None:
        """Write shards and manifest."""
        self.folder.mkdir()
        tokenizer_json = (self.store.folder / "tokenizer.json").read_bytes()
        (self.folder / "tokenizer.json").write_bytes(tokenizer_json)
        plan = make_plan([*map(len, self.store.sequences)], self.layout, self.options)
        entries = [self._write_shard(*numbered) for numbered in enumerate(self._cut(plan.batches))]
        ledger: dict[str, Any] = {name: sum(entry[name] for entry in entries) for name in COUNTS}
        ledger["num_dropped_sequences"] = {name: len(all_) for name, all_ in plan.dropped.items()}
        ledger["num_dropped_tokens"] = {name: sum(all_) for name, all_ in plan.dropped.items()}
        kept = ("dtype", "vocab_size", "max_id", "tokenizer_blake3")
        manifest = {
            "format": "seqpack.shards",
            "format_version": 4,
            "plan_version": 1,
            "layout": self.layout,
            **{name: self.store.manifest[name] for name in kept},
            "pad_id": self.pad_id,
            "padding_side": self.side,
            "tokens_blake3": self.tokens_blake3,
            "tokens_path": os.path.relpath(self.store.folder, self.folder),
            "bucket_keys": plan.keys,
            "options": self.options,
            "ledger": ledger,
            "shards": entries,
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest))

    def _cut(self, batches: list[PlannedBatch]) -> list[list[PlannedBatch]]:
        most, num_offsets = self.options["shard_bytes"], sum("_offsets" in n for n in self.names)
        header = self._make_header(dict.fromkeys(self.names, np.empty(0, np.int64)))
        room = most - 8 * num_offsets - len(header)
        room -= -(-3 * len(self.names) * (len(str(most)) - 1) // 8) * 8
        shards: list[list[PlannedBatch]] = []
        left = -1
        for batch in batches:
            arrays = self._lay_out([batch])
            size = sum(8 if "_offsets" in name else array.nbytes for name, array in arrays.items())
            if size > left:
                shards.append([])
                left = room
            shards[-1].append(batch)
            left -= size
        return shards

    def _make_header(self, arrays: dict[str, np.ndarray]) -> bytes:
        values = {"format": "seqpack.shards", "format_version": "4", "layout": self.layout}
        header: dict[str, Any] = {"__metadata__": {**values, "tokens_blake3": self.tokens_blake3}}
        end = 0
        for name, array in arrays.items():
            start, end = end, end + array.nbytes
            dtype = {"<i8": "I64", "<i4": "I32", "<u2": "U16"}[
                self.dtype.str if name == "data" else "<i8"
            ]
            header[name] = {"dtype": dtype, "shape": [len(array)], "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text

    def _lay_out(self, batches: list[PlannedBatch]) -> dict[str, np.ndarray]:
        found: dict[str, list[int]] = {name: [] for name in self.names}
        for name in self.names:
            if name.endswith("_offsets"):
                found[name] = [0]
        for batch in batches:
            rows, num_filler = batch.rows, batch.num_filler_rows
            lengths = [row.length for row in rows]
            found["lengths"] += lengths + [0] * num_filler
            found["original_indices"] += [row.index for row in rows] + [-1] * num_filler
            found["sequence_offsets"].append(len(found["lengths"]))
            tokens = [
                self.store.sequences[row.index][row.start : row.start + row.length] for row in rows
            ]
            if self.layout == "packed":
                sizes = [sum(n > step for n in lengths) for step in range(max(lengths))]
                found["batch_sizes"] += sizes
                found["step_offsets"].append(len(found["batch_sizes"]))
                for step in range(max(lengths)):
                    found["data"] += [ids[step] for ids in tokens if len(ids) > step]
            elif self.layout == "padded":
                found["widths"].append(batch.width)
                if "num_filler_rows" in found:
                    found["num_filler_rows"].append(num_filler)
                for ids in [*tokens, *[[]] * num_filler]:
                    padding = [self.pad_id] * (batch.width - len(ids))
                    found["data"] += ids + padding if self.side == "right" else padding + ids
            else:
                found["piece_starts"] += [row.start for row in rows]
                found["data"] += [token for ids in tokens for token in ids]
            found["data_offsets"].append(len(found["data"]))
        return {
            name: np.array(values, self.dtype if name == "data" else "<i8")
            for name, values in found.items()
        }

    def _write_shard(self, number: int, batches: list[PlannedBatch]) -> dict[str, Any]:
        arrays = self._lay_out(batches)
        path = self.folder / f"shard-{number:05d}.safetensors"
        data = b"".join(array.tobytes() for array in arrays.values())
        path.write_bytes(self._make_header(arrays) + data)
        starts = [row.start for batch in batches for row in batch.rows]
        num_tokens = int(arrays["lengths"].sum())
        most = self.options["max_tokens"]
        return {
            **describe_file(path),
            "num_batches": len(batches),
            "num_rows": len(arrays["lengths"]),
            "num_filler_rows": sum(batch.num_filler_rows for batch in batches),
            "num_sequences": starts.count(0),
            "num_split_sequences": starts.count(most) if self.layout == "varlen" else 0,
            "num_tokens": num_tokens,
            "num_padding_cells": len(arrays["data"]) - num_tokens,
            "longest": int(arrays["lengths"].max()),
        }


def read_shards(folder: Path) -> dict[int, list[int]]:
    """Read the sequences of shards by their index in the store, pieces put together again."""
    assert not (folder / "plan.json").exists()
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["format_version"]) == ("seqpack.shards", 4)
    pieces: dict[int, dict[int, list[int]]] = {}
    for entry in manifest["shards"]:
        path = folder / entry["name"]
        assert describe_file(path) == {name: entry[name] for name in ("name", "bytes", "blake3")}
        arrays = safetensors.numpy.load_file(path)
        for batch in range(entry["num_batches"]):
            rows = slice(*arrays["sequence_offsets"][batch : batch + 2])
            for row in range(rows.start, rows.stop):
                index, length = int(arrays["original_indices"][row]), int(arrays["lengths"][row])
                start = int(arrays["piece_starts"][row]) if "piece_starts" in arrays else 0
                if index >= 0:
                    cells = [
                        _find_cell(manifest, arrays, batch, row - rows.start, step)
                        for step in range(length)
                    ]
                    first = arrays["data_offsets"][batch]
                    ids = [int(arrays["data"][first + cell]) for cell in cells]
                    pieces.setdefault(index, {})[start] = ids
    return {
        index: [token for start in sorted(found) for token in found[start]]
        for index, found in pieces.items()
    }


def _find_cell(
    manifest: dict[str, Any], arrays: dict[str, np.ndarray], batch: int, row: int, step: int
) -> int:
    """Return where a token lies in the data of its batch."""
    lengths = arrays["lengths"][slice(*arrays["sequence_offsets"][batch : batch + 2])]
    if manifest["layout"] == "packed":
        sizes = arrays["batch_sizes"][slice(*arrays["step_offsets"][batch : batch + 2])]
        return int(sizes[:step].sum()) + row
    if manifest["layout"] == "varlen":
        return int(lengths[:row].sum()) + step
    width = int(arrays["widths"][batch])
    padding = width - int(lengths[row]) if manifest["padding_side"] == "left" else 0
    return row * width + padding + step
