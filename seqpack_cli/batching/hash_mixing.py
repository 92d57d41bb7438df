"""Mix document hashes with a seed and a purpose into uniform 64-bit numbers.

A document is in a split, or has an extra pass, if its number is below a bound. The number follows
from the hash of the document alone, so it stays when documents are added or reordered. Each purpose
has numbers of its own: a split says nothing about passes. About 5 ns per hash.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from blake3 import blake3

from seqpack_cli.limits import LIMITS

SPLIT, PASSES, ROUNDS = "split", "passes", "rounds"  # the purposes


def mix(hashes: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """Return a number for each hash: equal for equal hashes, otherwise as if drawn at random.

    SplitMix64's finalizer (Steele, Lea and Flood 2014) over hash ^ key, where the key is the first
    8 bytes of the BLAKE3 checksum of "PURPOSE SEED".

    Args:
        hashes: uint64[N].
        seed: from 0 to 2**64 - 1.
        purpose: one of those of this module.

    Returns:
        uint64[N].

    >>> [hex(number) for number in mix(np.array([0, 1], np.uint64), 0, "split").tolist()]
    ['0x2e2bae1dd8c329e6', '0x8180f772b3ff5799']
    """
    key = np.uint64(int.from_bytes(blake3(f"{purpose} {seed}".encode()).digest()[:8], "little"))
    mixed: np.ndarray = np.bitwise_xor(hashes, key, dtype=np.uint64)
    size = LIMITS.entries_in_cache
    shifted = np.empty(min(len(mixed), size), np.uint64)
    for start in range(0, len(mixed), size):
        block = mixed[start : start + size]
        _finalize(block, shifted[: len(block)])
    return mixed


def to_bound(share: Fraction) -> int:
    """Return the bound below which a mixed hash lies with the probability `share`.

    >>> to_bound(Fraction(1, 2)) == 2**63
    True
    """
    return int(share * 2**64)


def _finalize(numbers: np.ndarray, shifted: np.ndarray) -> None:
    """Mix the bits of each number, in place."""
    for num_bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        np.right_shift(numbers, np.uint64(num_bits), out=shifted)
        numbers ^= shifted
        numbers *= np.uint64(factor)
    np.right_shift(numbers, np.uint64(31), out=shifted)
    numbers ^= shifted
