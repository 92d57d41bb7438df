"""What every reader of imported ids yields: documents, as the ids of their sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3

from seqpack_cli.corpus.records import Reject
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.runs.workers import advance


class RangeInput:
    """A range of the input while it is read: what was read is hashed and counted."""

    def __init__(self, source_range: SourceRange) -> None:
        self.range = source_range
        self.digest = blake3()

    def on_read(self, block: bytes) -> None:
        """Take the next bytes of the file."""
        self.digest.update(block)
        advance(len(block))


class IdBlock(NamedTuple):
    """Some documents of a source, in order."""

    ids: np.ndarray  # [S], of any integer dtype, as they were read
    lengths: np.ndarray  # int64, one per sequence, none 0
    num_sequences: np.ndarray  # int64, one per document; 0 for a rejected or empty one
    rejects: Sequence[Reject]  # each stands for one of the documents, numbered within the range
    find_place: Callable[[int], str]  # "path:record" of a document, by its place in the block
    targets: np.ndarray | None = None  # uint8 [S]
    fields: Sequence[Sequence[Any]] = ()  # of each kept field, an entry per document
    # Left out of each document, int64: tokens whose attention mask is 0, and empty sequences, which
    # a store does not have. () is none.
    num_padding: Sequence[int] | np.ndarray = ()
    num_empty: Sequence[int] | np.ndarray = ()

    @property
    def offsets(self) -> np.ndarray:
        """Where the ids of each document begin, and their number last, int64[documents + 1]."""
        ends = to_offsets(self.lengths)
        found: np.ndarray = ends[to_offsets(self.num_sequences)]
        return found

    def leave_out(self, is_bad: np.ndarray, rejects: Sequence[Reject]) -> IdBlock:
        """Return the block with rejected documents, which have no ids.

        Args:
            is_bad: bool, one per document.
            rejects: of all documents that are rejected now or were before.
        """
        firsts = to_offsets(self.num_sequences)[:-1]
        offsets = self.offsets
        kept = np.flatnonzero(~is_bad)
        tokens = expand_ranges(offsets[kept], np.diff(offsets)[kept])
        sequences = expand_ranges(firsts[kept], self.num_sequences[kept])
        return self._replace(
            ids=self.ids[tokens],
            lengths=self.lengths[sequences],
            num_sequences=np.where(is_bad, 0, self.num_sequences),
            rejects=rejects,
            targets=None if self.targets is None else self.targets[tokens],
            num_padding=np.where(is_bad, 0, self.num_padding) if len(self.num_padding) else (),
            num_empty=np.where(is_bad, 0, self.num_empty) if len(self.num_empty) else (),
        )

    def take(self, first: int, last: int) -> IdBlock:
        """Return the documents first to last - 1."""
        offsets, starts = self.offsets, to_offsets(self.num_sequences)
        tokens = slice(int(offsets[first]), int(offsets[last]))
        return self._replace(
            ids=self.ids[tokens],
            lengths=self.lengths[starts[first] : starts[last]],
            num_sequences=self.num_sequences[first:last],
            rejects=[
                reject._replace(record=reject.record - first)
                for reject in self.rejects
                if first <= reject.record < last
            ],
            find_place=lambda document: self.find_place(first + document),
            targets=None if self.targets is None else self.targets[tokens],
            fields=[values[first:last] for values in self.fields],
            num_padding=self.num_padding[first:last],
            num_empty=self.num_empty[first:last],
        )
