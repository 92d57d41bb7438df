"""What every encoder gives: the ids of some texts, flat, so that no object per token exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EncodedTexts:
    """The ids of some texts, back to back."""

    ids: np.ndarray  # [S], any integer dtype that holds them
    lengths: np.ndarray  # int64[number of texts]


Encoder = Callable[[list[str]], EncodedTexts]


class EncoderRefusedError(Exception):
    """An encoder that does not take this tokenizer; tokenizers takes all of them."""


class EncodersDifferError(Exception):
    """A fast encoder that gives other ids than tokenizers, or fails where tokenizers may not."""
