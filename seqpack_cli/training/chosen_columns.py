"""The columns that a dataset reads: which ones, and the names of their classes.

Of pairs those of both sides; before the names of the decoder's is PREFIX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqpack_cli.errors import join_items, quote
from seqpack_cli.shards.manifest import PREFIX
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.conditions import Label


def name_columns(shards: ShardSet) -> dict[str, Column]:
    """Return the columns of shards by name."""
    found = dict(shards.columns)
    if shards.decoder is not None:
        found.update({f"{PREFIX}{name}": each for name, each in shards.decoder.columns.items()})
    return found


def choose_columns(columns: Mapping[str, Column], names: Sequence[str] | None) -> dict[str, Column]:
    """Return the columns of some names, in the order in which they were kept.

    Args:
        columns: all that there are.
        names: those to read; None: all.

    Raises:
        ValueError: there is no such column.
    """
    if names is None:
        return dict(columns)
    for name in names:
        find_column(columns, name)
    return {name: column for name, column in columns.items() if name in names}


def find_column(columns: Mapping[str, Column], name: str) -> Column:
    """Return a column; raises ValueError if there is none of that name."""
    if name not in columns:
        found = join_items(map(quote, columns)) or "no columns"
        raise ValueError(f"no column {quote(name)} (found: {found})")
    return columns[name]


def list_class_names(columns: Mapping[str, Column], name: str) -> list[Label]:
    """Return the names of the classes of a column, by class id.

    Raises:
        ValueError: there is no such column, or it has no classes.
    """
    found = find_column(columns, name)
    if found.class_names is None:
        others = [each for each, column in columns.items() if column.class_names is not None]
        with_classes = join_items(map(quote, others)) or "none"
        raise ValueError(
            f"column {quote(name)} is of kind {found.kind}, expected one with classes "
            f"(found: {with_classes})"
        )
    return list(found.class_names)


def find_texts(columns: Mapping[str, Column]) -> dict[str, bool]:
    """Return for each column whether it is text, for `check_labels`."""
    return {name: column.is_text for name, column in columns.items()}
