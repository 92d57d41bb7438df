"""Arrays on their way to the device, sent ahead while it computes.

Ids travel in the two or four bytes that they take on disk and are widened there. To a GPU they go
from pinned memory on a stream of their own, so that neither the reader nor the device waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Sent:
    """A tensor that is on its way."""

    tensor: torch.Tensor  # on the device
    arrived: Any  # an event, None where nothing is to be waited for
    is_uint16: bool

    def receive(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Wait on the device, not here, until it has arrived; give it, widened to a dtype."""
        if self.arrived is not None:
            stream = torch.cuda.current_stream(self.tensor.device)
            stream.wait_event(self.arrived)
            self.tensor.record_stream(stream)
        if dtype is None:
            return self.tensor
        # torch does little with uint16, so its bits went as int16
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
        """Begin to send a flat array of 16, 32 or 64-bit integers; it may be a map of a file.

        To the CPU an array that may be written is not copied.
        """
        is_uint16 = array.dtype == np.uint16
        bits = array.view(np.int16) if is_uint16 else array
        dtype = {2: torch.int16, 4: torch.int32, 8: torch.int64}[bits.itemsize]
        if self._stream is None:
            here = bits if bits.flags.writeable else bits.copy()  # torch warns of maps of files
            return Sent(torch.from_numpy(here), None, is_uint16)
        staged = torch.empty(len(bits), dtype=dtype, pin_memory=True)
        np.copyto(staged.numpy(), bits)
        with torch.cuda.stream(self._stream):
            tensor = staged.to(self._device, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record(self._stream)
        return Sent(tensor, arrived, is_uint16)
