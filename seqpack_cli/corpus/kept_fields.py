"""The fields of records that are kept beside the texts: what reads their values.

A reader checks the values of one field. The readers of records hand it all values of a block at
once; only if one may be bad, each value alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from seqpack_cli.corpus.document_block import BadRecordError, check_unicode
from seqpack_cli.files.places import URL_PATTERN

if TYPE_CHECKING:
    from seqpack_cli.corpus.sources import Source

FOLDER_FIELD = "folder"  # the one field of a text file that is one document


class FieldReader(Protocol):
    """How the values of a kept field are read.

    A reader with `reads_words = True` accepts a list of words as the text.
    """

    @property
    def name(self) -> str:
        """The field: a key, or a dotted path of keys."""

    def read_all(self, values: list[Any], texts: list[Any]) -> list[Any] | None:
        """Check many values; return None if each must be read on its own.

        Args:
            texts: the text of each record, a string or a list of words.
        """

    def read(self, value: Any, text: Any) -> Any:
        """Check one value; raises BadRecordError."""

    def parse(self, spelled: str) -> Any:
        """Return the value that a field of CSV spells."""


Readers = Sequence[FieldReader]  # of all kept fields


def takes_words(readers: Readers) -> bool:
    """Return whether a list of words is accepted as a text."""
    return any(getattr(reader, "reads_words", False) for reader in readers)


def read_values(reader: FieldReader, values: list[Any], texts: list[Any]) -> list[Any]:
    """Read the values of a field, at once if possible.

    Raises:
        BadRecordError: a value is bad.
    """
    found = reader.read_all(values, texts)
    if found is not None:
        return found
    return [reader.read(value, text) for value, text in zip(values, texts, strict=True)]


def read_folder(reader: FieldReader, source: Source, text: str) -> Any:
    """Read the name of the folder of a file.

    Raises:
        BadRecordError: the file has none, or it is not a value of the field's type.
    """
    name = find_folder_name(source)
    if not name:
        raise BadRecordError("the file is in no folder, expected one with a name")
    check_unicode(reader.name, name)
    return reader.read(name, text)


def find_folder_name(source: Source) -> str:
    """Return the name of the folder of a file or object, "" for that of the root.

    >>> from seqpack_cli.corpus.sources import Source
    >>> find_folder_name(Source("s3://bucket/de/a.txt", "text", "file", 0))
    'de'
    """
    path = source.path if URL_PATTERN.fullmatch(source.path) else os.path.abspath(source.path)  # noqa: PTH100
    return path.rpartition("/")[0].rpartition("/")[2]
