"""An output folder from the first plan to the manifest: what lets a run stop and go on.

A run writes `plan.json` (all that decides the bytes), then for every part or shard its files and
last a receipt, then the manifest; plan and receipts go when the manifest stands. The same command
again finds the plan equal, takes the finished receipts and makes the rest.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from seqpack_cli.errors import DataError, FolderError, OptionError, SeqpackError, join_items
from seqpack_cli.files import disk
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.disk import LOCK_NAME, TEMP_PATTERN, HashingWriter
from seqpack_cli.files.json_files import check_fields, read_json, write_json
from seqpack_cli.files.manifest import (
    FAILURE,
    MANIFEST_NAME,
    PLAN_NAME,
    RECEIPT_PATTERN,
    check_files,
    check_not_lost,
)
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place
from seqpack_cli.runs.earlier_run import (
    OVERWRITE_HINT,
    OWN_PATTERN,
    REMAKE_HINT,
    Adapt,
    read_equal_manifest,
    remove_own_files,
    remove_plan,
)
from seqpack_cli.runs.version import __version__

RUN_NAME = "run.json"

Task = TypeVar("Task")


class RunFolder:
    """The folder of a run under way, held by its lock; its `path` is the place to write to."""

    def __init__(self, path: Place, command: str = "") -> None:
        self.path = path
        self._command = command  # which does the same run
        self.manifest: dict[str, Any] | None = None  # of an equal run that finished before
        self._plan: dict[str, Any] | None = None  # of this run, as long as it is unfinished
        self._files: list[dict[str, Any]] = []  # beside the parts or shards

    def check_foreign(self, *, overwrite: bool) -> None:
        """Raise if the folder holds files that no run of ours wrote."""
        foreign = sorted(name for name in self._list() if not OWN_PATTERN.fullmatch(name))
        if foreign and not overwrite:
            raise FolderError(
                f"{self.path}: holds other files ({join_items(foreign)}), expected an empty folder",
                hint=OVERWRITE_HINT,
            )

    def begin(
        self, plan: dict[str, Any], *, overwrite: bool, adapt: Adapt = lambda earlier, _: earlier
    ) -> None:
        """Begin a new run, continue an equal one, or find it complete: then there is a manifest.

        Args:
            plan: all that decides the bytes; a finished run's manifest must hold the same values.
            overwrite: remove an earlier store or shards; files of others are never removed.
            adapt: gives the plan of an unfinished run with the values of the new plan wherever they
                would not have changed what that run finished.

        Raises:
            FolderError: the folder holds another run or foreign files.
        """
        if overwrite:
            remove_own_files(self.path, plan)
        self.check_foreign(overwrite=overwrite)
        self.manifest = read_equal_manifest(self.path, plan, self._list(), adapt)
        if self.manifest is None:
            write_json(self.path / PLAN_NAME, plan)
            self._plan = plan
        else:
            remove_plan(self.path)

    def check_whole(self, open_folder: Callable[[Place], object]) -> None:
        """Open the store or shards of a finished run.

        Raises:
            FolderError: they are damaged; the hint says how to make them again.
        """
        try:
            open_folder(self.path)
        except FolderError as error:
            raise FolderError(error.message, hint=error.hint or REMAKE_HINT) from error

    @contextlib.contextmanager
    def publish(self, name: str) -> Iterator[HashingWriter]:
        """Publish a file beside the parts or shards; `finish` checks that it is still there."""
        with at(self.path / name).publish() as file:
            yield file
        self._files.append({"name": name, **file.describe()})

    def write_tokenizer(self, tokenizer_json: bytes) -> None:
        """Publish the tokenizer.json of a store or of shards."""
        with self.publish("tokenizer.json") as file:
            file.write(tokenizer_json)

    def write_record(self, done: dict[str, Any], versions: dict[str, str]) -> None:
        """Publish `run.json`, which says how the run was done; no reader needs it.

        Args:
            done: fields to add to the command, the date and the versions.
            versions: of the packages that did the work.
        """
        record = {
            "command": self._command,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **done,
            "versions": {
                "seqpack": __version__,
                "python": platform.python_version(),
                **versions,
            },
        }
        write_json(self.path / RUN_NAME, record)

    def read_receipt(self, name: str, fields: dict[str, type]) -> dict[str, Any] | None:
        """Give the receipt of a part or shard if it and its files are there, whole.

        Args:
            fields: what it must hold; it may be a stranger's.
        """
        path = self.path / f"{name}.json"
        try:
            receipt = read_json(path)
            check_fields(receipt, fields, source=path)
            check_files(self.path, receipt["files"] if "files" in fields else [receipt])
        except FolderError:
            return None  # made again
        return receipt

    def read_receipts(
        self, tasks: dict[str, Task], read: Callable[[Task], dict[str, Any] | None]
    ) -> list[dict[str, Any] | None]:
        """Read what there is of receipts, in a store far away many at once.

        Args:
            tasks: by the names of their parts or shards.
            read: gives the receipt of a task, None if it can not be used.
        """
        found = set(filter(RECEIPT_PATTERN.fullmatch, self._list()))

        def read_one(name: str) -> dict[str, Any] | None:
            return read(tasks[name]) if f"{name}.json" in found else None

        return list(map_ahead(read_one, tasks, num_threads=at(self.path).num_readers))

    def _list(self) -> list[str]:
        names = (path.name for path in self.path.iterdir())
        return [name for name in names if name != LOCK_NAME and not TEMP_PATTERN.fullmatch(name)]

    def forget(self, name: str) -> None:
        """Remove the receipt of a part or shard, so that it is made again."""
        at(self.path).remove_files([f"{name}.json"])

    def finish(self, manifest: dict[str, Any], files: list[dict[str, Any]]) -> None:
        """Publish the manifest, then remove what only an unfinished run needs, last the plan.

        While the plan is there the run is not finished: who is killed before has not ended well.

        Args:
            files: of the parts or shards, each with its name and size.

        Raises:
            FolderError: one of them is lost, or another run has taken the folder over.
        """
        check_not_lost(self.path, [*self._files, *files])
        write_json(self.path / MANIFEST_NAME, manifest)
        self._plan = None
        remove_plan(self.path)

    def abandon(self) -> None:
        """Remove what the run wrote, the plan last: nothing in it is worth to be continued."""
        own = filter(OWN_PATTERN.fullmatch, self._list())
        at(self.path).remove_files([name for name in own if name != PLAN_NAME])
        at(self.path).remove_files([PLAN_NAME])
        self._plan = None

    def record_failure(self, error: SeqpackError) -> None:
        """Write into the plan what ended the run, for readers of what it left."""
        if self._plan is not None:
            failure = {"message": error.message, "hint": error.hint}
            with contextlib.suppress(SeqpackError):  # the error itself is on its way
                write_json(self.path / PLAN_NAME, {**self._plan, FAILURE: failure})


@contextlib.contextmanager
def hold_folder(folder: Place, *, command: str = "") -> Iterator[RunFolder]:
    """Make a folder and be its only writer.

    Raises:
        FolderError: the folder is in use.
        MachineError: the folder can not be made.
    """
    new_folders = at(folder).make_folder()
    try:
        with at(folder).lock_folder() as held:
            remove_temporary_files(held)
            run = RunFolder(held, command)
            try:
                yield run
            except (DataError, OptionError) as error:  # which the same command ends with again
                run.record_failure(error)
                raise
            finally:
                remove_temporary_files(held)
    except BaseException:
        disk.remove_folders(new_folders)  # unless a run began in them
        raise


@contextlib.contextmanager
def open_run(
    folder: Place, plan: dict[str, Any], *, overwrite: bool, command: str = ""
) -> Iterator[RunFolder]:
    """Hold a folder and begin a run in it: see `hold_folder` and `RunFolder.begin`."""
    with hold_folder(folder, command=command) as run:
        run.begin(plan, overwrite=overwrite)
        yield run


def remove_temporary_files(folder: Place) -> None:
    """Remove what killed writers left behind; only for the holder of the folder's lock."""
    names = (path.name for path in folder.iterdir())
    at(folder).remove_files(list(filter(TEMP_PATTERN.fullmatch, names)))


def write_receipt(folder: Place, name: str, receipt: dict[str, Any]) -> None:
    """Publish the receipt of a part or shard whose files stand."""
    write_json(folder / f"{name}.json", receipt)
