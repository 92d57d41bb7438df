"""Slow plain-Python versions of small functions of batching: quadratic, for small inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from blake3 import blake3
from shard_reference import slow_length_order


@dataclass(eq=False)
class Parts:
    """A source of lengths in parts, with a record of the parts that were read."""

    parts: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        self.part_offsets = np.cumsum([0, *map(len, self.parts)])
        self.read: list[int] = []

    @property
    def lengths(self) -> np.ndarray:
        return _store([length for part in self.parts for length in part])

    def part_lengths(self, number: int) -> np.ndarray:
        self.read.append(number)
        return _store(self.parts[number])


def _store(lengths: Sequence[int]) -> np.ndarray:
    """Return lengths as a store does: int32, read-only."""
    array = np.array(lengths, np.int32)
    array.flags.writeable = False
    return array


def slow_shuffled(num_items: int, *, seed: int, stream: int = 0) -> list[int]:
    """Sort items by random bits: those of 64 that the items' numbers leave free."""
    drawn = (
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(stream,)))
        .random_raw(num_items)
        .tolist()
    )
    num_bits = max(num_items - 1, 1).bit_length()
    return sorted(range(num_items), key=lambda item: (drawn[item] >> num_bits, item))


def slow_window_order(lengths: Sequence[int], window: int | None) -> list[int]:
    """Sort each window of lengths, longest first, ties by index."""
    step = window or max(len(lengths), 1)
    return [
        first + index
        for first in range(0, len(lengths), step)
        for index in slow_length_order(lengths[first : first + step])
    ]


def num_cells(lengths: Sequence[int], keys: Sequence[int]) -> int:
    """Count the cells of rows, each padded to the smallest key that is long enough."""
    return sum(min(key for key in keys if key >= length) for length in lengths)


def slow_fewest_cells(lengths: Sequence[int], num_buckets: int) -> int:
    """Try all sets of at most num_buckets lengths that include the longest one."""
    *shorter, longest = sorted(set(lengths))
    return min(
        num_cells(lengths, [*keys, longest])
        for num_keys in range(min(num_buckets, len(shorter) + 1))
        for keys in combinations(shorter, num_keys)
    )


def slow_best_fit(lengths: Sequence[int], capacity: int) -> list[int]:
    """Put one sequence at a time into the fullest bin; of equals, the one unchanged longest."""
    rooms: list[int] = []
    changed: list[int] = []  # the last sequence put into each bin
    bin_of = []
    for moment, length in enumerate(lengths):
        fitting = [number for number, room in enumerate(rooms) if room >= length]
        if fitting:
            chosen = min(fitting, key=lambda number: (rooms[number], changed[number]))
        else:
            chosen = len(rooms)
            rooms.append(capacity)
            changed.append(moment)
        rooms[chosen] -= length
        changed[chosen] = moment
        bin_of.append(chosen)
    return bin_of


def slow_copy(
    source: Sequence[int],
    target: Sequence[int],
    ranges: Sequence[tuple[int, int, int]],
) -> list[int]:
    """Copy ranges (source start, target start, length) entry by entry."""
    copied = [*target]
    for start, to, length in ranges:
        for place in range(length):
            copied[to + place] = source[start + place]
    return copied


def slow_mix(document_hash: int, seed: int, purpose: str) -> int:
    """Mix one hash in integers without limit, of which 64 bits are kept."""
    key = blake3(f"{purpose} {seed}".encode("ascii")).digest()[:8]
    mixed = document_hash ^ sum(byte << 8 * place for place, byte in enumerate(key))
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


def slow_split(document_hash: int, shares: Sequence[Fraction], seed: int) -> int:
    """Return the number of the first split that ends above a hash."""
    end = Fraction(0)
    for number, share in enumerate(shares):
        end += share
        if slow_mix(document_hash, seed, "split") < math.floor(end * 2**64):
            return number
    raise AssertionError("shares add up to less than 1")


def slow_visits(document_hash: int, passes: Fraction, seed: int) -> int:
    """Count the visits of a document."""
    whole = math.floor(passes)
    bound = math.floor((passes - whole) * 2**64)
    return whole + (slow_mix(document_hash, seed, "passes") < bound)
