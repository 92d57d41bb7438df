"""Slow plain-Python oracles for batches and layouts, and small stores and shards for tests.

`slow_...` computes what a function must return in the most obvious way. `make_store` and
`make_shards` run the real program on a small text file; `change_shard` rewrites a shard with other
arrays and updates the manifest's size and checksum, so that only a deeper check can notice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from blake3 import blake3

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.runs.workers import Executor
from seqpack_cli.shards.layouts import OFFSETS_OF, Batch, Geometry
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard import ARRAYS
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.tokenize_run import tokenize

Arrays = dict[str, np.ndarray]
PLAIN_GEOMETRY = Geometry()

# Two whole batches and a short one at batch_size 3; equal neighbours, a row of one id.
LENGTHS = (3, 9, 5, 1, 5, 12, 2)


def slow_length_order(lengths: Sequence[int]) -> list[int]:
    """Return indices, longest first, ties by index."""
    return sorted(range(len(lengths)), key=lambda index: (-int(lengths[index]), index))


def slow_pack(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return data and batch_sizes of rows that are longest first."""
    data: list[int] = []
    batch_sizes = []
    for step in range(max(map(len, rows))):
        alive = [int(row[step]) for row in rows if len(row) > step]
        data += alive
        batch_sizes.append(len(alive))
    return data, batch_sizes


def slow_pad(
    rows: Sequence[Sequence[int]], *, width: int, padding_value: int, padding_side: str = "right"
) -> list[list[int]]:
    """Return a rectangle as a list of rows."""
    rectangle = []
    for row in rows:
        padding = [padding_value] * (width - len(row))
        ids = [int(id_) for id_ in row]
        rectangle.append([*padding, *ids] if padding_side == "left" else [*ids, *padding])
    return rectangle


def lay_out(
    layout: str,
    rows: Sequence[np.ndarray],
    indices: np.ndarray,
    *,
    pad_id: int = 0,
    width: int | None = None,
    padding_side: str = "right",
    num_filler_rows: int = 0,
    piece_starts: np.ndarray | None = None,
) -> Batch:
    """Make one batch of rows the slow way, longest first for `packed` and `padded`.

    Args:
        width, padding_side, num_filler_rows: of `padded`; None is the longest row's width.
        piece_starts: of `varlen`; None means that no row is a later piece.
    """
    dtype = rows[0].dtype
    lengths = np.array([len(row) for row in rows], np.int64)
    if layout == "packed":
        data, batch_sizes = slow_pack(list(rows))
        return PackedBatch(np.array(data, dtype), np.array(batch_sizes, np.int64), lengths, indices)
    if layout == "varlen":
        starts = np.zeros_like(lengths) if piece_starts is None else piece_starts
        return VarlenBatch(np.concatenate(rows), lengths, indices, starts)
    cells = slow_pad(
        [*rows, *[[]] * num_filler_rows],
        width=max(map(len, rows)) if width is None else width,
        padding_value=pad_id,
        padding_side=padding_side,
    )
    return PaddedBatch(
        np.array(cells, dtype),
        np.append(lengths, np.full(num_filler_rows, 0)),
        np.append(indices, np.full(num_filler_rows, -1)),
        padding_side,
        num_filler_rows,
    )


def to_arrays(batch: Batch) -> Arrays:
    """Return the flat arrays of a batch, in file order."""
    own: Arrays = {}
    if isinstance(batch, PackedBatch):
        own["batch_sizes"] = batch.batch_sizes
    elif isinstance(batch, PaddedBatch):
        own["widths"] = np.array([batch.ids.shape[1]])
    else:
        assert isinstance(batch, (VarlenBatch, StreamsBatch))
        own["piece_starts"] = batch.piece_starts
        if batch.row_indices is not None:
            own["row_indices"] = batch.row_indices
    if isinstance(batch, StreamsBatch):
        own |= {"resets": batch.resets, "next_ids": batch.next_ids}
    first = {"lengths": batch.lengths, "original_indices": batch.original_indices}
    return {**first, **own, "data": batch.data}


def join_batches(
    layout: str, batches: Sequence[Batch], geometry: Geometry = PLAIN_GEOMETRY
) -> Arrays:
    """Join the arrays of batches into those of a shard, one batch after another."""
    parts = [to_arrays(batch) for batch in batches]
    for part, batch in zip(parts, batches, strict=True):
        if geometry.has_filler_rows:
            assert isinstance(batch, PaddedBatch)
            part["num_filler_rows"] = np.array([batch.num_filler_rows])
    names = ARRAYS[layout]({}, geometry).tensor_names
    tensors = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name, offsets in OFFSETS_OF.items():
        if name in tensors:
            counts = [len(part[name]) for part in parts]
            tensors[offsets] = np.array([sum(counts[:end]) for end in range(len(counts) + 1)])
    return {name: tensors[name] for name in names}


def make_texts(lengths: Sequence[int], seed: int = 0) -> list[str]:
    """Draw texts of random letters, with these numbers of ids by the tokenizer `bytes`."""
    letters = random.Random(seed)
    return ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=n)) for n in lengths]


def make_store(folder: Path, texts: Sequence[str], **options: Any) -> Path:
    """Tokenize texts, one document per line, into folder/store."""
    folder.mkdir(parents=True, exist_ok=True)
    text_file = folder / "corpus.txt"
    text_file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    tokenize(
        [str(text_file)],
        folder / "store",
        TokenizeOptions(**options),
        executor=Executor(num_workers=1),
    )
    return folder / "store"


KEEP = ("label:class", "score:float", "number:int", "id:text", "tags:tags")


def make_column_store(folder: Path, texts: Sequence[str], **options: Any) -> Path:
    """Tokenize texts with a column of each kind, KEEP, into folder/store; draw the values."""
    draws = random.Random(len(texts))
    records = [
        {
            **{"text": text, "label": draws.choice(["ham", "spam", "eggs"]), "score": number / 4},
            **{"number": draws.randint(-(2**63), 2**63 - 1), "id": f"é{number}"},
            "tags": [[0, 1, draws.choice("XY")]] if text.strip() else [],
        }
        for number, text in enumerate(texts)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    kept, one = TokenizeOptions(keep=KEEP, **options), Executor(num_workers=1)
    tokenize([str(corpus)], folder / "store", kept, executor=one)
    return folder / "store"


def make_shards(
    folder: Path,
    lengths: Sequence[int] = LENGTHS,
    *,
    seed: int = 0,
    has_columns: bool = False,
    **options: Any,
) -> Path:
    """Make folder/store of random texts of these lengths, and pack it into folder/shards."""
    make = make_column_store if has_columns else make_store
    store = make(folder, make_texts(lengths, seed))
    if options.get("layout") not in ("varlen", "streams"):
        options.setdefault("batch_size", 3)
    pack(store, folder / "shards", PackOptions(**options), executor=Executor(num_workers=1))
    return folder / "shards"


def read_manifest_json(folder: Path) -> dict[str, Any]:
    """Read manifest.json as plain JSON."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return manifest


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite the manifest; `change` changes it in place."""
    manifest = read_manifest_json(folder)
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def plan_by_another_version(folder: Path) -> None:
    """Record another plan version in the manifest: verify cannot plan these shards again."""
    change_manifest(folder, lambda manifest: manifest.update(plan_version=2**31))


def load_shard(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Read the arrays and metadata of a shard with the safetensors library."""
    with safetensors.safe_open(path, "numpy") as file:
        return safetensors.numpy.load_file(path), dict(file.metadata())


def mend_manifest(shards: Path, number: int = 0, **values: Any) -> None:
    """Set size and checksum of a shard in the manifest to the file's, and other values."""

    def change(manifest: dict[str, Any]) -> None:
        entry = manifest["shards"][number]
        raw = (shards / entry["name"]).read_bytes()
        entry.update(bytes=len(raw), blake3=blake3(raw).hexdigest(), **values)

    change_manifest(shards, change)


def change_shard(
    shards: Path, change: Callable[[Arrays], object], *, number: int = 0, **values: Any
) -> None:
    """Rewrite a shard with changed arrays, and update its size and checksum in the manifest.

    Args:
        change: changes the dict of writable arrays in place.
        values: other values to set in the shard's entry of the manifest.
    """
    path = shards / read_manifest_json(shards)["shards"][number]["name"]
    loaded, metadata = load_shard(path)
    arrays = {name: array.copy() for name, array in loaded.items()}
    change(arrays)
    path.write_bytes(safetensors_bytes(arrays, metadata))
    mend_manifest(shards, number, **values)


def pretend_to_be_of(shards: Path, store: Path) -> None:
    """Make shards name a changed store as theirs, in the manifest and in each file."""
    digest = blake3((store / "manifest.json").read_bytes()).hexdigest()
    change_manifest(shards, lambda manifest: manifest["stores"][0].update(blake3=digest))
    for number, path in enumerate(sorted(shards.glob("*.safetensors"))):
        arrays, metadata = load_shard(path)
        path.write_bytes(safetensors_bytes(arrays, {**metadata, "stores_blake3": digest}))
        mend_manifest(shards, number)


def put(name: str, place: int, value: int) -> Callable[[Arrays], None]:
    """Return a function that changes one entry, for `change_shard`."""

    def change(arrays: Arrays) -> None:
        arrays[name][place] = value

    return change


def safetensors_bytes(arrays: Arrays, metadata: dict[str, str]) -> bytes:
    """Return the bytes of a safetensors file, made after its specification."""
    names = {
        **{"uint8": "U8", "uint16": "U16", "int32": "I32", "int64": "I64", "uint64": "U64"},
        **{"float32": "F32", "float64": "F64"},
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    body = b""
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].itemsize):
        raw = array.tobytes()
        header[name] = {
            "dtype": names[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def flip_byte(path: Path, position: int) -> None:
    """Change one byte of a file; the position may count from the end."""
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1
    path.write_bytes(raw)
