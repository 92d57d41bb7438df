"""Damages to the pairs of a shard in memory: each side stays sound, only the pairs are wrong.

As in `damages`, each takes a sound shard, here the decoder's side, and returns copies of the arrays
that change, or None if it cannot have such a damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.batch_damages import MAX_BATCHES, exchange_batches
from seqpack_cli.verification.column_damages import Arrays, find_real_rows, to_arrays
from seqpack_cli.verification.damages import Damage
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.coverage import Coverage
from seqpack_cli.verification.integers.pair_documents import Documents, compare_documents
from seqpack_cli.verification.integers.pair_structure import check_pairs
from seqpack_cli.verification.integers.structure import check_batches, mark_rows
from seqpack_cli.verification.integers.totals import check_counts
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.options import LEVELS
from seqpack_cli.verification.report import Control


def swap_pairs(shard: Shard) -> Arrays | None:
    """Pair two rows of a batch with each other's row of the encoder."""
    rows, batches = find_real_rows(shard), shard.arrays.batch_of_rows
    lengths, matched = shard.tensors["lengths"], shard.tensors.get("encoder_rows")
    is_possible = batches[rows[1:]] == batches[rows[:-1]]
    if matched is not None:  # rows of one length are in the order of the encoder's
        is_possible &= lengths[rows[1:]] != lengths[rows[:-1]]
    if not is_possible.any():
        return None
    place = int(is_possible.argmax())
    pair = rows[place : place + 2].tolist()
    if matched is None:
        return _swap_rows(shard, pair)
    matched = matched.copy()
    matched[pair] = matched[pair[::-1]]
    return {"encoder_rows": matched[np.lexsort((matched, -lengths, batches))]}


def repeat_encoder_row(shard: Shard) -> Arrays | None:
    """Pair two rows of a batch with the same row of the encoder."""
    batches = np.flatnonzero(shard.arrays.num_rows > 1)
    if not len(batches):
        return None
    first = int(shard.tensors["sequence_offsets"][batches[0]])
    matched = shard.tensors["encoder_rows"].copy()
    matched[first + 1] = matched[first]
    return {"encoder_rows": matched}


def swap_decoder_batches(shard: Shard) -> Arrays | None:
    """Swap two neighboring batches with as many rows, but other sequences."""
    sizes = shard.arrays.num_rows, shard.arrays.num_filler_rows
    is_same = np.logical_and.reduce([each[1:] == each[:-1] for each in sizes])
    for first in np.flatnonzero(is_same)[:MAX_BATCHES].tolist():
        both = (shard.view(number).original_indices for number in (first, first + 1))
        if len({tuple(sorted(indices.tolist())) for indices in both if indices is not None}) > 1:
            return exchange_batches(shard, first)
    return None


PAIR_DAMAGES = (
    Damage("swapped pairs", "roundtrip", swap_pairs),
    Damage("duplicate encoder row", "structure", repeat_encoder_row, needs="encoder_rows"),
    Damage("swapped decoder batches", "roundtrip", swap_decoder_batches),
)


def control_pairs(
    runs: Sequence[Verification], sides: Sequence[Shard], stores: Sequence[TokenStore]
) -> Iterator[Control]:
    """Damage the pairs of a shard, and check that each damage is found at its level.

    Args:
        runs, sides: of the encoder and of the decoder.
        stores: of both; none without them.
    """
    encoder, decoder = sides
    documents = list(map(Documents, stores))
    for damage in PAIR_DAMAGES:
        if damage.level not in runs[1].options.levels or not damage.belongs_to(decoder):
            continue
        changed = damage.change(decoder)
        if changed is None:
            yield Control(damage.name, damage.level, None, "")
            continue
        damaged = decoder.with_tensors({**decoder.tensors, **changed})
        found = next(_find(runs[1], encoder, damaged, documents), None)
        levels = LEVELS[: LEVELS.index(damage.level) + 1]  # a limit may show it before
        is_caught = found is not None and found.level in levels
        yield Control(
            damage.name, damage.level, is_caught, "nothing" if found is None else found.what
        )


def _find(
    run: Verification, encoder: Shard, decoder: Shard, documents: Sequence[Documents]
) -> Iterator[Finding]:
    """Yield the findings in a damaged decoder's side, checksums and the plan left out."""
    options, manifest = run.shards.options, run.shards.manifest
    found, batches = check_batches(decoder, max_tokens=options.max_tokens)
    yield from found
    yield from mark_rows(decoder, Coverage.of_stores(manifest["stores"]))
    yield from check_counts(decoder.path.name, decoder.entry, batches)
    yield from check_pairs([encoder, decoder], options, manifest["bucket_keys"])
    if documents:
        yield from compare_documents([encoder, decoder], documents)


def _swap_rows(shard: Shard, pair: list[int]) -> Arrays:
    """Swap two rows of a rectangle in all arrays."""
    order = np.arange(len(shard.tensors["lengths"]))
    order[pair] = order[pair[::-1]]
    changed: Arrays = {name: shard.tensors[name][order] for name in ("lengths", "original_indices")}
    cells = _find_row_cells(shard, pair)
    of_tokens = [column.tensor_name for column in shard.columns.values() if column.is_per_token]
    for name in ("data", *of_tokens):
        changed[name] = shard.tensors[name].copy()
        changed[name][np.concatenate(cells)] = shard.tensors[name][np.concatenate(cells[::-1])]
    for column in shard.columns.values():
        if not column.is_per_token:
            changed |= to_arrays(column, column.view(shard.tensors).take(order))
    return changed


def _find_row_cells(shard: Shard, rows: list[int]) -> list[np.ndarray]:
    """Return all cells of some rows of a rectangle, with padding."""
    batch, _ = shard.arrays.find_batch(rows[0])
    first_row = int(shard.tensors["sequence_offsets"][batch])
    start, end = shard.tensors["data_offsets"][batch : batch + 2].tolist()
    width = (end - start) // int(shard.arrays.num_rows[batch])
    return [start + (row - first_row) * width + np.arange(width) for row in rows]
