"""What the manifest says that pack was told of every batch: sizes, budgets, buckets, lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from seqpack_cli.shards.shard_manifest import read_max_tokens
from seqpack_cli.verification.integers.batch_table import BatchTable


def check_promises(batches: BatchTable, manifest: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield (batch, what) for every batch that breaks a limit which pack was told.

    Args:
        batches: sound ones; the batch is yielded by its place here.
    """
    options, layout = manifest["options"], manifest["layout"]
    yield from _check_most(batches.num_rows, options.get("batch_size"), "{} rows")
    if layout != "varlen":  # whose rows may be pieces
        least = options.get("min_length")
        if type(least) is int:
            for place in np.flatnonzero(batches.shortest < least).tolist():
                found = batches.shortest[place]
                yield place, f"a row of {found} tokens, pack was told {least} at least"
        yield from _check_most(batches.longest, options.get("max_length"), "a row of {} tokens")
        yield from _check_buckets(batches, manifest["bucket_keys"])
    yield from _check_most(batches.num_cells, read_max_tokens(manifest), "{} cells", "tokens ")
    if layout == "padded":
        yield from _check_widths(batches, options, manifest["bucket_keys"])


def _check_most(
    found: np.ndarray, most: object, name: str, unit: str = ""
) -> Iterator[tuple[int, str]]:
    if type(most) is int:
        for place in np.flatnonzero(found > most).tolist():
            yield place, f"{name.format(found[place])}, pack was told {most} {unit}at most"


def _check_buckets(batches: BatchTable, keys: object) -> Iterator[tuple[int, str]]:
    if not isinstance(keys, list):
        return
    edges = np.unique(np.array([key for key in keys if abs(key) < 2**62], np.int64))
    apart = np.searchsorted(edges, batches.shortest) != np.searchsorted(edges, batches.longest)
    for place in np.flatnonzero(apart).tolist():
        shortest, longest = batches.shortest[place], batches.longest[place]
        yield place, f"rows of {shortest} and {longest} tokens belong to other buckets"


def _check_widths(
    batches: BatchTable, options: dict[str, Any], keys: object
) -> Iterator[tuple[int, str]]:
    widths = batches.num_cells // batches.num_rows
    if isinstance(keys, list):
        for place in np.flatnonzero(~np.isin(widths, keys)).tolist():
            yield place, f"width {widths[place]} is none of the bucket keys"
    multiple = options.get("pad_to_multiple")
    if type(multiple) is int and multiple > 0:
        for place in np.flatnonzero(widths % min(multiple, 2**62)).tolist():
            yield place, f"width {widths[place]} is no multiple of {multiple}"
