"""What docs/formats.md says of a batch: where its rows are, which are sound, and what they join to.

Nothing of seqpack is used.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from oracle.plan import SHARED, round_up
from oracle.stores import PER_TOKEN

FILLS = {"int": 0, "float": 0.0, "class": -100, "text": b"", "tags": -100, "targets": 0}


@dataclass(eq=False, repr=False)
class PageBatch:
    """The arrays of a batch; columns by `column.NAME`, of text a list of bytes."""

    manifest: dict[str, Any]
    side: dict[str, Any]  # the manifest's fields of the side
    arrays: dict[str, Any]
    _cells: list[list[int]] = field(default_factory=list)

    @property
    def is_decoder(self) -> bool:
        return self.side is not self.manifest

    def has_equal_arrays(self, other: PageBatch) -> bool:
        """Return whether all arrays are the same."""
        found, others = self.arrays, other.arrays
        return all(np.array_equal(found[name], others[name]) for name in found)

    @property
    def cells(self) -> list[list[int]]:
        """Where the tokens of each row lie in `data`."""
        if not self._cells:
            self._cells = [self._find_cells(row) for row in range(len(self.arrays["lengths"]))]
        return self._cells

    @property
    def rows(self) -> list[list[int]]:
        """The ids of each row."""
        data = self.arrays["data"].tolist()
        return [[data[cell] for cell in cells] for cells in self.cells]

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The value of each row, or beside each cell, of every column."""
        found = {}
        for column in self.side["columns"]:
            values = list(self.arrays[f"column.{column['name']}"])
            if column["kind"] == "text":
                found[column["name"]] = [text.decode() for text in values]
            elif "class_names" in column:
                names = column["class_names"]
                found[column["name"]] = [None if n == -100 else names[n] for n in values]
            else:
                found[column["name"]] = [value.item() for value in values]
        return found

    def _find_cells(self, row: int) -> list[int]:
        arrays, options = self.arrays, self.manifest["options"]
        lengths, layout = arrays["lengths"].tolist(), self.manifest["layout"]
        steps = range(lengths[row])
        if layout == "packed":
            sizes = arrays["batch_sizes"].tolist()
            return [sum(sizes[:step]) + row for step in steps]
        if layout == "padded":
            width = int(arrays["widths"][0])
            is_left = self.manifest["padding_side"] == "left"
            return [row * width + is_left * (width - lengths[row]) + step for step in steps]
        shared = arrays["row_indices"].tolist() if "row_indices" in arrays else [0] * len(lengths)
        first = sum(
            round_up(lengths[before], options["align_sequences"])
            for before in range(row)
            if shared[before] == shared[row]
        )
        if layout == "streams":
            return [(first + step) * options["batch_size"] + shared[row] for step in steps]
        return [shared[row] * options["max_tokens"] + first + step for step in steps]

    def is_sound(self) -> bool:
        """Return whether the arrays are those of a batch, and all ids and values are possible."""
        lengths, data = self.arrays["lengths"].tolist(), self.arrays["data"]
        num_filler = int(self.arrays.get("num_filler_rows", [0])[0])
        if not 0 <= num_filler < len(lengths):
            return False
        num_rows = len(lengths) - num_filler
        if min(lengths[:num_rows]) < 1 or sum(lengths[:num_rows]) > len(data):
            return False
        if any(lengths[num_rows:]) or (self.arrays["original_indices"][num_rows:] != -1).any():
            return False
        if data.min() < 0 or data.max() > self.side["max_id"]:
            return False
        is_shaped = self._fits_rows if self.manifest["layout"] in SHARED else self._fits_shape
        return is_shaped(lengths[:num_rows], num_filler) and self._has_sound_values(num_rows)

    def _fits_shape(self, lengths: list[int], num_filler: int) -> bool:
        arrays, size = self.arrays, len(self.arrays["data"])
        if self.manifest["layout"] == "packed":
            sizes = [sum(length > step for length in lengths) for step in range(max(lengths))]
            numbers = list(range(len(lengths)))
            is_matched = sorted(arrays.get("encoder_rows", numbers)) == numbers
            is_sorted = lengths == sorted(lengths, reverse=True)
            fits = arrays["batch_sizes"].tolist() == sizes and sum(sizes) == size
            return fits and is_matched and is_sorted
        width = int(arrays["widths"][0])
        is_sorted = self.is_decoder or lengths == sorted(lengths, reverse=True)
        return is_sorted and width * (len(lengths) + num_filler) == size and max(lengths) <= width

    def _fits_rows(self, lengths: list[int], _: int) -> bool:
        options, size = self.manifest["options"], len(self.arrays["data"])
        rounded = [round_up(length, options["align_sequences"]) for length in lengths]
        if "row_indices" not in self.arrays:
            return sum(rounded) == size
        most = options["max_tokens"]
        num_rows = size // most
        if self.manifest["layout"] == "streams":
            num_rows, most = options["batch_size"], size // options["batch_size"]
            resets, next_ids = self.arrays["resets"], self.arrays["next_ids"]
            if not {*resets.tolist()} <= {0, 1} or next_ids.min() < -1:
                return False
            if next_ids.max() > self.side["max_id"]:
                return False
        shared, totals = self.arrays["row_indices"].tolist(), Counter[int]()
        for row, length in zip(shared, rounded, strict=True):
            totals[row] += length
        is_rectangle = num_rows * most == size and num_rows <= options["batch_size"]
        is_inside = shared == sorted(shared) and shared[0] >= 0 and shared[-1] < num_rows
        return is_rectangle and is_inside and max(totals.values()) <= most

    def _has_sound_values(self, num_rows: int) -> bool:
        is_padding = np.ones(len(self.arrays["data"]), bool)
        is_padding[[cell for cells in self.cells for cell in cells]] = False
        if (self.arrays["data"][is_padding] != self.side["pad_id"]).any():
            return False
        for column in self.side["columns"]:
            values, kind = self.arrays[f"column.{column['name']}"], column["kind"]
            fill, is_per_token = FILLS[kind], kind in PER_TOKEN
            unused = values[is_padding] if is_per_token else values[num_rows:]
            used = values[~is_padding] if is_per_token else values[:num_rows]
            if any(value != fill for value in unused):
                return False
            if not all(_is_possible(value, column, is_per_token) for value in used):
                return False
        return True


def _is_possible(value: Any, column: dict[str, Any], is_per_token: bool) -> bool:
    if column["kind"] == "text":
        return bool(value.decode(errors="replace").encode() == value)
    if "class_names" in column:
        return 0 <= value < len(column["class_names"]) or (is_per_token and value == -100)
    return bool(np.isfinite(value)) and (column["kind"] != "targets" or value <= 1)


def read_batches(
    folder: Path, prefix: str = "", number: int | None = None
) -> Iterator[PageBatch | None]:
    """Read the batches of all shards, or of one; None for those of unsound offsets."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    side = manifest["decoder"] if prefix else manifest
    per_token = {f"column.{each['name']}" for each in side["columns"] if each["kind"] in PER_TOKEN}
    entries = manifest["shards"]
    for entry in entries if number is None else entries[number : number + 1]:
        arrays = {
            name.removeprefix(prefix): array
            for name, array in safetensors.numpy.load_file(folder / entry["name"]).items()
            if name.startswith("decoder.") == bool(prefix)
        }
        ends = {"sequence": "lengths", "data": "data", "step": "batch_sizes"}
        of_batches = {name: arrays.get(f"{name}_offsets") for name in ends}
        is_sound = all(
            _rise(offsets, len(arrays[ends[name]]), is_strict=True)
            for name, offsets in of_batches.items()
            if offsets is not None
        )
        for name in [name for name in arrays if name.endswith(".offsets")]:
            offsets, raw = arrays.pop(name), arrays[name.removesuffix(".offsets")].tobytes()
            is_sound &= _rise(offsets, len(raw), is_strict=False)
            texts = [raw[first:end] for first, end in pairwise(offsets.tolist())]
            arrays[name.removesuffix(".offsets")] = texts
        for batch in range(entry["num_batches"]):
            places = {
                name: slice(*map(int, offsets[batch : batch + 2]))
                for name, offsets in of_batches.items()
                if offsets is not None
            }
            of_names = dict.fromkeys(("widths", "num_filler_rows"), slice(batch, batch + 1))
            of_names |= dict.fromkeys(("data", *per_token), places["data"])
            of_names |= {"batch_sizes": places.get("step", places["data"])}
            found = {
                name: array[of_names.get(name, places["sequence"])]
                for name, array in arrays.items()
                if not name.endswith("_offsets")
            }
            yield PageBatch(manifest, side, found) if is_sound else None


def _rise(offsets: np.ndarray, end: int, *, is_strict: bool) -> bool:
    steps = np.diff(offsets.astype(object))
    return bool(offsets[0] == 0 and offsets[-1] == end and (steps >= int(is_strict)).all())


def join_rows(batches: list[PageBatch]) -> dict[int, dict[str, Any]]:
    """Put pieces and visits together: the `ids` and columns of each sequence by its index.

    Raises:
        ValueError: an index is not one of the stores, a piece is missing, or visits differ.
    """
    rows: dict[int, dict[str, Any]] = {}
    stops: dict[int, int] = {}
    side = batches[0].side
    per_token = {each["name"] for each in side["columns"] if each["kind"] in PER_TOKEN}
    for batch in batches:
        columns, ids = batch.columns, batch.arrays["data"].tolist()
        lengths = batch.arrays["lengths"].tolist()
        firsts = batch.arrays.get("piece_starts", np.zeros(len(lengths), int)).tolist()
        for row, index in enumerate(batch.arrays["original_indices"].tolist()):
            if not lengths[row]:
                continue
            known = rows.setdefault(index, {"ids": {}, **{name: {} for name in per_token}})
            stops[index] = max(stops.get(index, 0), firsts[row] + lengths[row])
            for step, cell in enumerate(batch.cells[row], firsts[row]):
                found = {"ids": ids[cell], **{name: columns[name][cell] for name in per_token}}
                for name, value in found.items():
                    if known[name].setdefault(step, value) != value:
                        raise ValueError(f"sequence {index} differs in {name}")
            for name in columns.keys() - per_token:
                if known.setdefault(name, columns[name][row]) != columns[name][row]:
                    raise ValueError(f"sequence {index} differs in {name}")
    num_sequences = sum(each["num_sequences"] for each in side["stores"])
    for index, row in rows.items():
        end = stops[index]
        if len(row["ids"]) != end or min(row["ids"]) != 0:
            raise ValueError(f"sequence {index} has missing pieces")
        if not 0 <= index < num_sequences:
            raise ValueError(f"no store has sequence {index}")
        for name in ("ids", *per_token):
            row[name] = [row[name][step] for step in range(end)]
    return {index: rows[index] for index in sorted(rows)}
