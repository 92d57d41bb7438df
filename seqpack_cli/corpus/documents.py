"""Raw records -> documents: the texts of a range, and the records that hold none.

A record is decoded strictly, and a JSON line must be one object with a text field. A record that
can not be read is an error that names file and line, or, if the user says so, is put aside with
its reason. It keeps its number either way, so documents count like the input's records.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from seqpack_cli.corpus.records import RecordBlock, iter_records
from seqpack_cli.corpus.sources import Source, SourceRange, find_line_number
from seqpack_cli.errors import DataError, check_choice, check_positive, join_items, quote

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class DocumentOptions:
    """How records become texts."""

    text_field: str = "text"
    encoding_errors: str = "error"  # or "replace" or "skip"
    on_bad_record: str = "error"  # or "skip"
    max_document_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_choice("encoding_errors", self.encoding_errors, ("error", "replace", "skip"))
        check_choice("on_bad_record", self.on_bad_record, ("error", "skip"))
        check_positive("max_document_bytes", self.max_document_bytes)


class Reject(NamedTuple):
    """A record that was put aside."""

    record: int  # from 0, within the range
    byte: int  # of the source
    reason: str


class DocumentBlock(NamedTuple):
    """Some documents of a range, in order; a rejected one is None."""

    texts: list[str | None]
    starts: list[int]  # byte of the source at which each begins
    rejects: list[Reject]
    end: int  # byte of the source up to which the block was read


class BadRecordError(Exception):
    """What is wrong with one record; the place is added where it is known."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint


class BadEncodingError(BadRecordError):
    """A record that is not UTF-8, from some byte of it on."""

    def __init__(self, found: int, byte: int) -> None:
        super().__init__(
            f"byte {found:#04x}, expected UTF-8",
            hint="convert the file with iconv, or pass --encoding-errors replace",
        )
        self.byte = byte


def iter_documents(
    source_range: SourceRange, options: DocumentOptions, digest: hashlib._Hash
) -> Iterator[DocumentBlock]:
    """Read the documents of a range, block by block, and hash what is read.

    Raises:
        DataError: a record can not be read and is not to be skipped; the message has path and line.
    """
    num_records = 0
    for block in iter_records(
        source_range, max_document_bytes=options.max_document_bytes, digest=digest
    ):
        yield _read_block(block, num_records, source_range.source, options)
        num_records += len(block.records)


def _read_block(
    block: RecordBlock, first_record: int, source: Source, options: DocumentOptions
) -> DocumentBlock:
    texts: list[str | None] = []
    rejects: list[Reject] = []
    for record, start in zip(block.records, block.starts, strict=True):
        try:
            texts.append(_read_text(record, start, source, options))
        except BadRecordError as error:
            byte, policy = start, options.on_bad_record
            if isinstance(error, BadEncodingError):
                byte, policy = start + error.byte, options.encoding_errors
            if policy != "skip":
                raise located_error(source.path, byte, error.reason, error.hint) from error
            rejects.append(Reject(first_record + len(texts), byte, error.reason))
            texts.append(None)
    return DocumentBlock(texts, block.starts, rejects, block.end)


def located_error(path: str, byte: int, reason: str, hint: str | None = None) -> DataError:
    """Make the error about the record that begins at a byte of a file."""
    return DataError(f"{path}:{find_line_number(path, byte)}: {reason}", hint=hint)


def _read_text(record: bytes, start: int, source: Source, options: DocumentOptions) -> str:
    text = _decode(record, options.encoding_errors)
    if start == 0:
        text = text.removeprefix(BYTE_ORDER_MARK)
    if source.document == "paragraph":
        text = text.replace("\r\n", "\n")
    if source.document != "file":
        text = text.removesuffix("\r")
    if source.format == "text":
        return text
    return _read_json_text(text, options.text_field) if text.strip() else ""


def _decode(record: bytes, encoding_errors: str) -> str:
    try:
        return record.decode("utf-8", "replace" if encoding_errors == "replace" else "strict")
    except UnicodeDecodeError as error:
        raise BadEncodingError(error.object[error.start], error.start) from error


def _read_json_text(line: str, text_field: str) -> str:
    try:
        value = json.loads(line, object_pairs_hook=_unique_object)
    except json.JSONDecodeError as error:
        found = quote(line[max(0, error.pos - 20) : error.pos + 20])
        raise BadRecordError(
            f"not JSON at column {error.colno} ({error.msg}): {found}", hint=_SKIP_HINT
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep nesting
        raise BadRecordError(f"not readable as JSON ({error})", hint=_SKIP_HINT) from error
    text = _find_field(value, text_field)
    if not isinstance(text, str):
        kind = "null" if text is None else type(text).__name__
        raise BadRecordError(
            f"field {quote(text_field)} is {kind}, expected a string", hint=_SKIP_HINT
        )
    if "\\u" in line:
        _check_surrogates(text, text_field)
    return text


_SKIP_HINT = "mend the record, or pass --on-bad-record skip to put such records aside"


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BadRecordError(f"key {quote(twice)} stands twice in one object", hint=_SKIP_HINT)
    return value


def _find_field(value: Any, text_field: str) -> Any:
    """Give the field of an object: the key as it stands, or else a dotted path of keys."""
    if not isinstance(value, dict):
        raise BadRecordError(
            f"a JSON {type(value).__name__}, expected an object with field {quote(text_field)}"
        )
    if text_field in value:
        return value[text_field]
    inner: Any = value
    for key in text_field.split("."):
        if not isinstance(inner, dict) or key not in inner:
            found = join_items(map(quote, value)) or "none"
            strings = [
                name
                for name, field in value.items()
                if isinstance(field, str) and name.isprintable()
            ]
            hint = f"pass --text-field {shlex.quote(strings[0])}" if strings else _SKIP_HINT
            raise BadRecordError(f"no field {quote(text_field)} (found: {found})", hint=hint)
        inner = inner[key]
    return inner


def _check_surrogates(text: str, text_field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"\\u{ord(text[error.start]):04x}"
        raise BadRecordError(
            f"field {quote(text_field)} has the lone surrogate {found}, expected Unicode text",
            hint=_SKIP_HINT,
        ) from error
