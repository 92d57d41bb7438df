"""Make one part of a store from ids that another tool made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xxhash

from seqpack_cli.corpus.records import Reject
from seqpack_cli.corpus.streams import check_unchanged
from seqpack_cli.errors import DataError
from seqpack_cli.tokens.columns.part_collector import PartCollector
from seqpack_cli.tokens.columns.part_columns import columns_name
from seqpack_cli.tokens.columns.targets_kind import TARGETS
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.id_formats import ID_FORMATS
from seqpack_cli.tokens.imports.import_facts import PartFacts
from seqpack_cli.tokens.imports.import_setup import ImportSetup
from seqpack_cli.tokens.part_setup import PartTask
from seqpack_cli.tokens.part_writer import MadeDocuments, PartWriter
from seqpack_cli.tokens.sequences import DocumentSequences

RANGE_HINT = (
    "pass the --tokenizer or --vocab-size that the ids are of, or --on-bad-record skip to leave "
    "out such documents"
)


def import_part(setup: ImportSetup, task: PartTask) -> tuple[str, dict[str, Any]]:
    """Make one part and publish it; return its name and receipt.

    Raises:
        DataError: a file or record cannot be read, or an id is not in the vocabulary.
        MachineError: the disk failed.
    """
    facts = PartFacts(setup.affix_ids)
    with PartCollector(setup.kept, setup.folder / columns_name(task.name)) as columns:
        part = PartWriter(setup.folder, task.name, setup.dtype, columns)
        made = _iter_made(part, facts, setup, task)
        receipt = part.write(made, facts.describe)
    return task.name, receipt


def check_first(setup: ImportSetup, tasks: Sequence[PartTask]) -> None:
    """Read the first records, so that of bad ones the first is named, whichever part is first.

    Raises:
        DataError: a record cannot be read, or an id is not in the vocabulary.
    """
    first = next((each for task in tasks for each in task.ranges), None)
    if first is None or setup.options.on_bad_record != "error":
        return
    found = ID_FORMATS[first.source.format]
    block = next(found.read(RangeInput(first), setup), None) if found.holds == "records" else None
    if block is not None:
        _check_ids(block, setup, 0)


def _iter_made(
    part: PartWriter, facts: PartFacts, setup: ImportSetup, task: PartTask
) -> Iterator[MadeDocuments]:
    for source_range in task.ranges:
        opened, num_documents = RangeInput(source_range), 0
        for block in ID_FORMATS[source_range.source.format].read(opened, setup):
            found, largest_id = _check_ids(block, setup, num_documents)
            num_documents += len(found.num_sequences)
            part.add_rejects(source_range, found.rejects)
            facts.add(found, largest_id)
            yield _make(found, setup)
        _finish(part, opened, num_documents)


def _finish(part: PartWriter, opened: RangeInput, num_documents: int) -> None:
    check_unchanged(opened.range.source)
    part.add_range(opened.range, num_documents, opened.digest.hexdigest())


def _check_ids(block: IdBlock, setup: ImportSetup, num_before: int) -> tuple[IdBlock, int]:
    """Reject documents with an id that is not in the vocabulary; return the largest id, too.

    Args:
        num_before: documents of the range before the block.

    Raises:
        DataError: there is one, and it is not to be skipped.
    """
    ids, max_id = block.ids, setup.vocabulary.max_id
    smallest = 0 if ids.dtype.kind == "u" or not len(ids) else int(ids.min())
    largest = int(ids.max(initial=0))
    if smallest >= 0 and largest <= max_id:
        return block, largest
    outside = np.flatnonzero((ids > max_id) | (ids < 0))
    offsets = block.offsets
    bad, firsts = np.unique(np.searchsorted(offsets, outside, "right") - 1, return_index=True)
    rejects = list(block.rejects)
    for document, place in zip(bad.tolist(), outside[firsts].tolist(), strict=True):
        where = f"token {place - int(offsets[document]) + 1} has id {ids[place]}"
        reason = f"{where}, expected ids from 0 to {max_id:,}"
        if setup.options.on_bad_record == "error":
            raise DataError(f"{block.find_place(document)}: {reason}", RANGE_HINT)
        rejects.append(Reject(num_before + document, None, reason))
    is_bad = np.zeros(len(block.num_sequences), bool)
    is_bad[bad] = True
    found = block.leave_out(is_bad, sorted(rejects, key=lambda reject: reject.record))
    return found, int(found.ids.max(initial=0))


def _make(block: IdBlock, setup: ImportSetup) -> MadeDocuments:
    made = DocumentSequences(
        ids=block.ids,
        lengths=block.lengths,
        num_sequences=block.num_sequences,
        overlaps=np.zeros(len(block.lengths), np.int64),
        columns={} if block.targets is None else {TARGETS.name: block.targets},
        num_special_tokens=0,
        num_truncated_tokens=0,
        num_dropped_tokens=0,
        num_dropped_documents=0,
    )
    num_padding = int(np.sum(block.num_padding))
    return MadeDocuments(
        made,
        block.ids.astype(f"<{np.dtype(setup.dtype).str[1:]}", copy=False),
        hash_ids(block),
        [*[()] * setup.fields.has_targets, *block.fields],  # as `kept`, targets are first
        len(block.rejects),
        len(block.ids) + num_padding,
        {"num_padding_tokens": num_padding, "num_empty_sequences": int(np.sum(block.num_empty))},
    )


def hash_ids(block: IdBlock) -> np.ndarray:
    """Return the XXH3-64 of the ids of each document as little-endian int32, uint64[documents]."""
    data = block.ids.astype("<i4", copy=False).view(np.uint8).data
    bounds = (block.offsets * 4).tolist()
    pieces = map(data.__getitem__, map(slice, bounds[:-1], bounds[1:]))
    return np.fromiter(map(xxhash.xxh3_64_intdigest, pieces), np.uint64, len(bounds) - 1)
