"""The options and input of a tokenize run -> its plan and its tasks.

The plan is all that decides the bytes of the store; it becomes part of the manifest.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from seqpack_cli.corpus.document_block import DocumentOptions
from seqpack_cli.corpus.formats import FORMATS
from seqpack_cli.corpus.parts import plan_parts
from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import OptionError, check_choice, check_positive
from seqpack_cli.files.url import Place
from seqpack_cli.tokens.affixes import find_affixes
from seqpack_cli.tokens.indexed_dataset import choose_dtype
from seqpack_cli.tokens.store_manifest import FORMAT, FORMAT_VERSION
from seqpack_cli.tokens.tokenize_part import PartTask
from seqpack_cli.tokens.vocabulary import BYTES, Vocabulary


@dataclass(frozen=True)
class TokenizeOptions:
    """All that decides the bytes of a token store, besides the input and the tokenizer's bytes."""

    tokenizer: str = BYTES
    file_format: str = "auto"
    document: str = "line"
    documents: DocumentOptions = field(default_factory=DocumentOptions)
    add_special_tokens: bool = True
    bos: str | None = None
    eos: str | None = None
    allow_special_tokens: bool = False
    max_length: int | None = None
    overflow: str = "split"
    part_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_choice("file_format", self.file_format, ("auto", *FORMATS))
        check_choice("document", self.document, ("line", "file", "paragraph"))
        check_choice("overflow", self.overflow, ("split", "truncate", "drop", "error"))
        check_positive("max_length", self.max_length)
        check_positive("part_bytes", self.part_bytes)


def check_overflow(options: TokenizeOptions) -> None:
    """Raise if there is no length that a document could exceed."""
    if options.max_length is None and options.overflow != "split":
        raise OptionError(
            f"--overflow {options.overflow}: nothing is too long without --max-length"
        )


def make_plan(
    sources: list[Source], vocabulary: Vocabulary, options: TokenizeOptions
) -> dict[str, Any]:
    """Give all that decides the bytes of the store, as plain values."""
    values = dataclasses.asdict(options)
    values.update(values.pop("documents"))
    del values["tokenizer"]  # where it lay; its checksum says what it was
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "dtype": choose_dtype(vocabulary.max_id),
        "tokenizer_blake3": vocabulary.tokenizer_blake3,
        "options": values,
        "sources": [{"path": source.name, "bytes": source.num_bytes} for source in sources],
    }


def adapt_plan(earlier: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Give an unfinished run's plan with the new options for what its parts did not meet.

    Parts that were finished where a bad record, a bad byte, a large or a long document is an error
    hold none, so their bytes are the same whatever the new plan does with those.
    """
    found, new = earlier.get("options"), plan["options"]
    if not isinstance(found, dict):
        return earlier

    def is_raised(name: str) -> bool:
        limit = found.get(name)
        return type(limit) is int and (new[name] is None or new[name] >= limit)

    names = [name for name in ("encoding_errors", "on_bad_record") if found.get(name) == "error"]
    if is_raised("max_document_bytes"):
        names.append("max_document_bytes")
    if found.get("overflow") == "error" and is_raised("max_length"):
        names += ["overflow", "max_length"]
    return {**earlier, "options": {**found, **{name: new[name] for name in names}}}


def make_tasks(
    sources: list[Source],
    tokenizer_json: bytes,
    vocabulary: Vocabulary,
    options: TokenizeOptions,
    output: Place,
) -> list[PartTask]:
    """Cut the input into parts, one task each; the encoder is chosen later.

    Raises:
        OptionError: --bos or --eos is unknown, or leaves no room for text.
        DataError: a source can not be read, or the tokenizer's template not be followed.
    """
    affixes = find_affixes(
        tokenizer_json,
        add_special_tokens=options.add_special_tokens,
        bos=options.bos,
        eos=options.eos,
    )
    if options.overflow == "truncate" and (options.max_length or 0) <= len(affixes):
        raise OptionError(
            f"--max-length {options.max_length}: no room for text beside the "
            f"{len(affixes)} special tokens of each document"
        )
    return [
        PartTask(
            name=f"part-{number:05d}",
            folder=output,
            ranges=ranges,
            tokenizer_json=tokenizer_json,
            vocabulary=vocabulary,
            dtype=choose_dtype(vocabulary.max_id),
            affixes=affixes,
            documents=options.documents,
            allow_special_tokens=options.allow_special_tokens,
            max_length=options.max_length,
            overflow=options.overflow,
        )
        for number, ranges in enumerate(plan_parts(sources, part_bytes=options.part_bytes))
    ]
