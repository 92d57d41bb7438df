"""Lengths in order -> where each batch begins.

A batch is cut by a number of rows, by a budget of tokens, or by whichever comes first. The budget
counts what the device computes: real tokens, or all cells of the rectangle for padded rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seqpack_cli.errors import check_positive


def cut_batches(
    lengths: np.ndarray,
    *,
    batch_size: int | None,
    max_tokens: int | None = None,
    padded: bool = False,
) -> np.ndarray:
    """Cut sequences, in the order given, into batches.

    Args:
        lengths: integers, one per sequence, in batching order.
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
    find_end = _padded_end(lengths, max_tokens) if padded else _packed_end(lengths, max_tokens)
    starts = [0]
    while starts[-1] < num_sequences:
        end = find_end(starts[-1])
        starts.append(end if batch_size is None else min(end, starts[-1] + batch_size))
    return np.array(starts)


def is_full(
    lengths: np.ndarray, *, batch_size: int | None, max_tokens: int | None, padded: bool
) -> bool:
    """Say whether a batch has no room for one more sequence of a single token."""
    num_rows = len(lengths)
    if batch_size is not None and num_rows >= batch_size:
        return True
    if max_tokens is None:
        return False
    if padded:
        return (num_rows + 1) * int(lengths.max()) > max_tokens
    return int(lengths.sum()) + 1 > max_tokens


def _packed_end(lengths: np.ndarray, max_tokens: int) -> Callable[[int], int]:
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return lambda start: int(np.searchsorted(offsets, offsets[start] + max_tokens, "right")) - 1


def _padded_end(lengths: np.ndarray, max_tokens: int) -> Callable[[int], int]:
    def find_end(start: int) -> int:
        # One row of the longest fills the budget at most max_tokens // longest times; where a later
        # row is longer than the first (no length order), the running maximum decides.
        window = lengths[start : start + max_tokens // max(int(lengths[start]), 1)]
        longest = np.maximum.accumulate(window).astype(np.int64)
        fits = longest * np.arange(1, len(window) + 1) <= max_tokens
        return start + (len(window) if fits.all() else int(fits.argmin()))

    return find_end
