"""The kinds of columns: which values each accepts, and how it spells what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.columns import class_kind
from seqpack_cli.tokens.columns.class_kind import NO_CLASS, ClassCollector, map_numbers
from seqpack_cli.tokens.columns.kind import Field
from seqpack_cli.tokens.columns.kinds import KINDS

VALUES: list[Any] = [
    *(0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**400),
    *(0.0, -0.0, 1.0, 0.5, 2.0**60, 1e300, 1e308, math.inf, -math.inf, math.nan),
    *("", "a", "12", "\ud800", "日本", True, False, None, [], ["a"], {}, {"a": 1}),
]
TYPES = {"class": ("string", "number", "boolean")}
READERS = [
    KINDS[kind].make_reader(Field("label", value_type))
    for kind in ("int", "float", "class", "text")
    for value_type in TYPES.get(kind, (None,))
] + [KINDS["class"].make_reader(Field("label", "string", ("a", "b")))]


@pytest.mark.parametrize(
    ("kind", "spelled", "value"),
    [
        ("int", "12", 12),
        ("int", "-3", -3),
        ("int", "1_000", "1_000"),
        ("int", " 1", " 1"),
        ("int", "1.0", "1.0"),
        ("int", "", ""),
        ("float", "1.5", 1.5),
        ("float", "1e3", 1000.0),
        ("float", "x", "x"),
        ("class", "12", "12"),
        ("text", "", ""),
    ],
)
def test_parse_reads_a_field_of_csv(kind: str, spelled: str, value: Any) -> None:
    assert KINDS[kind].make_reader(Field("n", "string")).parse(spelled) == value


def test_classes_of_a_part_are_numbered_in_sorted_order() -> None:
    collector = ClassCollector("label")
    collector.add(["ß", "z"], np.array([1, 2]))
    collector.add(["a", "Z"], np.array([1, 1]))
    tensors, names = collector.finish("label")
    assert names == ["Z", "a", "z", "ß"]
    tensor = tensors["column.label"]
    assert np.concatenate(list(tensor.pieces)).tolist() == [3, 2, 2, 1, 0]
    assert (tensor.dtype, tensor.count) == ("int32", 5)


def test_many_classes_do_not_wrap_around() -> None:
    """Numbers wait in the narrowest dtype that holds them, and entries without a class too."""
    collector = ClassCollector("label")
    for first in range(0, 70_000, 100):
        collector.add([f"{first + number:06d}" for number in range(100)], np.ones(100, np.int64))
    collector.add_numbers(np.array([NO_CLASS, 69_999, 0]))
    tensors, names = collector.finish("label")
    assert names is not None and len(names) == 70_000
    found = np.concatenate(list(tensors["column.label"].pieces))
    assert found.tolist() == [*range(70_000), NO_CLASS, 69_999, 0]


def test_too_many_classes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_kind, "MAX_CLASSES", 2)
    collector = ClassCollector("label")
    collector.add(["a", "b", "c"], np.ones(3, np.int64))
    with pytest.raises(DataError, match="field 'label': more than 2 classes"):
        collector.finish("label")


def test_map_numbers_keeps_entries_without_a_class() -> None:
    table = map_numbers(["b", "c"], {"a": 0, "b": 1, "c": 2})
    assert table[np.array([1, NO_CLASS, 0])].tolist() == [2, NO_CLASS, 1]
