"""Walk through nested values, a level at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

LEAVES = {str, int, float, bool, type(None)}


def iter_levels(values: list[Any]) -> Iterator[tuple[set[type], list[Any]]]:
    """Yield values, then all that are inside these, and so on, with the types of each level.

    >>> [level for _, level in iter_levels([{"a": [1, 2]}, {"b": 3}])]
    [[{'a': [1, 2]}, {'b': 3}], [[1, 2], 3], [1, 2]]
    """
    while values:
        kinds = set(map(type, values))
        yield kinds, values
        if kinds <= LEAVES:
            return
        if kinds == {dict}:
            values = list(chain.from_iterable(map(dict.values, values)))
        elif kinds == {list}:
            values = list(chain.from_iterable(values))
        else:
            outer, values = values, []
            for value in outer:
                if isinstance(value, dict):
                    values += value.values()
                elif isinstance(value, list | tuple):
                    values += value
