"""Level `structure` of streams: each goes on in the next batch exactly where its arrays say so.

No plan is needed. Over all batches in order, also from shard to shard, `resets` is 0 exactly where
a piece goes on from the batch before, and `next_ids` is the target that the next batch begins with.
Only the first piece of a stream in a batch may begin inside a sequence. `stream_rounds` checks that
each stream is one run of whole sequences.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqpack_cli.shards.shard import Shard
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.stream_batches import NO_ID, StreamBatches
from seqpack_cli.verification.integers.stream_rounds import Rounds

LEVEL = "structure"


class StreamLinks:
    """Checks shards one after another.

    Args:
        num_rounds: how often a sequence may be visited, at most.
    """

    def __init__(self, num_rounds: int) -> None:
        self._rounds, self._has_rounds = Rounds(num_rounds), num_rounds > 1
        self._last: StreamBatches | None = None  # the batch before; None if it is not known
        self._is_first = True

    def check(self, shard: Shard | None) -> list[Finding]:
        """Check the next shard; return the first fault of each kind.

        Args:
            shard: a sound one; None for one that has a fault, so that what its streams go on with
                is not known.
        """
        if shard is None:
            self._last, self._is_first = None, False
            self._rounds.forget()
            return []
        streams, last = StreamBatches.of(shard), self._last
        goes_on = np.zeros_like(streams.is_used)
        goes_on[1:] = self._find_links(streams.take(0, -1), streams.take(1, None))
        if last is not None:
            goes_on[:1] = self._find_links(last, streams.take(0, 1))
        elif not self._is_first:
            goes_on[0] = (streams.resets[0] == 0) & (streams.first_starts[0] > 0)
        following = np.where(goes_on, streams.first_targets, NO_ID)
        found = [*_check_inside(shard, streams), *_check_resets(streams, goes_on)]
        if last is not None:
            found += _check_next_ids(last, following[:1])
        found += _check_next_ids(streams.take(0, -1), following[1:])
        if not found:
            row_length = shard.arrays.geometry.row_length
            found += self._rounds.check(streams, goes_on, row_length=row_length)
        self._last, self._is_first = streams.take(-1, None), False
        return found

    def _find_links(self, before: StreamBatches, after: StreamBatches) -> np.ndarray:
        """Return where streams go on from the batch before.

        With rounds, a stream may also begin anew with the rest of what another visit ended with.
        """
        goes_on = after.find_links(before)
        if self._has_rounds:
            goes_on &= (after.resets == 0) | (before.next_ids != NO_ID)
        return goes_on

    def finish(self) -> list[Finding]:
        """Check, after the last shard, that nothing is left open."""
        found: list[Finding] = []
        if self._last is not None:
            found += _check_next_ids(self._last, np.full_like(self._last.next_ids, NO_ID))
        return found or self._rounds.finish()


def _check_inside(shard: Shard, streams: StreamBatches) -> Iterator[Finding]:
    """Check the pieces between the first and the last of each stream in a batch."""
    tensors = shard.tensors
    offsets = tensors["sequence_offsets"][:-1, None]
    is_inner = np.ones((2, len(tensors["lengths"])), bool)  # not the first, not the last
    for inner, rows in zip(is_inner, (streams.first_rows, streams.last_rows), strict=True):
        inner[(rows + offsets)[streams.is_used]] = False
    for name, right, inner in (
        ("piece_starts", 0, is_inner[0]),
        ("resets", 1, is_inner[0]),
        ("next_ids", NO_ID, is_inner[1]),
    ):
        wrong = inner & (tensors[name] != right)
        if wrong.any():
            batch, row = shard.arrays.find_batch(int(wrong.argmax()))
            what = f"{name} is {tensors[name][wrong.argmax()]} inside a stream, expected {right}"
            yield Finding(LEVEL, streams.shard, what, shard.first_batch + batch, row)


def _check_resets(streams: StreamBatches, goes_on: np.ndarray) -> Iterator[Finding]:
    wrong = streams.is_used & (streams.resets == goes_on)
    if wrong.any():
        batch, stream = map(int, np.unravel_index(wrong.argmax(), wrong.shape))
        words = "goes on from" if goes_on[batch, stream] else "does not go on from"
        what = f"resets is {streams.resets[batch, stream]}, but stream {stream} {words} the batch "
        row = int(streams.first_rows[batch, stream])
        yield Finding(LEVEL, streams.shard, f"{what}before", int(streams.batches[batch]), row)


def _check_next_ids(streams: StreamBatches, following: np.ndarray) -> Iterator[Finding]:
    """Yield the first of the next_ids that is not the one that follows, [batches, streams]."""
    wrong = streams.is_used & (streams.next_ids != following)
    if wrong.any():
        batch, stream = map(int, np.unravel_index(wrong.argmax(), wrong.shape))
        found, expected = streams.next_ids[batch, stream], following[batch, stream]
        what = f"next_ids is {found}, the next batch of stream {stream} gives {expected}"
        row = int(streams.last_rows[batch, stream])
        yield Finding(LEVEL, streams.shard, what, int(streams.batches[batch]), row)
