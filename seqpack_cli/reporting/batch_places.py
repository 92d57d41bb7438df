"""Where the sequences of a batch lie, in the words that people read: row, column, stream, step.

In most layouts a sequence is a row. Where several sequences share a row, each has a place in it:
a cell of one unpadded row, a row and a column of a rectangle, or a stream and a time step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LayoutRules
from seqpack_cli.reporting.wording import count
from seqpack_cli.shards.layouts import Batch

NAMES = ("row", "stream", "column", "step", "cell")


def find_place(batch: Batch, rules: LayoutRules, index: int) -> dict[str, int]:
    """Return where a sequence of a checked batch begins, by the names of its coordinates."""
    if not rules.shares_rows:
        return {"row": index}
    place = [int(it) for it in np.unravel_index(int(batch.find_cells(index)[0]), batch.shape)]
    if rules.carries_state:
        return {"stream": place[1], "step": place[0]}
    return dict(zip(("cell",) if len(place) == 1 else ("row", "column"), place, strict=True))


def list_names(found: Mapping[str, Any]) -> list[str]:
    """Return the names of the coordinates that an answer of `inspect` has."""
    return [name for name in NAMES if name in found]


def sort_by_line(places: Iterable[Mapping[str, int]], num_lines: int) -> list[list[int]]:
    """Return the numbers of the sequences in each row or stream of a batch."""
    lines: list[list[int]] = [[] for _ in range(num_lines)]
    for number, place in enumerate(places):
        lines[place.get("row", place.get("stream", 0))].append(number)
    return lines


def spell_place(found: Mapping[str, Any]) -> str:
    """Return the batch of a sequence, and its place there, as words.

    >>> spell_place({"batch": 3, "stream": 0, "step": 1200})
    'batch 3, stream 0, step 1,200'
    """
    return ", ".join(f"{name} {found[name]:,}" for name in ("batch", *list_names(found)))


def spell_shape(shape: Sequence[int], rules: LayoutRules) -> str:
    """Return the shape of a batch that shares rows.

    Args:
        shape: of its ids in torch.
    """
    if rules.carries_state:
        return f"{count(shape[0], 'step')} x {count(shape[1], 'stream')}"
    if len(shape) == 1:
        return f"1 row of {count(shape[0], 'cell')}"
    return f"{count(shape[0], 'row')} x {count(shape[1], 'cell')}"
