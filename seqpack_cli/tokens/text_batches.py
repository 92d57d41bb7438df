"""Combine blocks of documents into batches of texts to encode at once.

A call of the encoder costs as much as some kB of text, so the blocks of small files are combined; a
block of a large file is a batch of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from seqpack_cli.corpus.records import RecordBlock
from seqpack_cli.limits import LIMITS


class TextBatch(NamedTuple):
    """Texts that are encoded together, and the blocks they are from."""

    blocks: list[RecordBlock]
    texts: list[str]
    fields: list[list[Any]]  # of each kept field, beside the texts

    @property
    def num_rejected(self) -> int:
        """Return the number of rejected records; their texts are empty."""
        return sum(len(block.rejects) for block in self.blocks)

    def iter_hashed(self, *, has_targets: bool) -> Iterator[bytes]:
        """Yield what the hash of each document is made from.

        Args:
            has_targets: whether the first field is the `TargetText` of each.
        """
        if not has_targets:
            return map(str.encode, self.texts)
        return (b"" if made is None else made.canonical for made in self.fields[0])

    def find_place(self, index: int) -> str:
        """Return "path:line" of one of the texts."""
        for block in self.blocks:
            if index < block.num_records:
                return block.find_place(index)
            index -= block.num_records
        raise IndexError(index)


def gather(blocks: Iterable[RecordBlock]) -> Iterator[TextBatch]:
    """Combine blocks into batches of about 1 MiB, or 65,536 texts."""
    waiting: list[RecordBlock] = []
    num_bytes = num_texts = 0
    most_bytes, most_texts = LIMITS.batch_bytes, LIMITS.sequences_per_block
    for block in blocks:
        waiting.append(block)
        num_bytes += block.num_bytes
        num_texts += block.num_records
        if num_bytes >= most_bytes or num_texts >= most_texts:
            yield _join(waiting)
            waiting, num_bytes, num_texts = [], 0, 0
    if waiting:
        yield _join(waiting)


def _join(blocks: list[RecordBlock]) -> TextBatch:
    lists = blocks[0].lists
    if len(blocks) > 1:
        all_lists = [block.lists for block in blocks]
        lists = [list(chain.from_iterable(values)) for values in zip(*all_lists, strict=True)]
    texts, *fields = lists
    if None in texts:  # a record that is rejected or blank
        texts = ["" if text is None else text for text in texts]
    return TextBatch(blocks, texts, fields)
