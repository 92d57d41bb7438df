"""The fields of records that are kept beside the text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from seqpack_cli.corpus.document_block import DocumentOptions
    from seqpack_cli.corpus.sources import Source


class FieldReader(Protocol):
    """How the values of a kept field are read."""

    @property
    def name(self) -> str:
        """The field: a key, or a dotted path of keys."""

    def read_all(self, values: list[Any], texts: list[Any]) -> list[Any] | None:
        """Check many values; return None if each must be read on its own."""

    def read(self, value: Any, text: Any) -> Any:
        """Check one value; raises BadRecordError."""

    def parse(self, spelled: str) -> Any:
        """Return the value that a field of CSV spells."""


class _AnyReader:
    def __init__(self, name: str) -> None:
        self.name = name

    def read_all(self, values: list[Any], texts: list[Any]) -> list[Any] | None:
        del texts
        return values

    def read(self, value: Any, text: Any) -> Any:
        del text
        return value

    def parse(self, spelled: str) -> Any:
        return spelled


def sample_values(
    sources: Sequence[Source], options: DocumentOptions, names: Sequence[str], limit: int = 1000
) -> list[list[Any]]:
    """Return the values of fields in the first records."""
    from seqpack_cli.corpus.documents import iter_documents
    from seqpack_cli.corpus.sources import SourceRange

    readers = [_AnyReader(name) for name in names]

    def iter_rows() -> Iterator[tuple[Any, ...]]:
        for index, source in enumerate(sources):
            span = SourceRange(index, source, 0, source.num_bytes)
            for block in iter_documents(span, options, lambda _: None, readers):
                yield from zip(*block.fields, strict=True)

    rows = list(itertools.islice(iter_rows(), limit))
    return [list(values) for values in zip(*rows, strict=True)] or [[] for _ in names]
