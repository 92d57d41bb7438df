"""Many short byte strings in one flat array: numpy looks thousands of them up at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FlatBytes:
    """Byte strings, back to back."""

    data: np.ndarray  # uint8[S]
    starts: np.ndarray  # int64, one per string
    lengths: np.ndarray  # int64, one per string

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Return the bytes of some strings, back to back: uint8.

        >>> join_bytes([b"ab", b"", b"c"]).take(np.array([2, 0, 1])).tobytes()
        b'cab'
        """
        lengths = self.lengths[indices]
        shifts = self.starts[indices] - (np.cumsum(lengths) - lengths)
        return self.data[np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))]


def join_bytes(strings: Sequence[bytes]) -> FlatBytes:
    """Join byte strings into one flat array."""
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    data = np.frombuffer(b"".join(strings), np.uint8)
    return FlatBytes(data, np.cumsum(lengths) - lengths, lengths)
