"""Run `pack --split`: a whole shard set for each split, then the manifest that names them.

The shard sets lie in folders below that of the run, which holds them: one that was packed with
other options is replaced, since nobody else writes there. All splits are counted and planned before
the first is packed, so that an empty one, or a sequence that does not fit, stops at once.
"""

from __future__ import annotations

import functools
import time
from dataclasses import replace
from typing import Any

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions, Splits
from seqpack_cli.errors import DataError, quote
from seqpack_cli.files.places import spell_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.run_folder import RunOutput, open_split_run
from seqpack_cli.runs.workers import Workers
from seqpack_cli.shards.manifest import APART, record_options
from seqpack_cli.shards.pack_plan import choose_pad_id
from seqpack_cli.shards.pack_store import (
    describe_run,
    note_substitute_pad_ids,
    pack_store,
    plan_selected,
)
from seqpack_cli.shards.selection import PartSplits, Selector, make_splitter
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.split_set import (
    FIELDS_OF_SIDES,
    FORMAT,
    FORMAT_VERSION,
    describe_shares,
    open_splits,
)
from seqpack_cli.tokens.store import TokenStore


def pack_splits(
    select: Selector,
    options: ResolvedOptions,
    splits: Splits,
    workers: Workers,
    output: RunOutput,
) -> tuple[dict[str, Any], bool]:
    """Pack every split of opened stores, each into its own folder.

    Args:
        options: resolved, with stores named by position.

    Returns:
        The manifest of the splits, and whether they were already complete.

    Raises:
        DataError: a split is empty.
    """
    store = select.store  # whose documents decide
    for side in select.sides:
        choose_pad_id(side, options)  # raises before anything is written
    started = time.monotonic()
    head = _make_head(select, splits, options)
    find = functools.cache(make_splitter(store, splits))  # 2 bytes for each sequence
    entries = describe_splits(store, splits, find)
    # the smallest first: it may be too small for the options
    in_order = sorted(entries, key=lambda entry: int(entry["num_tokens"]))
    sources = [
        select(replace(options, split_name=entry["name"]), find_split=find) for entry in in_order
    ]
    plans = [plan_selected(source, workers) for source in sources]
    with open_split_run(output, head, splits.names) as run:
        if run.manifest is not None:
            run.check_whole(open_splits)
            return run.manifest, True
        note_substitute_pad_ids(sources[0], workers)
        for entry in entries:
            _note_small(entry, options, workers)
        for entry, source, plan in zip(in_order, sources, plans, strict=True):
            part = replace(output, folder=output.folder / entry["name"], within=run)
            pack_store(source, workers, part, plan)
            entry["blake3"] = open_shards(part.folder).folder.digest
        sides = zip(FIELDS_OF_SIDES, select.sides, strict=False)
        named = {field: _name_stores(side, head[field], output) for field, side in sides}
        manifest = {**head, **named, "splits": entries}
        seconds = time.monotonic() - started
        done = describe_run(sum(entry["num_tokens"] for entry in entries), workers, seconds)
        run.write_record(done, {"numpy": np.__version__})
        run.finish(manifest, [])
    return manifest, False


def _name_stores(
    store: TokenStore, entries: list[dict[str, Any]], output: RunOutput
) -> list[dict[str, Any]]:
    """Return the entries of the stores of a side with their paths."""
    paths = [{"path": spell_place(each.path, output.folder)} for each in store.folders]
    return [{**path, **entry} for path, entry in zip(paths, entries, strict=True)]


def _make_head(select: Selector, splits: Splits, options: ResolvedOptions) -> dict[str, Any]:
    """Return the manifest's fields that are known before packing; a continued run must match."""
    of_sides = [
        [
            {
                "blake3": each.digest,
                "num_sequences": each.num_sequences,
                "num_tokens": each.num_tokens,
            }
            for each in side.folders
        ]
        for side in select.sides
    ]
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "split_seed": splits.seed,
        "split_by": splits.by,
        "splits": [{"name": name, "share": share} for name, share in describe_shares(splits)],
        **dict.fromkeys(FIELDS_OF_SIDES),
        **dict(zip(FIELDS_OF_SIDES, of_sides, strict=False)),
        "options": {**record_options(options), **{name: getattr(options, name) for name in APART}},
    }


def describe_splits(
    store: TokenStore, splits: Splits, find: PartSplits | None = None
) -> list[dict[str, Any]]:
    """Count the documents, sequences and tokens of each split; raise DataError for an empty one.

    Args:
        find: finds the splits of a part, if they are known.
    """
    find, counts = find or make_splitter(store, splits), np.zeros((3, len(splits.names)), np.int64)
    for part in range(store.num_parts):
        numbers, num_sequences = find(part), store.count_sequences(part)
        counts[1] += _count(numbers, len(splits.names))
        counts[2] += _count(numbers, len(splits.names), store.part_lengths(part))
        if not (num_sequences == 1).all():
            numbers = numbers[(np.cumsum(num_sequences) - num_sequences)[num_sequences > 0]]
        counts[0] += _count(numbers, len(splits.names))
        store.let_pages_go()  # 28 bytes for each document
    names = ("num_documents", "num_sequences", "num_tokens")
    entries = [
        {"name": name, "share": share, **dict(zip(names, column, strict=True))}
        for (name, share), column in zip(describe_shares(splits), counts.T.tolist(), strict=True)
    ]
    for entry in entries:
        if not entry["num_sequences"]:
            total = int(counts[0].sum())
            hint = "pass a larger share to --split, or another --split-seed"
            if splits.shares is None:
                hint = f"leave out {entry['name']}: column {quote(splits.by)} has no such value"
            raise DataError(
                f"{store.shown_path}: split {quote(entry['name'])} is empty: none of {total:,} "
                "documents is in it",
                hint=hint,
            )
    return entries


def _count(numbers: np.ndarray, num_splits: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Count what is in each split, or add up its weights."""
    found = np.zeros(num_splits, np.int64)
    size = LIMITS.entries_per_block
    for start in range(0, len(numbers), size):
        rows = slice(start, start + size)
        some = None if weights is None else weights[rows]
        found += np.bincount(numbers[rows], some, num_splits).astype(np.int64)
    return found


def _note_small(entry: dict[str, Any], options: ResolvedOptions, workers: Workers) -> None:
    """Tell of a split that is too small to fill a batch."""
    name, num_sequences, num_tokens = (
        entry[field] for field in ("name", "num_sequences", "num_tokens")
    )
    small = None
    if options.batch_size is not None and num_sequences < options.batch_size:
        small = f"{num_sequences:,} sequences, fewer than --batch-size {options.batch_size:,}"
    elif options.max_tokens is not None and num_tokens < options.max_tokens:
        small = f"{num_tokens:,} tokens, fewer than --max-tokens {options.max_tokens:,}"
    if small is not None:
        workers.progress.on_notice(f"split {quote(name)} does not fill a batch: it has {small}")
