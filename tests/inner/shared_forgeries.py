"""Shard sets of rows that several sequences share, forged so that all counts and checksums agree.

A set is taken apart into the pieces of each row, changed, and laid out again by slow loops; links
between batches are made anew from the pieces, unless a forgery changes them afterwards.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from shard_reference import Arrays, load_shard, read_manifest_json, safetensors_bytes

from seqpack_cli.shards.manifest import add_up_stores

Piece = tuple[int, int, list[int]]  # sequence, where the piece begins in it, ids
Rows = list[list[Piece]]  # of one batch


@dataclass
class Set:
    """A shard set as the pieces in the rows of its batches."""

    path: Path
    manifest: dict[str, Any]
    shards: list[list[Rows]]
    draws: random.Random
    tamper: list[Callable[[list[Arrays]], object]] = field(default_factory=list)

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = self.manifest["options"]
        return options

    @property
    def is_streams(self) -> bool:
        return bool(self.manifest["layout"] == "streams")

    @property
    def batches(self) -> list[Rows]:
        return [batch for shard in self.shards for batch in shard]


def take_apart(path: Path, seed: int = 0) -> Set:
    """Read a shard set with plain loops."""
    manifest = read_manifest_json(path)
    options, shards = manifest["options"], []
    for entry in manifest["shards"]:
        arrays, _ = load_shard(path / entry["name"])
        shards.append(
            [_read_batch(manifest, arrays, number) for number in range(entry["num_batches"])]
        )
    assert options["max_tokens"] is not None
    return Set(path, manifest, shards, random.Random(seed))


def _read_batch(manifest: dict[str, Any], arrays: Arrays, number: int) -> Rows:
    options = manifest["options"]
    first, last = arrays["sequence_offsets"][number : number + 2].tolist()
    data = arrays["data"][slice(*arrays["data_offsets"][number : number + 2].tolist())].tolist()
    length = options["max_tokens"] if options["batch_size"] else len(data)
    if manifest["layout"] == "streams":  # [T, B]
        num = options["batch_size"]
        lines = [data[row::num] for row in range(num)]
    else:
        lines = [data[start : start + length] for start in range(0, len(data), length)]
    rows: Rows = [[] for _ in lines]
    cells = [0] * len(lines)
    for place in range(first, last):
        row = int(arrays["row_indices"][place]) if "row_indices" in arrays else 0
        size = int(arrays["lengths"][place])
        ids = lines[row][cells[row] : cells[row] + size]
        rows[row].append(
            (int(arrays["original_indices"][place]), int(arrays["piece_starts"][place]), ids)
        )
        cells[row] += -(-size // options["align_sequences"]) * options["align_sequences"]
    return rows


def put_together(forged: Set) -> None:
    """Write a shard set so that all counts, checksums and the ledger agree with its rows."""
    manifest = forged.manifest
    metadata = load_shard(forged.path / "shard-00000.safetensors")[1]
    dtype = np.dtype(manifest["dtype"])
    for path in forged.path.glob("shard-*.safetensors"):
        path.unlink()
    batches, everything = forged.batches, []
    for number, batch in enumerate(batches):
        after = batches[number + 1] if forged.is_streams and number + 1 < len(batches) else None
        before = batches[number - 1] if forged.is_streams and number else None
        everything.append(_make_arrays(forged, batch, before, after, dtype))
    for change in forged.tamper:
        change(everything)
    entries, taken = [], 0
    for shard in forged.shards:
        if not shard:
            continue
        arrays = _join(everything[taken : taken + len(shard)])
        taken += len(shard)
        path = forged.path / f"shard-{len(entries):05d}.safetensors"
        path.write_bytes(safetensors_bytes(arrays, metadata))
        entries.append(_describe(forged, arrays, len(shard), path))
    manifest["shards"] = entries
    for name in entries[0]:
        if name.startswith("num_"):
            manifest["ledger"][name] = sum(entry[name] for entry in entries)
    manifest["ledger"]["stores"] = add_up_stores([entry["stores"] for entry in entries])
    (forged.path / "manifest.json").write_text(json.dumps(manifest))


def _make_arrays(
    forged: Set, batch: Rows, before: Rows | None, after: Rows | None, dtype: Any
) -> Arrays:
    options, pad_id = forged.options, forged.manifest["pad_id"]
    multiple, length = options["align_sequences"], options["max_tokens"]
    names = ("lengths", "original_indices", "piece_starts", "row_indices", "resets", "next_ids")
    values: dict[str, list[int]] = {name: [] for name in names}
    lines: list[list[int]] = []
    for number, row in enumerate(batch):
        line: list[int] = []
        for place, (index, start, ids) in enumerate(row):
            line += [*ids, *[pad_id] * (-len(ids) % multiple)]
            follows = _find_next(row, place, number, after)
            goes_on = place == 0 and before is not None and bool(before[number])
            if goes_on and before is not None:
                last = before[number][-1]
                goes_on = start > 0 and (last[0], last[1] + len(last[2])) == (index, start)
            entry = (len(ids), index, start, number, int(not goes_on), follows)
            for name, value in zip(names, entry, strict=True):
                values[name].append(value)
        if options["batch_size"]:
            line += [pad_id] * (length - len(line))
        lines.append(line)
    data = np.array(lines if options["batch_size"] else lines[0])
    data = data.T if forged.is_streams else data
    arrays = {name: np.array(value, np.int64) for name, value in values.items()}
    if not forged.is_streams:
        del arrays["resets"], arrays["next_ids"]
    if not options["batch_size"]:
        del arrays["row_indices"]
    return {**arrays, "data": np.ascontiguousarray(data).reshape(-1).astype(dtype)}


def _find_next(row: list[Piece], place: int, number: int, after: Rows | None) -> int:
    """Return the id that follows a piece in the next batch, -1 if it does not go on."""
    if place < len(row) - 1 or after is None or not after[number]:
        return -1
    index, start, ids = row[place]
    following = after[number][0]
    goes_on = following[:2] == (index, start + len(ids))
    return following[2][0] if goes_on else -1


def _join(parts: list[Arrays]) -> Arrays:
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name, of in (("sequence_offsets", "lengths"), ("data_offsets", "data")):
        arrays[name] = np.cumsum([0, *(len(part[of]) for part in parts)]).astype(np.int64)
    return arrays


def _describe(forged: Set, arrays: Arrays, num_batches: int, path: Path) -> dict[str, Any]:
    raw, lengths, starts = path.read_bytes(), arrays["lengths"], arrays["piece_starts"]
    num_tokens, most = int(lengths.sum()), forged.options["max_tokens"]
    stores, first = [], 0
    for entry in forged.manifest["stores"]:
        last = first + entry["num_sequences"]
        inside = (arrays["original_indices"] >= first) & (arrays["original_indices"] < last)
        counts = {"num_sequences": int((inside & (starts == 0)).sum())}
        stores.append({**counts, "num_tokens": int(lengths[inside].sum())})
        first = last
    return {
        "name": path.name,
        "bytes": len(raw),
        "blake3": blake3(raw).hexdigest(),
        "num_batches": num_batches,
        "num_rows": len(lengths),
        "num_filler_rows": 0,
        "num_sequences": int((starts == 0).sum()),
        "num_split_sequences": int(((starts > 0) & (starts <= most)).sum()),
        "num_tokens": num_tokens,
        "num_target_tokens": num_tokens,
        "num_padding_cells": len(arrays["data"]) - num_tokens,
        "longest": int(lengths.max()),
        "decoder": None,
        "stores": stores,
    }


# Each changes a set and returns whether it could.


def swap_streams(forged: Set) -> bool:
    """Exchange two streams, or rows, in all batches from some batch on."""
    batches = forged.batches
    begin, width = forged.draws.randrange(len(batches)), min(map(len, batches))
    if width < 2:
        return False
    one, other = forged.draws.sample(range(width), 2)
    before = [list(map(tuple, batch)) for batch in batches]
    for batch in batches[begin:]:
        batch[one], batch[other] = batch[other], batch[one]
    return _show(before) != _show(batches)


def swap_batches(forged: Set) -> bool:
    """Exchange two batches."""
    batches = forged.batches
    if len(batches) < 2:
        return False
    one, other = forged.draws.sample(range(len(batches)), 2)
    first, second = batches[one], batches[other]
    if _show(first) == _show(second):
        return False
    first[:], second[:] = second[:], first[:]
    return True


def repeat_piece(forged: Set) -> bool:
    """Leave out a piece and repeat the next one of its row in its place."""
    places = [
        (row, place)
        for batch in forged.batches
        for row in batch
        for place in range(len(row) - 1)
        if len(row[place][2]) == len(row[place + 1][2]) and row[place] != row[place + 1]
    ]
    if not places:
        return False
    row, place = forged.draws.choice(places)
    row[place] = row[place + 1]
    return True


def swap_sequences(forged: Set) -> bool:
    """Exchange two whole sequences of a row."""
    rows = [row for batch in forged.batches for row in batch if len(row) > 3]
    if not rows:
        return False
    row = forged.draws.choice(rows)
    row[1], row[2] = row[2], row[1]
    return _differ(row[1], row[2])


def move_token(forged: Set) -> bool:
    """Move the last token of a piece to the next piece of its row."""
    rows = [row for batch in forged.batches for row in batch if len(row) > 1 and len(row[0][2]) > 1]
    if not rows:
        return False
    row = forged.draws.choice(rows)
    (index, start, ids), (other, begin, rest) = row[:2]
    row[0], row[1] = (index, start, ids[:-1]), (other, begin, [ids[-1], *rest])
    return True


def move_token_over_cut(forged: Set) -> bool:
    """Move a token from the end of a stream in a batch to its beginning in the next one."""
    batches, places = forged.batches, []
    for before, after in pairwise(batches):
        for one, other in zip(before, after, strict=False):
            if one and other and len(one[-1][2]) > 1 and other[0][1] > 0:
                places.append((one, other))
    if not places:
        return False
    one, other = forged.draws.choice(places)
    index, start, ids = one[-1]
    one[-1] = (index, start, ids[:-1])
    index, start, rest = other[0]
    other[0] = (index, start - 1, [ids[-1], *rest[:-1]]) if start else other[0]
    return True


def pad_the_middle(forged: Set) -> bool:
    """Move the last piece of a row to the end of the last batch, or to another row."""
    batches = forged.batches
    rows = [row for batch in batches[:-1] for row in batch if len(row) > 1]
    length = forged.options["max_tokens"]
    if not rows:
        return False
    row = forged.draws.choice(rows)
    for batch in batches[::-1]:
        for target in batch:
            if target is not row and sum(_size(forged, p) for p in [*target, row[-1]]) <= length:
                target.append(row.pop())
                return True
    return False


def move_last_row(forged: Set) -> bool:
    """Move the last row that is used into one that is not."""
    last = forged.batches[-1]
    free = [number for number, row in enumerate(last) if not row]
    if not free or not (used := [number for number, row in enumerate(last) if row]):
        return False
    last[free[-1]], last[used[-1]] = last[used[-1]], []
    return True


def drop_last_batch(forged: Set) -> bool:
    """Leave out the last batch, as if its sequences had been dropped."""
    if len(forged.batches) < 2 or not forged.shards[-1]:
        return False
    gone = [piece for row in forged.shards[-1].pop() for piece in row]
    ledger = forged.manifest["ledger"]
    for reason in list(ledger["num_dropped_sequences"])[:1]:
        ledger["num_dropped_sequences"][reason] += sum(start == 0 for _, start, _ in gone)
        ledger["num_dropped_tokens"][reason] += sum(len(ids) for _, _, ids in gone)
    return True


def move_cut(forged: Set) -> bool:
    """End a shard one batch earlier."""
    for number, shard in enumerate(forged.shards[:-1]):
        if len(shard) > 1:
            forged.shards[number + 1].insert(0, shard.pop())
            return True
    return False


def add_empty_row(forged: Set) -> bool:
    """Add a row of padding to the last batch."""
    batch = forged.batches[-1]
    if not forged.options["batch_size"] or len(batch) >= forged.options["batch_size"]:
        return False
    batch.append([])
    return True


def _change(name: str, change: Callable[[Set, np.ndarray], bool]) -> Callable[[Set], bool]:
    """Return a forgery of one entry of an array of one batch."""

    def forge(forged: Set) -> bool:
        batches, changed = forged.draws.sample(range(len(forged.batches)), len(forged.batches)), []

        def tamper(everything: list[Arrays]) -> None:
            for number in batches:
                array = everything[number].get(name)
                if array is not None and change(forged, array):
                    changed.append(number)
                    return

        forged.tamper.append(tamper)
        put_together(forged)
        return bool(changed)

    forge.__name__ = f"{change.__name__.strip('_')}_{name}"
    return forge


def _flip(forged: Set, array: np.ndarray) -> bool:
    array[forged.draws.randrange(len(array))] ^= 1
    return True


def _set_all(forged: Set, array: np.ndarray) -> bool:
    was = array.copy()
    array[:] = 1
    return not np.array_equal(was, array)


def _clear(forged: Set, array: np.ndarray) -> bool:
    places = np.flatnonzero(array != -1)
    if len(places):
        array[forged.draws.choice(places.tolist())] = -1
    return bool(len(places))


def _swap(forged: Set, array: np.ndarray) -> bool:
    places = np.flatnonzero(array != array[0])
    if len(places):
        array[[0, places[0]]] = array[[places[0], 0]]
    return bool(len(places))


def _raise(forged: Set, array: np.ndarray) -> bool:
    array[forged.draws.randrange(len(array))] += 1
    return True


def _move(forged: Set, array: np.ndarray) -> bool:
    """Move one token from an entry to the next one."""
    if len(array) < 2 or array[0] < 2:
        return False
    array[:2] += [-1, 1]
    return True


def _size(forged: Set, piece: Piece) -> int:
    multiple = int(forged.options["align_sequences"])
    return -(-len(piece[2]) // multiple) * multiple


def _show(value: object) -> str:
    return str(value).replace("(", "[").replace(")", "]").replace(",]", "]")


def _differ(one: Piece, other: Piece) -> bool:
    return one[2] != other[2] or one[:2] != other[:2]


FORGERIES: dict[str, Callable[[Set], bool]] = {
    forgery.__name__: forgery
    for forgery in (
        *(swap_streams, swap_batches, repeat_piece, swap_sequences, move_token),
        *(move_token_over_cut, pad_the_middle, move_last_row, drop_last_batch, move_cut),
        add_empty_row,
        *(_change("resets", change) for change in (_flip, _set_all, _swap)),
        *(_change("next_ids", change) for change in (_clear, _swap, _raise)),
        *(_change("row_indices", change) for change in (_raise, _swap)),
        *(_change("lengths", change) for change in (_move, _raise)),
        *(_change("piece_starts", change) for change in (_raise, _swap)),
        *(_change("original_indices", change) for change in (_flip, _swap)),
        *(_change("data", change) for change in (_raise, _swap)),
    )
}
