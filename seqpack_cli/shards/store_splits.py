"""The sequences of each split of a store, part by part: those of its documents.

A document's split follows from the hash of its text or, with `--split-by`, from the value of a
column; with names alone the values are the names.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xxhash

from seqpack_cli.batching.options import Splits
from seqpack_cli.batching.selection import assign_splits
from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.tokens.columns import OVERLAP, Column
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.tokens.text_values import TextValues

NO_SPLIT = -1
PartSplits = Callable[[int], np.ndarray]  # number of a part -> int16, the split of each sequence


def make_splitter(store: TokenStore, splits: Splits) -> PartSplits:
    """Return the function that finds the split of each sequence of a part.

    It raises DataError for a value that names no split.

    Raises:
        OptionError: `--split-by` names no column, or one that documents have no single value of.
    """
    shares, seed, name = splits.shares, splits.seed, splits.by

    def assign(hashes: np.ndarray) -> np.ndarray:
        return assign_splits(hashes, shares or (), seed)

    if name is None:
        return lambda number: store.spread(number, assign(store.part_hashes(number)))
    place = f"--split-by {name}"
    if name == OVERLAP:
        raise OptionError(
            f"{place}: differs between the pieces of a document, expected one value per document",
            hint="split by another column, or by documents: leave out --split-by",
        )
    if name not in store.columns:
        raise _no_column_error(store, name, place)
    column = store.columns[name]
    if column.is_per_token:
        raise OptionError(f"{place}: has a value per token, expected one per sequence")

    def find(number: int) -> np.ndarray:
        values = store.part_column(number, name)
        if shares is not None:
            hashes, numbers = hash_values(column, values)
            found: np.ndarray = assign(hashes)[numbers]
            return found
        texts, numbers = _spell_distinct(column, values)
        place_of = {split: place for place, split in enumerate(splits.names)}
        table = np.array([place_of.get(text, NO_SPLIT) for text in texts], np.int16)
        found = table[numbers]
        if (found == NO_SPLIT).any():
            value = texts[int(numbers[(found == NO_SPLIT).argmax()])]
            raise DataError(
                f"{store.shown_path}: column {quote(name)} has {quote(value)}, expected the name "
                f"of a split: {join_items(splits.names)}",
                hint=f"add it to --split: {','.join((*splits.names, value))}",
            )
        return found

    return find


def hash_values(column: Column, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Hash different values as text, uint64; return also the number of the one of each sequence."""
    texts, numbers = _spell_distinct(column, values)
    hashes = [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
    return np.array(hashes, np.uint64), numbers


def _no_column_error(store: TokenStore, name: str, place: str) -> OptionError:
    """Return the error for a column that not all stores have alike; it names one that lacks it."""
    lacking = next((each for each in store.folders if name not in each.columns), None)
    if lacking is None:
        what = f"column {quote(name)} differs between the stores, so it cannot be used"
        return OptionError(
            f"{place}: {what}", hint=f"tokenize all stores with the same --keep {name}"
        )
    found = join_items(map(quote, lacking.columns)) or "none"
    what = f"{lacking.path} has no such column (found: {found})"
    hint = f"pass --keep {name} to tokenize"
    if name.startswith("@") or len(store.folders) > 1:
        hint = "split by a column that every store has, or by documents: leave out --split-by"
    return OptionError(f"{place}: {what}", hint=hint)


def _spell_distinct(column: Column, values: Values) -> tuple[list[str], np.ndarray]:
    """Return different values as text, and the number of the one of each sequence."""
    if column.class_names is not None:
        return [_spell(label) for label in column.class_names], np.asarray(values)
    if isinstance(values, TextValues):
        place_of: dict[str, int] = {}
        numbers = [place_of.setdefault(text, len(place_of)) for text in values]
        return [*place_of], np.array(numbers, np.int64)
    found, places = np.unique(values + 0, return_inverse=True)  # -0.0 becomes 0.0
    return [_spell(value) for value in found.tolist()], places


def _spell(value: object) -> str:
    """Return a text as it is, and other values as JSON."""
    return value if isinstance(value, str) else encode_json(value).decode()
