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
from seqpack_cli.files.places import AnyPath
from seqpack_cli.runs.arguments import check_fields
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.encoders.encoder import CHOICES
from seqpack_cli.tokens.target_options import TargetOptions
from seqpack_cli.tokens.vocabulary import BYTES, spell_tokenizer


@dataclass(frozen=True)
class TokenizeOptions:
    """How text becomes ids: all that decides the bytes of a token store, besides the input.

    Args:
        tokenizer: a tokenizer.json, a folder that holds one, "bytes", or a name on the Hub (only
            as a str).
        file_format: "text", "jsonl", "json", "parquet", "arrow" or "csv"; "auto" goes by the suffix
            of each file.
        document: what one document of a text file is: "line", "file" or "paragraph".
        documents: how records become texts, text_field among it.
        files: which files are read; not in the manifest, which names the files themselves.
        keep: fields to keep as columns, each "FIELD", "FIELD:TYPE" or "FIELD:class=A,B".
        tag_subtokens: "first" or "all" tokens of a word have its tag; None is "first".
        add_special_tokens: apply the tokenizer's own template.
        bos, eos: a token of the vocabulary to put first or last in each document.
        allow_special_tokens: encode special tokens spelled in the text as their ids.
        targets: which fields a text is made from, and which of its tokens count in the loss.
        max_length: most tokens in a sequence.
        overflow: "split", "truncate" or "drop" a longer document, or "error".
        overlap: tokens with which each later piece of a document repeats the one before, as context
            that is no target; None repeats none and stores no targets.
        part_bytes: bytes of input in each part of the store.
        encoder: "fastokens", "tokenizers", or "auto" for the faster one with the same ids.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: options conflict, one has no effect, or a field cannot be kept.
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
    targets: TargetOptions = field(default_factory=TargetOptions)
    max_length: int | None = None
    overflow: str = "split"
    overlap: int | None = None
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
        check_positive("overlap", self.overlap)
        check_positive("part_bytes", self.part_bytes, at_most=MAX_SIZE)
        if self.max_length is None and self.overflow != "split":
            raise OptionError(f"--overflow {self.overflow} needs --max-length")
        self._check_overlap()
        self._check_targets()

    @property
    def makes_texts(self) -> bool:
        """Whether a text is made from several fields, with targets."""
        return bool(self.targets.fields)

    @property
    def encodes_special_tokens(self) -> bool:
        """Whether special tokens in a text become their ids: those of a chat template always do."""
        return self.allow_special_tokens or self.targets.messages_field is not None

    def _check_overlap(self) -> None:
        if self.overlap is None:
            return
        if self.max_length is None or self.overflow != "split":
            missing = "--max-length" if self.max_length is None else "--overflow split"
            raise OptionError(f"--overlap {self.overlap}: no document is cut, expected {missing}")
        if self.overlap >= self.max_length:
            raise OptionError(
                f"--overlap {self.overlap}: expected less than --max-length {self.max_length}"
            )

    def _check_targets(self) -> None:
        option = next(iter(self.targets.fields), None)
        if option is not None and self.documents.text_field != "text":
            raise OptionError(
                f"--text-field {self.documents.text_field}: the text is made from {option}",
                hint="leave --text-field out",
            )
        if self.targets.messages_field is None:
            return
        for name, value in (("--bos", self.bos), ("--eos", self.eos)):
            if value is not None:
                raise OptionError(
                    f"{name} {value}: the chat template writes every special token",
                    hint=f"leave {name} out, or change the template: --chat-template FILE",
                )

    def record(self) -> dict[str, Any]:
        """Return the options that decide the bytes, as in the manifest."""
        values = dataclasses.asdict(self)
        values.update(values.pop("documents"))
        del values["tokenizer"]  # a place; the manifest has its checksum
        del values["encoder"]
        del values["files"]  # the manifest names those that were found
        del values["targets"]
        values.update(self.targets.record())
        del values["keep"]  # recorded with the kinds that were found
        return values
