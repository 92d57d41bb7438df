"""Shuffle by a seed, with the same result on every machine and with every version of numpy.

numpy guarantees the raw stream of its PCG64, but not the result of `permutation`; if that changed
with an update, a continued run would write different shards. So items are sorted by raw random
bits. 8 bytes per item, and 8 more while it runs.
"""

from __future__ import annotations

import numpy as np

# Independent random streams of one seed, one for each thing that is shuffled.
SEQUENCES, BATCHES, STEPS, EPOCHS, ROUNDS, ROWS = range(6)


def shuffled(num_items: int, *, seed: int, stream: int = SEQUENCES) -> np.ndarray:
    """Return the numbers from 0 to num_items - 1 in random order.

    Args:
        seed: at least 0.
        stream: each stream has an independent order for the same seed.

    Returns:
        int64[num_items], each index once.

    Raises:
        ValueError: the seed is negative.
    """
    keys = np.random.PCG64(_spawn(seed, stream)).random_raw(num_items)
    # The low bits hold the item's number, so that no two keys are equal; 34 random bits are left
    # for a thousand million items.
    num_bits = np.uint64(max(num_items - 1, 1).bit_length())
    keys >>= num_bits
    keys <<= num_bits
    keys |= np.arange(num_items, dtype=np.uint64)
    keys.sort()
    keys &= (np.uint64(1) << num_bits) - np.uint64(1)
    return keys.view(np.int64)


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of an epoch, 64 bits that follow from the seed of the run.

    Raises:
        ValueError: the seed is negative.
    """
    return int(_spawn(seed, EPOCHS, epoch).generate_state(1, np.uint64)[0])


def round_seed(seed: int, number: int) -> int:
    """Return the seed of a round of a plan: of the first one the seed itself, then 64 bits of it.

    Raises:
        ValueError: the seed is negative.
    """
    return int(_spawn(seed, ROUNDS, number).generate_state(1, np.uint64)[0]) if number else seed


def _spawn(seed: int, *key: int) -> np.random.SeedSequence:
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected at least 0")
    return np.random.SeedSequence(seed, spawn_key=key)
