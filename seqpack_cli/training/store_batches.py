"""Batches of a token store, planned anew in every epoch as `pack` plans them.

For corpora that are small enough to be laid out while training. The functions of `pack` shuffle and
sort in windows, limit rows or tokens, form buckets, or fill varlen rows. At the start of each epoch
planning takes about 0.2 s per million sequences; it takes 45 bytes per sequence while it runs and
12 until the epoch ends. The number of batches may differ between epochs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, overload

import numpy as np
from blake3 import blake3

from seqpack_cli.batching.pack_options import DEFAULT_BATCH_SIZE, PackOptions
from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.runs.arguments import convert
from seqpack_cli.shards.pack_plan import choose_pad_id, plan_store
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.training.chosen_columns import find_texts
from seqpack_cli.training.collate import OF_LAYOUT
from seqpack_cli.training.epoch_plan import EpochPlan
from seqpack_cli.training.labels import check_labels
from seqpack_cli.training.store_dataset import FILLER, Piece, StoreDataset


class StoreBatches:
    """The batches of a token store, for an EpochSampler and a DataLoader.

        batches = StoreBatches(dataset, PackOptions(max_tokens=8192, window=4096))
        sampler = EpochSampler(batches, seed=0)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=batches.make_collate())

    The batches of an epoch are those that `pack` makes with the options and the epoch's seed.

    Args:
        dataset: the sequences.
        options: as for `pack`, without `shuffle` and `seed`, which the sampler sets; `shard_bytes`
            is ignored.

    Raises:
        TypeError: dataset is a Subset or ConcatDataset: batches need the lengths of a whole store.
        ValueError: options has shuffle or seed.
        OptionError: options conflict, a condition does not apply to the store, or, when an epoch
            begins, a sequence does not fit.
    """

    is_fixed = False

    def __init__(self, dataset: StoreDataset, options: PackOptions) -> None:
        if not isinstance(dataset, StoreDataset):
            raise TypeError(
                f"dataset is a {type(dataset).__name__}, expected a StoreDataset: batches are "
                "planned from the lengths of a whole store; for a part of it use torch's samplers "
                "and a collate function"
            )
        convert("options", options, PackOptions)
        if options.shuffle is not None or options.seed:
            raise ValueError("options has shuffle or seed, which EpochSampler sets: leave them out")
        self.dataset = dataset
        self.options = replace(options, shuffle=False).resolve()
        described = f"{self._select().store.digest} {_describe(self.options)}"
        self.fingerprint = blake3(described.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"StoreBatches({self.dataset!r}, {_spell_options(self.options)})"

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        """Plan batches, shuffled by a seed; None keeps the order of pack."""
        shuffling = replace(self.options, shuffle=seed is not None, seed=seed or 0)
        source = self._select()
        plan = plan_store(source, shuffling)
        order, table = np.arange(plan.num_batches), plan.table
        (rows,) = plan.cut([0, len(order)])
        return EpochPlan(_BatchKeys(rows.find(source)), order, lambda: table.expand().num_cells)

    def make_collate(self, *, labels: str | None = None) -> Callable[..., Any]:
        """Return the function that lays out these batches, for DataLoader's `collate_fn`.

        Args:
            labels: as for ShardDataset.

        Raises:
            ValueError: the dataset has no such column, or it is text.
        """
        check_labels(labels, find_texts(self.dataset.columns))
        _, collate = OF_LAYOUT[self.options.layout]
        if not self.options.fills_rectangle:
            return functools.partial(collate, labels=labels)
        source, keys = self._select(), None
        if self.options.buckets is not None:
            # the keys depend on the lengths alone, which this order only counts
            sorting = replace(self.options, order="length", window=None)
            keys = plan_store(source, sorting).bucket_keys
        return functools.partial(
            collate,
            pad_id=choose_pad_id(source.store, self.options),
            padding_side=self.options.padding_side,
            pad_to_multiple=self.options.pad_to_multiple,
            bucket_keys=keys,
            labels=labels,
        )

    def _select(self) -> SelectedStore:
        return SelectedStore(self.dataset.open_store(), self.options)


class _BatchKeys(Sequence[list[int | Piece]]):
    """The keys with which each batch of a plan is read from a StoreDataset."""

    def __init__(self, rows: ShardRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows.batch_offsets) - 1

    @overload
    def __getitem__(self, index: int) -> list[int | Piece]: ...

    @overload
    def __getitem__(self, index: slice) -> list[list[int | Piece]]: ...

    def __getitem__(self, index: int | slice) -> list[int | Piece] | list[list[int | Piece]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        found = self._rows
        index = range(len(self))[index]
        rows = slice(*found.batch_offsets[index : index + 2].tolist())
        keys: list[int | Piece] = found.indices[rows].tolist()
        if found.piece_starts is not None:
            columns = (found.indices, found.piece_starts, found.lengths)
            pieces = zip(*(column[rows].tolist() for column in columns), strict=True)
            keys = [Piece(*piece) for piece in pieces]
        return keys + [FILLER] * int(found.num_filler_rows[index])


def _describe(options: PackOptions) -> str:
    """Name what decides on batches and differs from the defaults, in every version the same."""
    return repr(_find_chosen(options))


def _spell_options(options: PackOptions) -> str:
    """Spell the call that makes the options that decide on batches."""
    chosen = {"layout": options.layout, **_find_chosen(options)}
    return f"PackOptions({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"


def _find_chosen(options: PackOptions) -> dict[str, Any]:
    """Return the options that decide on batches and differ from the defaults."""
    default = asdict(replace(PackOptions(), batch_size=DEFAULT_BATCH_SIZE))
    left_out = ("shuffle", "seed", "shard_bytes")
    return {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.name not in left_out and getattr(options, field.name) != default[field.name]
    }
