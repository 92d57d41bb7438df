"""Collect the columns and document hashes of one part while it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, cast

import numpy as np
import xxhash

from seqpack_cli.corpus.fields import Reader
from seqpack_cli.files.places import Place
from seqpack_cli.tokens.columns.kept import Kept, ValuesFrom
from seqpack_cli.tokens.columns.kind import (
    Collector,
    Label,
    PartFile,
    PlaceCollector,
    TokenCollector,
)
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.columns.part_columns import write_part_columns
from seqpack_cli.tokens.encode_batch import EncodedBatch
from seqpack_cli.tokens.sequences import DocumentSequences, TokenColumn


class PartCollector:
    """The columns of one part so far; use it in a `with` block, which removes temporary files.

    Args:
        path: the file of the part's columns.
        subtokens: which tokens of a word have its tag: "first" or "all".
    """

    def __init__(self, kept: Sequence[Kept], path: Place, *, subtokens: str = "first") -> None:
        of_fields = [each for each in kept if each.values_from is ValuesFrom.FIELD]
        self.readers: list[Reader] = [each.make_reader() for each in of_fields]
        self._kept = kept
        self._path = path
        self._subtokens = subtokens
        self._stack = ExitStack()
        self._collectors = [each.make_collector(PartFile(path, self._stack)) for each in kept]
        read = [each for each in kept if each.values_from is not ValuesFrom.PIECES]
        self._field_of = {each.field.name: number for number, each in enumerate(read)}
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
        per_token = (each for each, _ in self._iter_token_collectors())
        return any(each.values_from is ValuesFrom.FIELD for each in per_token)

    @property
    def counts(self) -> Counter[str]:
        """Return what the columns per token have counted so far, for the ledger."""
        counts = Counter[str]()
        for _, collector in self._iter_token_collectors():
            counts.update(collector.counts)  # a sum would leave out those that are 0
        return counts

    def assign(self, found: EncodedBatch) -> dict[str, TokenColumn]:
        """Return the entries per token of encoded texts, by the name of the column."""
        assigned = {}
        lengths = found.encoded.lengths
        for kept, collector in self._iter_token_collectors():
            name, fill = kept.field.name, KINDS[kept.kind].fill
            if kept.values_from is ValuesFrom.PIECES:  # all tokens but repeated ones
                ones = np.ones(int(lengths.sum()), np.uint8)
                assigned[name] = TokenColumn(ones, 1, 1, of_overlap=0)
            elif found.targets is not None:
                collector.counts["num_straddling_tokens"] += found.targets.num_straddling
                assigned[name] = TokenColumn(found.targets.entries, fill, 1, of_overlap=0)
            elif found.offsets is not None:
                values = found.batch.fields[self._field_of[name]]
                places = cast(PlaceCollector, collector)
                entries = places.assign(values, found.offsets, lengths, self._subtokens)
                assigned[name] = TokenColumn(entries, fill, fill)
        return assigned

    def add(
        self, hashes: np.ndarray, fields: Sequence[Sequence[Any]], made: DocumentSequences
    ) -> None:
        """Add some documents, and the values of those that have sequences.

        Args:
            hashes: of the documents, uint64.
            fields: of each field that is read, an entry per document.
        """
        self._hashes.append(hashes)
        has_sequences = made.num_sequences > 0
        num_sequences = made.num_sequences[has_sequences]
        alive = None if has_sequences.all() else np.flatnonzero(has_sequences).tolist()
        for kept, collector in zip(self._kept, self._collectors, strict=True):
            name = kept.field.name
            if KINDS[kept.kind].is_per_token:
                cast(TokenCollector, collector).add(made.columns[name])
            elif name in self._field_of:
                values = fields[self._field_of[name]]
                values = values if alive is None else [values[place] for place in alive]
                cast(Collector, collector).add(values, num_sequences)
            else:
                once = np.ones(len(made.overlaps), np.int64)
                cast(Collector, collector).add(made.overlaps.tolist(), once)

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

    def _iter_token_collectors(self) -> Iterator[tuple[Kept, TokenCollector]]:
        for kept, collector in zip(self._kept, self._collectors, strict=True):
            if KINDS[kept.kind].is_per_token:
                yield kept, cast(TokenCollector, collector)


def hash_texts(texts: Iterable[bytes]) -> np.ndarray:
    """Return the XXH3-64 of each text, uint64[N]."""
    return np.fromiter(map(xxhash.xxh3_64_intdigest, texts), np.uint64)
