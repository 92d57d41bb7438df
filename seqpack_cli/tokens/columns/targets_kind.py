"""Targets: one 0 or 1 per token, 1 for a token that counts in the loss."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

import numpy as np

from seqpack_cli.files.tensor_file import Tensor
from seqpack_cli.tokens.columns.kind import Collected, Field, Kind

DTYPE = "uint8"


class TargetsCollector:
    """Collects targets, cut to pieces, and counts them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._pieces: list[np.ndarray] = []

    def add(self, entries: np.ndarray) -> None:
        """Add the entries of the tokens of some sequences, and count the targets."""
        self.counts["num_target_tokens"] += int(np.count_nonzero(entries))
        self._pieces.append(entries.astype(DTYPE))

    def finish(self, name: str) -> Collected:
        """Return the tensor."""
        count = sum(map(len, self._pieces))
        return Collected({f"column.{name}": Tensor(DTYPE, count, self._pieces)})


def _refuse_field(field: Field) -> NoReturn:
    raise ValueError(f"targets are not read from a field: {field.name}")


TARGETS = Kind(
    "targets",
    DTYPE,
    0,
    _refuse_field,
    lambda _, __: TargetsCollector(),
    is_per_token=True,
    largest=1,
    expected="0 or 1",
)
