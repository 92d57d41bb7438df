"""Keys of pairs on a grid: joined as a slow program joins them, moved to where they save most."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from seqpack_cli.batching.pair_keys import Grid, Place, find_best, join_keys, move_keys


def make_grid(seed: int) -> Grid:
    """Draw a grid whose counts are so different that no two joins cost the same."""
    generator = np.random.default_rng(seed)
    encoder, decoder = (np.sort(generator.choice(99, size, replace=False)) + 1 for size in (6, 8))
    counts = generator.integers(1, 1 << 40, (6, 8)) * (generator.random((6, 8)) < 0.6)
    return Grid(encoder, decoder, counts)


def slow_join(grid: Grid, num_keys: int) -> list[Place]:
    """Try all joins of two keys, and take the best, again and again."""
    counts = {place: int(grid.counts[place]) for place in zip(*grid.kinds, strict=True)}

    def count_cells(place: Place) -> int:
        return int(grid.encoder[place[0]] + grid.decoder[place[1]]) * counts[place]

    while len(counts) > num_keys:
        costs = {}
        for one, other in product(counts, repeat=2):
            joined = (max(one[0], other[0]), max(one[1], other[1]))
            width = int(grid.encoder[joined[0]] + grid.decoder[joined[1]])
            if one != other:
                cells = width * (counts[one] + counts[other])
                costs[cells - count_cells(one) - count_cells(other)] = (one, other, joined)
        one, other, joined = costs[min(costs)]
        num_pairs = counts.pop(one) + counts.pop(other)
        counts[joined] = counts.get(joined, 0) + num_pairs
    return sorted((int(row), int(column)) for row, column in counts)


def count_cells(grid: Grid, places: list[Place]) -> float:
    """Count the cells of all pairs, each in the key that holds it in the fewest."""
    widths = np.array([*(float(grid.widths[place]) for place in places), np.inf])
    best = find_best(grid.encoder, grid.decoder, places)
    return float((widths[best[grid.kinds]] * grid.counts[grid.kinds]).sum())


@pytest.mark.parametrize("seed", range(10))
def test_join_keys_joins_the_two_that_need_the_fewest_cells_more(seed: int) -> None:
    grid = make_grid(seed)
    for num_keys in (1, 3, 8, 15):
        assert join_keys(grid, num_keys) == slow_join(grid, num_keys)


def test_move_keys_leaves_no_key_that_saves_more_one_place_further() -> None:
    num_moved = 0
    for seed in range(20):
        grid = make_grid(seed)
        joined = join_keys(grid, 5)
        moved = move_keys(grid, [*joined])
        fewest = count_cells(grid, moved)
        num_moved += fewest < count_cells(grid, joined)
        for number, (row, column) in enumerate(moved):
            others = [*moved[:number], *moved[number + 1 :]]
            for place in product((row - 1, row, row + 1), (column - 1, column, column + 1)):
                if 0 <= place[0] < len(grid.encoder) and 0 <= place[1] < len(grid.decoder):
                    assert count_cells(grid, [*others, place]) >= fewest
    assert num_moved >= 5
