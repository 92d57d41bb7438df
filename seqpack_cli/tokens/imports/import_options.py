"""The options of `seqpack import`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from seqpack_cli.corpus.file_options import FileOptions
from seqpack_cli.corpus.formats import IDS_FORMATS
from seqpack_cli.errors import MAX_SIZE, OptionError, check_choice, check_positive
from seqpack_cli.files.places import AnyPath
from seqpack_cli.runs.arguments import check_fields
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.vocabulary import MAX_ID, spell_tokenizer

DTYPES = ("uint8", "uint16", "int32", "uint32", "int64")


@dataclass(frozen=True)
class ImportOptions:
    """How ids become a token store: all that decides its bytes, besides the input.

    Args:
        tokenizer: which made the ids: a tokenizer.json, a folder that holds one, "bytes", or a name
            on the Hub (only as a str).
        vocab_size: the number of ids, which are 0 to vocab_size - 1, instead of a tokenizer; the
            store cannot be decoded then.
        file_format: "megatron", "flat", "jsonl", "json", "parquet" or "arrow"; "auto" goes by the
            name of each file.
        ids_field: the field of a record with its ids.
        labels_field: the field with an id or -100 for each token; None is `labels`, where the first
            records have it.
        attention_mask_field: the field with a 0 for padding; None is `attention_mask`, likewise.
        loss_mask_field: the field with a 1 for each token that counts in the loss; None is
            `loss_mask`, likewise.
        ignore_fields: fields that are read, or refused, where records have them, and shall not be.
        document_field: a field with a whole number; records in a row that have the same are
            sequences of one document. None: each record is a document.
        dtype: of headerless files: "uint8", "uint16", "int32", "uint32" or "int64".
        eos: the id at the end of each document, by which those of headerless files are found.
        files: which files are read; not in the manifest, which names the files themselves.
        keep: fields to keep as columns, each "FIELD", "FIELD:TYPE" or "FIELD:class=A,B".
        on_bad_record: "error" or "skip" a document that cannot be read, or has an id that is not in
            the vocabulary.
        max_document_bytes: a longer document is an error.
        part_bytes: bytes of input in each part of the store.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: there is neither a tokenizer nor the size of a vocabulary, or both; or a field
            cannot be kept.
    """

    tokenizer: AnyPath | None = None
    vocab_size: int | None = None
    file_format: str = "auto"
    ids_field: str = "input_ids"
    labels_field: str | None = None
    attention_mask_field: str | None = None
    loss_mask_field: str | None = None
    ignore_fields: Sequence[str] = ()
    document_field: str | None = None
    dtype: str | None = None
    eos: int | None = None
    files: FileOptions = field(default_factory=FileOptions)
    keep: Sequence[str] = ()
    on_bad_record: str = "error"
    max_document_bytes: int = 64 << 20
    part_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.tokenizer is None) == (self.vocab_size is None):
            found = "neither" if self.tokenizer is None else "both"
            raise OptionError(
                f"--tokenizer and --vocab-size: found {found}, expected one of them",
                hint="pass the --tokenizer that made the ids; without one, --vocab-size N, the "
                "rows of the model's embedding; ids alone (.bin, .npy) also need --dtype and --eos",
            )
        if self.tokenizer is not None:
            object.__setattr__(self, "tokenizer", spell_tokenizer(self.tokenizer))
        check_positive("vocab_size", self.vocab_size, at_most=MAX_ID + 1)
        check_choice("file_format", self.file_format, ("auto", *IDS_FORMATS.names))
        check_choice("dtype", self.dtype, (None, *DTYPES))
        check_choice("on_bad_record", self.on_bad_record, ("error", "skip"))
        check_keep(self.keep)
        check_positive("max_document_bytes", self.max_document_bytes, at_most=MAX_SIZE)
        check_positive("part_bytes", self.part_bytes, at_most=MAX_SIZE)
        if self.eos is not None and not 0 <= self.eos <= (self.vocab_size or MAX_ID + 1) - 1:
            most = (self.vocab_size or MAX_ID + 1) - 1
            raise OptionError(f"--eos {self.eos}: expected an id from 0 to {most}")

    def record(self) -> dict[str, Any]:
        """Return the options that decide the bytes, as in the manifest."""
        values = dataclasses.asdict(self)
        del values["tokenizer"]  # a place; the manifest has its checksum
        del values["vocab_size"]  # the manifest has it
        del values["files"]  # the manifest names those that were found
        values["ignore_fields"] = sorted(set(self.ignore_fields))
        del values["keep"]  # recorded with the kinds that were found
        return values
