"""What makes a model's outputs random: dropout is found, switched off for a while and restored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

NAME = re.compile(r"dropout|drop_?path|drop_?prob|layer_?drop", re.IGNORECASE)


def find_dropout(model: Any) -> list[tuple[str, nn.Module, str]]:
    """Find the active dropout of a model: the name of each module, the module, its attribute.

    A module's dropout is `p` of torch's dropout layers, or a number above 0 in an attribute whose
    name says so: `dropout` of nn.LSTM, `attention_dropout` of transformers.
    """
    if not isinstance(model, nn.Module):
        return []
    found = []
    for name, module in model.named_modules():
        if not module.training:
            continue
        is_layer = isinstance(module, nn.modules.dropout._DropoutNd)
        for attribute, value in vars(module).items():
            named = NAME.search(attribute) is not None or (is_layer and attribute == "p")
            if named and isinstance(value, float) and 0 < value <= 1:
                found.append((name, module, attribute))
    return found


def name_dropout(found: list[tuple[str, nn.Module, str]]) -> list[str]:
    """Return the places of dropout with their probabilities."""
    return [
        f"{name or 'the model'} ({type(module).__name__}, {attribute}={getattr(module, attribute)})"
        for name, module, attribute in found
    ]


@contextmanager
def without_dropout(model: Any) -> Iterator[list[str]]:
    """Switch off a model's dropout; yield where it was found.

    Buffers, training mode and the state of random generators are restored at the end as well.
    """
    found = find_dropout(model)
    values = [getattr(module, attribute) for _, module, attribute in found]
    named = name_dropout(found)
    is_module = isinstance(model, nn.Module)
    modes = [(module, module.training) for module in model.modules()] if is_module else []
    buffers = [(each, each.clone()) for each in model.buffers()] if is_module else []
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        for _, module, attribute in found:
            setattr(module, attribute, 0.0)
        try:
            yield named
        finally:
            for (_, module, attribute), value in zip(found, values, strict=True):
                setattr(module, attribute, value)
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
