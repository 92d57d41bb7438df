"""Choose the files of folders that Hugging Face's `save_to_disk` wrote: state.json lists them.

They are read in its order. Other Arrow files beside them are caches of earlier steps. A folder of
several splits is refused: reading all would mix train and test.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from typing import Any

from seqpack_cli.corpus.folder_walk import FoundFile, Search
from seqpack_cli.corpus.pairs import find_one
from seqpack_cli.corpus.skipped import UNLISTED_ARROW, UNNAMED_JSON
from seqpack_cli.errors import FolderError, OptionError, join_items
from seqpack_cli.files.inputs import Input

STATE_NAME = "state.json"
OWN_NAMES = (STATE_NAME, "dataset_info.json")
SPLITS_NAME = "dataset_dict.json"
CACHE = re.compile(r"cache-[0-9a-f]{16}\w*\.arrow")


def choose_saved_files(files: list[FoundFile], name: str, search: Search) -> list[FoundFile]:
    """Leave out Arrow files below an input that are not data of a saved dataset, and sort the rest.

    Raises:
        OptionError: a folder has several splits, or lacks a file that state.json lists.
    """
    below: dict[str, dict[str, FoundFile]] = {}  # the Arrow files of each folder, by name
    for file in files:
        if file.kind.format == "arrow" and not file.is_named:
            folder, _, last = file.path.rpartition("/")
            below.setdefault(folder, {})[last] = file
    _check_splits(below, name)
    chosen: list[FoundFile] = []
    for file in files:
        folder = file.path.rpartition("/")[0]
        if file.kind.format != "arrow" or file.is_named:
            chosen.append(file)
        elif folder in below:
            chosen += _choose(folder, below.pop(folder), search)
    return chosen


def _check_splits(below: dict[str, dict[str, FoundFile]], name: str) -> None:
    """Raise OptionError if a folder of several splits is the input, or below it."""
    splits: dict[str, list[str]] = {}
    for folder, files in below.items():
        above, _, split = folder.rpartition("/")
        root = next(iter(files.values())).match or name.rstrip("/")
        if root in (".", above) or above.startswith(f"{root}/"):
            splits.setdefault(above, []).append(split)
    for above, names in splits.items():
        if _read_json(_join(above, SPLITS_NAME)) is not None:
            raise OptionError(
                f"{above or '.'}: holds the splits {join_items(names)} of a dataset, expected one",
                hint=f"pass {shlex.quote(_join(above, max(names, key='train'.__eq__)))}",
            )


def _choose(folder: str, files: dict[str, FoundFile], search: Search) -> list[FoundFile]:
    listed = _list_data_files(_join(folder, STATE_NAME))
    if listed is not None:
        search.skipped.remove_named(UNNAMED_JSON, {_join(folder, name) for name in OWN_NAMES})
    if listed is None:
        listed = [name for name in files if not CACHE.fullmatch(name)]
    for name in files.keys() - set(listed):
        search.skipped.add(UNLISTED_ARROW, files[name].path, files[name].real)
    for name in listed:  # one that --exclude leaves out exists
        path = _join(folder, name)
        if name not in files and find_one(path, search) is None:
            raise OptionError(
                f"{path}: no such file, expected as in {STATE_NAME}",
                hint="copy the whole folder again",
            )
    return [files[name] for name in listed if name in files]


def _list_data_files(path: str) -> list[str] | None:
    """Return the names that a state.json lists, None if there is none."""
    state = _read_json(path)
    try:
        names = [str(file["filename"]) for file in state["_data_files"]]
        has_indices = bool(state.get("_indices_data_files") or state.get("_indices_files"))
    except (TypeError, KeyError, AttributeError):
        return None  # of another program
    if has_indices:
        raise OptionError(
            f"{path}: the rows are chosen by another file",
            hint="save the dataset again, after dataset.flatten_indices()",
        )
    return names


def _read_json(path: str) -> Any:
    """Return what a file holds, None if it is missing or is not JSON."""
    with contextlib.suppress(OSError, FolderError, ValueError, RecursionError):
        data = Input(path).read()
        return None if data is None else json.loads(data)
    return None


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
