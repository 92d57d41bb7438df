"""Fuzz targets: the bytes choose a file of a correct folder, its damage, and one use of the folder.

`fuzz_...(data)` returns the `Outcome` of one execution; any finding is raised. Folders of each
layout are built once per process, in a tmpfs if there is one; an execution replaces the files that
it damages and restores them, in about 0.5 ms. Sizes, counts and digests in the manifest are often
corrected, so that the first check does not find the damage.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from fuzz_lab import FILE_KINDS, MANIFEST, SHARDS, Files, Seed, open_lab, put_kind, replace_files
from fuzz_mutators import (
    NUMBERS,
    Choices,
    Edit,
    JsonText,
    apply_edits,
    draw_edits,
    mutate_array,
    mutate_raw,
    spell,
)
from fuzz_tokenizers import spell_tokenizer
from fuzz_uses import (
    REPORT_USES,
    SHARDS_USES,
    STORE_USES,
    Outcome,
    Use,
    pack_and_read,
    run_use,
    run_verify,
)
from shard_reference import Arrays, load_shard

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.files.disk import name_temporary
from seqpack_cli.tokens.part_files import CODE_OF_DTYPE, HEADER, MAGIC


def fuzz_manifest(data: bytes) -> Outcome:
    """Damage the manifest of a token store."""
    choices = Choices(data)
    seed = choices.choose(open_lab().stores)
    return _run(seed, {MANIFEST: _damage_json(seed.manifest, choices)}, choices)


def fuzz_shards_manifest(data: bytes) -> Outcome:
    """Damage the manifest of shards."""
    choices = Choices(data)
    seed = choices.choose(open_lab().shards)
    return _run(seed, {MANIFEST: _damage_json(seed.manifest, choices)}, choices)


def fuzz_index(data: bytes) -> Outcome:
    """Damage an `.idx`, and correct its entry in the manifest."""
    choices = Choices(data)
    seed = choices.choose(open_lab().stores)
    name = choices.choose([name for name in seed.files if name.endswith(".idx")])
    raw = seed.files[name]
    if choices.one_in(6):
        return _run(seed, _fix_manifest(seed, {name: mutate_raw(raw, choices)}, choices), choices)
    _, version, code, num_sequences, num_firsts = HEADER.unpack_from(raw)
    head = [version, code, num_sequences, num_firsts]
    arrays = _read_arrays(raw, num_sequences, num_firsts)
    for _ in range(choices.choose((1, 1, 2, 3))):
        place = choices.below(3)
        arrays[place] = mutate_array(arrays[place], choices, keeps_length=not choices.one_in(3))
    if not choices.one_in(3):  # make starts and documents fit the lengths
        itemsize = 2 if code == CODE_OF_DTYPE["uint16"] else 4
        ends = np.cumsum(arrays[0], dtype=np.int64)
        arrays[1] = (ends - arrays[0]) * itemsize
        if choices.one_in(2):
            firsts = np.sort(arrays[2] % (len(arrays[0]) + 1))
            arrays[2] = np.concatenate([[0], firsts[1:-1], [len(arrays[0])]])
    head[2:] = len(arrays[0]), len(arrays[2])
    if choices.one_in(6):
        head[choices.below(4)] = choices.choose(NUMBERS)
    head = [head[0] % 2**64, head[1] % 256, head[2] % 2**64, head[3] % 2**64]
    raw = HEADER.pack(MAGIC, *head) + b"".join(array.tobytes() for array in arrays)
    part = int(name[5:10])
    counts = {
        "num_sequences": len(arrays[0]),
        "num_documents": len(arrays[2]) - 1,
        "num_tokens": int(arrays[0].sum(dtype=np.int64)),
    }
    changes: Files = {name: raw}
    if choices.one_in(2) and 0 <= counts["num_tokens"] < 1000:
        itemsize = 2 if head[1] == CODE_OF_DTYPE["uint16"] else 4
        ids = name.removesuffix(".idx") + ".bin"
        changes[ids] = np.resize(
            np.arange(14, dtype=f"<i{itemsize}"), counts["num_tokens"]
        ).tobytes()
    edits = [seed.manifest.set(("parts", part, key), value) for key, value in counts.items()]
    return _run(seed, _fix_manifest(seed, changes, choices, edits), choices)


def fuzz_ids(data: bytes) -> Outcome:
    """Damage a `.bin`."""
    choices = Choices(data)
    seed = choices.choose(open_lab().stores)
    name = choices.choose([name for name in seed.files if name.endswith(".bin")])
    raw = seed.files[name]
    dtype = np.dtype("<u2" if seed.folder.parent.name == "narrow" else "<i4")
    array = np.frombuffer(raw, dtype)
    array = mutate_array(array, choices, keeps_length=not choices.one_in(8))
    raw = mutate_raw(raw, choices) if choices.one_in(4) else array.tobytes()
    return _run(seed, _fix_manifest(seed, {name: raw}, choices), choices)


def fuzz_shard(data: bytes) -> Outcome:
    """Change the arrays of a shard, and correct its entry in the manifest."""
    return _fuzz_arrays(Choices(data), open_lab().shards)


def fuzz_columns(data: bytes) -> Outcome:
    """Change the columns of a part of a store, or its file, and correct the manifest."""
    choices = Choices(data)
    fuzz = _fuzz_header if choices.one_in(3) else _fuzz_arrays
    return fuzz(choices, open_lab().stores)


def fuzz_shard_header(data: bytes) -> Outcome:
    """Damage a shard file, in its header or anywhere."""
    return _fuzz_header(Choices(data), open_lab().shards)


def _fuzz_arrays(choices: Choices, seeds: Sequence[Seed]) -> Outcome:
    seed = choices.choose(seeds)
    name = choices.choose([name for name in seed.files if name.endswith(".safetensors")])
    good, metadata = _load_arrays(seed.folder / name)
    arrays = dict(good)
    for _ in range(choices.choose((1, 1, 2, 3))):
        breaks_offsets = choices.one_in(4)
        names = [key for key in arrays if breaks_offsets or not key.endswith("_offsets")]
        tensor = choices.choose(names or list(arrays))
        arrays[tensor] = mutate_array(arrays[tensor], choices, keeps_length=not breaks_offsets)
        if choices.one_in(24) and len(arrays) > 1:
            del arrays[tensor]
    raw = _join_shard(_make_header(arrays, metadata).raw, arrays)
    counts_rows = seed.entries == "shards" and choices.one_in(2)
    edits = _count_rows(seed, name, arrays) if counts_rows else []
    return _run(seed, _fix_manifest(seed, {name: raw}, choices, edits), choices)


def _fuzz_header(choices: Choices, seeds: Sequence[Seed]) -> Outcome:
    seed = choices.choose(seeds)
    name = choices.choose([name for name in seed.files if name.endswith(".safetensors")])
    arrays, _ = _load_arrays(seed.folder / name)
    kind = choices.below(8)
    if kind == 0:
        raw = mutate_raw(seed.files[name], choices)
    else:
        header = _make_good_header(seed.folder / name)
        text = apply_edits(header.raw, _draw_lies(header, arrays, choices))
        if kind < 6:
            text = apply_edits(header.raw, draw_edits(header, choices))
        length = choices.choose(NUMBERS) % 2**64 if kind == 7 else None
        raw = _join_shard(text, arrays, length=length)
    return _run(seed, _fix_manifest(seed, {name: raw}, choices), choices)


def fuzz_tokenizer_json(data: bytes) -> Outcome:
    """Damage the tokenizer.json of a folder, or its run.json, which is only shown."""
    choices = Choices(data)
    lab = open_lab()
    seed = choices.choose([*lab.stores, *lab.shards])
    name = choices.choose(("tokenizer.json", "tokenizer.json", "tokenizer.json", "run.json"))
    text = _damage_json(spell_tokenizer(seed.files[name], choices.below(8)), choices)
    edit = seed.manifest.set(("tokenizer_blake3",), blake3(text).hexdigest())
    changes: Files = {name: text}
    if name == "tokenizer.json":
        changes[MANIFEST] = apply_edits(seed.manifest.raw, [edit])
    return _run(seed, changes, choices)


def fuzz_file_kinds(data: bytes) -> Outcome:
    """Replace a file by a link, a pipe, a folder, a socket, or nothing."""
    choices = Choices(data)
    lab = open_lab()
    seed = choices.choose([*lab.stores, *lab.shards])
    name = choices.choose(sorted(seed.files))
    kind = choices.choose(sorted(FILE_KINDS))
    changes = _damage_entry(seed, name, choices) if choices.one_in(4) else {}
    with put_kind(seed.folder / name, kind):
        return _run(seed, changes, choices)


def fuzz_output_folder(data: bytes) -> Outcome:
    """Pack into a folder that contains a hostile plan, receipts, shards or manifest."""
    choices = Choices(data)
    lab = open_lab()
    seed = choices.choose(lab.shards[: len(SHARDS)])
    options = PackOptions(**SHARDS[seed.folder.name])
    output = lab.root / "output"
    output.mkdir()
    try:
        for name, raw in _draw_unfinished(seed, choices).items():
            (output / name).write_bytes(raw)
        if choices.one_in(3):
            name, kind = choices.choose(OUTPUT_NAMES), choices.choose(sorted(FILE_KINDS))
            with put_kind(output / name, kind):
                return _pack(lab.stores[0].folder, output, options, choices)
        return _pack(lab.stores[0].folder, output, options, choices)
    finally:
        shutil.rmtree(output, ignore_errors=True)


def _pack(store: Path, output: Path, options: PackOptions, choices: Choices) -> Outcome:
    def pack_into(folder: Path, choices: Choices) -> Iterator[None]:
        yield from pack_and_read(folder, output, options, overwrite=choices.one_in(3))

    return run_use(pack_into, store, choices)


def _run(seed: Seed, changes: Files, choices: Choices) -> Outcome:
    """Use a damaged folder, and restore it."""
    if seed.entries == "shards":
        with replace_files(seed, changes):
            return run_use(_choose_use(SHARDS_USES, choices), seed.folder, choices)
    if not choices.one_in(24):
        with replace_files(seed, changes):
            return run_use(_choose_use(STORE_USES, choices), seed.folder, choices)
    # The store through its shards, which call it theirs.
    lab = open_lab()
    shards = choices.choose([one for one in lab.shards if one.folder.parent == seed.folder.parent])
    manifest = changes.get(MANIFEST, seed.manifest.raw) or b""
    edit = shards.manifest.set(("stores", 0, "blake3"), blake3(manifest).hexdigest())
    theirs: Files = {MANIFEST: apply_edits(shards.manifest.raw, [edit])}
    with replace_files(seed, changes), replace_files(shards, theirs):
        return run_use(run_verify, shards.folder, choices)


def _choose_use(uses: Sequence[Use], choices: Choices) -> Use:
    return choices.choose(REPORT_USES if choices.one_in(12) else uses)


def _damage_json(text: JsonText, choices: Choices) -> bytes:
    if choices.one_in(10):
        return mutate_raw(text.raw, choices)
    return apply_edits(text.raw, draw_edits(text, choices))


def _fix_manifest(
    seed: Seed, changes: Mapping[str, bytes | None], choices: Choices, edits: Sequence[Edit] = ()
) -> Files:
    """Correct the sizes (mostly) and checksums (sometimes) of changed files in the manifest."""
    edits = list(edits)
    fixes_checksum = choices.one_in(2)
    if choices.one_in(16):
        return dict(changes)
    for name, raw in changes.items():
        path = _find_entry(seed, name)
        if raw is None:
            continue
        edits.append(seed.manifest.set((*path, "bytes"), len(raw)))
        if fixes_checksum:
            edits.append(seed.manifest.set((*path, "blake3"), blake3(raw).hexdigest()))
    if choices.one_in(24):
        edits = [*draw_edits(seed.manifest, choices), *edits]
    return {**changes, MANIFEST: apply_edits(seed.manifest.raw, edits)}


def _find_entry(seed: Seed, name: str) -> tuple[str | int, ...]:
    number = int(name.split(".")[0][-5:])
    if seed.entries == "shards":
        return ("shards", number)
    endings = (".bin", ".idx", ".columns.safetensors")
    return ("parts", number, "files", list(map(name.endswith, endings)).index(True))


def _read_arrays(raw: bytes, num_sequences: int, num_firsts: int) -> list[np.ndarray]:
    place = HEADER.size
    lengths = np.frombuffer(raw, "<i4", num_sequences, place)
    place += lengths.nbytes
    starts = np.frombuffer(raw, "<i8", num_sequences, place)
    return [lengths, starts, np.frombuffer(raw, "<i8", num_firsts, place + starts.nbytes)]


@functools.lru_cache(maxsize=64)
def _load_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Load a correct file in its order; call it before the file is damaged."""
    arrays, metadata = load_shard(path)
    return dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize)), metadata


@functools.lru_cache(maxsize=64)
def _make_good_header(path: Path) -> JsonText:
    return _make_header(*_load_arrays(path))


def _make_header(arrays: Arrays, metadata: Mapping[str, str]) -> JsonText:
    """Return a safetensors header for arrays."""
    names = {
        **{"uint8": "U8", "uint16": "U16", "int32": "I32", "int64": "I64"},
        **{"uint64": "U64", "float64": "F64"},
    }
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": names[array.dtype.name],
            "shape": [len(array)],
            "data_offsets": [start, end],
        }
    return spell(header)


def _join_shard(header: bytes, arrays: Arrays, *, length: int | None = None) -> bytes:
    header += b" " * (-len(header) % 8)
    head = (len(header) if length is None else length).to_bytes(8, "little")
    return b"".join([head, header, *(array.tobytes() for array in arrays.values())])


def _draw_lies(header: JsonText, arrays: Arrays, choices: Choices) -> list[Edit]:
    """Draw a false description of arrays, of the same size or larger than any memory."""
    edits = []
    for name in {choices.choose(list(arrays)) for _ in range(2)}:
        count, itemsize = len(arrays[name]), arrays[name].itemsize
        dtypes = {1: ("BOOL", "I8"), 2: ("F16", "BF16", "I16"), 4: ("F32", "U32", "I32")}
        dtypes |= {8: ("F64", "U64", "C64")}
        shapes = [[count, 1], [1, count], [], [count, 0], [0], [2**62, 2**62], [2**63], [2**61]]
        kind = choices.below(4)
        if kind == 0:
            edits.append(header.set((name, "dtype"), choices.choose(dtypes[itemsize])))
        elif kind == 1:
            edits.append(header.set((name, "shape"), choices.choose(shapes)))
        elif kind == 2:
            dtype = choices.choose(("BOOL", "U8", "F8_E5M2", "F8_E4M3", "I8", "F4", "E8M0"))
            edits.append(header.set((name, "dtype"), dtype))
            bytes_per_item = 2 * itemsize if dtype == "F4" else itemsize
            edits.append(header.set((name, "shape"), [count * bytes_per_item]))
        else:
            other = choices.choose(list(arrays))
            start, end = header.places[(other, "data_offsets")]
            places = header.places[(name, "data_offsets")]
            edits.append((*places, header.raw[start:end]))
    return edits


def _count_rows(seed: Seed, name: str, arrays: Arrays) -> list[Edit]:
    """Correct the counts in the manifest for a shard's changed arrays."""
    path = _find_entry(seed, name)
    counts = {}
    if len(arrays.get("lengths", ())):
        counts = {"num_rows": len(arrays["lengths"]), "longest": int(arrays["lengths"].max())}
    if len(arrays.get("data_offsets", ())):
        counts["num_batches"] = len(arrays["data_offsets"]) - 1
    return [seed.manifest.set((*path, key), value) for key, value in counts.items()]


def _damage_entry(seed: Seed, name: str, choices: Choices) -> Files:
    """Set the size of a file in the manifest to that of its possible replacement."""
    if not name.startswith(("part-", "shard-")):
        return {}
    size = choices.choose((0, 1, 4096))
    edit = seed.manifest.set((*_find_entry(seed, name), "bytes"), size)
    return {MANIFEST: apply_edits(seed.manifest.raw, [edit])} if name != MANIFEST else {}


OUTPUT_NAMES = (
    *("manifest.json", "plan.json", "run.json", "tokenizer.json", ".lock", "shard-00000.json"),
    *("shard-00000.safetensors", "shard-00001.safetensors", ".manifest.json.1.tmp", "notes.txt"),
    *(name_temporary(Path(name)).name for name in ("plan.json", "shard-00000.safetensors")),
)


def _draw_unfinished(seed: Seed, choices: Choices) -> dict[str, bytes]:
    """Draw the output of a stopped or finished pack run, with one file damaged."""
    manifest = json.loads(seed.manifest.raw)
    names = ("format", "format_version", "layout", "dtype", "pad_id", "padding_side")
    names += ("tokenizer_blake3", "columns", "options")
    plan = {name: manifest[name] for name in ("plan_version", *names)}
    plan["stores"] = [dict(entry) for entry in manifest["stores"]]
    for entry in plan["stores"]:
        del entry["path"]
    texts = {"plan.json": spell(plan)}
    for entry in manifest["shards"]:
        texts[f"{entry['name'].split('.')[0]}.json"] = spell(entry)
    if choices.one_in(4):
        texts = {MANIFEST: seed.manifest}
    files = {name: text.raw for name, text in texts.items()}
    files |= {name: seed.files[name] for name in seed.files if name.endswith(".safetensors")}
    name = choices.choose(list(files))
    if name in texts:
        files[name] = _damage_json(texts[name], choices)
    else:
        files[name] = mutate_raw(files[name], choices)
    if choices.one_in(3):
        del files[choices.choose(list(files))]
    return files


TARGETS: dict[str, Callable[[bytes], Outcome]] = {
    "manifest": fuzz_manifest,
    "shards_manifest": fuzz_shards_manifest,
    "index": fuzz_index,
    "ids": fuzz_ids,
    "columns": fuzz_columns,
    "shard": fuzz_shard,
    "shard_header": fuzz_shard_header,
    "tokenizer_json": fuzz_tokenizer_json,
    "file_kinds": fuzz_file_kinds,
    "output_folder": fuzz_output_folder,
}
