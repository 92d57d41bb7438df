"""Write and memory-map shard files: named arrays in the safetensors format.

Files are written here and not by the safetensors library, which holds all data in memory and
writes metadata in random order: the same shard must always have the same bytes. When a file is
read, the library checks its header, and the arrays are mapped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.mapping import map_regular, view_array
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place

NAME_OF_DTYPE = {"<u2": "U16", "<i4": "I32", "<i8": "I64"}
MAX_HEADER_BYTES = 1 << 20  # ours has about 1,000; the format allows 100 MB
ALIGNMENT = 8


def write_shard_file(
    path: Place,
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str],
    *,
    data: Iterable[np.ndarray],
    data_dtype: str,
) -> dict[str, Any]:
    """Write arrays to a safetensors file and publish it; return its size and checksum.

    Args:
        tensors: int64 arrays, written in this order and followed by `data`, whose length is the
            last entry of `data_offsets`.
        data: the ids in pieces, each written before the next one is requested.
    """
    arrays = {name: np.ascontiguousarray(array, "<i8") for name, array in tensors.items()}
    counts = {name: len(array) for name, array in arrays.items()}
    counts["data"] = int(arrays["data_offsets"][-1])
    header, num_bytes = make_header(counts, metadata, data_dtype=data_dtype)
    ids_dtype = np.dtype(data_dtype).newbyteorder("<")
    with at(path).publish() as file:
        file.write(header)
        for array in arrays.values():
            file.write(array)
        for piece in data:
            file.write(np.ascontiguousarray(piece, ids_dtype))
        if file.num_bytes != num_bytes:
            raise ValueError(f"{path}: wrote {file.num_bytes} bytes, its header says {num_bytes}")
    return file.describe()


def make_header(
    counts: Mapping[str, int], metadata: Mapping[str, str], *, data_dtype: str
) -> tuple[bytes, int]:
    """Make the header of a file; return it and the size of the whole file.

    Args:
        counts: number of entries of each array, in file order, `data` last.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, count in counts.items():
        dtype = np.dtype(data_dtype if name == "data" else np.int64).newbyteorder("<")
        start, end = end, end + count * dtype.itemsize
        header[name] = {
            "dtype": NAME_OF_DTYPE[dtype.str],
            "shape": [count],
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + end


def map_shard_file(
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
