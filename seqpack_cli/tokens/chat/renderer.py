"""Turn a conversation into a text of which the assistant's part are targets.

What the assistant writes is in the {% generation %} blocks of the template, if it has any, and
otherwise found by rendering the beginnings of the conversation: two more renderings for each
assistant message, one for the last message. A rendering of six messages and 3 kB by a
short template takes 15 µs; all else takes 40 µs, a quarter of it for the JSON that is hashed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from seqpack_cli.corpus.fields import SKIP_HINT, BadRecordError
from seqpack_cli.errors import MachineError, OptionError, quote
from seqpack_cli.tokens.chat.chat_setup import ChatSetup
from seqpack_cli.tokens.chat.conversation import (
    check_conversation,
    check_text,
    encode_conversation,
    leave_out_nulls,
    name_thoughts,
)
from seqpack_cli.tokens.chat.prefixes import ASSISTANT, find_turns
from seqpack_cli.tokens.chat.spelled_content import Conversation, SpelledContent
from seqpack_cli.tokens.hidden_specials import FIRST_PRIVATE
from seqpack_cli.tokens.target_text import Span, TargetText

if TYPE_CHECKING:
    from seqpack_cli.tokens.chat.chat_template import ChatTemplate

MIN_VERSION = (3, 1, 6)  # of jinja2: templates escape from the sandbox of earlier ones
SHORT = [{"role": "user", "content": "?"}, {"role": ASSISTANT, "content": "!"}]
TAKEN_SPACE = re.compile(r"[^\S\x1c-\x1f]*")  # what a token of `space_taking` includes


class Renderer:
    """Renders conversations with one setup."""

    def __init__(self, setup: ChatSetup) -> None:
        """Compile the templates.

        Raises:
            DataError: one is not a Jinja template.
            MachineError: jinja2 is missing.
        """
        self._setup = setup
        self._template = compile_template(setup)
        self._content = SpelledContent(setup.special_tokens, self._template.literals)
        self._with_tools = self
        if setup.tool_template is not None:
            path = f"{setup.path} (tool_use)"
            self._with_tools = Renderer(
                replace(setup, template=setup.tool_template, path=path, tool_template=None)
            )

    def render(self, messages: Any, tools: Any = None) -> TargetText:
        """Return the text of a conversation, and the targets in it.

        Args:
            messages: a list of objects, each with a `role`.
            tools: None, or a list of objects.

        Raises:
            BadRecordError: they are something else, or the template refuses or fails to render
                them, or it cannot be told what the assistant writes.
        """
        if tools is not None and self._with_tools is not self:
            return self._with_tools.render(messages, tools)
        check_conversation(messages, tools)
        messages = leave_out_nulls(messages)
        canonical = encode_conversation(messages, tools)
        prepared = name_thoughts(messages)
        if self._template.has_blocks:
            text, spans = self._find_blocks(prepared, tools, canonical)
        else:
            text = self._template.render(prepared, tools)
            spans = self._find_turns(prepared, tools, text)
        check_text(text)
        special, spelled = self._find_special(text, (messages, tools), canonical)
        if not self._template.has_blocks:
            spans = [self._cut_space(span, text, special) for span in spans]
        if self._setup.space_taking:
            spans = [self._take_space(span, text, special) for span in spans]
        return TargetText(text, tuple(_join_spans(spans)), canonical, special, spelled)

    def _find_blocks(
        self, messages: list[dict[str, Any]], tools: list[Any] | None, canonical: bytes
    ) -> tuple[str, list[Span]]:
        """Return the text and its generation blocks, or those of the last assistant message.

        Those are the blocks that the text has more than the text of the messages before it, and at
        least the last one: a template may join messages to one block.
        """
        template = self._template
        text, blocks = template.render_blocks(messages, tools, canonical)
        if self._setup.target_turns == "last" and len(blocks) > 1:
            turns = [i for i, message in enumerate(messages) if message["role"] == ASSISTANT]
            before = messages[: turns[-1]] if turns else messages
            num_before = len(template.render_blocks(before, tools, canonical)[1])
            blocks = blocks[min(num_before, len(blocks) - 1) :]
        return text, blocks

    def _find_turns(
        self, messages: list[dict[str, Any]], tools: list[Any] | None, text: str
    ) -> list[Span]:
        def render(some: list[dict[str, Any]], add_generation_prompt: bool) -> str:
            return self._template.render(some, tools, add_generation_prompt=add_generation_prompt)

        return find_turns(messages, text, render, target_turns=self._setup.target_turns)

    def _find_special(
        self, text: str, conversation: Conversation, canonical: bytes
    ) -> tuple[tuple[Span, ...] | None, str]:
        """Return the places of the template's own special tokens, and the content."""
        content = self._content.list_content(conversation, canonical)
        if not content:
            return None, ""

        def render(changed: Conversation) -> str:
            messages, tools = changed
            return self._template.render(name_thoughts(messages), tools)

        special = None
        if not self._setup.allow_special_tokens:
            special = self._content.find_own(text, conversation, render)
        if special is not None and max(text) >= chr(FIRST_PRIVATE):
            raise BadRecordError(
                f"messages: {quote(max(text))}, a private character, beside a special token that "
                "is spelled out, expected none from U+100000 on",
                SKIP_HINT,
            )
        return special, "\0".join(content)

    def _cut_space(self, span: Span, text: str, special: tuple[Span, ...] | None) -> Span:
        """Leave out the white space after the last special token: nothing writes it."""
        start, end = span
        last = start + len(text[start:end].rstrip())
        return (start, last) if self._ends_token(text, start, last, special) else span

    def _take_space(self, span: Span, text: str, special: tuple[Span, ...] | None) -> Span:
        """Include the white space that belongs to the special token at the end."""
        start, end = span
        if end > start and text.endswith(self._setup.space_taking, start, end):
            found = TAKEN_SPACE.match(text, end)
            if found and self._ends_token(text, start, end, special):
                return start, found.end()
        return span

    def _ends_token(
        self, text: str, start: int, end: int, special: tuple[Span, ...] | None
    ) -> bool:
        if special is not None:
            return any(start <= first and last == end for first, last in special)
        return text.endswith(self._setup.special_tokens, start, end)


def compile_template(setup: ChatSetup) -> ChatTemplate:
    """Compile the template of a setup; see `Renderer`."""
    try:
        import jinja2

        from seqpack_cli.tokens.chat.chat_template import ChatTemplate
    except ImportError as error:
        raise MachineError(
            "jinja2 is not installed, chat templates need it", hint="pip install jinja2"
        ) from error
    found = tuple(int(number) for number in re.findall(r"\d+", jinja2.__version__)[:3])
    if found < MIN_VERSION:
        raise MachineError(
            f"jinja2 {jinja2.__version__}, expected 3.1.6 or later, whose sandbox is safe",
            hint="pip install --upgrade jinja2",
        )
    return ChatTemplate(setup.template, setup.path, setup.variables, setup.template_date)


def writes_special(setup: ChatSetup) -> bool:
    """Return whether the template writes a special token around a question and its answer.

    True if it refuses them, so that it cannot be told.
    """
    try:
        text = compile_template(setup).render(SHORT, None)
    except (BadRecordError, OptionError):
        return True
    return any(token in text for token in setup.special_tokens)


@lru_cache(maxsize=4)
def open_renderer(setup: ChatSetup) -> Renderer:
    """Return the renderer of a setup, made once in each process; see `Renderer`."""
    return Renderer(setup)


def _join_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans that are apart from each other, none empty."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        elif start < end:
            joined.append((start, end))
    return joined
