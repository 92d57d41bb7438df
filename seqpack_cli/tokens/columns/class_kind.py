"""Columns of classes: strings, numbers or booleans, each stored as the number of its class.

A part numbers its own classes in sorted order: numbers as numbers, strings by code point. The
classes of a whole store are those of all parts, sorted in the same way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.corpus import fields as corpus_fields
from seqpack_cli.errors import DataError, join_items, quote
from seqpack_cli.files.tensor_file import Tensor
from seqpack_cli.tokens.columns.comparisons import make_class_test
from seqpack_cli.tokens.columns.kind import (
    Collected,
    Field,
    Kind,
    Label,
    quote_value,
    wrong_value_error,
)
from seqpack_cli.tokens.columns.number_kinds import LARGEST, SMALLEST, parse_number

MAX_CLASSES = 1 << 20
NO_CLASS = -100  # cross_entropy's ignore_index
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
}


def find_value_type(value: object) -> str | None:
    """Return the type of a class name, None if it cannot be one."""
    return next((name for name, types in TYPES.items() if type(value) in types), None)


def read_label(name: str, value: Any, value_type: str) -> Label:
    """Return a class name of the column's type; raises BadRecordError.

    Equal numbers are one class: 1.0 is read as 1.
    """
    if type(value) not in TYPES[value_type]:
        raise wrong_value_error(name, value, f"a {value_type} as in the first records")
    if type(value) is float and not math.isfinite(value):
        raise wrong_value_error(name, value, "a finite number")
    if type(value) is float and value.is_integer() and SMALLEST <= value <= LARGEST:
        value = int(value)
    if value_type == "number" and not SMALLEST <= value <= LARGEST:
        raise wrong_value_error(name, value, f"a number from {SMALLEST} to {LARGEST}")
    label: Label = value
    return label


def sort_labels(labels: Iterable[Label], name: str) -> list[Label]:
    """Sort class names of one type.

    Raises:
        DataError: there are too many.
    """
    found = sorted(set(labels))
    if len(found) > MAX_CLASSES:
        raise DataError(
            f"field {quote(name)}: more than {MAX_CLASSES:,} classes",
            hint="keep a field with that many values as text, and add --overwrite",
        )
    return found


@dataclass(frozen=True)
class ClassReader:
    """Read class names of one type, any or one of a fixed list."""

    name: str
    value_type: str
    class_names: tuple[Label, ...] | None = None

    num_lists = 1

    @property
    def fields(self) -> tuple[corpus_fields.Field]:
        """The one field."""
        return (corpus_fields.Field(self.name, corpus_fields.KEEP),)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values; raise ValueError if each must be read on its own."""
        (values,) = columns
        kinds = set(map(type, values))
        found = set(values)
        if len(kinds) > 1 or float in kinds or not kinds <= set(TYPES[self.value_type]):
            raise ValueError("not class names")
        if self.class_names is not None and not found <= self._known:
            raise ValueError("an unknown class")
        if kinds == {int} and not SMALLEST <= min(found) <= max(found) <= LARGEST:
            raise ValueError("a large number")
        return [values]

    def read(self, values: Sequence[Any]) -> list[Label]:
        """Return the value of a record; raises BadRecordError."""
        (value,) = values
        label = read_label(self.name, value, self.value_type)
        if self.class_names is not None and label not in self._known:
            known = join_items(map(quote_value, self.class_names))
            raise wrong_value_error(self.name, value, f"one of {known}")
        return [label]

    def parse(self, spelled: str) -> Any:
        """Return the class that a field of CSV spells: a number, or the text."""
        if self.value_type != "number":
            return spelled
        found = parse_number(spelled, int)
        return found if type(found) is int else parse_number(spelled, float)

    @functools.cached_property
    def _known(self) -> frozenset[Label]:
        return frozenset(self.class_names or ())


class ClassCollector:
    """Collects classes, one per sequence or one per token, numbered as they come.

    Args:
        class_names: the names that the user fixed, in their order.
    """

    def __init__(self, name: str, class_names: Sequence[Label] | None = None) -> None:
        self.numbers: dict[Label, int] = {
            label: number for number, label in enumerate(class_names or ())
        }
        self._name = name
        self._is_fixed = class_names is not None
        self._pieces: list[np.ndarray] = []

    def add(self, values: Sequence[Any], num_sequences: np.ndarray) -> None:
        """Add the classes of some documents."""
        numbers = self.numbers
        for label in dict.fromkeys(values):
            numbers.setdefault(label, len(numbers))
        found = np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))
        self.add_numbers(np.repeat(found, num_sequences))

    def add_numbers(self, numbers: np.ndarray) -> None:
        """Add entries that are numbered as in `numbers`; NO_CLASS is an entry without a class."""
        most = np.min_scalar_type(-1 - max(len(self.numbers), -NO_CLASS))  # signed, and narrow
        self._pieces.append(numbers.astype(most))

    def finish(self, name: str) -> Collected:
        """Return the classes, numbered in sorted order, and their names."""
        labels = list(self.numbers)
        if not self._is_fixed:
            labels = sort_labels(labels, self._name)
        table = map_numbers(list(self.numbers), dict(zip(labels, range(len(labels)), strict=True)))
        pieces = (table[piece] for piece in self._pieces)
        count = sum(map(len, self._pieces))
        return Collected({f"column.{name}": Tensor("int32", count, pieces)}, labels)


def map_numbers(labels: Sequence[Label], number_of: Mapping[Any, int]) -> np.ndarray:
    """Return the table from the numbers of some classes to their numbers among others, int32.

    `table[numbers]` maps an array; NO_CLASS stays, as a place counted from the end.

    Args:
        number_of: the number of each class among the others.

    Raises:
        KeyError: a class is not among the others.
    """
    numbers = [number_of[label] for label in labels]
    return np.array([*numbers, NO_CLASS, *[0] * (-NO_CLASS - 1)], np.int32)


def _make_reader(field: Field) -> ClassReader:
    return ClassReader(field.name, field.value_type or "string", field.class_names)


CLASS = Kind(
    "class",
    "int32",
    NO_CLASS,
    _make_reader,
    lambda field, _: ClassCollector(field.name, field.class_names),
    has_classes=True,
    make_test=make_class_test,
)
