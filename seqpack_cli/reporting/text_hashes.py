"""The hashes of the documents of a store that have tokens; of shards, those with a packed row.

Documents with the same hash count as equal: among a thousand million different ones, some pair has
the same hash with a probability of 3 %. Memory is bounded: the mapped hashes are read once for each
range of their values, and only those of one range are sorted at a time. A document takes 1 bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.store import TokenStore


class TextHashes:
    """The hashes of some documents of a store, part by part.

    Args:
        is_packed: bool[sequences]; a document is left out if none of its sequences is. None takes
            every document that has a sequence.
    """

    def __init__(self, store: TokenStore, is_packed: np.ndarray | None = None) -> None:
        self.store, self.num_documents = store, 0
        self._bits = list[np.ndarray]()  # 1 for each document that counts, by part
        for number, (first, last) in enumerate(pairwise(store.part_offsets.tolist())):
            offsets = to_offsets(store.count_sequences(number))
            if is_packed is not None:
                offsets = to_offsets(is_packed[first:last])[offsets]
            counts = np.diff(offsets) > 0
            self.num_documents += int(np.count_nonzero(counts))
            self._bits.append(np.packbits(counts))
            store.let_pages_go()

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the hashes of each part, uint64.

        Raises:
            FolderError: a part is damaged.
        """
        for number in self.store.fetch_columns():
            hashes = self.store.part_hashes(number)
            yield hashes[self._find_documents(number, len(hashes))]
            self.store.let_pages_go()

    def iter_range(self, first: int, end: int) -> Iterator[np.ndarray]:
        """Yield the hashes of each part from `first` to `end` - 1."""
        for hashes in self:
            yield hashes[(hashes >= np.uint64(first)) & (hashes <= np.uint64(end - 1))]

    def find_distinct(self, first: int, end: int) -> np.ndarray:
        """Return each hash from `first` to `end` - 1 once, sorted."""
        kept, num_kept, most = [np.empty(0, np.uint64)], 0, 2 * LIMITS.hashes_per_range
        for hashes in self.iter_range(first, end):
            kept.append(hashes)
            num_kept += len(hashes)
            if num_kept > most:  # many of them must be equal
                kept = [_find_distinct(kept)]
                num_kept = len(kept[0])
        return _find_distinct(kept)

    def find_sequences(self, hashes: np.ndarray) -> list[int]:
        """Return the first sequence of the first document with each of a few hashes."""
        found = dict[int, int]()
        for number in self.store.fetch_columns():
            of_part = self.store.part_hashes(number)
            is_kept = self._find_documents(number, len(of_part))
            for wanted in set(hashes.tolist()) - found.keys():
                places = np.flatnonzero(is_kept & (of_part == np.uint64(wanted)))
                if len(places):
                    before = self.store.count_sequences(number)[: places[0]]
                    found[wanted] = int(self.store.part_offsets[number] + before.sum())
            self.store.let_pages_go()
            if len(found) == len(hashes):
                break
        return [found[wanted] for wanted in hashes.tolist()]

    def _find_documents(self, number: int, num_documents: int) -> np.ndarray:
        return np.unpackbits(self._bits[number], count=num_documents).view(bool)


def cut_ranges(num_hashes: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last + 1 of ranges of values, to sort those of a range at a time."""
    num_ranges = max(1, -(-num_hashes // LIMITS.hashes_per_range))
    yield from pairwise((number << 64) // num_ranges for number in range(num_ranges + 1))


def _find_distinct(pieces: list[np.ndarray]) -> np.ndarray:
    """Return each of the hashes once; the list is emptied, because its copy is as large."""
    hashes = np.concatenate(pieces)
    pieces.clear()
    hashes.sort()
    is_first = np.ones(len(hashes), bool)
    np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
    return hashes[is_first]
