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
from seqpack_cli.batching.shares import parse_shares, spell_numbers, split_items
from seqpack_cli.errors import OptionError, quote
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.run_folder import SPLIT_NAME

if TYPE_CHECKING:
    from fractions import Fraction

    from seqpack_cli.batching.pack_options import PackOptions

MAX_SPLITS = 1000
_EXAMPLE = "write it like --split train=0.98,validation=0.01,test=0.01"


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


def parse_splits(options: PackOptions) -> Splits | None:
    """Parse the splits of options; None if they have none.

    Raises:
        OptionError: `split` is not of the form NAME=SHARE,… or, with `split_by`, NAME,….
    """
    text = options.split
    if text is None:
        return None
    items = split_items(text, "--split")
    place = f"--split {quote(text)}"
    for name in items:
        if not SPLIT_NAME.fullmatch(name):
            raise OptionError(
                f"{place}: name {quote(name)}, expected only letters from a to z, digits, _ and -",
                hint=_EXAMPLE,
            )
    twin = {name.lower(): name for name in items}
    for name in items:
        if twin[name.lower()] != name:
            raise OptionError(
                f"{place}: found {quote(name)} and {quote(twin[name.lower()])}, expected names "
                "that differ in more than case: some disks do not distinguish it",
                hint=f"rename {name}",
            )
    if not 2 <= len(items) <= MAX_SPLITS:
        raise OptionError(
            f"{place}: found {len(items):,} split{'s' * (len(items) > 1)}, expected 2 to "
            f"{MAX_SPLITS:,}",
            hint=_EXAMPLE,
        )
    if any(value is not None for value in items.values()):
        shares = parse_shares(text, "--split")
        return Splits(tuple(shares), tuple(shares.values()), options.split_seed, options.split_by)
    if options.split_by is None:
        raise OptionError(
            f"{place}: found names without shares, expected NAME=SHARE",
            hint=f"{_EXAMPLE}, or pass --split-by COLUMN to take the values of a column",
        )
    return Splits(tuple(items), None, 0, options.split_by)
