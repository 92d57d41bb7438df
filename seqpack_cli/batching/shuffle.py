"""A seed -> a random order, the same on every machine and with every version of numpy.

numpy promises to keep the raw stream of its PCG64 as it is, but not what `permutation` makes of it;
an order that changed with an update would make a continued run write other shards. So items are
sorted by raw random bits. 8 bytes an item, and 8 more while it runs.
"""

from __future__ import annotations

import numpy as np

# Streams of one seed: batches do not follow the order of sequences.
SEQUENCES, BATCHES, STEPS, EPOCHS = range(4)


def shuffled(num_items: int, *, seed: int, stream: int = SEQUENCES) -> np.ndarray:
    """Give a random order of so many items.

    Args:
        seed: at least 0.
        stream: another one gives an independent order for the same seed.

    Returns:
        int64[num_items], each index once.

    Raises:
        ValueError: the seed is negative.
    """
    keys = np.random.PCG64(_spawn(seed, stream)).random_raw(num_items)
    # The low bits number the items, so that no two keys are equal: at least 33 random bits are
    # left for a thousand million items.
    num_bits = np.uint64(max(num_items - 1, 1).bit_length())
    keys >>= num_bits
    keys <<= num_bits
    keys |= np.arange(num_items, dtype=np.uint64)
    keys.sort()
    keys &= (np.uint64(1) << num_bits) - np.uint64(1)
    return keys.view(np.int64)


def epoch_seed(seed: int, epoch: int) -> int:
    """Give each epoch a seed of its own, of 64 bits.

    Raises:
        ValueError: the seed is negative.
    """
    return int(_spawn(seed, EPOCHS, epoch).generate_state(1, np.uint64)[0])


def _spawn(seed: int, *key: int) -> np.random.SeedSequence:
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected at least 0")
    return np.random.SeedSequence(seed, spawn_key=key)
