"""The sandbox in which chat templates run, with what transformers offers to templates."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from seqpack_cli.errors import OptionError
from seqpack_cli.tokens.chat.generation import GenerationBlocks

DICT_ATTRIBUTES = frozenset(dir(dict))


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, which finds the fields of messages without an AttributeError for each."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a field of an object, where the object has no attribute of that name."""
        if type(obj) is dict and attribute not in DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


class _Dict:
    """The type dict as a template may use it: as a function."""

    def __call__(self, *args: Any, **fields: Any) -> dict[Any, Any]:
        return dict(*args, **fields)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """A namespace without underscored names, which lead to what Python keeps for itself."""

    def __init__(*args: Any, **fields: Any) -> None:  # a field may be called self
        namespace, *others = args
        values = dict(*others, **fields)
        for name in values:
            _check_name(name)
        Namespace.__init__(namespace, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot have the field {name!r}")


def open_environment(path: str, template_date: str | None) -> jinja2.Environment:
    """Return the environment of templates, as transformers makes it, but with a fixed date."""

    def strftime_now(pattern: str) -> str:
        if template_date is None:
            raise OptionError(
                f"{path}: the chat template writes the current date (strftime_now), expected a "
                "date that is the same in each run",
                hint="pass --template-date YYYY-MM-DD",
            )
        return datetime.fromisoformat(template_date).strftime(pattern)

    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    x: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
