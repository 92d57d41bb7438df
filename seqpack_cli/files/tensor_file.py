"""Write and memory-map files of named arrays in the safetensors format.

Files are written here and not by the safetensors library, which holds all data in memory and
writes metadata in random order: the same arrays must always have the same bytes. When a file is
read, the library checks its header, and the arrays are mapped. Arrays are stored by falling item
size, so that all of them are aligned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.disk import naming_writes
from seqpack_cli.files.mapping import map_regular, view_array
from seqpack_cli.files.places import Place, at
from seqpack_cli.limits import LIMITS

NAME_OF_DTYPE = {
    "<i8": "I64",
    "<u8": "U64",
    "<f8": "F64",
    "<i4": "I32",
    "<u2": "U16",
    "|u1": "U8",
}
MAX_HEADER_BYTES = 1 << 20  # ours has about 1,000; the format allows 100 MB
ALIGNMENT = 8


@dataclass(frozen=True)
class Tensor:
    """A one-dimensional array to write, in pieces that are read one after another."""

    dtype: str
    count: int
    pieces: Iterable[np.ndarray] = ()

    @classmethod
    def of(cls, array: np.ndarray) -> Tensor:
        """Return an array in one piece."""
        return cls(array.dtype.name, len(array), (array,))

    @property
    def stored(self) -> np.dtype[Any]:
        """The dtype in the file."""
        return np.dtype(self.dtype).newbyteorder("<")


def sort_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors in file order: by falling item size, equal ones as they come."""
    return dict(sorted(tensors.items(), key=lambda named: -named[1].stored.itemsize))


def write_tensor_file(
    path: Place, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> dict[str, Any]:
    """Write arrays to a safetensors file and publish it; return its size and checksum.

    Args:
        tensors: sorted here; the pieces of each are read, in file order, when it is written.

    Raises:
        ValueError: the pieces of an array do not add up to its count.
    """
    tensors = sort_tensors(tensors)
    header, num_bytes = make_header(tensors, metadata)
    with at(path).publish() as file:
        file.write(header)
        for tensor in tensors.values():
            for piece in tensor.pieces:
                file.write(np.ascontiguousarray(piece, tensor.stored))
        if file.num_bytes != num_bytes:
            raise ValueError(f"{path}: wrote {file.num_bytes} bytes, its header says {num_bytes}")
    return file.describe()


def make_header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> tuple[bytes, int]:
    """Make the header of a file; return it and the size of the whole file.

    Args:
        tensors: in file order.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.count * tensor.stored.itemsize
        header[name] = {
            "dtype": NAME_OF_DTYPE[tensor.stored.str],
            "shape": [tensor.count],
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + end


def map_tensor_file(
    file: Path, path: Place | None = None, *, num_bytes: int | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Map the one-dimensional arrays of a safetensors file, and read its metadata.

    Args:
        path: shown in errors, if `file` is a copy of it.
        num_bytes: its expected size, if that is known.

    Raises:
        FolderError: it is not a safetensors file, or holds other kinds of arrays.
    """
    import safetensors

    path = path or file
    mapped = map_regular(file, num_bytes=num_bytes)
    num_header_bytes = int.from_bytes(mapped[:8].tobytes(), "little")
    if num_header_bytes > MAX_HEADER_BYTES:
        raise FolderError(
            f"{path}: a header of {num_header_bytes:,} bytes, expected at most {MAX_HEADER_BYTES:,}"
        )
    dtypes = {name: dtype for dtype, name in NAME_OF_DTYPE.items()}
    tensors = {}
    offset = 8 + num_header_bytes
    try:
        with safetensors.safe_open(file, "numpy") as opened:
            for name in opened.offset_keys():  # the library has checked that there are no gaps
                described = opened.get_slice(name)
                shape, dtype = described.get_shape(), dtypes.get(described.get_dtype())
                if dtype is None or len(shape) != 1:
                    raise FolderError(
                        f"{path}: {name} is {described.get_dtype()}{shape}, expected one dimension "
                        f"of {' or '.join(dtypes)}"
                    )
                tensors[name] = view_array(mapped, dtype, count=shape[0], offset=offset)
                offset += tensors[name].nbytes
            return tensors, opened.metadata() or {}
    except (safetensors.SafetensorError, ValueError) as error:
        raise FolderError(f"{path}: not a safetensors file ({error})") from error


class Spool:
    """Bytes that are written once and read once later: in memory, or in a temporary file if many.

    Args:
        place: the file that they will be a part of.
        stack: removes the temporary file when it is closed.
    """

    def __init__(self, place: Place, stack: ExitStack) -> None:
        import tempfile  # takes 5 ms, so not at the top

        self.num_bytes = 0
        self._place = place
        folder = str(place.parent) if isinstance(place, Path) else None
        file = tempfile.SpooledTemporaryFile(LIMITS.spool_bytes, dir=folder)  # noqa: SIM115
        self._file = stack.enter_context(file)

    def write(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            MachineError: the disk is full.
        """
        with naming_writes(self._place):
            self._file.write(data)
        self.num_bytes += len(data)

    def read(self) -> Iterator[np.ndarray]:
        """Yield all bytes in order, uint8."""
        with naming_writes(self._place):
            self._file.seek(0)  # writes what is buffered
        while block := self._file.read(LIMITS.read_bytes):
            yield np.frombuffer(block, np.uint8)
