"""Read the list of --files-from: one path or URL per line, or between NULs as `find -print0` does.

A name is taken literally and never as a glob. Blank lines are ignored.
"""

from __future__ import annotations

import codecs
import os
import shlex
from collections.abc import Sequence

from seqpack_cli.corpus.options import FileOptions
from seqpack_cli.corpus.sources import STANDARD_INPUT
from seqpack_cli.corpus.standard_input import read_standard_input
from seqpack_cli.errors import FolderError, MachineError, OptionError
from seqpack_cli.files.inputs import Input, ListedName, spell_inputs
from seqpack_cli.files.places import AnyPath, parse_place, suggest_name

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MISSING = (FileNotFoundError, NotADirectoryError, ValueError)


def list_inputs(inputs: AnyPath | Sequence[AnyPath], options: FileOptions) -> list[str]:
    """Return the inputs of a run, then those of its list.

    Raises:
        OptionError: the list does not exist, is empty, or names something that is not a path.
        MachineError: the list cannot be read.
    """
    names = spell_inputs(inputs)
    if options.files_from is None:
        if not names:
            raise ValueError("inputs is empty, expected at least one path")
        return names
    path = str(options.files_from)
    if path == STANDARD_INPUT and STANDARD_INPUT in names:
        raise OptionError(
            f"--files-from {STANDARD_INPUT} conflicts with the input {STANDARD_INPUT}",
            hint="write the list to a file",
        )
    return [*names, *_parse_list(_read_list(path), path)]


def _read_list(path: str) -> bytes:
    if path == STANDARD_INPUT:
        return read_standard_input()
    source = Input(str(parse_place(path)))
    try:
        with source.open(source.find_version()[0]) as file:
            return file.read()
    except IsADirectoryError as error:
        raise OptionError(
            f"--files-from {path}: a folder, expected a file with one path per line",
            hint=f"pass {shlex.quote(path)} as INPUT",
        ) from error
    except (*MISSING, FolderError) as error:
        raise OptionError(f"--files-from {path}: no such file{suggest_name(path)}") from error
    except OSError as error:
        raise MachineError(f"--files-from {path}: {error.strerror or error}") from error


def _parse_list(data: bytes, path: str) -> list[str]:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise OptionError(
            f"--files-from {path}: found UTF-16, expected UTF-8",
            hint="convert it: iconv -f UTF-16 -t UTF-8",
        )
    if b"\0" in data:
        lines = data.split(b"\0")
    else:
        lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
        lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
    names: list[str] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            name = os.fsdecode(line)
            names.append(ListedName("./-" if name == STANDARD_INPUT else name, f"{path}:{number}"))
    if not names:
        raise OptionError(f"--files-from {path}: lists no file")
    return names
