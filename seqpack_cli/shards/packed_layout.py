"""How `packed` batches lie in a shard: time step after time step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.ranges import expand_ranges
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import Layout, RowSource, Tensors
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.time_steps import (
    count_steps,
    iter_steps,
    place_rows,
)


@dataclass(frozen=True)
class PackedLayout:
    """How packed batches are laid out in a shard: time step after time step."""

    geometry: Geometry
    has_padding: ClassVar[bool] = False

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays of a batch, in file order."""
        of_decoder = ("encoder_rows",) if self.geometry.is_decoder else ()
        return ("lengths", "original_indices", *of_decoder, "batch_sizes", "data")

    def make_batch(self, arrays: dict[str, np.ndarray]) -> PackedBatch:
        """Make a batch from its flat arrays, unchecked."""
        return PackedBatch(
            arrays["data"],
            arrays["batch_sizes"],
            arrays["lengths"],
            arrays["original_indices"],
            encoder_rows=arrays.get("encoder_rows"),
        )

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make `batch_sizes`, and the offsets where those of each batch begin."""
        batch_sizes, step_offsets = count_steps(rows.lengths, rows.batch_offsets)
        found = {"batch_sizes": batch_sizes, "step_offsets": step_offsets}
        if rows.encoder_rows is not None:
            found["encoder_rows"] = rows.encoder_rows
        return found

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the ids of a shard in pieces of whole time steps."""
        offsets, steps = tensors["sequence_offsets"], tensors["step_offsets"]
        starts = place_rows(tensors["lengths"], offsets)
        ids = np.zeros(int(starts[-1]), source.dtype)  # an id for the gaps
        source.fill(ids, starts[:-1])
        yield from iter_steps(ids, starts[:-1], offsets, tensors["batch_sizes"], steps)

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows lie in `data`, row after row, at about 10 ns each.

        Each step begins at the running sum of `batch_sizes` over the whole shard.
        """
        lengths, row_offsets = tensors["lengths"][rows], tensors["sequence_offsets"]
        batches = np.searchsorted(row_offsets, rows, "right") - 1
        sizes = tensors["batch_sizes"]
        step_starts = np.cumsum(sizes) - sizes
        steps = expand_ranges(tensors["step_offsets"][batches], lengths)
        cells: np.ndarray = step_starts[steps] + np.repeat(rows - row_offsets[batches], lengths)
        return cells

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Return an all-True mask: there is no padding."""
        return np.ones(len(tensors["data"]), bool)

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Gather rows from their time steps, each to its own place in target."""
        cells = self.find_cells(tensors, rows)
        target[expand_ranges(target_starts, tensors["lengths"][rows])] = tensors["data"][cells]

    def find_wrong(self, tensors: Tensors, wrong: np.ndarray, *, padding: bool) -> np.ndarray:
        """Find the batches whose `batch_sizes` contradict their lengths, or rows do not match.

        From each step to the next they fall by the number of rows that end there, at last to 0.
        """
        offsets, step_offsets = tensors["sequence_offsets"], tensors["step_offsets"]
        lengths, found = tensors["lengths"], tensors["batch_sizes"]
        num_steps = np.diff(step_offsets)
        batch_of = np.repeat(np.arange(len(wrong)), np.diff(offsets))
        wrong = wrong | (lengths[offsets[:-1]] != num_steps)
        sound = ~wrong[batch_of]
        last_steps = (step_offsets[:-1][batch_of] + lengths)[sound] - 1
        num_ending = np.bincount(last_steps, minlength=len(found))
        after = np.append(found[1:], 0)
        after[step_offsets[1:] - 1] = 0
        steps_of = np.repeat(np.arange(len(num_steps)), num_steps)
        # a sum, since a difference could wrap around
        wrong[steps_of[found != after + num_ending]] = True
        if "encoder_rows" in tensors:  # each row of the encoder's batch is named once
            rows, num_rows = tensors["encoder_rows"], np.diff(offsets)[batch_of]
            inside = np.clip(rows, 0, num_rows - 1)
            num_named = np.bincount(offsets[:-1][batch_of] + inside, minlength=len(rows))
            wrong[batch_of[(num_named != 1) | (rows != inside)]] = True
        return wrong


LAYOUT: type[Layout] = PackedLayout
