"""Wrong arguments are refused by their annotations, before any work begins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqpack_cli as seqpack
from seqpack_cli.files.places import AnyPath
from seqpack_cli.runs.arguments import check_fields, checks_arguments, convert


class Name(str, Enum):  # noqa: UP042 - the str() of a StrEnum is its value
    PADDED = "padded"


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (5, int | None, 5),
        (None, int | None, None),
        (np.uint16(5), int, 5),
        (np.bool_(True), bool | None, True),
        (Name.PADDED, str, "padded"),
        ([np.str_("a.txt")], AnyPath | Sequence[AnyPath], ("a.txt",)),
        (np.array(["a.txt"]), AnyPath | Sequence[AnyPath], ("a.txt",)),
        (torch.tensor(5), int, 5),
        ("auto", str | Sequence[int] | None, "auto"),
        ([np.int64(8), 4], str | Sequence[int] | None, (8, 4)),
        (np.array([8, 4]), Sequence[int], (8, 4)),
        (range(3), Sequence[int], (0, 1, 2)),
        ({3}, Collection[int], (3,)),
        (("<mask>",), Sequence[str], ("<mask>",)),
        (print, Callable[[int], None], print),
        (Path("x"), AnyPath, Path("x")),
        ("anything", Any, "anything"),
    ],
)
def test_convert_returns_the_value_as_its_type(value: Any, kind: Any, expected: Any) -> None:
    converted = convert("name", value, kind)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ("5", int | None, "'5', expected int or None"),
        (True, int, "True, expected int"),
        (5.0, int, "5.0, expected int"),
        (torch.tensor(5.0), int, "tensor(5.), expected int"),
        (1, bool, "1, expected bool"),
        (b"x", str, "b'x', expected str"),
        ("<mask>", Sequence[str], "'<mask>', expected a sequence of str"),
        ([1, "2"], Sequence[int], "[1, '2'], expected a sequence of int"),
        ({3}, Sequence[int], "{3}, expected a sequence of int"),
        ({3: 4}, Collection[int], "{3: 4}, expected a sequence of int"),
        (3, Callable[[int], None], "3, expected a function"),
        (3, AnyPath, "3, expected str, PathLike or Url"),
        ({}, AnyPath, "{}, expected str, PathLike or Url"),
        ("run", seqpack.VerifyOptions | None, "'run', expected VerifyOptions or None"),
    ],
)
def test_convert_refuses_another_type(value: Any, kind: Any, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        convert("name", value, kind)
    assert str(caught.value) == f"name is {said}"


@dataclass(frozen=True)
class Options:
    sizes: Sequence[int] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)


def test_fields_become_what_they_are_annotated_as() -> None:
    options = Options([np.int32(3)], np.int64(4))  # type: ignore[arg-type]
    assert options == Options((3,), 4)
    assert type(options.limit) is int


@checks_arguments
def add(first: int, second: int = 0, *, twice: bool = False) -> int:
    return (first + second) * (1 + twice)


@checks_arguments
def spell(*, names: Sequence[str], upper: bool = False) -> list[str]:
    return [name.upper() if upper else f"{name}" for name in names]


def test_checked_function_gets_the_converted_arguments() -> None:
    names = (name for name in (Name.PADDED, np.str_("b")))
    assert spell(names=[*names], upper=np.bool_(False)) == ["padded", "b"]  # type: ignore[arg-type]
    assert type(add(np.int8(100), np.int8(100))) is int  # type: ignore[arg-type]


def test_checked_function_is_called_as_before() -> None:
    assert add(1, second=2, twice=True) == 6
    assert add.__name__ == "add"
    with pytest.raises(TypeError, match="missing a required argument: 'first'"):
        add()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^second is '2', expected int$"):
        add(1, "2")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "values", "said"),
    [
        (seqpack.TokenizeOptions, {"max_length": "5"}, "max_length is '5', expected int or None"),
        (seqpack.TokenizeOptions, {"max_length": 5.0}, "max_length is 5.0, expected int or None"),
        (seqpack.TokenizeOptions, {"max_length": True}, "max_length is True, expected int or"),
        (seqpack.TokenizeOptions, {"documents": {"text_field": "body"}}, "documents is {'text_fi"),
        (seqpack.TokenizeOptions, {"tokenizer": 3}, "tokenizer is 3, expected str, PathLike or"),
        (
            seqpack.TrainTokenizerOptions,
            {"special_tokens": "<mask>"},
            "special_tokens is '<mask>', expected a sequence of str",
        ),
        (seqpack.TrainTokenizerOptions, {"vocab_size": "9"}, "vocab_size is '9', expected int"),
        (seqpack.DocumentOptions, {"text_field": 3}, "text_field is 3, expected str"),
        (seqpack.PackOptions, {"batch_size": True}, "batch_size is True, expected int or None"),
        (seqpack.PackOptions, {"buckets": (8, 2.5)}, "buckets is (8, 2.5), expected str, a seq"),
        (seqpack.PackOptions, {"seed": None}, "seed is None, expected int"),
        (seqpack.PackOptions, {"shuffle": "yes"}, "shuffle is 'yes', expected bool or None"),
        (seqpack.SamplerOptions, {"skip": 3}, "skip is 3, expected a sequence of int"),
        (seqpack.SamplerOptions, {"balance": True}, "balance is True, expected str or None"),
        (seqpack.VerifyOptions, {"sample": "all"}, "sample is 'all', expected int or None"),
        (
            seqpack.VerifyOptions,
            {"tokens": 3},
            "tokens is 3, expected str, PathLike, Url, a sequence",
        ),
        (seqpack.Executor, {"num_workers": 2.0}, "num_workers is 2.0, expected int or None"),
        (seqpack.Progress, {"on_total": 3}, "on_total is 3, expected a function"),
    ],
)
def test_options_of_another_type_are_refused(
    make: Callable[..., object], values: dict[str, object], said: str
) -> None:
    with pytest.raises(TypeError) as caught:
        make(**values)
    assert str(caught.value).startswith(said)


TOKENIZE_OPTIONS = seqpack.TokenizeOptions()


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        (
            "pack",
            {"options": {"layout": "padded"}},
            "options is {'layout': 'padded'}, expected PackOptions or None; "
            "pass PackOptions(**options)",
        ),
        ("pack", {"options": TOKENIZE_OPTIONS}, "options is TokenizeOptions("),
        (
            "pack",
            {"executor": "ray"},
            "executor is 'ray', expected Executor or None; pass Executor('ray')",
        ),
        ("pack", {"executor": {}}, "executor is {}, expected Executor or None"),
        ("pack", {"progress": {}}, "progress is {}, expected Progress or None"),
        ("tokenize", {"executor": 4}, "executor is 4, expected Executor or None"),
        ("tokenize", {"progress": print}, "progress is <built-in function print>, expected Progr"),
        ("tokenize", {"overwrite": "no"}, "overwrite is 'no', expected bool"),
        ("unpack", {"as_text": "yes"}, "as_text is 'yes', expected bool"),
        ("train_tokenizer", {"options": TOKENIZE_OPTIONS}, "options is TokenizeOptions("),
    ],
)
def test_runs_refuse_arguments_of_another_type(
    name: str, arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    with pytest.raises(TypeError) as caught:
        getattr(seqpack, name)(tmp_path, output, **arguments)
    assert str(caught.value).startswith(said)
    assert ("; pass " in str(caught.value)) == ("; pass " in said)
    assert not output.exists()


def test_a_store_that_is_open_is_no_path(byte_store: Callable[..., Path]) -> None:
    store = seqpack.open_store(byte_store(["ab", "c"]))
    with pytest.raises(TypeError, match=r"^stores is TokenStore\(.*expected str, PathLike, Url or"):
        seqpack.pack(store, "shards")  # type: ignore[arg-type]
