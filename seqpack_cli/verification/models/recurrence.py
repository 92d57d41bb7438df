"""The reference recurrence: a plain loop over `batch_sizes`, one time step after another.

It does what torch's kernels do for a PackedSequence. Forwards, each step computes the rows that
have not ended, and the hidden state of those that ended is kept. Backwards, it starts with the rows
that reach the last step, and each other row joins, with its start state, at its own last step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

State = tuple[torch.Tensor, ...]
Hidden = torch.Tensor | State
Step = Callable[[torch.Tensor, Hidden], Hidden]
Walk = Callable[[Step, torch.Tensor, list[int], Hidden], tuple[torch.Tensor, Hidden]]


def walk_batch_sizes(
    step: Step, inputs: torch.Tensor, batch_sizes: list[int], hidden: Hidden
) -> tuple[torch.Tensor, Hidden]:
    """Run a cell over packed inputs, as torch's PackedLayer does.

    Args:
        step: takes the inputs of one step, [rows, I], and the hidden state of those rows, and
            returns the new hidden state; if that is a tuple, its first part is the output.
        inputs: [S, I], time step by time step.
        batch_sizes: number of rows at each step, never rising, sum S.
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
    state = as_state(hidden)
    outputs: list[torch.Tensor] = []
    ended: list[State] = []
    for rows in torch.split(inputs, batch_sizes):  # a single split has a faster backward
        num_alive = len(rows)
        if num_alive < len(state[0]):
            ended.append(tuple(part[num_alive:] for part in state))
            state = tuple(part[:num_alive] for part in state)
        state = as_state(step(rows, _like(hidden, state)))
        outputs.append(state[0])
    ended.append(state)
    final = tuple(torch.cat(parts) for parts in zip(*reversed(ended), strict=True))
    return torch.cat(outputs), _like(hidden, final)


def walk_batch_sizes_reversed(
    step: Step, inputs: torch.Tensor, batch_sizes: list[int], hidden: Hidden
) -> tuple[torch.Tensor, Hidden]:
    """Run a cell over packed inputs from each row's end to its start, as ReversedPackedLayer does.

    Args:
        step, inputs, batch_sizes, hidden: as for walk_batch_sizes.

    Returns:
        The outputs [S, H] in the order of inputs, and each row's hidden state after its first
        token, which is computed last here, in the form of hidden.

    >>> add = lambda inputs, hidden: hidden + inputs
    >>> data = torch.tensor([[1.0], [9.0], [2.0], [3.0]])  # rows 1 2 3 and 9
    >>> outputs, final = walk_batch_sizes_reversed(add, data, [2, 1, 1], torch.zeros(2, 1))
    >>> outputs.flatten().tolist(), final.flatten().tolist()
    ([6.0, 9.0, 5.0, 3.0], [6.0, 9.0])
    """
    start = as_state(hidden)
    state = tuple(part[: batch_sizes[-1]] for part in start)
    outputs: list[torch.Tensor] = []
    for rows in reversed(torch.split(inputs, batch_sizes)):
        num_before, num_alive = len(state[0]), len(rows)
        if num_alive > num_before:
            joining = tuple(part[num_before:num_alive] for part in start)
            state = tuple(torch.cat(parts) for parts in zip(state, joining, strict=True))
        state = as_state(step(rows, _like(hidden, state)))
        outputs.append(state[0])
    return torch.cat(outputs[::-1]), _like(hidden, state)


def as_state(hidden: Hidden) -> State:
    """Return a hidden state as a tuple."""
    return (hidden,) if isinstance(hidden, torch.Tensor) else tuple(hidden)


def _like(hidden: Hidden, state: State) -> Hidden:
    """Return a state in the form of hidden: a tensor or a tuple."""
    return state[0] if isinstance(hidden, torch.Tensor) else state
