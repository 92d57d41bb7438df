"""MODULE:FUNCTION -> the function, and the model that it makes."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seqpack_cli.errors import OptionError, join_items
from seqpack_cli.verification.device import naming_memory
from seqpack_cli.verification.user_models.check_model import LIMITS, find_dtype
from seqpack_cli.verification.user_models.user_code import UserCode, arguments_of, running

SMALLER = "make a smaller model, or use a larger device"
ARGUMENTS = "(vocab_size, device, dtype)"
EXIT_HINT = 'put what trains below `if __name__ == "__main__":`, which is not run on import'


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
    _check_module_name(option, name)
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
    function_name = name.partition(":")[2]
    kind = "the class" if isinstance(make, type) else "the function"
    code = UserCode(
        kind,
        f"{function_name}{ARGUMENTS}",
        hint=f"pass a function that takes {ARGUMENTS} and returns the model"
        if isinstance(make, type)
        else None,
        exit_hint=f"let {function_name} return the model",
    )
    with naming_memory(place, SMALLER), running(code, place), arguments_of(function_name):
        model = make(vocab_size, device, dtype)
    if not callable(model) or isinstance(model, type) or not hasattr(model, "parameters"):
        raise OptionError(
            f"{place} returned {type(model).__name__}, expected an nn.Module",
            hint=f"let {function_name}{ARGUMENTS} return the model",
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


def _check_module_name(option: str, name: str) -> None:
    """Refuse a path, which Python would import as the module `py` of a package, or not at all."""
    module_name, _, function_name = name.partition(":")
    path = Path(module_name)
    if path.suffix != ".py" and path.name == module_name and not module_name.startswith("."):
        return
    parts = path.with_suffix("").parts if path.suffix == ".py" else path.parts
    where = f"run seqpack in {path.parent}, and " if path.is_absolute() else ""
    names = parts[-1:] if where else [each for each in parts if each != ".."]
    raise OptionError(
        f"{option} {name}: {module_name} is not the name of a module",
        hint=f"{where}pass {option} {'.'.join(names).lstrip('.')}:{function_name}",
    )


def _import_module(option: str, name: str, module_name: str) -> Any:
    try:
        with running(UserCode(f"importing {module_name}", exit_hint=EXIT_HINT), f"{option} {name}"):
            found = importlib.util.find_spec(module_name)
            path = found.origin if found is not None else None
            with arguments_of(path or module_name):
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
