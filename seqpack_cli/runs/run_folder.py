"""The output folder of a run, so that an interrupted run can be continued.

A run first writes `plan.json` (everything that decides the output bytes), then for each part or
shard its files and a receipt, then the manifest; then it removes plan and receipts. When the same
command runs again, it finds an equal plan, keeps what has a receipt and makes the rest. Another
plan is refused in the words of the command line, unless the user asks to replace what is there.

A local folder is locked. In an object store, a run that finds an equal plan writes equal bytes, and
one that finds its plan replaced stops (`objects.check_own`).
"""

from __future__ import annotations

import contextlib
import platform
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from seqpack_cli import __version__
from seqpack_cli.errors import (
    DataError,
    FolderError,
    OptionError,
    SeqpackError,
    join_items,
    quote,
)
from seqpack_cli.files import disk
from seqpack_cli.files.disk import TEMP_PATTERN, HashingWriter
from seqpack_cli.files.json_files import (
    Kind,
    check_fields,
    encode_json,
    encode_lines,
    read_json,
    write_json,
)
from seqpack_cli.files.locks import LOCK_NAME
from seqpack_cli.files.manifest import (
    FAILURE,
    FORMAT_OF_SHARDS,
    FORMAT_OF_SPLITS,
    FORMAT_OF_TOKENS,
    MANIFEST_NAME,
    RECEIPT_PATTERN,
    RUN_NAMES,
    check_files,
    check_outside_runs,
    is_run_folder,
)
from seqpack_cli.files.objects import PLAN_NAME, map_ahead
from seqpack_cli.files.places import NO_FILE, Place, at
from seqpack_cli.runs.options import SPLIT_NAME, find_given, list_options, spell_flag

RUN_NAME = "run.json"
REMAKE_HINT = "pass --overwrite to make it again"
OVERWRITE_HINT = "choose another -o, or pass --overwrite to replace what is there"
KEEPING_HINT = (
    "choose another -o, or pass --overwrite, which keeps these files and replaces an earlier run"
)
SAME_COMMAND_HINT = "choose another -o; --overwrite only replaces what the same command wrote"
REMOVE_HINT = "remove them yourself if they are not needed, or choose another -o"
REPLACED = "replaced"  # field of a plan of splits: earlier splits that no longer exist
COMMON_NAMES = r"(manifest|plan|run|tokenizer)\.json"
NAMES = {  # of the files that a run writes, by the format of its manifest
    FORMAT_OF_TOKENS: rf"{COMMON_NAMES}|(rejects|special_tokens)\.jsonl"
    r"|part-\d{5,}\.(bin|idx|columns\.safetensors|json)",
    FORMAT_OF_SHARDS: rf"{COMMON_NAMES}|decoder\.tokenizer\.json"
    r"|shard-\d{5,}\.(safetensors|json)",
    FORMAT_OF_SPLITS: r"(manifest|plan|run)\.json",
}
OWN_PATTERN = re.compile("|".join(NAMES.values()))
# Fields of a plan that follow from other fields.
FOLLOWING = (
    *("dtype", "vocab_size", "max_id", "pad_id", "bos_id", "eos_id", "unk_id"),
    *("columns", "splits", REPLACED),
)
SAID = {"chat": "chat template", "tokenizer_blake3": "tokenizer"}
Adapt = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class RunOutput:
    """Where a run writes, and how.

    Args:
        options: the options class of the command, as the user gave it.
        overwrite: replace what an earlier run of the same command wrote there.
        command: the command line, for `run.json`.
    """

    folder: Place
    options: Any = None
    overwrite: bool = False
    command: str | None = None


class RunFolder:
    """The folder of a run, held by its lock; `path` is the place to write to, once it has begun.

    Args:
        splits: the folders below it that the run writes too, each with a manifest of its own.
    """

    def __init__(self, output: RunOutput, splits: Sequence[str] = ()) -> None:
        self.path = output.folder
        self.manifest: dict[str, Any] | None = None  # of an equal run that is already complete
        self._output = output
        self._splits = splits
        self._stale: list[str] = []  # of earlier splits that this run does not have
        self._plan: dict[str, Any] | None = None  # of this run, while it is unfinished
        self._files: dict[str | None, list[dict[str, Any]]] = {}  # other than parts or shards

    def find_folder(self, split: str | None) -> Place:
        """Return the folder of a split, or that of the run."""
        return self.path if split is None else self.path / split

    def remove_left_overs(self) -> None:
        """Remove what killed writers left in the folders of the run."""
        for split in self._list_folders():
            at(self.find_folder(split)).remove_left_overs()

    def check_foreign(self) -> list[str]:
        """Return the names in the folder.

        Raises:
            FolderError: seqpack did not write all of them.
        """
        names = self._list()
        own = {*self._splits, *self._stale}
        foreign = sorted(name for name in {*names} - own if not OWN_PATTERN.fullmatch(name))
        is_split = bool(foreign) and bool({*foreign} & {*find_splits(self.path)})
        if foreign and (is_split or not self._output.overwrite):
            what = "splits" if is_split else "other files"
            raise FolderError(
                f"{self.path}: holds {what} ({join_items(foreign)}), expected an empty folder",
                hint=SAME_COMMAND_HINT if is_split else KEEPING_HINT,
            )
        return names

    def begin(self, plan: dict[str, Any], adapt: Adapt = lambda earlier, _: earlier) -> None:
        """Begin a new run or continue an equal one; if that is complete, set `manifest`.

        Args:
            plan: everything that decides the bytes; the manifest of a finished run has its values.
            adapt: takes the plan of an unfinished run and the new plan; returns the former with the
                values of the latter where they do not change what that run has finished.

        Raises:
            FolderError: the folder holds another run or foreign files.
        """
        if self._splits:
            self._check_splits()
            plan = {**plan, REPLACED: self._stale} if self._stale else plan
        if self._output.overwrite:
            self._remove_own_files(plan)
        names = self.check_foreign()
        self.manifest = self._read_equal_manifest(plan, adapt, names)
        if self.manifest is not None:
            self._remove_plan()
            return
        path = at(self.path).begin_run(encode_lines(plan), replace=PLAN_NAME in names)
        if path is None:  # another run began at the same moment: compare its plan
            self._output = replace(self._output, overwrite=False)
            self.begin(plan, adapt)
            return
        self.path, self._plan = path, plan
        for name in self._stale:  # also where the run that began to replace them was killed
            if self.find_folder(name).is_dir():
                self._remove_files(name, filter(OWN_PATTERN.fullmatch, self._list(name)))
                at(self.find_folder(name)).remove_folder()
        self._stale = []
        for name in self._splits:
            at(self.find_folder(name)).make_folder()

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
    def publish(self, name: str, split: str | None = None) -> Iterator[HashingWriter]:
        """Publish a file other than a part or shard; `finish` checks that it still exists."""
        with at(self.find_folder(split) / name).publish() as file:
            yield file
        self._files.setdefault(split, []).append({"name": name, **file.describe()})

    def write_tokenizer(
        self, tokenizer_json: bytes, name: str = "tokenizer.json", split: str | None = None
    ) -> None:
        """Publish the tokenizer.json of a store or shard set."""
        with self.publish(name, split) as file:
            file.write(tokenizer_json)

    def write_record(
        self, done: dict[str, Any], versions: dict[str, str], split: str | None = None
    ) -> None:
        """Publish `run.json`, which says how the run was done; no reader needs it.

        Args:
            done: fields to add to the command, the date and the versions.
            versions: of the packages that did the work.
        """
        own = {"seqpack": __version__, "python": platform.python_version()}
        date = datetime.now(UTC).isoformat(timespec="seconds")
        record = {
            "command": self._output.command,
            "date": date,
            **done,
            "versions": {**own, **versions},
        }
        write_json(self.find_folder(split) / RUN_NAME, record)

    def read_receipts(
        self,
        files: Mapping[str, Sequence[str]],
        fields: Mapping[str, Kind],
        split: str | None = None,
    ) -> list[dict[str, Any] | None]:
        """Return the receipt of each part or shard, None if it or a file is missing or damaged.

        In an object store, many are read at once.

        Args:
            files: the names of the files of each part or shard, by its name.
            fields: those of a receipt, name to type.
        """
        folder, found = self.find_folder(split), {*self._list(split)}

        def read(name: str) -> dict[str, Any] | None:
            path = folder / f"{name}.json"
            if path.name not in found:
                return None
            try:
                receipt = read_json(path)
                check_fields(receipt, fields, source=path)
                entries = receipt["files"] if "files" in fields else [receipt]
                check_files(folder, entries)
                is_own = [entry["name"] for entry in entries] == [*files[name]]
                return receipt if is_own else None
            except FolderError:
                return None  # the part or shard is made again

        return list(map_ahead(read, files, num_threads=at(folder).num_readers))

    def forget(self, name: str) -> None:
        """Remove the receipt of a part or shard, so that it is made again."""
        at(self.path).remove_files([f"{name}.json"])

    def finish(self, manifest: dict[str, Any], files: list[dict[str, Any]]) -> None:
        """Publish the manifest, then remove the receipts, and last the plan.

        The run counts as unfinished as long as the plan exists.

        Args:
            files: of the parts or shards, each with its name and size; none if they are of splits.

        Raises:
            FolderError: a file is missing, or another run has taken the folder over.
        """
        self.finish_split(None, manifest, files)
        self._plan = None
        self._remove_plan()

    def finish_split(
        self, split: str | None, manifest: dict[str, Any], files: list[dict[str, Any]]
    ) -> None:
        """Publish the manifest of a split, whose receipts stay until the run is finished.

        Args:
            files: of its shards.

        Raises:
            FolderError: a file is missing, or another run has taken the folder over.
        """
        folder = self.find_folder(split)
        try:
            if files:
                own = self._files.get(split, [])
                check_files(folder, [*own, *files], at(folder).find_sizes())
        except FolderError as error:
            raise FolderError(
                f"{error.message}; another program changed it during this run",
                hint="run the same command again: it writes that file again",
            ) from error
        write_json(folder / MANIFEST_NAME, manifest)

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

    def _list(self, split: str | None = None) -> list[str]:
        names = (path.name for path in self.find_folder(split).iterdir())
        return [name for name in names if name != LOCK_NAME and not TEMP_PATTERN.fullmatch(name)]

    def _list_folders(self) -> list[str | None]:
        """Return the folder of the run and those of its splits, and of earlier ones, that exist."""
        names = [*self._splits, *self._stale]
        return [None, *(name for name in names if self.find_folder(name).is_dir())]

    def _remove_files(self, split: str | None, names: Iterable[str]) -> None:
        at(self.find_folder(split)).remove_files(list(names))

    def _remove_receipts(self) -> None:
        for split in self._list_folders():
            self._remove_files(split, filter(RECEIPT_PATTERN.fullmatch, self._list(split)))

    def _remove_plan(self) -> None:
        """Remove the receipts, then the plan."""
        self._remove_receipts()
        at(self.path).remove_files([PLAN_NAME])

    def _check_splits(self) -> None:
        """Find the earlier splits that this run replaces.

        Raises:
            FolderError: the folder of a split exists, and no run of splits wrote it.
        """
        folder, names, earlier = self.path, self._splits, find_splits(self.path)
        strange = [name for name in names if name not in earlier and at(folder / name).exists()]
        kept = [
            name for name in strange if is_run_folder(folder / name) or not (folder / name).is_dir()
        ]
        kept += [name for name in earlier if (folder / name).is_symlink()]
        if found := kept if self._output.overwrite else sorted({*strange, *kept}):
            raise FolderError(
                f"{folder}: holds {join_items(found)}, which no pack --split wrote",
                hint=REMOVE_HINT if kept else KEEPING_HINT,
            )
        self._stale = sorted({*earlier} - {*names})

    def _remove_own_files(self, plan: dict[str, Any]) -> None:
        """Remove an earlier run's files, such that a kill leaves the old or the new run.

        Raises:
            FolderError: another command wrote them, or seqpack did not.
        """
        own: dict[str | None, list[str]] = {}
        own[None] = [*filter(re.compile(NAMES[plan["format"]]).fullmatch, self._list())]
        if not own[None]:
            return
        for split in self._list_folders()[1:]:
            own[split] = [*filter(re.compile(NAMES[FORMAT_OF_SHARDS]).fullmatch, self._list(split))]
        earlier = _read_earlier(self.path)
        formats = {found["format"] for found in earlier}
        what, hint = None, SAME_COMMAND_HINT
        if formats - {plan["format"]}:
            what = f"{join_items(sorted(map(quote, formats)))}, expected {plan['format']}"
        elif not all(_has_maker(found, plan) for found in earlier):
            what = f"a token store of another command, expected one of {plan['made_by']}"
        elif not formats:
            what = f"{join_items(sorted(own[None]))} without a manifest or plan of seqpack"
            hint = REMOVE_HINT
        if what:
            raise FolderError(f"{self.path}: holds {what}", hint=hint)
        for split, names in own.items():
            find_size = at(self.find_folder(split)).find_sizes()
            for name in names:
                if find_size(name) == NO_FILE:
                    at(self.find_folder(split) / name).check_size()  # raises, with all in place
        self._remove_receipts()
        write_json(self.path / PLAN_NAME, plan)  # from here on it is the new run, unfinished
        for split in own:
            self._remove_files(split, [MANIFEST_NAME])
        for split, names in own.items():
            kept = RUN_NAMES if split is None else ()
            self._remove_files(split, [name for name in names if name not in kept])

    def _read_equal_manifest(
        self, plan: dict[str, Any], adapt: Adapt, names: list[str]
    ) -> dict[str, Any] | None:
        """Return the manifest of a finished run with an equal plan; None if there is work to do."""
        earlier = next((name for name in (MANIFEST_NAME, PLAN_NAME) if name in names), None)
        if earlier is None:
            leftovers = sorted(filter(OWN_PATTERN.fullmatch, names))
            if leftovers:
                raise FolderError(
                    f"{self.path}: holds {join_items(leftovers)} without a manifest or plan",
                    hint=REMOVE_HINT,
                )
            return None
        found, record = read_json(self.path / earlier), {}
        if earlier == MANIFEST_NAME:
            with contextlib.suppress(FolderError):
                record = read_json(self.path / RUN_NAME)
        else:
            has_pieces = any(
                RECEIPT_PATTERN.fullmatch(name) or not OWN_PATTERN.fullmatch(name) for name in names
            )
            if not has_pieces and (at(self.path).has_lock or FAILURE in found):
                return None  # it finished no part or shard, and began no split: nothing to keep
            found = adapt(found, plan)
        changes = _describe_changes(plan, found, record, self._output.options)
        if changes:
            is_same = found.get("format") == plan["format"] and _has_maker(found, plan)
            raise FolderError(
                f"{self.path}: holds a run that differs: {changes}",
                hint=OVERWRITE_HINT if is_same else SAME_COMMAND_HINT,
            )
        return found if earlier == MANIFEST_NAME else None


@contextlib.contextmanager
def hold_folder(output: RunOutput, splits: Sequence[str] = ()) -> Iterator[RunFolder]:
    """Create a folder, lock it against other writers and remove what killed ones left.

    Args:
        splits: the names of folders below it that the run writes too.

    Raises:
        FolderError: the folder is in use, or inside a store or shards.
        MachineError: the folder cannot be created.
    """
    folder = output.folder
    new_folders = at(folder).make_folder()
    try:
        check_outside_runs(folder)
        with at(folder).lock_folder():
            run = RunFolder(output, splits)
            run.remove_left_overs()
            try:
                yield run
            except (DataError, OptionError) as error:  # the same command would fail again
                run.record_failure(error)
                raise
            finally:
                run.remove_left_overs()
    except BaseException:
        disk.remove_folders(new_folders)  # only if they are empty
        raise


def write_receipt(folder: Place, name: str, receipt: dict[str, Any]) -> None:
    """Publish the receipt of a part or shard whose files are complete, as one line."""
    with at(folder / f"{name}.json").publish() as file:
        file.write(encode_json(receipt) + b"\n")


def find_splits(folder: Place) -> list[str]:
    """Return the names of the splits that earlier runs wrote below a folder."""
    names: list[str] = []
    for found in _read_earlier(folder):
        if found["format"] == FORMAT_OF_SPLITS:
            splits = [each["name"] for each in found.get("splits", ())]
            names += [*splits, *found.get(REPLACED, ())]
    # Whoever wrote the file, only folders directly below this one are those of splits.
    return [name for name in names if re.fullmatch(SPLIT_NAME, name)]


def _read_earlier(folder: Place) -> list[dict[str, Any]]:
    """Read the manifest and the plan in a folder, without those that seqpack did not write."""
    earlier = []
    for name in (MANIFEST_NAME, PLAN_NAME):
        with contextlib.suppress(FolderError):
            found = read_json(folder / name)
            if isinstance(found.get("format"), str) and "options" in found:
                earlier.append(found)
    return earlier


def _has_maker(found: dict[str, Any], plan: dict[str, Any]) -> bool:
    """Return whether the command of a plan made a manifest or plan, as far as that names one."""
    maker = plan.get("made_by")
    return bool(found.get("made_by", maker) == maker)


# What differs, in the words of the command line


def _describe_changes(
    plan: dict[str, Any], found: dict[str, Any], record: dict[str, Any], options: Any
) -> str:
    """Return what of a plan differs in an earlier plan or manifest, "" if nothing does.

    Args:
        record: `run.json` of the earlier run, empty if that is unfinished.
        options: of this run, as the user gave them.
    """
    if _is_in(plan, found):
        return ""
    if found.get("format") != plan["format"] or not _has_maker(found, plan):
        return "was made by another command"
    # Options lie apart or beside the other fields: both are named by the fields of their class.
    new, old = ({**each, **each.get("options", {}), "options": None} for each in (plan, found))
    differing = [name for name, value in new.items() if not _is_in(value, old.get(name))]
    flags = {name: spell_flag(each) for name, (each, _) in list_options(type(options)).items()}
    given = {name for name, *_ in find_given(options)}
    command = record.get("command") or ""
    words = shlex.split(command)
    given |= {name for name, flag in flags.items() if {flag, f"--no-{flag[2:]}"} & {*words}}
    if not words and "layout" not in differing:  # nobody knows what the user gave
        given |= {*flags}

    def is_cause(name: str) -> bool:
        return name in given if name in flags else name not in FOLLOWING

    changes: dict[str, None] = {}  # each once
    for name in [*filter(is_cause, differing)] or differing or ["plan"]:
        before, after = old.get(name), new.get(name)
        if name == "tokenizer_blake3" and "tokenizer" in record:
            before, after, name = record["tokenizer"], options.tokenizer, "tokenizer"
        if name in flags and before != after:
            told = [_describe_option(flags[name], before, after)]
        elif isinstance(before, list) and isinstance(after, list):
            told = _describe_items(before, after) or [f"other {name}, or another order"]
        else:
            told = [f"the {SAID.get(name, name)} has changed"]
        changes |= dict.fromkeys(told)
    return join_items(changes) + (f"; it was made by: {command}" if command else "")


def _is_in(value: Any, found: Any) -> bool:
    """Return whether a value of a plan equals that of a manifest, which may have more fields."""
    if isinstance(value, dict) and isinstance(found, dict):
        return all(_is_in(each, found.get(name)) for name, each in value.items())
    if isinstance(value, list) and isinstance(found, list):
        return len(value) == len(found) and all(map(_is_in, value, found))
    return bool(value == found)


def _describe_option(flag: str, *values: Any) -> str:
    texts = []
    for value in values:
        if isinstance(value, bool) or value in (None, []):
            texts.append(flag if value else f"no {flag}")
            continue
        items = value if isinstance(value, list) else [value]
        # A kept field is spelled FIELD:TYPE.
        pairs = [list(item.values())[:2] if isinstance(item, dict) else [item] for item in items]
        texts.append(f"{flag} {','.join(':'.join(map(str, pair)) for pair in pairs)}")
    before, after = texts
    if before == after:
        return f"{before} has changed"
    if before.startswith(f"{flag} "):
        after = after.removeprefix(f"{flag} ")
    return f"was {before}, is {after}"


def _describe_items(old: list[Any], new: list[Any]) -> list[str]:
    """Name the inputs or stores that differ; a plan has no names of stores."""
    before, after = ({each.get("path"): each for each in items} for items in (old, new))
    if None in after:
        gone = [path for path in before if not any(_is_in(each, before[path]) for each in new)]
        return [f"{path} has changed or is not among the inputs" for path in gone if path]
    changed = [path for path in after if not _is_in(after[path], before.get(path))]
    return [
        *(f"{path} {'has changed' if path in before else 'is new'}" for path in changed),
        *(f"{path} is not among the inputs" for path in before if path not in after),
    ]
