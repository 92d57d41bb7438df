"""Make texts with targets, of a prompt and a completion, and gather texts into batches.

What makes texts is picklable, for spawned workers; `chat` has what makes those of conversations. A
call of an encoder costs as much as some kB of text, so the blocks of small files are combined; a
block of a large file is a batch of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from seqpack_cli.corpus.fields import PAIR_OPTIONS, Field, join_words
from seqpack_cli.corpus.records import RecordBlock
from seqpack_cli.errors import MachineError
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.offsets import TargetText
from seqpack_cli.tokens.options import TargetOptions
from seqpack_cli.tokens.tokenizer import TokenizerFiles

if TYPE_CHECKING:
    from seqpack_cli.tokens.chat import ChatText

MIN_JINJA = (3, 1, 6)  # templates escape from the sandbox of earlier ones


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

    def describe(self) -> dict[str, Any]:
        """Return what decides the texts besides the options: nothing."""
        return {}


def _join(prompt: str, completion: str) -> TargetText:
    start, text = len(prompt), prompt + completion
    canonical = orjson.dumps({"completion": completion, "prompt": prompt})  # in canonical order
    targets = ((start, len(text)),) if completion else ()
    return TargetText(text, targets, canonical, spelled=text)


def make_text_reader(
    options: TargetOptions, tokenizer: TokenizerFiles, *, allow_special_tokens: bool
) -> PromptText | ChatText | None:
    """Return what makes the texts of a run; None if they are one field.

    Raises:
        OptionError, DataError: the chat template is missing, or cannot be parsed.
        MachineError: the package for templates is not installed.
    """
    if options.prompt_field is not None and options.completion_field is not None:
        return PromptText(options.prompt_field, options.completion_field)
    if options.messages_field is None:
        return None
    try:
        import jinja2
    except ImportError as error:
        raise MachineError(
            "jinja2 is not installed, chat templates need it", hint="pip install jinja2"
        ) from error
    if tuple(map(int, re.findall(r"\d+", jinja2.__version__)[:3])) < MIN_JINJA:
        raise MachineError(
            f"jinja2 {jinja2.__version__}, expected 3.1.6 or later, whose sandbox is safe",
            hint="pip install --upgrade jinja2",
        )
    from seqpack_cli.tokens.chat import find_chat_text

    return find_chat_text(tokenizer, options, allow_special_tokens=allow_special_tokens)


class TextBatch(NamedTuple):
    """Texts that are encoded together, and the blocks they are from."""

    blocks: list[RecordBlock]
    texts: list[str]
    fields: list[list[Any]]  # of each kept field, beside the texts
    made: Sequence[TargetText | None] = ()  # of each text, if all are made from several fields

    @property
    def num_rejected(self) -> int:
        """Return the number of rejected records; their texts are empty."""
        return sum(len(block.rejects) for block in self.blocks)

    @property
    def spelled(self) -> list[str]:
        """Return the texts in which special tokens are counted: not what a template writes."""
        return ["" if made is None else made.spelled for made in self.made] or self.texts

    def iter_hashed(self) -> Iterator[bytes]:
        """Yield what the hash of each document is made from."""
        if not self.made:
            return map(str.encode, self.texts)
        return (b"" if made is None else made.canonical for made in self.made)

    def find_place(self, index: int) -> str:
        """Return "path:line" of one of the texts."""
        for block in self.blocks:
            if index < block.num_records:
                return block.find_place(index)
            index -= block.num_records
        raise IndexError(index)


def gather(blocks: Iterable[RecordBlock], *, are_made: bool) -> Iterator[TextBatch]:
    """Combine blocks into batches of about 1 MiB, or 65,536 texts.

    Args:
        are_made: the first field of a block is the `TargetText` of each text.
    """
    waiting: list[RecordBlock] = []
    num_bytes = num_texts = 0
    most_bytes, most_texts = LIMITS.batch_bytes, LIMITS.sequences_per_block
    for block in blocks:
        waiting.append(block)
        num_bytes += block.num_bytes
        num_texts += block.num_records
        if num_bytes >= most_bytes or num_texts >= most_texts:
            yield _combine(waiting, are_made=are_made)
            waiting, num_bytes, num_texts = [], 0, 0
    if waiting:
        yield _combine(waiting, are_made=are_made)


def _combine(blocks: list[RecordBlock], *, are_made: bool) -> TextBatch:
    lists = blocks[0].lists
    if len(blocks) > 1:
        all_lists = [block.lists for block in blocks]
        lists = [list(chain.from_iterable(values)) for values in zip(*all_lists, strict=True)]
    texts, *fields = lists
    if None in texts:  # a record that is rejected or blank
        texts = ["" if text is None else text for text in texts]
    return TextBatch(blocks, texts, fields[are_made:], fields[0] if are_made else ())
