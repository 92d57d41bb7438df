"""Collect the columns and document hashes of one part while it is made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
import xxhash

from seqpack_cli.corpus.kept_fields import FieldReader
from seqpack_cli.files.url import Place
from seqpack_cli.tokens.columns.keep_option import Kept
from seqpack_cli.tokens.columns.kind import Collector, Label, PartFile
from seqpack_cli.tokens.columns.part_columns import write_part_columns
from seqpack_cli.tokens.sequences import DocumentSequences
from seqpack_cli.tokens.text_batches import TextBatch


class PartCollector:
    """The columns of one part so far; use it in a `with` block, which removes temporary files.

    Args:
        path: the file of the part's columns.
    """

    def __init__(self, kept: Sequence[Kept], path: Place) -> None:
        self.readers: list[FieldReader] = [each.make_reader() for each in kept]
        self._kept = kept
        self._path = path
        self._stack = ExitStack()
        self._collectors: list[Collector] = [
            each.make_collector(PartFile(path, self._stack)) for each in kept
        ]
        self._hashes: list[np.ndarray] = []

    def __enter__(self) -> PartCollector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, None)

    def add(self, batch: TextBatch, made: DocumentSequences) -> None:
        """Add the hashes of some documents, and the values of those that have sequences."""
        self._hashes.append(hash_texts(batch.texts))
        if not self._kept:
            return
        has_sequences = made.num_sequences > 0
        num_sequences = made.num_sequences[has_sequences]
        alive = None if has_sequences.all() else np.flatnonzero(has_sequences).tolist()
        for collector, values in zip(self._collectors, batch.fields, strict=True):
            kept = values if alive is None else [values[index] for index in alive]
            collector.add(kept, num_sequences)

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
