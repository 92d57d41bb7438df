"""Targets: one 0 or 1 per token, 1 for a token that counts in the loss.

A token is a target if all its characters are. The number of targets before each character of a
batch is counted once, so each token takes two look-ups, 25 million tokens/s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NoReturn

import numpy as np

from seqpack_cli.files.tensor_file import Tensor
from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.columns.kind import Collected, Field, Kind
from seqpack_cli.tokens.target_text import TargetText

DTYPE = "uint8"


class TargetsCollector:
    """Collects targets: `assign` finds those of encoded texts, `add` takes them cut to pieces."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._pieces: list[np.ndarray] = []

    def assign(
        self,
        values: Sequence[TargetText | None],
        offsets: np.ndarray,
        lengths: np.ndarray,
        subtokens: str,
    ) -> np.ndarray:
        """Return 1 for each token that is a target, uint8.

        A token that has other characters too is no target, and counted. One without characters is
        a target if the characters beside it are, of those that exist.

        Args:
            values: the texts; None for one without targets.
            offsets: of all tokens in their texts, spaces included, int32[S, 2].
            lengths: number of tokens of each text.
            subtokens: not used.
        """
        del subtokens
        text_offsets, num_targets = _count_targets(values)
        first, last = np.repeat(text_offsets[:-1], lengths), np.repeat(text_offsets[1:], lengths)
        starts, ends = first + offsets[:, 0], first + offsets[:, 1]
        is_empty = starts == ends
        starts, ends = starts - is_empty, ends + is_empty
        np.maximum(starts, first, out=starts)
        np.minimum(ends, last, out=ends)
        found = num_targets[ends] - num_targets[starts]
        is_target = (found == ends - starts) & (found > 0)
        straddles = (found > 0) & ~is_target & ~is_empty
        self.counts["num_straddling_tokens"] += int(np.count_nonzero(straddles))
        entries: np.ndarray = is_target.view(DTYPE)
        return entries

    def add(self, entries: np.ndarray) -> None:
        """Add the entries of the tokens of some sequences, and count the targets."""
        self.counts["num_target_tokens"] += int(np.count_nonzero(entries))
        self._pieces.append(entries.astype(DTYPE))

    def finish(self, name: str) -> Collected:
        """Return the tensor."""
        count = sum(map(len, self._pieces))
        return Collected({f"column.{name}": Tensor(DTYPE, count, self._pieces)})


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
)
