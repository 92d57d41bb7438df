"""Columns of numbers: `int`, 64-bit integers, and `float`, 64-bit floating point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.corpus import fields as corpus_fields
from seqpack_cli.files.tensor_file import Tensor
from seqpack_cli.tokens.columns.comparisons import make_float_test, make_integer_test
from seqpack_cli.tokens.columns.kind import Collected, Kind, MakeTest, wrong_value_error

SMALLEST, LARGEST = -(2**63), 2**63 - 1
EXACT = 2**53  # every integer up to here has a floating-point value


@dataclass(frozen=True)
class IntReader:
    """Read integers of 64 bits."""

    name: str
    num_lists = 1

    @property
    def fields(self) -> tuple[corpus_fields.Field]:
        """The one field."""
        return (corpus_fields.Field(self.name, corpus_fields.KEEP),)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values; raise ValueError unless all are integers in range."""
        (values,) = columns
        is_inside = set(map(type, values)) <= {int}
        if not is_inside or (values and not SMALLEST <= min(values) <= max(values) <= LARGEST):
            raise ValueError("not an integer")
        return [values]

    def read(self, values: Sequence[Any]) -> list[int]:
        """Return the value of a record; raises BadRecordError."""
        (value,) = values
        if type(value) is not int:
            other = "float" if type(value) is float else None
            raise wrong_value_error(self.name, value, "an integer", other_kind=other)
        if not SMALLEST <= value <= LARGEST:
            raise wrong_value_error(self.name, value, f"an integer from {SMALLEST} to {LARGEST}")
        return [value]

    def parse(self, spelled: str) -> Any:
        """Return the integer that a field of CSV spells, else the text."""
        return parse_number(spelled, int)


@dataclass(frozen=True)
class FloatReader:
    """Read finite numbers; an integer must have an exact floating-point value."""

    name: str
    num_lists = 1

    @property
    def fields(self) -> tuple[corpus_fields.Field]:
        """The one field."""
        return (corpus_fields.Field(self.name, corpus_fields.KEEP),)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values; raise an error unless all are finite numbers."""
        (values,) = columns
        kinds = set(map(type, values))
        if not kinds <= {int, float} or not math.isfinite(sum(values)):
            raise ValueError("not a finite number")
        if int in kinds and not max(map(abs, values)) <= EXACT:  # nan if the first value is
            raise ValueError("a number that is not exact")
        return [values]

    def read(self, values: Sequence[Any]) -> list[float]:
        """Return the value of a record; raises BadRecordError."""
        (value,) = values
        if type(value) not in (int, float):
            raise wrong_value_error(self.name, value, "a number")
        if type(value) is int and not _is_exact(value):
            raise wrong_value_error(self.name, value, "a number that 64-bit floating point holds")
        if not math.isfinite(value):
            raise wrong_value_error(self.name, value, "a finite number")
        return [float(value)]

    def parse(self, spelled: str) -> Any:
        """Return the number that a field of CSV spells, else the text."""
        found = parse_number(spelled, int)  # checked like one of JSON
        return found if type(found) is int else parse_number(spelled, float)


class NumberCollector:
    """Collects numbers, one per sequence."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._pieces: list[np.ndarray] = []

    def add(self, values: Sequence[Any], num_sequences: np.ndarray) -> None:
        """Add the values of some documents."""
        self._pieces.append(np.repeat(np.array(values, self._dtype), num_sequences))

    def finish(self, name: str) -> Collected:
        """Return the tensor."""
        count = sum(map(len, self._pieces))
        return Collected({f"column.{name}": Tensor(self._dtype, count, self._pieces)})


def parse_number(spelled: str, kind: type) -> Any:
    """Return the number that a text spells, else the text."""
    try:
        return spelled if "_" in spelled or spelled != spelled.strip() else kind(spelled)
    except ValueError:
        return spelled


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _make_kind(
    name: str, dtype: str, reader: type[IntReader] | type[FloatReader], make_test: MakeTest
) -> Kind:
    return Kind(
        name,
        dtype,
        0,
        lambda field: reader(field.name),
        lambda _, __: NumberCollector(dtype),
        is_ordered=True,
        make_test=make_test,
    )


INT = _make_kind("int", "int64", IntReader, make_integer_test)
FLOAT = _make_kind("float", "float64", FloatReader, make_float_test)
