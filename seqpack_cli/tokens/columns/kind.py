"""What every kind of column answers; a kind is one file beside this one and a line in `kinds`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from seqpack_cli.corpus.fields import KEEP, BadRecordError, Reader
from seqpack_cli.errors import quote
from seqpack_cli.files.places import Place
from seqpack_cli.files.tensor_file import Tensor
from seqpack_cli.tokens.columns.text_values import TextValues

Values = np.ndarray | TextValues  # of one column: an entry per sequence or row, or per token
Test = Callable[[Any], np.ndarray]  # Values -> which of them meet a condition, bool
Label = str | int | float | bool  # the name of a class
MakeTest = Callable[[str, str, Sequence[Label]], Test]


class Collected(NamedTuple):
    """A column of one part."""

    tensors: dict[str, Tensor]
    class_names: list[Label] | None = None  # of the part, for a kind that has classes


class Collector(Protocol):
    """Collects a column of one part while the part is made."""

    def add(self, values: Sequence[Any], num_sequences: np.ndarray) -> None:
        """Add the values of some documents.

        Args:
            values: as the reader returned them, of documents that have sequences.
            num_sequences: of each of them, all at least 1.
        """

    def finish(self, name: str) -> Collected:
        """Return the column; called once, at the end of the part."""


class TokenCollector(Protocol):
    """Collects a column of one part that has an entry per token."""

    counts: Counter[str]  # so far, by their names in a store's ledger

    def add(self, entries: np.ndarray) -> None:
        """Add the entries of the tokens of some sequences."""

    def finish(self, name: str) -> Collected:
        """Return the column; called once, at the end of the part."""


class PlaceCollector(TokenCollector, Protocol):
    """Collects a column whose entries follow from the place of each token in its text."""

    def assign(
        self, values: Sequence[Any], offsets: np.ndarray, lengths: np.ndarray, subtokens: str
    ) -> np.ndarray:
        """Return the entry of each token of some encoded texts, before they become sequences.

        Args:
            values: as the reader returned them; None for a text without tokens.
            offsets: the place of each token in its text, int32[S, 2].
            lengths: number of tokens of each text.
            subtokens: "all" tokens of a word have its value, or only the "first".
        """


class Field(NamedTuple):
    """A field that `--keep` names, and how its values are read."""

    name: str
    value_type: str | None = None  # of class names: "string", "number" or "boolean"
    class_names: tuple[Label, ...] | None = None  # fixed by the user, in this order
    text_field: str = "text"  # that has the words or characters of tags


class PartFile(NamedTuple):
    """Where large values of a part may wait until its file is written."""

    place: Place
    stack: ExitStack  # removes temporary files


@dataclass(frozen=True)
class Kind:
    """One kind of column."""

    name: str
    dtype: str  # of the array in files
    fill: int  # in filler rows and padding
    make_reader: Callable[[Field], Reader]
    make_collector: Callable[[Field, PartFile], Collector | TokenCollector]  # as is_per_token says
    is_per_token: bool = False
    has_classes: bool = False
    is_text: bool = False
    is_ordered: bool = False  # whether < and > compare its values
    largest: int | None = None  # its largest value, None for that of its dtype
    expected: str = "a finite number"  # a value, for messages; of classes they name the classes
    # (operator, value, class names) -> Test; None if no condition may ask for its values
    make_test: MakeTest | None = None


def wrong_value_error(
    name: str, value: Any, expected: str, *, other_kind: str | None = None
) -> BadRecordError:
    """Return the error about a value that is not of the column's kind.

    Args:
        other_kind: one that accepts the value, for the hint.
    """
    reason = f"field {quote(name)} is {quote_value(value)}, expected {expected}"
    if other_kind is None:
        return BadRecordError(reason)
    return BadRecordError(reason, f"pass {KEEP} {shlex.quote(f'{name}:{other_kind}')}")


def quote_value(value: Any) -> str:
    """Return a value of a record as errors name it.

    >>> quote_value("a"), quote_value(True), quote_value([1])
    ("'a'", 'true', 'a list')
    """
    names = {type(None): "null", bool: str(value).lower(), list: "a list", dict: "an object"}
    return names.get(type(value)) or quote(value)
