"""The reference recurrence: a plain loop that walks `batch_sizes`, one time step after another.

At each step it takes the rows still alive, puts aside the hidden state of those that ended, and
joins all final states at the end, longest row first. It is what torch's kernels do for a
PackedSequence, in the open: every row's state stops changing when the row ends.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

State = tuple[torch.Tensor, ...]
Hidden = torch.Tensor | State


def walk_batch_sizes(
    step: Callable[[torch.Tensor, Hidden], Hidden],
    inputs: torch.Tensor,
    batch_sizes: list[int],
    hidden: Hidden,
) -> tuple[torch.Tensor, Hidden]:
    """Run a cell over packed inputs.

    Args:
        step: gives the new hidden state for the inputs of one step, [rows, I], and the hidden state
            of those rows; where it is a tuple, its first part is the output.
        inputs: [S, I], time step by time step.
        batch_sizes: rows alive at each step, never rising, sum S.
        hidden: [B, H], or a tuple of such tensors, for B = batch_sizes[0] rows.

    Returns:
        The outputs [S, H] in the order of inputs, and each row's hidden state after its last step,
        in the form of hidden.

    >>> add = lambda inputs, hidden: hidden + inputs
    >>> data = torch.tensor([[1.0], [9.0], [2.0], [3.0]])  # rows 1 2 3 and 9
    >>> outputs, final = walk_batch_sizes(add, data, [2, 1, 1], torch.zeros(2, 1))
    >>> outputs.flatten().tolist(), final.flatten().tolist()
    ([1.0, 9.0, 3.0, 6.0], [6.0, 9.0])
    """
    flat = isinstance(hidden, torch.Tensor)
    state: State = (hidden,) if isinstance(hidden, torch.Tensor) else tuple(hidden)
    outputs: list[torch.Tensor] = []
    ended: list[State] = []
    for rows in torch.split(inputs, batch_sizes):  # one split: its backward joins all at once
        num_alive = len(rows)
        if num_alive < len(state[0]):
            ended.append(tuple(part[num_alive:] for part in state))
            state = tuple(part[:num_alive] for part in state)
        new = step(rows, state[0] if flat else state)
        state = (new,) if isinstance(new, torch.Tensor) else tuple(new)
        outputs.append(state[0])
    ended.append(state)
    final = tuple(torch.cat(parts) for parts in zip(*reversed(ended), strict=True))
    return torch.cat(outputs), final[0] if flat else final
