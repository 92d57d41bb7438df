"""The lists of whole numbers of some records, as one flat array: ids, their labels and masks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.corpus.fields import BadRecordError, name_type
from seqpack_cli.corpus.table_records import flatten_lists
from seqpack_cli.errors import quote
from seqpack_cli.ranges import expand_ranges, to_offsets

SMALLEST, LARGEST = -(2**63), 2**63 - 1


class NumberLists(NamedTuple):
    """A list for each record, back to back."""

    values: np.ndarray  # of an integer dtype, or bool
    lengths: np.ndarray  # int64, one per record

    def leave_out(self, is_bad: np.ndarray) -> NumberLists:
        """Return the lists, those of bad records empty."""
        kept = np.flatnonzero(~is_bad)
        starts = to_offsets(self.lengths)[:-1]
        values = self.values[expand_ranges(starts[kept], self.lengths[kept])]
        return NumberLists(values, np.where(is_bad, 0, self.lengths))


def find_firsts(is_wrong: np.ndarray, offsets: np.ndarray) -> dict[int, int]:
    """Return the first wrong entry of each list that has one.

    Args:
        is_wrong: bool, one per entry of all lists.
        offsets: where each list begins, and their end.

    >>> find_firsts(np.array([False, True, True, True]), np.array([0, 1, 3, 3, 4]))
    {1: 1, 3: 3}
    """
    entries = np.flatnonzero(is_wrong)
    records = np.searchsorted(offsets, entries, "right") - 1
    records, firsts = np.unique(records, return_index=True)
    return dict(zip(records.tolist(), entries[firsts].tolist(), strict=True))


def join_lists(lists: Sequence[Any], *, takes_booleans: bool = False) -> NumberLists:
    """Join lists of Python's integers.

    Raises:
        TypeError, OverflowError: there is something else, or an integer above 64 bits.
    """
    kinds = {int, bool} if takes_booleans else {int}
    if not set(map(type, lists)) <= {list}:
        raise TypeError("not a list")
    if not set(map(type, chain.from_iterable(lists))) <= kinds:
        raise TypeError("not a list of integers")
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    values = np.fromiter(chain.from_iterable(lists), np.int64, int(lengths.sum()))
    return NumberLists(values, lengths)


def check_list(name: str, value: Any, *, takes_booleans: bool = False) -> None:
    """Raise BadRecordError unless the value of a field is a list that can be joined."""
    expected = "an integer or a boolean" if takes_booleans else "an integer"
    if type(value) is not list:
        found = _spell(value)
        raise BadRecordError(f"field {quote(name)} is {found}, expected a list of integers")
    for number, entry in enumerate(value, 1):
        where = f"field {quote(name)}: entry {number} is {_spell(entry)}"
        if type(entry) is int and not SMALLEST <= entry <= LARGEST:
            raise BadRecordError(f"{where}, expected an integer of 64 bits")
        if type(entry) is not int and not (takes_booleans and type(entry) is bool):
            raise BadRecordError(f"{where}, expected {expected}")


def _spell(value: Any) -> str:
    if type(value) is bool:
        return str(value).lower()
    return quote(value) if type(value) in (str, int, float) else name_type(value)


def flatten_array(name: str, array: Any) -> tuple[NumberLists, dict[int, BadRecordError]]:
    """Return the lists of an Arrow array, not copied if nothing is null.

    Returns:
        The lists, and the error about each row that is null, or has a null in its list.
    """
    values, lengths, nulls, are_missing = flatten_lists(array)
    bad = {}
    for row in np.flatnonzero(nulls).tolist():
        bad[row] = BadRecordError(f"field {quote(name)} is null, expected a list of integers")
    offsets = to_offsets(lengths)
    for row, place in find_firsts(are_missing, offsets).items():
        number = place - int(offsets[row]) + 1
        reason = f"field {quote(name)}: entry {number} is null, expected an integer"
        bad[row] = BadRecordError(reason)
    return NumberLists(values, lengths), bad
