"""One round of a selection: a sequence that is visited several times is in several rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from seqpack_cli.batching.selection import PartLengths, is_in_round
from seqpack_cli.tokens.store import TokenStore


class TurnSource(Protocol):
    """The selection that rounds are of: a `SelectedStore`."""

    store: TokenStore
    part_offsets: np.ndarray

    def find_turns(self, number: int, num_rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first round and the visits of each sequence of a part, both int16."""


@dataclass(frozen=True, eq=False)
class Round:
    """The sequences that are visited in one round."""

    source: TurnSource
    number: int
    num_rounds: int

    @property
    def part_offsets(self) -> np.ndarray:
        """Return the first sequence of each part, then the number of all, int64[parts + 1]."""
        return self.source.part_offsets

    @property
    def lengths(self) -> np.ndarray:
        """Return the lengths of all sequences, 0 for one that is not in this round, int32[N]."""
        return join_parts(self)

    def part_lengths(self, number: int) -> np.ndarray:
        """Return the lengths of one part, int32."""
        turns = self.source.find_turns(number, self.num_rounds)
        visited = is_in_round(*turns, self.number, self.num_rounds)
        taken: np.ndarray = self.source.store.part_lengths(number) * visited
        return taken


def join_parts(source: PartLengths) -> np.ndarray:
    """Return the lengths of all parts of a source, int32[N]."""
    parts = map(source.part_lengths, range(len(source.part_offsets) - 1))
    return np.concatenate([np.empty(0, np.int32), *parts])
