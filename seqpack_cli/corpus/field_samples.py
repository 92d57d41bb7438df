"""Read the kept fields of the first records, from which the types of columns follow.

They are read as all records are, so that the parser in use never decides what is found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from seqpack_cli.corpus.document_block import BadRecordError, decode
from seqpack_cli.corpus.documents import iter_documents, iter_record_blocks
from seqpack_cli.corpus.json_lines import parse_object
from seqpack_cli.corpus.kept_fields import find_folder_name
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.records import MARK
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.text_reader import Made, TextReader

NUM_RECORDS = 1000
NUM_BYTES = 1 << 20


class Spelled(str):
    """A field of CSV, which has no type of its own."""

    __slots__ = ()


class Samples(NamedTuple):
    """What the first records have."""

    values: list[list[Any]]  # of each kept field; None where it is null, or the record is rejected
    num_records: int
    seen: set[str]  # those of the optional fields of the text that have a value anywhere


def sample_values(
    sources: Sequence[Source],
    options: DocumentOptions,
    names: Sequence[str],
    text: TextReader | None = None,
    *,
    limit: int = NUM_RECORDS,
) -> list[list[Any]]:
    """Return the values of fields in the first records; see `sample_records`.

    Args:
        text: what makes the texts of the run; they are not made here.
    """
    unmade = None if text is None else UnmadeText.like(text)
    return sample_records(sources, options, names, unmade, limit=limit).values


def sample_records(
    sources: Sequence[Source],
    options: DocumentOptions,
    names: Sequence[str],
    text: UnmadeText | None,
    *,
    limit: int = NUM_RECORDS,
) -> Samples:
    """Read the kept fields of the first records, and note which optional fields they have.

    These are the first NUM_RECORDS, or fewer if they are long: after NUM_BYTES of text no more are
    read unless a kept field has no value yet.

    Args:
        names: of the kept fields.

    Raises:
        DataError: a record cannot be read and is not to be skipped, or a column is missing.
        MachineError: the package for a format is not installed.
    """
    found: list[list[Any]] = [[] for _ in names]
    optional = () if text is None else text.optional
    seen: set[str] = set()
    num_bytes = num_records = 0
    for block in _iter_blocks(sources, options, names, text):
        rest = limit - num_records
        first = len(block.fields) - len(names)
        for name, marks in zip(optional, block.fields[:first], strict=False):
            if any(marks[:rest]):
                seen.add(name)
        for sample, more in zip(found, block.fields[first:], strict=True):
            sample += more[:rest]
        num_bytes += block.num_bytes
        num_records += min(rest, block.num_records)
        has_all = all(any(value is not None for value in sample) for sample in found)
        if num_records >= limit or (num_bytes >= NUM_BYTES and has_all):
            break
    return Samples(found, num_records, seen)


def sample_names(sources: Sequence[Source], max_document_bytes: int) -> list[str]:
    """Return the names of the fields of the first JSON records, for a note; bad ones have none.

    These are the first NUM_RECORDS, or fewer if they are long: at most NUM_BYTES and a block.
    """
    found: dict[str, None] = {}
    num_records = num_bytes = 0
    for index, source in enumerate(sources):
        whole = SourceRange(index, source, 0, source.num_bytes)
        for block in iter_record_blocks(
            whole, max_document_bytes=max_document_bytes, on_read=lambda _: None
        ):
            for record in block.records[: NUM_RECORDS - num_records]:
                with contextlib.suppress(BadRecordError):
                    line = decode(record.removeprefix(MARK), "error")
                    found |= dict.fromkeys(parse_object(line, (), ""))
            num_records += len(block.records)
            num_bytes += block.num_bytes
            if num_records >= NUM_RECORDS or num_bytes >= NUM_BYTES:
                return list(found)
    return list(found)


@dataclass(frozen=True)
class _AnyReader:
    """Read values of any type."""

    name: str
    reads_words: bool = True

    def read_all(self, values: list[Any], texts: list[Any]) -> list[Any]:
        del texts
        return values

    def read(self, value: Any, text: Any) -> Any:
        del text
        return value

    def parse(self, spelled: str) -> Any:
        return Spelled(spelled)


@dataclass(frozen=True)
class UnmadeText:
    """Read the fields of a text and make none; beside it, mark the optional ones with a value."""

    names: tuple[str, ...]
    options: tuple[str, ...]
    optional: tuple[str, ...]
    takes_strings: bool

    @classmethod
    def like(cls, text: TextReader) -> UnmadeText:
        """Return a reader of the same fields."""
        return cls(text.names, text.options, text.optional, text.takes_strings)

    @property
    def num_values(self) -> int:
        """See `TextReader`."""
        return len(self.optional)

    def read_all(self, columns: Sequence[list[Any]]) -> Made:
        """Return empty texts, and the marks."""
        marks = [[value is not None for value in each] for each in columns[len(self.names) :]]
        return [""] * len(columns[0]), marks

    def read(self, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """Return an empty text, and the marks."""
        return "", [value is not None for value in values[len(self.names) :]]

    def describe(self) -> dict[str, Any]:
        """See `TextReader`."""
        return {}


class _Block(NamedTuple):
    """Some records: marks of the optional fields, and then the values of the kept ones."""

    fields: list[list[Any]]
    num_records: int
    num_bytes: int  # of their texts


def _iter_blocks(
    sources: Sequence[Source],
    options: DocumentOptions,
    names: Sequence[str],
    text: UnmadeText | None,
) -> Iterator[_Block]:
    readers = [_AnyReader(name) for name in names]
    for index, source in enumerate(sources):
        if source.document == "file":
            # The file need not be read.
            yield _Block([[find_folder_name(source)] for _ in names], 1, 0)
            continue
        whole = SourceRange(index, source, 0, source.num_bytes)
        for block in iter_documents(whole, options, lambda _: None, readers, text):
            yield _Block(block.fields, len(block.texts), block.num_bytes)
