"""A torch Dataset over shards: one item is one whole batch, ready for a model.

Use it with torch's `DataLoader(dataset, batch_size=None, shuffle=True, num_workers=...,
pin_memory=True)`: the batches are already made, the loader only fetches them. Shards are memory
mapped, so workers share one copy. The index arrays of a shard are checked when it is opened, ids
when a batch is read, and pages that were read are released again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import SupportsIndex, overload

import numpy as np
from torch.utils.data import Dataset, Subset, get_worker_info

from seqpack_cli.batching.shuffle import BATCHES, shuffled
from seqpack_cli.files.url import AnyPath, Place
from seqpack_cli.runs.arguments import checks_arguments
from seqpack_cli.shards.shard_set import BYTES_KEPT, ShardSet, open_shards
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kind import Label
from seqpack_cli.training.batch_tensors import BatchTensors
from seqpack_cli.training.chosen_columns import choose_columns, find_texts, list_class_names
from seqpack_cli.training.collate import OF_LAYOUT
from seqpack_cli.training.epoch_plan import EpochPlan
from seqpack_cli.training.labels import NEXT, check_labels

BYTES_KEPT_BY_WORKER = 2 << 20  # mapped bytes; there may be many workers


class ShardDataset(Dataset[BatchTensors]):
    """Map-style dataset over the batches of finished shards.

    `dataset[i]` is `PackedTensors`, `PaddedTensors` or `VarlenTensors`, as the layout is; i may be
    negative. A slice is a torch `Subset`, which reads nothing before it is asked for a batch.

    `layout`, `vocab_size`, `pad_id` and `bucket_keys` (rising, None without buckets) are those of
    the shards' manifest.

    Args:
        path: the shards' folder.
        labels: "next" adds next-token labels to every item: at each token the one after it, -100
            at the end of a sequence and in padding. The name of a column adds that column: int64,
            or float32, rounded, for one of kind float, [B] or in the shape of the ids; -100 in
            padding, in filler rows and where there is no class (0 in a filler row of kind float).
        columns: the names of the columns to read; None reads all. That of labels is always read.

    Raises:
        FolderError: the shards are incomplete or damaged, found on opening or at the item.
        ValueError: the shards have no such column, labels is a column of text, or, at the item, a
            label is too large for float32.
    """

    @checks_arguments
    def __init__(
        self,
        path: AnyPath,
        *,
        labels: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        shards = open_shards(path)
        check_labels(labels, find_texts(shards.columns))
        if columns is not None and labels not in (None, NEXT, *columns):
            columns = [*columns, str(labels)]
        self.labels = labels
        self.columns: Mapping[str, Column] = choose_columns(shards.columns, columns)
        self._folder = shards.folder
        self.layout = shards.layout
        self._tensors, _ = OF_LAYOUT[self.layout]
        self.vocab_size: int = shards.manifest["vocab_size"]
        self.pad_id: int = shards.manifest["pad_id"]
        self.bucket_keys: list[int] | None = shards.manifest["bucket_keys"]
        self.is_fixed = True
        self.fingerprint = shards.fingerprint
        self._num_batches = len(shards)
        self._shards: ShardSet | None = shards.with_columns(self.columns)

    @property
    def path(self) -> Place:
        """The shards' folder."""
        return self._folder.path

    def __len__(self) -> int:
        return self._num_batches

    def __repr__(self) -> str:
        sizes = f"layout={self.layout!r}, num_batches={len(self)}, labels={self.labels!r}"
        return f"ShardDataset({str(self.path)!r}, {sizes})"

    def class_names(self, column: str) -> list[Label]:
        """Return the names of the classes of a column, by class id.

        Raises:
            ValueError: there is no such column, or it has no classes.
        """
        return list_class_names(self.columns, column)

    @overload
    def __getitem__(self, index: SupportsIndex) -> BatchTensors: ...

    @overload
    def __getitem__(self, index: slice) -> Subset[BatchTensors]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> BatchTensors | Subset[BatchTensors]:
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        bytes_kept = BYTES_KEPT if get_worker_info() is None else BYTES_KEPT_BY_WORKER
        batch = self._open().take(index, bytes_kept=bytes_kept)
        tensors: BatchTensors = self._tensors.from_batch(batch, self.labels)
        return tensors

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        """Shuffle the batches by a seed; None keeps the order of the shards."""
        order = np.arange(len(self))
        if seed is not None:
            order = shuffled(len(self), seed=seed, stream=BATCHES)
        return EpochPlan(range(len(self)), order, self._open().count_cells)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_shards": None}  # a spawned worker opens its own maps

    def _open(self) -> ShardSet:
        if self._shards is None:
            shards = open_shards(self.path)
            self._folder.check_digest(shards.folder.digest)
            self._shards = shards.with_columns(self.columns)
        return self._shards
