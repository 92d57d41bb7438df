"""What a worker needs to make the parts of a tokenize run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.files.places import Place
from seqpack_cli.tokens.affixes import Affixes
from seqpack_cli.tokens.chat.chat_setup import ChatSetup
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.indexed_dataset import choose_dtype
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.spelled_tokens import check_spelled_tokens
from seqpack_cli.tokens.text_readers import MessagesText, PromptText
from seqpack_cli.tokens.vocabulary import Vocabulary


class AnySetup(Protocol):
    """What a worker needs to make any part of a run, whatever the parts are made from."""

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The columns to make."""

    @property
    def dtype(self) -> str:
        """The dtype of the ids."""

    @property
    def receipt_fields(self) -> Mapping[str, type]:
        """The fields of a receipt that only such parts have."""

    def check_receipt(self, receipt: dict[str, Any], source: Place) -> None:
        """Raise FolderError unless these fields are possible."""


@dataclass(frozen=True)
class PartSetup:
    """What a worker needs to tokenize any part of a run."""

    folder: Place
    tokenizer_json: bytes
    vocabulary: Vocabulary
    affixes: Affixes
    options: TokenizeOptions
    encoder: str  # the one in use
    kept: tuple[Kept, ...] = ()
    text: PromptText | MessagesText | None = None  # None: a text is one field
    num_threads: int = 1

    @property
    def chat(self) -> ChatSetup | None:
        """How a chat template renders the texts, special tokens among them; None if none does."""
        return self.text.setup if isinstance(self.text, MessagesText) else None

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """What is counted where a record spells it."""
        return self.vocabulary.special_tokens if self.chat is None else self.chat.special_tokens

    @property
    def dtype(self) -> str:
        """The dtype of the ids."""
        return choose_dtype(self.vocabulary.max_id)

    @property
    def receipt_fields(self) -> Mapping[str, type]:
        """See `AnySetup`."""
        return {"special_tokens": dict, "encoder": str}

    def check_receipt(self, receipt: dict[str, Any], source: Place) -> None:
        """Raise FolderError unless the spelled special tokens add up."""
        check_spelled_tokens(receipt, self.special_tokens, source=source)


@dataclass(frozen=True)
class PartTask:
    """One part to make."""

    name: str
    ranges: list[SourceRange]

    @property
    def num_bytes(self) -> int:
        """The input bytes of the part."""
        return sum(source_range.end - source_range.start for source_range in self.ranges)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle plain tuples, much faster than named ones: a part may have 10,000 files."""
        ranges = [(index, tuple(source), start, end) for index, source, start, end in self.ranges]
        return _load_task, (self.name, ranges)

    def __str__(self) -> str:
        paths = [source_range.source.path for source_range in self.ranges]
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return f"{self.name} ({paths[0]}{more})"


def _load_task(name: str, ranges: list[tuple[Any, ...]]) -> PartTask:
    found = [SourceRange(index, Source(*source), *ends) for index, source, *ends in ranges]
    return PartTask(name, found)
