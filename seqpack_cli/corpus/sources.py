"""The source files of a run, and what they are by their first bytes.

The first bytes of a file that is not text name its type, for an error. Only signatures are used
that no UTF-8 text begins with. Standard input is copied to a file, so that it is cut, shared and
checked like any other input.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import BinaryIO, NamedTuple

from seqpack_cli.corpus.options import COMPRESSION_OF_SUFFIX, IMPORT, UNPACK
from seqpack_cli.errors import DataError, MachineError, OptionError, quote
from seqpack_cli.files.inputs import Input
from seqpack_cli.files.places import Place, at
from seqpack_cli.limits import LIMITS

STANDARD_INPUT = "-"
HEAD_BYTES = 4096  # that tell what a file is
CONVERT = "pass text files only, or convert it to text, JSON lines or Parquet"
PATTERNS = {
    "gzip": rb"\x1f\x8b\x08",
    "bzip2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",
    "xz": rb"\xfd7zXZ\0",
    "zstd": rb"\x28\xb5\x2f\xfd",
    "zip": rb"PK(?:\x03\x04|\x05\x06)",
    "7z": rb"7z\xbc\xaf\x27\x1c",
    "tar": rb".{257}ustar[\0 ]",
    "Parquet": rb"PAR1\x15[\0\x04\x06]",
    "Arrow": rb"ARROW1\0\0|\xff\xff\xff\xff",
    "pickle": rb"\x80[\x02-\x05]",
    "Python bytecode": rb".[\r\x0e]\r\n[\0-\3]\0\0\0",  # before 3.14 and from it on
    "NumPy": rb"\x93NUMPY",
    "safetensors": rb".{5}\0\0\0\{",
    "indexed dataset": rb"MMIDIDX\0\0",
    "HDF5": rb"\x89HDF\r\n\x1a\n",
    "SQLite": rb"SQLite format 3\0",
    "PDF": rb"%PDF-\d\.\d[\r\n]+%(?:[\x80-\xc1]|[\xc2-\xff][^\x80-\xbf])",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "JPEG": rb"\xff\xd8\xff",
    "ELF": rb"\x7fELF",
    "UTF-32": rb"\xff\xfe\0\0|\0\0\xfe\xff",
    "UTF-16": rb"\xff\xfe|\xfe\xff",
}
KINDS = re.compile(b"|".join(b"(%s)" % pattern for pattern in PATTERNS.values()), re.DOTALL)


class Source(NamedTuple):
    """One input file."""

    path: str  # as the user would type it
    format: str  # one of those that the command reads
    document: str  # what one document is: a "line", a "paragraph", a "row" or the whole "file"
    num_bytes: int
    compression: str = ""
    delimiter: str = ","  # of a csv file
    spool: str | None = None  # the file with the bytes of standard input
    # st_mtime_ns, or an object's version, when it was found, to notice a later change
    modified: int | str | None = None
    index_file: Source | None = None  # the .idx beside a .bin

    @property
    def location(self) -> str:
        """Return the path to open."""
        return self.spool or self.path

    @property
    def input(self) -> Input:
        """Return the reader of the file."""
        return Input(self.location)

    @property
    def name(self) -> str:
        """Return the path as written to files: in UTF-8, whatever the encoding of the locale is."""
        return os.fsencode(self.path).decode(errors="surrogateescape")

    @property
    def is_cut_anywhere(self) -> bool:
        """Return whether the file can be cut at line ends, so that workers can share it."""
        return not self.compression and self.document in ("line", "paragraph")


class SourceRange(NamedTuple):
    """The records of a source that begin in bytes start to end."""

    source_index: int
    source: Source
    start: int
    end: int


def check_text(block: bytes, source: Source) -> None:
    """Raise DataError if the first HEAD_BYTES of a file show that it is not UTF-8 text."""
    found = KINDS.match(block)
    kind = list(PATTERNS)[(found.lastindex or 1) - 1] if found else _guess_utf16(block)
    if kind is None:
        return
    hint = CONVERT
    if kind.startswith("UTF") or kind in COMPRESSION_OF_SUFFIX.values():
        hint = _hint_pipe(kind, source)
    elif kind in ("zip", "7z", "tar"):
        hint = UNPACK
    elif kind in ("NumPy", "indexed dataset"):
        hint = IMPORT
    elif kind in ("Parquet", "Arrow") and not source.compression:
        hint = f"pass --format {kind.lower()}"
    begin = quote(block[: 2 if kind.startswith("UTF") else 8])
    raise DataError(f"{source.path}: {kind} (begins with {begin}), expected UTF-8 text", hint)


def _hint_pipe(kind: str, source: Source) -> str:
    """Return the command that decompresses a file, or converts its encoding into another file."""
    is_encoded = kind.startswith("UTF")
    command = f"iconv -f {kind} -t UTF-8" if is_encoded else f"{kind} -dc"
    known = "" if source.format == "text" else f" --format {source.format}"
    tokenize = f"| seqpack tokenize -{known}"
    if source.path == STANDARD_INPUT:
        return f"pipe it through {command}: … | {command} {tokenize}"
    typed = shlex.quote(source.path)
    name = PurePath(PurePath(source.path).name)
    if source.compression:
        typed, name = f"{source.compression} -dc {typed} | {command}", PurePath(name.stem)
    else:
        typed = f"{command} {typed}"
    result = shlex.quote(f"{name.stem}.utf8{name.suffix}")
    return f"{typed} > {result}" if is_encoded else f"{typed} {tokenize}"


def _guess_utf16(block: bytes) -> str | None:
    """Recognize UTF-16 without a byte order mark by the NUL in every second byte."""
    sample = block[:HEAD_BYTES]
    if b"\0" not in sample:
        return None
    num_even, num_odd = sample[::2].count(0), sample[1::2].count(0)
    few, many = sorted((num_even, num_odd))
    least = 4 if b"\n" in sample else 64  # a few letters with NUL between them may be a list
    if len(sample) < least or many < 0.4 * len(sample) or few > 0.02 * len(sample):
        return None
    return "UTF-16BE" if num_even > num_odd else "UTF-16LE"


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
    with at(folder).temporary_files() as create:
        file = create("stdin")
        for block in iter_standard_input():
            file.write(block)
        yield str(file.temporary)


def iter_standard_input() -> Iterator[bytes]:
    """Read standard input to its end, block by block.

    Raises:
        OptionError: standard input is closed.
        MachineError: it cannot be read.
    """
    standard_input: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    if standard_input is None:
        raise OptionError(f"{STANDARD_INPUT}: standard input is closed", hint="pass a file")
    try:
        while block := standard_input.read(LIMITS.read_bytes):
            yield block
    except OSError as error:
        what = f"{STANDARD_INPUT}: {error.strerror or error}"
        raise MachineError(what, hint="pass a file") from error
