"""Check that each stream is one run of sequences, and that only the end of a round is padded.

The sequences of a round of passes are concatenated, cut into rows, and dealt to the streams in
runs: a stream may begin inside a sequence only if the stream before it ends there. Only the last
batch is padded: the first streams may have no row in it, and the last row of all may be short.
Where a round ends without padding and the next one begins with whole sequences, both readings
agree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.stream_batches import StreamBatches

LEVEL = "structure"
NOTHING = -1  # the sequence that a stream without tokens ends with


class Rounds:
    """Checks batches one after another.

    Args:
        num_rounds: how many there may be.
    """

    def __init__(self, num_rounds: int) -> None:
        self._num_left = num_rounds
        self._is_first = True
        self._begin: StreamBatches | None = None  # the first batch of the round; None: not known
        self._ends = np.empty((2, 0), np.int64)  # the sequence and token that each stream ends with
        self._is_over = False  # the batch before has padding

    def forget(self) -> None:
        """Forget what was checked, since the next batches are not known."""
        self._is_first = self._is_over = False
        self._begin = None

    def check(
        self, streams: StreamBatches, goes_on: np.ndarray, *, row_length: int
    ) -> list[Finding]:
        """Check the next batches; return the first fault.

        Args:
            goes_on: bool [batches, streams], where they go on from the batch before.
        """
        ends = np.stack([streams.last_indices, streams.last_ends], axis=1)  # [batches, 2, streams]
        is_full = streams.num_tokens == row_length
        if not self._ends.size:
            self._ends = np.full_like(ends[0], NOTHING)
        jumps = (streams.is_used & ~goes_on & (streams.first_starts > 0)).any(axis=1)
        is_event = jumps | ~goes_on.any(axis=1) | ~is_full.all(axis=1)
        before = -1
        for place in np.flatnonzero(is_event).tolist():
            if place > before + 1:
                self._ends = ends[place - 1]
            batch = streams.take(place, place + 1)
            fault = next(self._step(batch, is_full[place], goes_on[place]), None)
            if fault is not None:
                return [fault]
            self._ends = np.where(batch.is_used[0], ends[place], self._ends)
            before = place
        if before < len(streams) - 1:
            self._ends = ends[-1]
        return []

    def finish(self) -> list[Finding]:
        """Check the last round; return what is wrong."""
        return [*self._find_open()][:1]

    def _step(
        self, batch: StreamBatches, is_full: np.ndarray, goes_on: np.ndarray
    ) -> Iterator[Finding]:
        """Check one batch; note the round that it begins."""
        is_used, starts = batch.is_used[0], batch.first_starts[0]
        jumps = is_used & ~goes_on & (starts > 0)
        is_fresh = not goes_on.any()
        is_new = self._is_first or self._is_over
        if not is_fresh and is_new:
            yield _find(batch, goes_on, "goes on after a batch with padding")
        if not is_fresh and jumps.any():
            yield _find(batch, jumps, "begins at token {}, where the batch before does not end")
        is_new = is_new or bool(jumps.any())
        if is_new or (is_fresh and not any(self._find_open())):
            yield from self._begin_round(batch, is_certain=is_new)
        # padding lies before the first row, or in the last one
        wrong = ~is_full & (np.cumsum(is_used) > 0)
        wrong[-1] = not is_used[-1]
        if wrong.any():
            what = f"has {batch.num_tokens[0, wrong.argmax()]} tokens, expected padding only in "
            yield _find(batch, wrong, f"{what}the first streams, or at the end of the last one")
        self._is_over = not is_full.all()

    def _begin_round(self, batch: StreamBatches, *, is_certain: bool) -> Iterator[Finding]:
        yield from self._find_open()
        self._num_left -= is_certain
        starts = batch.first_starts[0]
        if self._num_left < 0:
            yield _find(batch, batch.is_used[0], "begins again, but all passes were made")
        if starts[batch.is_used[0].argmax()] > 0:
            yield _find(batch, starts > 0, "begins at token {}, expected a whole sequence")
        self._begin, self._ends = batch, np.full_like(self._ends, NOTHING)
        self._is_first = self._is_over = False

    def _find_open(self) -> Iterator[Finding]:
        """Yield where a stream of this round began inside a sequence that none before ends in."""
        if self._begin is None:
            return
        starts = self._begin.first_starts[0]
        wrong = (self._begin.first_indices[0] != np.roll(self._ends[0], 1)) & (starts > 0)
        wrong |= (starts != np.roll(self._ends[1], 1)) & (starts > 0)
        if wrong.any():
            yield _find(
                self._begin, wrong, "begins at token {}, where the stream before does not end"
            )


def _find(batch: StreamBatches, wrong: np.ndarray, what: str) -> Finding:
    """Return the finding for the first wrong stream of a batch."""
    stream = int(wrong.argmax())
    row = int(batch.first_rows[0, stream]) if batch.is_used[0, stream] else None
    what = f"stream {stream} {what.format(batch.first_starts[0, stream])}"
    return Finding(LEVEL, batch.shard, what, int(batch.batches[0]), row)
