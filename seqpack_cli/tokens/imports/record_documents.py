"""Join records that follow each other with the same number to documents of several sequences.

A document may span batches, but no range: files are cut where the number changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.corpus.fields import SKIP_HINT, oversized_error
from seqpack_cli.corpus.records import Reject
from seqpack_cli.errors import DataError, quote
from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.imports.id_block import IdBlock
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.imports.record_batch import (
    FIX_HINT,
    ID_BYTES,
    UNKNOWN,
    RecordBatch,
)
from seqpack_cli.tokens.imports.record_check import check_batch
from seqpack_cli.tokens.imports.record_cuts import Span, falling_error


def iter_blocks(
    batches: Iterator[RecordBatch], setup: ImportSetup, span: Span | None = None
) -> Iterator[IdBlock]:
    """Check batches of records and yield their documents.

    Args:
        span: of the range; None if each number has a record.

    Raises:
        DataError: a record is bad, and not to be skipped; or the numbers of documents fall.
    """
    num_documents = 0
    is_joined = setup.options.document_field is not None
    plain = (check_batch(batch, setup) for batch in batches)
    found = _iter_joined(batches, setup, span) if is_joined else plain
    for block in found:
        rejects = [each._replace(record=each.record + num_documents) for each in block.rejects]
        yield block._replace(rejects=rejects)
        num_documents += len(block.num_sequences)


class _Numbered(NamedTuple):
    """Records, each with the number of its document."""

    block: IdBlock  # rejects are numbered within it
    numbers: np.ndarray  # int64, one per record

    def take(self, first: int, last: int) -> _Numbered:
        return _Numbered(self.block.take(first, last), self.numbers[first:last])


def _iter_joined(
    batches: Iterator[RecordBatch], setup: ImportSetup, span: Span | None
) -> Iterator[IdBlock]:
    """Yield documents of one or more records, and, in a span, those of none."""
    next_number = None if span is None else span.first
    for records in _iter_whole(batches, setup, span):
        block = _Joined(records, next_number).make_block(setup)
        yield block
        next_number = None if next_number is None else next_number + len(block.num_sequences)
    if span is not None and next_number is not None and next_number < span.end:
        yield _make_empty(span.end - next_number, setup)


def _iter_whole(
    batches: Iterator[RecordBatch], setup: ImportSetup, span: Span | None
) -> Iterator[list[_Numbered]]:
    """Yield the records of whole documents: the last one of a batch may go on in the next."""
    held: list[_Numbered] = []  # records of one document
    for batch in batches:
        numbers = batch.numbers
        if numbers is None or not len(numbers):
            continue
        found = _Numbered(check_batch(batch, setup), numbers)
        _check_numbers(found, int(held[-1].numbers[-1]) if held else None, span)
        last = int(np.searchsorted(numbers, numbers[-1]))
        done = [*held, found.take(0, last)] if last else held
        if done and done[0].numbers[0] != numbers[-1]:
            yield done
            held = []
        held.append(found.take(last, len(numbers)))
        _check_size(held, setup.options.max_document_bytes)
    if held:
        yield held


def _check_numbers(found: _Numbered, before: int | None, span: Span | None) -> None:
    """Raise DataError if a number is unknown, falls, or is not of the range."""
    block, numbers = found
    for reject in block.rejects:
        if numbers[reject.record] == UNKNOWN:
            place = block.find_place(reject.record)
            reason = f"{reject.reason}; its document is not known, so it cannot be skipped"
            raise DataError(f"{place}: {reason}", FIX_HINT)
    earlier = np.concatenate([numbers[:1] if before is None else [before], numbers[:-1]])
    if (numbers < earlier).any():
        record = int((numbers < earlier).argmax())
        raise falling_error(block.find_place(record), int(numbers[record]), int(earlier[record]))
    if span is not None and not span.first <= numbers[0] <= numbers[-1] < span.end:
        record = 0 if numbers[0] < span.first else int(np.searchsorted(numbers, span.end))
        most = f"at least {span.first}" if numbers[0] < span.first else f"at most {span.end - 1}"
        expected = f"expected {most}, as the file says"
        raise DataError(f"{block.find_place(record)}: document {numbers[record]}, {expected}")


def _check_size(held: Sequence[_Numbered], max_document_bytes: int) -> None:
    if sum(len(each.block.ids) for each in held) * ID_BYTES > max_document_bytes:
        raise oversized_error(held[0].block.find_place(0), max_document_bytes)


class _Joined:
    """Some records, and the documents that they are sequences of.

    Args:
        next_number: the number of the first document, if those without a record are kept.
    """

    def __init__(self, pieces: Sequence[_Numbered], next_number: int | None) -> None:
        self._blocks = [piece.block for piece in pieces]
        numbers = np.concatenate([piece.numbers for piece in pieces])
        self._starts = to_offsets([len(piece.numbers) for piece in pieces])
        self._firsts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        count = len(self._firsts)
        places = np.arange(count) if next_number is None else numbers[self._firsts] - next_number
        self._places = places  # of documents, among those of the block
        self._document_of = np.repeat(places, np.diff([*self._firsts, len(numbers)]))
        self._num_documents = int(places[-1]) + 1

    def make_block(self, setup: ImportSetup) -> IdBlock:
        """Return the documents; one with a bad record is rejected."""
        blocks = self._blocks
        num_sequences = np.concatenate([block.num_sequences for block in blocks])
        targets = [block.targets for block in blocks if block.targets is not None]
        fields = [block.fields for block in blocks]
        columns = [list(chain(*found)) for found in zip(*fields, strict=True)]
        bad = dict(self._iter_rejects(blocks))
        num_padding = np.concatenate([block.num_padding for block in blocks])
        is_empty = num_sequences == 0
        self._check_fields(columns, bad, setup)
        joined = IdBlock(
            np.concatenate([block.ids for block in blocks]),
            np.concatenate([block.lengths for block in blocks]),
            self._add_up(num_sequences),
            [bad[document] for document in sorted(bad)],
            self._find_place,
            np.concatenate(targets) if targets else None,
            [self._spread(values) for values in columns],
            self._add_up(num_padding),
            self._add_up(is_empty),  # those of rejected documents are left out below
        )
        if not bad:
            return joined
        is_bad = np.zeros(self._num_documents, bool)
        is_bad[list(bad)] = True
        return joined.leave_out(is_bad, joined.rejects)

    def _iter_rejects(self, blocks: Sequence[IdBlock]) -> Iterator[tuple[int, Reject]]:
        """Yield the first reject of each document that has one."""
        seen = -1
        for start, block in zip(self._starts.tolist(), blocks, strict=False):
            for record, byte, reason in block.rejects:
                document = int(self._document_of[start + record])
                if document != seen:
                    seen = document
                    row = f"row {_find_number(block.find_place(record))}: " if byte is None else ""
                    yield document, Reject(document, byte, f"{row}{reason}")

    def _check_fields(
        self, columns: Sequence[list[Any]], bad: dict[int, Reject], setup: ImportSetup
    ) -> None:
        """Reject documents whose records differ in a kept field."""
        if len(self._firsts) == len(self._document_of):
            return
        names = [each.field.name for each in setup.list_fields()]
        is_later = np.diff(self._document_of, prepend=-1) == 0
        for name, values in zip(names, columns, strict=True):
            for record in np.flatnonzero(is_later).tolist():
                document = int(self._document_of[record])
                if values[record] != values[record - 1] and document not in bad:
                    pair = f"{quote(values[record - 1])} and {quote(values[record])}"
                    reason = f"field {quote(name)} is {pair} in records of one document"
                    if setup.options.on_bad_record == "error":
                        raise DataError(f"{self._find_record(record)}: {reason}", SKIP_HINT)
                    bad[document] = Reject(document, None, reason)

    def _add_up(self, counts: np.ndarray) -> np.ndarray:
        """Return the sum of a count per record for each document, int64."""
        return np.bincount(self._document_of, counts, self._num_documents).astype(np.int64)

    def _spread(self, values: list[Any]) -> list[Any]:
        """Return the value of each document, None for one without a record."""
        spread = [None] * self._num_documents
        for place, first in zip(self._places.tolist(), self._firsts.tolist(), strict=True):
            spread[place] = values[first]
        return spread

    def _find_place(self, document: int) -> str:
        return self._find_record(int(self._firsts[np.searchsorted(self._places, document)]))

    def _find_record(self, record: int) -> str:
        piece = int(np.searchsorted(self._starts, record, "right")) - 1
        return self._blocks[piece].find_place(record - int(self._starts[piece]))


def _find_number(place: str) -> str:
    return place.rpartition(":")[2]


def _make_empty(num_documents: int, setup: ImportSetup) -> IdBlock:
    """Return documents without a sequence."""
    none = np.empty(0, np.uint8)
    return IdBlock(
        none,
        np.empty(0, np.int64),
        np.zeros(num_documents, np.int64),
        (),
        str,
        none if setup.fields.has_targets else None,
        [[None] * num_documents for _ in setup.list_fields()],
    )
