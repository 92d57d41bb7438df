"""The columns beside the ids: what they are, how `--keep` names them, and those of several stores.

A column has one value per sequence or one per token. `tokenize` makes two from no field: `targets`
says which tokens count in the loss, and `overlap` is the number of tokens with which a sequence
repeats the end of the one before, a piece of the same document. Kinds that `--keep` leaves open
follow from the first records. Several stores are read with all classes of all.
"""

from __future__ import annotations

import csv
import functools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.corpus.fields import BadRecordError, Spelled
from seqpack_cli.errors import DataError, FolderError, OptionError, join_items, quote
from seqpack_cli.files.json_files import JSON_TYPES, check_fields
from seqpack_cli.files.places import Place
from seqpack_cli.ranges import view_bits
from seqpack_cli.tokens.conditions import EQUALITY, Label, Test
from seqpack_cli.tokens.kinds import (
    MAX_CLASSES,
    NO_CLASS,
    Class,
    Float,
    Int,
    Kind,
    PlannedColumn,
    Text,
    Values,
    find_value_type,
    read_label,
    sort_labels,
)
from seqpack_cli.tokens.tags import Tags, Targets
from seqpack_cli.tokens.text_values import TextValues

FIELD_KINDS: dict[str, type[Kind]] = {
    "int": Int,
    "float": Float,
    "class": Class,
    "text": Text,
    "tags": Tags,
}
KINDS: dict[str, type[Kind]] = {**FIELD_KINDS, "targets": Targets}
TARGETS, OVERLAP = "targets", "overlap"
# Of every token, or sequence, of a store that has no such column: all count, none is repeated.
VALUES_OF_MISSING = {TARGETS: 1, OVERLAP: 0}
RESERVED = (TARGETS, OVERLAP, "next", "same")  # made columns, and labels that are no column

TYPED = re.compile(
    rf"(?P<name>.*?):(?P<kind>{'|'.join(FIELD_KINDS)})(?:=(?P<names>.*))?", re.DOTALL
)
UNKNOWN_TYPE = re.compile(r".*:(\w+)(=.*)?", re.DOTALL)
# What most of the values decide where no type was named.
KIND_OF_TYPE: dict[type, str] = {
    str: "text",
    Spelled: "text",
    int: "int",
    float: "float",
    bool: "class",
}
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")  # as in JSON


@dataclass(frozen=True)
class Column:
    """A named array beside the ids: one value per sequence, or one per token.

    Args:
        kind: the name of its kind, one of KINDS.
        class_names: of class and tags, by class id: strings, numbers or booleans; else None.
    """

    name: str
    kind: str
    class_names: tuple[Label, ...] | None = None

    @property
    def dtype(self) -> str:
        """The dtype of its array in a file."""
        return self._rules.dtype

    @property
    def fill(self) -> int:
        """The value in padding and filler rows; an empty text for a column of texts."""
        return self._rules.fill

    @property
    def is_per_token(self) -> bool:
        """Whether it has a value per token, not per sequence."""
        return self._rules.is_per_token

    @property
    def is_text(self) -> bool:
        """Whether its values are texts."""
        return self._rules.is_text

    @property
    def expected(self) -> str:
        """What a value must be, for messages."""
        if self.class_names is None:
            return self._rules.expected
        return f"a class from 0 to {len(self.class_names) - 1}"

    @functools.cached_property
    def class_numbers(self) -> Mapping[Label, int]:
        """The id of each class, by its name."""
        return {label: number for number, label in enumerate(self.class_names or ())}

    @property
    def is_ordered(self) -> bool:
        """Whether a condition may say that a value is less or more than another."""
        return self._rules.is_ordered

    @property
    def tensor_name(self) -> str:
        """The name of its array in a file."""
        return f"column.{self.name}"

    @property
    def offsets_name(self) -> str:
        """The name of the array with the places of its texts in a file."""
        return f"column.{self.name}.offsets"

    @property
    def tensor_dtypes(self) -> dict[str, str]:
        """The dtypes of its arrays in a file, by name."""
        dtypes = {self.offsets_name: "int64"} if self.is_text else {}
        return {**dtypes, self.tensor_name: self.dtype}

    def describe(self) -> dict[str, Any]:
        """Return the entry of a manifest."""
        found = {"name": self.name, "kind": self.kind, "dtype": self.dtype}
        return found if self.class_names is None else {**found, "class_names": [*self.class_names]}

    def make_test(self, sign: str, value: str) -> Test:
        """Return the function that compares its values with one that a user wrote.

        Args:
            sign: a key of `conditions.OPERATORS`.

        Raises:
            ValueError: this kind has no such comparison, or no such value.
        """
        make_test, name = self._rules.make_test, f"column {quote(self.name)}"
        if make_test is None:
            raise ValueError(f"{name} has a value per token, expected one per sequence")
        if sign not in EQUALITY and not self.is_ordered:
            raise ValueError(f"{name} is of kind {self.kind}: found {sign}, expected = or !=")
        try:
            return make_test(sign, value, self.class_names or ())
        except ValueError as error:
            raise ValueError(f"{name} {error}") from error

    def view(self, arrays: Mapping[str, np.ndarray]) -> Values:
        """Return all values in the arrays of a file."""
        array = arrays[self.tensor_name]
        return TextValues(array, arrays[self.offsets_name]) if self.is_text else array

    def make_arrays(self, values: Values) -> dict[str, np.ndarray]:
        """Return the arrays of a file that hold values whose texts begin at 0."""
        if isinstance(values, TextValues):
            return {self.offsets_name: values.offsets, self.tensor_name: values.data}
        return {self.tensor_name: values}

    def spell(self, values: Values) -> list[Any]:
        """Return values as JSON values: class names, or None where there is no class.

        Those of a rectangle are one list per row.
        """
        if isinstance(values, np.ndarray) and values.ndim > 1:
            return [self.spell(row) for row in values]
        spelled: list[Any] = values.tolist()
        if self.class_names is None:
            return spelled
        names = (*self.class_names, None)
        return [names[number if number >= 0 else -1] for number in spelled]

    def is_fill(self, values: Values) -> np.ndarray:
        """Return which values are those of padding and filler rows, bool."""
        if isinstance(values, TextValues):
            values = values.lengths
        found: np.ndarray = view_bits(values) == view_bits(np.array(self.fill, values.dtype))
        return found

    def find_wrong(self, values: Values) -> np.ndarray:
        """Find values that cannot be: out of range, not finite, not UTF-8; bool.

        A column per token may have tokens without a class.
        """
        if isinstance(values, TextValues):
            return values.find_wrong()
        if self.class_names is None:
            largest = self._rules.largest
            return ~np.isfinite(values) if largest is None else values > largest
        wrong: np.ndarray = (values < 0) | (values >= len(self.class_names))
        return wrong & (values != NO_CLASS) if self.is_per_token else wrong

    def is_sound(self, values: Values) -> bool:
        """Return whether all values are possible."""
        return not self.find_wrong(values).any()

    @property
    def _rules(self) -> type[Kind]:
        return KINDS[self.kind]


def read_columns(manifest: Mapping[str, Any], source: Place) -> dict[str, Column]:
    """Return the columns of a manifest by name, in its order.

    Raises:
        FolderError: an entry is damaged, or of a kind that does not exist.
    """
    columns: dict[str, Column] = {}
    for entry in manifest["columns"]:
        check_fields(entry, {"name": str, "kind": str, "dtype": str}, source=source)
        name, kind, labels = entry["name"], entry["kind"], entry.get("class_names")
        found = None
        if kind in KINDS and KINDS[kind].has_classes == _are_class_names(labels):
            found = Column(name, kind, None if labels is None else tuple(labels))
        is_made = name in VALUES_OF_MISSING or kind == TARGETS
        is_wrong = is_made and kind != {TARGETS: TARGETS, OVERLAP: "int"}.get(name)
        if found is None or name in columns or is_wrong or entry != found.describe():
            raise FolderError(f"{source}: column {quote(name)} is not as tokenize writes it")
        columns[name] = found
    arrays = [array for column in columns.values() for array in column.tensor_dtypes]
    if len(set(arrays)) < len(arrays):
        raise FolderError(f"{source}: two columns share an array")
    return columns


def make_column(field: PlannedColumn, labels: Iterable[Label]) -> Column:
    """Return the column of a store.

    Args:
        labels: the names of the classes of all its parts.

    Raises:
        DataError: there are too many classes.
    """
    if not KINDS[field.kind].has_classes:
        return Column(field.name, field.kind)
    names = field.class_names or sort_labels(labels, field.name)
    return Column(field.name, field.kind, tuple(names))


def _are_class_names(labels: Any) -> bool:
    """Return whether labels are different names of one type."""
    if not isinstance(labels, list) or len(labels) > MAX_CLASSES:
        return False
    types = {find_value_type(label) for label in labels}
    return None not in types and len(types) <= 1 and len(set(labels)) == len(labels)


def parse_keep(spelled: str) -> PlannedColumn:
    """Read one `--keep`; class names are strings as yet.

    Raises:
        OptionError: the type does not exist, or class names are repeated or of another type.

    >>> column = parse_keep("meta.lang:class=de,en")
    >>> column.name, column.kind, column.class_names
    ('meta.lang', 'class', ('de', 'en'))
    """
    found = TYPED.fullmatch(spelled)
    name, kind, names = (spelled, "", None) if found is None else found.group(1, 2, 3)
    unknown = UNKNOWN_TYPE.fullmatch(spelled)
    if found is None and unknown is not None:
        raise OptionError(
            f"--keep {spelled}: type {quote(unknown[1])}, expected {', '.join(FIELD_KINDS)}",
            hint=f"to keep a field of this name, add its type: --keep {spelled}:text",
        )
    if not name or name in RESERVED:
        raise OptionError(
            f"--keep {spelled}: a kept field cannot be named {quote(name)}",
            hint="rename the field in the records" if name else None,
        )
    if names is None:
        return PlannedColumn(name, kind)
    if not FIELD_KINDS[kind].has_classes:
        raise OptionError(
            f"--keep {spelled}: {kind} has no class names",
            hint=f"pass --keep {name}:{kind}, or {name}:class={names}",
        )
    return PlannedColumn(name, kind, class_names=_split_names(spelled, names))


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


def check_keep(keep: Sequence[str]) -> list[PlannedColumn]:
    """Read all `--keep`.

    Raises:
        OptionError: one cannot be read, or two would be stored under one name.
    """
    parsed = [parse_keep(spelled) for spelled in keep]
    owners: dict[str, str] = {}  # the field of each array in a file
    for name, kind in ((column.name, column.kind or "text") for column in parsed):
        if name in owners.values():
            raise OptionError(f"--keep {name}: kept twice", hint="keep the field once")
        for array in Column(name, kind).tensor_dtypes:
            if array in owners:
                raise OptionError(
                    f"--keep {name}: its array {quote(array)} is one of the field "
                    f"{quote(owners[array])} too",
                    hint="keep one of both",
                )
            owners[array] = name
    return parsed


def choose_kinds(
    keep: Sequence[PlannedColumn], samples: Sequence[Sequence[Any]], text_field: str = "text"
) -> list[PlannedColumn]:
    """Return the fields to keep, each with its kind.

    Args:
        samples: the first values of each field, None where there is none. Most of them decide;
            one of another type is a bad record.
        text_field: that has the words or characters of tags.

    Raises:
        DataError: the values do not decide.
        OptionError: fixed class names are not of the type of the values.
    """
    found = []
    for column, sample in zip(keep, samples, strict=True):
        values = [value for value in sample if value is not None]
        kind = column.kind or _choose_kind(column.name, values)
        column = replace(column, kind=kind, text_field=text_field)
        if KINDS[kind].has_classes:
            value_type = _choose_value_type(column, values)
            names = _convert(column, value_type)
            column = replace(column, value_type=value_type, class_names=names)
        found.append(column)
    return found


def _choose_kind(name: str, values: Sequence[Any]) -> str:
    types = Counter(map(type, values))
    if set(types) == {int, float}:
        return "float"
    most = types.most_common(1)[0][0] if types else None
    if most in KIND_OF_TYPE:
        return KIND_OF_TYPE[most]
    found = "no value" if most is None else JSON_TYPES[most]
    ways: dict[type | None, str] = {
        dict: f"name a field in it: --keep {name}.FIELD",
        list: f"pass --keep {name}:tags",
    }
    raise DataError(
        f"--keep {name}: most of the first records have {found} there, expected a string, a "
        "number, true or false",
        hint=ways.get(most, f"name the type, for example --keep {name}:text"),
    )


def _choose_value_type(column: PlannedColumn, values: Sequence[Any]) -> str:
    """Return the type of class names: that of most of them."""
    parse = KINDS[column.kind](column).parse
    values = [parse(value) if type(value) is Spelled else value for value in values]
    labels = list(chain.from_iterable(map(_list_labels, values)))
    spelled = [label for label in labels if type(label) is Spelled]
    type_of_spelled = "number" if all(map(NUMBER.fullmatch, spelled)) else "string"
    types = Counter(
        type_of_spelled if type(label) is Spelled else find_value_type(label) for label in labels
    )
    del types[None]
    if not types and column.kind == "class":
        raise DataError(
            f"--keep {column.name}: the first records have no value there that can be a class, "
            "expected a string, a number, true or false",
            hint="fix the records, or leave the field out",
        )
    return str(types.most_common(1)[0][0]) if types else "string"


def _list_labels(value: Any) -> list[Any]:
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


def _convert(column: PlannedColumn, value_type: str) -> tuple[Label, ...] | None:
    """Return fixed class names as values of the type that the records have."""
    spelled, name = column.class_names, column.name
    if spelled is None or value_type == "string":
        return spelled
    try:
        values = [json.loads(str(label).lower()) for label in spelled]
        found = tuple(read_label(name, value, value_type) for value in values)
    except (ValueError, RecursionError, BadRecordError) as error:
        raise OptionError(
            f"--keep {name}: class names {join_items(map(quote, spelled))}, "
            f"the first records have {value_type}s",
            hint=f"pass --keep {name}:class=false,true" if value_type == "boolean" else None,
        ) from error
    if len(set(found)) < len(found):
        shown = join_items(map(str, spelled))
        raise OptionError(f"--keep {name}: two of the class names {shown} are equal")
    return found


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
        described = [_describe(columns.get(name)) for _, columns in stores]
        other = next((at for at, each in enumerate(described) if each != described[0]), 0)
        if not other or name in made:
            first, *others = [columns[name] for _, columns in stores if name in columns]
            if any(other.class_names != first.class_names for other in others):
                labels = chain.from_iterable(it.class_names or () for it in (first, *others))
                first = Column(name, first.kind, tuple(sort_labels(labels, name)))
            found[name] = first
        elif name not in without:
            raise OptionError(
                f"{stores[other][0]}: column {quote(name)}: found {described[other]}, "
                f"{stores[0][0]} has {described[0]}",
                hint="tokenize them with the same --keep, or leave the column out: --drop-column "
                f"{prefix}{name}, or columns=[...] in Python",
            )
    return found


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


def _describe(column: Column | None) -> str:
    if column is None or column.class_names is None:
        return "none" if column is None else f"kind {column.kind}"
    types = {str(find_value_type(name)) for name in column.class_names}
    return f"kind {column.kind} with {join_items(types)} classes"
