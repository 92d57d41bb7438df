"""Find the targets among tokens whose characters are known.

A token is a target if all its characters are. The number of targets before each character of a
batch is counted once, so each token takes two look-ups, about 20 million tokens/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.target_text import TargetText


class FoundTargets(NamedTuple):
    """The targets of some texts."""

    entries: np.ndarray  # uint8[S], 1 for a target
    num_straddling: int  # tokens with other characters too


def find_character_targets(
    texts: Sequence[TargetText | None], offsets: np.ndarray, lengths: np.ndarray
) -> FoundTargets:
    """Return the targets of some texts.

    A token with some characters inside a target and some outside straddles: it is not a target, and
    is counted. A token without characters is a target if all characters beside it are.

    Args:
        texts: None for one without tokens.
        offsets: of all tokens in their texts, spaces included, int32[S, 2].
        lengths: number of tokens of each text.
    """
    text_offsets, num_targets = _count_targets(texts)
    first, last = np.repeat(text_offsets[:-1], lengths), np.repeat(text_offsets[1:], lengths)
    starts, ends = first + offsets[:, 0], first + offsets[:, 1]
    is_empty = starts == ends
    starts, ends = starts - is_empty, ends + is_empty
    np.maximum(starts, first, out=starts)
    np.minimum(ends, last, out=ends)
    found = num_targets[ends] - num_targets[starts]
    is_target = (found == ends - starts) & (found > 0)
    straddles = (found > 0) & ~is_target & ~is_empty
    return FoundTargets(is_target.view(np.uint8), int(np.count_nonzero(straddles)))


def _count_targets(values: Sequence[TargetText | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return where each text begins among the characters of all, and the targets before each."""
    num_characters = [0 if value is None else len(value.text) for value in values]
    text_offsets = to_offsets(np.array(num_characters, np.int64))
    spans = [() if value is None else value.targets for value in values]
    num_spans = list(map(len, spans))
    flat = chain.from_iterable(chain.from_iterable(spans))
    bounds = np.fromiter(flat, np.int64, 2 * sum(num_spans)).reshape(-1, 2)
    bounds += np.repeat(text_offsets[:-1], num_spans)[:, None]
    changes = np.zeros(int(text_offsets[-1]) + 1, np.int8)
    changes[bounds[:, 0]] = 1
    changes[bounds[:, 1]] -= 1  # 0 where the next span begins at once
    is_target = np.cumsum(changes[:-1], dtype=np.int8)
    return text_offsets, to_offsets(is_target)
