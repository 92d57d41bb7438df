"""A reader and a writer of token stores, from docs/formats.md alone: nothing of seqpack is used."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import xxhash
from blake3 import blake3

HEADER = struct.Struct("<9sQBQQ")
CODES = {"uint16": 8, "int32": 4}
ROLES = {
    "pad_id": ["<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"],
    "bos_id": ["<bos>", "<s>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|bos|>"],
    "eos_id": ["<eos>", "</s>", "[EOS]", "<|end_of_text|>", "<|endoftext|>", "<|eos|>"],
    "unk_id": ["<unk>", "[UNK]", "<|unk|>"],
}
TYPES = {"<i8": "I64", "<u8": "U64", "<f8": "F64", "<i4": "I32", "<u2": "U16", "|u1": "U8"}
DTYPES = {"int": "int64", "float": "float64", "class": "int32", "text": "uint8", "tags": "int32"}
DTYPES["targets"] = "uint8"
PER_TOKEN = ("tags", "targets")
TOKENIZE_OPTIONS: dict[str, Any] = {
    "file_format": "auto",
    "document": "line",
    "keep": [],
    "tag_subtokens": None,
    "add_special_tokens": True,
    "bos": None,
    "eos": None,
    "allow_special_tokens": False,
    "max_length": None,
    "overflow": "split",
    "overlap": None,
    "part_bytes": 67_108_864,
    "text_field": "text",
    "encoding_errors": "error",
    "on_bad_record": "error",
    "max_document_bytes": 67_108_864,
    "prompt_field": None,
    "completion_field": None,
    "messages_field": None,
    "tools_field": None,
    "target_turns": "all",
    "template_date": None,
    "chat": {},
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


def make_tensor_file(metadata: dict[str, str], arrays: dict[str, np.ndarray]) -> bytes:
    """Return the bytes of a safetensors file, the tensors by falling size of an entry."""
    header: dict[str, Any] = {"__metadata__": metadata}
    body = b""
    for name, array in sorted(arrays.items(), key=lambda named: -named[1].itemsize):
        offsets = [len(body), len(body) + array.nbytes]
        dtype = TYPES[array.dtype.str]
        header[name] = {"dtype": dtype, "shape": [len(array)], "data_offsets": offsets}
        body += array.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def make_column(name: str, kind: str, values: list[Any]) -> dict[str, np.ndarray]:
    """Return the tensors of a column, numbers of classes given."""
    if kind != "text":
        return {f"column.{name}": np.array(values, DTYPES[kind])}
    texts = [text.encode() for text in values]
    offsets = np.cumsum([0, *map(len, texts)]).astype("<i8")
    return {
        f"column.{name}.offsets": offsets,
        f"column.{name}": np.frombuffer(b"".join(texts), np.uint8),
    }


class StoreWriter:
    """Write a store of lines or JSON lines, an id a byte; fields are kept as their given types.

    With `prompt_field` and `completion_field` the text is made from both.
    """

    def __init__(self, folder: Path, tokenizer_json: bytes, given: dict[str, Any]) -> None:
        self.folder = folder
        self.options = {**TOKENIZE_OPTIONS, **given}
        ids = find_ids(tokenizer_json)
        self.affixes = [[ids[given[name]]] if name in given else [] for name in ("bos", "eos")]
        self.manifest: dict[str, Any] = {
            "format": "seqpack.tokens",
            "format_version": 5,
            "made_by": "tokenize",
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
        kinds = dict(keep.rsplit(":", 1) for keep in self.options["keep"])
        made = {"targets": "targets"} if given.keys() & {"prompt_field", "overlap"} else {}
        made |= {"overlap": "int"} if "overlap" in given else {}
        self.kinds = {**made, **kinds}
        self.class_names: dict[str, set[Any]] = {
            name: set() for name, kind in self.kinds.items() if kind in ("class", "tags")
        }
        self.ledger = dict.fromkeys(
            [f"num_{name}_documents" for name in ("empty", "dropped")]
            + ["num_documents", "num_rejected", "num_sequences", "num_tokens"]
            + ["num_encoded_tokens", "num_special_tokens_added", "num_truncated_tokens"]
            + ["num_dropped_tokens", "num_special_tokens_in_text", "num_words_without_token"]
            + ["num_padding_tokens", "num_empty_sequences"]
            + ["num_target_tokens", "num_straddling_tokens", "num_overlap_tokens"],
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
            records: list[dict[str, Any]] = []
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
                read = [self._read(names[source], line) for line in lines]
                made += [self._make_sequences(record) for record in read]
                records += read
            entries.append(
                {
                    **self._write_part(f"part-{number:05d}", made, records),
                    "first_document": first_document,
                    "first_sequence": first_sequence,
                    "ranges": ranges,
                }
            )
        self.manifest["columns"] = [
            {"name": name, "kind": kind, "dtype": DTYPES[kind]}
            | ({"class_names": sorted(self.class_names[name])} if name in self.class_names else {})
            for name, kind in self.kinds.items()
        ]
        types = {
            name: "boolean" if found <= {False, True} else "string"
            for name, found in self.class_names.items()
        }
        self.options["keep"] = [
            {"name": name, "kind": kind, "value_type": types.get(name), "class_names": None}
            for name, kind in self.kinds.items()
            if name not in ("targets", "overlap")
        ]
        if "targets" not in self.kinds:
            self.ledger["num_target_tokens"] = self.ledger["num_tokens"]
        self.manifest |= {"ledger": self.ledger, "sources": sources, "parts": entries}
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest))

    def _read(self, name: str, line: bytes) -> dict[str, Any]:
        """Return a record, with the tags of its tokens in place of those of its words."""
        if not name.endswith(".jsonl"):
            return {"text": line.decode()}
        record: dict[str, Any] = json.loads(line)
        if self.options["prompt_field"]:
            prompt, completion = (
                record[self.options[f"{name}_field"]] for name in ("prompt", "completion")
            )
            record["text"] = prompt + completion
            record["is_target"] = [0] * len(prompt.encode()) + [1] * len(completion.encode())
            fields = {"completion": completion, "prompt": prompt}
            record["hashed"] = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        words = record["text"]
        if isinstance(words, list):
            record["text"] = " ".join(words)
            for field in (field for field, kind in self.kinds.items() if kind == "tags"):
                tags: list[str | None] = []
                for word, tag in zip(words, record[field], strict=True):
                    others = len(word.encode()) - 1  # a byte is a token
                    is_all = self.options["tag_subtokens"] == "all"
                    tags += [None] * bool(tags) + [tag] + [tag if is_all else None] * others
                record[field] = tags
        return record

    def _make_columns(
        self, documents: list[list[list[int]]], records: list[dict[str, Any]]
    ) -> dict[str, np.ndarray]:
        texts = [record.get("hashed", record["text"]) for record in records]
        hashes = [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
        arrays = {"document_hashes": np.array(hashes, "<u8")}
        for name, kind in self.kinds.items():
            values: list[Any] = []
            for pieces, record in zip(documents, records, strict=True):
                if name == "overlap":
                    values += [0, *[self.options["overlap"]] * (len(pieces) - 1)][: len(pieces)]
                elif name == "targets":
                    values += record["targets"] if pieces else []
                elif kind != "tags":
                    values += [record[name]] * len(pieces)
                elif pieces:
                    before, behind = ([None] * len(affix) for affix in self.affixes)
                    cut = self._cut([*before, *record[name], *behind])
                    values += [value for piece in cut for value in piece]
            labels = sorted({value for value in values if value is not None})
            if name in self.class_names:
                self.class_names[name] |= set(labels)
                values = [-100 if value is None else labels.index(value) for value in values]
            arrays |= make_column(name, kind, values)
            if name in self.class_names:
                spelled = json.dumps(labels, ensure_ascii=False).encode()
                arrays[f"class_names.{name}"] = np.frombuffer(spelled, np.uint8)
        return arrays

    def _cut(self, values: list[Any]) -> list[list[Any]]:
        """Cut what the tokens of a document have beside them, or their ids, into pieces."""
        most, starts = self.options["max_length"] or len(values), [0]
        while starts[-1] + most < len(values):
            starts.append(starts[-1] + most - (self.options["overlap"] or 0))
        return [values[start : start + most] for start in starts]

    def _make_sequences(self, record: dict[str, Any]) -> list[list[int]]:
        ledger, (before, behind) = self.ledger, self.affixes
        ids, overlap = list(record["text"].encode()), self.options["overlap"] or 0
        is_target = [0] * len(before) + record.get("is_target", [1] * len(ids))
        is_target = is_target if "is_target" in record else [1] * len(is_target)
        is_target += [1] * len(behind)
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
            is_target = is_target[: most - len(behind)] + [0] * len(behind)
        pieces = self._cut([*before, *ids, *behind])
        if "targets" in self.kinds:
            first, *later = self._cut(is_target)
            targets = [*first, *(x for piece in later for x in [0] * overlap + piece[overlap:])]
            record["targets"] = targets
            ledger["num_target_tokens"] += sum(targets)
        ledger["num_overlap_tokens"] += overlap * (len(pieces) - 1)
        ledger["num_special_tokens_added"] += num_added
        ledger["num_sequences"] += len(pieces)
        ledger["num_tokens"] += sum(map(len, pieces))
        return pieces

    def _write_part(
        self, name: str, documents: list[list[list[int]]], records: list[dict[str, Any]]
    ) -> dict[str, Any]:
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
        columns_path = self.folder / f"{name}.columns.safetensors"
        columns = self._make_columns(documents, records)
        columns_path.write_bytes(make_tensor_file({"format": "seqpack.columns"}, columns))
        return {
            "name": name,
            "num_documents": len(documents),
            "num_sequences": len(sequences),
            "num_tokens": len(flat),
            "files": [*map(describe_file, (bin_path, idx_path, columns_path))],
        }


@dataclass
class PageStore:
    """A store that was read."""

    folder: Path
    manifest: dict[str, Any]
    sequences: list[list[int]]
    places: list[tuple[str, int]]  # of each sequence: source and record
    columns: dict[str, list[Any]]  # of each sequence: its value, or a list with one for each id
    hashes: list[int]  # of each document
    documents: list[int]  # of each sequence


def read_store(folder: Path) -> PageStore:
    """Read all sequences and where they come from."""
    assert not (folder / "plan.json").exists()
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["format_version"]) == ("seqpack.tokens", 5)
    columns: dict[str, list[Any]] = {column["name"]: [] for column in manifest["columns"]}
    store = PageStore(folder, manifest, [], [], columns, [], [])
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
                store.documents.append(num_documents + document)
        num_documents += num_firsts - 1
        arrays = safetensors.numpy.load_file(folder / f"{part['name']}.columns.safetensors")
        store.hashes += arrays["document_hashes"].tolist()
        for column in manifest["columns"]:
            labels = arrays.get(f"class_names.{column['name']}")
            names = None if labels is None else json.loads(labels.tobytes())
            values = spell_column(column["name"], column["kind"], arrays, names)
            if column["kind"] in PER_TOKEN:
                first = starts // ids.itemsize
                values = [values[a : a + n] for a, n in zip(first, lengths, strict=True)]
            store.columns[column["name"]] += values
    return store


def spell_column(
    name: str, kind: str, arrays: dict[str, np.ndarray], names: list[Any] | None
) -> list[Any]:
    """Return all entries of a column, names in place of the numbers of classes."""
    found: list[Any] = arrays[f"column.{name}"].tolist()
    if kind == "text":
        offsets = arrays[f"column.{name}.offsets"]
        return [bytes(found[a:b]).decode() for a, b in pairwise(offsets)]
    return found if names is None else [None if n == -100 else names[n] for n in found]


def _find_record(manifest: dict[str, Any], document: int) -> tuple[str, int]:
    source = [s for s in manifest["sources"] if s["first_document"] <= document][-1]
    return source["path"], document - source["first_document"] + 1
