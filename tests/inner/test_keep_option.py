"""`--keep FIELD[:TYPE]`: how it is read, and how the first records decide what it leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from seqpack_cli.corpus.fields import Spelled
from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.tokens.columns.keep_option import check_keep, parse_keep
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.columns.kind_choice import choose_kinds


@pytest.mark.parametrize(
    ("spelled", "parsed"),
    [
        ("label", ("label", None, None)),
        ("meta.lang:class", ("meta.lang", "class", None)),
        ("a b", ("a b", None, None)),
        ("dc:title:text", ("dc:title", "text", None)),
        ("label:class=no,yes", ("label", "class", ("no", "yes"))),
        ('label:class="a,b",c=d', ("label", "class", ("a,b", "c=d"))),
        ("ner:tags=O,B:PER", ("ner", "tags", ("O", "B:PER"))),
        ("label:class=x,y:text", ("label", "class", ("x", "y:text"))),
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
        ("x:targets", "--keep x:targets: type 'targets', expected int, float, class, text, tags"),
        ("targets:int", "--keep targets:int: a kept field cannot be named 'targets'"),
        ("overlap", "--keep overlap: a kept field cannot be named 'overlap'"),
        ("same", "--keep same: a kept field cannot be named 'same'"),
        ("next", "--keep next: a kept field cannot be named 'next'"),
        ("n:int=1,2", "--keep n:int=1,2: int has no class names"),
        ("n:class=a,a", "--keep n:class=a,a: class name 'a' is there twice"),
        ("n:class=", "--keep n:class=: no class names"),
        ('n:class="a', '--keep n:class="a: class names cannot be read (unexpected end of data)'),
    ],
)
def test_parse_keep_refuses(spelled: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_keep(spelled)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (["a", "a:int"], "--keep a: kept twice"),
        (
            ["a:text", "a.offsets:int"],
            "--keep a.offsets: its array 'column.a.offsets' is one of the field 'a' too",
        ),
    ],
)
def test_two_columns_of_one_name_are_refused(keep: list[str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_keep(keep)
    assert caught.value.message == message


def choose(keep: str, values: list[Any]) -> Kept:
    (kept,) = choose_kinds([parse_keep(keep)], [values])
    return kept


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None], "text"),
        ([1, 2], "int"),
        ([1, 2.5], "float"),
        ([0.5], "float"),
        ([True, False], "class"),
        ([1, "a", 2], "int"),
        ([Spelled("1")], "text"),
    ],
)
def test_the_first_records_decide_the_kind(values: list[Any], kind: str) -> None:
    assert choose("n", values).kind == kind


@pytest.mark.parametrize(
    ("values", "found", "hint"),
    [
        ([], "no value", "name the type, for example --keep n:text"),
        ([None], "no value", "name the type, for example --keep n:text"),
        ([["a"]], "a list", "pass --keep n:tags"),
        ([{"a": 1}], "an object", "name a field in it: --keep n.FIELD"),
    ],
)
def test_records_that_do_not_decide_need_a_type(values: list[Any], found: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        choose("n", values)
    assert caught.value.message.startswith(f"--keep n: most of the first records have {found} ")
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("keep", "values", "value_type", "names"),
    [
        ("n:class", ["a"], "string", None),
        ("n:class", [None, 2], "number", None),
        ("n:class", ["n/a", 1, 2], "number", None),
        ("n:class", [Spelled("1"), Spelled("10")], "number", None),
        ("n:class", [Spelled("1"), Spelled("07")], "string", None),
        ("n:tags", [Spelled("[1, 2]")], "number", None),
        ("n:tags", [], "string", None),
        ("n:class=False,true", [True], "boolean", (False, True)),
        ("n:class=0,10,2.0", [2], "number", (0, 10, 2)),
        ("n:class=false,true", [True], "boolean", (False, True)),
        ("n:class=1,2", ["1"], "string", ("1", "2")),
    ],
)
def test_the_first_records_decide_the_type_of_class_names(
    keep: str, values: list[Any], value_type: str, names: tuple[Any, ...] | None
) -> None:
    kept = choose(keep, values)
    assert (kept.field.value_type, kept.field.class_names) == (value_type, names)


@pytest.mark.parametrize(
    ("keep", "value"),
    [
        ("n:class=a,b", 1),
        ("n:class=1,nan", 1),
        ("n:class=1,1e400", 1),
        ("n:class=1_0,2", 1),
        ("n:class=1,99999999999999999999", 1),
        ("n:class=1,1.0", 1),
        ("n:class=no,yes", True),
    ],
)
def test_fixed_names_that_no_record_can_have_are_refused(keep: str, value: Any) -> None:
    with pytest.raises(OptionError, match=r"^--keep n: "):
        choose(keep, [value])


def test_classes_need_a_value() -> None:
    with pytest.raises(DataError, match=r"^--keep n: the first records have no value there that"):
        choose("n:class", [None])
