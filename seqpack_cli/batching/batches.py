"""Lengths in order -> where each batch begins.

A batch is cut by a number of rows, by a budget of tokens, or by whichever comes first. The budget
counts what the device computes: real tokens, or all cells of the rectangle for padded rows. Rows
alone cost nothing to cut; a budget costs about 0.1 us a sequence, or 2 us a run of equal lengths.
"""

from __future__ import annotations

from array import array

import numpy as np

from seqpack_cli.errors import check_positive

ROWS_PER_BLOCK = 1 << 16  # taken out of numpy at a time, which bounds the memory


def cut_batches(
    lengths: np.ndarray,
    *,
    batch_size: int | None,
    max_tokens: int | None = None,
    padded: bool = False,
) -> np.ndarray:
    """Cut sequences, in the order given, into batches.

    Args:
        lengths: integers, one per sequence, in batching order; of padded rows the widths that
            they need.
        batch_size: rows of a batch at most.
        max_tokens: tokens of a batch at most; no sequence may be longer.
        padded: a batch costs rows x longest, not the sum of its lengths.

    Returns:
        int64[batches + 1]: batch b holds the sequences [b] up to [b + 1].

    Raises:
        ValueError: there is no limit, or a sequence is longer than max_tokens.

    >>> cut_batches(np.array([4, 3, 3, 1]), batch_size=None, max_tokens=7).tolist()
    [0, 2, 4]
    >>> cut_batches(np.array([4, 3, 3, 1]), batch_size=None, max_tokens=7, padded=True).tolist()
    [0, 1, 3, 4]
    """
    check_positive("batch_size", batch_size)
    check_positive("max_tokens", max_tokens)
    if batch_size is None and max_tokens is None:
        raise ValueError("expected batch_size, max_tokens or both")
    num_sequences = len(lengths)
    if max_tokens is None or num_sequences == 0:
        step = batch_size or num_sequences
        return np.append(np.arange(0, num_sequences, max(step, 1)), num_sequences)
    if int(lengths.max()) > max_tokens:
        raise ValueError(f"a sequence of {int(lengths.max())} tokens, max_tokens is {max_tokens}")
    cut = _cut_by_cells if padded else _cut_by_tokens
    starts = cut(lengths, batch_size or num_sequences, max_tokens)
    return np.append(np.frombuffer(starts, np.int64), num_sequences)


def cut_runs(
    lengths: np.ndarray,
    counts: np.ndarray,
    *,
    batch_size: int | None,
    max_tokens: int | None = None,
    padded: bool = False,
) -> np.ndarray:
    """Cut runs of equal lengths into batches, as `cut_batches` cuts their sequences.

    Args:
        lengths: integers, one per run, none longer than the one before; of padded rows the widths
            that they need.
        counts: sequences of each run, at least 1.
        batch_size, max_tokens, padded: as for cut_batches.

    Returns:
        int64[3, N]: where the first of batches that are alike begins, the rows of each, and how
        many there are. The last batch of all stands alone; several lie within one run.

    >>> cut_runs(np.array([4, 3]), np.array([5, 2]), batch_size=2).tolist()
    [[0, 4, 6], [2, 2, 1], [2, 1, 1]]
    """
    found = array("q")
    most_rows = batch_size or int(counts.sum())
    start = num_rows = num_tokens = widest = 0  # of the batch that is open
    for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        left = count
        if num_rows:
            room = most_rows - num_rows
            if max_tokens is not None and padded:
                room = min(room, max_tokens // widest - num_rows)
            elif max_tokens is not None:
                room = min(room, (max_tokens - num_tokens) // length)
            taken = min(room, left)
            num_rows, num_tokens, left = num_rows + taken, num_tokens + taken * length, left - taken
            if not left:
                continue
            found.extend((start, num_rows, 1))
            start += num_rows
        most = most_rows if max_tokens is None else min(most_rows, max_tokens // length)
        num_full = (left - 1) // most  # the last one stays open: a shorter sequence may fit
        if num_full:
            found.extend((start, most, num_full))
            start += num_full * most
        num_rows = left - num_full * most
        num_tokens, widest = num_rows * length, length
    if num_rows:
        found.extend((start, num_rows, 1))
    return np.array(found, np.int64).reshape(-1, 3).T


def is_full(
    num_rows: int,
    num_tokens: int,
    longest: int,
    *,
    batch_size: int | None,
    max_tokens: int | None,
    padded: bool,
) -> bool:
    """Say whether a batch has no room for one more sequence of a single token.

    Args:
        longest: of padded rows the width that they need.
    """
    if batch_size is not None and num_rows >= batch_size:
        return True
    if max_tokens is None:
        return False
    if padded:
        return (num_rows + 1) * longest > max_tokens
    return num_tokens + 1 > max_tokens


def _cut_by_tokens(lengths: np.ndarray, batch_size: int, max_tokens: int) -> array[int]:
    starts = array("q", [0])
    start = num_tokens = 0
    for block in range(0, len(lengths), ROWS_PER_BLOCK):
        for row, length in enumerate(lengths[block : block + ROWS_PER_BLOCK].tolist(), block):
            num_tokens += length
            if num_tokens > max_tokens or row - start == batch_size:
                start, num_tokens = row, length
                starts.append(row)
    return starts


def _cut_by_cells(lengths: np.ndarray, batch_size: int, max_tokens: int) -> array[int]:
    starts = array("q", [0])
    start = longest = 0
    for block in range(0, len(lengths), ROWS_PER_BLOCK):
        for row, length in enumerate(lengths[block : block + ROWS_PER_BLOCK].tolist(), block):
            if length > longest:
                longest = length
            if longest * (row - start + 1) > max_tokens or row - start == batch_size:
                start, longest = row, length
                starts.append(row)
    return starts
