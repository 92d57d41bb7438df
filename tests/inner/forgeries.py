"""Shard sets with one change, where every count, checksum and ledger is made to agree.

A set is split into lists of rows, changed, and laid out again by the slow oracles, so that files
and manifest agree with each other: only the plan of the token store shows the change.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from shard_reference import (
    join_batches,
    lay_out,
    load_shard,
    read_manifest_json,
    safetensors_bytes,
)

from seqpack_cli.shards.layouts import Geometry
from seqpack_cli.shards.manifest import add_up_stores
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_set import open_shards

Row = tuple[int, int, np.ndarray]  # sequence, start of the row in it, ids


@dataclass
class Batch:
    """One batch as a list of rows."""

    rows: list[Row]
    width: int  # of padded
    num_filler_rows: int = 0


@dataclass
class Forgery:
    """A shard set as lists of rows, to be changed and written back consistently."""

    path: Path
    manifest: dict[str, Any]
    shards: list[list[Batch]]
    draws: random.Random

    @property
    def layout(self) -> str:
        return str(self.manifest["layout"])

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = self.manifest["options"]
        return options

    @property
    def batches(self) -> list[Batch]:
        return [batch for shard in self.shards for batch in shard]

    def drop(self, rows: list[Row]) -> None:
        """Count removed rows as dropped in the ledger, for the most plausible reason."""
        ledger = self.manifest["ledger"]
        reason = next(iter(ledger["num_dropped_sequences"]), "drop_longer")
        for name, count in (
            ("num_dropped_sequences", len({index for index, _, _ in rows})),
            ("num_dropped_tokens", sum(len(ids) for _, _, ids in rows)),
        ):
            ledger[name][reason] = ledger[name].get(reason, 0) + count


def take_apart(path: Path, seed: int) -> Forgery:
    """Read a shard set."""
    shards = open_shards(path)
    taken: list[list[Batch]] = []
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        taken.append([])
        for index in range(len(shard)):
            batch = shard[index]
            width = num_filler_rows = 0
            if isinstance(batch, PaddedBatch):
                width, num_filler_rows = batch.ids.shape[1], batch.num_filler_rows
                batch = batch.without_filler()
            assert batch.original_indices is not None
            indices = batch.original_indices.tolist()
            starts = getattr(batch, "piece_starts", None)
            starts = [0] * len(indices) if starts is None else starts.tolist()
            ids = [row.copy() for row in batch.rows()]
            rows = list(zip(indices, starts, ids, strict=True))
            taken[-1].append(Batch(rows, width, num_filler_rows))
    return Forgery(path, read_manifest_json(path), taken, random.Random(seed))


def put_together(forgery: Forgery) -> None:
    """Write a shard set so that all counts, checksums and the ledger agree with its batches."""
    manifest, entries = forgery.manifest, []
    metadata = load_shard(forgery.path / "shard-00000.safetensors")[1]
    for path in forgery.path.glob("shard-*.safetensors"):
        path.unlink()
    for number, batches in enumerate(shard for shard in forgery.shards if shard):
        path = forgery.path / f"shard-{number:05d}.safetensors"
        path.write_bytes(safetensors_bytes(_join(forgery, batches), metadata))
        entries.append(_describe(forgery, batches, path))
    manifest["shards"] = entries
    for name in entries[0]:
        if name.startswith("num_"):
            manifest["ledger"][name] = sum(entry[name] for entry in entries)
    manifest["ledger"]["stores"] = add_up_stores([entry["stores"] for entry in entries])
    (forgery.path / "manifest.json").write_text(json.dumps(manifest))


def _join(forgery: Forgery, batches: list[Batch]) -> dict[str, np.ndarray]:
    layout, manifest = forgery.layout, forgery.manifest
    laid_out = [
        lay_out(
            layout,
            [ids for _, _, ids in batch.rows],
            np.array([index for index, _, _ in batch.rows], np.int64),
            pad_id=manifest["pad_id"],
            width=batch.width,
            padding_side=manifest["padding_side"],
            num_filler_rows=batch.num_filler_rows,
            piece_starts=np.array([start for _, start, _ in batch.rows], np.int64),
        )
        for batch in batches
    ]
    filler = Geometry(has_filler_rows=forgery.options["last_batch"] == "pad")
    return join_batches(layout, laid_out, filler)


def _describe(forgery: Forgery, batches: list[Batch], path: Path) -> dict[str, Any]:
    rows = [row for batch in batches for row in batch.rows]
    num_tokens = sum(len(ids) for _, _, ids in rows)
    num_filler_rows = sum(batch.num_filler_rows for batch in batches)
    num_cells = num_tokens
    if forgery.layout == "padded":
        num_cells = sum(
            (len(batch.rows) + batch.num_filler_rows) * batch.width for batch in batches
        )
    raw, starts = path.read_bytes(), [start for _, start, _ in rows]
    return {
        "name": path.name,
        "bytes": len(raw),
        "blake3": blake3(raw).hexdigest(),
        "num_batches": len(batches),
        "num_rows": len(rows) + num_filler_rows,
        "num_filler_rows": num_filler_rows,
        "num_sequences": starts.count(0),
        "num_split_sequences": starts.count(forgery.options["max_tokens"] or -1),
        "num_tokens": num_tokens,
        "num_target_tokens": num_tokens,
        "num_padding_cells": num_cells - num_tokens,
        "longest": max(len(ids) for _, _, ids in rows),
        "decoder": None,
        "stores": _count_stores(forgery.manifest["stores"], rows),
    }


def _count_stores(stores: list[dict[str, Any]], rows: list[Row]) -> list[dict[str, int]]:
    counts, first = [], 0
    for entry in stores:
        last = first + entry["num_sequences"]
        of_store = [(start, len(ids)) for index, start, ids in rows if first <= index < last]
        num_sequences = sum(start == 0 for start, _ in of_store)
        num_tokens = sum(length for _, length in of_store)
        counts.append({"num_sequences": num_sequences, "num_tokens": num_tokens})
        first = last
    return counts


def _sort(forgery: Forgery, batch: Batch) -> None:
    """Sort the rows of a batch and pad it, as its layout requires."""
    if forgery.layout != "varlen":
        batch.rows.sort(key=lambda row: -len(row[2]))
    if forgery.layout == "padded":
        longest, multiple = len(batch.rows[0][2]), forgery.options["pad_to_multiple"]
        keys = forgery.manifest["bucket_keys"] or [-(-longest // multiple) * multiple]
        batch.width = min((key for key in keys if key >= longest), default=longest)


def swap_equal_rows(forgery: Forgery) -> bool:
    """Exchange two rows of the same length between batches, or within one."""
    places = [(b, r) for b, batch in enumerate(forgery.batches) for r in range(len(batch.rows))]
    forgery.draws.shuffle(places)
    for place, (b, r) in enumerate(places):
        for b2, r2 in places[place + 1 :]:
            first, second = forgery.batches[b].rows, forgery.batches[b2].rows
            is_other = first[r][:2] != second[r2][:2]  # not another visit of the same sequence
            if is_other and len(first[r][2]) == len(second[r2][2]):
                first[r], second[r2] = second[r2], first[r]
                return True
    return False


def swap_any_rows(forgery: Forgery) -> bool:
    """Exchange the first rows of two batches."""
    if len(forgery.batches) < 2:
        return False
    first, second = forgery.draws.sample(forgery.batches, 2)
    first.rows[0], second.rows[0] = second.rows[0], first.rows[0]
    _sort(forgery, first)
    _sort(forgery, second)
    return True


def swap_batches(forgery: Forgery) -> bool:
    """Exchange two batches, of one shard or of two."""
    if len(forgery.batches) < 2:
        return False
    first, second = forgery.draws.sample(forgery.batches, 2)
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    return True


def drop_batch(forgery: Forgery) -> bool:
    """Remove a batch, as if its sequences had been dropped."""
    shard = forgery.draws.choice(forgery.shards)
    if len(forgery.batches) < 2 or _holds_pieces(batch := forgery.draws.choice(shard)):
        return False
    shard.remove(batch)
    forgery.drop(batch.rows)
    return True


def drop_row(forgery: Forgery) -> bool:
    """Remove a row, as if its sequence had been dropped."""
    batch = forgery.draws.choice(forgery.batches)
    if len(batch.rows) < 2 or _holds_pieces(batch):
        return False
    row = batch.rows.pop(forgery.draws.randrange(len(batch.rows)))
    forgery.drop([row])
    batch.num_filler_rows += forgery.options["last_batch"] == "pad"
    _sort(forgery, batch)
    return True


def move_row(forgery: Forgery) -> bool:
    """Move the last row of a batch into another one."""
    if len(forgery.batches) < 2:
        return False
    first, second = forgery.draws.sample(forgery.batches, 2)
    if len(first.rows) < 2:
        return False
    second.rows.append(first.rows.pop())
    if forgery.options["last_batch"] == "pad":
        first.num_filler_rows += 1
        second.num_filler_rows = max(second.num_filler_rows - 1, 0)
    _sort(forgery, first)
    _sort(forgery, second)
    return True


def join_neighbours(forgery: Forgery) -> bool:
    """Join two neighbouring batches."""
    for shard in forgery.shards:
        if len(shard) > 1:
            shard[0].rows += shard.pop(1).rows
            _sort(forgery, shard[0])
            return True
    return False


def split_batch(forgery: Forgery) -> bool:
    """Split a batch in two."""
    for shard in forgery.shards:
        for place, batch in enumerate(shard):
            if len(batch.rows) > 1:
                other = copy.copy(batch)
                other.rows, batch.rows = batch.rows[1:], batch.rows[:1]
                _sort(forgery, batch)
                _sort(forgery, other)
                shard.insert(place + 1, other)
                return True
    return False


def repeat_batch(forgery: Forgery) -> bool:
    """Repeat a batch."""
    forgery.shards[-1].append(copy.deepcopy(forgery.draws.choice(forgery.batches)))
    return True


def widen_batch(forgery: Forgery) -> bool:
    """Pad a batch further than necessary."""
    if forgery.layout != "padded":
        return False
    batch, keys = forgery.draws.choice(forgery.batches), forgery.manifest["bucket_keys"] or []
    wider = [key for key in keys if key > batch.width]
    batch.width = min(wider, default=batch.width + forgery.options["pad_to_multiple"])
    return True


def change_filler(forgery: Forgery) -> bool:
    """Remove or add a filler row."""
    if forgery.options["last_batch"] != "pad":
        return False
    filled = [batch for batch in forgery.batches if batch.num_filler_rows]
    if filled:
        forgery.draws.choice(filled).num_filler_rows -= 1
    else:
        forgery.draws.choice(forgery.batches).num_filler_rows += 1
    return True


def move_cut(forgery: Forgery) -> bool:
    """End a shard one batch earlier."""
    for number, shard in enumerate(forgery.shards[:-1]):
        if len(shard) > 1:
            forgery.shards[number + 1].insert(0, shard.pop())
            return True
    if len(forgery.shards) == 1 and len(forgery.batches) > 1:
        forgery.shards.append([forgery.shards[0].pop()])
        return True
    return False


def swap_pieces(forgery: Forgery) -> bool:
    """Exchange the first two rows of a varlen batch."""
    if forgery.layout != "varlen":
        return False
    for batch in forgery.batches:
        if len(batch.rows) > 1:
            batch.rows[:2] = batch.rows[1::-1]
            return True
    return False


def move_dropped(forgery: Forgery) -> bool:
    """Change by one how many sequences the ledger counts for a reason."""
    ledger = forgery.manifest["ledger"]
    for name, counts in ledger["num_dropped_sequences"].items():
        counts = ledger["num_dropped_sequences"]
        for other in counts:
            if other != name and counts[name]:
                counts[name], counts[other] = counts[name] - 1, counts[other] + 1
                return True
        if counts[name]:
            ledger["num_dropped_tokens"][name] += 1
            return True
    return False


def _holds_pieces(batch: Batch) -> bool:
    return any(start for _, start, _ in batch.rows) or len({row[0] for row in batch.rows}) < len(
        batch.rows
    )


FORGERIES: dict[str, Callable[[Forgery], bool]] = {
    function.__name__: function
    for function in (
        *(swap_equal_rows, swap_any_rows, swap_batches, drop_batch, drop_row, move_row),
        *(join_neighbours, split_batch, repeat_batch, widen_batch, change_filler, move_cut),
        *(swap_pieces, move_dropped),
    )
}
