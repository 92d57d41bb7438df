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


Encoder = Callable[[list[str]], EncodedTexts]


class EncoderRefusedError(Exception):
    """An encoder does not support this tokenizer; tokenizers supports all of them."""


class EncodersDifferError(Exception):
    """A fast encoder gives different ids from tokenizers, or fails where tokenizers may not."""
