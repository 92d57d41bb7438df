"""Compare what an earlier run left in an output folder with a new plan, or remove it.

If the manifest or plan has the values of the new plan, the run is continued. Any other is refused
with the values that differ, unless the user asks to replace it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

from seqpack_cli.errors import FolderError, SeqpackError, join_items, quote
from seqpack_cli.files.json_files import read_json, write_json
from seqpack_cli.files.manifest import MANIFEST_NAME, PLAN_NAME, RECEIPT_PATTERN, RUN_NAMES
from seqpack_cli.files.mapping import NO_FILE
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place

REMAKE_HINT = "pass --overwrite to make it again"
OVERWRITE_HINT = "choose another -o, or pass --overwrite to replace what is there"
KEEPING_HINT = (
    "choose another -o, or pass --overwrite, which keeps these files and replaces an earlier run"
)
SAME_COMMAND_HINT = "choose another -o; --overwrite only replaces what the same command wrote"
REMOVE_HINT = "remove them yourself if they are not needed, or choose another -o"
SPLIT_NAME = re.compile(r"[A-Za-z0-9_-]+")
FORMAT_OF_SPLITS = "seqpack.splits"  # whose pieces are folders
REPLACED = "replaced"  # field of its plan: earlier splits that no longer exist
COMMON_NAMES = r"(manifest|plan|run|tokenizer)\.json"
NAMES = {  # of the files that a run writes, by the format of its manifest
    "seqpack.tokens": rf"{COMMON_NAMES}|(rejects|special_tokens)\.jsonl"
    r"|part-\d{5,}\.(bin|idx|columns\.safetensors|json)",
    "seqpack.shards": rf"{COMMON_NAMES}|decoder\.tokenizer\.json"
    r"|shard-\d{5,}\.(safetensors|json)",
    FORMAT_OF_SPLITS: r"(manifest|plan|run)\.json",
}
OWN_PATTERN = re.compile("|".join(NAMES.values()))


class DifferentRunError(FolderError):
    """A folder holds a run with other options or input."""


Adapt = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


def read_equal_manifest(
    folder: Place, plan: dict[str, Any], names: list[str], adapt: Adapt
) -> dict[str, Any] | None:
    """Return the manifest of a finished run with an equal plan; None if there is work to do.

    Args:
        names: of the files in the folder.
        adapt: see `RunFolder.begin`.

    Raises:
        FolderError: the folder holds another run, or files of a run without manifest and plan.
    """
    earlier = next((name for name in (MANIFEST_NAME, PLAN_NAME) if name in names), None)
    if earlier is None:
        leftovers = sorted(filter(OWN_PATTERN.fullmatch, names))
        if leftovers:
            raise FolderError(
                f"{folder}: holds {join_items(leftovers)} without a manifest or plan",
                hint=REMOVE_HINT,
            )
        return None
    found = read_json(folder / earlier)
    has_pieces = any(
        RECEIPT_PATTERN.fullmatch(name) or not OWN_PATTERN.fullmatch(name) for name in names
    )
    if earlier == PLAN_NAME and not has_pieces:
        return None  # it finished no part or shard, and began no split: nothing to keep
    changes = _find_changes(plan, adapt(found, plan) if earlier == PLAN_NAME else found)
    if changes:
        is_same = found.get("format") == plan["format"] and _has_maker(found, plan)
        raise DifferentRunError(
            f"{folder}: holds a run that differs: {join_items(changes)}",
            hint=OVERWRITE_HINT if is_same else SAME_COMMAND_HINT,
        )
    return found if earlier == MANIFEST_NAME else None


def find_splits(folder: Place) -> list[str] | None:
    """Return the names of the splits that an earlier run wrote below a folder; None if none did."""
    names: list[str] | None = None
    for path in (folder / MANIFEST_NAME, folder / PLAN_NAME):
        with contextlib.suppress(SeqpackError, KeyError, TypeError):
            found = read_json(path)
            if found["format"] == FORMAT_OF_SPLITS:
                entries = [str(entry["name"]) for entry in found["splits"]]
                entries += map(str, found.get(REPLACED, ()))
                # whoever wrote the file, only folders directly below this one are those of splits
                names = [*(names or ()), *filter(SPLIT_NAME.fullmatch, entries)]
    return names


def remove_plan(folder: Place) -> None:
    """Remove the receipts, then the plan."""
    remove_receipts(folder)
    at(folder).remove_files([PLAN_NAME])


def remove_receipts(folder: Place) -> None:
    """Remove the receipts of parts and shards."""
    names = (path.name for path in folder.iterdir())
    at(folder).remove_files(list(filter(RECEIPT_PATTERN.fullmatch, names)))


def remove_own_files(folder: Place, plan: dict[str, Any]) -> None:
    """Remove an earlier run's files, in an order such that a kill leaves the old or the new run.

    Raises:
        FolderError: another command wrote them, or seqpack did not.
    """
    is_own = re.compile(NAMES[plan["format"]]).fullmatch
    own = [path.name for path in folder.iterdir() if is_own(path.name)]
    if not own:
        return
    earlier = _read_earlier(folder)
    formats = {found["format"] for found in earlier}
    if formats - {plan["format"]}:
        raise FolderError(
            f"{folder}: holds {join_items(sorted(map(quote, formats)))}, expected {plan['format']}",
            hint=SAME_COMMAND_HINT,
        )
    if not all(_has_maker(found, plan) for found in earlier):
        raise FolderError(
            f"{folder}: holds a token store of another command, expected one of {plan['made_by']}",
            hint=SAME_COMMAND_HINT,
        )
    if not formats:
        found = join_items(sorted(own))
        raise FolderError(
            f"{folder}: holds {found} without a manifest or plan of seqpack",
            hint=REMOVE_HINT,
        )
    find_size = at(folder).find_sizes()
    for name in own:
        if find_size(name) == NO_FILE:
            at(folder / name).check_size()  # raises, before anything is removed
    remove_receipts(folder)
    write_json(folder / PLAN_NAME, plan)  # from here on it is the new run, unfinished
    at(folder).remove_files([MANIFEST_NAME])
    at(folder).remove_files([name for name in own if name not in RUN_NAMES])


def find_formats(folder: Place) -> set[str]:
    """Return the formats of the manifest and the plan in a folder that seqpack wrote."""
    return {found["format"] for found in _read_earlier(folder)}


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


def _find_changes(plan: Any, found: Any, place: str = "") -> list[str]:
    """List the values of the plan that differ in an earlier plan or manifest."""
    if isinstance(plan, dict) and isinstance(found, dict):
        return [
            change
            for key, value in plan.items()
            for change in _find_changes(value, found.get(key), f"{place}.{key}".lstrip("."))
        ]
    if isinstance(plan, list) and isinstance(found, list) and len(plan) == len(found):
        return [
            change
            for index, (new, old) in enumerate(zip(plan, found, strict=True))
            for change in _find_changes(new, old, f"{place}[{_name_item(new, old) or index}]")
        ]
    is_option = place.startswith("options.")
    if isinstance(plan, list) and isinstance(found, list) and not is_option:
        return [f"number of {place} was {len(found)}, is {len(plan)}"]
    if plan == found:
        return []
    return [f"{place} was {quote(_shorten(found))}, is {quote(_shorten(plan))}"]


def _shorten(value: Any) -> Any:
    """Return the names of a list of named items, such as kept fields; others as they are."""
    is_named = isinstance(value, list) and all(
        isinstance(item, dict) and "name" in item for item in value
    )
    return [item["name"] for item in value] if is_named else value


def _name_item(new: Any, old: Any) -> object:
    """Return the path if both items have the same: it says more than the index of a source."""
    both = isinstance(new, dict) and isinstance(old, dict) and new.get("path") == old.get("path")
    return new.get("path") if both else None
