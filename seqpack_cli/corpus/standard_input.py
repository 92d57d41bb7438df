"""Standard input -> a file, so that it is cut, shared and checked like any other input.

It costs its own size on the disk while the run lasts. A run that was interrupted continues when the
same bytes come in again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from seqpack_cli.corpus.sources import STANDARD_INPUT
from seqpack_cli.errors import MachineError, OptionError
from seqpack_cli.files import disk
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place

BLOCK_BYTES = 1 << 20


@contextmanager
def spool_standard_input(
    inputs: Sequence[str], standard_input: BinaryIO | None, folder: Place
) -> Iterator[str | None]:
    """Copy standard input into a file of the folder if `-` is among the inputs; give its path.

    Of a folder in an object store, into a temporary one of this machine.

    Raises:
        OptionError: `-` is named and there is no standard input.
        MachineError: the disk is full.
    """
    if STANDARD_INPUT not in inputs:
        yield None
        return
    if standard_input is None:
        raise OptionError(f"{STANDARD_INPUT}: no standard input here", hint="name a file")
    with contextlib.ExitStack() as stack:
        spool_folder = stack.enter_context(at(folder).hold_spool_folder())
        path = disk.name_temporary(spool_folder / "stdin")
        stack.callback(disk.remove_file, path)
        with disk.create_file(path) as file:
            for block in _iter_blocks(standard_input):
                disk.write_all(file, block, path)
        yield str(path)


def _iter_blocks(standard_input: BinaryIO) -> Iterator[bytes]:
    while True:
        try:
            block = standard_input.read(BLOCK_BYTES)
        except OSError as error:
            raise MachineError(
                f"{STANDARD_INPUT}: {error.strerror or error}", hint="name a file"
            ) from error
        if not block:
            return
        yield block
