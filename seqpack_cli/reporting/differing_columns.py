"""Compare the columns of two stores, or of two shard sets: which there are, and their values.

Classes are compared by their names, so that another numbering of the same names is no difference of
values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqpack_cli.ranges import find_difference, find_differing
from seqpack_cli.tokens.columns.class_kind import map_numbers
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kind import Values
from seqpack_cli.tokens.columns.text_values import find_differing_values

MAX_PLACES = 5  # where values differ that are described
Lengths = tuple[np.ndarray, np.ndarray]


def compare_columns(
    first: Mapping[str, Column], second: Mapping[str, Column]
) -> dict[str, Any] | None:
    """Return which columns only one side has or differ in kind or classes; None without columns."""
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
        "values": [],
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
        self._num_differing = 0
        self._places: list[dict[str, Any]] = []

    def compare(
        self, sequences: np.ndarray, first: Values, second: Values, lengths: Lengths
    ) -> None:
        """Compare the values of some sequences.

        Args:
            sequences: int64[N], their indices, above those of earlier calls.
            first, second: of either side: N values, or one per token.
            lengths: the numbers of tokens of the sequences, on either side.
        """
        differing = self._find_differing(first, second, lengths)
        self._num_differing += len(differing)
        for place in differing[: MAX_PLACES - len(self._places)].tolist():
            sides = self._describe(place, first, second, lengths)
            self._places.append({"sequence": int(sequences[place]), **sides})

    def report(self) -> dict[str, Any]:
        """Return how many sequences have other values, and the first places with both values."""
        return {"name": self.name, "num_differing": self._num_differing, "places": self._places}

    def _find_differing(self, first: Values, second: Values, lengths: Lengths) -> np.ndarray:
        if self._table is not None:
            second = self._table[np.asarray(second)]
        if self._columns[0].rules.is_per_token:
            return find_differing(np.asarray(first), np.asarray(second), *lengths)
        return find_differing_values(first, second)

    def _describe(
        self, place: int, first: Values, second: Values, lengths: Lengths
    ) -> dict[str, Any]:
        """Return both values of one sequence; per token, the first ones that differ."""
        if not self._columns[0].rules.is_per_token:
            values = [side[place : place + 1] for side in (first, second)]
            position = None
        else:
            tokens = []
            for side, counts in zip((first, second), lengths, strict=True):
                start = int(counts[:place].sum(dtype=np.int64))
                tokens.append(np.asarray(side)[start : start + int(counts[place])])
            others = tokens[1] if self._table is None else self._table[tokens[1]]
            position = find_difference(tokens[0], others)
            values = [side[position : position + 1] for side in tokens]
        spelled = [column.spell(value) for column, value in zip(self._columns, values, strict=True)]
        sides = {side: value[0] for side, value in zip("ab", spelled, strict=True) if value}
        return {"position": position, **sides}


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
    common = [name for name in names if name in {*others}]
    return {**found, "same_order": common == [name for name in others if name in {*names}]}


def _match_classes(first: Column, second: Column) -> np.ndarray | None:
    """Return the table from the second column's class ids to those of the first.

    A class that only the second has becomes a number above all of the first.
    """
    names, others = _name_classes(first), _name_classes(second)
    return map_numbers(others, list(dict.fromkeys([*names, *others]))) if names or others else None


def _name_classes(column: Column) -> Sequence[str]:
    """Return the class names as JSON, in which 1, true and "1" are different."""
    return [json.dumps(label) for label in column.class_names or ()]
