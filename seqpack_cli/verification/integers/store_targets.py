"""Check what must hold between the targets, overlaps and ids of a token store, without its input.

Later pieces of a document begin with the last tokens of the piece before, as its options say, and
none of these is a target; sums are those of the ledger. It takes a pass over the targets, and over
the ids that are repeated, with the memory of a part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.ranges import copy_ranges, find_difference, to_offsets
from seqpack_cli.tokens.columns import OVERLAP, TARGETS
from seqpack_cli.tokens.part_files import columns_name
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.findings import Finding

LEVEL = "structure"


def check_store_targets(store: TokenStore) -> Iterator[Finding]:
    """Yield what is wrong in each store that has targets.

    Raises:
        FolderError: a column holds an impossible value.
    """
    for number, one in enumerate(store.folders, 1):
        sums = Counter[str]()
        for part in one.parts:
            what = _check_part(store, part, sums)
            if what is not None:
                name = columns_name(store.parts[part]["name"])
                yield Finding(LEVEL, f"{name} of store {number}", what)
        for name, found in sums.items():
            claimed = one.manifest["ledger"][name]
            if claimed != found:
                what = f"{name} is {claimed}, the columns have {found}"
                yield Finding(LEVEL, f"{MANIFEST_NAME} of store {number}", what)


def _check_part(store: TokenStore, number: int, sums: Counter[str]) -> str | None:
    """Return what is wrong in a part; add up its targets and overlaps, if it has the columns."""
    if TARGETS in store.columns:
        targets = np.asarray(store.part_column(number, TARGETS))
        sums["num_target_tokens"] += int(np.count_nonzero(targets))
    if OVERLAP not in store.columns:
        return None
    overlaps = np.asarray(store.part_column(number, OVERLAP))
    sums["num_overlap_tokens"] += int(overlaps.sum())
    overlap = store.folder_of(number).manifest["options"].get(OVERLAP) or 0
    is_later = _find_later(store.count_sequences(number))
    wrong = np.flatnonzero(overlaps != is_later * overlap)
    if len(wrong):
        place = int(wrong[0])
        what = f"sequence {store.part_offsets[number] + place}: overlap is {overlaps[place]}"
        return f"{what}, expected {overlap if is_later[place] else 0}"
    return _check_repeated(store, number, np.flatnonzero(is_later), overlap) if overlap else None


def _find_later(num_sequences: np.ndarray) -> np.ndarray:
    """Return which sequences are later pieces of a document, bool.

    Args:
        num_sequences: of each document.
    """
    is_later = np.ones(int(num_sequences.sum()), bool)
    is_later[to_offsets(num_sequences)[:-1][num_sequences > 0]] = False
    return is_later


def _check_repeated(store: TokenStore, number: int, later: np.ndarray, overlap: int) -> str | None:
    """Return what is wrong in the tokens with which later pieces begin.

    Args:
        later: the pieces, numbered in the part.
    """
    lengths, first = store.part_lengths(number), int(store.part_offsets[number])
    short = np.flatnonzero((lengths[later] <= overlap) | (lengths[later - 1] < overlap))
    if len(short):
        place = int(later[short[0]])
        what = f"sequence {first + place}: {lengths[place]} tokens after a piece of"
        return f"{what} {lengths[place - 1]}, too few to repeat {overlap}"
    ids, starts = store.view_part(number)
    begins, counts = starts[later] // ids.itemsize, np.full(len(later), overlap)

    def take(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
        taken = np.empty(len(later) * overlap, values.dtype)
        copy_ranges(values, begins, taken, np.arange(len(later)) * overlap, counts)
        return taken

    repeated, before = take(ids, begins), take(ids, begins - overlap)
    if (place := find_difference(repeated, before)) < len(before):
        piece, step = divmod(place, overlap)
        what = f"sequence {first + later[piece]}: id {repeated[place]} at step {step}"
        return f"{what}, the piece before ends with {before[place]} there"
    targets = take(np.asarray(store.part_column(number, TARGETS)), begins)
    if targets.any():
        piece, step = divmod(int(targets.argmax()), overlap)
        what = f"sequence {first + later[piece]}: the token at step {step} is a target"
        return f"{what}, but repeats one of the piece before"
    return None
