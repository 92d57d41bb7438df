"""The options of `seqpack tokenize` that say which tokens are targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqpack_cli.errors import OptionError, check_choice
from seqpack_cli.files.places import AnyPath
from seqpack_cli.runs.arguments import check_fields

FIELD_OPTIONS = {
    "prompt_field": "--prompt-field",
    "completion_field": "--completion-field",
    "messages_field": "--messages-field",
    "tools_field": "--tools-field",
}


@dataclass(frozen=True)
class TargetOptions:
    """Which fields a text is made from, and which of its tokens count in the loss.

    Args:
        prompt_field, completion_field: fields whose texts follow each other; the tokens of the
            completion are targets, and the end token.
        messages_field: the field with the messages of a conversation, which a chat template turns
            into a text; the assistant's are targets.
        tools_field: the field with the tools of a conversation, which a record may lack.
        chat_template: a file with the template; None is that of the tokenizer.
        target_turns: "all" messages of the assistant are targets, or only the "last".
        template_date: the day that a template may ask for, such as "2026-11-23".

    Raises:
        ValueError: an option has an unknown value.
        OptionError: options conflict, or one has no effect.
    """

    prompt_field: str | None = None
    completion_field: str | None = None
    messages_field: str | None = None
    tools_field: str | None = None
    chat_template: AnyPath | None = None
    target_turns: str = "all"
    template_date: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("target_turns", self.target_turns, ("all", "last"))
        for name, option in FIELD_OPTIONS.items():
            if getattr(self, name) == "":
                raise OptionError(f"{option}: expected the name of a field, found ''")
        if (self.prompt_field is None) != (self.completion_field is None):
            given, missing = "--prompt-field", "--completion-field"
            if self.prompt_field is None:
                given, missing = missing, given
            raise OptionError(f"{given} needs {missing}", hint=f"pass {missing} too")
        if self.messages_field is not None:
            if self.prompt_field is not None:
                raise OptionError(
                    "--messages-field and --prompt-field both say how the text is made",
                    hint="leave one of them out",
                )
            return
        others = {
            "--tools-field": self.tools_field,
            "--chat-template": self.chat_template,
            "--target-turns": None if self.target_turns == "all" else self.target_turns,
            "--template-date": self.template_date,
        }
        for option, value in others.items():
            if value is not None:
                raise OptionError(
                    f"{option} {value}: no conversations are read", hint="pass --messages-field too"
                )

    @property
    def fields(self) -> dict[str, str]:
        """The fields that a text is made from, by the option that names each."""
        named = {option: getattr(self, name) for name, option in FIELD_OPTIONS.items()}
        return {option: field for option, field in named.items() if field is not None}

    def record(self) -> dict[str, Any]:
        """Return the options that decide the bytes, as in the manifest, without the template."""
        names = (*FIELD_OPTIONS, "target_turns", "template_date")
        return {name: getattr(self, name) for name in names}
