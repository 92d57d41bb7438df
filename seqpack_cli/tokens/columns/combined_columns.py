"""The columns of several token stores as those of one: same names and kinds, all classes of all.

A column must be in every store, of the same kind; another one stops, unless it is to be dropped. A
store without `targets` counts every token, and one without `overlap` repeats none.
Class names that are equal in all stores keep their order, others are sorted, as those of a store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from seqpack_cli.errors import OptionError, join_items, quote
from seqpack_cli.tokens.columns.class_kind import find_value_type, sort_labels
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.keep_option import RESERVED
from seqpack_cli.tokens.columns.kind import Label
from seqpack_cli.tokens.columns.made_columns import VALUES_OF_MISSING

Named = Sequence[tuple[str, Mapping[str, Column]]]  # of each store: what names it, its columns


def combine_columns(
    stores: Named, *, without: Collection[str] = (), prefix: str = ""
) -> dict[str, Column]:
    """Return the columns that all stores have, with the classes of all.

    Args:
        without: leave these out where they differ.
        prefix: what options have before the names of these columns.

    Raises:
        OptionError: another column is missing in a store, or differs in kind or type of classes.
        DataError: a column has too many classes.
    """
    known = dict.fromkeys(chain.from_iterable(columns for _, columns in stores))
    made = [name for name in VALUES_OF_MISSING if name in known]  # these are the first of a store
    found = {}
    for name in dict.fromkeys([*made, *known]):
        difference = None if name in made else _find_difference(stores, name)
        if difference is None:
            found[name] = _combine([columns[name] for _, columns in stores if name in columns])
        elif name not in without:
            hint = "tokenize them with the same --keep, or leave the column out: "
            hint += f"--drop-column {prefix}{name}, or columns=[...] in Python"
            raise OptionError(difference, hint=hint)
    return found


def find_constants(columns: Mapping[str, Column], stored: Mapping[str, Column]) -> dict[str, int]:
    """Return the value of each combined column that a store does not have."""
    return {name: VALUES_OF_MISSING[name] for name in columns if name not in stored}


def make_store_column(columns: Mapping[str, Column], name: str, stores: Sequence[str]) -> Column:
    """Return a column whose classes are the stores.

    Args:
        stores: the names of the stores.

    Raises:
        OptionError: there is a column of that name, or none may have it.
    """
    if not name or name in RESERVED or name.startswith("@"):
        raise OptionError(
            f"--store-column: a column cannot be named {quote(name)}",
            hint="choose another name, such as --store-column store",
        )
    added = Column(name, "class", tuple(stores))
    taken = {array for column in columns.values() for array in column.tensor_dtypes}
    if not taken.isdisjoint(added.tensor_dtypes):
        raise OptionError(
            f"--store-column {name}: the stores have a column of that name",
            hint="choose another name, or leave that one out with --drop-column",
        )
    return added


def _combine(columns: Sequence[Column]) -> Column:
    first = columns[0]
    if all(column.class_names == first.class_names for column in columns):
        return first
    labels = chain.from_iterable(column.class_names or () for column in columns)
    return Column(first.name, first.kind, tuple(sort_labels(labels, first.name)))


def _find_difference(stores: Named, name: str) -> str | None:
    """Return how a column differs between stores, None if it can be combined."""
    place, columns = stores[0]
    expected = _describe(columns.get(name))
    for other, others in stores[1:]:
        found = _describe(others.get(name))
        if found != expected:
            return f"{other}: column {quote(name)}: found {found}, {place} has {expected}"
    return None


def _describe(column: Column | None) -> str:
    if column is None:
        return "none"
    if column.class_names is None:
        return f"kind {column.kind}"
    return f"kind {column.kind} with {_find_type(column.class_names)} classes"


def _find_type(names: Sequence[Label]) -> str:
    return join_items(sorted({str(find_value_type(name)) for name in names}))
