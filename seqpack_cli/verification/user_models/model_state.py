"""The state of a model while it is checked: dropout is off, and all else is restored at the end."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

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
def restoring(model: Any) -> Iterator[list[str]]:
    """Switch off a model's dropout, and restore everything at the end; yield where dropout was.

    Everything is weights, buffers, modes, other attributes that were set anew, and the random
    generators of torch, numpy and Python.
    """
    found = find_dropout(model)
    named = name_dropout(found)
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    attributes = [(module, dict(vars(module))) for module in modules if not _is_lazy(module)]
    modes = [module.training for module in modules]
    saved = [*_save_tensors(modules)]
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    others = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=devices):
        for _, module, attribute in found:
            setattr(module, attribute, 0.0)
        try:
            yield named
        finally:
            random.setstate(others[0])
            np.random.set_state(others[1])
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
            for module, before in attributes:
                vars(module).clear()
                vars(module).update(before)
            for store, name, tensor, copied in saved:
                _restore_tensor(tensor, copied)
                store[name] = tensor


def _is_lazy(module: nn.Module) -> bool:
    """Return whether a module gets its shapes from the first batch, which it keeps."""
    tensors = (*module._parameters.values(), *module._buffers.values())
    return any(each is not None and is_lazy(each) for each in tensors)


def _save_tensors(modules: list[nn.Module]) -> Iterator[tuple[dict[str, Any], str, Any, Any]]:
    """Yield each weight and buffer: the dict that it is in, its name, it, and a copy of it."""
    for module in modules:
        for store in (module._parameters, module._buffers):
            for name, tensor in store.items():
                if tensor is not None and not is_lazy(tensor):
                    yield store, name, tensor, tensor.detach().clone()


def _restore_tensor(tensor: torch.Tensor, before: torch.Tensor) -> None:
    """Write the values of a copy back, unless they are the same."""
    if tensor.shape != before.shape:
        tensor.data = before
    elif not torch.equal(tensor, before):
        with torch.no_grad():
            tensor.copy_(before)
