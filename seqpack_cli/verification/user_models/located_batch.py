"""A batch of any kind, the tensor of its ids, and the cells where each sequence lies in it.

`locate(batch)` returns that tensor, the very one in the batch, and for each sequence the places of
its tokens in `ids.flatten()`. A changed batch is a deep copy whose ids are edited in place, so that
dicts, tuples, dataclasses and objects of other packages need no code of their own.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Locate = Callable[[Any], tuple[torch.Tensor, Sequence[Any]]]


@dataclass(frozen=True)
class LocatedBatch:
    """A batch and where its sequences lie."""

    batch: Any
    ids: torch.Tensor  # of any shape, inside the batch
    cells: tuple[torch.Tensor, ...]  # int64[length] of each sequence; of filler empty

    @property
    def numbers(self) -> list[int]:
        """The sequences that have tokens."""
        return [number for number, cells in enumerate(self.cells) if len(cells)]

    def sequence(self, number: int) -> torch.Tensor:
        """Return the ids of a sequence, int64[length], on the CPU."""
        return self.ids.flatten()[self.cells[number]].cpu().long()

    def key(self, number: int) -> tuple[int, ...]:
        """Return what tells a sequence from others: its ids, and in our batches its origin."""
        origin = []
        for name in ("original_indices", "piece_starts"):
            values = getattr(self.batch, name, None)
            if isinstance(values, torch.Tensor) and len(values) == len(self.cells):
                origin.append(int(values[number]))
        return (*origin, *self.sequence(number).tolist())

    def tokens(self) -> torch.Tensor:
        """Return the ids of all sequences, one after another, on the CPU."""
        return self.ids.flatten()[torch.cat(self.cells)].cpu().long()

    def padding(self) -> torch.Tensor:
        """Return the cells that belong to no sequence."""
        is_padding = torch.ones(self.ids.numel(), dtype=torch.bool, device=self.ids.device)
        is_padding[torch.cat(self.cells)] = False
        return is_padding.nonzero().flatten()

    @functools.cached_property
    def step(self) -> int | None:
        """How many cells apart the tokens of every sequence are; None if that varies.

        1 for rows that are padded or shared, B for columns [T, B].
        """
        gaps = [self.cells[number].diff() for number in self.numbers]
        steps = set(torch.cat(gaps).tolist())
        if not steps:
            return 1
        width = self.ids.shape[-1] if self.ids.ndim > 1 else 1
        return int(steps.pop()) if steps in ({1}, {width}) else None

    @functools.cached_property
    def begins_rows(self) -> bool:
        """Whether outputs of row i and column t can be those of token t of sequence i.

        Not where rows of ids begin with padding, or with another sequence.
        """
        if self.ids.ndim == 1:
            return True
        firsts = [int(self.cells[number][0]) % self.ids.shape[-1] for number in self.numbers]
        return not any(firsts)

    @property
    def has_rows(self) -> bool:
        """Whether each sequence has a row of its own, or is one of a PackedSequence."""
        is_flat = self.ids.ndim == 1 and not self.shares_rows
        return is_flat or self.ids.shape[0] == len(self.cells)

    @functools.cached_property
    def shares_rows(self) -> bool:
        """Whether several sequences lie one after another in a row or a column."""
        if self.step is None:
            return False
        rows = [self._row_of(int(self.cells[number][0])) for number in self.numbers]
        return len(set(rows)) < len(rows)

    def distance(self, cell: int, number: int) -> int | None:
        """Return how many tokens a cell lies behind a sequence (above 0) or before it.

        None if it lies in another row, or sequences do not share rows.
        """
        cells = self.cells[number]
        first, last = int(cells[0]), int(cells[-1])
        if not self.shares_rows or self._row_of(cell) != self._row_of(first):
            return None
        return (cell - last if cell > last else cell - first) // int(self.step or 1)

    def _row_of(self, cell: int) -> int:
        width = self.ids.shape[-1] if self.ids.ndim else 1
        return cell // width if self.step == 1 else cell % width


def locate_batch(batch: Any, locate: Locate) -> LocatedBatch:
    """Return where the sequences of a batch lie.

    Raises:
        ValueError: locate returned something else than a tensor of integers and cells in it, or two
            sequences share a cell.
    """
    try:
        ids, found = locate(batch)
        cells = tuple(torch.as_tensor(each).to(ids.device).flatten() for each in found)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"locate: {error}; expected (ids, cells): the tensor of ids in the batch and, for each "
            "sequence, the places of its tokens in ids.flatten()"
        ) from error
    if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or ids.dtype == torch.bool:
        kind = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"locate returned ids that are {kind}, expected a tensor of integers")
    cells = tuple(each.long() if not len(each) else each for each in cells)
    if any(each.is_floating_point() or each.dtype == torch.bool for each in cells):
        raise ValueError("locate returned cells that are not integers")
    cells = tuple(each.long() for each in cells)
    together = torch.cat(cells) if cells else torch.empty(0, dtype=torch.long)
    if not len(together):
        raise ValueError("locate found no sequence with tokens")
    if int(together.min()) < 0 or int(together.max()) >= ids.numel():
        raise ValueError(f"locate returned cells outside the {ids.numel()} cells of the ids")
    owners = torch.repeat_interleave(
        torch.arange(len(cells)), torch.tensor([len(each) for each in cells])
    )
    first = torch.full((ids.numel(),), -1, dtype=torch.long)
    first[together.cpu()] = owners
    taken = first[together.cpu()] != owners
    if bool(taken.any()) or len(torch.unique(together)) < len(together):
        other = int(owners[int(taken.int().argmax())])
        raise ValueError(f"locate returned a cell twice, among others for sequence {other}")
    return LocatedBatch(batch, ids, cells)


def with_ids(
    found: LocatedBatch, locate: Locate, cells: torch.Tensor, values: torch.Tensor
) -> LocatedBatch:
    """Return a copy of the batch with other ids in some cells; all else, also labels, stays."""
    batch = copy.deepcopy(found.batch)
    ids, _ = locate(batch)
    places = torch.unravel_index(cells, ids.shape)
    ids[places] = values.to(ids)
    return LocatedBatch(batch, ids, found.cells)


def draw_other_ids(
    found: LocatedBatch, cells: torch.Tensor, generator: torch.Generator
) -> torch.Tensor | None:
    """Draw another id for each cell, out of those that the sequences have; None if there is one."""
    pool: torch.Tensor = torch.unique(found.tokens())
    if len(pool) < 2:
        return None
    now = found.ids.flatten()[cells].cpu().long()
    # for ids of the pool never the same; for others, such as pad_id, any
    places = torch.searchsorted(pool, now).clamp(max=len(pool) - 1)
    steps = torch.randint(1, len(pool), (len(now),), generator=generator)
    drawn: torch.Tensor = pool[(places + steps) % len(pool)]
    return drawn
