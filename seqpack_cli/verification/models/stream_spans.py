"""Consecutive batches of streams, as the unbroken pieces of sequences that run through them.

A piece goes on in the next batch if the batch has the same sequence at the same place of the same
stream, from the token where it ended: this is found from lengths and indices alone, so that
`resets` can be compared with it. Where there are too many steps, streams or pieces, a part is taken
around the border of two batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from seqpack_cli.ranges import expand_ranges
from seqpack_cli.shards.packed import pack_sequence
from seqpack_cli.shards.shared_rows import StreamsBatch
from seqpack_cli.verification.models.batch_ids import MAX_ROWS, BatchIds, order_rows

# Stepping takes about 0.3 ms for each step on a CPU, in all ways and for both models together.
MAX_STEPS = {"cuda": 1_024, "cpu": 256}


@dataclass(frozen=True)
class StreamSpan:
    """Some steps of some streams, and the pieces in them as rows, longest first."""

    ids: BatchIds
    cells: torch.Tensor  # int64[S], the cell in [steps, streams] of each token, row after row
    last_cells: torch.Tensor  # int64[rows], of each row's last token
    resets: torch.Tensor  # bool[steps, streams]
    cuts: list[int]  # the steps, but 0, where a batch begins
    begins: np.ndarray  # int64[rows], the step at which each row begins
    places: np.ndarray  # int64[rows, 2], number of the first batch in the span, and row of it

    @property
    def num_steps(self) -> int:
        """The number of time steps."""
        return len(self.resets)


@dataclass(frozen=True)
class _Pieces:
    """The pieces of all batches of a span, stream after stream."""

    streams: np.ndarray
    begins: np.ndarray  # steps of the span
    ends: np.ndarray
    goes_on: np.ndarray  # bool: a piece goes on from the one before it
    places: np.ndarray  # [pieces, 2], as in StreamSpan

    def take(self, kept: np.ndarray) -> _Pieces:
        return _Pieces(*(getattr(self, each.name)[kept] for each in fields(self)))


def take_span(
    batches: Sequence[StreamsBatch],
    device: torch.device,
    *,
    max_tokens: int,
    first_step: int = 0,
    max_steps: int | None = None,
) -> StreamSpan:
    """Put consecutive batches, or a part of them, on the device.

    Args:
        max_tokens: most cells; fewer streams are taken if there are more.
        first_step: of the part, counted through the batches.
        max_steps: of the part; None is MAX_STEPS.
    """
    num_steps = batches[0].num_steps
    pieces = _find_pieces(batches)
    end = int(pieces.ends.max())  # padding follows
    length = min(max_steps or MAX_STEPS[device.type], max_tokens, end)
    first_step = min(first_step, end - length)
    last_step = first_step + length
    pieces = _cut(pieces, first_step, last_step)
    streams, counts = np.unique(pieces.streams[~pieces.goes_on], return_counts=True)
    width = max(int(np.searchsorted(np.cumsum(counts), MAX_ROWS, "right")), 1)
    streams = streams[: min(width, max(max_tokens // length, 1))]
    pieces = pieces.take(np.isin(pieces.streams, streams))
    pieces = replace(pieces, streams=np.searchsorted(streams, pieces.streams))
    data = np.concatenate([batch.data.reshape(batch.shape) for batch in batches])
    resets = np.concatenate([batch.is_reset for batch in batches])
    part = (slice(first_step, last_step), streams)
    data, resets = (np.ascontiguousarray(array[part]) for array in (data, resets))
    cuts = [step - first_step for step in range(0, last_step, num_steps) if step > first_step]
    return _lay_out(pieces, data, resets, cuts, device)


def _find_pieces(batches: Sequence[StreamsBatch]) -> _Pieces:
    columns: list[list[np.ndarray]] = []
    for number, batch in enumerate(batches):
        assert batch.original_indices is not None  # noqa: S101 - shards have them
        assert batch.piece_starts is not None  # noqa: S101 - streams have them
        begins = number * batch.num_steps + batch.first_steps
        rows = np.arange(len(begins))
        starts = batch.piece_starts
        columns.append(
            [
                *(batch.row_indices, begins, begins + batch.lengths),
                *(batch.original_indices, starts, starts + batch.lengths),
                *(np.full_like(rows, number), rows),
            ]
        )
    joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)]
    order = np.lexsort((joined[1], joined[0]))
    streams, begins, ends, indices, starts, stops, *places = (each[order] for each in joined)
    goes_on = np.zeros(len(order), bool)
    goes_on[1:] = (streams[1:] == streams[:-1]) & (begins[1:] == ends[:-1])
    goes_on[1:] &= (indices[1:] == indices[:-1]) & (starts[1:] == stops[:-1])
    return _Pieces(streams, begins, ends, goes_on, np.stack(places, axis=1))


def _cut(pieces: _Pieces, first: int, last: int) -> _Pieces:
    """Return what lies between two steps; what began before begins there."""
    kept = (pieces.begins < last) & (pieces.ends > first)
    return replace(
        pieces,
        begins=np.maximum(pieces.begins, first) - first,
        ends=np.minimum(pieces.ends, last) - first,
        goes_on=pieces.goes_on & (pieces.begins > first),
    ).take(kept)


def _lay_out(
    pieces: _Pieces, data: np.ndarray, resets: np.ndarray, cuts: list[int], device: torch.device
) -> StreamSpan:
    """Make the rows of a span.

    Args:
        data, resets: [steps, streams].
    """
    width = data.shape[1]
    firsts = np.flatnonzero(~pieces.goes_on)
    lasts = np.append(firsts[1:], len(pieces.goes_on)) - 1
    lengths = pieces.ends[lasts] - pieces.begins[firsts]
    order = np.argsort(-lengths, kind="stable")
    firsts, lengths = firsts[order], lengths[order]
    begins, streams = pieces.begins[firsts], pieces.streams[firsts]
    cells = expand_ranges(begins, lengths) * width + np.repeat(streams, lengths)
    rows = np.split(data.reshape(-1)[cells], np.cumsum(lengths)[:-1])
    batch = pack_sequence(rows)
    ids = torch.from_numpy(batch.data.astype(np.int64)).to(device)
    batch_sizes = torch.from_numpy(batch.batch_sizes.copy())
    packed = PackedSequence(ids, batch_sizes, None, None)
    # what goes on from before the span begins with a new state here
    resets[0] = True
    return StreamSpan(
        BatchIds(
            packed,
            pad_packed_sequence(packed, batch_first=True)[0],
            torch.from_numpy(lengths),
            order_rows(batch_sizes).to(device),
            np.arange(len(lengths)),
            was_cut=False,
        ),
        torch.from_numpy(cells).to(device),
        torch.from_numpy((begins + lengths - 1) * width + streams).to(device),
        torch.from_numpy(resets).to(device),
        cuts,
        begins,
        pieces.places[firsts],
    )
