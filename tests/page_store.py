"""A reader and a writer of token stores, from docs/formats.md alone: nothing of seqpack is used."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

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
            + ["num_dropped_tokens", "num_special_tokens_in_text", "num_words_without_token"],
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
