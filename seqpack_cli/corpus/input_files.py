"""Find the files of one input: here or in an object store, each .bin with its .idx."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

from seqpack_cli.corpus.folder_walk import FoundFile, Search
from seqpack_cli.corpus.local_files import find_local_files
from seqpack_cli.corpus.pairs import Pair, find_prefix, join_pairs
from seqpack_cli.corpus.remote_files import find_remote_files
from seqpack_cli.corpus.saved_datasets import choose_saved_files
from seqpack_cli.errors import OptionError, SeqpackError
from seqpack_cli.files.inputs import ListedName
from seqpack_cli.files.manifest import find_format, is_run_folder
from seqpack_cli.files.places import find_local_name, is_url, parse_place


def find_input_files(name: str, search: Search) -> list[Pair]:
    """Find the files of a path, a URL or a glob, each with the index beside it if it has one.

    Raises:
        OptionError: nothing has that name, a file of a pair is missing, or ids are wanted and it
            is a folder written by seqpack.
        MachineError: something cannot be read.
    """
    is_listed = isinstance(name, ListedName)
    name = find_local_name(name)
    if search.formats.has_pairs:
        pairs = join_pairs(_find_pair_files(name, search, is_listed=is_listed), search)
    else:
        pairs = [(file, None) for file in _find_files(name, search, is_listed=is_listed)]
    if not pairs and search.formats.reads_ids:
        _refuse_run(name)
    return pairs


@contextlib.contextmanager
def naming_line(name: str) -> Iterator[None]:
    """Name the line of a list in errors about its name."""
    try:
        yield
    except SeqpackError as error:
        if not isinstance(name, ListedName):
            raise
        raise type(error)(f"{name.place}: {error.message}", error.hint) from error


def _find_files(name: str, search: Search, *, is_listed: bool) -> list[FoundFile]:
    find = find_remote_files if is_url(name) else find_local_files
    found = find(name, search, is_listed=is_listed)
    return choose_saved_files(found, name, search)


def _find_pair_files(name: str, search: Search, *, is_listed: bool) -> list[FoundFile]:
    """Find the files of an input, which may be a pair without its suffix."""
    try:
        return _find_files(name, search, is_listed=is_listed)
    except OptionError:
        index = find_prefix(name, search)
        if index is None:
            raise
        return [index]


def _refuse_run(name: str) -> None:
    """Raise OptionError if an input is a folder written by seqpack."""
    folder = parse_place(name)
    if not is_run_folder(folder):
        return
    if find_format(folder) == "seqpack.tokens":
        hint = f"run seqpack pack {shlex.quote(name)}"
        raise OptionError(f"{name}: already a token store", hint)
    raise OptionError(f"{name}: written by seqpack, expected the output of another tool")
