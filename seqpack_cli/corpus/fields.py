"""The fields of records, what reads them, and what can be wrong with a record.

A `Reader` makes one or more lists of values from some fields of each record: the texts, a prompt
and its completion, a field to keep. It is handed the columns of a whole block at once; only if that
fails, one record after another, which finds the bad one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, Protocol

from seqpack_cli.corpus.options import TOKENIZE
from seqpack_cli.errors import DataError, join_items, quote

KEEP = "--keep"
TEXT_FIELD = "--text-field"
MESSAGES_FIELD = "--messages-field"
PAIR_OPTIONS = ("--prompt-field", "--completion-field")
PAIR_NAMES = ("prompt", "completion")  # as TRL calls these fields
PAIR_HINT = "pass --prompt-field prompt --completion-field completion"
IDS_FIELD = "--ids-field"
# Of these, only a field of a similar name is proposed.
OTHERS = (KEEP, "--labels-field", "--attention-mask-field", "--loss-mask-field")
ROLE_NAMES = frozenset({"role", "from"})  # one of them is in each message; ShareGPT calls it `from`
FIELD_HINT = re.compile(r"pass --(keep|[a-z]+-field) ")
SKIP_HINT = "fix the record and add --overwrite, or pass --on-bad-record skip"
ENCODING_HINT = "convert the file with iconv and add --overwrite, or pass --encoding-errors replace"
BINARY_HINT = (
    "the record contains NUL bytes, so the file is probably not text: pass text files only"
)
JOIN_HINT = (
    "join the messages of prompt and completion to one list, in a field of its own, and pass "
    f"{MESSAGES_FIELD}"
)
WORDS_HINT = (
    "join the words with one space into a string, or keep their tags with --keep FIELD:tags"
)
FOLDER_FIELD = "folder"  # the one field of a text file that is one document


class BadRecordError(Exception):
    """A record cannot be read; the caller adds the place."""

    policy = "on_bad_record"  # the option that says what to do
    byte = 0  # the place of the fault in the record

    def __init__(self, reason: str, hint: str | None = SKIP_HINT) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint


class BadEncodingError(BadRecordError):
    """A record is not UTF-8; `byte` is the place of the first wrong byte in it."""

    policy = "encoding_errors"

    def __init__(self, found: int, byte: int, *, is_binary: bool = False) -> None:
        super().__init__(
            f"byte {found:#04x}, expected UTF-8", hint=BINARY_HINT if is_binary else ENCODING_HINT
        )
        self.byte = byte


class Spelled(str):
    """A field of CSV, which has no type of its own."""

    __slots__ = ()


class Field(NamedTuple):
    """A field that a reader needs."""

    name: str  # a key or column, or a dotted path of them
    option: str  # which asks for it
    values: str = "kept"  # the types of columns that can hold it: see `table_records.TYPES`
    is_optional: bool = False  # its value is None where a record lacks it
    parse: Callable[[str], Any] = Spelled  # the value that CSV spells, of a field to keep


class RawRecords(NamedTuple):
    """Some records of a source, in order, before they are read."""

    num_records: int
    num_bytes: int  # of the text, approximately
    # The values of each field; raises one of BAD if a record is bad or blank.
    read_columns: Callable[[], list[list[Any]]]
    # The fields of one record, None for a blank one; raises BadRecordError.
    read_row: Callable[[int], list[Any] | None]
    find_place: Callable[..., str]  # "path:line" of a record, or of a byte in it
    # The byte of the text at which a record begins; a row of Parquet or Arrow has none.
    find_byte: Callable[[int], int | None] = lambda _: None


class Reader(Protocol):
    """Makes lists of values from some fields of each record."""

    num_lists: int

    @property
    def fields(self) -> Sequence[Field]:
        """The fields that it needs."""

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the lists of some records.

        Args:
            columns: the values of each field.

        Raises:
            TypeError, ValueError, BadRecordError: each record must be read on its own.
        """

    def read(self, values: Sequence[Any]) -> list[Any]:
        """Return a value for each list from those of one record; raises BadRecordError."""


@dataclass(frozen=True)
class FieldText:
    """Read texts that are one field.

    Args:
        takes_words: a list of words is accepted too, and joined with one space.
    """

    name: str
    takes_words: bool = False
    num_lists = 1

    @property
    def fields(self) -> tuple[Field]:
        """The one field."""
        return (Field(self.name, TEXT_FIELD, "words" if self.takes_words else "text"),)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the texts; raise TypeError if one is neither a text nor a list of words."""
        (values,) = columns
        kinds = set(map(type, values))
        if not kinds <= ({str, list} if self.takes_words else {str}):
            raise TypeError("not a text")
        if list not in kinds:
            return [values]
        return [[value if type(value) is str else " ".join(value) for value in values]]

    def read(self, values: Sequence[Any]) -> list[Any]:
        """Return the text; raises BadRecordError."""
        return [join_words(values[0], self.name, takes_words=self.takes_words)]


@dataclass(frozen=True)
class ValueReader:
    """Read the values of a field to keep as they are."""

    name: str
    num_lists = 1

    @property
    def fields(self) -> tuple[Field]:
        """The one field."""
        return (Field(self.name, KEEP),)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values."""
        return list(columns)

    read = read_all


def join_words(
    raw_text: Any, name: str, *, takes_words: bool = False, option: str = TEXT_FIELD
) -> str:
    """Return the text of a field, words joined.

    Args:
        option: which asks for the field.

    Raises:
        BadRecordError: it is neither a string nor a list of strings, if these are accepted.
    """
    if isinstance(raw_text, str):
        return raw_text
    hint = hint_about(raw_text, name, option)
    if isinstance(raw_text, list) and takes_words and hint is None:
        for number, word in enumerate(raw_text, 1):
            if not isinstance(word, str):
                reason = f"word {number} is {name_type(word)}, expected a string"
                raise BadRecordError(f"field {quote(name)}: {reason}")
        return " ".join(raw_text)
    expected = "a string or a list of words" if takes_words else "a string"
    is_words = isinstance(raw_text, list) and all(isinstance(word, str) for word in raw_text)
    raise BadRecordError(
        f"field {quote(name)} is {name_type(raw_text)}, expected {expected}",
        hint=hint or (WORDS_HINT if is_words else SKIP_HINT),
    )


def name_type(value: Any) -> str:
    """Return the name of a value's type for an error."""
    names = {type(None): "null", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


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


def oversized_error(place: str, limit: int) -> DataError:
    """Return the error about a document above the limit."""
    return DataError(
        f"{place}: document larger than {limit:,} bytes",
        hint="pass a larger --max-document-bytes, or split the document",
    )


def missing_field_error(
    kind: str, field: Field, found: Mapping[str, Any], fields: Iterable[Field]
) -> BadRecordError:
    """Return the error about a missing field, whose hint names the one that is probably meant.

    That is one of a similar name, or else the longest text; or a conversation, or a prompt and its
    completion, if no field is called text.

    Args:
        kind: "field" or "column".
        found: the fields that are there, and their values.
        fields: all that are read.
    """
    name, option, *_ = field
    inside = [
        f"{outer}.{key}" for outer, value in found.items() if type(value) is dict for key in value
    ]
    names = [*found, *inside]
    similar = get_close_matches(name, filter(str.isprintable, names))
    listed = join_items(map(quote, dict.fromkeys([*similar, *names]))) or "none"
    taken = [each.name for each in fields if each.option != KEEP]
    kind_of_value = list if option in (MESSAGES_FIELD, IDS_FIELD) else str
    sizes = {
        each: len(value)
        for each, value in found.items()
        if isinstance(value, kind_of_value)
        and each not in taken
        and each.isprintable()
        # ids are numbers
        and not (option == IDS_FIELD and any(isinstance(x, str | list | dict) for x in value[:1]))
    }
    if option in OTHERS or (similar and option != TEXT_FIELD):
        likely = next(iter(similar), None)
    else:
        likely = max(sizes, key=lambda each: (each == "text", sizes[each]), default=None)
    is_text = option not in (*OTHERS, IDS_FIELD)
    messages = find_conversation(found) if is_text and likely not in similar else None
    is_readable = any(isinstance(value, str) or is_conversation(value) for value in found.values())
    hint = SKIP_HINT if kind == "field" else None
    if option == IDS_FIELD and likely is None and is_readable:
        hint = TOKENIZE
    elif messages is not None and likely != "text":
        hint = propose_messages(messages)
    elif is_text and {*PAIR_NAMES} <= found.keys() and likely not in (*similar, "text"):
        hint = PAIR_HINT
    elif likely is not None:
        hint = f"pass {option} {shlex.quote(likely)}"
    return BadRecordError(f"no {kind} {quote(name)} (found: {listed})", hint)


def proposes_field(hint: str | None) -> bool:
    """Return whether a hint proposes another field."""
    return hint is not None and FIELD_HINT.match(hint) is not None


def is_conversation(value: Any) -> bool:
    """Return whether a value is a list of messages: objects with a role."""
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(each, dict) and not ROLE_NAMES.isdisjoint(each) for each in value)
    )


def find_conversation(found: Mapping[str, Any]) -> str | None:
    """Return the first field of a record that is a conversation."""
    names = (name for name, value in found.items() if is_conversation(value))
    return next(filter(str.isprintable, names), None)


def propose_messages(name: str) -> str:
    """Return the hint that a field has messages."""
    return f"pass {MESSAGES_FIELD} {shlex.quote(name)}"


def hint_about(value: Any, name: str, option: str) -> str | None:
    """Return the hint about a conversation in a field that is read as a text; None if it is none.

    Args:
        option: which asks for the field.
    """
    if not is_conversation(value):
        return None
    return JOIN_HINT if option in PAIR_OPTIONS else propose_messages(name)
