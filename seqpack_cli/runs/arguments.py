"""Check what a caller of the library passes against the annotations, before any work begins.

`checks_arguments` checks the arguments of a public function, `check_fields` the fields of an
options class. An integer of numpy or torch becomes an int, a bool of numpy a bool, a string of a
subclass of str (a member of an enum) a plain str, and a sequence a tuple.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

from seqpack_cli.errors import quote

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
WRONG = object()  # returned for a value that is not of the annotated type
NO_CLASSES = (Any, typing.TypeVar)


def checks_arguments(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Convert the arguments of a function to their annotated types, or raise TypeError at once."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        given = signature.bind(*args, **kwargs)
        for name, kind in _find_types(function).items():
            if name in given.arguments:
                given.arguments[name] = convert(name, given.arguments[name], kind)
        return function(*given.args, **given.kwargs)

    return checked


def check_fields(options: Any) -> None:
    """Convert the fields of a frozen dataclass to their annotated types.

    Raises:
        TypeError: a field is of another type.
    """
    kinds = _find_types(options.__class__)
    for field in fields(options):
        given = getattr(options, field.name)
        if given is not field.default:
            value = convert(field.name, given, kinds[field.name])
            object.__setattr__(options, field.name, value)


def convert(name: str, value: Any, kind: Any) -> Any:
    """Return a value as its annotated type.

    Raises:
        TypeError: it is of another type.

    >>> convert("max_length", "5", int | None)
    Traceback (most recent call last):
    TypeError: max_length is '5', expected int or None
    """
    if type(value) is kind:  # the loaders' own arguments, for every batch
        return value
    converted = _convert(value, kind)
    if converted is WRONG:
        advice = "".join(_advise(value, kind))
        raise TypeError(f"{name} is {quote(value)}, expected {_spell(kind)}{advice}")
    return converted


@functools.cache
def _find_types(annotated: Any) -> dict[str, Any]:
    return typing.get_type_hints(annotated)


def _convert(value: Any, kind: Any) -> Any:
    """Return a value as the annotated type, or WRONG."""
    origin = typing.get_origin(kind) or kind
    if origin in (types.UnionType, typing.Union):
        results = (_convert(value, member) for member in typing.get_args(kind))
        return next((result for result in results if result is not WRONG), WRONG)
    if origin in (Sequence, Collection, tuple):
        return _convert_items(value, typing.get_args(kind)[0], is_ordered=origin is not Collection)
    if origin is int:
        return _convert_int(value)
    if origin is str and isinstance(value, str):
        return str.__str__(value)  # str() asks the subclass, and an enum returns its own name
    if origin is bool and type(value).__name__ in ("bool", "bool_"):
        return bool(value)  # of numpy too
    if origin is Callable:
        return value if callable(value) else WRONG
    if not isinstance(origin, type) or getattr(origin, "_is_protocol", False) or origin is Any:
        return value
    return value if isinstance(value, origin) else WRONG


def _convert_int(value: Any) -> Any:
    try:
        return WRONG if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return WRONG


def _convert_items(value: Any, kind: Any, *, is_ordered: bool) -> Any:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
        return WRONG
    if is_ordered and (isinstance(value, Set) or not hasattr(value, "__getitem__")):
        return WRONG  # its order would differ from run to run
    items = tuple(_convert(item, kind) for item in value)
    return WRONG if any(item is WRONG for item in items) else items


def _spell(kind: Any) -> str:
    """Name a type for people.

    >>> _spell(str | Sequence[int] | None)
    'str, a sequence of int or None'
    """
    members = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    *names, last = (_spell_member(member) for member in members)
    return f"{', '.join(names)} or {last}" if names else last


def _spell_member(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is types.NoneType:
        return "None"
    if origin is Callable:
        return "a function"
    if origin in (Sequence, Collection, tuple):
        item = arguments[0]
        return f"a sequence of {item.__name__}" if isinstance(item, type) else "a sequence of them"
    return str(getattr(origin or kind, "__name__", kind))


def _advise(value: Any, kind: Any) -> Iterator[str]:
    """Yield what to write instead of a str or dict where an options class is expected."""
    for member in (kind, *typing.get_args(kind)):
        if (
            isinstance(member, type)
            and is_dataclass(member)
            and member.__module__.startswith(__name__.partition(".")[0])
        ):
            is_name = isinstance(value, str) and str not in typing.get_args(kind)
            if is_name and fields(member)[0].name == "name":
                yield f"; pass {member.__name__}({value!r})"
            elif isinstance(value, dict) and member.__name__.endswith("Options"):
                yield f"; pass {member.__name__}(**options)"
