"""Run `pack --split`: a whole shard set for each split, then the manifest that names them.

The shard sets lie in folders below that of the run, which holds them: one that was packed with
other options is replaced, since nobody else writes there. All splits are counted before the first
is packed, so that an empty one stops at once.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.splits import Splits, parse_splits
from seqpack_cli.errors import DataError, quote
from seqpack_cli.files.url import spell_place
from seqpack_cli.runs.open_run import RunOutput
from seqpack_cli.runs.split_folders import open_split_run
from seqpack_cli.runs.workers import Workers
from seqpack_cli.shards.pack_store import describe_run, note_substitute_pad_id, pack_store
from seqpack_cli.shards.recorded_options import APART, record_options
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.split_manifest import (
    FORMAT,
    FORMAT_VERSION,
    describe_shares,
    open_splits,
)
from seqpack_cli.shards.store_splits import make_splitter
from seqpack_cli.tokens.open_store import AnyStore


def pack_splits(
    store: AnyStore, options: PackOptions, workers: Workers, output: RunOutput
) -> tuple[dict[str, Any], bool]:
    """Pack every split of opened stores, each into its own folder.

    Args:
        options: resolved, with stores named by position.

    Returns:
        The manifest of the splits, and whether they were already complete.

    Raises:
        DataError: a split is empty.
    """
    started, splits = time.monotonic(), parse_splits(options)
    assert splits is not None  # noqa: S101 - the caller found splits
    head = _make_head(store, splits, options)
    entries = describe_splits(store, splits)
    with open_split_run(output, head, splits.names) as run:
        if run.manifest is not None:
            run.check_whole(open_splits)
            return run.manifest, True
        note_substitute_pad_id(store, options, workers)
        for entry in entries:
            _note_small(entry, options, workers)
        # the smallest first: it may be too small for the options
        for entry in sorted(entries, key=lambda entry: int(entry["num_tokens"])):
            some = replace(options, split_name=entry["name"])
            part = replace(output, folder=output.folder / entry["name"], within=run)
            pack_store(store, some, workers, part)
            entry["blake3"] = open_shards(part.folder).folder.digest
        stores = [{"path": spell_place(each.path, output.folder)} for each in store.stores]
        both = zip(stores, head["stores"], strict=True)
        manifest = {**head, "stores": [{**a, **b} for a, b in both], "splits": entries}
        seconds = time.monotonic() - started
        done = describe_run(sum(entry["num_tokens"] for entry in entries), workers, seconds)
        run.write_record(done, {"numpy": np.__version__})
        run.finish(manifest, [])
    return manifest, False


def _make_head(store: AnyStore, splits: Splits, options: PackOptions) -> dict[str, Any]:
    """Return the manifest's fields that are known before packing; a continued run must match."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "split_seed": splits.seed,
        "split_by": splits.by,
        "splits": [{"name": name, "share": share} for name, share in describe_shares(splits)],
        "stores": [
            {"blake3": each.digest, "num_sequences": len(each), "num_tokens": each.num_tokens}
            for each in store.stores
        ],
        "options": {**record_options(options), **{name: getattr(options, name) for name in APART}},
    }


def describe_splits(store: AnyStore, splits: Splits) -> list[dict[str, Any]]:
    """Count the documents, sequences and tokens of each split; raise DataError for an empty one."""
    find, counts = make_splitter(store, splits), np.zeros((3, len(splits.names)), np.int64)
    for part in range(store.num_parts):
        numbers, lengths = find(part), store.part_lengths(part)
        num_sequences = store.count_sequences(part)
        firsts = (np.cumsum(num_sequences) - num_sequences)[num_sequences > 0]
        for place, (some, weights) in enumerate(
            ((numbers[firsts], None), (numbers, None), (numbers, lengths))
        ):
            found = np.bincount(some, weights, minlength=len(splits.names))
            counts[place] += found.astype(np.int64)
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


def _note_small(entry: dict[str, Any], options: PackOptions, workers: Workers) -> None:
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
