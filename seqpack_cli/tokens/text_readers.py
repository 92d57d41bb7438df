"""Make texts with targets: from a prompt and a completion, or from the messages of a conversation.

Both are picklable, for spawned workers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqpack_cli.corpus.canonical import encode_canonical
from seqpack_cli.corpus.document_block import BadRecordError, check_unicode
from seqpack_cli.corpus.text_reader import Made, TextReader
from seqpack_cli.corpus.words import join_words
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
    optional = ()
    options = ("--prompt-field", "--completion-field")
    takes_strings = True
    num_values = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The two fields."""
        return self.prompt_field, self.completion_field

    def read_all(self, columns: Sequence[list[Any]]) -> Made:
        """Return the texts; raise TypeError if a field is not a string."""
        prompts, completions = columns
        if not {*map(type, prompts), *map(type, completions)} <= {str}:
            raise TypeError("not a text")
        made = list(map(_join, prompts, completions))
        return [each.text for each in made], [made]

    def read(self, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """Return the text of a record; raises BadRecordError."""
        texts = [
            join_words(value, name, takes_words=False, option=option)
            for value, name, option in zip(values, self.names, self.options, strict=True)
        ]
        made = _join(*texts)
        return made.text, [made]

    def describe(self) -> dict[str, Any]:
        """Return what decides the texts besides the options: nothing."""
        return {}


@dataclass(frozen=True)
class MessagesText:
    """A text that a chat template renders from messages, of which the assistant's are targets."""

    setup: ChatSetup
    messages_field: str
    tools_field: str | None = None
    options = ("--messages-field",)
    takes_strings = False
    num_values = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The field of the messages."""
        return (self.messages_field,)

    @property
    def optional(self) -> tuple[str, ...]:
        """The field of the tools, which a record may lack."""
        return () if self.tools_field is None else (self.tools_field,)

    def read_all(self, columns: Sequence[list[Any]]) -> Made:
        """Return the texts; raises BadRecordError if one cannot be rendered."""
        messages, *others = columns
        tools = [list(map(_read_tools, values)) for values in others]
        made = list(map(open_renderer(self.setup).render, messages, *tools))
        return [each.text for each in made], [made]

    def read(self, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """Return the text of a record; raises BadRecordError."""
        for name, value in zip((*self.names, *self.optional), values, strict=True):
            check_unicode(name, value)
        messages, *tools = values
        try:
            made = open_renderer(self.setup).render(messages, *map(_read_tools, tools))
        except BadRecordError as error:
            raise BadRecordError(self._name_field(error.reason), error.hint) from error
        return made.text, [made]

    def _name_field(self, reason: str) -> str:
        """Return a reason that begins with the name of a field."""
        what, colon, rest = reason.partition(": ")
        names = {"messages": self.messages_field, "tools": self.tools_field}
        return f"{names.get(what) or what}{colon}{rest}"

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
) -> TextReader | None:
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
