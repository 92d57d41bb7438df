"""The device that computes: found or refused, set to exact arithmetic, its memory's end named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from seqpack_cli.errors import MachineError, OptionError

THREADED_SIZE = 256  # the hidden size from which threads of a CPU pay
OUT_OF_MEMORY = re.compile(r"out of memory|ALLOC_FAILED|can't allocate memory")


def open_device(name: str) -> torch.device:
    """Give the device of a name.

    Raises:
        OptionError: it is no name of a device.
        MachineError: there is no such device here; another one is never taken instead.
    """
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise OptionError(f"--device {name}: expected cpu, cuda or cuda:N")
    device = torch.device(name)
    if device.type == "cuda":
        num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if num_devices == 0:
            built = (
                "" if torch.version.cuda else f", torch {torch.__version__} is built without CUDA"
            )
            raise MachineError(
                f"--device {name}: no CUDA device{built}",
                hint="verify on the machine that trains, or pass --device cpu",
            )
        if (device.index or 0) >= num_devices:
            raise MachineError(
                f"--device {name}: there are {num_devices} CUDA devices, from cuda:0"
            )
    return device


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def naming_batch(shard: str, index: int) -> AbstractContextManager[None]:
    """Name the batch for which the device's memory was not enough."""
    return naming_memory(f"{shard}: batch {index}")


@contextmanager
def naming_memory(place: str) -> Iterator[None]:
    """Name what the device's memory was not enough for.

    Raises:
        MachineError: it was not enough.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # besides torch.OutOfMemoryError: pinned memory, cuDNN and cuBLAS, and the CPU's allocator
        is_memory = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not is_memory and not OUT_OF_MEMORY.search(str(error)):
            raise
        reason = str(error).splitlines()[0][:200] if str(error) else "out of memory"
        raise MachineError(
            f"{place}: {reason}",
            hint="pass a smaller --max-batch-tokens, or pack with a smaller --batch-size",
        ) from error


@contextmanager
def steady_arithmetic(device: torch.device, *, hidden_size: int) -> Iterator[None]:
    """Switch off TF32, which would cost three digits, autocast and threads; give them back.

    On a CPU, threads of a small model wait for each other longer than they work, and for minutes
    where other programs take their cores.
    """
    num_threads = torch.get_num_threads()
    if hidden_size < THREADED_SIZE:
        torch.set_num_threads(1)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    settings: list[tuple[Any, str, Any]] = [
        (matmul, "allow_tf32", False),
        (cudnn, "allow_tf32", False),
    ]
    if hasattr(cudnn, "rnn"):  # torch 2.9 has new names, and refuses to mix them with the old
        settings = [(matmul, "fp32_precision", "ieee"), (cudnn.rnn, "fp32_precision", "ieee")]
    before = [getattr(owner, name) for owner, name, _ in settings]
    for owner, name, value in settings:
        setattr(owner, name, value)
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        for (owner, name, _), value in zip(settings, before, strict=True):
            setattr(owner, name, value)
        torch.set_num_threads(num_threads)
