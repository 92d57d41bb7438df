"""Percentiles and a histogram of lengths, as plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

PERCENTILES = (1, 10, 25, 50, 75, 90, 99)
MAX_BINS = 16
WIDE_RANGE = 64  # if the longest is this many times the shortest, bins double


def summarize_lengths(lengths: np.ndarray) -> dict[str, Any]:
    """Return shortest, longest, mean, percentiles and histogram of lengths in tokens.

    A percentile is a length that occurs: at least that share of the sequences is not longer.

    >>> summarize_lengths(np.array([1, 2, 3, 4]))["percentiles"]["50"]
    2
    """
    if not len(lengths):
        return {"shortest": None, "longest": None, "mean": None, "percentiles": {}, "histogram": []}
    values = np.percentile(lengths, PERCENTILES, method="inverted_cdf")
    return {
        "shortest": int(lengths.min()),
        "longest": int(lengths.max()),
        "mean": round(float(lengths.mean()), 2),
        "percentiles": {
            str(share): int(value) for share, value in zip(PERCENTILES, values, strict=True)
        },
        "histogram": count_bins(lengths),
    }


def count_bins(lengths: np.ndarray, *, max_bins: int = MAX_BINS) -> list[dict[str, int]]:
    """Count sequences by length, in bins that double or have equal widths; ends are included."""
    shortest, longest = int(lengths.min()), int(lengths.max())
    edges = _choose_edges(shortest, longest, max_bins)
    counts, _ = np.histogram(lengths, edges)
    return [
        {
            "from": max(int(start), shortest),
            "to": min(int(end) - 1, longest),
            "num_sequences": int(count),
        }
        for start, end, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def is_wide_range(shortest: int, longest: int) -> bool:
    """Return whether lengths differ so much that bins must double."""
    return longest >= WIDE_RANGE * max(shortest, 1)


def _choose_edges(shortest: int, longest: int, max_bins: int) -> np.ndarray:
    if is_wide_range(shortest, longest):
        first = max(shortest, 1).bit_length() - 1
        return 2 ** np.arange(first, longest.bit_length() + 1, dtype=np.int64)
    width = -(-(longest - shortest + 1) // max_bins)
    num_bins = -(-(longest - shortest + 1) // width)
    return shortest + width * np.arange(num_bins + 1, dtype=np.int64)
