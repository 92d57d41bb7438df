"""Bytes that are written once and read once later: in memory, or in a temporary file if many."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from io import FileIO
from pathlib import Path

import numpy as np

from seqpack_cli.files import disk
from seqpack_cli.files.mapping import open_regular
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place
from seqpack_cli.limits import LIMITS

_NUMBERS = itertools.count()  # a part may have several, and its own temporary file


class Spool:
    """Some bytes, kept until they are read.

    Args:
        place: what they are for; a temporary file is made beside it, or in a temporary folder of
            this machine if it is in an object store.
        stack: removes the file when it is closed.
    """

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self.num_bytes = 0
        self._place = place
        self._stack = stack
        self._waiting: list[bytes] = []
        self._num_waiting = 0
        self._path: Path | None = None
        self._file: FileIO | None = None

    def write(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            MachineError: the disk is full.
        """
        self._waiting.append(data)
        self._num_waiting += len(data)
        self.num_bytes += len(data)
        if self._num_waiting > LIMITS.spool_bytes:
            self._flush()

    def read(self) -> Iterator[np.ndarray]:
        """Yield all bytes in order, uint8."""
        if self._path is None:
            yield np.frombuffer(b"".join(self._waiting), np.uint8)
            return
        self._flush()
        with open_regular(self._path, num_bytes=self.num_bytes) as file:
            while block := file.read(LIMITS.read_bytes):
                yield np.frombuffer(block, np.uint8)

    def _flush(self) -> None:
        if self._path is None or self._file is None:
            folder = self._stack.enter_context(at(self._place.parent).hold_spool_folder())
            self._path = disk.name_temporary(folder / f"{self._place.name}-{next(_NUMBERS)}")
            self._stack.callback(disk.remove_file, self._path)
            self._file = self._stack.enter_context(disk.create_file(self._path))
        disk.write_all(self._file, b"".join(self._waiting), self._path)
        self._waiting, self._num_waiting = [], 0
