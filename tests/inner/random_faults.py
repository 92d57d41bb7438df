"""Faults for random models: each tells the layers something wrong about the cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from random_layers import Cells

Fault = Callable[[Cells], Cells]


def join_pairs(cells: Cells) -> Cells:
    """Take each two sequences for one, where they share a row."""
    return replace(cells, sequences=cells.sequences.div(2, rounding_mode="floor"))


def shift_borders(cells: Cells) -> Cells:
    """Take the first token of each sequence for the last of the sequence before."""
    return replace(cells, sequences=cells.sequences.roll(1, dims=1))


def shift_back(cells: Cells) -> Cells:
    """Take the last token of each sequence for the first of the next one."""
    return replace(cells, sequences=cells.sequences.roll(-1, dims=1))


def count_on(cells: Cells) -> Cells:
    """Let positions run on over the row."""
    steps = torch.arange(cells.ids.shape[1], device=cells.ids.device)
    return replace(cells, positions=steps.expand_as(cells.positions))


def count_from_the_right(cells: Cells) -> Cells:
    steps = torch.arange(cells.ids.shape[1], device=cells.ids.device)
    return replace(cells, positions=steps.flip(0).expand_as(cells.positions))


def see_padding(cells: Cells) -> Cells:
    """Take padding for tokens of a sequence of its row."""
    nearest = cells.sequences.cummax(dim=1).values
    return replace(cells, sequences=nearest.clamp(min=0))


def forget_the_longest(cells: Cells) -> Cells:
    """Take the last column of the rectangle for padding."""
    sequences = cells.sequences.clone()
    sequences[:, -1] = -1
    return replace(cells, sequences=sequences)


def join_ends(cells: Cells) -> Cells:
    """Take the last sequence for a part of the first one."""
    sequences = cells.sequences
    return replace(cells, sequences=sequences.masked_fill(sequences == sequences.max(), 0))


def swap_rows(cells: Cells) -> Cells:
    """Set the ids of the first row to those of the last one."""
    ids = cells.ids.clone()
    ids[0] = ids[-1]
    return replace(cells, ids=ids)


FAULTS: dict[str, tuple[Fault, ...]] = {
    "packed": (count_from_the_right, swap_rows, forget_the_longest, see_padding),
    "padded": (count_from_the_right, swap_rows, forget_the_longest, see_padding),
    "varlen": (join_pairs, shift_borders, shift_back, count_on, join_ends, see_padding),
}
