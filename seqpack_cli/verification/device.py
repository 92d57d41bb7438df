"""The device that computes: found or refused, set to exact arithmetic, its memory's end named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seqpack_cli.errors import MachineError, OptionError

THREADED_SIZE = 256  # of a model from which a CPU's threads pay


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


@contextmanager
def naming_batch(shard: str, index: int) -> Iterator[None]:
    """Name the batch for which the device's memory was not enough."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # CUDA's is an OutOfMemoryError, a RuntimeError; the CPU's is told by its text
        is_memory = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not is_memory and "can't allocate memory" not in str(error):
            raise
        reason = str(error).splitlines()[0][:200] if str(error) else "out of memory"
        raise MachineError(
            f"{shard}: batch {index}: {reason}",
            hint="pass a smaller --max-batch-tokens, or pack with a smaller --batch-size",
        ) from error


@contextmanager
def steady_arithmetic(*, hidden_size: int) -> Iterator[None]:
    """Switch off TF32, which would cost three digits, and threads; give the settings back.

    On a CPU, threads of a small model wait for each other longer than they work, and for minutes
    where other programs take their cores.
    """
    num_threads = torch.get_num_threads()
    if hidden_size < THREADED_SIZE:
        torch.set_num_threads(1)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32)
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
        torch.set_num_threads(num_threads)
