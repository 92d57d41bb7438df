"""A forger of stores and shards, from docs/formats.md alone: what he changes fits together again.

Arrays are changed in their files, or rows are moved between batches that are then laid out anew.
Sizes, checksums, counts, ledgers and the manifest of splits are made to agree with what is there.
"""

from __future__ import annotations

import dataclasses
import json
import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from oracle.pairs import options_of_side
from oracle.plan import SHARED, PlannedBatch, Row
from oracle.side import COUNTS, STORE_COUNTS, Side, digest_of
from oracle.stores import CODES, HEADER, TYPES, describe_file, make_tensor_file, read_store

Json = dict[str, Any]
Arrays = dict[str, np.ndarray]
PREFIXES = ("", "decoder.")
STORE_SUMS = ("num_documents", "num_sequences", "num_tokens")


def load_json(folder: Path) -> Json:
    """Read the manifest of a folder."""
    found: Json = json.loads((folder / "manifest.json").read_bytes())
    return found


def save_json(folder: Path, manifest: Json) -> None:
    """Write a manifest, and its checksum into that of the splits around it."""
    (folder / "manifest.json").write_text(json.dumps(manifest))
    around = folder.parent / "manifest.json"
    if around.exists() and "splits" in (splits := load_json(folder.parent)):
        for entry in splits["splits"]:
            if (folder.parent / entry["name"] / "manifest.json").exists():
                entry["blake3"] = digest_of(folder.parent / entry["name"])
        around.write_text(json.dumps(splits))


def change_json(folder: Path, change: Callable[[Json], object]) -> None:
    """Change a manifest and nothing else."""
    manifest = load_json(folder)
    change(manifest)
    save_json(folder, manifest)


def load_tensors(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Read the tensors of a file, in file order, and its metadata."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata, arrays = header.pop("__metadata__"), {}
    for name, entry in header.items():
        dtype = next(dtype for dtype, code in TYPES.items() if code == entry["dtype"])
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        arrays[name] = np.frombuffer(data[begin:end], dtype).copy()
    return arrays, metadata


def change_shard(folder: Path, change: Callable[[Arrays], object], number: int = 0) -> None:
    """Change the tensors of a shard; all counts follow."""
    path = folder / f"shard-{number:05d}.safetensors"
    arrays, metadata = load_tensors(path)
    change(arrays)
    path.write_bytes(make_tensor_file(metadata, arrays))
    fit_shards(folder)


def change_part(store: Path, change: Callable[[Arrays], object], number: int = 0) -> None:
    """Change a part of a store, its sums too: `ids`, `lengths`, `firsts` and the columns."""
    name = load_json(store)["parts"][number]["name"]
    columns_path = store / f"{name}.columns.safetensors"
    arrays, metadata = load_tensors(columns_path)
    dtype = np.dtype(load_json(store)["dtype"]).newbyteorder("<")
    index = (store / f"{name}.idx").read_bytes()
    *_, num_sequences, num_firsts = HEADER.unpack(index[: HEADER.size])
    arrays["ids"] = np.fromfile(store / f"{name}.bin", dtype)
    arrays["lengths"] = np.frombuffer(index, "<i4", num_sequences, 34).copy()
    arrays["firsts"] = np.frombuffer(index, "<i8", num_firsts, 34 + 12 * num_sequences).copy()
    change(arrays)
    ids, lengths, firsts = (arrays.pop(each) for each in ("ids", "lengths", "firsts"))
    starts = (np.cumsum(lengths, dtype="<i8") - lengths) * dtype.itemsize
    header = (b"MMIDIDX\0\0", 1, CODES[dtype.name], len(lengths), len(firsts))
    (store / f"{name}.bin").write_bytes(ids.astype(dtype).tobytes())
    found = (lengths.astype("<i4"), starts.astype("<i8"), firsts.astype("<i8"))
    tail = b"".join(array.tobytes() for array in found)
    (store / f"{name}.idx").write_bytes(HEADER.pack(*header) + tail)
    columns_path.write_bytes(make_tensor_file(metadata, arrays))
    counts = (len(firsts) - 1, len(lengths), len(ids))
    change_json(store, lambda m: m["parts"][number].update(zip(STORE_SUMS, counts, strict=True)))
    fit_store(store)


def fit_store(store: Path) -> None:
    """Make sizes, checksums and sums of a store those of its files and parts."""
    manifest = load_json(store)
    ledger, parts = manifest["ledger"], manifest["parts"]
    sums = dict.fromkeys(STORE_SUMS, 0)
    num_targets = 0
    for part in parts:
        part["first_document"], part["first_sequence"] = sums[STORE_SUMS[0]], sums[STORE_SUMS[1]]
        part["files"] = [describe_file(store / file["name"]) for file in part["files"]]
        for name in sums:
            sums[name] += part[name]
        columns, _ = load_tensors(store / f"{part['name']}.columns.safetensors")
        num_targets += int(columns.get("column.targets", np.zeros(0)).sum())
    has_targets = any(column["name"] == "targets" for column in manifest["columns"])
    more = sums["num_tokens"] - ledger["num_tokens"]
    ledger |= sums
    ledger["num_encoded_tokens"] += more
    ledger["num_target_tokens"] = num_targets if has_targets else ledger["num_tokens"]
    save_json(store, manifest)


def follow_stores(shards: Path, stores: list[Path], *, is_decoder: bool = False) -> None:
    """Let shards name other stores, as if they had been packed from them."""
    manifest = load_json(shards)
    side, prefix = (manifest["decoder"], PREFIXES[1]) if is_decoder else (manifest, "")
    entries = []
    for store, entry in zip(stores, side["stores"], strict=True):
        ledger = load_json(store)["ledger"]
        counts = {name: ledger[name] for name in STORE_COUNTS}
        entries.append({**entry, **counts, "path": str(store), "blake3": digest_of(store)})
    side["stores"] = entries
    save_json(shards, manifest)
    for shard in manifest["shards"]:
        arrays, metadata = load_tensors(shards / shard["name"])
        metadata[f"{prefix}stores_blake3"] = ",".join(entry["blake3"] for entry in entries)
        (shards / shard["name"]).write_bytes(make_tensor_file(metadata, arrays))
    fit_shards(shards)


def fit_shards(folder: Path) -> None:
    """Make the entries of all shard files, and the sums of the ledger, those of the files.

    What is missing now was dropped, for the first reason that the ledger has; what there is too
    much was repeated.
    """
    manifest = load_json(folder)
    sides = [manifest] + ([manifest["decoder"]] if manifest["decoder"] else [])
    paths = sorted(folder.glob("shard-*.safetensors"))
    manifest["shards"] = []
    for path in paths:
        arrays, _ = load_tensors(path)
        counts = [
            _count(_view(arrays, prefix), manifest["options"], side["stores"])
            for prefix, side in zip(PREFIXES, sides, strict=False)
        ]
        decoder = counts[1] if counts[1:] else None
        manifest["shards"].append({**describe_file(path), **counts[0], "decoder": decoder})
    for number, side in enumerate(sides):
        entries = [entry["decoder"] if number else entry for entry in manifest["shards"]]
        _fit_ledger(side, entries)
    save_json(folder, manifest)


def _view(arrays: Arrays, prefix: str) -> Arrays:
    found = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in found.items()}


def _count(arrays: Arrays, options: Json, stores: list[Json]) -> Json:
    lengths, indices = arrays["lengths"], arrays["original_indices"]
    starts = arrays.get("piece_starts", np.zeros_like(lengths))
    most, num_tokens = options["max_tokens"] or 0, int(lengths.sum())
    begins = (starts == 0) & (indices >= 0)
    of_stores, first = [], 0
    for store in stores:
        inside = (indices >= first) & (indices < first + store["num_sequences"])
        first += store["num_sequences"]
        counts = int((inside & begins).sum()), int(lengths[inside].sum())
        of_stores.append(dict(zip(STORE_COUNTS, counts, strict=True)))
    return {
        "num_batches": len(arrays["sequence_offsets"]) - 1,
        "num_rows": len(lengths),
        "num_filler_rows": int(arrays.get("num_filler_rows", np.zeros(1, int)).sum()),
        "num_sequences": int(begins.sum()),
        "num_split_sequences": int(((starts > 0) & (starts <= most)).sum()),
        "num_tokens": num_tokens,
        "num_target_tokens": int(arrays.get("column.targets", lengths).sum()),
        "num_padding_cells": len(arrays["data"]) - num_tokens,
        "longest": int(lengths.max()),
        "stores": of_stores,
    }


def _fit_ledger(side: Json, entries: list[Json]) -> None:
    ledger = side["ledger"]
    ledger |= {name: sum(entry[name] for entry in entries) for name in COUNTS}
    ledger["stores"] = [
        {name: sum(entry["stores"][number][name] for entry in entries) for name in STORE_COUNTS}
        for number in range(len(side["stores"]))
    ]
    reason = next(iter(ledger["num_dropped_sequences"]), "drop_longer")
    for name in STORE_COUNTS:
        dropped = ledger[name.replace("num_", "num_dropped_")]
        repeated = name.replace("num_", "num_repeated_")
        missing = sum(store[name] for store in side["stores"]) + ledger[repeated]
        missing -= ledger[name] + sum(dropped.values())
        if missing > 0 or dropped.get(reason, 0) >= -missing > 0:
            dropped[reason] = dropped.get(reason, 0) + missing
        else:
            ledger[repeated] -= missing


Batch = list[PlannedBatch]  # of each side


@dataclass
class Forgery:
    """Shards as the rows of their batches, to be changed and written again."""

    folder: Path
    manifest: Json
    sides: list[Side]
    shards: list[list[Batch]]

    @property
    def options(self) -> Json:
        """The options that were recorded."""
        options: Json = self.manifest["options"]
        return options

    @property
    def layout(self) -> str:
        """The layout."""
        return str(self.manifest["layout"])

    @property
    def batches(self) -> list[Batch]:
        """The batches of all shards."""
        return [batch for shard in self.shards for batch in shard]

    def put_together(self, change: Callable[[Arrays], object] | None = None) -> None:
        """Write the shards again; `change` is done to the arrays of the first."""
        _, metadata = load_tensors(self.folder / "shard-00000.safetensors")
        self._link()
        for path in self.folder.glob("shard-*.safetensors"):
            path.unlink()
        for number, batches in enumerate(shard for shard in self.shards if shard):
            arrays: Arrays = {}
            for place, side in enumerate(self.sides):
                arrays |= side.lay_out([batch[place] for batch in batches])
            if change is not None and not number:
                change(arrays)
            path = self.folder / f"shard-{number:05d}.safetensors"
            path.write_bytes(make_tensor_file(metadata, arrays))
        save_json(self.folder, self.manifest)
        fit_shards(self.folder)

    def _link(self) -> None:
        """Let the pieces of streams go on where the batch before ends."""
        if self.layout != "streams":
            return
        for batch in self.batches:
            for row in batch[0].rows:
                row.goes_on_before = row.goes_on_after = False
        for (before,), (after,) in zip(self.batches, self.batches[1:], strict=False):
            ends = {row.row_index: row for row in before.rows}
            begins = {row.row_index: row for row in reversed(after.rows)}
            for stream in ends.keys() & begins.keys():
                one, other = ends[stream], begins[stream]
                if (one.index, one.start + one.length) == (other.index, other.start):
                    one.goes_on_after = other.goes_on_before = True


def take_apart(folder: Path) -> Forgery:
    """Read the rows of all batches; the stores must be where the shards say."""
    manifest = load_json(folder)
    options, layout = manifest["options"], manifest["layout"]
    sides = []
    for prefix, of_side in zip(PREFIXES, (manifest, manifest["decoder"]), strict=True):
        if of_side is None:
            continue
        stores = [read_store((folder / entry["path"]).resolve()) for entry in of_side["stores"]]
        padding = (of_side["pad_id"], manifest["padding_side"])
        sides.append(Side(stores, layout, options_of_side(options, prefix), padding, prefix))
    shards = []
    for entry in manifest["shards"]:
        arrays, _ = load_tensors(folder / entry["name"])
        taken = [_take_batches(_view(arrays, side.prefix), layout, options) for side in sides]
        shards.append([list(batch) for batch in zip(*taken, strict=True)])
    return Forgery(folder, manifest, sides, shards)


def _take_batches(arrays: Arrays, layout: str, options: Json) -> list[PlannedBatch]:
    offsets, cells = arrays["sequence_offsets"].tolist(), np.diff(arrays["data_offsets"]).tolist()
    values = [arrays["original_indices"], *[np.zeros_like(arrays["lengths"])] * 2]
    values[1] = arrays.get("piece_starts", values[1])
    shared = arrays.get("row_indices", values[2])
    columns = (values[0], values[1], arrays["lengths"], shared)
    rows = [Row(*found) for found in zip(*(each.tolist() for each in columns), strict=True)]
    batches = []
    for number, (first, end) in enumerate(pairwise(offsets)):
        batch = PlannedBatch([row for row in rows[first:end] if row.index >= 0])
        batch.num_filler_rows = end - first - len(batch.rows)
        if layout == "padded":
            batch.width = int(arrays["widths"][number])
        elif layout != "packed":
            batch.width = options["max_tokens"]
            in_one = layout == "varlen" and options["batch_size"] is None
            batch.num_rows = 1 if in_one else cells[number] // batch.width
        if "encoder_rows" in arrays:
            batch.encoder_rows = arrays["encoder_rows"][first:end].tolist()
        batches.append(batch)
    return batches


def arrange(forgery: Forgery, batch: Batch) -> None:
    """Sort the rows of a batch, and widen it or not, as its layout requires."""
    options, keys = forgery.options, forgery.manifest["bucket_keys"]
    if forgery.layout not in ("packed", "padded"):
        return
    if len(batch) == 1:
        batch[0].rows.sort(key=lambda row: -row.length)
    else:
        encoder, decoder = batch
        order = decoder.encoder_rows or range(len(decoder.rows))
        mates = dict(zip(order, decoder.rows, strict=True))
        pairs = [(row, mates[place]) for place, row in enumerate(encoder.rows)]
        pairs.sort(key=lambda pair: (-pair[0].length, -pair[1].length))
        encoder.rows, decoder.rows = [a for a, _ in pairs], [b for _, b in pairs]
        if decoder.encoder_rows is not None:
            by_length = sorted(range(len(pairs)), key=lambda place: -pairs[place][1].length)
            decoder.encoder_rows = by_length
            decoder.rows = [pairs[place][1] for place in by_length]
    for side in batch:
        longest = max(row.length for row in side.rows)
        multiple = options["pad_to_multiple"]
        rounded = -(-longest // multiple) * multiple
        fitting = [key for key in keys or [] if isinstance(key, int) and key >= longest]
        side.width = min(fitting, default=rounded)


# Forgeries: each changes the rows of batches, and returns whether it could.

Draws = random.Random


def swap_equal_rows(forgery: Forgery, draws: Draws) -> bool:
    """Exchange two sequences of the same length, on the last side."""
    rows = [row for batch in forgery.batches for row in batch[-1].rows]
    draws.shuffle(rows)
    for place, row in enumerate(rows):
        for other in rows[:place]:
            if other.length == row.length and (other.index, other.start) != (row.index, row.start):
                for name in ("index", "start"):
                    one, two = getattr(row, name), getattr(other, name)
                    setattr(row, name, two), setattr(other, name, one)
                return True
    return False


def double_a_row(forgery: Forgery, draws: Draws) -> bool:
    """Put a sequence in the place of another one of the same length."""
    rows = [row for batch in forgery.batches for row in batch[-1].rows]
    draws.shuffle(rows)
    for place, row in enumerate(rows):
        for other in rows[:place]:
            if other.length == row.length and other.index != row.index:
                other.index, other.start = row.index, row.start
                return True
    return False


def swap_rows(forgery: Forgery, draws: Draws) -> bool:
    """Exchange the first rows of two batches."""
    first, second = draws.sample(forgery.batches, 2)
    for one, other in zip(first, second, strict=True):
        numbers = one.rows[0].row_index, other.rows[0].row_index
        one.rows[0], other.rows[0] = other.rows[0], one.rows[0]
        one.rows[0].row_index, other.rows[0].row_index = numbers
    arrange(forgery, first)
    arrange(forgery, second)
    return True


def swap_batches(forgery: Forgery, draws: Draws) -> bool:
    """Exchange two batches."""
    first, second = draws.sample(forgery.batches, 2)
    first[:], second[:] = second[:], first[:]
    return True


def drop_batch(forgery: Forgery, draws: Draws) -> bool:
    """Leave out a batch, as if its sequences had been dropped."""
    draws.choice(forgery.shards).pop(0)
    return True


def drop_row(forgery: Forgery, draws: Draws) -> bool:
    """Leave out a row, as if its sequence had been dropped."""
    batch = draws.choice([each for each in forgery.batches if len(each[0].rows) > 1])
    for side in batch[:1] if forgery.layout in SHARED else batch:
        mate = side.encoder_rows.index(0) if side.encoder_rows else 0
        side.rows.pop(mate)
        if side.encoder_rows is not None:
            side.encoder_rows.pop(mate)
            side.encoder_rows = [row - 1 for row in side.encoder_rows]
    arrange(forgery, batch)
    return True


def move_row(forgery: Forgery, draws: Draws) -> bool:
    """Move a row to another batch."""
    many = [each for each in forgery.batches if len(each[0].rows) > 1]
    if len(forgery.sides) > 1 or not many:
        return False
    source = draws.choice(many)
    target = draws.choice([each for each in forgery.batches if each is not source])
    target[0].rows.append(source[0].rows.pop())
    target[0].rows[-1].row_index = target[0].rows[-2].row_index
    arrange(forgery, source)
    arrange(forgery, target)
    return True


def move_border(forgery: Forgery, draws: Draws) -> bool:
    """Let a batch begin a row earlier, if neither becomes wider."""
    for shard in forgery.shards:
        for (first, *_), (second, *_) in pairwise(shard):
            longest = [max(row.length for row in side.rows) for side in (first, second)]
            if len(first.rows) > 1 and [row.length for row in first.rows[-2:]] == longest:
                second.rows.insert(0, first.rows.pop())
                return True
    return False


def add_empty_piece(forgery: Forgery, draws: Draws) -> bool:
    """Put a piece without an id after the first one."""
    rows = draws.choice(forgery.batches)[0].rows
    rows.insert(1, dataclasses.replace(rows[0], start=rows[0].start + rows[0].length, length=0))
    return forgery.layout in SHARED


def join_batches(forgery: Forgery, draws: Draws) -> bool:
    """Join two neighbours of one shard."""
    shard = draws.choice([shard for shard in forgery.shards if len(shard) > 1])
    second = shard.pop(1)
    if forgery.layout == "streams" or len(second) > 1:
        return False
    shard[0][0].rows += second[0].rows
    shard[0][0].rows.sort(key=lambda row: row.row_index)
    arrange(forgery, shard[0])
    return True


def split_batch(forgery: Forgery, draws: Draws) -> bool:
    """Make two batches of one."""
    if len(forgery.sides) > 1:
        return False
    shard = draws.choice([s for s in forgery.shards if any(len(b[0].rows) > 1 for b in s)])
    place = next(place for place, batch in enumerate(shard) if len(batch[0].rows) > 1)
    (batch,) = shard[place]
    other = [type(batch)(batch.rows[1:], batch.width, batch.num_filler_rows, batch.num_rows)]
    del batch.rows[1:]
    shard.insert(place + 1, other)
    arrange(forgery, shard[place])
    arrange(forgery, other)
    return True


def repeat_batch(forgery: Forgery, draws: Draws) -> bool:
    """Add a batch that is already there."""
    forgery.shards[-1].append(draws.choice(forgery.batches))
    return True


def widen_batch(forgery: Forgery, draws: Draws) -> bool:
    """Pad a batch further than necessary."""
    if forgery.layout != "padded":
        return False
    batch = draws.choice(forgery.batches)
    keys = [key for key in forgery.manifest["bucket_keys"] or [] if isinstance(key, int)]
    batch[0].width = min((k for k in keys if k > batch[0].width), default=batch[0].width + 1)
    return True


def change_filler(forgery: Forgery, draws: Draws) -> bool:
    """Take a filler row away, or add one."""
    if forgery.options["last_batch"] != "pad":
        return False
    filled = [batch for batch in forgery.batches if batch[0].num_filler_rows]
    draws.choice(filled)[0].num_filler_rows -= draws.choice((-1, 1))
    return True


def move_cut(forgery: Forgery, draws: Draws) -> bool:
    """End a shard one batch earlier."""
    numbers = [number for number, shard in enumerate(forgery.shards[:-1]) if len(shard) > 1]
    if numbers:
        number = draws.choice(numbers)
        forgery.shards[number + 1].insert(0, forgery.shards[number].pop())
    return bool(numbers)


def swap_streams(forgery: Forgery, draws: Draws) -> bool:
    """Exchange two rows of a rectangle, or streams, from some batch on."""
    begin = draws.randrange(len(forgery.batches) - 1)
    changed = False
    for (batch,) in forgery.batches[begin:] if len(forgery.sides) == 1 else []:
        for row in batch.rows:
            if row.row_index < 2 <= batch.num_rows:
                row.row_index, changed = 1 - row.row_index, True
        batch.rows.sort(key=lambda row: row.row_index)
    return changed and forgery.layout in SHARED


def swap_neighbours(forgery: Forgery, draws: Draws) -> bool:
    """Exchange two sequences of a shared row."""
    rows = draws.choice([batch[0].rows for batch in forgery.batches if len(batch[0].rows) > 1])
    if forgery.layout not in SHARED or rows[0].row_index != rows[1].row_index:
        return False
    rows[:2] = rows[1::-1]
    return True


def add_empty_row(forgery: Forgery, draws: Draws) -> bool:
    """Add a row of padding to the last batch."""
    (*_, (batch, *_)) = forgery.batches
    if forgery.layout != "varlen" or forgery.options["batch_size"] is None:
        return False
    batch.num_rows += 1
    return True


def swap_shards(forgery: Forgery, draws: Draws) -> bool:
    """Exchange two whole shards."""
    one, other = draws.sample(range(len(forgery.shards)), 2)
    forgery.shards[one], forgery.shards[other] = forgery.shards[other], forgery.shards[one]
    return True


def double_in_batch(forgery: Forgery, draws: Draws) -> bool:
    """Put a sequence into the place of another one of its batch."""
    for batch in draws.sample(forgery.batches, len(forgery.batches)):
        for one, other in zip(batch[-1].rows, batch[-1].rows[1:], strict=False):
            if one.length == other.length and one.index != other.index:
                other.index, other.start = one.index, one.start
                return True
    return False


FORGERIES = (
    *(swap_equal_rows, double_a_row, swap_rows, swap_batches, drop_batch, drop_row, move_row),
    *(join_batches, split_batch, repeat_batch, widen_batch, change_filler, move_cut),
    *(swap_streams, swap_neighbours, add_empty_row, swap_shards, move_border, add_empty_piece),
)


def show_batches(forgery: Forgery) -> list[list[Any]]:
    """Return what a batch is: the rows of each side, and its size."""

    def show(batch: Batch) -> list[Any]:
        return [
            (
                [(row.index, row.start, row.length, row.row_index) for row in side.rows],
                *(side.width, side.num_filler_rows, side.num_rows, side.encoder_rows),
            )
            for side in batch
        ]

    return [show(batch) for batch in forgery.batches]


def count_rows(shown: list[list[Any]]) -> Counter[Any]:
    """Return how often each row of the last side is there."""
    return Counter(row[:3] for batch in shown for row in batch[-1][0])
