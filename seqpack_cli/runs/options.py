"""Options, each declared once: as a field of an options class, with its help, choices and group.

`cli` makes the command line from the fields, `check_options` checks what a caller of the library
passes, `takes_options` lets functions take the fields as keywords, and `spell_command` writes the
command line into `run.json`. An integer of numpy or torch becomes an int, a bool of numpy a bool, a
string of a subclass of str (a member of an enum) a plain str, and a sequence a tuple.

Neither this module nor those of options classes import numpy: `--help` is made from them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

from seqpack_cli.errors import (
    MAX_SIZE,
    OptionError,
    check_choice,
    check_positive,
    check_seed,
    escape_controls,
    quote,
    suggest,
)

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
WRONG = object()  # returned for a value that is not of the annotated type
RUN = "Files and the run"  # heading of --help for what every run has
SPLIT_NAME = "[A-Za-z0-9_-]+"  # also that of its folder


@dataclass(frozen=True)
class Option:
    """What is known of an option besides its name, type and default.

    Args:
        help: a line or two; the page in docs/ says the rest.
        group: the heading under which `--help` shows it.
        choices: of a str.
        kind: of a value on the command line: "count" (from 1), "seed", "size" (bytes), "place", or
            one of `cli.options`; "library" is not on the command line.
        metavar: what stands for the value.
        flag: of another name than the field.
        shown: the default in words, where it is None.
    """

    help: str
    group: str
    choices: tuple[str, ...] = ()
    kind: str = ""
    metavar: str | None = None
    flag: str | None = None
    shown: str | None = None


def option(default: Any, text: str, group: str, **more: Any) -> Any:
    """Declare a field of an options class; see `Option`."""
    return field(default=default, metadata={"option": Option(text, group, **more)})


def list_options(kind: type) -> dict[str, tuple[Any, Option]]:
    """Return the fields of an options class, and of those in it, each with its option."""
    found: dict[str, tuple[Any, Option]] = {}
    for each in fields(kind):
        if each.default_factory is not MISSING:
            found |= list_options(typing.cast(type, each.default_factory))
        elif "option" in each.metadata:
            found[each.name] = each, each.metadata["option"]
    return found


def make_options(kind: type[Returned], values: Mapping[str, Any]) -> Returned:
    """Make an options class of values by the names of its fields, or of classes in it."""
    given = {}
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in values:
            given[each.name] = values[each.name]
        elif each.default_factory is not MISSING:
            given[each.name] = make_options(typing.cast(type, each.default_factory), values)
    return kind(**given)


def check_options(options: Any) -> None:
    """Convert the fields of a frozen options class to their types, and check choices and ranges.

    Raises:
        TypeError: a field is of another type.
        ValueError: a value is not one of the choices, or out of range.
    """
    kinds = _find_types(options.__class__)
    for each in fields(options):
        value = getattr(options, each.name)
        if value is not each.default:
            value = convert(each.name, value, kinds[each.name])
            object.__setattr__(options, each.name, value)
        known: Option | None = each.metadata.get("option")
        if known is None or value is None:
            continue
        if known.choices:
            none = (None,) if each.default is None else ()
            for item in value if isinstance(value, tuple) else (value,):
                check_choice(each.name, item, (*none, *known.choices))
        elif known.kind in ("seed", "id from 0"):
            check_seed(each.name, value)
        elif known.kind == "size":
            check_positive(each.name, value, at_most=MAX_SIZE)
        elif known.kind in ("count", "sample"):
            check_positive(each.name, value)


# Options that conflict: whether they do, what is said, and what to type, or "".
Conflicts = Iterator[tuple[object, str, str]]


def refuse(conflicts: Conflicts) -> None:
    """Raise OptionError for the first conflict; those after it are not evaluated."""
    for is_conflict, message, hint in conflicts:
        if is_conflict:
            raise OptionError(message, hint=hint or None)


def takes_options(
    **kinds: type,
) -> Callable[[Callable[Parameters, Returned]], Callable[..., Returned]]:
    """Let a function take the fields of options classes as keywords.

    `pack("tokens", "shards", layout="padded")` is
    `pack("tokens", "shards", options=PackOptions(layout="padded"))`.

    Args:
        kinds: the class of each parameter whose fields may be keywords.
    """

    def decorate(function: Callable[Parameters, Returned]) -> Callable[..., Returned]:
        checked, signature = checks_arguments(function), inspect.signature(function)
        own = signature.parameters
        named = {name: what for what, kind in kinds.items() for name in list_options(kind)}

        @functools.wraps(function)
        def called(*args: Any, **keywords: Any) -> Returned:
            values: dict[str, dict[str, Any]] = {}
            for name in [name for name in keywords if name not in own]:
                if name not in named:
                    meant = suggest(name, [*named, *own])
                    raise TypeError(f"{function.__name__} has no option {name!r}{meant}")
                values.setdefault(named[name], {})[name] = keywords.pop(name)
            for parameter, found in values.items():
                if parameter in keywords or parameter in [*own][: len(args)]:
                    words = " and ".join(found)
                    raise TypeError(f"{function.__name__} takes {parameter} or {words}, not both")
                keywords[parameter] = make_options(kinds[parameter], found)
            return checked(*args, **keywords)

        more = inspect.Parameter("keywords", inspect.Parameter.VAR_KEYWORD)
        called.__signature__ = signature.replace(parameters=[*own.values(), more])  # type: ignore[attr-defined]
        return called

    return decorate


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


def convert(name: str, value: Any, kind: Any) -> Any:
    """Return a value as its annotated type.

    Raises:
        TypeError: it is of another type.

    >>> convert("max_length", "5", int | None)
    Traceback (most recent call last):
    TypeError: max_length is '5', expected int | None
    """
    if type(value) is kind:  # the loaders' own arguments, for every batch
        return value
    converted = _convert(value, kind)
    if converted is WRONG:
        expected = re.sub(r"\w+\.", "", inspect.formatannotation(kind))
        raise TypeError(f"{name} is {quote(value)}, expected {expected}")
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
        with contextlib.suppress(TypeError):
            return WRONG if isinstance(value, bool) else operator.index(value)
        return WRONG
    if origin is str and isinstance(value, str):
        return str.__str__(value)  # str() asks the subclass, and an enum returns its own name
    if origin is bool and type(value).__name__ in ("bool", "bool_"):
        return bool(value)  # of numpy too
    if origin is Callable:
        return value if callable(value) else WRONG
    if not isinstance(origin, type) or getattr(origin, "_is_protocol", False) or origin is Any:
        return value
    return value if isinstance(value, origin) else WRONG


def _convert_items(value: Any, kind: Any, *, is_ordered: bool) -> Any:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
        return WRONG
    if is_ordered and (isinstance(value, Set) or not hasattr(value, "__getitem__")):
        return WRONG  # its order would differ from run to run
    items = tuple(_convert(item, kind) for item in value)
    return WRONG if any(item is WRONG for item in items) else items


def spell_command(
    name: str,
    inputs: Sequence[object],
    output: object,
    options: Any,
    *,
    decoder: Sequence[object] = (),
) -> str | None:
    """Return the command line of a run.

    None if it cannot be typed: a name has control characters, or is not Unicode. URLs with secrets
    never come this far: `places.check_address` refuses them.

    Args:
        options: a dataclass whose fields are the options of the command.
        decoder: the stores of the other side of pairs.

    >>> from seqpack_cli import PackOptions
    >>> spell_command("pack", ["my tokens"], "shards", PackOptions("padded", shuffle=False))
    "seqpack pack 'my tokens' -o shards --layout padded --no-shuffle"
    """
    import shlex

    names = [shlex.quote(str(place)) for place in inputs]
    looks_like_option = any(str(place).startswith("-") and str(place) != "-" for place in inputs)
    folder = "./-" if str(output) == "-" else shlex.quote(str(output))  # `-o -` means stdout
    sides = [word for place in decoder for word in ("--decoder", shlex.quote(str(place)))]
    others = [*sides, "-o", folder, *map(shlex.quote, _spell_options(options))]
    words = [*others, "--", *names] if looks_like_option else [*names, *others]
    line = " ".join(["seqpack", name, *words])
    return line if line == escape_controls(line) else None


def _spell_options(options: Any) -> Iterator[str]:
    for _, flag, value in find_given(options):
        if isinstance(value, bool):
            yield flag if value else f"--no-{flag.removeprefix('--')}"
        elif isinstance(value, tuple) and all(isinstance(item, str) for item in value):
            for item in value:  # the option is repeated
                yield from (flag, item)
        else:
            yield flag
            items = value if isinstance(value, tuple | list) else [value]
            yield ",".join(map(_spell_item, items))


def find_given(options: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield name, flag and value of each field that has not its default, also of nested classes."""
    for each in fields(options):
        value = getattr(options, each.name)
        if is_dataclass(value):
            yield from find_given(value)
        elif value != each.default:
            yield each.name, spell_flag(each), value


def spell_flag(each: Field[Any]) -> str:
    """Return the name of a field's option on the command line."""
    known: Option | None = each.metadata.get("option")
    return (known and known.flag) or f"--{each.name.replace('_', '-')}"


def _spell_item(item: Any) -> str:
    return f"({','.join(map(str, item))})" if isinstance(item, tuple) else str(item)
