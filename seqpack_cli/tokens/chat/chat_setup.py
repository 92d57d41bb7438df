"""What a run knows about its chat template: plain values, which are pickled for workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from seqpack_cli.errors import check_choice


@dataclass(frozen=True)
class ChatSetup:
    """How conversations become texts.

    Args:
        template: the source of the chat template, in Jinja.
        path: where it is from, for messages.
        variables: what it may use besides the conversation: bos_token, eos_token and so on.
        special_tokens: of the tokenizer; their ids are written by the template alone.
        target_turns: "all" assistant messages are targets, or only the "last".
        template_date: what strftime_now returns, as YYYY-MM-DD; without it, strftime_now fails.
        allow_special_tokens: special tokens spelled in content become ids too.
        tool_template: the template of conversations with tools, if it is another one.
        space_taking: the special tokens that include the white space after them.
    """

    template: str
    path: str
    variables: Mapping[str, str] = field(hash=False)
    special_tokens: tuple[str, ...]
    target_turns: str = "all"
    template_date: str | None = None
    allow_special_tokens: bool = False
    tool_template: str | None = None
    space_taking: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("target_turns", self.target_turns, ("all", "last"))

    def describe(self) -> dict[str, Any]:
        """Return what decides the texts and their ids, as in the options of a manifest."""
        decisive = {
            "template": self.template,
            "tool_template": self.tool_template,
            "special_tokens": "\n".join(self.special_tokens),
        }
        digests = {
            f"{name}_blake3": None if source is None else blake3(source.encode()).hexdigest()
            for name, source in decisive.items()
        }
        return {**digests, "variables": dict(sorted(self.variables.items()))}
