"""A token store of which only those sequences are packed that meet every condition of `--where`.

For planning it is a source of lengths in which a sequence that is left out has length 0: indices
stay those of the store, and every order takes only lengths of 1 or more. Conditions are evaluated
part by part, on the columns as they lie in the files; each sequence then takes 1 bit.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqpack_cli.batching.conditions import ONE_EACH, Condition, joins_conditions, parse_condition
from seqpack_cli.batching.length_counts import LengthCounts, count_lengths
from seqpack_cli.errors import OptionError, join_items, quote
from seqpack_cli.tokens.columns.comparisons import EQUALITY, OPERATORS, make_integer_test
from seqpack_cli.tokens.token_store import TokenStore

PartTest = Callable[[int], np.ndarray]  # number of a part -> bool, one per sequence


class SelectedCounts(NamedTuple):
    """How many sequences of each length are selected, and how many are left out."""

    kept: LengthCounts
    left_out: LengthCounts | None  # None without conditions


class SelectedStore:
    """The lengths of a store, 0 for each sequence that a condition leaves out.

    Args:
        store: the store.
        where: conditions, all of which must hold.

    Raises:
        OptionError: a condition names no column, or compares it with what it cannot hold.
    """

    def __init__(self, store: TokenStore, where: Sequence[str] = ()) -> None:
        self.store, self.where = store, tuple(where)
        self.part_offsets = store.part_offsets
        self._tests = [_make_test(store, text) for text in where]
        self._bits: dict[int, np.ndarray] = {}  # of each part that was evaluated

    @property
    def lengths(self) -> np.ndarray:
        """Return the lengths of all sequences, int32[N]."""
        if not self._tests:
            return self.store.lengths
        parts = map(self.part_lengths, range(len(self.part_offsets) - 1))
        return np.concatenate([np.empty(0, np.int32), *parts])

    def part_lengths(self, number: int) -> np.ndarray:
        """Return the lengths of one part, int32."""
        lengths = self.store.part_lengths(number)
        return lengths * self._find_selected(number) if self._tests else lengths

    def count(self, first: int = 0, last: int | None = None) -> SelectedCounts:
        """Count the lengths of a range of parts; of all by default."""
        numbers = range(len(self.part_offsets) - 1)[first:last]
        kept = count_lengths(map(self.part_lengths, numbers))
        if not self._tests:
            return SelectedCounts(kept, None)
        left_out = (
            self.store.part_lengths(number) * ~self._find_selected(number) for number in numbers
        )
        return SelectedCounts(kept, count_lengths(left_out))

    def _find_selected(self, number: int) -> np.ndarray:
        """Return which sequences of a part are selected, bool[sequences]."""
        num_sequences = int(self.part_offsets[number + 1] - self.part_offsets[number])
        if number not in self._bits:
            is_selected = np.ones(num_sequences, bool)
            for test in self._tests:
                is_selected &= test(number)
            self._bits[number] = np.packbits(is_selected)
        return np.unpackbits(self._bits[number], count=num_sequences).view(bool)


def _make_test(store: TokenStore, text: str) -> PartTest:
    condition = parse_condition(text)
    try:
        if condition.is_built_in:
            return BUILT_IN[condition.name](store, condition)
        return _test_column(store, condition)
    except ValueError as error:
        hint = _choose_hint(store, condition)
        raise OptionError(f"--where {quote(text)}: {error}", hint=hint) from error


def _choose_hint(store: TokenStore, condition: Condition) -> str:
    """Return what to type instead of a condition that the store refused."""
    name, column = condition.name, store.columns.get(condition.name)
    if joins_conditions(condition.value):
        return ONE_EACH
    if condition.is_built_in:
        return HINTS[name]
    if column is None and f"@{name}" in HINTS:
        return HINTS[f"@{name}"]
    if not store.columns:
        return f"pass --keep {shlex.quote(name)} to tokenize"
    if column is not None and condition.operator not in EQUALITY and not column.is_ordered:
        field = shlex.quote(name)
        return f"to compare numbers, pass --keep {field}:int or --keep {field}:float to tokenize"
    return f"seqpack inspect {store.path} shows the columns and their values"


def _test_column(store: TokenStore, condition: Condition) -> PartTest:
    name = condition.name
    if name not in store.columns:
        columns = join_items(map(quote, store.columns)) or "none"
        raise ValueError(f"{store.path} has no column {quote(name)} (found: {columns})")
    test = store.columns[name].make_test(condition.operator, condition.value)
    return lambda number: test(store.part_column(number, name))


def _test_length(store: TokenStore, condition: Condition) -> PartTest:
    try:
        test = make_integer_test(condition.operator, condition.value)
    except ValueError as error:
        raise ValueError(f"@length {error}") from error
    return lambda number: test(store.part_lengths(number))


def _test_source(store: TokenStore, condition: Condition) -> PartTest:
    """Compare the path of a sequence's source, as the manifest has it, with a pattern."""
    if condition.operator not in EQUALITY:
        raise ValueError(f"@source is a path: found {condition.operator}, expected = or !=")
    sources = store.manifest["sources"]
    is_match = np.array([matches(source["path"], condition.value) for source in sources])
    if not is_match.any():
        paths = join_items(quote(source["path"]) for source in sources)
        raise ValueError(f"no source is {quote(condition.value)} (found: {paths})")
    firsts = np.array([source["first_document"] for source in sources])
    is_selected = OPERATORS[condition.operator](is_match, True)

    def test(number: int) -> np.ndarray:
        documents = store.number_documents(number)
        selected: np.ndarray = is_selected[np.searchsorted(firsts, documents, "right") - 1]
        return selected

    return test


BUILT_IN: Mapping[str, Callable[[TokenStore, Condition], PartTest]] = {
    "@source": _test_source,
    "@length": _test_length,
}
HINTS = {
    "@source": "write a condition like '@source = corpus/*.txt', where * matches any characters",
    "@length": "write a condition like '@length >= 8', which compares the number of tokens",
}


def matches(path: str, pattern: str) -> bool:
    """Return whether a path is a pattern's, in which `*` stands for any characters, also none.

    >>> matches("corpus/de/a.txt", "corpus/*.txt"), matches("a", "a*a")
    (True, False)
    """
    first, *others = pattern.split("*")
    if not others:
        return path == pattern
    *middle, last = others
    if not path.startswith(first):
        return False
    place = len(first)
    for piece in middle:
        place = path.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return path.endswith(last) and len(path) - place >= len(last)
