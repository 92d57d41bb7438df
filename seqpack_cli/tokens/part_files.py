"""The files of one part of a token store: `.bin`, `.idx`, the columns, and its receipt.

`.bin` and `.idx` are Megatron-LM's indexed dataset, which Megatron-LM, NeMo and GPT-NeoX read
unchanged. `.bin` is the ids back to back. `.idx`, all little-endian: 9 bytes `MMIDIDX\\0\\0`; u64
version 1; u8 dtype code; u64 S sequences; u64 D documents + 1; int32[S] lengths in tokens; int64[S]
starts in bytes; int64[D] the first sequence of each document. fairseq's index has the same magic
but another size, so the size is checked.

The columns file holds `document_hashes`, one for each document of the part, and the columns: one
entry per sequence, or one per token. Classes are numbered as the part numbers them;
`class_names.NAME` is the JSON list of their names. The receipt is what a continued run and the
manifest need to know of a finished part.
"""

from __future__ import annotations

import functools
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from seqpack_cli.corpus.records import Reject
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.errors import DataError, FolderError, quote
from seqpack_cli.files.disk import HashingWriter
from seqpack_cli.files.mapping import map_regular, view_array
from seqpack_cli.files.places import Place, at
from seqpack_cli.files.tensor_file import Spool, Tensor, map_tensor_file, write_tensor_file
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.run_folder import write_receipt
from seqpack_cli.runs.workers import advance
from seqpack_cli.tokens.columns import KINDS, OVERLAP, Column
from seqpack_cli.tokens.kinds import NO_CLASS, Kind, PlannedColumn, Values, map_numbers
from seqpack_cli.tokens.sequences import DocumentSequences
from seqpack_cli.tokens.text_values import check_offsets

MAGIC = b"MMIDIDX\0\0"
HEADER = struct.Struct("<9sQBQQ")  # magic, version, dtype code, S, D
VERSION = 1
CODE_OF_DTYPE = {"uint16": 8, "int32": 4}
MAX_LENGTH = 2**31 - 1
HASHES = "document_hashes"
FORMAT = "seqpack.columns"
DAMAGED_HINT = "the store was changed or damaged: make it again with --overwrite"
LEDGER_NAMES = (
    "num_documents",
    "num_empty_documents",
    "num_empty_sequences",
    "num_rejected",
    "num_dropped_documents",
    "num_sequences",
    "num_encoded_tokens",
    "num_special_tokens_added",
    "num_truncated_tokens",
    "num_dropped_tokens",
    "num_padding_tokens",
    "num_tokens",
    "num_target_tokens",
    "num_straddling_tokens",
    "num_overlap_tokens",
    "num_special_tokens_in_text",
    "num_words_without_token",
)
REPLACED = "num_replaced_documents"  # counted too, for a note and run.json
NO_COUNTS: Mapping[str, int] = Counter()


@dataclass(frozen=True)
class Index:
    """The lengths and places of the sequences and documents of one part."""

    lengths: np.ndarray  # int32[S], in tokens
    starts: np.ndarray  # int64[S], in bytes
    first_sequences: np.ndarray  # int64[D + 1]: document d holds sequences [d] up to [d + 1]


def choose_dtype(max_id: int) -> str:
    """Return the narrowest dtype that holds every id up to max_id."""
    return "uint16" if max_id <= np.iinfo(np.uint16).max else "int32"


def cast_ids(ids: np.ndarray, dtype: str, *, max_id: int) -> np.ndarray:
    """Cast ids to the dtype of the store; checked first, since numpy would wrap them silently.

    Raises:
        DataError: an id is negative or above max_id.
    """
    smallest = 0 if not len(ids) or ids.dtype.kind == "u" else int(ids.min())
    largest = int(ids.max()) if len(ids) else 0
    if smallest < 0 or largest > max_id:
        found = largest if largest > max_id else smallest
        raise DataError(f"tokenizer.json: gave id {found}, expected ids from 0 to {max_id}")
    return ids.astype(f"<{np.dtype(dtype).str[1:]}", copy=False)


def write_index(
    file: HashingWriter, *, lengths: np.ndarray, num_sequences: np.ndarray, dtype: str
) -> None:
    """Write the `.idx` of a part.

    Args:
        lengths: in tokens, one per sequence.
        num_sequences: one per document.
    """
    if len(lengths) and lengths.max() > MAX_LENGTH:
        raise DataError(
            f"a sequence of {int(lengths.max()):,} tokens, expected at most {MAX_LENGTH:,}",
            hint="pass --max-length",
        )
    code = CODE_OF_DTYPE[dtype]
    file.write(HEADER.pack(MAGIC, VERSION, code, len(lengths), len(num_sequences) + 1))
    size = LIMITS.entries_per_block
    for first in range(0, len(lengths), size):
        file.write(lengths[first : first + size].astype("<i4"))
    item_bytes = np.dtype(dtype).itemsize
    _write_sums(file, lengths, item_bytes)
    num_found = _write_sums(file, num_sequences, 1)
    file.write(np.array([num_found], "<i8"))


def _write_sums(file: HashingWriter, counts: np.ndarray, unit: int) -> int:
    """Write the running sum of counts in units, a block at a time; return the total count."""
    total, size = 0, LIMITS.entries_per_block
    for first in range(0, len(counts), size):
        sums = to_offsets(counts[first : first + size]) + total
        file.write((sums[:-1] * unit).astype("<i8"))
        total = int(sums[-1])
    return total


def map_index(
    file: Path, path: Place, part: Mapping[str, Any], dtype: str, *, is_checked: bool = True
) -> Index:
    """Map an `.idx` and check that it describes a part.

    Args:
        file: the file, or a local copy of it.
        path: its name in errors.
        part: its entry in the manifest.
        is_checked: read all of it; else only size and header are checked.

    Raises:
        FolderError: it is damaged, or that of another part.
    """
    num_sequences, num_firsts = part["num_sequences"], part["num_documents"] + 1
    header = HEADER.pack(MAGIC, VERSION, CODE_OF_DTYPE[dtype], num_sequences, num_firsts)
    starts_offset = len(header) + 4 * num_sequences
    firsts_offset = starts_offset + 8 * num_sequences
    mapped = map_regular(file, num_bytes=firsts_offset + 8 * num_firsts)
    if mapped[: len(header)].tobytes() != header:
        raise FolderError(f"{path}: its header does not match the manifest", hint=DAMAGED_HINT)
    lengths = view_array(mapped, "<i4", count=num_sequences, offset=len(header))
    starts = view_array(mapped, "<i8", count=num_sequences, offset=starts_offset)
    firsts = view_array(mapped, "<i8", count=num_firsts, offset=firsts_offset)
    if is_checked:
        ends, num_tokens = to_offsets(lengths), part["num_tokens"]
        if lengths.min(initial=1) < 1 or ends[-1] != num_tokens:
            what = f"lengths do not add up to the {num_tokens:,} ids of its .bin"
            raise FolderError(f"{path}: {what}", hint=DAMAGED_HINT)
        is_sound = np.array_equal(starts, ends[:-1] * np.dtype(dtype).itemsize)
        is_sound = is_sound and (firsts[0], firsts[-1]) == (0, num_sequences)
        if not is_sound or (firsts[1:] < firsts[:-1]).any():
            what = "starts or documents do not follow from the lengths"
            raise FolderError(f"{path}: {what}", hint=DAMAGED_HINT)
    return Index(lengths, starts, firsts)


def columns_name(part: str) -> str:
    """Return the name of a part's file of columns."""
    return f"{part}.columns.safetensors"


def write_part_columns(
    path: Place, hashes: Sequence[np.ndarray], columns: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Write the columns of a part; return the name, size and checksum of the file."""
    tensors = {HASHES: Tensor("uint64", sum(map(len, hashes)), hashes), **columns}
    return {"name": path.name, **write_tensor_file(path, tensors, {"format": FORMAT})}


class PartColumns:
    """The mapped columns of one part; classes are in the part's numbers.

    Args:
        file: the file, or a local copy of it.
        path: shown in errors.
        part: the part's entry in the manifest.
        columns: those that the file must hold.
        shown: those to read, with the classes of the store, which may be more.

    Raises:
        FolderError: the file is damaged, or is not that of this part.
    """

    def __init__(
        self,
        file: Path,
        path: Place,
        part: Mapping[str, Any],
        columns: Mapping[str, Column],
        shown: Sequence[Column],
    ) -> None:
        self._path = path
        self.arrays, metadata = map_tensor_file(file, path, num_bytes=part["files"][2]["bytes"])
        if metadata.get("format") != FORMAT:
            raise FolderError(
                f"{path}: format is {quote(metadata.get('format'))}, expected {FORMAT!r}"
            )
        self._check_arrays(part, columns)
        with_classes = [column for column in shown if column.class_names is not None]
        self._tables = {column.name: self._make_table(column) for column in with_classes}

    @property
    def hashes(self) -> np.ndarray:
        """XXH3-64 of the text of each document, uint64[documents]."""
        return self.arrays[HASHES]

    def finish(self, column: Column, values: Values) -> Values:
        """Check entries that were taken from the arrays; return them with the store's classes.

        Raises:
            FolderError: a value is impossible.
        """
        if column.name not in self._tables:
            if not column.is_sound(values):
                raise self._wrong(column, "a value that cannot be")
            return values
        assert isinstance(values, np.ndarray)  # noqa: S101 - classes are numbers
        table = self._tables[column.name]
        outside = (values >= len(table) + NO_CLASS) | (values < 0)
        if column.is_per_token:
            outside &= values != NO_CLASS
        if outside.any():
            raise self._wrong(column, f"class {values[outside.argmax()]}")
        return table[values]

    def _make_table(self, column: Column) -> np.ndarray:
        stored = self.arrays[f"class_names.{column.name}"]
        try:
            return map_numbers(json.loads(stored.tobytes()), column.class_numbers)
        except (ValueError, KeyError, TypeError) as error:
            raise self._wrong(column, "class names that are not those of the manifest") from error

    def _wrong(self, column: Column, found: str) -> FolderError:
        what = f"column {quote(column.name)} holds {found}"
        return FolderError(f"{self._path}: {what}", hint=DAMAGED_HINT)

    def _check_arrays(self, part: Mapping[str, Any], columns: Mapping[str, Column]) -> None:
        expected: dict[str, tuple[str, int | None]] = {HASHES: ("uint64", part["num_documents"])}
        for column in columns.values():
            count = part["num_tokens" if column.is_per_token else "num_sequences"]
            expected[column.tensor_name] = (column.dtype, None if column.is_text else count)
            if column.is_text:
                expected[column.offsets_name] = ("int64", count + 1)
            if column.class_names is not None:
                expected[f"class_names.{column.name}"] = ("uint8", None)
        if set(self.arrays) != set(expected):
            raise FolderError(
                f"{self._path}: holds {sorted(self.arrays)}, expected {sorted(expected)}"
            )
        for name, (dtype, num) in expected.items():
            array = self.arrays[name]
            if array.dtype != dtype or num not in (None, len(array)):
                raise FolderError(
                    f"{self._path}: {name} is {array.dtype}[{len(array)}], "
                    f"expected {dtype}[{'' if num is None else num}]"
                )
        for column in columns.values():
            if column.is_text:
                num_bytes, name = len(self.arrays[column.tensor_name]), column.offsets_name
                counts = {"num_texts": part["num_sequences"], "num_bytes": num_bytes}
                try:
                    check_offsets(self.arrays[name], **counts, name=name)
                except ValueError as error:
                    raise FolderError(f"{self._path}: {error}") from error


class MadeDocuments(NamedTuple):
    """Some documents of a part, in order, as sequences, and what stands beside them."""

    made: DocumentSequences
    ids: np.ndarray  # those of the sequences, in the dtype of the store
    hashes: np.ndarray  # uint64, one per document
    fields: Sequence[Sequence[Any]]  # of each kept field, an entry per document
    num_rejected: int  # documents that stand for records that cannot be read
    num_encoded_tokens: int  # before any were added or left out
    counts: Mapping[str, int] = NO_COUNTS  # others of the ledger


class PartWriter:
    """Writes the files of one part, whatever makes its sequences.

    Args:
        folder: of the store.
        name: of the part.
        dtype: of the ids.
        columns: those to make. Their `kinds` collect them; `readers` read those that are kept.
    """

    def __init__(
        self, folder: Place, name: str, dtype: str, columns: Sequence[PlannedColumn]
    ) -> None:
        self._folder, self._name, self._dtype = folder, name, dtype
        self._stack = ExitStack()  # removes temporary files
        open_spool = functools.partial(Spool, folder / columns_name(name), self._stack)
        self.kinds: list[Kind] = [KINDS[it.kind](it, open_spool) for it in columns]
        self.readers = [kind for kind in self.kinds if kind.field.is_kept]
        self._hashes: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._num_sequences: list[np.ndarray] = []
        self._ledger = Counter[str]()
        self._ranges: list[dict[str, Any]] = []
        self._rejects: list[list[Any]] = []
        for kind in self.kinds:
            kind.counts = self._ledger

    def add_range(self, source_range: SourceRange, num_documents: int, digest: str) -> None:
        """Note a range of the input that was read, and the BLAKE3 of its bytes."""
        index, _, start, end = source_range
        entry = {"source": index, "start": start, "end": end}
        self._ranges.append({**entry, "num_documents": num_documents, "blake3": digest})

    def add_rejects(self, source_range: SourceRange, rejects: Iterable[Reject]) -> None:
        """Note the rejected records of a range, numbered within it."""
        self._rejects += [[source_range.source_index, *reject] for reject in rejects]

    def write(
        self, blocks: Iterable[MadeDocuments], describe: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Write all documents of the part, then its receipt; return this.

        Args:
            describe: returns more fields of the receipt, when all documents are written.
        """
        bin_path, idx_path = (self._folder / f"{self._name}.{it}" for it in ("bin", "idx"))
        with self._stack:
            with at(bin_path).publish() as file:
                for block in blocks:
                    file.write(block.ids)
                    self._add(block)
            files = [{"name": bin_path.name, **file.describe()}]
            with at(idx_path).publish() as file:
                lengths, num_sequences = _join(self._lengths), _join(self._num_sequences)
                write_index(file, lengths=lengths, num_sequences=num_sequences, dtype=self._dtype)
            files.append({"name": idx_path.name, **file.describe()})
            columns: dict[str, Tensor] = {}
            for kind in self.kinds:
                columns |= kind.finish()
            path = self._folder / columns_name(self._name)
            files.append(write_part_columns(path, self._hashes, columns))
        self._ledger.setdefault("num_target_tokens", self._ledger["num_tokens"])
        receipt = {
            "ledger": {name: self._ledger[name] for name in (*LEDGER_NAMES, REPLACED)},
            "ranges": self._ranges,
            "files": files,
            "class_names": {it.name: it.class_names for it in self.kinds if it.has_classes},
            "rejects": self._rejects,
            **describe(),
        }
        write_receipt(self._folder, self._name, receipt)
        return receipt

    def _add(self, block: MadeDocuments) -> None:
        made = block.made
        self._hashes.append(block.hashes)
        self._lengths.append(_narrow(made.lengths))
        self._num_sequences.append(_narrow(made.num_sequences))
        self._add_columns(block)
        num_silent = int((made.num_sequences == 0).sum())
        self._ledger.update(
            num_documents=len(made.num_sequences),
            num_rejected=block.num_rejected,
            num_dropped_documents=made.num_dropped_documents,
            num_empty_documents=num_silent - block.num_rejected - made.num_dropped_documents,
            num_sequences=len(made.lengths),
            num_encoded_tokens=block.num_encoded_tokens,
            num_special_tokens_added=made.num_special_tokens,
            num_truncated_tokens=made.num_truncated_tokens,
            num_dropped_tokens=made.num_dropped_tokens,
            num_overlap_tokens=int(made.overlaps.sum()),
            num_tokens=len(made.ids),
        )
        self._ledger.update(block.counts)
        advance(0, len(made.ids))

    def _add_columns(self, block: MadeDocuments) -> None:
        """Add entries of sequences and tokens, and the values of documents that have sequences."""
        made = block.made
        entries = {OVERLAP: made.overlaps, **made.columns}
        has_sequences = made.num_sequences > 0
        num_sequences = made.num_sequences[has_sequences]
        alive = None if has_sequences.all() else np.flatnonzero(has_sequences).tolist()
        for reader, values in zip(self.readers, block.fields, strict=True):
            if not reader.is_per_token:
                values = values if alive is None else [values[place] for place in alive]
                reader.add(values, num_sequences)
        for kind in self.kinds:
            if kind.name in entries:
                kind.add_entries(entries[kind.name])


def hash_texts(texts: Iterable[bytes | memoryview]) -> np.ndarray:
    """Return the XXH3-64 of each text, uint64[N]."""
    return np.fromiter(map(xxhash.xxh3_64_intdigest, texts), np.uint64)


def _narrow(counts: np.ndarray) -> np.ndarray:
    """Cast counts to the smallest dtype that holds them: a part may have 30 million documents."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def _join(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
