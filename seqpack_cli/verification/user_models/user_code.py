"""Runs code of the user: says what raised an exception, and undoes settings of the whole process.

A setting such as the default device would also hold for our own code, and TF32 would change what is
compared.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqpack_cli.errors import ModelError, quote
from seqpack_cli.verification.device import find_tf32_settings, is_out_of_memory

# Frames of a traceback that are not the user's.
HIDDEN = (
    str(Path(__file__).parents[2]),
    str(Path("torch", "nn", "modules", "module.py")),
    str(Path("importlib", "__init__.py")),
    "<frozen importlib",
)


@dataclass(frozen=True)
class UserCode:
    """What is run, for messages."""

    what: str  # such as "the model"
    called_as: str = ""  # such as "model(batch.ids, batch.mask)"
    hint: str | None = None  # None: one only if it takes other arguments
    exit_hint: str | None = None  # if it ends the program

    def describe(self, error: BaseException) -> str:
        """Return what it did."""
        if isinstance(error, SystemExit):
            return f"{self.what} called sys.exit({'' if error.code is None else quote(error.code)})"
        called = f", called as {self.called_as}" if self.called_as else ""
        return f"{self.what} raised {type(error).__name__}{called}"

    def find_hint(self, error: BaseException, frames: list[Any]) -> str | None:
        """Return what helps against an exception."""
        if isinstance(error, SystemExit):
            return self.exit_hint
        name, _, arguments = self.called_as.partition("(")
        if self.hint is None and name and isinstance(error, TypeError) and not frames:
            return f"let {name} take ({arguments}"
        return self.hint


@contextmanager
def running(code: UserCode, place: str) -> Iterator[None]:
    """Name a place in an exception of the user's code, and show their part of the traceback.

    Ctrl-C stays what it is.

    Raises:
        ModelError: there was one, or the code ended the program.
    """
    try:
        with keeping_settings():
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if is_out_of_memory(error):
            raise
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not any(hidden in frame.filename for hidden in HIDDEN)
        ]
        lines = traceback.format_list(frames) + traceback.format_exception_only(error)
        raise ModelError(
            f"{place}: {code.describe(error)}",
            hint=code.find_hint(error, frames),
            traceback="".join(lines),
        ) from error


@contextmanager
def keeping_settings() -> Iterator[None]:
    """Restore torch's settings for the whole process: what new tensors are, and how it computes."""
    device, dtype = torch.get_default_device(), torch.get_default_dtype()
    num_threads, has_grad = torch.get_num_threads(), torch.is_grad_enabled()
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    matmul = torch.get_float32_matmul_precision()
    precision = [(*each[:2], getattr(*each[:2])) for each in find_tf32_settings()]
    try:
        yield
    finally:
        if torch.get_default_device() != device:
            # None is a CPU too, without the mode that every call of torch goes through
            torch.set_default_device(None if device == torch.device("cpu") else device)
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != num_threads:
            torch.set_num_threads(num_threads)
        torch.set_grad_enabled(has_grad)
        torch.use_deterministic_algorithms(is_deterministic, warn_only=only_warns)
        torch.set_float32_matmul_precision(matmul)
        for owner, name, value in precision:
            setattr(owner, name, value)


@contextmanager
def arguments_of(path: str) -> Iterator[None]:
    """Let sys.argv be that of a script without arguments, so that it does not parse ours."""
    before = sys.argv
    sys.argv = [path]
    try:
        yield
    finally:
        sys.argv = before
