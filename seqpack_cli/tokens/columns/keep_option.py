"""Read `--keep FIELD[:TYPE]` and `--keep FIELD:class=A,B`."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import NamedTuple

from seqpack_cli.errors import OptionError, quote
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kinds import FIELD_KINDS

# The names of columns that are made, and of labels that are no column.
RESERVED = ("targets", "overlap", "next", "same")
TYPES = "|".join(FIELD_KINDS)
TYPED = re.compile(rf"(?P<name>.*?):(?P<kind>{TYPES})(?:=(?P<names>.*))?", re.DOTALL)
UNKNOWN_TYPE = re.compile(r".*:(\w+)(=.*)?", re.DOTALL)


class KeepOption(NamedTuple):
    """One `--keep`; None is what it leaves open."""

    name: str
    kind: str | None = None
    labels: tuple[str, ...] | None = None  # class names, as they are spelled


def parse_keep(spelled: str) -> KeepOption:
    """Read one `--keep`.

    Raises:
        OptionError: the type does not exist, or class names are repeated or of another type.

    >>> parse_keep("meta.lang:class=de,en")
    KeepOption(name='meta.lang', kind='class', labels=('de', 'en'))
    """
    found = TYPED.fullmatch(spelled)
    name, kind, names = (spelled, None, None) if found is None else found.group(1, 2, 3)
    unknown = UNKNOWN_TYPE.fullmatch(spelled) if kind is None else None
    if unknown is not None:
        raise OptionError(
            f"--keep {spelled}: type {quote(unknown[1])}, expected {', '.join(FIELD_KINDS)}",
            hint=f"to keep a field of this name, add its type: --keep {spelled}:text",
        )
    if not name or name in RESERVED:
        raise OptionError(
            f"--keep {spelled}: a kept field cannot be named {quote(name)}",
            hint="rename the field in the records" if name else None,
        )
    if kind is None or names is None:
        return KeepOption(name, kind)
    if not FIELD_KINDS[kind].has_classes:
        raise OptionError(
            f"--keep {spelled}: {kind} has no class names",
            hint=f"pass --keep {name}:{kind}, or {name}:class={names}",
        )
    return KeepOption(name, kind, _split_names(spelled, names))


def _split_names(spelled: str, names: str) -> tuple[str, ...]:
    """Split class names at commas; one in double quotes may contain commas."""
    hint = 'spell it as in --keep label:class=no,yes, a name with a comma as "a,b"'
    try:
        rows = list(csv.reader([names], strict=True))
    except csv.Error as error:
        raise OptionError(
            f"--keep {spelled}: class names cannot be read ({error})", hint
        ) from error
    labels = rows[0] if rows else []
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise OptionError(f"--keep {spelled}: class name {quote(twice)} is there twice", hint)
    if not labels:
        raise OptionError(f"--keep {spelled}: no class names", hint)
    return tuple(labels)


def check_keep(keep: Sequence[str]) -> list[KeepOption]:
    """Read all `--keep`.

    Raises:
        OptionError: one cannot be read, or two would be stored under one name.
    """
    parsed = [parse_keep(spelled) for spelled in keep]
    owners: dict[str, str] = {}  # the field of each array in a file
    for name, kind, _ in parsed:
        for array in Column(name, kind or "text").tensor_dtypes:
            if owners.setdefault(array, name) != name:
                raise OptionError(
                    f"--keep {name}: its array {quote(array)} is one of the field "
                    f"{quote(owners[array])} too",
                    hint="keep one of both",
                )
    names = [option.name for option in parsed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"--keep {twice}: kept twice", hint="keep the field once")
    return parsed
