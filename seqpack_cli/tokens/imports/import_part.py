"""Make one part of a store from ids that another tool made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash

from seqpack_cli.corpus.blocks import check_unchanged
from seqpack_cli.corpus.document_block import Reject
from seqpack_cli.errors import DataError
from seqpack_cli.tokens.columns.part_collector import PartCollector
from seqpack_cli.tokens.columns.part_columns import columns_name
from seqpack_cli.tokens.columns.targets_kind import TARGETS
from seqpack_cli.tokens.imports.id_block import IdBlock, RangeInput
from seqpack_cli.tokens.imports.id_formats import ID_FORMATS
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
    affixes = Counter(num_with_bos=0, num_with_eos=0)
    with PartCollector(setup.kept, setup.folder / columns_name(task.name)) as columns:
        part = PartWriter(setup.folder, task.name, setup.dtype, columns)
        made = _iter_made(part, affixes, setup, task)
        receipt = part.write(made, lambda: dict(affixes))
    return task.name, receipt


def _iter_made(
    part: PartWriter, affixes: Counter[str], setup: ImportSetup, task: PartTask
) -> Iterator[MadeDocuments]:
    for source_range in task.ranges:
        opened, num_documents = RangeInput(source_range), 0
        for block in ID_FORMATS[source_range.source.format].read(opened, setup):
            found = _check_ids(block, setup, num_documents)
            num_documents += len(found.num_sequences)
            part.add_rejects(source_range, found.rejects)
            affixes.update(_count_affixes(found, setup))
            yield _make(found, setup)
        _finish(part, opened, num_documents)


def _finish(part: PartWriter, opened: RangeInput, num_documents: int) -> None:
    check_unchanged(opened.range.source)
    part.add_range(opened.range, num_documents, opened.digest.hexdigest())


def _check_ids(block: IdBlock, setup: ImportSetup, num_before: int) -> IdBlock:
    """Reject documents with an id that is not in the vocabulary.

    Args:
        num_before: documents of the range before the block.

    Raises:
        DataError: there is one, and it is not to be skipped.
    """
    ids, max_id = block.ids, setup.vocabulary.max_id
    smallest = 0 if ids.dtype.kind == "u" or not len(ids) else int(ids.min())
    if smallest >= 0 and (not len(ids) or int(ids.max()) <= max_id):
        return block
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
    return block.leave_out(is_bad, sorted(rejects, key=lambda reject: reject.record))


def _count_affixes(block: IdBlock, setup: ImportSetup) -> dict[str, int]:
    """Count the documents that begin with BOS, and those that end with EOS."""
    if not any(id_ is not None for id_ in setup.affix_ids.values()):
        return {}
    offsets = block.offsets
    is_alive = np.diff(offsets) > 0
    firsts, lasts = offsets[:-1][is_alive], offsets[1:][is_alive] - 1
    return {
        f"num_with_{role}": 0 if id_ is None else int((block.ids[places] == id_).sum())
        for (role, id_), places in zip(setup.affix_ids.items(), (firsts, lasts), strict=True)
    }


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
    return MadeDocuments(
        made,
        block.ids.astype(f"<{np.dtype(setup.dtype).str[1:]}", copy=False),
        hash_ids(block),
        [*[()] * setup.fields.has_targets, *block.fields],  # as `kept`, targets are first
        len(block.rejects),
        len(block.ids) + block.num_padding_tokens,
        {
            "num_padding_tokens": block.num_padding_tokens,
            "num_empty_sequences": block.num_empty_sequences,
        },
    )


def hash_ids(block: IdBlock) -> np.ndarray:
    """Return the XXH3-64 of the ids of each document as little-endian int32, uint64[documents]."""
    data = block.ids.astype("<i4", copy=False).view(np.uint8).data
    bounds = (block.offsets * 4).tolist()
    pieces = map(data.__getitem__, map(slice, bounds[:-1], bounds[1:]))
    return np.fromiter(map(xxhash.xxh3_64_intdigest, pieces), np.uint64, len(bounds) - 1)
