"""Whether the decoder's sequences begin and end with tokens to start from and to stop at."""

from __future__ import annotations

import numpy as np

from seqpack_cli.tokens.store import TokenStore

NUM_SAMPLES = 256


def describe_missing_ends(store: TokenStore) -> str | None:
    """Return a note if sequences of a store begin, or end, with different tokens.

    Sequences all over the store are looked at. A decoder is started with a token that is always the
    same, and stops at one; they are in the store, or the loader adds them.
    """
    places = np.unique(np.linspace(0, len(store) - 1, NUM_SAMPLES).astype(np.int64)).tolist()
    missing = [
        (what, option)
        for cell, what, option in ((0, "begin", "bos"), (-1, "end", "eos"))
        if len({int(store[place][cell]) for place in places}) > 1
    ]
    if not missing:
        return None
    whats = " and ".join(what for what, _ in missing)
    options = " and ".join(f"--{option}" for _, option in missing)
    arguments = " and ".join(f"{option}_id=" for _, option in missing)
    return (
        f"the decoder's sequences {whats} with different tokens, expected one to start from and "
        f"one to stop at: tokenize that side with {options}, or pass {arguments} to ShardDataset"
    )
