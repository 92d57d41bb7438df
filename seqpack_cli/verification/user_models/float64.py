"""A copy of a model that computes in float64 throughout.

Many models convert to float32 inside, whatever their weights are (the normalization and softmax of
transformers). Where that is found, each such conversion is turned into one to float64 while the
copy runs, so that exact comparisons are possible. Operations that cannot are found as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NARROW = (torch.float32, torch.float16, torch.bfloat16)


def copy_in_float64(model: Any) -> Any:
    """Return a copy of a model with weights and buffers in float64."""
    return copy.deepcopy(model).double()


class Widening(TorchDispatchMode):
    """Turns conversions to narrower types into ones to float64, and counts them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_widened = 0
        self.narrow: set[str] = set()  # operations that still made float64 narrower

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, in float64 if it asks for a narrower type."""
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in NARROW:
            kwargs["dtype"] = torch.float64
            self.num_widened += 1
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dtype in NARROW:
            wide = (each.dtype is torch.float64 for each in args if isinstance(each, torch.Tensor))
            if any(wide):
                self.narrow.add(str(func))
        return result


@contextmanager
def default_float64() -> Iterator[None]:
    """Let tensors that a model makes be float64 by default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def needs_widening(run: Callable[[], Any]) -> bool:
    """Return whether a run in float64 converts to narrower types inside.

    Raises:
        TypeError: an operation computes in a narrower type, and cannot be told otherwise.
    """
    with default_float64(), Widening() as widening:
        run()
    if widening.narrow:
        raise TypeError(f"{sorted(widening.narrow)[0]} does not compute in float64")
    return bool(widening.num_widened)
