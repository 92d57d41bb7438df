"""Faults of torch's kernels, as a driver or a release could bring them, put into torch itself.

Each function takes what a kernel was given and what it returned, and returns what a faulty one
would. `verify` has no part in them, so they hold for any way to write it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

Hidden = tuple[torch.Tensor, ...]
Change = Callable[[nn.Module, PackedSequence, torch.Tensor, Hidden], tuple[torch.Tensor, Hidden]]
_FORWARD = {kind: kind.forward for kind in (nn.LSTM, nn.GRU, nn.RNN)}


def change_packed(
    patch: pytest.MonkeyPatch, change: Change, *, kind: type[nn.RNNBase] = nn.LSTM
) -> None:
    """Change what torch's module returns for a PackedSequence of several rows."""
    right = _FORWARD[kind]

    def forward(module: nn.Module, inputs: Any, hidden: Any = None) -> Any:
        outputs, states = right(module, inputs, hidden)
        if not isinstance(inputs, PackedSequence) or inputs.batch_sizes[0] == 1:
            return outputs, states
        as_tuple = states if isinstance(states, tuple) else (states,)
        data, as_tuple = change(module, inputs, outputs.data, as_tuple)
        return outputs._replace(data=data), as_tuple if len(as_tuple) > 1 else as_tuple[0]

    patch.setattr(kind, "forward", forward)


def change_rectangles(
    patch: pytest.MonkeyPatch, what: str, *, single: bool, given: bool = False
) -> None:
    """Spoil what nn.LSTM returns for tensors: its "outputs", "states", or the "gradient" of both.

    Args:
        single: where there is one row, else where there are several.
        given: only where a state is given.
    """
    right = _FORWARD[nn.LSTM]

    def forward(module: nn.Module, inputs: Any, hidden: Any = None) -> Any:
        outputs, states = right(module, inputs, hidden)
        if isinstance(inputs, PackedSequence) or (len(inputs) == 1) != single:
            return outputs, states
        if given and hidden is None:
            return outputs, states
        if what == "states":
            return outputs, tuple(0.9 * each for each in states)
        rest = 0.1 * outputs.detach() if what == "gradient" else 0
        return 0.9 * outputs + rest, states

    patch.setattr(nn.LSTM, "forward", forward)


def run_on(module: Any, inputs: PackedSequence, data: torch.Tensor, states: Hidden) -> Any:
    """Return the states behind the padding: the hidden state is not trimmed."""
    rectangle, _ = pad_packed_sequence(inputs, batch_first=True)
    _, final = _FORWARD[type(module)](module, rectangle)
    return data, final if isinstance(final, tuple) else (final,)


def begin_in_padding(
    module: Any, inputs: PackedSequence, data: torch.Tensor, states: Hidden
) -> Any:
    """Return outputs of a backward direction that reads the padding first."""
    rectangle, lengths = pad_packed_sequence(inputs, batch_first=True)
    outputs, _ = _FORWARD[type(module)](module, rectangle)
    rows = nn.utils.rnn.pack_padded_sequence(outputs, lengths, batch_first=True)
    return rows.data, states


def swap_states(number: int) -> Change:
    """Return a fault that exchanges the first two rows of h_n (0) or c_n (1)."""

    def change(_: Any, inputs: Any, data: torch.Tensor, states: Hidden) -> Any:
        order = [1, 0, *range(2, states[number].shape[1])]
        swapped = [each[:, order] if k == number else each for k, each in enumerate(states)]
        return data, tuple(swapped)

    return change


def add(size: float, place: int = -1) -> Change:
    """Return a fault that adds a number to one output."""

    def change(_: Any, inputs: Any, data: torch.Tensor, states: Hidden) -> Any:
        added = torch.zeros_like(data)
        added[place] = size
        return data + added, states

    return change


def leak(size: float) -> Change:
    """Return a fault that moves all outputs by what all tokens are."""

    def change(_: Any, inputs: Any, data: torch.Tensor, states: Hidden) -> Any:
        return data + size * data.detach().sum().sin(), states

    return change


def spoil(value: float, *, state: bool = False) -> Change:
    """Return a fault that sets an output, or a number of the last state, to a value."""

    def change(_: Any, inputs: Any, data: torch.Tensor, states: Hidden) -> Any:
        spoilt = (states[-1] if state else data).clone()
        spoilt[..., -1, 0] = value
        return (data, (*states[:-1], spoilt)) if state else (spoilt, states)

    return change


def detach_row(_: Any, inputs: PackedSequence, data: torch.Tensor, states: Hidden) -> Any:
    """Return outputs whose last token has no gradient."""
    return torch.cat([data[:-1], data[-1:].detach()]), states


def detach_states(_: Any, inputs: Any, data: torch.Tensor, states: Hidden) -> Any:
    return data, tuple(each.detach() + 0 * each for each in states)


def noise(calls: Container[int], size: float) -> Change:
    """Return a fault that moves all outputs in some calls."""
    numbers = itertools.count()

    def change(_: Any, inputs: Any, data: torch.Tensor, states: Hidden) -> Any:
        return data + size * (next(numbers) in calls), states

    return change


def raise_error(error: Exception, *, rows: int = 0) -> Change:
    """Return a fault that raises an error for batches of so many rows."""

    def change(_: Any, inputs: PackedSequence, data: torch.Tensor, states: Hidden) -> Any:
        if inputs.batch_sizes[0] >= rows:
            raise error
        return data, states

    return change


_ATTENTION = nn.functional.scaled_dot_product_attention


def change_attention(
    patch: pytest.MonkeyPatch, change: Callable[..., torch.Tensor | None]
) -> list[torch.Tensor]:
    """Change what torch's attention returns for a mask; return the masks that it gets.

    Args:
        change: takes query, key, value, mask and the right outputs; None leaves them.
    """
    masks = []

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, **options: Any) -> Any:
        outputs = _ATTENTION(query, key, value, attn_mask=attn_mask, **options)
        if attn_mask is None:
            return outputs
        masks.append(attn_mask.reshape(-1, *attn_mask.shape[-2:])[0])
        changed = change(query, key, value, masks[-1], outputs)
        return outputs if changed is None else changed

    patch.setattr(nn.functional, "scaled_dot_product_attention", attend)
    return masks


def see_all_before(query: Any, key: Any, value: Any, mask: Any, outputs: Any) -> torch.Tensor:
    return _ATTENTION(query, key, value, is_causal=True)


def see_the_next(query: Any, key: Any, value: Any, mask: Any, outputs: Any) -> torch.Tensor:
    """Let each cell of the first sequence see the one behind it."""
    steps = torch.arange(len(mask))
    same = (mask | mask.T)[0]
    later = (steps[:, None] + 1 == steps) & same[:, None] & same
    return _ATTENTION(query, key, value, attn_mask=mask | later)


def leak_a_little(query: Any, key: Any, value: Any, mask: Any, outputs: Any) -> torch.Tensor:
    return outputs + 1e-7 * value.sum().sin()


def spoil_last(query: Any, key: Any, value: Any, mask: Any, outputs: Any) -> torch.Tensor:
    outputs = outputs.clone()
    outputs[..., -1, 0] = math.nan
    return outputs
