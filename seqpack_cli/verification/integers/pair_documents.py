"""Level `roundtrip` of pairs: both sides of each row are the same document.

The documents are counted in the stores of both sides, whatever their ledgers say and however they
were aligned when they were packed. Takes up to 8 bytes for each sequence of both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seqpack_cli.shards.pairs import find_matched_rows
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.findings import Finding

LEVEL = "roundtrip"


class Documents:
    """The documents of the stores of a side, counted through all of them."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self.numbers = np.empty(len(store), np.min_scalar_type(store.num_documents))
        num_before = 0
        for part, first in enumerate(store.part_offsets[:-1].tolist()):
            counts = store.count_sequences(part)
            documents = np.repeat(np.arange(num_before, num_before + len(counts)), counts)
            self.numbers[first : first + len(documents)] = documents
            num_before += len(counts)

    def name(self, index: int) -> str:
        """Return the place in the input of the document of a sequence."""
        origin = self._store.locate(index)
        return f"{origin.source}:{origin.record}"


def compare_documents(sides: Sequence[Shard], documents: Sequence[Documents]) -> Iterator[Finding]:
    """Yield the first row of each batch whose sides are different documents.

    Args:
        sides: the encoder's and the decoder's, without a fault.
        documents: of each side.
    """
    encoder, decoder = sides
    rows = np.flatnonzero(decoder.tensors["original_indices"] >= 0)  # without filler
    matched = find_matched_rows(decoder)[rows]
    indices = [
        encoder.tensors["original_indices"][matched],
        decoder.tensors["original_indices"][rows],
    ]
    numbers = [each.numbers[some] for each, some in zip(documents, indices, strict=True)]
    wrong = np.flatnonzero(numbers[0] != numbers[1])
    _, firsts = np.unique(decoder.arrays.batch_of_rows[rows[wrong]], return_index=True)
    for place in wrong[firsts].tolist():
        batch, row = decoder.arrays.find_batch(int(rows[place]))
        other = decoder.arrays.find_batch(int(matched[place]))[1]
        expected, found = (
            each.name(int(some[place])) for each, some in zip(documents, indices, strict=True)
        )
        what = f"the decoder has document {found}, row {other} of the encoder is {expected}"
        yield Finding(LEVEL, decoder.path.name, what, decoder.first_batch + batch, row)
