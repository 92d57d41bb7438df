"""The fields of records that a store keeps: kinds, classes, and the words that tags belong to."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np


class BadRecordError(Exception):
    """A record cannot be read; `byte` is where it begins, or its first wrong byte."""

    byte: int | None = 0


def find_field(record: Any, name: str) -> Any:
    """Return a field of a record: the whole name as a key, or else a path of keys."""
    if not isinstance(record, dict):
        raise BadRecordError("expected an object")
    if name in record:
        return record[name]
    for key in name.split("."):
        if not isinstance(record, dict) or key not in record:
            raise BadRecordError(f"no field {name}")
        record = record[key]
    return record


def parse_object(line: str) -> dict[str, Any]:
    """Parse a line of JSON lines."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise BadRecordError("not JSON") from error
    if not isinstance(found, dict):
        raise BadRecordError("expected an object")
    return found


def check(is_good: bool, reason: str) -> None:
    """Raise BadRecordError if a record is not good."""
    if not is_good:
        raise BadRecordError(reason)


@dataclass
class Keep:
    """A kept field, as `--keep` spells it: FIELD, FIELD:TYPE or FIELD:class=A,B."""

    spelled: str
    value_type: str | None = None
    _is_chosen = False

    def __post_init__(self) -> None:
        found = re.fullmatch(r"(.*?)(?::(int|float|class|text|tags)(?:=(.*))?)?", self.spelled)
        assert found is not None
        self.name, self.kind, names = found.groups()
        pattern = r'(?:^|,)(?:"((?:[^"]|"")*)"|([^,"]*))'  # a name in quotes may have commas
        pairs = [] if names is None else re.findall(pattern, names)
        self.names: list[Any] | None = [x.replace('""', '"') or y for x, y in pairs] or None

    def choose(self, values: Sequence[Any]) -> None:
        """Choose the kind, and the type of classes, as most of the first values say."""
        kinds = {str: "text", int: "int", float: "float", bool: "class"}
        if self.kind is None:
            found = Counter(map(type, values))
            self.kind = "float" if {*found} == {int, float} else kinds[found.most_common(1)[0][0]]
        if self.kind not in ("class", "tags"):
            return
        labels = [each for value in values for each in self._list_labels(value)]
        names = {str: "string", int: "number", float: "number", bool: "boolean"}
        types = Counter(names[type(label)] for label in labels if type(label) in names)
        self.value_type = types.most_common(1)[0][0] if types else "string"
        if self.names is not None and self.value_type != "string":
            self.names = [self._read_label(json.loads(name.lower())) for name in self.names]
        self._is_chosen = True

    def read(self, value: Any, words: Any) -> Any:
        """Check and return a value; of tags the labels of words, or spans."""
        if self.kind == "class":
            return self._read_label(value)
        if self.kind == "tags":
            check(isinstance(value, list), self.name)
            if not isinstance(words, list):
                return self._read_spans(value, words)
            check(len(value) == len(words), self.name)
            return list(map(self._read_label, value))
        types = {"int": (int,), "float": (int, float), "text": (str,)}[str(self.kind)]
        check(type(value) in types, self.name)
        if self.kind == "int":
            check(-(2**63) <= value < 2**63, self.name)
        elif self.kind == "float":
            check(bool(np.isfinite(value)) and float(value) == value, self.name)
        return float(value) if self.kind == "float" else value

    def _read_label(self, value: Any) -> Any:
        types: dict[Any, tuple[type, ...]] = {"string": (str,), "boolean": (bool,)}
        check(type(value) in types.get(self.value_type, (int, float)), self.name)
        if type(value) is float:
            check(bool(np.isfinite(value)), self.name)
            value = int(value) if value.is_integer() else value
        check(type(value) is not int or -(2**63) <= value < 2**63, self.name)
        check(not self._is_chosen or self.names is None or value in self.names, self.name)
        return value

    def _read_spans(self, value: list[Any], text: str) -> list[tuple[int, int, Any]]:
        keys = ("start", "end", "label")
        spans = [[each[k] for k in keys] if isinstance(each, dict) else each for each in value]
        check(all(isinstance(each, list) and len(each) == 3 for each in spans), self.name)
        found = sorted((start, end, self._read_label(label)) for start, end, label in spans)
        places = [place for start, end, _ in found for place in (start, end)]
        check(all(0 <= start < end <= len(text) for start, end, _ in found), self.name)
        check(places == sorted(places), self.name)
        return found

    def _list_labels(self, value: Any) -> list[Any]:
        """Return the class names in a value: itself, those of words, or of spans."""
        entries = value if isinstance(value, list) else [value]
        entries = [each["label"] if isinstance(each, dict) else each for each in entries]
        return [each[-1] if isinstance(each, list) else each for each in entries]

    def describe(self) -> dict[str, Any]:
        """Return the entry in the options of a manifest."""
        value_type = self.value_type if self.kind in ("class", "tags") else None
        return {
            "name": self.name,
            "kind": self.kind,
            "value_type": value_type,
            "class_names": self.names,
        }


Segment = tuple[int, int, Any]  # where a word, or a piece of a span, begins and ends, and its class


def is_space(character: str) -> bool:
    """Return whether Unicode calls a character White_Space; Python has four more."""
    return character.isspace() and character not in "\x1c\x1d\x1e\x1f"


def find_segments(
    keep: Keep, value: list[Any], text: str, words: list[str] | None
) -> tuple[list[Segment], Any]:
    """Return the words of a text with their classes, and the class of text outside of all spans."""
    if words is not None:
        begins = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
        found = zip(begins, words, value, strict=False)
        return [(begin, begin + len(word), label) for begin, word, label in found], None
    outside = "O" if keep.value_type == "string" and "O" in (keep.names or ["O"]) else None
    owners = [
        next((n for n, (s, e, _) in enumerate(value) if s <= i < e), -1) for i in range(len(text))
    ]
    segments, begin = [], 0
    for key, group in groupby(range(len(text)), lambda i: (owners[i], is_space(text[i]))):
        begin, end = (places := [*group])[0], places[-1] + 1
        if not key[1]:
            segments.append((begin, end, outside if key[0] < 0 else value[key[0]][2]))
    for start, end, label in value:  # of a span of spaces, its beginning
        if all(map(is_space, text[start:end])):
            segments.append((start, start, label))
    return sorted(segments, key=lambda segment: segment[:2]), outside
