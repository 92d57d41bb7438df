"""The device of verify: open it, set exact arithmetic, name the batches where it fails.

Arrays are sent to it while it computes: ids in the two or four bytes that they take on disk,
widened on the device. To a GPU they go from pinned memory on a stream of their own, so that
neither the reader nor the device waits.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqpack_cli.errors import MachineError, OptionError

NUM_READERS = 2  # threads that read and send while the device computes
THREADED_SIZE = 256  # hidden sizes from here on are faster with several threads
SMALLER = "pass a smaller --max-batch-tokens, or pack with a smaller --batch-size"
# torch says so at every call of a bfloat16 model on a GPU, whose weights it does not join, and of
# one layer of a stack. It costs memory and speed, and changes no result.
SEPARATE_WEIGHTS = "RNN module weights are not part of single contiguous chunk"
BLOCKING = "set CUDA_LAUNCH_BLOCKING=1 and run it again, so that the error names the right batch"
# cuDNN and cuBLAS that cannot be started find no memory for themselves, as a rule
OUT_OF_MEMORY = re.compile(
    r"out of memory|ALLOC(ATION)?_FAILED|can't allocate memory|CU(BLAS|DNN)_STATUS_NOT_INITIALIZED"
)
REFUSAL = re.compile(r"cuDNN (Frontend )?error|CUDA error: CUBLAS_STATUS_")
FAULT = re.compile(r"CUDA (driver )?error")  # every later call of the device fails too


def open_device(name: str) -> torch.device:
    """Return the torch device of a name.

    Raises:
        OptionError: the name is not cpu, cuda or cuda:N.
        MachineError: this machine has no such device, or it computes nothing; another one is never
            used instead.
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
                hint="run verify on the machine that trains, or pass --device cpu",
            )
        if (device.index or 0) >= num_devices:
            raise MachineError(
                f"--device {name}: no such device, expected cuda:0 to cuda:{num_devices - 1}"
            )
        try:  # torch without code for this GPU, or a GPU that another process has for itself
            torch.ones(1, device=device).add_(1).item()
        except RuntimeError as error:
            raise MachineError(f"--device {name}: {_read_reason(error)}") from error
    return device


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def name_batches(first: tuple[str, int], last: tuple[str, int]) -> str:
    """Return the place of consecutive batches, each a shard's name and an index.

    >>> name_batches(("shard-00000.safetensors", 3), ("shard-00000.safetensors", 7))
    'shard-00000.safetensors: batches 3 to 7'
    """
    (shard, start), (last_shard, end) = first, last
    if shard != last_shard:
        return f"{shard}: batch {start} to {last_shard}: batch {end}"
    return f"{shard}: batch {start}" if start == end else f"{shard}: batches {start} to {end}"


@contextmanager
def naming_batch(shard: str, index: int, *, unfinished: str = "") -> Iterator[None]:
    """Name the batch in an error if the device fails.

    Args:
        unfinished: the batches that the device may still be computing, if there are others: it
            reports a fault only when it is next waited for, or given more to do.

    Raises:
        MachineError: it ran out of memory, refused the batch, or can compute nothing any more.
    """
    place = f"{shard}: batch {index}"
    try:
        with naming_memory(place):
            yield
    except RuntimeError as error:
        reason = _read_reason(error)
        if read_refusal(error) is not None:
            raise MachineError(f"{place}: {reason}", hint=SMALLER) from error
        if FAULT.match(reason):
            raise MachineError(f"{unfinished or place}: {reason}", hint=BLOCKING) from error
        raise


@contextmanager
def naming_part(name: str) -> Iterator[None]:
    """Put the name of a split, or of a side of pairs, in front of an error of the machine."""
    try:
        yield
    except MachineError as error:
        raise MachineError(f"{name}: {error.message}", hint=error.hint) from error.__cause__


def read_refusal(error: RuntimeError) -> str | None:
    """Return why cuDNN or cuBLAS refused to compute something; None for all other errors.

    The device can compute other batches, unless it then fails in `synchronize`.
    """
    reason = _read_reason(error)
    return reason if REFUSAL.match(reason) and not is_out_of_memory(error) else None


@contextmanager
def naming_memory(place: str, hint: str = SMALLER) -> Iterator[None]:
    """Name a place in an error if the device runs out of memory.

    Raises:
        MachineError: it ran out of memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        reason = _read_reason(error) or "out of memory"
        if "NOT_INITIALIZED" in reason:
            reason += " (usually the GPU is out of memory)"
        raise MachineError(f"{place}: {reason}", hint=hint) from error


def _read_reason(error: BaseException) -> str:
    """Return what torch says first; further lines are about its own debugging."""
    return str(error).partition("\n")[0][:200]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that the device, or this machine, is out of memory.

    Pinned memory, cuDNN, cuBLAS and the CPU's allocator raise a plain RuntimeError.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and bool(OUT_OF_MEMORY.search(str(error)))


@contextmanager
def steady_arithmetic(device: torch.device, *, hidden_size: int | None) -> Iterator[None]:
    """Switch off TF32 (which costs three digits), autocast and threads; restore them at the end.

    On a CPU, threads of a small model wait for each other longer than they work, and for minutes if
    other programs use their cores.

    Args:
        hidden_size: of our own model, whose separate weights are then no warning; None for a user's
            model, which keeps its threads and warnings.
    """
    num_threads = torch.get_num_threads()
    if hidden_size is not None and hidden_size < THREADED_SIZE:
        torch.set_num_threads(1)
    settings = find_tf32_settings()
    before = [getattr(owner, name) for owner, name, _ in settings]
    for owner, name, value in settings:
        setattr(owner, name, value)
    try:
        with torch.autocast(device.type, enabled=False), warnings.catch_warnings():
            if hidden_size is not None:
                warnings.filterwarnings("ignore", message=SEPARATE_WEIGHTS)
            yield
    finally:
        for (owner, name, _), value in zip(settings, before, strict=True):
            setattr(owner, name, value)
        torch.set_num_threads(num_threads)


def find_tf32_settings() -> list[tuple[Any, str, Any]]:
    """Return torch's settings of TF32: an object, its attribute, and the value without TF32."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(cudnn, "rnn"):  # torch 2.9 has new names and refuses a mix of both
        return [(matmul, "fp32_precision", "ieee"), (cudnn.rnn, "fp32_precision", "ieee")]
    return [(matmul, "allow_tf32", False), (cudnn, "allow_tf32", False)]


@dataclass(frozen=True)
class Sent:
    """A tensor that is being copied to the device."""

    tensor: torch.Tensor  # on the device
    arrived: Any  # a CUDA event, or None if there is nothing to wait for
    is_uint16: bool

    def receive(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the tensor, in dtype; the device waits for the copy, this thread does not."""
        if self.arrived is not None:
            stream = torch.cuda.current_stream(self.tensor.device)
            stream.wait_event(self.arrived)
            self.tensor.record_stream(stream)
        if dtype is None:
            return self.tensor
        # torch supports few operations on uint16, so it was sent as int16
        wide = self.tensor.to(dtype)
        return wide.bitwise_and_(0xFFFF) if self.is_uint16 else wide


class Sender:
    """Sends arrays to one device; may be called from any thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, array: np.ndarray) -> Sent:
        """Start to copy a flat array of 16, 32 or 64-bit integers, memory-mapped or not.

        On a CPU, a writable array is used without a copy.
        """
        is_uint16 = array.dtype == np.uint16
        bits = array.view(np.int16) if is_uint16 else array
        dtype = {2: torch.int16, 4: torch.int32, 8: torch.int64}[bits.itemsize]
        if self._stream is None:
            here = bits if bits.flags.writeable else bits.copy()  # torch warns of read-only
            return Sent(torch.from_numpy(here), None, is_uint16)
        staged = torch.empty(len(bits), dtype=dtype, pin_memory=True)
        np.copyto(staged.numpy(), bits)
        with torch.cuda.stream(self._stream):
            tensor = staged.to(self._device, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record(self._stream)
        return Sent(tensor, arrived, is_uint16)
