"""A torch Dataset over one shard set or several: an item is one whole batch, ready for a model.

Use it with torch's `DataLoader(dataset, batch_size=None, shuffle=True, num_workers=...,
pin_memory=True)`: the batches are already made, the loader only fetches them. Shards are memory
mapped, so workers share one copy. The index arrays of a shard are checked when it is opened, ids
when a batch is read, and pages that were read are released again.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
from torch.utils.data import Dataset, Subset, get_worker_info

from seqpack_cli.batching.order import BATCHES, shuffled
from seqpack_cli.files.places import Place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.shards.layouts import Tensors
from seqpack_cli.shards.manifest import PREFIX
from seqpack_cli.shards.shard_set import ShardSet, open_shards, share_limits
from seqpack_cli.shards.shared_rows import count_streams
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.conditions import Label
from seqpack_cli.tokens.store import AnyPaths, parse_places
from seqpack_cli.training.alike_shards import (
    check_alike,
    check_different,
    join_fingerprints,
    join_keys,
)
from seqpack_cli.training.batch_costs import count_costs
from seqpack_cli.training.chosen_columns import (
    choose_columns,
    find_texts,
    list_class_names,
    name_columns,
)
from seqpack_cli.training.collate import OF_LAYOUT
from seqpack_cli.training.epoch_plan import EpochPlan, StreamSlice
from seqpack_cli.training.labels import OF_TARGETS, SAME, check_labels
from seqpack_cli.training.pair_tensors import Item, choose_pairs, make_pair, take_sides


class ShardDataset(Dataset[Item]):
    """Map-style dataset over the batches of finished shards, of several shard sets in turn.

    `dataset[i]` is `PackedTensors`, `PaddedTensors`, `VarlenTensors` or `StreamTensors`, as the
    layout is, or `PairTensors` of two of the first ones; i may be negative. A slice is a torch
    `Subset`, which reads nothing before it is asked for a batch. `dataset[StreamSlice(i, start,
    stop)]` has only some streams of a batch.

    `layout`, `vocab_size` and `pad_id` are those of the shards' manifest; of pairs they are the
    encoder's; `decoder_vocab_size`, `decoder_pad_id`, `decoder_bos_id` and `decoder_eos_id` are the
    decoder's, else None. `bucket_keys` are those of all shard sets, rising, or None if there is one
    without buckets. `num_streams` is the number of streams, or None if batches are not streams.

    Args:
        path: the shards' folder, or several folders, whose batches follow each other. They must
            have the same layout, tokenizer, padding and columns (or choose by `columns` those that
            they share).
        labels: "next" adds next-token labels to every item: at each token the one after it, -100
            where that is not a target, at the end of a sequence and in padding. "same" adds each
            token itself, -100 where it is not a target and in padding, for models that shift labels
            themselves. The name of a column adds that column: int64, or float32, rounded, for one
            of kind float, [B] or in the shape of the ids; -100 in padding, in filler rows and where
            there is no class (0 in a filler row of kind float). "next" of pairs is teacher forcing:
            see PairTensors. Before the names of the decoder's columns is "decoder.".
        columns: the names of the columns of an item; None is all. That of labels is always there.
            Labels depend on the column `targets` even if it is not among them.
        bos_id, eos_id: of pairs, an id to put before, or after, each row of the decoder; an eos is
            a target. None adds none, for stores that were tokenized with them.

    Raises:
        FolderError: the shards are incomplete or damaged, found on opening or at the item.
        ValueError: the shards have no such column, labels is a column of text, the shard sets
            differ or the same is there twice, bos_id or eos_id is not in the decoder's vocabulary,
            or, at the item, a label is too large for float32, or a row of the decoder has one token
            and labels is "next".
    """

    @checks_arguments
    def __init__(
        self,
        path: AnyPaths,
        *,
        labels: str | None = None,
        columns: Sequence[str] | None = None,
        bos_id: int | None = None,
        eos_id: int | None = None,
    ) -> None:
        opened = [open_shards(place) for place in parse_places(path)]
        if not opened:
            raise ValueError("path is empty, expected at least one folder")
        found = {name: it for shards in opened for name, it in name_columns(shards).items()}
        check_labels(labels, find_texts(found))
        if columns is not None and labels not in (None, *OF_TARGETS, *columns):
            columns = [*columns, str(labels)]
        self.labels = labels
        chosen = choose_columns(found, columns)
        targets = TARGETS if opened[0].decoder is None else f"{PREFIX}{TARGETS}"
        needed = [targets] if labels in OF_TARGETS else []
        self._hidden = [name for name in needed if name not in chosen]
        check_alike([shards.with_columns(chosen) for shards in opened])
        check_different(opened)
        first = opened[0]
        self.columns: Mapping[str, Column] = chosen
        self._shards: list[ShardSet] | None = self._choose(opened)
        self.layout = first.layout
        self._tensors, _ = OF_LAYOUT[self.layout]
        self.num_streams = count_streams(first.manifest)
        if self.num_streams is not None and labels == SAME:
            raise ValueError("labels is 'same', which streams do not have: expected 'next'")
        self.vocab_size: int = first.manifest["vocab_size"]
        self.pad_id: int = first.manifest["pad_id"]
        self._pairs = choose_pairs(opened, labels, self._hidden, bos_id=bos_id, eos_id=eos_id)
        of_decoder = first.manifest["decoder"] or {}
        self.decoder_vocab_size: int | None = of_decoder.get("vocab_size")
        self.decoder_pad_id: int | None = of_decoder.get("pad_id")
        self.decoder_bos_id: int | None = of_decoder.get("bos_id")
        self.decoder_eos_id: int | None = of_decoder.get("eos_id")
        self.bucket_keys = join_keys([shards.manifest["bucket_keys"] for shards in opened])
        self.is_fixed = True
        fingerprints = [shards.fingerprint for shards in opened]
        several = len(opened) > 1
        self.fingerprint = join_fingerprints(fingerprints) if several else fingerprints[0]
        self._folders = [shards.folder for shards in opened]
        self._starts: list[int] = to_offsets(list(map(len, opened))).tolist()

    @property
    def paths(self) -> tuple[Place, ...]:
        """The shards' folders."""
        return tuple(folder.path for folder in self._folders)

    @property
    def path(self) -> Place:
        """The shards' folder; AttributeError if there are several."""
        if len(self._folders) > 1:
            raise AttributeError(f"{len(self._folders)} shard sets have no one path; use paths")
        return self._folders[0].path

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        sizes = f"layout={self.layout!r}, num_batches={len(self)}, labels={self.labels!r}"
        names = [str(path) for path in self.paths]
        return f"ShardDataset({names if len(names) > 1 else names[0]!r}, {sizes})"

    @checks_arguments
    def class_names(self, column: str) -> list[Label]:
        """Return the names of the classes of a column, by class id.

        Raises:
            ValueError: there is no such column, or it has no classes.
        """
        return list_class_names(self.columns, column)

    @overload
    def __getitem__(self, index: SupportsIndex | StreamSlice) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Subset[Item]: ...

    def __getitem__(self, index: SupportsIndex | slice | StreamSlice) -> Item | Subset[Item]:
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        if isinstance(index, StreamSlice):
            if not 0 <= index.start < index.stop <= (self.num_streams or 0):
                raise ValueError(
                    f"streams {index.start} to {index.stop}, expected some of the "
                    f"{self.num_streams or 0} streams of a batch"
                )
            batch = self._take(index.batch)[0].take(index.start, index.stop)
        else:
            batch, *others = self._take(index)
            if self._pairs is not None:
                return make_pair(batch, others[0], self._tensors, self._pairs)
        tensors: Item = self._tensors.from_batch(batch, self.labels, self._hidden)
        return tensors

    def _take(self, index: SupportsIndex) -> list[Any]:
        """Return a batch of the shards; of pairs that of each side."""
        is_worker = get_worker_info() is not None
        bytes_kept = LIMITS.mapped_bytes_of_worker if is_worker else LIMITS.mapped_bytes
        sets, number = self.open_shards(), 0
        if len(sets) > 1:  # one shard set finds the index itself
            index = find_index(index, self._starts[-1], "batch")
            number = bisect.bisect_right(self._starts, index) - 1
            index -= self._starts[number]
        return take_sides(sets[number], index, bytes_kept=bytes_kept)

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        """Shuffle the batches by a seed; None keeps the order of the shards.

        Raises:
            ValueError: there is a seed, and the batches are streams.
        """
        order = np.arange(len(self))
        if seed is not None:
            if self.num_streams is not None:
                raise ValueError(
                    "shuffle=True conflicts with streams, whose state goes on from batch to batch: "
                    "pass shuffle=False"
                )
            order = shuffled(len(self), seed=seed, stream=BATCHES)
        return EpochPlan(range(len(self)), order, self._count_costs, self.num_streams)

    def open_shards(self) -> Sequence[ShardSet]:
        """Return the shard sets; in a spawned worker they are opened again."""
        if self._shards is None:
            opened = [open_shards(path) for path in self.paths]
            for folder, shards in zip(self._folders, opened, strict=True):
                folder.check_digest(shards.folder.digest)
            self._shards = self._choose(opened)
        return self._shards

    def _choose(self, opened: Sequence[ShardSet]) -> list[ShardSet]:
        """Return the shard sets with the columns that are read, and with the limits of one."""
        names = [*self.columns, *self._hidden]
        chosen = [shards.with_columns(names) for shards in opened]
        share_limits([side for shards in chosen for side in shards.sides])
        return chosen

    def _count_costs(self, cost: str) -> np.ndarray:
        """Return the costs of all batches, int64[batches]; maps one shard after another."""
        return np.concatenate(
            [
                sum(_count_costs(side.open_shard(number).tensors, cost) for side in shards.sides)
                for shards in self.open_shards()
                for number in range(shards.num_shards)
            ]
        )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_shards": None}  # a spawned worker opens its own maps


def _count_costs(tensors: Tensors, cost: str) -> np.ndarray:
    places = tensors["lengths"], tensors["sequence_offsets"]
    return count_costs(cost, np.diff(tensors["data_offsets"]), *places, tensors.get("widths"))
