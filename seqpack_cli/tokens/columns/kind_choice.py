"""Choose the kind of each kept field, and the type of its class names, from the first records."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from seqpack_cli.corpus.fields import Spelled
from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.files.json_files import JSON_TYPES
from seqpack_cli.tokens.columns.class_kind import find_value_type
from seqpack_cli.tokens.columns.keep_option import KeepOption
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.columns.kind import Field, Label
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.columns.number_kinds import LARGEST, SMALLEST

# What most of the values decide where no type was named.
KIND_OF_TYPE: dict[type, str] = {str: "text", Spelled: "text", int: "int", float: "float"}
KIND_OF_TYPE |= {bool: "class"}
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")  # as in JSON
BOOLEANS = {"false": False, "true": True}


def choose_kinds(
    keep: Sequence[KeepOption], samples: Sequence[Sequence[Any]], text_field: str = "text"
) -> list[Kept]:
    """Return the fields to keep, each with its kind.

    Args:
        text_field: that has the words or characters of tags.
        samples: the first values of each field, None where there is none. Most of them decide;
            one of another type is a bad record.

    Raises:
        DataError: the values do not decide.
        OptionError: fixed class names are not of the type of the values.
    """
    return [
        _choose(option, values, text_field) for option, values in zip(keep, samples, strict=True)
    ]


def _choose(option: KeepOption, values: Sequence[Any], text_field: str) -> Kept:
    name, kind, labels = option
    values = [value for value in values if value is not None]
    kind = kind or _choose_kind(name, values)
    if not KINDS[kind].has_classes:
        return Kept(Field(name), kind)
    value_type = _choose_value_type(name, kind, values)
    class_names = _convert(name, labels, value_type)
    return Kept(Field(name, value_type, class_names, text_field), kind)


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


def _choose_value_type(name: str, kind: str, values: Sequence[Any]) -> str:
    """Return the type of class names: that of most of them."""
    parse = KINDS[kind].make_reader(Field(name)).parse
    values = [parse(value) if type(value) is Spelled else value for value in values]
    labels = [label for value in values for label in _iter_labels(value)]
    spelled = [label for label in labels if type(label) is Spelled]
    type_of_spelled = "number" if all(map(_is_number, spelled)) else "string"
    types = Counter(
        type_of_spelled if type(label) is Spelled else find_value_type(label) for label in labels
    )
    del types[None]
    if not types and kind == "class":
        raise DataError(
            f"--keep {name}: the first records have no value there that can be a class, expected "
            "a string, a number, true or false",
            hint="fix the records, or leave the field out",
        )
    return str(types.most_common(1)[0][0]) if types else "string"


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


def _is_number(spelled: str) -> bool:
    return NUMBER.fullmatch(spelled) is not None


def _convert(
    name: str, labels: tuple[str, ...] | None, value_type: str
) -> tuple[Label, ...] | None:
    """Return fixed class names as values of the type that the records have."""
    if labels is None or value_type == "string":
        return labels
    convert = _to_boolean if value_type == "boolean" else _to_number
    try:
        found = tuple(map(convert, labels))
    except (KeyError, ValueError) as error:
        raise OptionError(
            f"--keep {name}: class names {join_items(map(quote, labels))}, "
            f"the first records have {value_type}s",
            hint=f"pass --keep {name}:class=false,true" if value_type == "boolean" else None,
        ) from error
    if len(set(found)) < len(found):
        raise OptionError(f"--keep {name}: two of the class names {join_items(labels)} are equal")
    return found


def _to_boolean(spelled: str) -> bool:
    return BOOLEANS[spelled.lower()]


def _to_number(spelled: str) -> int | float:
    """Return the number that a class name spells, as records have it.

    Raises:
        ValueError: it is not a number that JSON can have, or too large.
    """
    if not _is_number(spelled):
        raise ValueError(spelled)
    number = float(spelled)
    exact = int(spelled) if spelled.lstrip("-").isdigit() else number
    if not math.isfinite(number) or (type(exact) is int and not SMALLEST <= exact <= LARGEST):
        raise ValueError(spelled)
    if type(exact) is float and exact.is_integer() and SMALLEST <= exact <= LARGEST:
        return int(exact)
    return exact
