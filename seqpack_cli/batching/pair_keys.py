"""Choose the keys of pair buckets on a grid of lengths: join them two at a time, then move them.

A grid counts how many pairs there are of each kind: row for the encoder's length, column for the
decoder's. A place on the grid is a key; it holds all cells above it and to its left. The time to
join is quadratic in the kinds of pairs, 0.4 s for 4,000; a move takes 0.1 to 0.5 ms for each key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

MAX_ROUNDS = 3  # of moves; later ones save next to nothing
MOST = np.iinfo(np.int64).max
STEPS = (-4, -2, -1, 1, 2, 4)
MOVES = np.array(
    [
        (0, 0),
        *((step, 0) for step in STEPS),
        *((0, step) for step in STEPS),
        *((1, 1), (1, -1), (-1, 1), (-1, -1)),
    ]
)

Place = tuple[int, int]  # row and column of a grid


@dataclass(frozen=True)
class Grid:
    """How many pairs fall between two neighbouring candidates of either side."""

    encoder: np.ndarray  # int64[E], candidates in ascending order
    decoder: np.ndarray  # int64[D]
    counts: np.ndarray  # int64[E, D]

    @cached_property
    def kinds(self) -> tuple[np.ndarray, ...]:
        """Return the rows and the columns of the cells that hold pairs."""
        return np.nonzero(self.counts)

    @cached_property
    def widths(self) -> np.ndarray:
        """Return the lengths of both sides together of a key at each cell, int64[E, D]."""
        widths: np.ndarray = self.encoder[:, None] + self.decoder
        return widths


def join_keys(grid: Grid, num_buckets: int) -> list[Place]:
    """Begin with a key for each kind of pair, and join until at most num_buckets are left."""
    joins = _Joins(grid)
    for _ in range(len(joins.counts) - num_buckets):
        joins.join()
    rows, columns = joins.places[:, ~joins.is_gone].tolist()
    return sorted(set(zip(rows, columns, strict=True)))


def move_keys(grid: Grid, places: list[Place]) -> list[Place]:
    """Move one key after the other to the best place near by, as long as that saves cells."""
    num_keys = np.zeros(grid.counts.shape, np.int64)
    for place in places:
        num_keys[place] += 1
    for _ in range(MAX_ROUNDS):
        before = places.copy()
        for number, place in enumerate(places):
            num_keys[place] -= 1
            places[number] = _find_better(grid, num_keys, place)
            num_keys[places[number]] += 1
        if places == before:
            break
    return places


def tighten_keys(grid: Grid, places: list[Place]) -> list[Place]:
    """Make each key as small as the pairs that it is best for, and drop those that hold none."""
    best = find_best(grid.encoder, grid.decoder, places)
    rows, columns = grid.kinds
    numbers = best[rows, columns]
    tight = np.full((2, len(places)), -1)
    np.maximum.at(tight[0], numbers, rows)
    np.maximum.at(tight[1], numbers, columns)
    kept = sorted({(row, column) for row, column in tight.T.tolist() if row >= 0})
    return kept if kept == places else tighten_keys(grid, kept)


def find_best(encoder: np.ndarray, decoder: np.ndarray, places: list[Place]) -> np.ndarray:
    """Return for each cell of a grid the number of the key that holds it in the fewest cells.

    Args:
        encoder: the lengths of the rows, int64[E] in ascending order.
        decoder: the lengths of the columns, int64[D] in ascending order.
        places: of the keys; of equals the first is taken.

    Returns:
        int64[E, D], the number of keys where none holds the cell.
    """
    widths = [int(encoder[row] + decoder[column]) for row, column in places]
    order = np.array(sorted(range(len(places)), key=lambda key: (widths[key], key)))
    ranks = np.full((len(encoder), len(decoder)), len(places))
    for rank, key in reversed(list(enumerate(order.tolist()))):
        ranks[places[key]] = rank
    numbers: np.ndarray = np.append(order, len(places))[_spread(ranks)]
    return numbers


class _Joins:
    """Keys that are joined, two at a time; each knows the key that it joins for the least."""

    def __init__(self, grid: Grid) -> None:
        self.places = np.stack(grid.kinds)
        self.counts = grid.counts[tuple(self.places)]
        self.sides = np.stack([grid.encoder[self.places[0]], grid.decoder[self.places[1]]])
        self.cells = self.counts * self.sides.sum(0)
        self.is_gone = np.zeros(len(self.counts), bool)  # joined with one that is left
        self.nearest = np.zeros(len(self.counts), np.int64)
        self.costs = np.full(len(self.counts), MOST)  # more cells, joined with the nearest
        for key in range(len(self.counts)):
            self._find_nearest(key)

    def join(self) -> None:
        """Join the two keys that need the fewest cells more as one."""
        key = int(self.costs.argmin())
        other = int(self.nearest[key])
        for array in (self.places, self.sides):
            array[:, key] = array[:, [key, other]].max(1)
        self.counts[key] += self.counts[other]
        self.cells[key] = self.counts[key] * self.sides[:, key].sum()
        self.is_gone[other] = True
        self.costs[other] = MOST
        is_stale = ~self.is_gone & ((self.nearest == key) | (self.nearest == other))
        # Others join it for no less than the cheaper half before: so for 3 million random triples.
        for number in (key, *np.flatnonzero(is_stale).tolist()):
            self._find_nearest(number)

    def _find_nearest(self, key: int) -> None:
        """Find the key that another joins for the least."""
        encoder, decoder = self.sides
        costs = np.maximum(encoder, encoder[key]) + np.maximum(decoder, decoder[key])
        costs *= self.counts + self.counts[key]
        costs -= self.cells
        costs -= self.cells[key]
        costs[self.is_gone] = MOST
        costs[key] = MOST
        self.nearest[key] = costs.argmin()
        self.costs[key] = costs[self.nearest[key]]


def _find_better(grid: Grid, num_keys: np.ndarray, place: Place) -> Place:
    """Find the place near by where one more key saves the most cells."""
    own, kinds = grid.widths, grid.kinds
    widths = _spread(np.where(num_keys, own, MOST))[kinds]
    rows, columns = (side[widths == MOST] for side in kinds)  # the key is the only one for these
    tried = place + MOVES
    is_inside = (tried >= (rows.max(initial=0), columns.max(initial=0))) & (tried < own.shape)
    tried = tried[is_inside.all(1)]
    new = own[tuple(tried.T)]
    last = tried.max(0)
    some = np.flatnonzero((widths > new.min()) & (kinds[0] <= last[0]) & (kinds[1] <= last[1]))
    rows, columns = (side[some] for side in kinds)
    saved = np.minimum(widths[some], own[-1, -1]) - new[:, None]
    saved = np.maximum(saved, 0) * grid.counts[rows, columns]
    saved[(rows > tried[:, :1]) | (columns > tried[:, 1:])] = 0
    row, column = tried[saved.sum(1).argmax()].tolist()
    return row, column


def _spread(values: np.ndarray) -> np.ndarray:
    """Return for each cell the least value of the keys that hold it: those below and right."""
    below = np.minimum.accumulate(values[::-1], axis=0)[::-1]
    least: np.ndarray = np.minimum.accumulate(below[:, ::-1], axis=1)[:, ::-1]
    return least
