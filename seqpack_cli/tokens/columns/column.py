"""A column of a store or of shards: its name, kind and classes, as a manifest describes it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import check_fields
from seqpack_cli.files.places import Place
from seqpack_cli.ranges import view_bits
from seqpack_cli.tokens.columns.class_kind import MAX_CLASSES, NO_CLASS, find_value_type
from seqpack_cli.tokens.columns.comparisons import EQUALITY
from seqpack_cli.tokens.columns.kind import Kind, Label, Test, Values
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.columns.made_columns import KINDS_OF_MADE, TARGETS
from seqpack_cli.tokens.columns.text_values import TextValues


@dataclass(frozen=True)
class Column:
    """A named array beside the ids: one value per sequence, or one per token.

    Args:
        kind: the name of its kind, one of KINDS.
        class_names: of class and tags, by class id: strings, numbers or booleans; else None.
    """

    name: str
    kind: str
    class_names: tuple[Label, ...] | None = None

    @property
    def dtype(self) -> str:
        """The dtype of its array in a file."""
        return self._rules.dtype

    @property
    def fill(self) -> int:
        """The value in padding and filler rows; an empty text for a column of texts."""
        return self._rules.fill

    @property
    def is_per_token(self) -> bool:
        """Whether it has a value per token, not per sequence."""
        return self._rules.is_per_token

    @property
    def is_text(self) -> bool:
        """Whether its values are texts."""
        return self._rules.is_text

    @property
    def expected(self) -> str:
        """What a value must be, for messages."""
        if self.class_names is None:
            return self._rules.expected
        return f"a class from 0 to {len(self.class_names) - 1}"

    @functools.cached_property
    def class_numbers(self) -> Mapping[Label, int]:
        """The id of each class, by its name."""
        return {label: number for number, label in enumerate(self.class_names or ())}

    @property
    def is_ordered(self) -> bool:
        """Whether a condition may say that a value is less or more than another."""
        return self._rules.is_ordered

    @property
    def tensor_name(self) -> str:
        """The name of its array in a file."""
        return f"column.{self.name}"

    @property
    def offsets_name(self) -> str:
        """The name of the array with the places of its texts in a file."""
        return f"column.{self.name}.offsets"

    @property
    def tensor_dtypes(self) -> dict[str, str]:
        """The dtypes of its arrays in a file, by name."""
        dtypes = {self.offsets_name: "int64"} if self.is_text else {}
        return {**dtypes, self.tensor_name: self.dtype}

    def describe(self) -> dict[str, Any]:
        """Return the entry of a manifest."""
        found = {"name": self.name, "kind": self.kind, "dtype": self.dtype}
        return found if self.class_names is None else {**found, "class_names": [*self.class_names]}

    def make_test(self, sign: str, value: str) -> Test:
        """Return the function that compares its values with one that a user wrote.

        Args:
            sign: a key of `comparisons.OPERATORS`.

        Raises:
            ValueError: this kind has no such comparison, or no such value.
        """
        rules, name = self._rules, f"column {quote(self.name)}"
        if rules.make_test is None:
            raise ValueError(f"{name} has a value per token, expected one per sequence")
        if sign not in EQUALITY and not self.is_ordered:
            raise ValueError(f"{name} is of kind {rules.name}: found {sign}, expected = or !=")
        try:
            return rules.make_test(sign, value, self.class_names or ())
        except ValueError as error:
            raise ValueError(f"{name} {error}") from error

    def view(self, arrays: Mapping[str, np.ndarray]) -> Values:
        """Return all values in the arrays of a file."""
        array = arrays[self.tensor_name]
        return TextValues(array, arrays[self.offsets_name]) if self.is_text else array

    def make_arrays(self, values: Values) -> dict[str, np.ndarray]:
        """Return the arrays of a file that hold values whose texts begin at 0."""
        if isinstance(values, TextValues):
            return {self.offsets_name: values.offsets, self.tensor_name: values.data}
        return {self.tensor_name: values}

    def spell(self, values: Values) -> list[Any]:
        """Return values as JSON values: class names, or None where there is no class.

        Those of a rectangle are one list per row.
        """
        if isinstance(values, np.ndarray) and values.ndim > 1:
            return [self.spell(row) for row in values]
        spelled: list[Any] = values.tolist()
        if self.class_names is None:
            return spelled
        names = (*self.class_names, None)
        return [names[number if number >= 0 else -1] for number in spelled]

    def is_fill(self, values: Values) -> np.ndarray:
        """Return which values are those of padding and filler rows, bool."""
        if isinstance(values, TextValues):
            values = values.lengths
        found: np.ndarray = view_bits(values) == view_bits(np.array(self.fill, values.dtype))
        return found

    def find_wrong(self, values: Values) -> np.ndarray:
        """Find values that cannot be: out of range, not finite, not UTF-8; bool.

        A column per token may have tokens without a class.
        """
        if isinstance(values, TextValues):
            return values.find_wrong()
        if self.class_names is None:
            largest = self._rules.largest
            return ~np.isfinite(values) if largest is None else values > largest
        wrong: np.ndarray = (values < 0) | (values >= len(self.class_names))
        return wrong & (values != NO_CLASS) if self.is_per_token else wrong

    def is_sound(self, values: Values) -> bool:
        """Return whether all values are possible."""
        return not self.find_wrong(values).any()

    @property
    def _rules(self) -> Kind:
        return KINDS[self.kind]


def read_columns(manifest: Mapping[str, Any], source: Place) -> dict[str, Column]:
    """Return the columns of a manifest by name, in its order.

    Raises:
        FolderError: an entry is damaged, or of a kind that does not exist.
    """
    columns: dict[str, Column] = {}
    for entry in manifest["columns"]:
        if not isinstance(entry, dict):
            raise FolderError(f"{source}: column {quote(entry)}, expected an object")
        check_fields(entry, {"name": str, "kind": str, "dtype": str}, source=source)
        column = _read_column(entry, source)
        if column.name in columns or entry != column.describe():
            raise FolderError(f"{source}: column {quote(column.name)} is not as tokenize writes it")
        columns[column.name] = column
    names = [name for column in columns.values() for name in column.tensor_dtypes]
    if len(set(names)) < len(names):
        raise FolderError(f"{source}: two columns share an array")
    return columns


def _read_column(entry: dict[str, Any], source: Place) -> Column:
    name, kind, labels = entry["name"], entry["kind"], entry.get("class_names")
    if kind not in KINDS:
        raise FolderError(
            f"{source}: column {quote(name)} is of kind {quote(kind)}, "
            f"expected {' or '.join(KINDS)}"
        )
    expected = KINDS_OF_MADE.get(name, kind)
    if kind != expected or (kind == KINDS_OF_MADE[TARGETS] and name != TARGETS):
        what = f"column {quote(name)} is of kind {quote(kind)}"
        raise FolderError(f"{source}: {what}, which tokenize never makes")
    if not KINDS[kind].has_classes:
        return Column(name, kind)
    is_list = isinstance(labels, list) and len(labels) <= MAX_CLASSES
    found: list[Any] = labels if is_list else [None]  # type: ignore[assignment]
    types = {find_value_type(label) for label in found}
    if None in types or len(types) > 1 or len(set(found)) < len(found):
        raise FolderError(
            f"{source}: column {quote(name)} has class_names {quote(labels)}, "
            "expected different names of one type"
        )
    return Column(name, kind, tuple(found))
