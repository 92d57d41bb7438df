"""Assign documents to splits, such as train, validation and test.

A document is in the first split below whose bound its mixed hash lies; the bounds are the running
sum of the shares. So equal documents are in the same split, and documents that are added later move
no other. With `--split-by` the value of a column takes the place of the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.batching.hash_mixing import SPLIT, mix, to_bound
from seqpack_cli.batching.shares import spell_numbers
from seqpack_cli.limits import LIMITS

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass(frozen=True)
class Splits:
    """The names of all splits, and how documents are assigned to them."""

    names: tuple[str, ...]
    shares: tuple[Fraction, ...] | None  # None: the names are values of the column `by`
    seed: int = 0
    by: str | None = None  # the column whose value is hashed; None is the document

    @property
    def bounds(self) -> tuple[int, ...] | None:
        """Return the end of each split's mixed hashes; the last is 2^64."""
        return None if self.shares is None else tuple(map(to_bound, accumulate(self.shares)))

    def assign(self, hashes: np.ndarray) -> np.ndarray:
        """Return the number of the split of each hash; only for splits with shares.

        Args:
            hashes: uint64[N], of documents or of a column's values.

        Returns:
            int16[N].
        """
        assert self.bounds is not None  # noqa: S101 - a value is its split's name
        bounds, mixed = np.array(self.bounds[:-1], np.uint64), mix(hashes, self.seed, SPLIT)
        if len(bounds) > LIMITS.bounds_compared:
            return np.searchsorted(bounds, mixed, "right").astype(np.int16)
        found = np.zeros(len(mixed), np.int16)
        for bound in bounds:
            found += mixed >= bound
        return found

    def spell(self) -> str:
        """Return the text of `--split` in the form that is recorded."""
        if self.shares is None:
            return ",".join(self.names)
        return spell_numbers(zip(self.names, self.shares, strict=True))
