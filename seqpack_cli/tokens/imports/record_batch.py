"""Some records, as every reader of records yields them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.corpus.fields import SKIP_HINT, BadRecordError, oversized_error
from seqpack_cli.corpus.records import Reject
from seqpack_cli.errors import DataError
from seqpack_cli.tokens.imports.number_lists import NumberLists
from seqpack_cli.tokens.options import ImportOptions

IDS = "ids"
ID_BYTES = 4  # of an id, where the size of a document is limited
UNKNOWN = -1  # the number of the document of a record whose number cannot be read
FIX_HINT = "fix the record and add --overwrite, or omit --document-field"  # it cannot be skipped


class RecordBatch(NamedTuple):
    """Some records of a source, in order."""

    lists: Mapping[str, NumberLists]  # IDS, and those of RecordFields that are read
    fields: list[list[Any]]  # of each kept field; None for a bad record
    numbers: np.ndarray | None  # int64, of their documents; None: each record is one
    bad: Mapping[int, BadRecordError]  # by record
    find_place: Callable[[int], str]  # "path:record"
    find_byte: Callable[[int], int | None]  # where a record begins; None in a table

    def iter_rejects(
        self, bad: Mapping[int, BadRecordError], options: ImportOptions
    ) -> Iterator[Reject]:
        """Yield an entry for each bad record, numbered within the batch.

        Raises:
            DataError: the options say that a bad record is an error.
        """
        for record in sorted(bad):
            error = bad[record]
            if options.on_bad_record == "error":
                is_unknown = self.numbers is not None and self.numbers[record] == UNKNOWN
                hint = FIX_HINT if is_unknown and error.hint == SKIP_HINT else error.hint
                raise DataError(f"{self.find_place(record)}: {error.reason}", hint)
            yield Reject(record, self.find_byte(record), error.reason)

    def check_sizes(self, max_document_bytes: int) -> None:
        """Raise DataError if the ids of a record are larger than a document may be."""
        lengths = self.lists[IDS].lengths
        if int(lengths.max(initial=0)) * ID_BYTES > max_document_bytes:
            raise oversized_error(self.find_place(int(lengths.argmax())), max_document_bytes)
