"""Compile a chat template in Jinja's sandbox, and render conversations.

The same template and conversation give the same text as transformers' apply_chat_template. Output
is bounded by MAX_CHARACTERS; the time that a template takes, and the memory of a single value in it
('x' * 10**9), are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import jinja2
from jinja2 import nodes

from seqpack_cli.corpus.fields import SKIP_HINT, BadRecordError
from seqpack_cli.errors import DataError, SeqpackError
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.chat.generation import (
    END,
    MARKS,
    NO_MARKS,
    START,
    Marks,
    choose_marks,
    count_blocks,
    is_captured,
    take_blocks,
)
from seqpack_cli.tokens.chat.sandbox import open_environment
from seqpack_cli.tokens.target_text import Span

MAX_CHARACTERS = 1 << 28  # of a rendered conversation: a template may loop for hours
TEMPLATE_HINT = f"{SKIP_HINT}, or pass another --chat-template"
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
        environment = open_environment(path, template_date)
        try:
            tree = environment.parse(source)
            code = environment.compile(tree)
        except jinja2.TemplateSyntaxError as error:
            found = str(error.message).rstrip(".")
            raise DataError(f"{path}:{error.lineno}: {found}, expected a Jinja template") from error
        except Exception as error:  # nested too deeply, or a break outside a loop
            raise DataError(f"{path}: {_spell(error)}, expected a Jinja template") from error
        self._globals = dict(environment.globals)
        self._template = jinja2.Template.from_code(environment, code, self._globals)
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
        self, messages: list[dict[str, Any]], tools: list[Any] | None, canonical: bytes
    ) -> tuple[str, list[Span]]:
        """Return the text of a conversation, and the places of the generation blocks in it.

        Args:
            canonical: the conversation as JSON: what it contains is not used as a mark.

        Raises:
            BadRecordError: see `render`; or the template changes a block that it has captured.
        """
        marks = self._marks
        if not canonical.isascii():
            content = canonical.decode()
            if marks[0] in content or marks[1] in content:
                marks = choose_marks((content, self._own_marks))
        text, blocks = self._render(messages, tools, marks=marks)
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
    ) -> str:
        """Return the text of a conversation.

        Raises:
            BadRecordError: the template refuses the conversation, fails, or writes without end.
            OptionError: it asks for the date, and there is none.
        """
        return self._render(messages, tools, add_generation_prompt=add_generation_prompt)[0]

    def _render(
        self,
        messages: list[dict[str, Any]],
        tools: list[Any] | None,
        *,
        add_generation_prompt: bool = False,
        marks: Marks = NO_MARKS,
    ) -> tuple[str, list[Span]]:
        """Return the text of a conversation, and the generation blocks between the marks."""
        variables = {
            **self._globals,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
            **self._variables,
        }
        if self.has_blocks:
            variables[START], variables[END] = marks
        try:
            context = self._template.new_context(variables, shared=True)
            pieces = _iter_lists(self._template.root_render_func(context))
            if marks is NO_MARKS:
                return "".join(map("".join, pieces)), []
            if self._is_captured:  # the marks are inside pieces
                marked = "".join(map("".join, pieces))
                return take_blocks([re.split(f"([{''.join(marks)}])", marked)], marks)
            return take_blocks(pieces, marks)
        except (BadRecordError, SeqpackError, MemoryError):
            raise
        except Exception as error:  # whatever a template does to values that it does not expect
            raise BadRecordError(self._describe(error), TEMPLATE_HINT) from error

    def _describe(self, error: Exception) -> str:
        """Say what failed, and at which line of the template."""
        line, trace = "", error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<template>":
                line = f":{self._template.get_corresponding_lineno(trace.tb_lineno)}"
            trace = trace.tb_next
        return f"the chat template {self._path}{line} failed: {_spell(error)}"


def _iter_lists(pieces: Iterator[str]) -> Iterator[list[str]]:
    """Yield the pieces of a text, some at a time, so that many small ones take no memory."""
    num_characters, size = 0, LIMITS.texts_per_write
    while some := list(islice(pieces, size)):
        num_characters += sum(map(len, some))
        if num_characters > MAX_CHARACTERS:
            raise BadRecordError(
                f"the chat template writes more than {MAX_CHARACTERS:,} characters", SKIP_HINT
            )
        yield some


def _spell(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_REASON] or type(error).__name__
