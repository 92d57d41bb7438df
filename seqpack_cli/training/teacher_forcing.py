"""The decoder's rows as a model reads and learns them: bos and eos, input and labels.

With teacher forcing the input is each row without its last token, and the labels are the row
without its first token: at each token of the input the one that follows. Nothing loops over rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.training.labels import IGNORED, make_next_labels

DecoderBatch = PackedBatch | PaddedBatch


@dataclass(frozen=True)
class DecoderEnds:
    """The tokens that go before and after each row, and what fills the cells beside them.

    Args:
        bos_id, eos_id: None adds no token.
        pad_id: the id in padding cells.
        fills: the columns per token, and what they hold beside bos, eos and padding. An eos is a
            target all the same.
    """

    bos_id: int | None = None
    eos_id: int | None = None
    pad_id: int = 0
    fills: Mapping[str, int] = field(default_factory=dict)


def add_ends(batch: DecoderBatch, ends: DecoderEnds) -> DecoderBatch:
    """Put a token before each row, and one after it; filler rows stay empty.

    A rectangle gets a column for each.

    Raises:
        ValueError: a row begins, or ends, with that token already.
    """
    has_bos, has_eos = ends.bos_id is not None, ends.eos_id is not None
    if not (has_bos or has_eos):
        return batch
    _check_ends(batch, ends)
    return _take_cells(batch, batch.extend(before=has_bos, after=has_eos), ends)


def _check_ends(batch: DecoderBatch, ends: DecoderEnds) -> None:
    firsts, lasts = batch.find_ends()
    for cells, verb, name in ((firsts, "begins", "bos_id"), (lasts, "ends", "eos_id")):
        id_ = getattr(ends, name)
        if id_ is not None and (batch.data[cells] == id_).any():
            row = int((batch.data[cells] == id_).argmax())
            raise ValueError(
                f"{name} is {id_}, with which row {row} of the decoder {verb} already: leave out "
                f"{name}="
            )


def shift_rows(batch: DecoderBatch, ends: DecoderEnds) -> tuple[DecoderBatch, np.ndarray]:
    """Return the input, each row without its last token, and the labels.

    A rectangle loses a column. Filler rows stay empty.

    Returns:
        The labels are int64 in the shape of the input: at each token the one that follows, IGNORED
        where that is not a target and in padding.

    Raises:
        ValueError: a row has one token: it would have no input.
    """
    is_single = batch.lengths == 1
    if is_single.any():
        row, indices = int(is_single.argmax()), batch.original_indices
        place = f"row {row}" if indices is None else f"sequence {indices[row]}"
        raise ValueError(
            f"{place} of the decoder has 1 token, expected at least 2, of which the last is no "
            "input: pass bos_id= or eos_id=, or pack with --where 'decoder.@length > 1'"
        )
    cells = batch.shorten()
    labels = _take(make_next_labels(batch), cells.data, IGNORED)
    return _take_cells(batch, cells, ends), labels.reshape(cells.shape)


def _take_cells(batch: DecoderBatch, cells: DecoderBatch, ends: DecoderEnds) -> DecoderBatch:
    """Return the ids and columns at cells of a batch, and what goes into others."""
    ids = ends.pad_id, ends.bos_id or 0, ends.eos_id or 0
    columns = dict(batch.columns)
    for name in columns.keys() & ends.fills.keys():
        fill = ends.fills[name]
        values = _take(columns[name], cells.data, fill, fill, 1 if name == TARGETS else fill)
        columns[name] = values.reshape(cells.shape)
    return cells.with_ids(_take(batch.data, cells.data, *ids), columns)


def _take(values: Any, cells: np.ndarray, fill: int, before: int = 0, after: int = 0) -> np.ndarray:
    """Return int64 values at flat cells; PADDING, BEFORE and AFTER count from the end."""
    taken: np.ndarray = np.append(values.astype(np.int64), (after, before, fill))[cells]
    return taken
