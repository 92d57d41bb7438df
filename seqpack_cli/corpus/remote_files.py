"""A URL as the user names it -> its objects as files, without what runs of seqpack wrote there."""

from __future__ import annotations

import glob
from collections.abc import Iterator

from seqpack_cli.corpus.folder_walk import FoundFile
from seqpack_cli.corpus.formats import find_file_format
from seqpack_cli.corpus.object_listing import FoundObject, find_objects
from seqpack_cli.corpus.skipped import SEQPACK_OUTPUT, UNKNOWN_SUFFIX, Skipped
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.manifest import is_run_folder
from seqpack_cli.files.url import Url
from seqpack_cli.runs.earlier_run import OWN_PATTERN

NUM_READERS = 16  # of manifests


def find_remote_files(
    name: str, skipped: Skipped, *, takes_all: bool, output: str | None
) -> list[FoundFile]:
    """Find the objects of a URL: see `find_local_files`.

    A glob's objects tell of a run by the names that only runs give; an object that is named is
    always taken.
    """
    found = list(find_objects(name))
    if [entry.url for entry in found] != [name]:
        found = list(_drop_outputs(found, name, skipped, output))
    files = []
    for entry in found:
        kind = find_file_format(entry.below)
        if entry.is_named or takes_all or kind.format:
            files.append(FoundFile(entry.url, entry.url, *entry[2:4], kind, entry.is_named))
        else:
            skipped.add(UNKNOWN_SUFFIX, entry.url, entry.url)
    return files


def _drop_outputs(
    found: list[FoundObject], name: str, skipped: Skipped, output: str | None
) -> Iterator[FoundObject]:
    """Return the objects that lie in no folder of a run."""
    parents = {entry.url.rpartition("/")[0]: None for entry in found if _is_own_name(entry.url)}
    are_runs = map_ahead(lambda url: is_run_folder(Url(url)), parents, num_threads=NUM_READERS)
    folders = {url for url, is_run in zip(parents, are_runs, strict=True) if is_run}
    if output is not None and not _find_root(name).startswith(f"{output}/"):
        folders.add(output)
    for entry in found:
        above = entry.url
        while above := above.rpartition("/")[0]:
            if above in folders:
                skipped.add(SEQPACK_OUTPUT, above)
                break
        else:
            yield entry


def _is_own_name(url: str) -> bool:
    return OWN_PATTERN.fullmatch(url.rpartition("/")[2]) is not None


def _find_root(name: str) -> str:
    """Return the part of a URL before what matches many, with a slash at its end."""
    if not glob.has_magic(name):
        return f"{name.rstrip('/')}/"
    parts = name.split("/")
    magic = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    return "".join(f"{part}/" for part in parts[:magic])
