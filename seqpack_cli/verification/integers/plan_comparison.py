"""Plan the batches again from the token store, and compare them with those in the shards.

`pack`'s own planner determines the content of every batch from the recorded options: its sequences
and their order, its width and filler rows, and what was dropped. The arrays of a whole shard are
compared at once, at about 30 ns per sequence, with the memory of `pack`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions
from seqpack_cli.batching.plan import Plan, ShardRows
from seqpack_cli.batching.selection import LengthCounts, SourceCounts
from seqpack_cli.errors import DataError, OptionError, quote
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.shards.alignment import align
from seqpack_cli.shards.layouts import OFFSETS_OF
from seqpack_cli.shards.manifest import to_lists
from seqpack_cli.shards.pack_plan import count_bytes, cut_shards, plan_store
from seqpack_cli.shards.pack_shard import find_rows, order_decoder
from seqpack_cli.shards.selection import Selection
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.selected_visits import (
    BY_PLAN,
    compare_ledger,
    compare_stores,
)

LEVEL = "structure"
# So many rows, about 100 MB, are always planned. A manifest whose options make more rows, and more
# than twice those of its shards, by splitting sequences or by passes, is a finding instead.
FREE_ROWS = 1 << 22


def plan_again(
    shards: ShardSet,
    store: TokenStore,
    *,
    decoder: TokenStore | None = None,
    is_planned: bool = True,
) -> tuple[Selection | None, PlannedShards | None, list[Finding]]:
    """Select and plan a store with the options that its shards record.

    Args:
        decoder: of pairs, the store of the decoder's side.
        is_planned: whether this version plans as the one that made the shards.

    Returns:
        What the options select, and the plan; None of what is not possible, with a finding.
    """
    try:
        alignment = None if decoder is None else align(store, decoder)
        source = Selection(store, shards.options, alignment=alignment)
        if not is_planned:
            return source, None, []
        planned = _plan_again(shards, source)
    except (DataError, OptionError) as error:
        what = f"pack refuses these options: {error.message}"
        return None, None, [Finding(LEVEL, MANIFEST_NAME, what)]
    if isinstance(planned, Finding):
        return source, None, [planned]
    return source, planned, []


def _plan_again(shards: ShardSet, source: Selection) -> PlannedShards | Finding:
    options, found = shards.options, source.count()
    num_rows = sum(entry["num_rows"] for entry in shards.manifest["shards"])
    num_planned = _count_rows(found.kept, options)
    if num_planned > 2 * num_rows + FREE_ROWS:
        what = f"the options make {num_planned:,} rows of the stores, "
        what += f"the shards have {num_rows:,}"
        return Finding(LEVEL, MANIFEST_NAME, what)
    return PlannedShards(shards, source, plan_store(source, options, found))


def _count_rows(kept: LengthCounts, options: ResolvedOptions) -> int:
    """Count the rows that a plan would have if no last batch is dropped, without filler."""
    if options.overflow != "split":
        return kept.num_sequences
    if options.fill == "chunk":
        return kept.num_sequences + kept.num_tokens // options.row_length
    return int((-(-kept.lengths // options.row_length) * kept.counts).sum())


class PlannedShards:
    """The planned batches of each shard; of pairs, those of one side."""

    def __init__(self, shards: ShardSet, source: Selection, plan: Plan) -> None:
        self.plan = plan  # of all sides
        self.source = source
        self._shards = shards
        self._is_decoder = False
        self._cuts = np.minimum(shards.batch_offsets, plan.num_batches).tolist()
        cuts = sorted(set(self._cuts))
        self._planned = dict(zip(cuts, plan.cut(cuts), strict=False))

    @property
    def decoder(self) -> PlannedShards:
        """The decoder's side of the same batches."""
        other = copy.copy(self)
        other._is_decoder = True
        return other

    @property
    def counts(self) -> SourceCounts:
        """What the plan leaves out of this side."""
        return self.plan.counts[self._is_decoder]

    @property
    def store(self) -> TokenStore:
        """The stores of this side."""
        return self.source.sides[self._is_decoder]

    def find_rows(self, number: int) -> ShardRows | None:
        """Return the planned batches of a shard, or None if the plan ends before it.

        This is fastest for shards in rising order.
        """
        first, last = self._cuts[number : number + 2]
        if first == last:
            return None
        rows = find_rows(self._planned[first], self.source)
        return order_decoder(rows, self._shards.layout) if self._is_decoder else rows


def compare_shard(shard: Shard, planned_shards: PlannedShards, number: int) -> Iterator[Finding]:
    """Yield the first batch of a shard that is not the planned one.

    Args:
        shard: a sound one.
        number: of the shard.
    """
    rows = planned_shards.find_rows(number)
    if rows is None:
        return
    planned = shard.arrays.make_tensors(rows)
    found = {name: shard.tensors[name] for name in planned}
    if all(np.array_equal(found[name], planned[name]) for name in planned):
        return
    differing = list(_find_differences(found, planned))
    if differing:  # else the shard only has extra batches
        row, what = _describe_difference(found, planned, min(differing))
        batch = shard.first_batch + min(differing)
        yield Finding(LEVEL, shard.path.name, what, batch=batch, row=row)


def _find_differences(
    found: Mapping[str, np.ndarray], planned: Mapping[str, np.ndarray]
) -> Iterator[int]:
    """Yield the first batch that differs, for each array that does."""
    for name, array in planned.items():
        num_entries = min(len(array), len(found[name]))
        differ = np.flatnonzero(array[:num_entries] != found[name][:num_entries])
        if not len(differ):
            continue
        place = int(differ[0])
        if name.endswith("_offsets"):
            yield place - 1  # where that batch ends
        elif name in OFFSETS_OF:
            yield int(np.searchsorted(planned[OFFSETS_OF[name]], place, "right")) - 1
        else:
            yield place


def _describe_difference(
    found: Mapping[str, np.ndarray], planned: Mapping[str, np.ndarray], batch: int
) -> tuple[int | None, str]:
    """Return the row and what differs in a batch that differs from the plan."""
    counts = [int(np.diff(side["sequence_offsets"])[batch]) for side in (found, planned)]
    for name, (number, expected) in {
        "rows": counts,
        "filler rows": _pick("num_filler_rows", batch, found, planned),
        "width": _pick("widths", batch, found, planned),
    }.items():
        if number != expected:
            return None, f"{number} {name}, the plan has {expected}"
    start = int(planned["sequence_offsets"][batch])
    names = {
        "original_indices": "sequence",
        "piece_starts": "starts at token",
        "lengths": "length",
        "row_indices": "in row",
        "encoder_rows": "encoder's row",
        "resets": "resets",
        "next_ids": "next_ids",
    }
    for row in range(counts[0]):
        for name, words in names.items():
            number, expected = _pick(name, start + row, found, planned)
            if number != expected:
                return row, f"{words} {number}, the plan has {expected}"
    cells = [int(np.diff(side["data_offsets"])[batch]) for side in (found, planned)]
    if cells[0] != cells[1]:
        return None, f"{cells[0]} cells, the plan has {cells[1]}"
    raise AssertionError(f"batch {batch} does not differ from the plan")


def _pick(
    name: str, place: int, found: Mapping[str, np.ndarray], planned: Mapping[str, np.ndarray]
) -> tuple[int, int]:
    if name not in planned:
        return 0, 0
    return int(found[name][place]), int(planned[name][place])


def compare_totals(shards: ShardSet, planned: PlannedShards) -> Iterator[Finding]:
    """Yield where numbers of batches, the manifest or the ends of shards differ from the plan."""
    plan = planned.plan
    manifest, num_batches = shards.manifest, plan.num_batches
    if len(shards) > num_batches:
        name = manifest["shards"][shards.find(num_batches)[0]]["name"]
        yield Finding(LEVEL, name, f"extra batch: the plan has {num_batches}", batch=num_batches)
    elif len(shards) < num_batches:
        name = manifest["shards"][-1]["name"]
        what = f"the shards end after {len(shards)} batches, the plan has {num_batches}"
        yield Finding(LEVEL, name, what)
    keys = to_lists(tuple(plan.bucket_keys)) if plan.bucket_keys is not None else None
    if manifest["bucket_keys"] != keys:
        what = f"bucket_keys are {quote(manifest['bucket_keys'])}, the plan has "
        yield Finding(LEVEL, MANIFEST_NAME, what + quote(keys))
    yield from compare_ledger(manifest["ledger"], planned.counts, BY_PLAN)
    yield from compare_stores(manifest["stores"], planned.store, planned.source, BY_PLAN)
    if len(shards) == num_batches:
        sizes = count_bytes(plan.table, shards.options, planned.source.sides)
        yield from _compare_cuts(shards, plan, sizes)


def _compare_cuts(shards: ShardSet, plan: Plan, sizes: np.ndarray) -> Iterator[Finding]:
    """Yield the first shard that does not end where `--shard-bytes` ends it."""
    cuts = cut_shards(plan.table, sizes, shards.options.shard_bytes)
    ends = zip(shards.batch_offsets[1:].tolist(), cuts[1:], strict=False)
    for number, (end, planned) in enumerate(ends):
        if end != planned:
            name = shards.manifest["shards"][number]["name"]
            what = f"ends after batch {end - 1}, the plan ends it after batch {planned - 1}"
            yield Finding(LEVEL, name, what)
            return
