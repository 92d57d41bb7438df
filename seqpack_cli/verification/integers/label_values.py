"""Compare the labels that training makes of batches with those that follow from the token store.

A label must be the id of the next token of its row ("next"), or of its own ("same"), if that token
is a target and not the first of its row, else -100; padding has -100. What is expected is made row
by row, for many batches at once, from the ids of the store and from the targets of the shard, which
were compared before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from seqpack_cli.errors import quote
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.arrays import ShardArrays
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.store import Slices, TokenStore, copy_rows
from seqpack_cli.training.labels import IGNORED, NEXT, SAME, make_labels
from seqpack_cli.verification.device import NUM_READERS
from seqpack_cli.verification.findings import Finding

LEVEL = "roundtrip"
MakeLabels = Callable[[Batch, str], np.ndarray]


@dataclass(frozen=True)
class CheckedLabels:
    """What was found in the labels of some batches."""

    num_tokens: int
    num_targets: int
    findings: list[Finding]


def check_labels(
    shard: Shard, store: TokenStore, batches: np.ndarray, *, make: MakeLabels = make_labels
) -> Iterator[CheckedLabels]:
    """Check the labels of some batches, span by span.

    Args:
        shard: one that passed the round trip.
        batches: their numbers in the shard, rising.
        make: what makes the labels of a batch.
    """
    # The more rows of the store are read together, the less each takes.
    ends = np.cumsum(np.diff(shard.tensors["data_offsets"])[batches]) // LIMITS.ids_per_block
    apart = np.flatnonzero((np.diff(ends) > 0) | (np.diff(batches) > 1)) + 1
    spans = [(int(some[0]), int(some[-1]) + 1) for some in np.split(batches, apart) if len(some)]
    yield from map_ahead(
        lambda span: _check_span(shard, store, *span, make), spans, num_threads=NUM_READERS
    )


def _check_span(
    shard: Shard, store: TokenStore, first: int, last: int, make: MakeLabels
) -> CheckedLabels:
    """Check the batches from first to last - 1."""
    arrays = shard.arrays.cut(first, last)
    rows = np.flatnonzero(arrays.tensors["lengths"] > 0)
    offsets, cells = to_offsets(arrays.tensors["lengths"][rows]), arrays.find_cells(rows)
    same = _read_ids(arrays, store, rows, offsets)
    if TARGETS in shard.columns:
        targets = arrays.tensors[shard.columns[TARGETS].tensor_name]
        same[targets[cells] == 0] = IGNORED
    num_targets = int(np.count_nonzero(same != IGNORED))
    same[offsets[:-1]] = IGNORED  # nothing stands before it
    following = np.append(same[1:], IGNORED)
    following[offsets[1:] - 1] = IGNORED
    if "next_ids" in arrays.tensors:  # compared with the store at level `structure`
        goes_on = np.flatnonzero(arrays.tensors["next_ids"][rows] >= 0)
        following[offsets[1:][goes_on] - 1] = arrays.tensors["next_ids"][rows][goes_on]
    findings = []
    for labels, expected in ((NEXT, following), (SAME, same)):
        some = [make(arrays.view(batch), labels).reshape(-1) for batch in range(last - first)]
        made = np.concatenate(some)
        for batch, row, what in _find_wrong(arrays, rows, cells, made, expected):
            number = shard.first_batch + first + batch
            what = f"labels {quote(labels)}: {what}"
            findings.append(Finding(LEVEL, shard.path.name, what, number, row))
    return CheckedLabels(len(same), num_targets, findings)


def _read_ids(
    arrays: ShardArrays, store: TokenStore, rows: np.ndarray, offsets: np.ndarray
) -> np.ndarray:
    """Return the ids of some rows from the store, int64, one row after another."""
    indices = arrays.tensors["original_indices"][rows]
    ids = np.empty(int(offsets[-1]), store.dtype)  # a cast on the way takes longer
    slices = Slices(indices, np.diff(offsets), arrays.piece_starts[rows])
    copy_rows(store, slices, ids, offsets[:-1])
    return ids.astype(np.int64)


def _find_wrong(
    arrays: ShardArrays,
    rows: np.ndarray,
    cells: np.ndarray,
    made: np.ndarray,
    expected: np.ndarray,
) -> Iterator[tuple[int, int | None, str]]:
    """Yield batch, row and what is wrong: of each batch the first wrong row, or its padding.

    Args:
        cells: of the tokens, row after row.
        made: a label for each cell.
        expected: a label for each token.
    """
    found = made[cells]
    wrong = np.flatnonzero(found != expected)
    offsets = to_offsets(arrays.tensors["lengths"][rows])
    inside = np.searchsorted(offsets, wrong, "right") - 1
    batches, firsts = np.unique(arrays.batch_of_rows[rows[inside]], return_index=True)
    for batch, first in zip(batches.tolist(), firsts.tolist(), strict=True):
        place, number = int(wrong[first]), int(inside[first])
        step = place - int(offsets[number])
        what = f"{found[place]} at step {step}, expected {expected[place]}"
        yield batch, arrays.find_batch(int(rows[number]))[1], what
    if np.count_nonzero(made != IGNORED) > np.count_nonzero(found != IGNORED):
        made[cells] = IGNORED
        wrong = np.flatnonzero(made != IGNORED)
        inside = np.searchsorted(arrays.tensors["data_offsets"], wrong, "right") - 1
        batches, firsts = np.unique(inside, return_index=True)
        for batch, first in zip(batches.tolist(), firsts.tolist(), strict=True):
            yield batch, None, f"{made[wrong[first]]} in padding, expected {IGNORED}"
