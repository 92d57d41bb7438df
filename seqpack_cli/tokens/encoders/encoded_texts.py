"""The result of every encoder: the ids of some texts in one flat array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EncodedTexts:
    """The ids of some texts, back to back."""

    ids: np.ndarray  # [S], any integer dtype that holds them
    lengths: np.ndarray  # int64[number of texts]


def interleave(few: EncodedTexts, most: EncodedTexts, is_few: np.ndarray) -> EncodedTexts:
    """Join texts that two encoders encoded, in their order.

    Args:
        is_few: of all texts, bool.

    >>> few = EncodedTexts(np.array([7, 8]), np.array([2]))
    >>> interleave(few, EncodedTexts(np.array([5]), np.array([1])), np.array([True, False])).ids
    array([7, 8, 5])
    """
    lengths = np.empty(len(is_few), np.int64)
    lengths[is_few], lengths[~is_few] = few.lengths, most.lengths
    of_few = np.repeat(is_few, lengths)
    ids = np.empty(len(of_few), np.promote_types(most.ids.dtype, few.ids.dtype))
    ids[of_few], ids[~of_few] = few.ids, most.ids
    return EncodedTexts(ids, lengths)


Encoder = Callable[[list[str]], EncodedTexts]


class EncoderRefusedError(Exception):
    """An encoder does not support this tokenizer; tokenizers supports all of them."""


class EncodersDifferError(Exception):
    """A fast encoder gives different ids from tokenizers, or fails where tokenizers may not."""
