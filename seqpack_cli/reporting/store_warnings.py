"""What may be wrong with a token store, with shards or with splits, also without their store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqpack_cli.batching.options import SIDES
from seqpack_cli.errors import FolderError
from seqpack_cli.reporting.opened import Opened, find_store
from seqpack_cli.reporting.target_warnings import find_warnings
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_set import SplitSet
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.store import TokenStore


def find_own_warnings(
    opened: Opened | SplitSet, store: TokenStore | None, counted: dict[str, tuple[int, int]]
) -> list[dict[str, Any]]:
    """Return what may be wrong; of shards whose token store is damaged, what they tell alone."""
    try:
        return find_warnings(store, counted)
    except FolderError:
        if store is opened:
            raise
        return find_warnings(None, counted)


def warn_of_splits(splits: SplitSet) -> list[dict[str, Any]]:
    """Return what may be wrong with the targets of each split, and with their stores."""
    sides = list(zip(*(shards.sides for shards in splits.splits.values()), strict=True))
    found = [_warn_of_side(splits, side) for side in sides]
    return found[0] if len(sides) == 1 else name_sides(found)


def name_sides(warnings: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the warnings of both sides of pairs, each with the name of its `side`."""
    both = zip(SIDES, warnings, strict=True)
    return [{"side": name, **warning} for name, side in both for warning in side]


def _warn_of_side(splits: SplitSet, side: Sequence[ShardSet]) -> list[dict[str, Any]]:
    """Return what may be wrong with one side.

    Args:
        side: of the shards of each split.
    """
    counted = {}
    for name, shards in zip(splits.splits, side, strict=True):
        ledger = shards.manifest["ledger"]
        if TARGETS in shards.columns:
            counted[name] = ledger["num_target_tokens"], ledger["num_tokens"]
    return find_own_warnings(splits, find_store(side[-1], check_indices=False), counted)
