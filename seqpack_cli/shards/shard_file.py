"""A shard on disk: named arrays in a safetensors file, written with stable bytes, read as maps.

The file is written here because the library orders metadata at random and holds all in memory;
any safetensors reader opens it. Reading leaves the header to the library, which checks every
offset and size, and maps the arrays behind it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.storage import map_array, publish

NAME_OF_DTYPE = {"<u2": "U16", "<i4": "I32", "<i8": "I64"}
MAX_HEADER_BYTES = 1 << 20  # ours has about 1,000; the format would allow 100 MB
ALIGNMENT = 8


def write_shard_file(
    path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> dict[str, Any]:
    """Publish arrays as a safetensors file; give its size and sha256.

    Args:
        tensors: written in this order; those of 8-byte items first, so that all are aligned.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    arrays = [
        np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for array in tensors.values()
    ]
    for name, array in zip(tensors, arrays, strict=True):
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": NAME_OF_DTYPE[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with publish(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays:
            file.write(array)
    return file.describe()


def map_shard_file(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Map the arrays of a safetensors file, all one-dimensional, and read its metadata.

    Raises:
        FolderError: the file is no safetensors file, or holds other kinds of arrays.
    """
    import safetensors

    with path.open("rb") as file:
        num_header_bytes = int.from_bytes(file.read(8), "little")
    if num_header_bytes > MAX_HEADER_BYTES:
        raise FolderError(
            f"{path}: a header of {num_header_bytes:,} bytes, expected at most {MAX_HEADER_BYTES:,}"
        )
    dtypes = {name: dtype for dtype, name in NAME_OF_DTYPE.items()}
    tensors = {}
    offset = 8 + num_header_bytes
    try:
        with safetensors.safe_open(path, "numpy") as file:
            for name in file.offset_keys():  # the library has checked that they leave no hole
                described = file.get_slice(name)
                shape, dtype = described.get_shape(), dtypes.get(described.get_dtype())
                if dtype is None or len(shape) != 1:
                    raise FolderError(f"{path}: {name} is {described.get_dtype()}{shape}")
                tensors[name] = map_array(path, dtype, count=shape[0], offset=offset)
                offset += tensors[name].nbytes
            return tensors, file.metadata() or {}
    except (safetensors.SafetensorError, ValueError) as error:
        raise FolderError(f"{path}: no safetensors file ({error})") from error
