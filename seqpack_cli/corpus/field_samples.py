"""Read the kept fields of the first records, from which the types of columns follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from seqpack_cli.corpus.document_block import DocumentOptions
from seqpack_cli.corpus.documents import iter_documents
from seqpack_cli.corpus.kept_fields import find_folder_name
from seqpack_cli.corpus.sources import Source, SourceRange

NUM_RECORDS = 1000


class Spelled(str):
    """A field of CSV, which has no type of its own."""

    __slots__ = ()


def sample_values(
    sources: Sequence[Source],
    options: DocumentOptions,
    names: Sequence[str],
    limit: int = NUM_RECORDS,
) -> list[list[Any]]:
    """Return the values of fields in the first records; null and rejected ones are None.

    Args:
        names: of the fields.

    Raises:
        DataError: a record cannot be read and is not to be skipped, or a column is missing.
        MachineError: the package for a format is not installed.
    """
    rows = islice(_iter_rows(sources, options, names), limit)
    return [list(values) for values in zip(*rows, strict=True)] or [[] for _ in names]


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


def _iter_rows(
    sources: Sequence[Source], options: DocumentOptions, names: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    readers = [_AnyReader(name) for name in names]
    for index, source in enumerate(sources):
        if source.document == "file":
            yield tuple(find_folder_name(source) for _ in names)  # the file need not be read
            continue
        whole = SourceRange(index, source, 0, source.num_bytes)
        for block in iter_documents(whole, options, lambda _: None, readers):
            yield from zip(*block.fields, strict=True)
