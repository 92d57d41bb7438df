"""Compare the columns of two stores, or of two shard sets: which there are, and their values.

Classes are compared by their names, so that another numbering of the same names is no difference of
values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqpack_cli.ranges import find_differing, to_offsets
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.kinds import Values, map_numbers
from seqpack_cli.tokens.text_values import find_differing_values

MAX_PLACES = 5  # where values differ that are described
Lengths = tuple[np.ndarray, np.ndarray]


def compare_columns(
    first: Mapping[str, Column], second: Mapping[str, Column], pairs: Sequence[ColumnPair]
) -> dict[str, Any] | None:
    """Return which columns only one side has or differ in kind, classes or values.

    Args:
        pairs: those that both sides have, with all values compared.

    Returns:
        None if neither side has columns.
    """
    if not first and not second:
        return None
    in_both = [name for name in first if name in second]
    return {
        "only_in_a": [name for name in first if name not in second],
        "only_in_b": [name for name in second if name not in first],
        "changed": [
            _describe_change(first[name], second[name])
            for name in in_both
            if first[name] != second[name]
            or _name_classes(first[name]) != _name_classes(second[name])
        ],
        "same_order": in_both == [name for name in second if name in first],
        "values": [pair.report() for pair in pairs],
    }


def pair_columns(first: Mapping[str, Column], second: Mapping[str, Column]) -> list[ColumnPair]:
    """Pair the columns that both sides have, and have of the same kind."""
    return [
        ColumnPair(column, second[name])
        for name, column in first.items()
        if name in second and column.kind == second[name].kind
    ]


class ColumnPair:
    """A column of both sides, and where its values differ."""

    def __init__(self, first: Column, second: Column) -> None:
        self.name = first.name
        self._columns = first, second
        self._table = _match_classes(first, second)
        self._num_differing = self._num_tokens = 0
        self._places: list[dict[str, Any]] = []

    def compare(
        self, sequences: np.ndarray, first: Values, second: Values, lengths: Lengths
    ) -> None:
        """Compare the values of some sequences of two stores.

        Args:
            sequences: int64[N], their indices, above those of earlier calls.
            first, second: of either side: N values, or one per token.
            lengths: the numbers of tokens of the sequences, on either side.
        """
        renumbered = second if self._table is None else self._table[np.asarray(second)]
        differing = self._find_differing(first, renumbered, lengths)
        self._num_differing += len(differing)
        if self._columns[0].is_per_token:
            self._num_tokens += _count_tokens(differing, first, renumbered, lengths)
        for place in differing[: MAX_PLACES - len(self._places)].tolist():
            spelled = [
                self._spell(column, place, values, counts)
                for column, values, counts in zip(
                    self._columns, (first, second), lengths, strict=True
                )
            ]
            self._places.append(_describe_place(int(sequences[place]), *spelled))

    def compare_spelled(self, sequence: int, value: Any, other: Any) -> None:
        """Compare the values of one sequence, above those of earlier calls, as JSON has them."""
        if not _is_same(value, other):
            self._num_differing += 1
            if self._columns[0].is_per_token:
                same = sum(_is_same(*pair) for pair in zip(value, other, strict=False))
                self._num_tokens += max(len(value), len(other)) - same
            if len(self._places) < MAX_PLACES:
                self._places.append(_describe_place(sequence, value, other))

    def report(self) -> dict[str, Any]:
        """Return how many sequences have other values, and the first places with both values.

        Of a column per token also how many tokens have, those that only one side has among them.
        """
        found: dict[str, Any] = {"name": self.name, "num_differing": self._num_differing}
        if self._columns[0].is_per_token:
            found["num_differing_tokens"] = self._num_tokens
        return {**found, "places": self._places}

    def _find_differing(self, first: Values, second: Values, lengths: Lengths) -> np.ndarray:
        if self._columns[0].is_per_token:
            return find_differing(np.asarray(first), np.asarray(second), *lengths)
        return find_differing_values(first, second)

    def _spell(self, column: Column, place: int, values: Values, lengths: np.ndarray) -> Any:
        """Return the value of one sequence of a block, or the list of those of its tokens."""
        if not column.is_per_token:
            return column.spell(values[place : place + 1])[0]
        start = int(lengths[:place].sum(dtype=np.int64))
        return column.spell(values[start : start + int(lengths[place])])


def _count_tokens(differing: np.ndarray, first: Values, second: Values, lengths: Lengths) -> int:
    """Count the tokens with other values in some of the sequences of a block."""
    values, others = np.asarray(first), np.asarray(second)
    starts, other_starts = (to_offsets(each) for each in lengths)
    total = 0
    for place in differing.tolist():
        a = values[starts[place] : starts[place + 1]]
        b = others[other_starts[place] : other_starts[place + 1]]
        common = min(len(a), len(b))
        total += int(np.count_nonzero(a[:common] != b[:common])) + max(len(a), len(b)) - common
    return total


def _describe_place(sequence: int, value: Any, other: Any) -> dict[str, Any]:
    """Return both values of a sequence; of lists, the first entries that differ."""
    if not isinstance(value, list):
        return {"sequence": sequence, "position": None, "a": value, "b": other}
    same = [_is_same(*pair) for pair in zip(value, other, strict=False)]
    position = [*same, False].index(False)
    sides = {"a": value, "b": other}
    entries = {side: each[position] for side, each in sides.items() if position < len(each)}
    return {"sequence": sequence, "position": position, **entries}


def _is_same(value: Any, other: Any) -> bool:
    """Return whether two values of JSON are the same: 1 is not true, and 0.0 is not -0.0."""
    return repr(value) == repr(other)


def _describe_change(first: Column, second: Column) -> dict[str, Any]:
    """Return the kinds of a column, and the class names that only one side has."""
    names, others = _name_classes(first), _name_classes(second)
    sides = {"a": (first, names, {*others}), "b": (second, others, {*names})}
    found: dict[str, Any] = {"name": first.name}
    for side, (column, own, known) in sides.items():
        only = [
            label
            for label, name in zip(column.class_names or (), own, strict=True)
            if name not in known
        ]
        found[side] = {"kind": column.kind, "only_classes": only}
    numbers, other_numbers = (
        {name: number for number, name in enumerate(each)} for each in (names, others)
    )
    common = [name for name in names if name in other_numbers]
    return {
        **found,
        "same_order": common == [name for name in others if name in numbers],
        "same_numbers": all(numbers[name] == other_numbers[name] for name in common),
    }


def _match_classes(first: Column, second: Column) -> np.ndarray | None:
    """Return the table from the second column's class ids to those of the first.

    A class that only the second has becomes a number above all of the first.
    """
    names, others = _name_classes(first), _name_classes(second)
    if not names and not others:
        return None
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*names, *others]))}
    return map_numbers(others, numbers)


def _name_classes(column: Column) -> Sequence[str]:
    """Return the class names as JSON, in which 1, true and "1" are different."""
    return [json.dumps(label) for label in column.class_names or ()]
