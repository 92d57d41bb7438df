"""MODULE:FUNCTION -> the function, and the model that it makes."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seqpack_cli.errors import OptionError, join_items
from seqpack_cli.verification.device import naming_memory
from seqpack_cli.verification.user_models.check_model import LIMITS, find_dtype
from seqpack_cli.verification.user_models.runner import naming_model

SMALLER = "make a smaller model, or use a larger device"


def load_function(option: str, name: str) -> Callable[..., Any]:
    """Import a function; modules of the current folder are found, as servers like uvicorn do it.

    Args:
        option: for messages, such as `--model`.
        name: "package.module:function".

    Raises:
        OptionError: the name is not one, or there is no such module or function.
        ModelError: the module raised an exception.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise OptionError(
            f"{option} {name}: expected MODULE:FUNCTION",
            hint=f"pass {option} models:make",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import_module(option, name, module_name)
    found: Any = module
    for part in function_name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        own = [
            each
            for each, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module_name
        ]
        what = "is not a function" if found is not None else "does not exist"
        raise OptionError(
            f"{option} {name}: {function_name!r} {what} in {module_name}, found: "
            f"{join_items(own) or 'no functions'}",
            hint=f"pass {option} {module_name}:{own[0] if own else 'FUNCTION'}",
        )
    function: Callable[..., Any] = found
    return function


def make_model(
    name: str, vocab_size: int, device: torch.device, dtype: torch.dtype
) -> torch.nn.Module:
    """Call the function of `--model`, and check what it returns.

    Raises:
        OptionError: there is no such function, or it does not return a model of this dtype.
        ModelError: it raised an exception.
        MachineError: the device is out of memory.
    """
    make = load_function("--model", name)
    place = f"--model {name}"
    with naming_memory(place, SMALLER), naming_model(place):
        model = make(vocab_size, device, dtype)
    if not callable(model) or isinstance(model, type) or not hasattr(model, "parameters"):
        raise OptionError(
            f"{place} returned {type(model).__name__}, expected an nn.Module",
            hint=f"let {name.partition(':')[2]}(vocab_size, device, dtype) return the model",
        )
    found = find_dtype(model)
    weights = list(model.parameters())
    devices = {each.device.type for each in weights}
    if weights and (found is not dtype or devices != {device.type}):
        where = join_items(sorted(devices))
        raise OptionError(
            f"{place}: the model has weights of {found} on {where}, expected {dtype} on {device}",
            hint="let the function return model.to(device, dtype)",
        )
    assert found in LIMITS  # noqa: S101 - it is one of --dtype
    result: torch.nn.Module = model
    return result


def _import_module(option: str, name: str, module_name: str) -> Any:
    try:
        with naming_model(f"{option} {name}"):
            return importlib.import_module(module_name)
    except Exception as error:
        cause = error.__cause__
        missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if missing is None or not f"{module_name}.".startswith(f"{missing}."):
            raise
        raise OptionError(
            f"{option} {name}: no module {missing!r} in {Path.cwd()} or among the installed "
            "packages",
            hint=f"run seqpack in the folder that holds {missing.partition('.')[0]}, or install it",
        ) from error
