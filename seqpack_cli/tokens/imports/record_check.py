"""Check the lists of some records against each other, and find their tokens and targets.

One check for all formats, in numpy on a whole batch: labels are the ids or -100, masks are 0 or 1,
padding lies at the ends of a record and has no label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from seqpack_cli.corpus.fields import SKIP_HINT, BadRecordError
from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.imports.id_block import IdBlock
from seqpack_cli.tokens.imports.import_setup import ImportSetup, hint_unread
from seqpack_cli.tokens.imports.number_lists import NumberLists, find_firsts
from seqpack_cli.tokens.imports.record_batch import IDS, RecordBatch

IGNORED = -100  # the label of a token that is not a target
PACKED_HINT = "write one record per sequence, with a mask of 0 and 1"
HOLE_HINT = "write the record without padding between its tokens"

Describe = Callable[[int, int], BadRecordError]  # of a record, and a place in the flat arrays
Check = tuple[np.ndarray, Describe]  # which entries are wrong


def check_batch(batch: RecordBatch, setup: ImportSetup) -> IdBlock:
    """Return the documents of a batch, one per record; rejects are numbered within it.

    Raises:
        DataError: a record is bad, and not to be skipped; or one is too large.
    """
    batch.check_sizes(setup.options.max_document_bytes)
    names = {IDS: setup.options.ids_field, **setup.fields.names}
    bad = dict(batch.bad)
    lists = _check_lengths(batch.lists, names, bad)
    found = _FlatRecords(lists, names)
    for is_wrong, describe in found.iter_checks():
        for record, place in find_firsts(is_wrong, found.offsets).items():
            bad.setdefault(record, describe(record, place))
    rejects = list(batch.iter_rejects(bad, setup.options))
    fields = [list(values) for values in batch.fields] if bad else batch.fields
    for record in bad:
        for values in fields:
            values[record] = None
    return found.make_block(bad)._replace(
        rejects=rejects, find_place=batch.find_place, fields=fields
    )


def _check_lengths(
    lists: Mapping[str, NumberLists], names: Mapping[str, str], bad: dict[int, BadRecordError]
) -> dict[str, NumberLists]:
    """Return the lists, of equal lengths: those of bad records are empty."""
    lengths = lists[IDS].lengths
    for role, found in lists.items():
        for record in np.flatnonzero(found.lengths != lengths).tolist():
            counts = f"{found.lengths[record]} entries, {names[IDS]} has {lengths[record]}"
            reason = f"{names[role]} has {counts}, expected as many"
            bad.setdefault(record, BadRecordError(reason, hint_unread(role, names[role])))
    if not bad:
        return dict(lists)
    is_bad = np.zeros(len(lengths), bool)
    is_bad[list(bad)] = True
    return {role: found.leave_out(is_bad) for role, found in lists.items()}


class _FlatRecords:
    """The lists of some records, all of equal lengths."""

    def __init__(self, lists: Mapping[str, NumberLists], names: Mapping[str, str]) -> None:
        self._names = names
        self._flat = {role: found.values for role, found in lists.items()}
        self._ids, self._labels = self._flat[IDS], self._flat.get("labels")
        self._mask, self._loss = self._flat.get("attention_mask"), self._flat.get("loss_mask")
        self._is_token = np.ones(len(self._ids), bool) if self._mask is None else self._mask != 0
        self.offsets = to_offsets(lists[IDS].lengths)

    def iter_checks(self) -> Iterator[Check]:
        """Yield which entries are wrong, by one rule after another."""
        if self._mask is not None:
            yield self._find_other("attention_mask", self._mask, PACKED_HINT)
            yield self._find_holes()
        if self._labels is not None:
            is_ignored = self._labels == IGNORED
            if self._mask is not None:
                expected = f"{IGNORED} for padding"
                yield ~self._is_token & ~is_ignored, self._describe("labels", expected)
            is_wrong = self._is_token & ~is_ignored & (self._labels != self._ids)
            yield is_wrong, self._describe_label
        if self._loss is not None:
            yield self._find_other("loss_mask", self._loss, None)
            if self._mask is not None:
                is_wrong = ~self._is_token & (self._loss != 0)
                yield is_wrong, self._describe("loss_mask", "0 for padding")
        if self._labels is not None and self._loss is not None:
            is_wrong = self._is_token & (is_ignored == (self._loss != 0))
            yield is_wrong, self._describe_disagreement

    def make_block(self, bad: Mapping[int, BadRecordError]) -> IdBlock:
        """Return the tokens of the records that are not bad, each a document."""
        ids, targets = self._ids, self._find_targets()
        offsets, num_padding = self.offsets, np.zeros(len(self.offsets) - 1, np.int64)
        if bad or not np.all(self._is_token):
            is_bad = np.zeros(len(offsets) - 1, bool)
            is_bad[list(bad)] = True
            is_good = np.repeat(~is_bad, np.diff(offsets))
            is_kept = self._is_token & is_good
            ids = ids[is_kept]
            targets = None if targets is None else targets[is_kept]
            offsets = to_offsets(is_kept)[offsets]
            num_padding = np.where(is_bad, 0, np.diff(self.offsets) - np.diff(offsets))
        lengths = np.diff(offsets)
        return IdBlock(
            ids,
            lengths[lengths > 0],
            (lengths > 0).astype(np.int64),
            (),
            str,
            targets,
            num_padding=num_padding,
        )

    def _find_targets(self) -> np.ndarray | None:
        if self._labels is None and self._loss is None:
            return None
        is_target = self._labels != IGNORED if self._labels is not None else self._loss != 0
        return np.asarray(is_target).view(np.uint8)

    def _find_other(self, role: str, mask: np.ndarray, hint: str | None) -> Check:
        """Find what is neither 0 nor 1."""
        return (mask != 0) & (mask != 1), self._describe(role, "0 or 1", hint)

    def _find_holes(self) -> Check:
        """Find tokens that follow padding which follows tokens."""
        begins = np.array(self._is_token)
        begins[1:] &= ~self._is_token[:-1]
        starts = self.offsets[:-1][np.diff(self.offsets) > 0]
        begins[starts] = self._is_token[starts]
        places = np.flatnonzero(begins)
        records = np.searchsorted(self.offsets, places, "right")
        is_hole = np.zeros(len(begins), bool)
        is_hole[places[1:][records[1:] == records[:-1]]] = True
        return is_hole, self._describe("attention_mask", "padding at the ends only", HOLE_HINT)

    def _describe(self, role: str, expected: str, hint: str | None = None) -> Describe:
        values, name = self._flat[role], self._names[role]

        def describe(record: int, place: int) -> BadRecordError:
            entry = f"entry {self._count(record, place)} of {name} is {int(values[place])}"
            return BadRecordError(f"{entry}, expected {expected}", hint or SKIP_HINT)

        return describe

    def _describe_label(self, record: int, place: int) -> BadRecordError:
        labels, ids = self._flat["labels"], self._ids
        name, ids_name = self._names["labels"], self._names[IDS]
        places = np.arange(*self.offsets[record : record + 2])
        places = places[self._is_token[places]]
        entry = f"entry {self._count(record, place)} of {name} is {labels[place]}"
        hint = hint_unread("labels", name)
        if not _is_shifted(ids[places], labels[places]):
            return BadRecordError(f"{entry}, expected {ids[place]}, its id, or {IGNORED}", hint)
        return BadRecordError(
            f"{name} are shifted by one ({entry}, the id of the next token), expected {name}[i] to "
            f"be {ids_name}[i] or {IGNORED}",
            f"write them unshifted, as [{IGNORED}, *{name}[:-1]]; or {hint}",
        )

    def _describe_disagreement(self, record: int, place: int) -> BadRecordError:
        labels, loss = (
            f"{self._names[role]} is {int(self._flat[role][place])}"
            for role in ("labels", "loss_mask")
        )
        number, name = self._count(record, place), self._names["labels"]
        return BadRecordError(
            f"entry {number} of {labels} and of {loss}, expected a label where the mask is 1, and "
            f"{IGNORED} where it is 0",
            hint_unread("labels", name),
        )

    def _count(self, record: int, place: int) -> int:
        return place - int(self.offsets[record]) + 1


def _is_shifted(ids: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether each label, but the last, is the id of the next token, or ignored."""
    is_ignored = labels[:-1] == IGNORED
    is_next = is_ignored | (labels[:-1] == ids[1:])
    return bool(is_next.all() and not is_ignored.all())
