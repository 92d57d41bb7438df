"""Find the objects of a URL: one object, all below a folder, or those of a glob.

This is the only place where a URL may be a glob, and only if no object has that very name:
everywhere else `*`, `?` and `[` are ordinary characters. Folders written by seqpack are skipped.
"""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from seqpack_cli.corpus.folder_walk import FoundFile, Search
from seqpack_cli.corpus.formats import Formats, find_file_format
from seqpack_cli.corpus.skipped import SEQPACK_OUTPUT
from seqpack_cli.errors import OptionError
from seqpack_cli.files.manifest import is_run_folder
from seqpack_cli.files.objects import PACKAGES, Url, map_ahead, naming_requests, read_version
from seqpack_cli.files.places import check_address, is_url, split_url
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.run_folder import OWN_PATTERN

NUM_READERS = 16  # of manifests


def list_statuses(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the statuses of URLs by listing their folders, where that takes fewer requests.

    A listing has 1,000 objects in a request, which takes as long as the status of a few objects.
    """
    urls = set(filter(is_url, names))
    folders = Counter(url.rpartition("/")[0] for url in urls)
    statuses: dict[str, dict[str, Any]] = {}
    for folder, count in folders.items():
        if count >= LIMITS.objects_listed and split_url(folder)[0] in PACKAGES:
            check_address(folder)
            for name, status in Url(folder).list_files().items():
                if f"{folder}/{name}" in urls:
                    statuses[f"{folder}/{name}"] = status
    return statuses


def find_remote_files(name: str, search: Search, *, is_listed: bool = False) -> list[FoundFile]:
    """Find the objects of a URL: see `find_local_files`.

    Folders written by seqpack are recognized by file names that only seqpack uses; an object that
    the user names is always read.
    """
    root, found = _find_objects(name, search, is_listed=is_listed)
    if root is None:
        return found
    search.choice.begin(name)
    return list(_choose(_drop_outputs(found, root, search), root, search))


def _choose(found: Iterable[FoundFile], root: str, search: Search) -> Iterator[FoundFile]:
    """Yield the objects that are wanted."""
    for file in found:
        path = file.path[len(root) :]
        reason, skipped = search.choice.judge_path(path)
        if reason:
            search.skipped.add(reason, root + skipped, root + skipped)
        elif file.kind.unnamed and not (
            file.is_named or search.takes_all or search.choice.is_named(path)
        ):
            search.skipped.add(file.kind.unnamed, file.path, file.real)
        else:
            yield file


def _drop_outputs(found: list[FoundFile], root: str, search: Search) -> Iterator[FoundFile]:
    """Yield the objects that are not in a folder written by seqpack."""
    parents = {file.path.rpartition("/")[0]: None for file in found if _is_own_name(file.path)}
    are_runs = map_ahead(lambda url: is_run_folder(Url(url)), parents, num_threads=NUM_READERS)
    folders = {url for url, is_run in zip(parents, are_runs, strict=True) if is_run}
    if search.output is not None and not root.startswith(f"{search.output}/"):
        folders.add(search.output)
    for file in found:
        above = file.path
        while above := above.rpartition("/")[0]:
            if above in folders:
                search.skipped.add(SEQPACK_OUTPUT, above)
                break
        else:
            yield file


def _is_own_name(url: str) -> bool:
    return OWN_PATTERN.fullmatch(url.rpartition("/")[2]) is not None


def _find_objects(
    name: str, search: Search, *, is_listed: bool
) -> tuple[str | None, list[FoundFile]]:
    """Find the objects of a URL, those of a folder sorted by the bytes of their paths.

    Returns:
        The folder of the URL or before its first wildcard, with a slash at its end, None if the
        URL is an object; and what was found.

    Raises:
        OptionError: there is none.
        MachineError: the object store does not answer.
    """
    check_address(name)
    protocol, key = split_url(name)
    url = Url(f"{protocol}://{key.strip('/')}")
    if url.key.partition("/")[2].startswith("/"):  # s3fs would list the objects without it
        raise OptionError(f"{url}: two slashes after the bucket, expected one")
    status = search.statuses.get(str(url)) or url.find_status()
    if status is not None and status["type"] == "file" and not name.endswith("/"):
        return None, [_describe(url, status, search.formats, is_named=True)]
    if status is not None:
        return f"{url}/", list(_find_below(url, search.formats))
    if is_listed:
        raise OptionError(f"{url}: no such object or folder")
    root = re.split(r"[*?[]", str(url))[0].rpartition("/")[0] + "/"  # before the first wildcard
    return root, list(_find_matches(url, root, search.formats))


def _find_below(folder: Url, formats: Formats) -> Iterator[FoundFile]:
    system, key = folder.open_file_system()
    with naming_requests(folder):
        found = system.find(key, detail=True)
    prefix = key.strip("/") + "/"
    named = {path.strip("/").removeprefix(prefix): status for path, status in found.items()}
    for below in sorted(named, key=str.encode):
        # Some programs create an object with an empty name to mark a folder.
        is_file = below and not below.endswith("/") and named[below]["type"] == "file"
        if is_file and not _is_hidden(below):
            yield _describe(folder / below, named[below], formats, is_named=False)


def _find_matches(pattern: Url, root: str, formats: Formats) -> Iterator[FoundFile]:
    system, key = pattern.open_file_system()
    found: dict[str, Any] = {}
    if glob.has_magic(key):
        with naming_requests(pattern):
            found = system.glob(key, detail=True)
    if not found:
        raise OptionError(
            f"{pattern}: no such object or folder",
            hint="pass an object, a folder of objects, or a glob in quotes",
        )
    for path in sorted(found, key=str.encode):
        url = Url(f"{pattern.protocol}://{path.strip('/')}")
        if _is_hidden(str(url).removeprefix(root)):
            continue  # as Python's glob does
        if found[path]["type"] == "file":
            yield _describe(url, found[path], formats, is_named=True)
        else:
            yield from _find_below(url, formats)


def _is_hidden(below: str) -> bool:
    return any(part.startswith(".") for part in below.split("/"))


def _describe(url: Url, status: dict[str, Any], formats: Formats, *, is_named: bool) -> FoundFile:
    name, version = str(url), read_version(status)
    kind = find_file_format(name, formats)
    return FoundFile(name, name, int(status["size"]), version, kind, is_named)
