"""`--keep FIELD[:TYPE]`: how it is read, and how the first records decide what it leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.tokens.columns.keep_option import check_keep, choose_kinds, parse_keep


@pytest.mark.parametrize(
    ("spelled", "parsed"),
    [
        ("label", ("label", None, None)),
        ("meta.lang:class", ("meta.lang", "class", None)),
        ("a b", ("a b", None, None)),
        ("dc:title:text", ("dc:title", "text", None)),
        ("label:class=no,yes", ("label", "class", ("no", "yes"))),
        ('label:class="a,b",c=d', ("label", "class", ("a,b", "c=d"))),
    ],
)
def test_parse_keep(spelled: str, parsed: tuple[Any, ...]) -> None:
    assert parse_keep(spelled) == parsed


@pytest.mark.parametrize(
    ("spelled", "message"),
    [
        ("label:clas", "--keep label:clas: type 'clas', expected int, float, class"),
        ("", "--keep : a kept field cannot be named ''"),
        (":int", "--keep :int: a kept field cannot be named ''"),
        ("targets:int", "--keep targets:int: a kept field cannot be named 'targets'"),
        ("n:int=1,2", "--keep n:int=1,2: expected different names, of a class"),
        ("n:class=a,a", "--keep n:class=a,a: expected different names, of a class"),
    ],
)
def test_parse_keep_refuses(spelled: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_keep(spelled)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("keep", [["a", "a:int"], ["a:text", "a.offsets:int"]])
def test_two_columns_of_one_name_are_refused(keep: list[str]) -> None:
    with pytest.raises(OptionError, match="kept twice, or its name is that of another's array"):
        check_keep(keep)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None], "text"),
        ([1, 2], "int"),
        ([1, 2.5], "float"),
        ([0.5], "float"),
        ([True, False], "class"),
    ],
)
def test_the_first_records_decide_the_kind(values: list[Any], kind: str) -> None:
    (kept,) = choose_kinds(["n"], [values])
    assert kept.kind == kind


@pytest.mark.parametrize("values", [[], [None], ["a", 1], [True, 1], [["a"]], [{}]])
def test_records_that_do_not_decide_need_a_type(values: list[Any]) -> None:
    with pytest.raises(DataError, match=r"^--keep n: the first records have "):
        choose_kinds(["n"], [values])


@pytest.mark.parametrize(
    ("keep", "values", "value_type", "names"),
    [
        ("n:class", ["a"], "string", None),
        ("n:class", [None, 2], "number", None),
        ("n:class", [], "string", None),
        ("n:class=0,10,2.0", [2], "number", (0, 10, 2)),
        ("n:class=false,true", [True], "boolean", (False, True)),
        ("n:class=1,2", ["1"], "string", ("1", "2")),
    ],
)
def test_the_first_records_decide_the_type_of_class_names(
    keep: str, values: list[Any], value_type: str, names: tuple[Any, ...] | None
) -> None:
    (kept,) = choose_kinds([keep], [values])
    assert (kept.field.value_type, kept.field.class_names) == (value_type, names)


def test_fixed_names_of_another_type_are_refused() -> None:
    with pytest.raises(OptionError, match="class names a, b, the records have numbers"):
        choose_kinds(["n:class=a,b"], [[1]])
