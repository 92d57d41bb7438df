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
from pathlib import Path
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
NAMES = list(PATTERNS)
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
    kind = NAMES[(found.lastindex or 1) - 1] if found else _guess_utf16(block)
    if kind is None:
        return
    begin = quote(block[: 2 if kind.startswith("UTF") else 8])
    if kind.startswith("UTF"):
        raise DataError(
            f"{source.path}:1: {kind[:6]} (begins with {begin}), expected UTF-8",
            hint=_hint_iconv(kind, source),
        )
    raise DataError(
        f"{source.path}: {kind} (begins with {begin}), expected UTF-8 text",
        hint=_hint_kind(kind, source),
    )


def _hint_kind(kind: str, source: Source) -> str:
    if kind in COMPRESSION_OF_SUFFIX.values():
        return _hint_pipe(f"{kind} -dc", source)
    if kind in ("zip", "7z", "tar"):
        return UNPACK
    if kind in ("NumPy", "indexed dataset"):
        return IMPORT
    is_table = kind in ("Parquet", "Arrow") and not source.compression
    return f"pass --format {kind.lower()}" if is_table else CONVERT


def _hint_pipe(command: str, source: Source) -> str:
    """Return the command that pipes a file through another program."""
    known = "" if source.format == "text" else f" --format {source.format}"
    if source.path == STANDARD_INPUT:
        return f"pipe it through {command}: … | {command} | seqpack tokenize -{known}"
    typed = shlex.quote(source.path)
    tokenize = f"seqpack tokenize -{known}"
    if source.compression:
        return f"{source.compression} -dc {typed} | {command} | {tokenize}"
    return f"{command} {typed} | {tokenize}"


def _hint_iconv(encoding: str, source: Source) -> str:
    command = f"iconv -f {encoding} -t UTF-8"
    if source.path == STANDARD_INPUT:
        return _hint_pipe(command, source)
    name, typed = Path(Path(source.path).name), shlex.quote(source.path)
    decompress, place = "", f" {typed}"
    if source.compression:
        decompress, place = f"{source.compression} -dc {typed} | ", ""
        name = Path(name.stem) if name.suffix.lower() in COMPRESSION_OF_SUFFIX else name
    result = f"{name.stem}.utf8{name.suffix}"
    return f"{decompress}{command}{place} > {shlex.quote(result)}"


def _guess_utf16(block: bytes) -> str | None:
    """Recognize UTF-16 without a byte order mark by the NUL in every second byte."""
    sample = block[:HEAD_BYTES]
    if b"\0" not in sample:
        return None
    num_even, num_odd = sample[::2].count(0), sample[1::2].count(0)
    few, many = sorted((num_even, num_odd))
    if len(sample) < HEAD_BYTES // 64 or many < 0.4 * len(sample) or few > 0.02 * len(sample):
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
