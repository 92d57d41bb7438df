"""The kinds of columns: which values each accepts, and how it spells what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.corpus.fields import BadRecordError
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


def read_each(reader: Any, values: list[Any]) -> list[Any] | None:
    """Read values one by one; None if one is refused."""
    try:
        return [reader.read(value, "") for value in values]
    except BadRecordError:
        return None


@pytest.mark.parametrize("reader", READERS)
@given(values=st.lists(st.sampled_from(VALUES), max_size=4))
def test_read_all_accepts_only_what_read_accepts(reader: Any, values: list[Any]) -> None:
    """It may leave values to read, and what it returns is equal to what read returns."""
    found, expected = reader.read_all(list(values), [""] * len(values)), read_each(reader, values)
    if found is not None:
        assert found == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [3, -4, 2**63 - 1]),
        ("float", [0.5, 3, -1e10]),
        ("class", ["a", "b", "a"]),
        ("text", ["a", "", "日本"]),
    ],
)
def test_read_all_takes_good_values_together(kind: str, values: list[Any]) -> None:
    reader = KINDS[kind].make_reader(Field("label", "string"))
    assert reader.read_all(values, [""] * 3) == values


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int", None, "field 'n' is null, expected an integer"),
        ("int", True, "field 'n' is true, expected an integer"),
        ("int", 1.0, "field 'n' is 1.0, expected an integer"),
        ("int", "1", "field 'n' is '1', expected an integer"),
        ("int", [1], "field 'n' is a list, expected an integer"),
        (
            "int",
            2**63,
            "field 'n' is 9223372036854775808, expected an integer from -9223372036854775808 to "
            "9223372036854775807",
        ),
        ("float", math.nan, "field 'n' is nan, expected a finite number"),
        ("float", False, "field 'n' is false, expected a number"),
        (
            "float",
            2**53 + 1,
            "field 'n' is 9007199254740993, expected a number that 64-bit floating point holds",
        ),
        ("class", 1, "field 'n' is 1, expected a string as in the first records"),
        ("class", {}, "field 'n' is an object, expected a string as in the first records"),
        ("text", 5, "field 'n' is 5, expected a string"),
        ("text", "\ud800", r"field 'n' is '\ud800', expected Unicode text"),
    ],
)
def test_a_refused_value_is_named_with_what_was_expected(
    kind: str, value: Any, message: str
) -> None:
    reader = KINDS[kind].make_reader(Field("n", "string"))
    with pytest.raises(BadRecordError) as caught:
        reader.read(value, "")
    assert caught.value.reason == message


def test_a_value_outside_the_fixed_classes_is_refused() -> None:
    reader = KINDS["class"].make_reader(Field("label", "string", ("no", "yes")))
    assert reader.read_all(["no", "maybe"], ["", ""]) is None
    with pytest.raises(BadRecordError, match="is 'maybe', expected one of 'no', 'yes'"):
        reader.read("maybe", "")
    reader = KINDS["class"].make_reader(Field("label", "boolean", (False,)))
    with pytest.raises(BadRecordError, match="is true, expected one of false"):
        reader.read(True, "")


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


def test_equal_numbers_are_one_class() -> None:
    reader = KINDS["class"].make_reader(Field("n", "number"))
    found = [reader.read(value, "") for value in (1, 1.0, -0.0, 2.5)]
    assert [repr(value) for value in found] == ["1", "1", "0", "2.5"]


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
