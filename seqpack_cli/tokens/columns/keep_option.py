"""Read `--keep FIELD[:TYPE]`, and find the types that were left out from the first records."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seqpack_cli.corpus.kept_fields import FieldReader
from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.files.json_files import JSON_TYPES
from seqpack_cli.tokens.columns.class_kind import find_value_type, sort_labels
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kind import Collector, Field, Label, PartFile, TokenCollector
from seqpack_cli.tokens.columns.kinds import KINDS

RESERVED = ("targets",)
TYPED = re.compile(r"(?P<name>.*):(?P<kind>\w+)(?:=(?P<names>.*))?", re.DOTALL)
# What one value decides where no type was named.
KIND_OF_TYPE: dict[type, str] = {str: "text", int: "int", float: "float", bool: "class"}


@dataclass(frozen=True)
class Kept:
    """A field to keep, and the kind of its column."""

    field: Field
    kind: str

    def make_reader(self) -> FieldReader:
        """Return the reader of the field's values."""
        return KINDS[self.kind].make_reader(self.field)

    def make_collector(self, file: PartFile) -> Collector | TokenCollector:
        """Return what collects the values of a part."""
        return KINDS[self.kind].make_collector(self.field, file)

    def make_column(self, found: Iterable[Label]) -> Column:
        """Return the column of a store.

        Args:
            found: the names of the classes of all its parts.

        Raises:
            DataError: there are too many classes.
        """
        name, _, labels = self.field
        if not KINDS[self.kind].has_classes:
            return Column(name, self.kind)
        return Column(name, self.kind, tuple(labels or sort_labels(found, name)))

    def describe(self) -> dict[str, Any]:
        """Return what decides the column, for the plan of a run."""
        names = self.field.class_names
        return {
            "name": self.field.name,
            "kind": self.kind,
            "value_type": self.field.value_type,
            "class_names": None if names is None else list(names),
        }


def parse_keep(spelled: str) -> tuple[str, str | None, tuple[str, ...] | None]:
    """Return the field, type and class names of one `--keep`; None for what it leaves open.

    Raises:
        OptionError: the type does not exist, or class names are repeated or of another type.

    >>> parse_keep("meta.lang:class=de,en")
    ('meta.lang', 'class', ('de', 'en'))
    """
    found = TYPED.fullmatch(spelled)
    name, kind, names = (spelled, None, None) if found is None else found.group(1, 2, 3)
    if kind is not None and kind not in KINDS:
        raise OptionError(
            f"--keep {spelled}: type {quote(kind)}, expected {', '.join(KINDS)}",
            hint=f"to keep a field of this name, add its type: --keep {spelled}:text",
        )
    if not name or name in RESERVED:
        raise OptionError(f"--keep {spelled}: a kept field cannot be named {quote(name)}")
    if names is None:
        return name, kind, None
    labels = tuple(next(csv.reader([names], strict=True), [""]))
    if kind is None or not KINDS[kind].has_classes or len(set(labels)) < len(labels):
        raise OptionError(
            f"--keep {spelled}: expected different names, of a class",
            hint="spell it as in --keep label:class=negative,positive",
        )
    return name, kind, labels


def check_keep(keep: Sequence[str]) -> list[tuple[str, str | None, tuple[str, ...] | None]]:
    """Parse all `--keep`.

    Raises:
        OptionError: one cannot be read, or two would be stored under one name.
    """
    parsed = [parse_keep(spelled) for spelled in keep]
    seen: set[str] = set()
    for name, kind, _ in parsed:
        arrays = set(Column(name, kind or "text").tensor_dtypes)
        if arrays & seen:
            raise OptionError(f"--keep {name}: kept twice, or its name is that of another's array")
        seen |= arrays
    return parsed


def choose_kinds(keep: Sequence[str], samples: Sequence[Sequence[Any]]) -> list[Kept]:
    """Return the fields to keep, each with its kind.

    Args:
        samples: the first values of each field; from these follow the kinds and the types of class
            names that are not named.

    Raises:
        DataError: the values do not decide.
    """
    return [
        _choose_kind(*parsed, values)
        for parsed, values in zip(check_keep(keep), samples, strict=True)
    ]


def _choose_kind(
    name: str, kind: str | None, labels: tuple[str, ...] | None, values: Sequence[Any]
) -> Kept:
    present = [value for value in values if value is not None]
    kind = kind or _guess_kind(name, present)
    if not KINDS[kind].has_classes:
        return Kept(Field(name), kind)
    scalars = [label for value in present for label in _iter_labels(value)]
    value_type = next(filter(None, map(find_value_type, scalars)), "string")
    return Kept(Field(name, value_type, _convert(name, labels, value_type)), kind)


def _guess_kind(name: str, values: Sequence[Any]) -> str:
    types = {type(value) for value in values}
    if types == {int, float}:
        return "float"
    if len(types) == 1 and (kind := KIND_OF_TYPE.get(next(iter(types)))):
        return kind
    found = " and ".join(sorted(JSON_TYPES.get(kind, kind.__name__) for kind in types))
    raise DataError(
        f"--keep {name}: the first records have {found or 'no value'} there, expected a string, "
        "a number, or true or false, the same in all",
        hint=f"name the type, for example --keep {name}:{'tags' if list in types else 'text'}",
    )


def _iter_labels(value: Any) -> list[Any]:
    """Return the class names in a value: itself, those of words, or the last entry of spans."""
    if not isinstance(value, list):
        return [value]
    return [
        entry[-1]
        if isinstance(entry, list) and entry
        else entry.get("label")
        if isinstance(entry, dict)
        else entry
        for entry in value
    ]


def _convert(
    name: str, labels: tuple[str, ...] | None, value_type: str
) -> tuple[Label, ...] | None:
    """Return fixed class names as values of the type that the records have."""
    if labels is None or value_type == "string":
        return labels
    readers: dict[str, Any] = {"boolean": {"false": False, "true": True}.__getitem__}
    try:
        return tuple(map(readers.get(value_type, _to_number), labels))
    except (KeyError, ValueError) as error:
        raise OptionError(
            f"--keep {name}: class names {join_items(labels)}, the records have {value_type}s"
        ) from error


def _to_number(spelled: str) -> int | float:
    try:
        return int(spelled)
    except ValueError:
        number = float(spelled)
        return int(number) if number.is_integer() else number
