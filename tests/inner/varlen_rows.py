"""Make a varlen batch of torch tensors by hand, cell by cell, from the lengths in each row."""

from __future__ import annotations

from typing import Any

import torch

from seqpack_cli.training.batch_tensors import VarlenTensors

SHAPES: dict[str, dict[str, Any]] = {  # shapes of a batch, by what is in its rows
    "one row": {"rows": [[4, 1, 7]]},
    "one sequence": {"rows": [[5]]},
    "full rows": {"rows": [[2, 4], [6]], "width": 6},
    "several rows": {"rows": [[4, 3], [1], [2, 1, 1, 6]], "width": 10},
    "an empty row": {"rows": [[2, 3], [1], []], "width": 6},
    "aligned": {"rows": [[4, 1, 7, 3]], "multiple": 4},
    "aligned rows": {"rows": [[5, 3], [1, 1]], "width": 20, "multiple": 4},
}


def make_tensors(
    rows: list[list[int]],
    *,
    width: int | None = None,
    multiple: int = 1,
    vocab_size: int = 50,
    labels: str | None = None,
) -> VarlenTensors:
    """Return a batch with drawn ids above 1; padding has the id 0.

    Args:
        width: cells of a row; None: one row without padding behind its last sequence.
        labels: "same" or "next".
    """
    generator = torch.Generator().manual_seed(0)
    cells: list[tuple[int, int, int]] = []  # id, position, label
    starts, lengths = [], [length for row in rows for length in row]
    for number, row in enumerate(rows):
        for length in row:
            starts.append(len(cells))
            ids = torch.randint(2, vocab_size, (length,), generator=generator).tolist()
            same, after = [-100, *ids[1:]], [*ids[1:], -100]
            for step in range(length):
                cells.append((ids[step], step, (after if labels == "next" else same)[step]))
            cells += [(0, 0, -100)] * (-length % multiple)
        if width is not None:
            cells += [(0, 0, -100)] * ((number + 1) * width - len(cells))
    shape = (len(cells),) if width is None else (len(rows), width)
    ids, positions, targets = (torch.tensor(each).view(shape) for each in zip(*cells, strict=True))
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    padded = torch.tensor([*starts, len(cells)], dtype=torch.int32)
    indices = torch.arange(len(lengths))
    return VarlenTensors(
        ids=ids,
        cu_seqlens=cu_seqlens,
        max_seqlen=max(lengths),
        position_ids=positions,
        lengths=torch.tensor(lengths),
        original_indices=indices,
        piece_starts=torch.zeros_like(indices),
        labels=None if labels is None else targets,
        cu_seqlens_padded=None if padded.equal(cu_seqlens) else padded,
        labels_name=labels,
    )


def find_ranges(batch: VarlenTensors) -> list[tuple[int, int]]:
    """Return the first cell of each sequence in the flat batch, and the cell behind its last."""
    padded = batch.cu_seqlens if batch.cu_seqlens_padded is None else batch.cu_seqlens_padded
    pairs = zip(padded[:-1].tolist(), batch.lengths.tolist(), strict=True)
    return [(start, start + length) for start, length in pairs]
