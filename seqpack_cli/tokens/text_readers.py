"""Make texts with targets: from a prompt and a completion, or from the messages of a conversation.

Both are picklable, for spawned workers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqpack_cli.corpus.fields import (
    MESSAGES_FIELD,
    PAIR_OPTIONS,
    BadRecordError,
    Field,
    join_words,
)
from seqpack_cli.corpus.json_records import encode_canonical
from seqpack_cli.errors import quote
from seqpack_cli.files.places import parse_place
from seqpack_cli.tokens.chat.chat_setup import ChatSetup
from seqpack_cli.tokens.chat.find_setup import find_chat_setup
from seqpack_cli.tokens.chat.renderer import open_renderer
from seqpack_cli.tokens.options import TargetOptions
from seqpack_cli.tokens.target_text import TargetText


@dataclass(frozen=True)
class PromptText:
    """A text that is a prompt and its completion, which is the target."""

    prompt_field: str
    completion_field: str
    num_lists = 2

    @property
    def fields(self) -> tuple[Field, ...]:
        """The two fields."""
        names = (self.prompt_field, self.completion_field)
        return tuple(Field(*each, "text") for each in zip(names, PAIR_OPTIONS, strict=True))

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the texts; raise TypeError if a field is not a string."""
        prompts, completions = columns
        if not {*map(type, prompts), *map(type, completions)} <= {str}:
            raise TypeError("not a text")
        made = list(map(_join, prompts, completions))
        return [[each.text for each in made], made]

    def read(self, values: Sequence[Any]) -> list[Any]:
        """Return the text of a record; raises BadRecordError."""
        texts = [
            join_words(value, field.name, option=field.option)
            for value, field in zip(values, self.fields, strict=True)
        ]
        made = _join(*texts)
        return [made.text, made]

    def parse(self, spelled: str) -> Any:
        """Return the text."""
        return spelled

    def describe(self) -> dict[str, Any]:
        """Return what decides the texts besides the options: nothing."""
        return {}


@dataclass(frozen=True)
class MessagesText:
    """A text that a chat template renders from messages, of which the assistant's are targets."""

    setup: ChatSetup
    messages_field: str
    tools_field: str | None = None
    num_lists = 2

    @property
    def fields(self) -> tuple[Field, ...]:
        """The messages, and the tools, which a record may lack."""
        messages = Field(self.messages_field, MESSAGES_FIELD, "json")
        if self.tools_field is None:
            return (messages,)
        return messages, Field(self.tools_field, "--tools-field", "json", is_optional=True)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the texts; raises BadRecordError if one cannot be rendered."""
        messages, *others = columns
        tools = [list(map(_read_tools, values)) for values in others]
        made = list(map(open_renderer(self.setup).render, messages, *tools))
        return [[each.text for each in made], made]

    def read(self, values: Sequence[Any]) -> list[Any]:
        """Return the text of a record; raises BadRecordError."""
        messages, *tools = values
        try:
            made = open_renderer(self.setup).render(messages, *map(_read_tools, tools))
        except BadRecordError as error:
            raise BadRecordError(self._name_field(error.reason), error.hint) from error
        return [made.text, made]

    def _name_field(self, reason: str) -> str:
        """Return a reason that begins with the name of a field."""
        what, colon, rest = reason.partition(": ")
        names = {"messages": self.messages_field, "tools": self.tools_field}
        return f"{names.get(what) or what}{colon}{rest}"

    def parse(self, spelled: str) -> Any:
        """Return the text."""
        return spelled

    def describe(self) -> dict[str, Any]:
        """Return what decides the texts besides the records."""
        return self.setup.describe()


def _read_tools(value: Any) -> Any:
    """Return the tools of a conversation, which some data sets have as JSON in a string."""
    if type(value) is not str:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        what = f"tools: {quote(value)}, expected a list, or a string with JSON of one"
        raise BadRecordError(what) from error


def make_text_reader(
    options: TargetOptions, tokenizer: str, *, allow_special_tokens: bool
) -> PromptText | MessagesText | None:
    """Return what makes the texts of a run; None if they are one field.

    Raises:
        OptionError, DataError: the chat template is missing, or cannot be parsed.
        MachineError: the package for templates is not installed.
    """
    if options.prompt_field is not None and options.completion_field is not None:
        return PromptText(options.prompt_field, options.completion_field)
    if options.messages_field is None:
        return None
    template = None if options.chat_template is None else parse_place(options.chat_template)
    setup = find_chat_setup(
        tokenizer,
        template,
        target_turns=options.target_turns,
        template_date=options.template_date,
        allow_special_tokens=allow_special_tokens,
    )
    return MessagesText(setup, options.messages_field, options.tools_field)


def _join(prompt: str, completion: str) -> TargetText:
    start, text = len(prompt), prompt + completion
    canonical = encode_canonical({"completion": completion, "prompt": prompt})
    return TargetText(text, ((start, len(text)),) if completion else (), canonical)
