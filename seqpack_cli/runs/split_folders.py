"""The folders of a run that writes several shard sets, one for each split.

Once the run's plan is written, the folders that it names belong to it: an earlier shard set in one
of them is replaced if it differs, and one of a split that no longer exists is removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from seqpack_cli.errors import FolderError, SeqpackError, join_items
from seqpack_cli.files.json_files import read_json
from seqpack_cli.files.manifest import MANIFEST_NAME, PLAN_NAME
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place
from seqpack_cli.runs.earlier_run import FORMAT_OF_SPLITS, REMOVE_HINT, remove_own_files
from seqpack_cli.runs.open_run import RunOutput, hold_folder
from seqpack_cli.runs.run_folder import RunFolder

REPLACED = "replaced"  # field of a plan: splits of an earlier run, whose folders are removed


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
        earlier = _find_names(run.path)
        if earlier is None:
            found = sorted({path.name for path in run.path.iterdir()}.intersection(names))
            if found:
                what = f"{folder}: holds {join_items(found)}, expected no folder of a split"
                raise FolderError(what, hint=REMOVE_HINT)
        stale = sorted(set(earlier or ()) - set(names))
        run.folders = {*names, *stale}
        run.begin({**plan, REPLACED: stale} if stale else plan, overwrite=output.overwrite)
        for name in stale:
            _remove_split(run, folder / name)
        yield run


def _find_names(folder: Place) -> list[str] | None:
    """Return the splits of an earlier run, None if there was none."""
    names: list[str] | None = None
    for path in (folder / MANIFEST_NAME, folder / PLAN_NAME):
        with contextlib.suppress(SeqpackError, KeyError, TypeError):
            found = read_json(path)
            if found["format"] == FORMAT_OF_SPLITS:
                entries = [str(entry["name"]) for entry in found["splits"]]
                names = [*(names or ()), *entries, *map(str, found.get(REPLACED, ()))]
    return names


def _remove_split(run: RunFolder, folder: Place) -> None:
    """Remove the shard set of a split that no longer exists; other files are kept."""
    if not folder.is_dir():
        return
    with hold_folder(folder, within=run) as part:
        remove_own_files(part.path, {"format": "seqpack.shards"})
        at(part.path).remove_files([PLAN_NAME])
    at(folder).remove_folder()
