"""Compile a chat template in Jinja's sandbox, with what transformers offers to templates.

The same template and conversation give the same text as transformers' apply_chat_template. Output
is bounded by MAX_CHARACTERS; the time that a template takes, and the memory of a single value in it
('x' * 10**9), are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from seqpack_cli.corpus.document_block import SKIP_HINT, BadRecordError
from seqpack_cli.errors import DataError, OptionError, SeqpackError
from seqpack_cli.tokens.chat.generation import (
    END,
    MARKS,
    NO_MARKS,
    START,
    GenerationBlocks,
    Marks,
    choose_marks,
    count_blocks,
    is_captured,
    take_blocks,
)
from seqpack_cli.tokens.target_text import Span

MAX_CHARACTERS = 1 << 28  # of a rendered conversation: a template may loop for hours
NUM_PIECES = 4096  # joined at once, so that many small pieces take no memory
MAX_REASON = 200  # characters of a template's message


class ChatTemplate:
    """A compiled chat template."""

    def __init__(
        self, source: str, path: str, variables: Mapping[str, str], template_date: str | None
    ) -> None:
        """Compile a template.

        Raises:
            DataError: it is not a Jinja template; the message has the line.
        """
        self._path = path
        environment = _open_environment(path, template_date)
        try:
            tree = environment.parse(source)
            code = environment.compile(tree)
        except jinja2.TemplateSyntaxError as error:
            found = str(error.message).rstrip(".")
            raise DataError(f"{path}:{error.lineno}: {found}, expected a Jinja template") from error
        except Exception as error:  # nested too deeply, or a break outside a loop
            raise DataError(f"{path}: {_spell(error)}, expected a Jinja template") from error
        variables_of_all = environment.make_globals(None)
        self._template = jinja2.Template.from_code(environment, code, variables_of_all)
        self._variables = {"documents": None, **variables}
        self.has_blocks = count_blocks(tree) > 0
        self._is_captured = is_captured(tree)
        self.literals = (
            *(data.data for data in tree.find_all(nodes.TemplateData)),
            *(c.value for c in tree.find_all(nodes.Const) if isinstance(c.value, str)),
        )
        own = (source, *self.literals, *variables.values())
        self._marks = choose_marks(own)
        self._own_marks = "".join(mark for mark in MARKS if any(mark in text for text in own))

    def render_blocks(
        self, messages: list[dict[str, Any]], tools: list[Any] | None, canonical: str
    ) -> tuple[str, list[Span]]:
        """Return the text of a conversation, and the places of the generation blocks in it.

        Args:
            canonical: the conversation as JSON: what it contains is not used as a mark.

        Raises:
            BadRecordError: see `render`; or the template changes a block that it has captured.
        """
        marks = self._marks
        if marks[0] in canonical or marks[1] in canonical:
            marks = choose_marks((canonical, self._own_marks))
        marked = self.render(messages, tools, marks=marks)
        text, blocks = take_blocks(marked, marks)
        if self._is_captured and text != self.render(messages, tools):
            raise BadRecordError(
                f"the chat template {self._path} changes the text of a {{% generation %}} block "
                "after it is rendered, expected a block that is written as it is",
                SKIP_HINT,
            )
        return text, blocks

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[Any] | None,
        *,
        add_generation_prompt: bool = False,
        marks: Marks = NO_MARKS,
    ) -> str:
        """Return the text of a conversation, with marks around its generation blocks.

        Raises:
            BadRecordError: the template refuses the conversation, fails, or writes without end.
            OptionError: it asks for the date, and there is none.
        """
        variables = {
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
            **self._variables,
        }
        if self.has_blocks:
            variables[START], variables[END] = marks
        try:
            context = self._template.new_context(variables)
            return _join(self._template.root_render_func(context))
        except (BadRecordError, SeqpackError, MemoryError):
            raise
        except Exception as error:  # whatever a template does to values that it does not expect
            raise BadRecordError(self._describe(error), SKIP_HINT) from error

    def _describe(self, error: Exception) -> str:
        """Say what failed, and at which line of the template."""
        line, trace = "", error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<template>":
                line = f":{self._template.get_corresponding_lineno(trace.tb_lineno)}"
            trace = trace.tb_next
        return f"the chat template {self._path}{line} failed: {_spell(error)}"


def _join(pieces: Iterator[str]) -> str:
    texts = []
    num_characters = 0
    while some := list(islice(pieces, NUM_PIECES)):
        texts.append("".join(some))
        num_characters += len(texts[-1])
        if num_characters > MAX_CHARACTERS:
            raise BadRecordError(
                f"the chat template writes more than {MAX_CHARACTERS:,} characters", SKIP_HINT
            )
    return texts[0] if len(texts) == 1 else "".join(texts)


def _spell(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_REASON] or type(error).__name__


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


def _open_environment(path: str, template_date: str | None) -> jinja2.Environment:
    """Return the environment of templates, as transformers makes it, but with a fixed date."""

    def strftime_now(pattern: str) -> str:
        if template_date is None:
            raise OptionError(
                f"{path}: the chat template writes the current date (strftime_now), expected a "
                "date that is the same in each run",
                hint="pass --template-date YYYY-MM-DD",
            )
        return datetime.fromisoformat(template_date).strftime(pattern)

    environment = ImmutableSandboxedEnvironment(
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
