"""The tensors of a batch as torch's own functions make them of the rows that the page reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from oracle.batches import FILLS, PageBatch
from oracle.labels import IGNORE, find_kinds, force, make_labels
from oracle.stores import PER_TOKEN
from torch.nn.functional import pad
from torch.nn.utils import rnn

KINDS = ("PackedTensors", "PaddedTensors", "VarlenTensors", "StreamTensors")
Spelled = dict[str, Any]


def spell(value: Any) -> Any:
    """Return what can be compared: a tensor as its type and numbers, a batch as its fields."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, rnn.PackedSequence):
        return tuple(map(spell, value))
    if isinstance(value, dict):
        return {name: spell(found) for name, found in value.items()}
    if is_dataclass(value):
        found = {each.name: spell(getattr(value, each.name)) for each in fields(value)}
        return {"kind": type(value).__name__, **found}
    return value


def find_shape(page: PageBatch) -> tuple[int, ...]:
    """Return the shape of the ids."""
    options, size = page.manifest["options"], len(page.arrays["data"])
    if page.manifest["layout"] == "padded":
        return len(page.arrays["lengths"]), int(page.arrays["widths"][0])
    if page.manifest["layout"] == "streams":
        return size // options["batch_size"], options["batch_size"]
    if page.manifest["layout"] == "varlen" and options["batch_size"]:
        return size // options["max_tokens"], options["max_tokens"]
    return (size,)


def _int64(values: Any) -> torch.Tensor:
    return torch.tensor(list(map(int, values)), dtype=torch.int64)


def _pad(page: PageBatch, rows: Sequence[Sequence[int]], width: int, fill: int) -> torch.Tensor:
    """Pad rows to a width on the side of the shards."""
    side = page.manifest["padding_side"]
    tensors = [_int64(row) for row in rows]
    found = rnn.pad_sequence(tensors, True, fill, padding_side=side)
    more = width - found.shape[1]
    return pad(found, (more, 0) if side == "left" else (0, more), value=fill)


def expect(
    page: PageBatch, labels: str | None = None, names: Collection[str] | None = None
) -> Spelled:
    """Return the spelled item of a batch of single sequences.

    Args:
        names: the columns that it has; None: all.
    """
    arrays, layout, shape = page.arrays, page.manifest["layout"], find_shape(page)
    lengths, kinds = arrays["lengths"].tolist(), find_kinds(page)
    columns: dict[str, Any] = {}
    for name, kind in kinds.items():
        values = arrays[f"column.{name}"]
        if kind == "text":
            columns[name] = [text.decode() for text in values]
        elif kind == "float":
            columns[name] = torch.tensor(values.tolist(), dtype=torch.float64)
        else:
            columns[name] = _int64(values).view(shape if kind in PER_TOKEN else -1)
    found: Spelled = {
        "kind": dict(zip(("packed", "padded", "varlen", "streams"), KINDS, strict=True))[layout],
        "lengths": _int64(lengths),
        "original_indices": _int64(arrays["original_indices"]),
        "columns": {name: columns[name] for name in kinds if names is None or name in names},
        "labels": None,
    }
    if labels is not None:
        made = make_labels(page, labels)
        if kinds.get(labels) == "float":
            found["labels"] = torch.tensor(made, dtype=torch.float32)
        else:
            is_row = labels in kinds and kinds[labels] not in PER_TOKEN
            found["labels"] = _int64(made).view(-1 if is_row else shape)
    firsts = _int64(arrays.get("piece_starts", [0] * len(lengths)))
    if layout == "packed":
        found["sequences"] = rnn.pack_sequence([_int64(row) for row in page.rows])
    elif layout == "padded":
        found["ids"] = _pad(page, page.rows, shape[1], page.side["pad_id"])
        found["mask"] = _pad(page, [[1] * length for length in lengths], shape[1], 0) == 1
    else:
        found |= {"ids": _int64(arrays["data"]).view(shape), "piece_starts": firsts}
    if layout == "varlen":
        starts = [cells[0] for cells in page.cells]
        sums = [sum(lengths[:end]) for end in range(len(lengths) + 1)]
        size = len(arrays["data"])
        positions = torch.zeros(size, dtype=torch.int64)
        for cells in page.cells:
            positions[cells] = torch.arange(len(cells))
        padded = torch.tensor([*starts, size], dtype=torch.int32)
        found |= {
            "cu_seqlens": torch.tensor(sums, dtype=torch.int32),
            "cu_seqlens_padded": padded if size > sums[-1] else None,
            "max_seqlen": max(lengths),
            "position_ids": positions.view(shape),
            "labels_name": labels,
        }
    if layout == "streams":
        resets = torch.zeros(len(arrays["data"]), dtype=torch.bool)
        resets[[cells[0] for cells in page.cells]] = torch.tensor(arrays["resets"] == 1)
        found |= {"resets": resets.view(shape), "row_indices": _int64(arrays["row_indices"])}
    return {name: spell(value) for name, value in found.items()}


def expect_pair(
    pages: Sequence[PageBatch], labels: str | None, bos: int | None, eos: int | None
) -> Spelled:
    """Return the spelled item of a batch of pairs, with all columns of both sides."""
    encoder, decoder = pages
    arrays, kinds = decoder.arrays, find_kinds(decoder)
    found = expect(decoder)  # to begin with
    number = len(arrays["lengths"])
    of_encoder = arrays.get("encoder_rows", range(number))
    order = sorted(range(number), key=lambda row: of_encoder[row])
    forced = force(decoder, bos, eos, is_shifted=labels == "next")
    rows = [forced[row] for row in order]
    sizes = [len(row["ids"]) for row in rows]
    found["lengths"] = spell(_int64(sizes))
    found["original_indices"] = spell(_int64(arrays["original_indices"][order]))
    is_packed = decoder.manifest["layout"] == "packed"

    def lay_out(name: str, fill: int) -> Any:
        values = [row[name] for row in rows]
        if is_packed:
            return rnn.pack_sequence([_int64(each) for each in values], enforce_sorted=False)
        added = (bos is not None) + (eos is not None) - (labels == "next")
        return _pad(decoder, values, find_shape(decoder)[1] + added, fill)

    def beside(name: str, fill: int) -> torch.Tensor:
        made = lay_out(name, fill)
        return made.data if is_packed else made

    ids = lay_out("ids", decoder.side["pad_id"])
    if is_packed:
        found["sequences"] = spell(ids)
    else:
        mask = _pad(decoder, [[1] * size for size in sizes], ids.shape[1], 0) == 1
        found |= {"ids": spell(ids), "mask": spell(mask)}
    for name, kind in kinds.items():
        if kind in PER_TOKEN:
            found["columns"][name] = spell(beside(name, int(FILLS[kind])))
        elif kind == "text":
            found["columns"][name] = [found["columns"][name][row] for row in order]
        else:
            dtype, values = found["columns"][name]
            found["columns"][name] = dtype, [values[row] for row in order]
    made: Any = None
    if labels == "next":
        made = spell(beside("labels", IGNORE))
    elif labels is not None and labels.startswith("decoder."):
        name = labels.removeprefix("decoder.")
        dtype, values = expect(decoder, name)["labels"]
        is_row = kinds[name] not in PER_TOKEN
        made = (dtype, [values[row] for row in order]) if is_row else found["columns"][name]
    elif labels is not None:
        made = expect(encoder, labels)["labels"]
    return {"kind": "PairTensors", "encoder": expect(encoder), "decoder": found, "labels": made}
