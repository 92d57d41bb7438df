"""The options of `seqpack tokenize`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from seqpack_cli.corpus.document_block import DocumentOptions
from seqpack_cli.corpus.file_options import FileOptions
from seqpack_cli.corpus.formats import FORMATS
from seqpack_cli.errors import MAX_SIZE, OptionError, check_choice, check_positive
from seqpack_cli.files.url import AnyPath
from seqpack_cli.runs.arguments import check_fields
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.encoders.encoder import CHOICES
from seqpack_cli.tokens.vocabulary import BYTES, spell_tokenizer


@dataclass(frozen=True)
class TokenizeOptions:
    """How text becomes ids: all that decides the bytes of a token store, besides the input.

    Args:
        tokenizer: a tokenizer.json, a folder that holds one, "bytes", or a name on the Hub (only
            as a str).
        file_format: "text", "jsonl", "parquet" or "csv"; "auto" goes by the suffix of each file.
        document: what one document of a text file is: "line", "file" or "paragraph".
        documents: how records become texts, text_field among it.
        files: which files are read; not in the manifest, which names the files themselves.
        keep: fields to keep as columns, each "FIELD", "FIELD:TYPE" or "FIELD:class=A,B".
        tag_subtokens: "first" or "all" tokens of a word have its tag; None is "first".
        add_special_tokens: apply the tokenizer's own template.
        bos, eos: a token of the vocabulary to put first or last in each document.
        allow_special_tokens: encode special tokens spelled in the text as their ids.
        max_length: most tokens in a sequence.
        overflow: "split", "truncate" or "drop" a longer document, or "error".
        part_bytes: bytes of input in each part of the store.
        encoder: "fastokens", "tokenizers", or "auto" for the faster one with the same ids.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: overflow is set, and max_length is not; or a field cannot be kept.
    """

    tokenizer: AnyPath = BYTES
    file_format: str = "auto"
    document: str = "line"
    documents: DocumentOptions = field(default_factory=DocumentOptions)
    files: FileOptions = field(default_factory=FileOptions)
    keep: Sequence[str] = ()
    tag_subtokens: str | None = None
    add_special_tokens: bool = True
    bos: str | None = None
    eos: str | None = None
    allow_special_tokens: bool = False
    max_length: int | None = None
    overflow: str = "split"
    part_bytes: int = 64 << 20
    encoder: str = "auto"

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "tokenizer", spell_tokenizer(self.tokenizer))
        check_choice("file_format", self.file_format, ("auto", *FORMATS))
        check_choice("document", self.document, ("line", "file", "paragraph"))
        check_choice("overflow", self.overflow, ("split", "truncate", "drop", "error"))
        check_choice("encoder", self.encoder, CHOICES)
        check_choice("tag_subtokens", self.tag_subtokens, (None, "first", "all"))
        check_keep(self.keep)
        check_positive("max_length", self.max_length)
        check_positive("part_bytes", self.part_bytes, at_most=MAX_SIZE)
        if self.max_length is None and self.overflow != "split":
            raise OptionError(f"--overflow {self.overflow} needs --max-length")

    def record(self) -> dict[str, Any]:
        """Return the options that decide the bytes, as in the manifest."""
        values = dataclasses.asdict(self)
        values.update(values.pop("documents"))
        del values["tokenizer"]  # a place; the manifest has its checksum
        del values["encoder"]
        del values["files"]  # the manifest names those that were found
        del values["keep"]  # recorded with the kinds that were found
        return values
