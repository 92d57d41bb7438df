"""The conditions of `--where` as tests of the sequences of a part.

A test evaluates a condition on the columns as they lie in the files, for a whole part at a time.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from seqpack_cli.batching.options import Condition, parse_condition
from seqpack_cli.errors import OptionError, join_items, quote
from seqpack_cli.tokens.conditions import EQUALITY, OPERATORS, make_integer_test
from seqpack_cli.tokens.store import StoreFolder, TokenStore

PartTest = Callable[[int], np.ndarray]  # number of a part -> bool, one per sequence


def make_test(store: TokenStore, text: str, *, prefix: str = "") -> PartTest:
    """Return the test of a condition.

    Args:
        prefix: what the condition has before the name of the store's column.

    Raises:
        OptionError: it names no column, or compares it with what it cannot hold.
    """
    condition = parse_condition(text.lstrip().removeprefix(prefix))
    try:
        if condition.is_built_in:
            return BUILT_IN[condition.name](store, condition)
        return _test_column(store, condition)
    except ValueError as error:
        hint = _choose_hint(store, condition)
        raise OptionError(f"--where {quote(text)}: {error}", hint=hint) from error


def join_tests(tests: Sequence[PartTest]) -> PartTest:
    """Return the test that holds where all hold."""
    return lambda number: np.logical_and.reduce([test(number) for test in tests])


def _choose_hint(store: TokenStore, condition: Condition) -> str:
    """Return what to type instead of a condition that the store refused."""
    name, column = condition.name, store.columns.get(condition.name)
    if condition.is_built_in:
        return HINTS[name]
    if column is None and f"@{name}" in HINTS:
        return HINTS[f"@{name}"]
    if not store.columns:
        return f"pass --keep {shlex.quote(name)} to tokenize"
    if column is not None and condition.operator not in EQUALITY and not column.is_ordered:
        field = shlex.quote(name)
        return f"to compare numbers, pass --keep {field}:int or --keep {field}:float to tokenize"
    return f"seqpack inspect {store.folders[0].path} shows the columns and their values"


def _test_column(store: TokenStore, condition: Condition) -> PartTest:
    name = condition.name
    if name not in store.columns:
        columns = join_items(map(quote, store.columns)) or "none"
        raise ValueError(f"{store.shown_path} has no column {quote(name)} (found: {columns})")
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
    matching = [_match_sources(each, condition.value) for each in store.folders]
    if not any(is_match.any() for is_match in matching):
        sources = (source for each in store.folders for source in each.manifest["sources"])
        paths = join_items(quote(source["path"]) for source in sources)
        raise ValueError(f"no source is {quote(condition.value)} (found: {paths})")
    compare = OPERATORS[condition.operator]
    selected = [compare(is_match, True) for is_match in matching]

    def test(number: int) -> np.ndarray:
        each = store.folder_of(number)
        firsts = np.array([source["first_document"] for source in each.manifest["sources"]])
        documents = store.number_documents(number) - each.first_document
        places = np.searchsorted(firsts, documents, "right") - 1
        found: np.ndarray = selected[each.number][places]
        return found

    return test


def _match_sources(store: StoreFolder, pattern: str) -> np.ndarray:
    """Return which sources of a store have a path that matches, bool[sources]."""
    sources = store.manifest["sources"]
    return np.array([matches(source["path"], pattern) for source in sources], bool)


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
