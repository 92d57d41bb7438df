"""Make texts with targets: from a prompt and a completion, or from the messages of a conversation.

Both are picklable, for spawned workers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqpack_cli.corpus.text_reader import Made, TextReader
from seqpack_cli.corpus.words import join_words
from seqpack_cli.tokens.target_options import TargetOptions
from seqpack_cli.tokens.target_text import TargetText
from seqpack_cli.tokens.vocabulary import Vocabulary


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
            join_words(value, name, takes_words=False)
            for value, name in zip(values, self.names, strict=True)
        ]
        made = _join(*texts)
        return made.text, [made]


def make_text_reader(
    options: TargetOptions, tokenizer: str, vocabulary: Vocabulary, allow_special_tokens: bool
) -> TextReader | None:
    """Return what makes the texts of a run; None if they are one field.

    Raises:
        OptionError, DataError: the chat template is missing, or cannot be parsed.
        MachineError: the package for templates is not installed.
    """
    if options.prompt_field is not None and options.completion_field is not None:
        return PromptText(options.prompt_field, options.completion_field)
    return None


def _join(prompt: str, completion: str) -> TargetText:
    start, text = len(prompt), prompt + completion
    fields = {"completion": completion, "prompt": prompt}  # sorted
    canonical = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return TargetText(text, ((start, len(text)),) if completion else (), canonical)
