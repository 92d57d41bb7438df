"""Choose buckets for pairs: a key (a, b) is the length to which each side of a pair is padded.

Keys are chosen on a grid of at most 256 lengths per side. First each kind of pair has its own key;
then the two keys that need the fewest cells more as one are joined, until few enough are left; last
each key moves to a better place near by. All in integers: the same keys on every machine. Takes
0.4 s for 256 keys and 1 to 2 s for 1,024, and 10 ns per pair; memory for the grid only, a few MB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from seqpack_cli.batching.buckets import choose_buckets
from seqpack_cli.batching.length_counts import LengthCounts, count_lengths
from seqpack_cli.batching.pair_keys import Grid, find_best, join_keys, move_keys, tighten_keys
from seqpack_cli.errors import check_positive
from seqpack_cli.limits import LIMITS

BATCHES_PER_BUCKET = 5  # as many keys need about as little padding as length order without keys
MIN_BUCKETS = 8  # however few batches there are
MAX_DISTINCT = 2048  # lengths of a side, of which the candidates are chosen
MAX_CANDIDATES = 256  # lengths of a side
KINDS_PER_KEY, MIN_KINDS = 4, 2048  # with more, joining takes longer and saves next to nothing


def choose_num_pair_buckets(num_batches: int) -> int:
    """Return how many keys are worth while: the last batch of each is not full.

    Args:
        num_batches: of the same pairs without keys.

    >>> choose_num_pair_buckets(10), choose_num_pair_buckets(1_000)
    (8, 200)
    """
    return max(num_batches // BATCHES_PER_BUCKET, MIN_BUCKETS)


def choose_pair_buckets(
    encoder_lengths: np.ndarray, decoder_lengths: np.ndarray, num_buckets: int, *, multiple: int = 1
) -> list[tuple[int, int]]:
    """Choose keys for pairs that need few cells on both sides together.

    Args:
        encoder_lengths: of each pair, int32[N], at least 1.
        decoder_lengths: of each pair, int32[N], at least 1.
        num_buckets: the maximum; there are fewer if there are fewer kinds of pairs.
        multiple: of which all keys are multiples.

    Returns:
        Keys (encoder, decoder) in ascending order; each pair fits into at least one.

    >>> choose_pair_buckets(np.array([1, 2, 9, 9]), np.array([2, 2, 3, 8]), 3)
    [(2, 2), (9, 3), (9, 8)]
    """
    check_positive("num_buckets", num_buckets)
    check_positive("multiple", multiple)
    if len(encoder_lengths) == 0:
        return []
    grid = _count_pairs(
        (encoder_lengths, decoder_lengths),
        _choose_candidates(encoder_lengths, multiple),
        _choose_candidates(decoder_lengths, multiple),
    )
    grid = _coarsen(grid, max(MIN_KINDS, KINDS_PER_KEY * num_buckets))
    places = move_keys(grid, join_keys(grid, num_buckets))
    return [(int(grid.encoder[i]), int(grid.decoder[j])) for i, j in tighten_keys(grid, places)]


def find_pair_buckets(
    encoder_lengths: np.ndarray, decoder_lengths: np.ndarray, keys: Sequence[tuple[int, int]]
) -> np.ndarray:
    """Return the number of the key that holds each pair in the fewest cells, the first of equals.

    Args:
        encoder_lengths: of each pair, int32[N].
        decoder_lengths: of each pair, int32[N].
        keys: in ascending order.

    Returns:
        int64[N], len(keys) where no key holds the pair.

    >>> keys = [(2, 9), (4, 4), (9, 9)]
    >>> find_pair_buckets(np.array([2, 2, 5, 10]), np.array([4, 5, 1, 1]), keys).tolist()
    [1, 0, 2, 3]
    """
    found = np.zeros(len(encoder_lengths), np.int64)
    if not keys:
        return found
    sides = np.array(keys, np.int64).T
    (encoder, rows), (decoder, columns) = (np.unique(side, return_inverse=True) for side in sides)
    best = find_best(encoder, decoder, list(zip(rows.tolist(), columns.tolist(), strict=True)))
    best = np.pad(best, ((0, 1), (0, 1)), constant_values=len(keys)).ravel()
    for start, cells in _iter_cells((encoder_lengths, decoder_lengths), encoder, decoder):
        found[start : start + len(cells)] = best[cells]
    return found


def _choose_candidates(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """Choose the lengths that keys of one side may have, the longest among them."""
    distinct = count_lengths([lengths])
    step = -(-len(distinct.lengths) // MAX_DISTINCT)
    starts = np.arange(0, len(distinct.lengths), step)  # the longest of each group
    rounded = -(-distinct.lengths[starts] // multiple) * multiple
    counts = LengthCounts(rounded, np.add.reduceat(distinct.counts, starts))
    return np.array(choose_buckets(counts, MAX_CANDIDATES), np.int64)


def _count_pairs(
    pairs: tuple[np.ndarray, np.ndarray], encoder: np.ndarray, decoder: np.ndarray
) -> Grid:
    shape = (len(encoder) + 1, len(decoder) + 1)
    counts = np.zeros(shape[0] * shape[1], np.int64)
    for _, cells in _iter_cells(pairs, encoder, decoder):
        counts += np.bincount(cells, minlength=len(counts))
    return Grid(encoder, decoder, counts.reshape(shape)[:-1, :-1])


def _iter_cells(
    pairs: tuple[np.ndarray, np.ndarray], encoder: np.ndarray, decoder: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first pair of each block, and the cell of each of its pairs.

    A cell is numbered row by row on a grid with one row and one column more than there are
    lengths: those are for sides that are longer than all.
    """
    size = LIMITS.entries_per_block
    for start in range(0, len(pairs[0]), size):
        rows, columns = (
            _find_places(lengths[start : start + size], known)
            for lengths, known in zip(pairs, (encoder, decoder), strict=True)
        )
        yield start, rows * (len(decoder) + 1) + columns


def _find_places(lengths: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return for each length the place of the smallest known length that holds it."""
    if known[-1] >= LIMITS.table_lengths:
        return np.searchsorted(known, lengths)
    table = np.searchsorted(known, np.arange(known[-1] + 2))
    places: np.ndarray = table[np.minimum(lengths, known[-1] + 1)]
    return places


def _coarsen(grid: Grid, most: int) -> Grid:
    """Choose fewer candidates until at most that many kinds of pairs are left."""
    while (num_kinds := len(grid.kinds[0])) > most:
        num_candidates = math.isqrt(max(grid.counts.shape) ** 2 * most // num_kinds)
        counts, chosen = grid.counts, []
        for axis, lengths in enumerate((grid.encoder, grid.decoder)):
            rows = LengthCounts(lengths, counts.sum(1 - axis))
            keys = np.array(choose_buckets(rows, num_candidates), np.int64)
            starts = np.concatenate([[0], np.searchsorted(lengths, keys[:-1]) + 1])
            counts = np.add.reduceat(counts, starts, axis=axis)
            chosen.append(keys)
        grid = Grid(chosen[0], chosen[1], counts)
    return grid
