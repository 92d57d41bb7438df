"""A reader and a writer of docs/formats.md, written from that page alone, without seqpack."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from blake3 import blake3
from page_plan import Options, PlannedBatch, fill_in, make_plan

HEADER = struct.Struct("<9sQBQQ")
CODES = {"uint16": 8, "int32": 4}
ROLES = {
    "pad_id": ["<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"],
    "bos_id": ["<bos>", "<s>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|bos|>"],
    "eos_id": ["<eos>", "</s>", "[EOS]", "<|end_of_text|>", "<|endoftext|>", "<|eos|>"],
    "unk_id": ["<unk>", "[UNK]", "<|unk|>"],
}
TOKENIZE_OPTIONS = {
    "file_format": "auto",
    "document": "line",
    "add_special_tokens": True,
    "bos": None,
    "eos": None,
    "allow_special_tokens": False,
    "max_length": None,
    "overflow": "split",
    "part_bytes": 67_108_864,
    "text_field": "text",
    "encoding_errors": "error",
    "on_bad_record": "error",
    "max_document_bytes": 67_108_864,
}
COUNTS = ["num_batches", "num_rows", "num_filler_rows", "num_sequences", "num_split_sequences"]
COUNTS += ["num_tokens", "num_padding_cells"]
TENSORS = {
    "packed": ["lengths", "original_indices", "batch_sizes", "sequence_offsets", "step_offsets"],
    "padded": ["lengths", "original_indices", "widths", "num_filler_rows", "sequence_offsets"],
    "varlen": ["lengths", "original_indices", "piece_starts", "sequence_offsets"],
}


def find_ids(tokenizer_json: bytes) -> dict[str, int]:
    """Return the vocabulary of a tokenizer.json."""
    saved = json.loads(tokenizer_json)
    added = {token["content"]: token["id"] for token in saved["added_tokens"]}
    return {**saved["model"]["vocab"], **added}


def describe_file(path: Path) -> dict[str, Any]:
    """Return the entry of a file in a manifest."""
    data = path.read_bytes()
    return {"name": path.name, "bytes": len(data), "blake3": blake3(data).hexdigest()}


class StoreWriter:
    """Write a store of text files, a document a line, an id a byte."""

    def __init__(self, folder: Path, tokenizer_json: bytes, given: dict[str, Any]) -> None:
        self.folder = folder
        self.options = {**TOKENIZE_OPTIONS, **given}
        ids = find_ids(tokenizer_json)
        self.affixes = [[ids[given[name]]] if name in given else [] for name in ("bos", "eos")]
        self.manifest: dict[str, Any] = {
            "format": "seqpack.tokens",
            "format_version": 2,
            "dtype": "uint16" if max(ids.values()) <= 65_535 else "int32",
            "vocab_size": len(ids),
            "max_id": max(ids.values()),
            **{
                role: next((ids[name] for name in names if name in ids), None)
                for role, names in ROLES.items()
            },
            "tokenizer_blake3": blake3(tokenizer_json).hexdigest(),
            "options": self.options,
        }
        self.ledger = dict.fromkeys(
            [f"num_{name}_documents" for name in ("empty", "dropped")]
            + ["num_documents", "num_rejected", "num_sequences", "num_tokens"]
            + ["num_encoded_tokens", "num_special_tokens_added", "num_truncated_tokens"]
            + ["num_dropped_tokens", "num_special_tokens_in_text"],
            0,
        )
        folder.mkdir()
        (folder / "tokenizer.json").write_bytes(tokenizer_json)

    def write(self, files: dict[str, bytes], parts: list[list[int]]) -> None:
        """Write the store of files; each part holds some of them."""
        names = list(files)
        sources: list[dict[str, Any]] = []
        entries = []
        for number, members in enumerate(parts):
            first_document, first_sequence = (
                self.ledger["num_documents"],
                self.ledger["num_sequences"],
            )
            made: list[list[list[int]]] = []  # the sequences of each document
            ranges = []
            for source in members:
                data = files[names[source]]
                lines = data.removesuffix(b"\n").split(b"\n") if data else []
                sources.append(
                    {
                        "path": names[source],
                        "bytes": len(data),
                        "num_documents": len(lines),
                        "first_document": first_document + len(made),
                    }
                )
                ranges.append(
                    {
                        "source": source,
                        "start": 0,
                        "end": len(data),
                        "num_documents": len(lines),
                        "blake3": blake3(data).hexdigest(),
                    }
                )
                made += [self._make_sequences(list(line)) for line in lines]
            entries.append(
                {
                    **self._write_part(f"part-{number:05d}", made),
                    "first_document": first_document,
                    "first_sequence": first_sequence,
                    "ranges": ranges,
                }
            )
        self.manifest |= {"ledger": self.ledger, "sources": sources, "parts": entries}
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest))

    def _make_sequences(self, ids: list[int]) -> list[list[int]]:
        ledger, (before, behind) = self.ledger, self.affixes
        most, overflow = self.options["max_length"], self.options["overflow"]
        num_added = len(before) + len(behind)
        ledger["num_documents"] += 1
        ledger["num_encoded_tokens"] += len(ids)
        if not ids:
            ledger["num_empty_documents"] += 1
            return []
        if most is not None and len(ids) + num_added > most and overflow != "split":
            assert overflow != "error"
            if overflow == "drop":
                ledger["num_dropped_documents"] += 1
                ledger["num_dropped_tokens"] += len(ids)
                return []
            ledger["num_truncated_tokens"] += len(ids) - (most - num_added)
            ids = ids[: most - num_added]
        ids = [*before, *ids, *behind]
        step = most or len(ids)
        pieces = [ids[start : start + step] for start in range(0, len(ids), step)]
        ledger["num_special_tokens_added"] += num_added
        ledger["num_sequences"] += len(pieces)
        ledger["num_tokens"] += len(ids)
        return pieces

    def _write_part(self, name: str, documents: list[list[list[int]]]) -> dict[str, Any]:
        dtype = np.dtype(self.manifest["dtype"]).newbyteorder("<")
        sequences = [ids for document in documents for ids in document]
        flat = [token for ids in sequences for token in ids]
        lengths = [len(ids) for ids in sequences]
        starts = [dtype.itemsize * sum(lengths[:number]) for number in range(len(lengths))]
        firsts = np.cumsum([0, *map(len, documents)])
        header = (b"MMIDIDX\0\0", 1, CODES[dtype.name], len(sequences), len(documents) + 1)
        arrays = (np.array(lengths, "<i4"), np.array(starts, "<i8"), firsts.astype("<i8"))
        bin_path, idx_path = (self.folder / f"{name}.{suffix}" for suffix in ("bin", "idx"))
        bin_path.write_bytes(np.array(flat, dtype).tobytes())
        idx_path.write_bytes(HEADER.pack(*header) + b"".join(array.tobytes() for array in arrays))
        return {
            "name": name,
            "num_documents": len(documents),
            "num_sequences": len(sequences),
            "num_tokens": len(flat),
            "files": [describe_file(bin_path), describe_file(idx_path)],
        }


@dataclass
class PageStore:
    """A store that was read."""

    folder: Path
    manifest: dict[str, Any]
    sequences: list[list[int]]
    places: list[tuple[str, int]]  # of each sequence: source and record


def read_store(folder: Path) -> PageStore:
    """Read all sequences and where they come from."""
    assert not (folder / "plan.json").exists()
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["format_version"]) == ("seqpack.tokens", 2)
    store = PageStore(folder, manifest, [], [])
    num_documents = 0
    for part in manifest["parts"]:
        for file in part["files"]:
            assert describe_file(folder / file["name"]) == file
        ids = np.fromfile(folder / f"{part['name']}.bin", f"<{np.dtype(manifest['dtype']).str[1:]}")
        index = (folder / f"{part['name']}.idx").read_bytes()
        *head, num_sequences, num_firsts = HEADER.unpack(index[: HEADER.size])
        assert head == [b"MMIDIDX\0\0", 1, CODES[manifest["dtype"]]]
        lengths = np.frombuffer(index, "<i4", num_sequences, 34)
        starts = np.frombuffer(index, "<i8", num_sequences, 34 + 4 * num_sequences)
        firsts = np.frombuffer(index, "<i8", num_firsts, 34 + 12 * num_sequences)
        for start, length in zip(starts // ids.itemsize, lengths, strict=True):
            store.sequences.append(ids[start : start + length].tolist())
        for document in range(num_firsts - 1):
            for _ in range(firsts[document], firsts[document + 1]):
                store.places.append(_find_record(manifest, num_documents + document))
        num_documents += num_firsts - 1
    return store


def _find_record(manifest: dict[str, Any], document: int) -> tuple[str, int]:
    source = [s for s in manifest["sources"] if s["first_document"] <= document][-1]
    return source["path"], document - source["first_document"] + 1


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
            size = sum(
                8 if "_offsets" in name else array.nbytes for name, array in arrays.items()
            )
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
