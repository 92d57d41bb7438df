"""Join the two files of an indexed dataset, corpus.bin and corpus.idx, to one source.

Either file names the pair, and so does their path without a suffix, as in Megatron. A .bin without
an .idx holds ids alone. Files that the inputs do not name are looked for beside the others.
"""

from __future__ import annotations

from seqpack_cli.corpus.folder_walk import FoundFile, Search
from seqpack_cli.corpus.local_files import find_local_files
from seqpack_cli.corpus.remote_files import find_remote_files
from seqpack_cli.corpus.skipped import EXCLUDED
from seqpack_cli.errors import OptionError
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.files.places import is_url

PARTNERS = {".bin": ".idx", ".idx": ".bin"}
NUM_THREADS = 16  # that ask for objects
COPY_HINT = "copy both files of the pair to one folder"

Pair = tuple[FoundFile, FoundFile | None]  # a file, and the index beside it


def find_prefix(name: str, search: Search) -> FoundFile | None:
    """Return the index of a pair that is named without a suffix, None if there is none.

    Raises:
        OptionError: there is a .bin only.
    """
    index = find_one(f"{name}.idx", search)
    if index is None and find_one(f"{name}.bin", search) is not None:
        raise _missing_error(f"{name}.idx", f"{name}.bin")
    return index


def join_pairs(files: list[FoundFile], search: Search) -> list[Pair]:
    """Join each .bin with the .idx beside it; a pair is excluded if one of its files is.

    Raises:
        OptionError: the .bin of an .idx is missing, or the .idx of a .bin that must have one.
    """
    found = {file.path: file for file in files}
    excluded = set(search.skipped.list_paths(EXCLUDED))
    others = [_name_partner(file.path) for file in files]
    unknown = [name for name in others if name and name not in found and name not in excluded]
    if unknown:
        num_threads = min(NUM_THREADS, len(unknown)) if is_url(unknown[0]) else 1
        looked = map_ahead(lambda name: find_one(name, search), unknown, num_threads=num_threads)
        found.update((file.path, file) for file in looked if file is not None)
    pairs: dict[str, Pair] = {}  # by the path of the .bin
    for file, name in zip(files, others, strict=True):
        other = found.get(name)
        if name in excluded and other is None:
            search.skipped.add(EXCLUDED, file.path, file.real)
            continue
        if other is None and file.kind.format == "megatron":
            raise _missing_error(name, file.path)
        is_index = other is not None and _find_suffix(file.path) == ".idx"
        pair = (other, file) if other is not None and is_index else (file, other)
        pairs.setdefault(pair[0].path, pair)
    return list(pairs.values())


def _find_suffix(path: str) -> str:
    return path[-4:].lower()


def _name_partner(path: str) -> str:
    """Return the path of the other file of a pair, "" for a file that is not of a pair."""
    suffix = _find_suffix(path)
    return path[:-4] + PARTNERS[suffix] if suffix in PARTNERS else ""


def find_one(name: str, search: Search) -> FoundFile | None:
    """Find a file by its very name."""
    find = find_remote_files if is_url(name) else find_local_files
    try:
        found = find(name, search, is_listed=True)
    except OptionError:
        return None
    return found[0] if [file.path for file in found] == [name] else None


def _missing_error(missing: str, path: str) -> OptionError:
    return OptionError(f"{missing}: no such file, expected beside {path}", hint=COPY_HINT)
