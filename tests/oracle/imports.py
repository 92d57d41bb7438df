"""Write the store that `import` makes of ids, from docs/formats.md, with nothing of seqpack."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from oracle.kept_fields import BadRecordError, check, find_field, parse_object
from oracle.stores import (
    CODES,
    HEADER,
    ROLES,
    Document,
    PartsWriter,
    Range,
    describe_vocabulary,
    make_index,
    split_lines,
)

OPTIONS: dict[str, Any] = {
    "file_format": "auto",
    "ids_field": "input_ids",
    "labels_field": None,
    "attention_mask_field": None,
    "loss_mask_field": None,
    "ignore_fields": [],
    "dtype": None,
    "eos": None,
    "on_bad_record": "error",
    "max_document_bytes": 64 << 20,
    "part_bytes": 64 << 20,
    "keep": [],
}
FIELDS = ("labels", "attention_mask", "loss_mask")
FOREIGN_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int64": 5, **CODES}  # Megatron's own
Documents = list[list[list[int]]]  # the sequences of each document


def write_pair(prefix: Path, documents: Documents, dtype: str) -> None:
    """Write an indexed dataset, with the empty sequences of its documents."""
    ids, kind = [*chain(*chain(*documents))], np.dtype(dtype).newbyteorder("<")
    Path(f"{prefix}.bin").write_bytes(np.array(ids, kind).tobytes())
    Path(f"{prefix}.idx").write_bytes(make_index(documents, kind, FOREIGN_CODES[dtype]))


def write_store(folder: Path, prefix: Path, documents: Documents, vocab_size: int) -> None:
    """Write the store of an indexed dataset without a tokenizer, in one part."""
    del documents  # the pair has them
    files = {
        f"{prefix}{suffix}": Path(f"{prefix}{suffix}").read_bytes() for suffix in (".bin", ".idx")
    }
    size = len(files[f"{prefix}.bin"])
    ImportWriter(folder, {}, vocab_size=vocab_size).write(files, [[(0, 0, size)]])


def read_pair(index: bytes) -> tuple[np.dtype[Any], list[list[int]]]:
    """Return the dtype of an indexed dataset, and the lengths of the sequences of each document."""
    *_, code, num_sequences, num_firsts = HEADER.unpack(index[: HEADER.size])
    (name,) = (name for name, found in FOREIGN_CODES.items() if found == code)
    lengths = np.frombuffer(index, "<i4", num_sequences, 34).tolist()
    firsts = np.frombuffer(index, "<i8", num_firsts, 34 + 12 * num_sequences).tolist()
    return np.dtype(name).newbyteorder("<"), [lengths[a:b] for a, b in pairwise(firsts)]


class ImportWriter(PartsWriter):
    """Write the store that `import` makes of pairs, ids alone, or records.

    Args:
        given: the options that differ from the defaults, `keep` as `--keep` is spelled.
        tables: of each Parquet file, the first byte of its row groups and their rows.
    """

    def __init__(
        self,
        folder: Path,
        given: dict[str, Any],
        *,
        vocab_size: int = 0,
        tokenizer_json: bytes | None = None,
        tables: dict[str, list[tuple[int, list[dict[str, Any]]]]] | None = None,
    ) -> None:
        self._tables = tables or {}
        self.options = {**OPTIONS, **given}
        vocabulary = {
            "dtype": "uint16" if vocab_size <= 65_536 else "int32",
            "vocab_size": vocab_size,
            "max_id": vocab_size - 1,
            **dict.fromkeys(ROLES),
            "eos_id": self.options["eos"],
            "tokenizer_blake3": None,
        }
        if tokenizer_json is not None:
            vocabulary = describe_vocabulary(tokenizer_json)
        manifest = {
            "format": "seqpack.tokens",
            "format_version": 5,
            "made_by": "import",
            **vocabulary,
            "options": self.options,
        }
        super().__init__(folder, manifest, self.options["keep"])
        if tokenizer_json is not None:
            (folder / "tokenizer.json").write_bytes(tokenizer_json)

    def write(self, files: dict[str, bytes], parts: Sequence[Sequence[Range]]) -> None:
        """Write the store of files; an `.idx` belongs to the `.bin` before it."""
        self._files = files
        records = [
            record
            for name in files
            if name.endswith((".jsonl", ".parquet"))
            for record, _ in self._read_records(name, files[name], 0, len(files[name]))
            if isinstance(record, dict)
        ]
        ignored = {*self.options["ignore_fields"], *(each.name for each in self.keep)}
        named = [self.options[f"{name}_field"] for name in FIELDS]
        for name in FIELDS:  # where it has its usual name, it is read without an option
            if any(name in record for record in records) and name not in {*ignored, *named}:
                self.options[f"{name}_field"] = self.options[f"{name}_field"] or name
        if self.options["labels_field"] or self.options["loss_mask_field"]:
            self.kinds["targets"] = "targets"
        self.options["ignore_fields"] = sorted(self.options["ignore_fields"])
        for each in self.keep:
            values = [read_value(record, each.name) for record in records]
            each.choose([value for value in values if value is not None])
        sources = {name: data for name, data in files.items() if not name.endswith(".idx")}
        self.write_parts(sources, parts)

    def read_range(
        self, name: str, data: bytes, start: int, end: int
    ) -> Iterator[Document | BadRecordError]:
        """Yield the documents of a range."""
        if name.endswith((".jsonl", ".parquet")):
            for record, byte in self._read_records(name, data, start, end):
                yield self._try(record, byte)
        elif self._find_index(name) is not None:
            dtype, lengths = read_pair(self._find_index(name) or b"")
            ids, place = np.frombuffer(data, dtype).tolist(), 0
            for document in lengths:
                ends = [place + sum(document[: n + 1]) for n in range(len(document))]
                pieces = [ids[b - n : b] for b, n in zip(ends, document, strict=True)]
                if is_inside(place * dtype.itemsize, start, end, len(data)):
                    yield self._make_document(pieces)
                place += sum(document)
        else:
            begin, dtype = self._find_layout(data)
            yield from self._split(np.frombuffer(data[max(start, begin) : end], dtype).tolist())

    def hash_range(self, name: str, data: bytes, start: int, end: int) -> bytes:
        """Return what the checksum of a range is of."""
        index = self._find_index(name)
        if index is None:
            return data[start:end]
        dtype, lengths = read_pair(index)
        begins = np.cumsum([0, *map(sum, lengths)]) * dtype.itemsize
        places = zip(lengths, begins, strict=False)
        some = [found for found, begin in places if is_inside(begin, start, end, len(data))]
        firsts = np.cumsum([0, *map(len, some)]).astype("<i8")
        return firsts.tobytes() + np.array([*chain(*some)], "<i4").tobytes() + data[start:end]

    def _find_index(self, name: str) -> bytes | None:
        return (
            self._files.get(name.removesuffix(".bin") + ".idx") if name.endswith(".bin") else None
        )

    def _find_layout(self, data: bytes) -> tuple[int, np.dtype[Any]]:
        """Return where the ids of a file of ids alone begin, and their type."""
        if not data.startswith(b"\x93NUMPY"):
            return 0, np.dtype(self.options["dtype"]).newbyteorder("<")
        begin = 10 + int.from_bytes(data[8:10], "little")  # numpy's .npy, version 1
        return begin, np.dtype(ast.literal_eval(data[10:begin].decode())["descr"])

    def _split(self, ids: list[int]) -> Iterator[Document | BadRecordError]:
        """Yield documents that end with each `eos`."""
        document: list[int] = []
        for id_ in ids:
            document.append(id_)
            if id_ == self.options["eos"]:
                yield self._make_document([document])
                document = []
        if document:
            yield self._make_document([document])

    def _read_records(
        self, name: str, data: bytes, start: int, end: int
    ) -> Iterator[tuple[dict[str, Any] | BadRecordError | None, int | None]]:
        """Yield each record, what is wrong with it, or None for a blank line, and its byte."""
        if name.endswith(".parquet"):
            for first, rows in self._tables[name]:
                if start <= first < end:
                    yield from ((row, None) for row in rows)
            return
        for line in split_lines(data[start:end]):
            record: dict[str, Any] | BadRecordError | None
            try:
                record = parse_object(line.decode()) if line.strip() else None
            except (BadRecordError, UnicodeDecodeError):
                record = BadRecordError("not a record")
            yield record, start
            start += len(line) + 1

    def _try(
        self, record: dict[str, Any] | BadRecordError | None, byte: int | None
    ) -> Document | BadRecordError:
        if record is None:
            return self._make_document([[]], {})
        try:
            if isinstance(record, BadRecordError):
                raise record
            return self._read(record)
        except BadRecordError as error:
            error.byte = byte
            return error

    def _read(self, record: dict[str, Any]) -> Document | BadRecordError:
        """Check the lists of a record, and make its document."""
        ids = read_list(record, self.options["ids_field"])
        fields = {name: self.options[f"{name}_field"] for name in FIELDS}
        lists = {
            name: read_list(record, found, takes_booleans=name != "labels")
            for name, found in fields.items()
            if found is not None
        }
        values = {each.name: each.read(find_field(record, each.name), None) for each in self.keep}
        check(all(len(found) == len(ids) for found in lists.values()), "as many")
        mask = lists.get("attention_mask", [1] * len(ids))
        check({*mask} <= {0, 1}, "0 or 1")
        check([x for x, _ in groupby(mask)].count(1) <= 1, "padding at the ends only")
        labels, loss = lists.get("labels"), lists.get("loss_mask")
        is_target = [int(label != -100) for label in labels] if labels is not None else loss
        if labels is not None:
            for id_, label, is_token in zip(ids, labels, mask, strict=True):
                check(label in ([-100, id_] if is_token else [-100]), "labels")
        if loss is not None:
            check({*loss} <= {0, 1}, "0 or 1")
            check(not any(x and not y for x, y in zip(loss, mask, strict=True)), "0 for padding")
            check(labels is None or is_target == loss, "a label where the mask is 1")
        kept = [place for place, is_token in enumerate(mask) if is_token]
        made = self._make_document([[ids[place] for place in kept]], values)
        if isinstance(made, Document):
            self.ledger["num_padding_tokens"] += len(ids) - len(kept)
            self.ledger["num_encoded_tokens"] += len(ids) - len(kept)
            if is_target is not None:
                made.values["targets"] = [is_target[place] for place in kept]
        return made

    def _make_document(
        self, pieces: list[list[int]], values: dict[str, Any] | None = None
    ) -> Document | BadRecordError:
        """Return a document without its empty sequences, or a rejected one."""
        sequences = [ids for ids in pieces if ids]
        flat = [*chain(*sequences)]
        if any(not 0 <= id_ <= self.manifest["max_id"] for id_ in flat):
            error = BadRecordError("has id")
            error.byte = None  # also in JSON lines
            return error
        document = Document(sequences, np.array(flat, "<i4").tobytes())
        if values is None:  # of an indexed dataset, whose sequences may be empty
            self.ledger["num_empty_sequences"] += len(pieces) - len(sequences)
        for name, value in (values or {}).items():
            document.values[name] = [value] * len(sequences)
        self.ledger["num_encoded_tokens"] += len(flat)
        self.ledger["num_empty_documents"] += not sequences
        return document


def is_inside(begin: int, start: int, end: int, size: int) -> bool:
    """Return whether a document is in a range; those without ids at the end are in the last."""
    return start <= begin < end or begin == size == end


def read_value(record: Any, name: str) -> Any:
    """Return a field of a record, None if there is none."""
    try:
        return find_field(record, name)
    except BadRecordError:
        return None


def read_list(record: dict[str, Any], name: str, *, takes_booleans: bool = False) -> list[int]:
    """Return a list of integers of a record."""
    found = find_field(record, name)
    check(isinstance(found, list), "a list of integers")
    types: Iterable[type] = (int, bool) if takes_booleans else (int,)
    check(all(type(x) in types and -(2**63) <= x < 2**63 for x in found), "an integer")
    return [int(x) for x in found]
