"""The result of every reader of records: documents in order, and the records that were rejected.

A record that cannot be read is an error that names file and line, or, if the user asks to skip such
records, is rejected with a reason. A rejected record keeps its number as an empty document, so
documents are numbered as the input's records are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.errors import (
    DataError,
    quote,
)

if TYPE_CHECKING:
    from seqpack_cli.corpus.sources import Source

BYTE_ORDER_MARK = "\ufeff"
SKIP_HINT = "fix the record and add --overwrite, or pass --on-bad-record skip"
ENCODING_HINT = "convert the file with iconv and add --overwrite, or pass --encoding-errors replace"
BINARY_HINT = (
    "the record contains NUL bytes, so the file is probably not text: pass text files only"
)


class Reject(NamedTuple):
    """A record that was rejected."""

    record: int  # from 0, within the range
    byte: int | None  # of the text; None for a row of Parquet or Arrow
    reason: str


class DocumentBlock(NamedTuple):
    """Some documents of a range, in order."""

    source: Source
    texts: list[str]  # "" for a rejected record
    rejects: list[Reject]
    num_bytes: int  # of the texts, approximately
    find_place: Callable[[int], str]  # "path:line" of a text, by its place in the list
    fields: list[list[Any]]  # of each kept field, beside texts; None if rejected or a blank line


class BadRecordError(Exception):
    """A record cannot be read; the caller adds the place."""

    def __init__(self, reason: str, hint: str | None = SKIP_HINT) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint


class NotJsonError(BadRecordError):
    """A record is not JSON."""


class BadEncodingError(BadRecordError):
    """A record is not UTF-8; `byte` is the place of the first wrong byte in it."""

    def __init__(self, found: int, byte: int, *, is_binary: bool = False) -> None:
        super().__init__(
            f"byte {found:#04x}, expected UTF-8", hint=BINARY_HINT if is_binary else ENCODING_HINT
        )
        self.byte = byte


@dataclass
class Texts:
    """The texts of a block so far, and the rejected records among them."""

    options: DocumentOptions
    first_record: int  # of the block, within the range
    texts: list[str] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    fields: list[list[Any]] = field(default_factory=list)  # one list for each kept field

    def add(self, text: str, values: Sequence[Any]) -> None:
        """Add the text of a record and the values of its kept fields."""
        self.texts.append(text)
        for found, value in zip(self.fields, values, strict=True):
            found.append(value)

    def reject(
        self, error: BadRecordError, byte: int | None, find_place: Callable[[], str]
    ) -> None:
        """Reject a bad record: add an empty text in its place, and the reason.

        Raises:
            DataError: the options say that such a record is an error.
        """
        is_encoding = isinstance(error, BadEncodingError)
        policy = self.options.encoding_errors if is_encoding else self.options.on_bad_record
        if policy != "skip":
            raise DataError(f"{find_place()}: {error.reason}", hint=error.hint) from error
        self.rejects.append(Reject(self.first_record + len(self.texts), byte, error.reason))
        self.add("", [None] * len(self.fields))


def decode(record: bytes, encoding_errors: str) -> str:
    """Decode UTF-8; "replace" decodes bytes that are not UTF-8 as U+FFFD.

    Raises:
        BadEncodingError: it is not UTF-8.
    """
    try:
        return record.decode("utf-8", "replace" if encoding_errors == "replace" else "strict")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise BadEncodingError(byte, error.start, is_binary=b"\0" in record) from error


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_unicode(name: str, value: Any) -> None:
    """Raise BadRecordError if the value of a field has a lone surrogate, in a list too."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
    if isinstance(text, str) and not is_unicode(text):
        found = next(f"\\u{ord(mark):04x}" for mark in text if "\ud800" <= mark <= "\udfff")
        raise BadRecordError(
            f"field {quote(name)} has the lone surrogate {found}, expected Unicode text"
        )


def oversized_error(place: str, limit: int) -> DataError:
    """Return the error about a document above the limit."""
    return DataError(
        f"{place}: document larger than {limit:,} bytes",
        hint="pass a larger --max-document-bytes, or split the document",
    )
