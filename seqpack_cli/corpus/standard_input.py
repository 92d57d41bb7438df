"""Copy standard input to a file, so that it is cut, shared and checked like any other input.

The copy takes its size on the disk while the run lasts. An interrupted run continues when it is
given the same bytes again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from seqpack_cli.corpus.sources import STANDARD_INPUT
from seqpack_cli.errors import MachineError, OptionError
from seqpack_cli.files.places import Place, at
from seqpack_cli.limits import LIMITS


@contextmanager
def spool_standard_input(inputs: Sequence[str], folder: Place) -> Iterator[str | None]:
    """Copy standard input to a file in the folder if `-` is among the inputs; yield its path.

    For a folder in an object store, the file is in a temporary folder of this machine.

    Raises:
        OptionError: `-` is an input and standard input is closed.
        MachineError: the disk is full.
    """
    if STANDARD_INPUT not in inputs:
        yield None
        return
    standard_input = _open_standard_input()
    with at(folder).temporary_files() as create:
        file = create("stdin")
        for block in _iter_blocks(standard_input):
            file.write(block)
        yield str(file.temporary)


def read_standard_input() -> bytes:
    """Read standard input to its end.

    Raises:
        OptionError: standard input is closed.
        MachineError: it cannot be read.
    """
    return b"".join(_iter_blocks(_open_standard_input()))


def _open_standard_input() -> BinaryIO:
    standard_input: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    if standard_input is None:  # it is closed
        raise OptionError(f"{STANDARD_INPUT}: standard input is closed", hint="pass a file")
    return standard_input


def _iter_blocks(standard_input: BinaryIO) -> Iterator[bytes]:
    size = LIMITS.read_bytes
    try:
        while block := standard_input.read(size):
            yield block
    except OSError as error:
        raise MachineError(
            f"{STANDARD_INPUT}: {error.strerror or error}", hint="pass a file"
        ) from error
