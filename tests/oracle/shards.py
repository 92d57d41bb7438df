"""A reader and a writer of shards, from docs/formats.md alone: nothing of seqpack is used."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from oracle.pairs import make_pair_plan, options_of_side
from oracle.plan import (
    DEFAULTS,
    SHARED,
    Options,
    PagePlan,
    PlannedBatch,
    fill_in,
    make_plan,
    round_up,
)
from oracle.selection import Refused, find_splits, select, spell
from oracle.side import COUNTS, STORE_COUNTS, Side, digest_of
from oracle.stores import (
    DTYPES,
    PER_TOKEN,
    PageStore,
    describe_file,
    make_tensor_file,
    spell_column,
)

Batches = tuple[PlannedBatch, ...]  # one batch of each side
OF_SIDES = ["dtype", "vocab_size", "max_id", "tokenizer_blake3", "bos_id", "eos_id", "unk_id"]
OF_SIDES += ["columns", "pad_id", "stores", "ledger"]
OF_STORES = ["path", "blake3", "num_sequences", "num_tokens"]
OF_SPLITS = ["name", "share", "num_documents", "num_sequences", "num_tokens", "blake3"]
APART = ["layout", "pad_id", "padding_side"]  # in the options of splits alone


class ShardWriter:
    """Write the shards of stores, or of pairs with those of the decoder."""

    def __init__(
        self,
        folder: Path,
        stores: Sequence[PageStore],
        layout: str,
        given: dict[str, Any],
        *,
        decoder: Sequence[PageStore] = (),
    ) -> None:
        given = dict(given)
        self.folder, self.layout = folder, layout
        padding = given.pop("pad_id", None), given.pop("padding_side", "right")
        self.options: Options = fill_in(layout, given, has_pairs=bool(decoder))
        self.sides = [Side(stores, layout, options_of_side(self.options, ""), padding)]
        if decoder:
            options = options_of_side(self.options, "decoder.")
            self.sides.append(Side(decoder, layout, options, padding, "decoder."))

    def write(self) -> None:
        """Write shards and manifest."""
        self.folder.mkdir()
        for side in self.sides:
            if side.store.manifest["tokenizer_blake3"] is not None:
                tokenizer_json = (side.store.folder / "tokenizer.json").read_bytes()
                (self.folder / f"{side.prefix}tokenizer.json").write_bytes(tokenizer_json)
        stores = [side.stores for side in self.sides]
        if len(self.sides) == 1:
            selected = select(stores[0], self.options)
            lengths = [*map(len, self.sides[0].store.sequences)]
            plans = [make_plan(lengths, self.layout, self.options, selected)]
            passes, keys = selected.passes, plans[0].keys
        else:
            pairs = make_pair_plan(stores, self.layout, self.options)
            plans = [pairs.view(side, self.layout) for side in (0, 1)]
            passes, keys = pairs.passes, pairs.keys and [*map(list, pairs.keys)]
        batches = list(zip(*(plan.batches for plan in plans), strict=True))
        entries = [self._write_shard(*numbered) for numbered in enumerate(self._cut(batches))]
        of_sides = [
            self._describe_side(side, plan, passes, found)
            for side, plan, found in zip(
                self.sides, plans, [entries, [entry["decoder"] for entry in entries]], strict=False
            )
        ]
        manifest = {
            "format": "seqpack.shards",
            "format_version": 11,
            "plan_version": 2,
            "layout": self.layout,
            **of_sides[0],
            "padding_side": self.sides[0].padding_side,
            "bucket_keys": keys,
            "options": self.options,
            "shards": entries,
            "decoder": of_sides[1] if of_sides[1:] else None,
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest))

    def _describe_side(
        self, side: Side, plan: PagePlan, passes: list[Fraction], entries: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the fields of a manifest that each side has."""
        ledger: dict[str, Any] = {name: sum(entry[name] for entry in entries) for name in COUNTS}
        ledger["num_dropped_sequences"] = {name: len(all_) for name, all_ in plan.dropped.items()}
        ledger["num_dropped_tokens"] = {name: sum(all_) for name, all_ in plan.dropped.items()}
        ledger["num_repeated_sequences"] = len(plan.repeated)
        ledger["num_repeated_tokens"] = sum(plan.repeated)
        ledger["stores"] = [
            {name: sum(entry["stores"][number][name] for entry in entries) for name in STORE_COUNTS}
            for number in range(len(side.stores))
        ]
        kept = ("dtype", "vocab_size", "max_id", "bos_id", "eos_id", "unk_id")
        kept += ("tokenizer_blake3", "columns")
        return {
            **{name: side.store.manifest[name] for name in kept},
            "pad_id": side.pad_id,
            "stores": [
                {**describe_store(each, self.folder), "passes": spell(number)}
                for each, number in zip(side.stores, passes, strict=True)
            ],
            "ledger": ledger,
        }

    def _cut(self, batches: list[Batches]) -> list[list[Batches]]:
        shards: list[list[Batches]] = []
        left = -1
        for batch in batches:
            sizes = (side.size_of(found) for side, found in zip(self.sides, batch, strict=True))
            size = sum(sizes)
            if size > left:
                shards.append([])
                left = self.options["shard_bytes"]
            shards[-1].append(batch)
            left -= size
        return shards

    def _make_file(self, arrays: dict[str, np.ndarray]) -> bytes:
        values = {"format": "seqpack.shards", "format_version": "11", "layout": self.layout}
        for side in self.sides:
            values[f"{side.prefix}stores_blake3"] = ",".join(side.digests)
        return make_tensor_file(values, arrays)

    def _lay_out(self, batches: list[Batches]) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for number, side in enumerate(self.sides):
            found |= side.lay_out([batch[number] for batch in batches])
        return found

    def _write_shard(self, number: int, batches: list[Batches]) -> dict[str, Any]:
        path = self.folder / f"shard-{number:05d}.safetensors"
        arrays = self._lay_out(batches)
        path.write_bytes(self._make_file(arrays))
        counts: list[dict[str, Any]] = []
        for place, side in enumerate(self.sides):
            found = [batch[place] for batch in batches]
            own = {name: each for name, each in arrays.items() if name.startswith(side.prefix)}
            counts.append(side.count(found, own))
        decoder = counts[1] if counts[1:] else None
        return {**describe_file(path), **counts[0], "decoder": decoder}


def write_shards(folder: Path, *arguments: Any, **options: Any) -> None:
    """Write one shard set, as `write_splits` writes several."""
    ShardWriter(folder, *arguments, **options).write()


def describe_store(store: PageStore, folder: Path) -> dict[str, Any]:
    """Return the entry of a store in the manifest of shards or splits."""
    return {
        "path": os.path.relpath(store.folder, folder),
        "blake3": digest_of(store.folder),
        "num_sequences": len(store.sequences),
        "num_tokens": sum(map(len, store.sequences)),
    }


def write_splits(
    folder: Path,
    stores: Sequence[PageStore],
    layout: str,
    given: dict[str, Any],
    *,
    decoder: Sequence[PageStore] = (),
) -> None:
    """Write a shard set for each split, and the manifest that names them."""
    folder.mkdir()
    defaults = {"layout": layout, "pad_id": None, "padding_side": "right"}
    apart = {name: given.get(name, value) for name, value in defaults.items()}
    filled = {name: value for name, value in given.items() if name not in apart}
    options = {**fill_in(layout, filled, has_pairs=bool(decoder)), **apart}
    splits = []
    taken = [found for store in stores for found in find_splits(store, options)]
    items = [item.partition("=") for item in options["split"].split(",")]
    for name, _, _ in items:
        if name not in taken:
            raise Refused(f"split {name!r} is empty")
    for name, _, share in items:
        ShardWriter(
            *(folder / name, stores, layout, {**given, "split_name": name}),
            decoder=decoder,
        ).write()
        chosen = [index for index, found in enumerate(taken) if found == name]
        lengths = [len(ids) for store in stores for ids in store.sequences]
        first, documents = 0, list[int]()
        for store in stores:
            documents += [first + document for document in store.documents]
            first += len(store.hashes)
        entry = {
            "name": name,
            "share": share or None,
            "num_documents": len({documents[index] for index in chosen}),
            "num_sequences": len(chosen),
            "num_tokens": sum(lengths[index] for index in chosen),
            "blake3": digest_of(folder / name),
        }
        splits.append(entry)
    manifest = {
        "format": "seqpack.splits",
        "format_version": 3,
        "split_seed": options["split_seed"],
        "split_by": options["split_by"],
        "splits": splits,
        "stores": [describe_store(store, folder) for store in stores],
        "decoder_stores": [describe_store(store, folder) for store in decoder] or None,
        "options": options,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def open_shards(folder: Path) -> dict[str, Any]:
    """Read the manifest of shards; a missing field, or one that the page has not, is refused."""
    manifest = _open(folder, "seqpack.shards", 11)
    own = ["format", "format_version", "plan_version", "layout", "padding_side", "bucket_keys"]
    _check_fields(manifest, [*own, "options", "shards", "decoder", *OF_SIDES])
    _check_fields(manifest["options"], [*DEFAULTS])
    decoder = manifest["decoder"]
    if decoder is not None:
        _check_fields(decoder, OF_SIDES)
    counts = [*COUNTS, "longest", "stores"]
    dropped = ["num_dropped_sequences", "num_dropped_tokens"]
    repeated = ["num_repeated_sequences", "num_repeated_tokens"]
    sides = [manifest] + ([decoder] if decoder else [])
    for side in sides:
        _check_fields(side["ledger"], [*COUNTS, *dropped, *repeated, "stores"])
        for store in side["stores"]:
            _check_fields(store, [*OF_STORES, "passes"])
    of_sides = [side["ledger"] for side in sides]
    for entry in manifest["shards"]:
        _check_fields(entry, ["name", "bytes", "blake3", *counts, "decoder"])
        assert (entry["decoder"] is None) == (decoder is None)
        if decoder is not None:
            _check_fields(entry["decoder"], counts)
        of_sides += [entry] + ([entry["decoder"]] if decoder else [])
    for each in of_sides:
        for store in each["stores"]:
            _check_fields(store, STORE_COUNTS)
    return manifest


def open_splits(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the manifests of all splits by name; those and that of the folder must agree."""
    manifest = _open(folder, "seqpack.splits", 3)
    own = ["format", "format_version", "split_seed", "split_by", "splits", "stores"]
    _check_fields(manifest, [*own, "decoder_stores", "options"])
    _check_fields(manifest["options"], [*DEFAULTS, *APART])
    for store in [*manifest["stores"], *(manifest["decoder_stores"] or [])]:
        _check_fields(store, OF_STORES)
    found = {}
    for entry in manifest["splits"]:
        _check_fields(entry, OF_SPLITS)
        inside = folder / entry["name"]
        assert not inside.is_symlink()
        assert digest_of(inside) == entry["blake3"]
        shards = found[entry["name"]] = open_shards(inside)
        options = {name: manifest["options"][name] for name in DEFAULTS}
        assert shards["options"] == {**options, "split_name": entry["name"]}
        assert all(shards[name] == manifest["options"][name] for name in ("layout", "padding_side"))
        digests = [store["blake3"] for store in shards["stores"]]
        assert digests == [store["blake3"] for store in manifest["stores"]]
    return found


def _open(folder: Path, format_: str, version: int) -> dict[str, Any]:
    assert not (folder / "plan.json").exists()
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["format_version"]) == (format_, version)
    return manifest


def _check_fields(found: dict[str, Any], names: list[str]) -> None:
    if found.keys() != {*names}:
        raise Refused(*sorted(found.keys() ^ {*names}))


def read_shards(folder: Path) -> dict[int, list[int]]:
    """Read the sequences of shards by their index in the store, pieces put together again."""
    return {index: found["ids"] for index, found in read_rows(folder).items()}


def read_rows(folder: Path, prefix: str = "") -> dict[int, dict[str, Any]]:
    """Read the ids of sequences, as `ids`, and their columns; with `decoder.` of that side."""
    manifest = open_shards(folder)
    columns = (manifest["decoder"] if prefix else manifest)["columns"]
    pieces: dict[int, dict[int, dict[str, Any]]] = {}
    for entry in manifest["shards"]:
        path = folder / entry["name"]
        assert describe_file(path) == {name: entry[name] for name in ("name", "bytes", "blake3")}
        arrays = _load(path, prefix)
        by_cell, by_row = {"ids": arrays["data"].tolist()}, dict[str, list[Any]]()
        for column in columns:
            name, names = column["name"], column.get("class_names")
            target = by_cell if column["kind"] in PER_TOKEN else by_row
            target[name] = spell_column(name, column["kind"], arrays, names)
            assert arrays[f"column.{name}"].dtype.name == DTYPES[column["kind"]]
        for batch in range(entry["num_batches"]):
            rows = slice(*arrays["sequence_offsets"][batch : batch + 2])
            for row in range(rows.start, rows.stop):
                index, length = int(arrays["original_indices"][row]), int(arrays["lengths"][row])
                start = int(arrays["piece_starts"][row]) if "piece_starts" in arrays else 0
                if index < 0:
                    continue
                cells = [
                    arrays["data_offsets"][batch]
                    + _find_cell(manifest, arrays, batch, row - rows.start, step)
                    for step in range(length)
                ]
                found = {name: [values[cell] for cell in cells] for name, values in by_cell.items()}
                of_row = {name: values[row] for name, values in by_row.items()}
                pieces.setdefault(index, {})[start] = {**found, **of_row}
    return {index: _join(pieces[index]) for index in pieces}


def _load(path: Path, prefix: str) -> dict[str, np.ndarray]:
    arrays = safetensors.numpy.load_file(path)
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def read_pairs(folder: Path) -> list[tuple[int, int]]:
    """Read the indices of the sequences of each pair, visit by visit."""
    manifest = open_shards(folder)
    pairs = list[tuple[int, int]]()
    for entry in manifest["shards"]:
        encoder, decoder = (_load(folder / entry["name"], prefix) for prefix in ("", "decoder."))
        assert encoder["sequence_offsets"].tolist() == decoder["sequence_offsets"].tolist()
        for start, end in pairwise(encoder["sequence_offsets"]):
            rows = np.arange(end - start)
            if manifest["layout"] == "packed":
                rows = decoder["encoder_rows"][start:end]
            indices = encoder["original_indices"][start:end][rows].tolist()
            pairs += zip(indices, decoder["original_indices"][start:end].tolist(), strict=True)
    return [pair for pair in pairs if pair != (-1, -1)]


def _join(pieces: dict[int, dict[str, Any]]) -> dict[str, Any]:
    first, *others = (pieces[start] for start in sorted(pieces))
    for piece in others:
        for name, value in piece.items():
            is_per_token = name == "ids" or isinstance(value, list)
            assert is_per_token or first[name] == value
            first[name] = first[name] + value if is_per_token else value
    return first


def _find_cell(
    manifest: dict[str, Any], arrays: dict[str, np.ndarray], batch: int, row: int, step: int
) -> int:
    """Return where a token lies in the data of its batch."""
    lengths = arrays["lengths"][slice(*arrays["sequence_offsets"][batch : batch + 2])]
    if manifest["layout"] == "packed":
        sizes = arrays["batch_sizes"][slice(*arrays["step_offsets"][batch : batch + 2])]
        return int(sizes[:step].sum()) + row
    if manifest["layout"] in SHARED:
        first = int(arrays["sequence_offsets"][batch])
        shared = arrays["row_indices"][first:] if "row_indices" in arrays else [0] * (row + 1)
        options, number = manifest["options"], int(shared[row])
        place = step
        for before in range(row):
            if shared[before] == number:
                place += round_up(int(lengths[before]), options["align_sequences"])
        if manifest["layout"] == "streams":
            return place * int(options["batch_size"]) + number
        return number * int(options["max_tokens"]) + place
    width = int(arrays["widths"][batch])
    padding = width - int(lengths[row]) if manifest["padding_side"] == "left" else 0
    return row * width + padding + step


def read_streams(folder: Path) -> list[tuple[list[int], list[int]]]:
    """Read what a model sees of streams between two resets, stream by stream: ids and next ids."""
    manifest = open_shards(folder)
    streams: list[list[tuple[list[int], list[int]]]]
    streams = [[] for _ in range(manifest["options"]["batch_size"])]
    for entry in manifest["shards"]:
        arrays = safetensors.numpy.load_file(folder / entry["name"])
        for batch in range(entry["num_batches"]):
            first, end = arrays["sequence_offsets"][batch : batch + 2]
            for row in range(first, end):
                seen = streams[arrays["row_indices"][row]]
                if arrays["resets"][row]:
                    seen.append(([], []))
                cells = (
                    arrays["data_offsets"][batch]
                    + _find_cell(manifest, arrays, batch, row - first, step)
                    for step in range(arrays["lengths"][row])
                )
                ids, next_ids = seen[-1]
                ids += [int(arrays["data"][cell]) for cell in cells]
                next_ids.append(int(arrays["next_ids"][row]))
    return [run for stream in streams for run in stream]
