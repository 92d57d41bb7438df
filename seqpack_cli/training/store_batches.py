"""Batches of token stores, planned anew in every epoch as `pack` plans them.

For corpora that are small enough to be laid out while training. The functions of `pack` select,
shuffle and sort in windows, limit rows or tokens, form buckets, or fill varlen rows. At the start
of each epoch planning takes about 0.2 s per million sequences; it takes 45 bytes per sequence while
it runs and 12 until the epoch ends. The number of batches may differ between epochs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from blake3 import blake3

from seqpack_cli.batching.options import (
    DEFAULT_BATCH_SIZE,
    PackOptions,
    ResolvedOptions,
)
from seqpack_cli.errors import OptionError
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.options import checks_arguments, convert
from seqpack_cli.shards.pack_plan import choose_pad_id, plan_store
from seqpack_cli.shards.selection import Selection, name_by_position
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.conditions import Label
from seqpack_cli.tokens.store import check_dropped, name_stores
from seqpack_cli.training import batch_costs
from seqpack_cli.training.batch_keys import BatchKeys
from seqpack_cli.training.chosen_columns import find_texts, list_class_names
from seqpack_cli.training.collate import OF_LAYOUT, collate_each
from seqpack_cli.training.epoch_plan import EpochPlan
from seqpack_cli.training.labels import IGNORED, check_labels
from seqpack_cli.training.store_dataset import StoreDataset
from seqpack_cli.training.token_sequences import TokenSequence, TokenSequences

IGNORED_OPTIONS = ("shuffle", "seed", "shard_bytes")
COLUMN_OPTIONS = ("drop_column", "store_column")  # they decide on no batch, but for targets


class StoreBatches:
    """The batches of one or several token stores, for an EpochSampler and a DataLoader.

        batches = StoreBatches(dataset, PackOptions(max_tokens=8192, window=4096))
        sampler = EpochSampler(batches, seed=0)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=batches.make_collate())

    The batches of an epoch are those that `pack` makes with the options and the epoch's seed. So a
    fraction of a pass takes other documents in each epoch; with `EpochSampler(shuffle=False)` it
    takes the same ones, those of seed 0.

    Args:
        dataset: the sequences.
        options: as for `pack`, without `shuffle` and `seed`, which the sampler sets; `split` needs
            `split_name`; `shard_bytes` is ignored.

    Raises:
        TypeError: dataset is a Subset or ConcatDataset: batches need the lengths of a whole store.
        ValueError: options has shuffle or seed, or split without split_name, or buckets would have
            other keys in each epoch.
        OptionError: options conflict, the layout is "streams", a condition does not apply to the
            store, or, when an epoch begins, a sequence does not fit.
        DataError: the store has a value that names no split.
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
        self.dataset = dataset
        self.options = _resolve(options, dataset)
        self._source: Selection | None = None
        source = self._select()
        _check_keys(source)
        shown = {*dataset.columns, self.options.store_column}
        self.columns: Mapping[str, Column] = {
            name: column for name, column in source.store.columns.items() if name in shown
        }
        described = f"{source.store.digest} {_describe(self.options)}"
        self.fingerprint = blake3(described.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"StoreBatches({self.dataset!r}, {_spell_options(self.options)})"

    @checks_arguments
    def class_names(self, column: str) -> list[Label]:
        """Return the names of the classes of a column, by class id; of `store_column` the stores.

        Raises:
            ValueError: there is no such column, or it has no classes.
        """
        return list_class_names(self.columns, column)

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        """Plan batches, shuffled by a seed; None keeps the order of pack."""
        shuffling = replace(self.options, shuffle=seed is not None, seed=seed or 0).resolve()
        source = self._select().with_seed(shuffling.seed)
        plan = plan_store(source, shuffling)
        order, table = np.arange(plan.num_batches), plan.table
        rows = plan.find(source)

        def count_costs(cost: str) -> np.ndarray:
            widths = table.expand().widths if self.options.fills_rectangle else None
            places = rows.lengths, rows.batch_offsets
            return batch_costs.count_costs(cost, rows.num_cells, *places, widths)

        return EpochPlan(BatchKeys(rows), order, count_costs)

    def make_collate(self, *, labels: str | None = None) -> Callable[..., Any]:
        """Return the function that lays out these batches, for DataLoader's `collate_fn`.

        With `batch_sampler=BatchSampler(sampler, 16, drop_last=False)` it returns lists of batches.

        Args:
            labels: as for ShardDataset.

        Raises:
            ValueError: there is no such column, or it is text.
        """
        check_labels(labels, find_texts(self.columns))
        _, collate = OF_LAYOUT[self.options.layout]
        assert collate is not None  # noqa: S101 - checked at the beginning
        lay_out: Callable[..., Any] = functools.partial(collate, labels=labels)
        if self.options.pads_rows:
            find_padding = self._fill_rows if self.options.shares_rows else self._pad_rows
            lay_out = functools.partial(lay_out, **find_padding())
        name, dropped = self.options.store_column, self.options.drop_column
        if name is not None or dropped:
            change = functools.partial(_change_columns, dropped=dropped, store_column=name)
            offsets = to_offsets([each.num_sequences for each in self._select().store.folders])
            lay_out = functools.partial(change, lay_out=lay_out, offsets=offsets)
        return functools.partial(collate_each, lay_out=lay_out)

    def _fill_rows(self) -> dict[str, Any]:
        """Return the shape and the padding of rows that sequences share."""
        options, has_rows = self.options, self.options.batch_size is not None
        return {
            "row_length": options.max_tokens if has_rows else None,
            "num_rows": options.batch_size if options.last_batch == "pad" else None,
            "align_sequences": options.align_sequences,
            "pad_id": choose_pad_id(self._select().store, options),
        }

    def _pad_rows(self) -> dict[str, Any]:
        """Return the widths and the padding of rectangles with a row for each sequence."""
        source, keys = self._select(), None
        if self.options.buckets is not None:
            # the keys depend on the lengths alone, which this order only counts
            sorting = replace(self.options, order="length", window=None)
            keys = plan_store(source, sorting).bucket_keys
        return {
            "pad_id": choose_pad_id(source.store, self.options),
            "padding_side": self.options.padding_side,
            "pad_to_multiple": self.options.pad_to_multiple,
            "bucket_keys": keys,
        }

    def _select(self) -> Selection:
        """Return what the options select; splits and conditions are evaluated once."""
        if self._source is None:
            self._source = Selection(self.dataset.open_store(), self.options)
        return self._source

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}  # another process opens the stores again


def _resolve(options: PackOptions, dataset: StoreDataset) -> ResolvedOptions:
    """Check options; return them resolved, with stores named by position."""
    if options.shuffle is not None or options.seed:
        raise ValueError("options has shuffle or seed, which EpochSampler sets: leave them out")
    resolved = replace(options, shuffle=False).resolve()
    if resolved.carries_state:
        raise OptionError(
            f"layout is {options.layout!r}, which needs shards: its batches keep one order, while "
            "StoreBatches plans new ones for each epoch",
            hint="pack the store with the same options, and open the shards with ShardDataset",
        )
    if resolved.split is not None and resolved.split_name is None:
        names = " or ".join(map(repr, resolved.split_shares))
        raise ValueError(f"options has split without split_name, expected {names}")
    check_dropped(dataset.open_store(), options.drop_column)
    places = dataset.paths
    return name_by_position(resolved, name_stores(places))


def _check_keys(source: Selection) -> None:
    """Refuse bucket keys that are chosen from documents of which each epoch takes others."""
    has_fraction = any(passes.denominator > 1 for passes in source.passes)
    if source.options.buckets == "auto" and has_fraction:
        raise ValueError(
            "buckets is 'auto', which has other keys in each epoch if passes or share take a part "
            "of a store: expected lengths, such as [32, 64]"
        )


def _change_columns(
    sequences: Sequence[TokenSequence],
    *,
    lay_out: Callable[..., Any],
    dropped: Sequence[str],
    store_column: str | None,
    offsets: np.ndarray,
) -> Any:
    """Lay out sequences without some columns, and with the number of the store of each.

    Args:
        offsets: the first sequence of each store, and the number of all.
    """
    rows = TokenSequences.join(sequences)
    kept = {name: values for name, values in rows.columns.items() if name not in dropped}
    beside = {name: values for name, values in rows.token_columns.items() if name not in dropped}
    if store_column is not None:
        numbers = np.searchsorted(offsets, rows.original_indices, "right") - 1
        kept[store_column] = np.where(rows.original_indices < 0, IGNORED, numbers)
    return lay_out(replace(rows, columns=kept, token_columns=beside))


def _describe(options: PackOptions) -> str:
    """Name what decides on batches and differs from the defaults, in every version the same."""
    found = _find_chosen(options, COLUMN_OPTIONS)
    if TARGETS in options.drop_column:  # then no sequence is dropped for want of a target
        found["drop_column"] = (TARGETS,)
    return repr(found)


def _spell_options(options: PackOptions) -> str:
    """Spell the call that makes the options that decide on batches or their columns."""
    chosen = {"layout": options.layout, **_find_chosen(options)}
    return f"PackOptions({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"


def _find_chosen(options: PackOptions, left_out: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options that differ from the defaults, apart from some."""
    default = asdict(replace(PackOptions(), batch_size=DEFAULT_BATCH_SIZE))
    names = [each.name for each in fields(options) if each.name not in IGNORED_OPTIONS]
    found = {name: getattr(options, name) for name in names if name not in left_out}
    return {name: value for name, value in found.items() if value != default[name]}
