"""The output folder of a run, so that an interrupted run can be continued.

A run first writes `plan.json` (everything that decides the output bytes), then for each part or
shard its files and a receipt, then the manifest; then it removes plan and receipts. When the same
command runs again, it finds an equal plan, keeps what has a receipt and makes the rest.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from seqpack_cli.errors import FolderError, SeqpackError, join_items
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.disk import LOCK_NAME, TEMP_PATTERN, HashingWriter
from seqpack_cli.files.json_files import Kind, check_fields, encode_json, read_json, write_json
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
    KEEPING_HINT,
    OWN_PATTERN,
    REMAKE_HINT,
    SAME_COMMAND_HINT,
    Adapt,
    DifferentRunError,
    find_splits,
    read_equal_manifest,
    remove_own_files,
    remove_plan,
)
from seqpack_cli.runs.version import __version__

RUN_NAME = "run.json"

Task = TypeVar("Task")


class RunFolder:
    """The folder of a run, held by its lock; `path` is the place to write to."""

    def __init__(self, path: Place, command: str | None = None) -> None:
        self.path = path
        self._command = command  # which does the same run
        self.manifest: dict[str, Any] | None = None  # of an equal run that is already complete
        self._plan: dict[str, Any] | None = None  # of this run, while it is unfinished
        self._files: list[dict[str, Any]] = []  # other than parts or shards
        self.folders: Collection[str] = ()  # below it, of runs that are parts of this one
        self.is_part = False  # of another run, which nobody else writes to

    def check_foreign(self, *, overwrite: bool) -> None:
        """Raise FolderError if the folder holds files that seqpack did not write."""
        names = set(self._list()).difference(self.folders)
        foreign = sorted(name for name in names if not OWN_PATTERN.fullmatch(name))
        if set(find_splits(self.path) or ()).intersection(foreign):
            raise FolderError(
                f"{self.path}: holds splits ({join_items(foreign)}), expected an empty folder",
                hint=SAME_COMMAND_HINT,
            )
        if foreign and not overwrite:
            raise FolderError(
                f"{self.path}: holds other files ({join_items(foreign)}), expected an empty folder",
                hint=KEEPING_HINT,
            )

    def begin(
        self, plan: dict[str, Any], *, overwrite: bool, adapt: Adapt = lambda earlier, _: earlier
    ) -> None:
        """Begin a new run or continue an equal one; if that is complete, set `manifest`.

        Args:
            plan: everything that decides the bytes; the manifest of a finished run has its values.
            overwrite: remove an earlier store or shards, but never other files.
            adapt: takes the plan of an unfinished run and the new plan; returns the former with the
                values of the latter where they do not change what that run has finished.

        Raises:
            FolderError: the folder holds another run or foreign files.
        """
        if overwrite:
            remove_own_files(self.path, plan)
        self.check_foreign(overwrite=overwrite)
        try:
            self.manifest = read_equal_manifest(self.path, plan, self._list(), adapt)
        except DifferentRunError:
            if not self.is_part:
                raise
            remove_own_files(self.path, plan)
        if self.manifest is None:
            write_json(self.path / PLAN_NAME, plan)
            self._plan = plan
        else:
            remove_plan(self.path)

    def check_whole(self, open_folder: Callable[[Place], object]) -> None:
        """Check the store or shards of a finished run by opening them.

        Raises:
            FolderError: they are damaged; the hint says how to make them again.
        """
        try:
            open_folder(self.path)
        except FolderError as error:
            raise FolderError(error.message, hint=error.hint or REMAKE_HINT) from error

    @contextlib.contextmanager
    def publish(self, name: str) -> Iterator[HashingWriter]:
        """Publish a file other than a part or shard; `finish` checks that it still exists."""
        with at(self.path / name).publish() as file:
            yield file
        self._files.append({"name": name, **file.describe()})

    def write_tokenizer(self, tokenizer_json: bytes, name: str = "tokenizer.json") -> None:
        """Publish the tokenizer.json of a store or shard set."""
        with self.publish(name) as file:
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

    def read_receipt(self, name: str, fields: Mapping[str, Kind]) -> dict[str, Any] | None:
        """Read the receipt of a part or shard; None if it or a file of it is missing or damaged.

        Args:
            fields: the fields that it must have, name to type.
        """
        path = self.path / f"{name}.json"
        try:
            receipt = read_json(path)
            check_fields(receipt, fields, source=path)
            check_files(self.path, receipt["files"] if "files" in fields else [receipt])
        except FolderError:
            return None  # the part or shard is made again
        return receipt

    def read_receipts(
        self, tasks: dict[str, Task], read: Callable[[Task], dict[str, Any] | None]
    ) -> list[dict[str, Any] | None]:
        """Return the receipt of each task, or None; in an object store, many are read at once.

        Args:
            tasks: by the names of their parts or shards.
            read: returns the receipt of a task, None if it cannot be used.
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
        """Publish the manifest, then remove the receipts, and last the plan.

        The run counts as unfinished as long as the plan exists.

        Args:
            files: of the parts or shards, each with its name and size.

        Raises:
            FolderError: a file is missing, or another run has taken the folder over.
        """
        check_not_lost(self.path, [*self._files, *files])
        write_json(self.path / MANIFEST_NAME, manifest)
        self._plan = None
        remove_plan(self.path)

    def abandon(self) -> None:
        """Remove everything that the run wrote, the plan last."""
        own = filter(OWN_PATTERN.fullmatch, self._list())
        at(self.path).remove_files([name for name in own if name != PLAN_NAME])
        at(self.path).remove_files([PLAN_NAME])
        self._plan = None

    def record_failure(self, error: SeqpackError) -> None:
        """Write the error that ended the run into the plan, for readers of the unfinished run."""
        if self._plan is not None:
            failure = {"message": error.message, "hint": error.hint}
            with contextlib.suppress(SeqpackError):  # the first error is the one to report
                write_json(self.path / PLAN_NAME, {**self._plan, FAILURE: failure})


def write_receipt(folder: Place, name: str, receipt: dict[str, Any]) -> None:
    """Publish the receipt of a part or shard whose files are complete, as one line."""
    with at(folder / f"{name}.json").publish() as file:
        file.write(encode_json(receipt) + b"\n")
