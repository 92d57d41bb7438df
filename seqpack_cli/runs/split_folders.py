"""The folders of a run that writes several shard sets, one for each split.

Once the run's plan is written, the folders that it names belong to it: an earlier shard set in one
of them is replaced if it differs, and one of a split that no longer exists is removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from seqpack_cli.errors import FolderError, join_items, quote
from seqpack_cli.files.json_files import read_json
from seqpack_cli.files.manifest import PLAN_NAME
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place
from seqpack_cli.runs.earlier_run import (
    KEEPING_HINT,
    REMOVE_HINT,
    REPLACED,
    SPLIT_NAME,
    find_formats,
    find_splits,
    remove_own_files,
)
from seqpack_cli.runs.open_run import RunOutput, hold_folder
from seqpack_cli.runs.run_folder import RunFolder

SHARDS: dict[str, Any] = {
    "format": "seqpack.shards",
    "options": {},
}  # a plan while they are removed


@contextlib.contextmanager
def open_split_run(
    output: RunOutput, plan: dict[str, Any], names: Sequence[str]
) -> Iterator[RunFolder]:
    """Hold a folder and begin a run of several splits in it; see `RunFolder.begin`.

    Args:
        names: of the splits.

    Raises:
        FolderError: the folder of a split exists, and no run of splits wrote it.
    """
    folder = output.folder
    with hold_folder(folder, command=output.command) as run:
        earlier = find_splits(run.path) or []
        present = {path.name for path in run.path.iterdir()}
        _check_strange(output, sorted(present.intersection(names).difference(earlier)))
        run.folders = {*names, *earlier}
        for name in sorted(run.folders):
            _check_split(folder / name)
        stale = sorted(run.folders.difference(names)) if output.overwrite else _find_stale(run.path)
        run.begin({**plan, REPLACED: stale} if stale else plan, overwrite=output.overwrite)
        if run.manifest is None:
            for name in [*stale, *(names if output.overwrite else ())]:
                _remove_split(run, folder / name)
        yield run


def _check_strange(output: RunOutput, names: Sequence[str]) -> None:
    """Raise FolderError if folders that no run of splits wrote may not become those of splits."""
    paths = {name: output.folder / name for name in names}
    kept = [name for name, path in paths.items() if find_formats(path) or not path.is_dir()]
    found = kept if output.overwrite else names
    if found:
        raise FolderError(
            f"{output.folder}: holds {join_items(found)}, which no pack --split wrote",
            hint=REMOVE_HINT if kept else KEEPING_HINT,
        )


def _check_split(folder: Place) -> None:
    """Raise FolderError if the folder of a split is a link or holds something else than shards."""
    if at(folder).is_link():
        raise FolderError(f"{folder}: a link, expected the folder of a split", hint=REMOVE_HINT)
    if not at(folder).exists():
        return
    if not folder.is_dir():
        raise FolderError(f"{folder}: a file, expected the folder of a split", hint=REMOVE_HINT)
    found = find_formats(folder) - {SHARDS["format"]}
    if found:
        what = f"{folder}: holds {join_items(sorted(map(quote, found)))}"
        raise FolderError(f"{what}, expected shards of a split", hint=REMOVE_HINT)


def _find_stale(folder: Place) -> list[str]:
    """Return the splits that a run, which was interrupted, began to remove."""
    with contextlib.suppress(FolderError):
        names = map(str, read_json(folder / PLAN_NAME).get(REPLACED, ()))
        return list(filter(SPLIT_NAME.fullmatch, names))
    return []


def _remove_split(run: RunFolder, folder: Place) -> None:
    """Remove the shard set of a split; other files are kept."""
    if not folder.is_dir():
        return
    with hold_folder(folder, within=run) as part:
        remove_own_files(part.path, SHARDS)
        at(part.path).remove_files([PLAN_NAME])
    at(folder).remove_folder()
