"""A reader and a writer of token stores, from docs/formats.md alone: nothing of seqpack is used."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import xxhash
from blake3 import blake3

from oracle.kept_fields import (
    BadRecordError,
    Keep,
    Segment,
    find_field,
    find_segments,
    is_space,
    parse_object,
)

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
LEDGER = (
    *(f"num_{name}_documents" for name in ("empty", "dropped")),
    *("num_documents", "num_rejected", "num_sequences", "num_empty_sequences"),
    *("num_encoded_tokens", "num_special_tokens_added", "num_truncated_tokens"),
    *("num_dropped_tokens", "num_padding_tokens", "num_overlap_tokens", "num_tokens"),
    *("num_target_tokens", "num_straddling_tokens", "num_special_tokens_in_text"),
    "num_words_without_token",
)
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
Range = tuple[int, int, int]  # a source, and the first and last byte of it that a part has
Piece = tuple[str, bool, bool]  # of a conversation: a text, is it a special token, a target
Token = tuple[int, int, int]  # an id, and where its characters begin and end


def find_ids(tokenizer_json: bytes) -> dict[str, int]:
    """Return the vocabulary of a tokenizer.json."""
    saved = json.loads(tokenizer_json)
    added = {token["content"]: token["id"] for token in saved["added_tokens"]}
    return {**saved["model"]["vocab"], **added}


def find_special(tokenizer_json: bytes) -> list[str]:
    """Return the special tokens, longer ones first."""
    added = json.loads(tokenizer_json)["added_tokens"]
    return sorted((token["content"] for token in added if token["special"]), key=len, reverse=True)


def describe_vocabulary(tokenizer_json: bytes) -> dict[str, Any]:
    """Return what a manifest says of a tokenizer."""
    ids, model = find_ids(tokenizer_json), json.loads(tokenizer_json)["model"]
    names = {**ROLES, "unk_id": [model.get("unk_token"), *ROLES["unk_id"]]}
    found = {role: next((ids[n] for n in some if n in ids), None) for role, some in names.items()}
    return {
        "dtype": "uint16" if max(ids.values()) <= 65_535 else "int32",
        "vocab_size": len(ids),
        "max_id": max(ids.values()),
        **found,
        "tokenizer_blake3": blake3(tokenizer_json).hexdigest(),
    }


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


def make_index(documents: list[list[list[int]]], dtype: np.dtype[Any], code: int) -> bytes:
    """Return the `.idx` of some documents, each a list of sequences."""
    lengths = [len(ids) for document in documents for ids in document]
    starts = dtype.itemsize * (np.cumsum([0, *lengths])[:-1])
    firsts = np.cumsum([0, *map(len, documents)])
    header = HEADER.pack(b"MMIDIDX\0\0", 1, code, len(lengths), len(firsts))
    arrays = (np.array(lengths, "<i4"), starts.astype("<i8"), firsts.astype("<i8"))
    return header + b"".join(array.tobytes() for array in arrays)


@dataclass
class Document:
    """The sequences of a document, and what stands beside them."""

    sequences: list[list[int]] = field(default_factory=list)
    hashed: bytes = b""
    # By the name of the column: a value per sequence, or for all tokens of all sequences.
    values: dict[str, list[Any]] = field(default_factory=dict)
    names: dict[str, set[Any]] = field(default_factory=dict)  # of the classes of its tags


class PartsWriter:
    """Write the files of a store, whatever makes its documents."""

    def __init__(self, folder: Path, manifest: dict[str, Any], keep: Sequence[str]) -> None:
        self.folder, self.manifest = folder, manifest
        self.keep = list(map(Keep, keep))
        self.kinds: dict[str, str] = {}  # of the columns
        self.class_names: dict[str, set[Any]] = {}
        self.ledger = dict.fromkeys(LEDGER, 0)
        self.rejects: list[dict[str, Any]] = []
        folder.mkdir()

    def write_parts(self, files: dict[str, bytes], parts: Sequence[Sequence[Range]]) -> None:
        """Write all files of the store."""
        names = list(files)
        fixed = {each.name: each.names for each in self.keep if each.names is not None}
        self.kinds |= {each.name: str(each.kind) for each in self.keep}
        self.class_names = {
            name: {*fixed.get(name, ())}
            for name, kind in self.kinds.items()
            if kind in ("class", "tags")
        }
        sources: dict[int, dict[str, Any]] = {}
        entries = []
        for number, ranges in enumerate(parts):
            first = {name: self.ledger[f"num_{name}s"] for name in ("document", "sequence")}
            documents: list[Document] = []
            described = []
            for source, start, end in ranges:
                entry = sources.setdefault(
                    source,
                    {
                        "path": names[source],
                        "bytes": len(files[names[source]]),
                        "num_documents": 0,
                        "first_document": first["document"] + len(documents),
                    },
                )
                made = list(self.read_range(names[source], files[names[source]], start, end))
                for document in made:
                    entry["num_documents"] += 1
                    if isinstance(document, BadRecordError):
                        record = entry["num_documents"]
                        self._reject(names[source], record, document)
                documents += [x if isinstance(x, Document) else Document() for x in made]
                digest = blake3(self.hash_range(names[source], files[names[source]], start, end))
                described.append(
                    {
                        "source": source,
                        "start": start,
                        "end": end,
                        "num_documents": len(made),
                        "blake3": digest.hexdigest(),
                    }
                )
            entries.append(
                {
                    **self._write_part(f"part-{number:05d}", documents, fixed),
                    **{f"first_{name}": count for name, count in first.items()},
                    "ranges": described,
                }
            )
        columns = [
            {"name": name, "kind": kind, "dtype": DTYPES[kind]}
            | ({"class_names": fixed.get(name, sorted(self.class_names[name]))} if names_of else {})
            for name, kind in self.kinds.items()
            for names_of in [name in self.class_names]
        ]
        self.manifest["options"]["keep"] = [each.describe() for each in self.keep]
        if "targets" not in self.kinds:
            self.ledger["num_target_tokens"] = self.ledger["num_tokens"]
        self.manifest |= {"columns": columns, "ledger": self.ledger}
        self.manifest |= {"sources": list(sources.values()), "parts": entries}
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest))
        self.write_lines("rejects.jsonl", self.rejects)

    def read_range(
        self, name: str, data: bytes, start: int, end: int
    ) -> Iterator[Document | BadRecordError]:
        """Yield the documents of a range, or what is wrong with a record."""
        raise NotImplementedError

    def hash_range(self, name: str, data: bytes, start: int, end: int) -> bytes:
        """Return the bytes of a range that its checksum is of."""
        del name
        return data[start:end]

    def write_lines(self, name: str, entries: list[dict[str, Any]]) -> None:
        """Write JSON lines, if there is one."""
        if entries:
            (self.folder / name).write_text("".join(f"{json.dumps(each)}\n" for each in entries))

    def _reject(self, name: str, record: int, error: BadRecordError) -> None:
        self.ledger["num_rejected"] += 1
        entry = {"source": name, "record": record, "byte": error.byte, "reason": str(error)}
        self.rejects.append(entry)

    def _write_part(
        self, name: str, documents: list[Document], fixed: dict[str, list[Any]]
    ) -> dict[str, Any]:
        dtype = np.dtype(self.manifest["dtype"]).newbyteorder("<")
        sequences = [document.sequences for document in documents]
        flat = [token for document in sequences for ids in document for token in ids]
        hashes = [xxhash.xxh3_64_intdigest(document.hashed) for document in documents]
        arrays = {"document_hashes": np.array(hashes, "<u8")}
        for column, kind in self.kinds.items():
            values = [x for each in documents for x in each.values.get(column, ())]
            if column in self.class_names:
                found = {x for each in documents for x in each.names.get(column, ())}
                labels = fixed.get(column, sorted(found | {*values} - {None}))
                self.class_names[column] |= {*labels}
                values = [-100 if value is None else labels.index(value) for value in values]
            arrays |= make_column(column, kind, values)
            if column in self.class_names:
                spelled = json.dumps(labels, ensure_ascii=False).encode()
                arrays[f"class_names.{column}"] = np.frombuffer(spelled, np.uint8)
        contents = {
            "bin": np.array(flat, dtype).tobytes(),
            "idx": make_index(sequences, dtype, CODES[dtype.name]),
            "columns.safetensors": make_tensor_file({"format": "seqpack.columns"}, arrays),
        }
        paths = [self.folder / f"{name}.{suffix}" for suffix in contents]
        for path, data in zip(paths, contents.values(), strict=True):
            path.write_bytes(data)
        counts = {
            "num_documents": len(documents),
            "num_sequences": sum(map(len, sequences)),
            "num_tokens": len(flat),
        }
        for count, number in counts.items():
            self.ledger[count] += number
        targets = [x for each in documents for x in each.values.get("targets", ())]
        self.ledger["num_target_tokens"] += sum(targets)
        return {"name": name, **counts, "files": [*map(describe_file, paths)]}


def encode_bytes(text: str) -> list[Token]:
    """Return an id for each byte of a text."""
    return [(byte, i, i + 1) for i, x in enumerate(text) for byte in x.encode()]


def find_affixes(tokenizer_json: bytes, options: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return the ids that are added before and after each document."""
    ids, template = find_ids(tokenizer_json), json.loads(tokenizer_json)["post_processor"]
    sides: tuple[list[int], list[int]] = ([], [])
    if template and options["add_special_tokens"] and not options["messages_field"]:
        is_behind = False
        for entry in template["single"]:
            is_behind = is_behind or "Sequence" in entry
            if "SpecialToken" in entry:
                sides[is_behind].extend(
                    template["special_tokens"][entry["SpecialToken"]["id"]]["ids"]
                )
    before, behind = sides
    if options["bos"] is not None and before[:1] != [ids[options["bos"]]]:
        before.insert(0, ids[options["bos"]])
    if options["eos"] is not None and behind[-1:] != [ids[options["eos"]]]:
        behind.append(ids[options["eos"]])
    return sides


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a file, without their ends."""
    return data.removesuffix(b"\n").split(b"\n") if data else []


@dataclass
class Text:
    """What was read of a record."""

    text: str
    hashed: bytes
    is_target: list[int] | None = None  # of each character, if the text is made of several fields
    pieces: list[Piece] | None = None  # of a conversation
    words: list[str] | None = None
    values: dict[str, Any] = field(default_factory=dict)  # of the kept fields


class StoreWriter(PartsWriter):
    """Write the store that `tokenize` makes of lines or JSON lines.

    Args:
        given: the options that differ from the defaults, as in the manifest, but `keep` is spelled
            as `--keep` is.
        encode: the tokenizer; None is an id for each byte.
        render: returns the pieces of a conversation; they stand for its template.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer_json: bytes,
        given: dict[str, Any],
        encode: Callable[[str], list[Token]] = encode_bytes,
        render: Callable[[dict[str, Any]], list[Piece]] | None = None,
    ) -> None:
        options = self.options = {**TOKENIZE_OPTIONS, **given}
        manifest = {
            "format": "seqpack.tokens",
            "format_version": 5,
            "made_by": "tokenize",
            **describe_vocabulary(tokenizer_json),
            "options": options,
        }
        super().__init__(folder, manifest, options["keep"])
        if options["prompt_field"] or options["messages_field"] or options["overlap"]:
            self.kinds["targets"] = "targets"
        if options["overlap"]:
            self.kinds["overlap"] = "int"
        self._render = render
        self._affixes = find_affixes(tokenizer_json, options)
        self._ids = find_ids(tokenizer_json)
        self._encode = encode
        self._find_special = re.compile("|".join(map(re.escape, find_special(tokenizer_json))))
        self._spelled: dict[str, dict[str, Any]] = {}
        (folder / "tokenizer.json").write_bytes(tokenizer_json)

    def write(self, files: dict[str, bytes], parts: Sequence[Sequence[int | Range]]) -> None:
        """Write the store of files; each part holds some of them, or ranges of their bytes."""
        lines = [line for name in files for line in split_lines(files[name]) if line.strip()]
        for each in self.keep:
            each.choose([*_sample(lines, each.name)])
        sizes = [len(data) for data in files.values()]
        ranges = [[(x, 0, sizes[x]) if isinstance(x, int) else x for x in part] for part in parts]
        self.write_parts(files, ranges)
        self.write_lines("special_tokens.jsonl", [self._spelled[x] for x in sorted(self._spelled)])

    def read_range(
        self, name: str, data: bytes, start: int, end: int
    ) -> Iterator[Document | BadRecordError]:
        """Yield the documents of a range."""
        place = start
        for number, line in enumerate(split_lines(data[start:end])):
            self._record = (name, data[:start].count(b"\n") + number + 1)
            try:
                yield self._make_document(self._read(name, line, is_first=not place))
            except BadRecordError as error:
                error.byte = place + (error.byte or 0)
                yield error
            place += len(line) + 1

    def _read(self, name: str, line: bytes, *, is_first: bool) -> Text:
        num_bytes = len(line)
        line = line.removeprefix(b"\xef\xbb\xbf") if is_first else line
        try:
            replaces = self.options["encoding_errors"] == "replace"
            spelled = line.decode(errors="replace" if replaces else "strict").removesuffix("\r")
        except UnicodeDecodeError as bad:
            error = BadRecordError("expected UTF-8")
            error.byte = num_bytes - len(line) + bad.start
            raise error from bad
        if not name.endswith(".jsonl"):
            return Text(spelled, spelled.encode())
        return self._read_record(parse_object(spelled)) if spelled.strip() else Text("", b"")

    def _read_record(self, record: dict[str, Any]) -> Text:
        if self._render is not None:
            found = self._read_messages(record)
        elif self.options["prompt_field"]:
            names = [self.options[f"{name}_field"] for name in ("prompt", "completion")]
            prompt, completion = (self._read_text(record, name) for name in names)
            hashed = spell_fields({"completion": completion, "prompt": prompt})
            is_target = [0] * len(prompt) + [1] * len(completion)
            found = Text(prompt + completion, hashed, is_target)
        else:
            words = find_field(record, self.options["text_field"])
            is_words = isinstance(words, list)
            if is_words and not all(type(word) is str for word in words):
                raise BadRecordError(f"field '{self.options['text_field']}'")
            text = " ".join(words) if is_words else self._read_text(record)
            found = Text(text, text.encode(), words=words if is_words else None)
        words = found.text if found.words is None else found.words
        values = {each.name: find_field(record, each.name) for each in self.keep}
        found.values = {each.name: each.read(values[each.name], words) for each in self.keep}
        return found

    def _read_text(self, record: dict[str, Any], name: str | None = None) -> str:
        name = name or self.options["text_field"]
        text = find_field(record, name)
        if type(text) is not str:
            raise BadRecordError(f"field '{name}' is")
        return text

    def _read_messages(self, record: dict[str, Any]) -> Text:
        assert self._render is not None
        messages, tools = (record.get(self.options[f"{x}_field"]) for x in ("messages", "tools"))
        if not isinstance(messages, list) or not messages:
            raise BadRecordError("messages")
        kept = [{k: v for k, v in message.items() if v is not None} for message in messages]
        pieces = self._render({"messages": kept} | ({"tools": tools} if tools else {}))
        text = "".join(piece[0] for piece in pieces)
        is_target = [int(is_target) for piece, _, is_target in pieces for _ in piece]
        hashed = spell_fields({"messages": kept, **({"tools": tools} if tools else {})})
        return Text(text, hashed, is_target, pieces)

    def _make_document(self, found: Text) -> Document:
        """Encode a text, add special tokens and cut it."""
        ledger, options, (before, behind) = self.ledger, self.options, self._affixes
        tokens = self._encode_pieces(found.pieces or [(found.text, False, False)])
        self._count_special(found)
        ledger["num_encoded_tokens"] += len(tokens)
        document = Document(hashed=found.hashed)
        beside = self._find_beside(found, tokens, document)
        if not tokens:
            ledger["num_empty_documents"] += 1
            return document
        ids, most, overflow = (
            [id_ for id_, *_ in tokens],
            options["max_length"],
            options["overflow"],
        )
        num_added, is_whole = len(before) + len(behind), True
        if most is not None and len(ids) + num_added > most and overflow != "split":
            assert overflow != "error"
            if overflow == "drop":
                ledger["num_dropped_documents"] += 1
                ledger["num_dropped_tokens"] += len(ids)
                return Document(hashed=found.hashed, names=document.names)
            ledger["num_truncated_tokens"] += len(ids) - (most - num_added)
            ids, is_whole = ids[: most - num_added], False
        document.sequences = self._cut([*before, *ids, *behind])
        num_pieces, overlap = len(document.sequences), options["overlap"] or 0
        for name, entries in beside.items():
            is_targets = name == "targets"
            fills = (0 if found.is_target else 1, int(is_whole)) if is_targets else (None, None)
            whole = [fills[0]] * len(before) + entries[: len(ids)] + [fills[1]] * len(behind)
            cut = self._cut(whole)
            if is_targets:
                cut[1:] = [[0] * overlap + piece[overlap:] for piece in cut[1:]]
            document.values[name] = [value for piece in cut for value in piece]
        if overlap:
            document.values["overlap"] = [0] + [overlap] * (num_pieces - 1)
        for name, value in found.values.items():
            if self.kinds[name] != "tags":
                document.values[name] = [value] * num_pieces
        ledger["num_overlap_tokens"] += overlap * (num_pieces - 1)
        ledger["num_special_tokens_added"] += num_added
        return document

    def _encode_pieces(self, pieces: Sequence[Piece]) -> list[Token]:
        """Encode a text, of whose pieces some are special tokens."""
        tokens: list[Token] = []
        begin = 0
        for is_special, group in groupby(pieces, lambda piece: piece[1]):
            texts = [text for text, *_ in group]
            for text in texts if is_special else ["".join(texts)]:
                whole = [(self._ids[text], 0, len(text))] if is_special else self._encode(text)
                tokens += [(id_, begin + a, begin + b) for id_, a, b in whole]
                begin += len(text)
        return tokens

    def _cut(self, values: list[Any]) -> list[list[Any]]:
        """Cut what the tokens of a document have beside them, or their ids, into pieces."""
        most, starts = self.options["max_length"] or len(values), [0]
        while starts[-1] + most < len(values):
            starts.append(starts[-1] + most - (self.options["overlap"] or 0))
        return [values[start : start + most] for start in starts]

    def _count_special(self, found: Text) -> None:
        text = found.text
        if found.pieces is not None:  # those that the template writes are not counted
            text = "\0".join(piece for piece, is_special, _ in found.pieces if not is_special)
        spelled = [token for token in self._find_special.findall(text) if token]
        self.ledger["num_special_tokens_in_text"] += len(spelled)
        source, record = self._record
        for token, count in Counter(spelled).items():
            entry = self._spelled.setdefault(token, {"token": token, "count": 0, "places": []})
            entry["count"] += count
            if len(entry["places"]) < 5:
                entry["places"].append({"source": source, "record": record})

    def _find_beside(
        self, found: Text, tokens: list[Token], document: Document
    ) -> dict[str, list[Any]]:
        """Return what stands beside each token of a text."""
        beside: dict[str, list[Any]] = {}
        if found.is_target is not None:
            beside["targets"] = [self._is_target(found.is_target, a, b) for _, a, b in tokens]
        elif "targets" in self.kinds:
            beside["targets"] = [1] * len(tokens)
        for each in self.keep:
            if each.kind == "tags" and found.values:
                value = found.values[each.name]
                segments, outside = find_segments(each, value, found.text, found.words)
                labels = {label for *_, label in segments if label is not None}
                document.names[each.name] = labels | ({outside} - {None})
                beside[each.name] = self._find_tags(segments, outside, found.text, tokens)
        return beside

    def _is_target(self, is_target: list[int], a: int, b: int) -> int:
        characters = is_target[a:b] if a < b else is_target[max(a - 1, 0) : a + 1]
        self.ledger["num_straddling_tokens"] += a < b and len({*characters}) > 1
        return int(all(characters))

    def _find_tags(
        self, segments: list[Segment], outside: Any, text: str, tokens: list[Token]
    ) -> list[Any]:
        tags, begun = [], set()
        for _, a, b in tokens:
            begin = next((place for place in range(a, b) if not is_space(text[place])), None)
            number = next(
                (n for n, (s, e, _) in enumerate(segments) if begin is not None and s <= begin < e),
                None,
            )
            is_later = number in begun and self.options["tag_subtokens"] != "all"
            tags.append(None if number is None or is_later else segments[number][2])
            begun.add(number)
        lost = [
            x for n, (*_, x) in enumerate(segments) if n not in begun and x not in (outside, None)
        ]
        self.ledger["num_words_without_token"] += len(lost)
        return tags


def spell_fields(fields: dict[str, Any]) -> bytes:
    """Return the JSON of the fields that a text is made from, which is hashed."""
    return json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _sample(lines: list[bytes], name: str) -> Iterator[Any]:
    """Yield the values of a field in all records that have one."""
    for line in lines:
        try:
            value = find_field(parse_object(line.decode()), name)
        except (BadRecordError, UnicodeDecodeError):
            continue
        if value is not None:
            yield value


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
