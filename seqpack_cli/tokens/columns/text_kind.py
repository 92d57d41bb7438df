"""Columns of text, which is kept as it is: the ids of records, titles, sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.corpus import fields as corpus_fields
from seqpack_cli.files.tensor_file import Spool, Tensor
from seqpack_cli.tokens.columns.comparisons import make_text_test
from seqpack_cli.tokens.columns.kind import Collected, Kind, PartFile, wrong_value_error
from seqpack_cli.tokens.columns.text_values import TextValues


@dataclass(frozen=True)
class TextReader:
    """Read strings."""

    name: str
    num_lists = 1

    @property
    def fields(self) -> tuple[corpus_fields.Field]:
        """The one field."""
        return (corpus_fields.Field(self.name, corpus_fields.KEEP),)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values; raise TypeError unless all are strings that UTF-8 can encode."""
        "".join(columns[0]).encode()
        return list(columns)

    def read(self, values: Sequence[Any]) -> list[str]:
        """Return the value of a record; raises BadRecordError."""
        (value,) = values
        if type(value) is not str:
            raise wrong_value_error(self.name, value, "a string")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise wrong_value_error(self.name, value, "Unicode text") from error
        return [value]

    def parse(self, spelled: str) -> Any:
        """Return a field of CSV: the text."""
        return spelled


class TextCollector:
    """Collects texts, one per sequence."""

    def __init__(self, file: PartFile) -> None:
        self._lengths: list[np.ndarray] = []
        self._spool = Spool(*file)

    def add(self, values: Sequence[Any], num_sequences: np.ndarray) -> None:
        """Add the texts of some documents."""
        texts = TextValues.of(values)
        if (num_sequences > 1).any():
            texts = texts.take(np.repeat(np.arange(len(texts)), num_sequences))
        lengths = texts.lengths
        self._lengths.append(lengths.astype(np.min_scalar_type(int(lengths.max(initial=0)))))
        self._spool.write(texts.data.tobytes())

    def finish(self, name: str) -> Collected:
        """Return the bytes of all texts, and where each begins."""
        count = sum(map(len, self._lengths))
        return Collected(
            {
                f"column.{name}.offsets": Tensor("int64", count + 1, self._iter_offsets()),
                f"column.{name}": Tensor("uint8", self._spool.num_bytes, self._spool.read()),
            }
        )

    def _iter_offsets(self) -> Any:
        end = np.zeros(1, np.int64)
        yield end
        for lengths in self._lengths:
            ends = end[-1] + np.cumsum(lengths, dtype=np.int64)
            yield ends
            end = ends[-1:] if len(ends) else end


TEXT = Kind(
    "text",
    "uint8",
    0,
    lambda field: TextReader(field.name),
    lambda _, file: TextCollector(file),
    is_text=True,
    make_test=make_text_test,
)
