"""Collect the columns and document hashes of one part while it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, cast

import numpy as np
import xxhash

from seqpack_cli.corpus.kept_fields import FieldReader
from seqpack_cli.files.url import Place
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.columns.kind import Collector, Label, PartFile, TokenCollector
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.columns.part_columns import write_part_columns
from seqpack_cli.tokens.sequences import DocumentSequences, TokenColumn
from seqpack_cli.tokens.text_batches import TextBatch


class PartCollector:
    """The columns of one part so far; use it in a `with` block, which removes temporary files.

    Args:
        path: the file of the part's columns.
        subtokens: which tokens of a word have its tag: "first" or "all".
    """

    def __init__(self, kept: Sequence[Kept], path: Place, *, subtokens: str = "first") -> None:
        self.readers: list[FieldReader] = [each.make_reader() for each in kept]
        self._kept = kept
        self._path = path
        self._subtokens = subtokens
        self._stack = ExitStack()
        self._collectors = [each.make_collector(PartFile(path, self._stack)) for each in kept]
        self._token_collectors = {
            index: cast(TokenCollector, self._collectors[index])
            for index, each in enumerate(kept)
            if KINDS[each.kind].is_per_token
        }
        self._hashes: list[np.ndarray] = []

    def __enter__(self) -> PartCollector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, None)

    @property
    def needs_offsets(self) -> bool:
        """Return whether a column has an entry per token, found by its place in the text."""
        return bool(self._token_collectors)

    @property
    def counts(self) -> Counter[str]:
        """Return what the columns per token have counted so far, for the ledger."""
        return sum((each.counts for each in self._token_collectors.values()), Counter())

    def assign(
        self, batch: TextBatch, lengths: np.ndarray, offsets: np.ndarray
    ) -> dict[str, TokenColumn]:
        """Return the entries per token of encoded texts, by the name of the column.

        Args:
            lengths: number of tokens of each text.
            offsets: the place of each token in its text.
        """
        assigned = {}
        for index, collector in self._token_collectors.items():
            kept, values = self._kept[index], batch.fields[index]
            entries = collector.assign(values, offsets, lengths, self._subtokens)
            assigned[kept.field.name] = TokenColumn(entries, KINDS[kept.kind].fill)
        return assigned

    def add(self, batch: TextBatch, made: DocumentSequences) -> None:
        """Add the hashes of some documents, and the values of those that have sequences."""
        self._hashes.append(hash_texts(batch.texts))
        if not self._kept:
            return
        has_sequences = made.num_sequences > 0
        num_sequences = made.num_sequences[has_sequences]
        alive = None if has_sequences.all() else np.flatnonzero(has_sequences).tolist()
        for index, values in enumerate(batch.fields):
            if index in self._token_collectors:
                entries = made.columns[self._kept[index].field.name]
                self._token_collectors[index].add(entries)
                continue
            kept = values if alive is None else [values[place] for place in alive]
            cast(Collector, self._collectors[index]).add(kept, num_sequences)

    def write(self) -> tuple[dict[str, Any], dict[str, list[Label]]]:
        """Write the file; return its entry for the manifest, and the class names of the part."""
        collected = {
            kept.field.name: collector.finish(kept.field.name)
            for kept, collector in zip(self._kept, self._collectors, strict=True)
        }
        entry = write_part_columns(self._path, self._hashes, collected)
        class_names = {
            name: column.class_names
            for name, column in collected.items()
            if column.class_names is not None
        }
        return {"name": self._path.name, **entry}, class_names


def hash_texts(texts: Sequence[str]) -> np.ndarray:
    """Return the XXH3-64 of the UTF-8 of each text, uint64[N]."""
    digests = map(xxhash.xxh3_64_intdigest, map(str.encode, texts))
    return np.fromiter(digests, np.uint64, len(texts))
