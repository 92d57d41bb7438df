"""Write the files and the receipt of one part of a token store, whatever makes its sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.corpus.records import Reject
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.files.places import Place, at
from seqpack_cli.runs.run_folder import write_receipt
from seqpack_cli.runs.workers import advance
from seqpack_cli.tokens.columns.part_collector import PartCollector
from seqpack_cli.tokens.indexed_dataset import write_index
from seqpack_cli.tokens.sequences import DocumentSequences
from seqpack_cli.tokens.store_manifest import LEDGER_NAMES

NO_COUNTS: Mapping[str, int] = Counter()


class MadeDocuments(NamedTuple):
    """Some documents of a part, in order, as sequences, and what stands beside them."""

    made: DocumentSequences
    ids: np.ndarray  # those of the sequences, in the dtype of the store
    hashes: np.ndarray  # uint64, one per document
    fields: Sequence[Sequence[Any]]  # of each kept field, an entry per document
    num_rejected: int  # documents that stand for records that cannot be read
    num_encoded_tokens: int  # before any were added or left out
    counts: Mapping[str, int] = NO_COUNTS  # others of the ledger


class PartWriter:
    """The files of one part.

    Args:
        folder: of the store.
        name: of the part.
        dtype: of the ids.
        columns: which collect what stands beside the ids.
    """

    def __init__(self, folder: Place, name: str, dtype: str, columns: PartCollector) -> None:
        self._folder, self._name, self._dtype, self._columns = folder, name, dtype, columns
        self._lengths: list[np.ndarray] = []
        self._num_sequences: list[np.ndarray] = []
        self.ledger = Counter[str]()
        self._ranges: list[dict[str, Any]] = []
        self._rejects: list[list[Any]] = []

    def add_range(self, source_range: SourceRange, num_documents: int, digest: str) -> None:
        """Note a range of the input that was read, and the BLAKE3 of its bytes."""
        index, _, start, end = source_range
        entry = {"source": index, "start": start, "end": end}
        self._ranges.append({**entry, "num_documents": num_documents, "blake3": digest})

    def add_rejects(self, source_range: SourceRange, rejects: Iterable[Reject]) -> None:
        """Note the rejected records of a range, numbered within it."""
        self._rejects += [[source_range.source_index, *reject] for reject in rejects]

    def write(
        self, blocks: Iterable[MadeDocuments], describe: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Write all documents of the part, then its receipt; return this.

        Args:
            describe: returns more fields of the receipt, when all documents are written.
        """
        bin_path, idx_path = (self._folder / f"{self._name}.{it}" for it in ("bin", "idx"))
        with at(bin_path).publish() as bin_file:
            for block in blocks:
                bin_file.write(block.ids)
                self._add(block)
            bin_entry = {"name": bin_path.name, **bin_file.describe()}
        with at(idx_path).publish() as idx_file:
            lengths, num_sequences = _join(self._lengths), _join(self._num_sequences)
            write_index(idx_file, lengths=lengths, num_sequences=num_sequences, dtype=self._dtype)
            idx_entry = {"name": idx_path.name, **idx_file.describe()}
        columns_entry, class_names = self._columns.write()
        ledger = {name: self.ledger[name] for name in LEDGER_NAMES}
        ledger["num_target_tokens"] = ledger["num_tokens"]  # if no column says it
        receipt = {
            "ledger": {**ledger, **self._columns.counts},
            "ranges": self._ranges,
            "files": [bin_entry, idx_entry, columns_entry],
            "class_names": class_names,
            "rejects": self._rejects,
            **describe(),
        }
        write_receipt(self._folder, self._name, receipt)
        return receipt

    def _add(self, block: MadeDocuments) -> None:
        made = block.made
        self._columns.add(block.hashes, block.fields, made)
        self._lengths.append(_narrow(made.lengths))
        self._num_sequences.append(_narrow(made.num_sequences))
        num_silent = int((made.num_sequences == 0).sum())
        self.ledger.update(
            num_documents=len(made.num_sequences),
            num_rejected=block.num_rejected,
            num_dropped_documents=made.num_dropped_documents,
            num_empty_documents=num_silent - block.num_rejected - made.num_dropped_documents,
            num_sequences=len(made.lengths),
            num_encoded_tokens=block.num_encoded_tokens,
            num_special_tokens_added=made.num_special_tokens,
            num_truncated_tokens=made.num_truncated_tokens,
            num_dropped_tokens=made.num_dropped_tokens,
            num_overlap_tokens=int(made.overlaps.sum()),
            num_tokens=len(made.ids),
        )
        self.ledger.update(block.counts)
        advance(0, len(made.ids))


def _narrow(counts: np.ndarray) -> np.ndarray:
    """Cast counts to the smallest dtype that holds them: a part may have 30 million documents."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def _join(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
