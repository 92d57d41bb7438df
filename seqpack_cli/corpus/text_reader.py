"""How the text of a document is made from the fields of its record.

Most texts are one field. Others are made from several, by a reader that also returns what stands
beside the text: it becomes the first of the block's fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from seqpack_cli.corpus.missing_fields import TEXT_FIELD
from seqpack_cli.corpus.words import join_all_words, join_words

Made = tuple[list[str], list[list[Any]]]  # texts, and lists of what stands beside them


class TextReader(Protocol):
    """Makes the texts of documents."""

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are needed, at least one: keys, or dotted paths of keys."""

    @property
    def options(self) -> tuple[str, ...]:
        """The option that asks for each of them."""

    @property
    def optional(self) -> tuple[str, ...]:
        """Fields that may be missing, whose value then is None; they come after the others."""

    @property
    def takes_strings(self) -> bool:
        """Whether every field is a string, so that a table of strings can hold it."""

    @property
    def num_values(self) -> int:
        """How many lists stand beside the texts."""

    def read_all(self, columns: Sequence[list[Any]]) -> Made:
        """Return the texts of some records.

        Args:
            columns: the values of each field.

        Raises:
            TypeError, ValueError, BadRecordError: each record must be read on its own.
        """

    def read(self, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """Return one text, and what stands beside it; raises BadRecordError."""

    def describe(self) -> dict[str, Any]:
        """Return what decides the texts besides the records and options, as plain values."""


@dataclass(frozen=True)
class FieldText:
    """A text that is one field.

    Args:
        takes_words: a list of words is accepted too, and joined with one space.
    """

    name: str
    takes_words: bool = False
    options = (TEXT_FIELD,)
    optional = ()
    takes_strings = True
    num_values = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The field."""
        return (self.name,)

    def read_all(self, columns: Sequence[list[Any]]) -> Made:
        """Return the texts; raise TypeError if one is not a text."""
        return join_all_words(columns[0], takes_words=self.takes_words), []

    def read(self, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """Return the text; raises BadRecordError."""
        return join_words(values[0], self.name, takes_words=self.takes_words), []

    def describe(self) -> dict[str, Any]:
        """Return nothing: the name is an option."""
        return {}
