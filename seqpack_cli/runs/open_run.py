"""Hold the output folder of a run: one writer at a time, and nothing left of killed ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import TEMP_PATTERN
from seqpack_cli.files.manifest import check_outside_runs
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place
from seqpack_cli.runs.run_folder import RunFolder


@dataclass(frozen=True)
class RunOutput:
    """Where a run writes, and how.

    Args:
        overwrite: replace what an earlier run of the same command wrote there.
        command: the command line, for `run.json`.
        within: the run that this one is a part of.
    """

    folder: Place
    overwrite: bool = False
    command: str | None = None
    within: RunFolder | None = None


@contextlib.contextmanager
def hold_folder(
    folder: Place, *, command: str | None = None, within: RunFolder | None = None
) -> Iterator[RunFolder]:
    """Create a folder and lock it against other writers.

    Args:
        within: the run that this one is a part of.

    Raises:
        FolderError: the folder is in use, or inside a store or shards.
        MachineError: the folder cannot be created.
    """
    new_folders = at(folder).make_folder()
    try:
        check_outside_runs(folder, within=None if within is None else within.path)
        with at(folder).lock_folder() as held:
            remove_temporary_files(held)
            run = RunFolder(held, command)
            run.is_part = within is not None
            try:
                yield run
            except (DataError, OptionError) as error:  # the same command would fail again
                run.record_failure(error)
                raise
            finally:
                remove_temporary_files(held)
    except BaseException:
        disk.remove_folders(new_folders)  # only if they are empty
        raise


@contextlib.contextmanager
def open_run(output: RunOutput, plan: dict[str, Any]) -> Iterator[RunFolder]:
    """Hold a folder and begin a run in it: see `hold_folder` and `RunFolder.begin`."""
    with hold_folder(output.folder, command=output.command, within=output.within) as run:
        run.begin(plan, overwrite=output.overwrite)
        yield run


def remove_temporary_files(folder: Place) -> None:
    """Remove what killed writers left behind; the caller holds the folder's lock."""
    names = (path.name for path in folder.iterdir())
    at(folder).remove_files(list(filter(TEMP_PATTERN.fullmatch, names)))
