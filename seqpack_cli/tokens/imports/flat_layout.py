"""Find where the ids of a file of ids alone begin, and what type they have.

A file that begins as numpy's .npy files do says both in its header, whatever its suffix is; nothing
in it is evaluated or unpickled. Any other file is ids from its first byte on, little-endian, of the
type that the user names: to guess it from the values has gone wrong too often.
"""

from __future__ import annotations

import functools
import re
import shlex
from typing import NamedTuple

import numpy as np

from seqpack_cli.corpus.options import COMPRESSION_OF_SUFFIX, SAVE_IDS
from seqpack_cli.corpus.sources import PATTERNS, Source, SourceRange
from seqpack_cli.corpus.streams import iter_raw_blocks
from seqpack_cli.errors import DataError, OptionError, quote

HEAD_BYTES = 1 << 14  # numpy refuses to read longer headers, too
NPY_MAGIC = b"\x93NUMPY"
NPY_HEADER = re.compile(
    r"\s*{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*\w+,\s*'shape':\s*\(([\d, ]*)\),?\s*}\s*"
)
NPY_INTEGER = re.compile("[<>|][iu][1248]")
LLM_C_BYTES = 1024  # of llm.c's header: 256 int32, of which the first is one of
LLM_C_MAGICS = {20240520: "uint16", 20240801: "uint32"}  # for GPT-2 and Llama 3
LIKELY_DTYPES = ("uint16", "uint32", "uint8")

# Those that ids could begin with only by a chance of 1 in 10^14 are looked for in files of ids.
LONG = ("bzip2", "xz", "7z", "tar", "Parquet", "indexed dataset", "HDF5", "SQLite", "PDF", "PNG")
LONG_PATTERNS = {name: PATTERNS[name] for name in LONG} | {
    "gzip": rb"\x1f\x8b\x08[\0-\x1f].{4}[\0\2\4][\0-\x0d\xff]",
    "zip": rb"PK\x03\x04[\n\x14\x2d]\0..[\0\x08]\0",
    "pickle": rb"\x80[\4\5]\x95.{4}\0\0\0\0",
    "Arrow": rb"ARROW1\0\0",
}
LONG_KINDS = re.compile(
    b"|".join(b"(%s)" % pattern for pattern in LONG_PATTERNS.values()), re.DOTALL
)


class FlatLayout(NamedTuple):
    """Where the ids are, and how they are stored."""

    dtype: np.dtype
    offset: int  # in bytes, of the first id

    def count_ids(self, end: int) -> int:
        """Return the number of ids before a byte of the file."""
        return (end - self.offset) // self.dtype.itemsize


@functools.lru_cache(maxsize=1024)
def read_flat_layout(source: Source, dtype: str | None) -> FlatLayout:
    """Read the head of a file of ids.

    Args:
        dtype: of the ids; None if the file must say it.

    Raises:
        OptionError: the dtype is needed, or contradicts the file's header.
        DataError: the file cannot be read, holds something else, or its size is not possible.
    """
    head_range = SourceRange(0, source, 0, min(source.num_bytes, HEAD_BYTES))
    head = b"".join(iter_raw_blocks(head_range, lambda _: None))
    if head.startswith(NPY_MAGIC):
        return _read_npy(head, source, dtype)
    _check_no_llm_c(head, source)
    _check_ids(head, source)
    if dtype is None:
        raise OptionError(
            f"{source.path}: ids without a header, expected --dtype", hint_dtype(source)
        )
    found = np.dtype(dtype).newbyteorder("<")
    if source.num_bytes % found.itemsize:
        raise DataError(
            f"{source.path}: {source.num_bytes:,} bytes, expected a multiple of the "
            f"{found.itemsize} bytes of each {dtype}",
            hint="pass the --dtype that wrote the file, or copy it again",
        )
    return FlatLayout(found, 0)


def hint_dtype(source: Source) -> str:
    """Return a hint with the two likeliest types of a file's size."""
    sizes = {name: np.dtype(name).itemsize for name in LIKELY_DTYPES}
    counts = {name: source.num_bytes // size for name, size in sizes.items()}
    fitting = [name for name, size in sizes.items() if not source.num_bytes % size][:2]
    choices = " or ".join(f"--dtype {name} ({counts[name]:,} ids)" for name in fitting)
    return f"pass the type that wrote the file, probably {choices}"


def _read_npy(head: bytes, source: Source, dtype: str | None) -> FlatLayout:
    size_bytes = 2 if head[6:7] == b"\1" else 4  # of the header's size, in version 1 and later
    size = int.from_bytes(head[8 : 8 + size_bytes], "little")
    offset = 8 + size_bytes + size
    text = head[8 + size_bytes : offset].decode("latin-1")
    found = NPY_HEADER.fullmatch(text)
    if found is None or len(head) < offset:
        raise DataError(
            f"{source.path}: .npy header {quote(text.rstrip())}, expected that of one array",
            hint="save the ids with numpy.save as an array of integers",
        )
    name, shape = found[1], found[2].replace(" ", "").rstrip(",").split(",")
    if not NPY_INTEGER.fullmatch(name) or len(shape) != 1 or not shape[0]:
        raise DataError(
            f"{source.path}: .npy array of {quote(name)} and shape ({found[2]}), "
            "expected integers in one dimension",
            hint="save the ids with numpy.save as a flat array of integers",
        )
    layout = FlatLayout(np.dtype(name), offset)
    expected = offset + int(shape[0]) * layout.dtype.itemsize
    if source.num_bytes != expected:
        raise DataError(
            f"{source.path}: {source.num_bytes:,} bytes, its .npy header says {expected:,}",
            hint="copy the file again",
        )
    if dtype not in (None, layout.dtype.name):
        raise OptionError(
            f"--dtype {dtype}: {source.path} has {layout.dtype.name} in its .npy header",
            hint="omit --dtype",
        )
    return layout


def _check_no_llm_c(head: bytes, source: Source) -> None:
    dtype = LLM_C_MAGICS.get(int.from_bytes(head[:4], "little"))
    if dtype is not None and len(head) >= LLM_C_BYTES:
        path = shlex.quote(source.path)
        raise DataError(
            f"{source.path}: begins with llm.c's header of {LLM_C_BYTES:,} bytes, expected ids",
            hint=f"run tail -c +{LLM_C_BYTES + 1} {path} > ids.bin, "
            f"then import ids.bin with --dtype {dtype}",
        )


def _check_ids(head: bytes, source: Source) -> None:
    """Raise DataError if the beginning of a file shows that it is not ids alone."""
    found = LONG_KINDS.match(head)
    if found is None:
        return
    kind = list(LONG_PATTERNS)[(found.lastindex or 1) - 1]
    hint = SAVE_IDS
    if kind in ("Parquet", "Arrow"):
        hint = f"pass --format {kind.lower()}"
    elif kind in COMPRESSION_OF_SUFFIX.values():
        hint = f"decompress it: {kind} -dc {shlex.quote(source.path)} > ids.bin"
    begin = quote(head[:8])
    raise DataError(f"{source.path}: {kind} (begins with {begin}), expected ids alone", hint)
