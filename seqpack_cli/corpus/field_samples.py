"""Read the kept fields of the first records, from which the types of columns follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seqpack_cli.corpus.document_block import DocumentOptions
from seqpack_cli.corpus.documents import iter_documents
from seqpack_cli.corpus.kept_fields import find_folder_name
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.text_reader import Made, TextReader

NUM_RECORDS = 1000
NUM_BYTES = 1 << 20


class Spelled(str):
    """A field of CSV, which has no type of its own."""

    __slots__ = ()


def sample_values(
    sources: Sequence[Source],
    options: DocumentOptions,
    names: Sequence[str],
    text: TextReader | None = None,
    *,
    limit: int = NUM_RECORDS,
) -> list[list[Any]]:
    """Return the values of fields in the first records; null and rejected ones are None.

    These are the first NUM_RECORDS, or fewer if they are long: after NUM_BYTES of text no more are
    read unless a field has no value yet.

    Args:
        names: of the fields.
        text: what makes the texts of the run; they are not made here.

    Raises:
        DataError: a record cannot be read and is not to be skipped, or a column is missing.
        MachineError: the package for a format is not installed.
    """
    found: list[list[Any]] = [[] for _ in names]
    num_bytes = 0
    for values, size in _iter_blocks(sources, options, names, text):
        for sample, more in zip(found, values, strict=True):
            sample += more[: limit - len(sample)]
        num_bytes += size
        has_all = all(any(value is not None for value in sample) for sample in found)
        if len(found[0]) >= limit or (num_bytes >= NUM_BYTES and has_all):
            break
    return found


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
class _UnmadeText:
    """Read the fields of a text, and make none."""

    names: tuple[str, ...]
    options: tuple[str, ...]
    optional: tuple[str, ...]
    takes_strings: bool
    num_values = 0

    @classmethod
    def like(cls, text: TextReader) -> _UnmadeText:
        return cls(text.names, text.options, text.optional, text.takes_strings)

    def read_all(self, columns: Sequence[list[Any]]) -> Made:
        return [""] * len(columns[0]), []

    def read(self, values: Sequence[Any]) -> tuple[str, list[Any]]:
        del values
        return "", []

    def describe(self) -> dict[str, Any]:
        return {}


def _iter_blocks(
    sources: Sequence[Source],
    options: DocumentOptions,
    names: Sequence[str],
    text: TextReader | None,
) -> Iterator[tuple[list[list[Any]], int]]:
    """Yield the values of each field in some records, and the bytes of their texts."""
    readers = [_AnyReader(name) for name in names]
    for index, source in enumerate(sources):
        if source.document == "file":
            yield [[find_folder_name(source)] for _ in names], 0  # the file need not be read
            continue
        whole = SourceRange(index, source, 0, source.num_bytes)
        unmade = None if text is None else _UnmadeText.like(text)
        for block in iter_documents(whole, options, lambda _: None, readers, unmade):
            yield block.fields, block.num_bytes
