"""Folders of a stranger, case by case: whatever stands in them, every use ends well or refuses.

Names that leave the folder, links, pipes, folders and devices in the place of files, headers that
lie, tensors of petabytes, JSON that no parser should be asked to read. Nothing waits, takes memory
without bound, or touches a file outside; the random cases are in test_fuzz.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from command import run
from fuzz_guard import limited
from fuzz_lab import FILE_KINDS, MANIFEST, Files, Seed, open_lab, put_kind, replace_files
from fuzz_mutators import Choices, apply_edits
from fuzz_uses import (
    SHARDS_USES,
    STORE_USES,
    Use,
    pack_anew,
    read_batches,
    read_store,
    run_inspect,
    run_unpack,
    run_use,
    run_verify,
    unpack_sequences,
)
from here import HERE
from shard_reference import Arrays, change_shard, make_shards

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import SeqpackError
from seqpack_cli.reporting.rows import describe_sequence
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.unpack import iter_unpacked
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize

SHARD = "shard-00000.safetensors"
# Bytes that make a use read all it can: checksums and tokenizer too, text and not ids.
THOROUGH: dict[Use, tuple[bytes, ...]] = {
    read_store: (b"\3",),
    read_batches: (b"\3",),
    run_inspect: (b"\0\0\0", b"\1\0\4", b"\0\0\6", b"\0\0\10"),
    run_unpack: (b"\0", b"\1"),
    run_verify: (b"\0", b"\1\1"),
    pack_anew: (b"\0", b"\4", b"\7"),
}
GROWTH = 256 << 20  # bytes of memory that no small folder needs


def find_seed(name: str) -> Seed:
    lab = open_lab()
    return next(seed for seed in (*lab.stores, *lab.shards) if seed.folder.name == name)


def use_all(
    seed: Seed, changes: Files, *, growth_bytes: int = GROWTH, uses: Sequence[Use] = ()
) -> dict[str, list[str | None]]:
    """Use a folder in some ways, or every way, under limits; give the errors by use."""
    uses = uses or (STORE_USES if seed.entries == "parts" else SHARDS_USES)
    with limited(growth_bytes=growth_bytes), replace_files(seed, changes):
        return {
            use.__name__: [
                run_use(use, seed.folder, Choices(data)).error
                for data in THOROUGH.get(use, (b"\1",))
            ]
            for use in dict.fromkeys(uses)
        }


def all_refused(errors: dict[str, list[str | None]], *, but: tuple[str, ...] = ()) -> bool:
    """Return whether every use but some ended with an error of the folder."""
    return all(
        error is not None and error.startswith("FolderError")
        for use, found in errors.items()
        for error in found
        if use not in but
    )


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """Import what the uses import, which takes more memory than they do."""
    for name in ("store", "packed", "left", "varlen"):
        use_all(find_seed(name), {}, growth_bytes=64 << 30)


@pytest.fixture(autouse=True)
def whole_folders() -> Any:
    """See that every test leaves the good folders as they were."""
    yield
    for seed in (*open_lab().stores, *open_lab().shards):
        assert {path.name: path.read_bytes() for path in seed.folder.iterdir()} == seed.files


FILES = [
    *(("store", name) for name in (MANIFEST, "part-00000.bin", "part-00001.idx", "tokenizer.json")),
    *(("packed", name) for name in (MANIFEST, "shard-00001.safetensors", "tokenizer.json")),
    *(("left", SHARD), ("varlen", SHARD), ("store", "run.json"), ("packed", "run.json")),
]
NO_FILES = [("packed", SHARD, kind) for kind in (*FILE_KINDS, "device")]
NO_FILES += [(*place, kind) for place in FILES for kind in ("pipe", "link")]


@pytest.mark.parametrize(("name", "file", "kind"), NO_FILES)
def test_what_is_no_file_is_refused_in_its_place(name: str, file: str, kind: str) -> None:
    seed = find_seed(name)
    with ExitStack() as stack:
        stack.enter_context(put_kind(seed.folder / file, kind if kind in FILE_KINDS else "nothing"))
        if kind == "device":
            try:
                os.mknod(seed.folder / file, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
            except PermissionError:
                pytest.skip("only root makes device nodes")
        errors = use_all(seed, {})
    if file == "run.json":  # which no reader needs
        assert errors == use_all(seed, {})
    elif file == "tokenizer.json":
        text_use = "run_inspect" if name == "store" else "run_unpack"
        assert "FolderError in _check_regular" in errors[text_use] or any(
            str(error).startswith("FolderError") for error in errors[text_use]
        )
    else:
        # What finds faults names this one; a store has no batches, shards no plan.
        assert all_refused(errors, but=("run_verify", "read_items", "run_inspect", "describe_all"))
        assert str(errors["run_inspect"][0]).startswith("FolderError")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("file", [SHARD, "tokenizer.json"])
def test_verify_names_what_is_no_file(kind: str, file: str) -> None:
    seed = find_seed("packed")
    with put_kind(seed.folder / file, kind), limited():
        result = run("verify", seed.folder, "--level", "structure")
    assert result.exit_code == 1
    assert f"structure: {file}: not a regular file" in result.stdout


HOSTILE_NAMES = (
    *("../x", "/etc/hostname", "..", ".", "", "a/b", "a\\b", "~", "x\0", "part-00000.bin\n", "-o"),
    *(f"./{SHARD}", f"../packed/{SHARD}", f"{SHARD}/", "x" * 300, "shard-00000", "CON", "\udcff"),
    *("part-00001", "part-00001.bin", "part-٠٠٠٠٠.bin", "manifest.json", "tokenizer.json"),
)


@pytest.mark.parametrize("new", HOSTILE_NAMES)
def test_name_of_a_manifest_that_is_not_its_own_is_refused(new: str) -> None:
    for name, path in (
        ("packed", ("shards", 0, "name")),
        ("store", ("parts", 0, "name")),
        ("store", ("parts", 0, "files", 0, "name")),
        ("store", ("parts", 0, "files", 1, "name")),
    ):
        seed = find_seed(name)
        edit = seed.manifest.set(path, new)
        assert all_refused(use_all(seed, {MANIFEST: apply_edits(seed.manifest.raw, [edit])}))


@pytest.mark.parametrize(
    "new", ["/", "..", "../..", "/etc", "/dev/zero", "/proc/self/fd/0", "x" * 9999]
)
def test_path_of_the_store_leads_to_a_store_or_nowhere(new: str) -> None:
    seed = find_seed("packed")
    edit = seed.manifest.set(("stores", 0, "path"), new)
    errors = use_all(seed, {MANIFEST: apply_edits(seed.manifest.raw, [edit])})
    assert errors["run_inspect"][2] is None
    assert str(errors["run_verify"][1]).startswith("FolderError")


def nest(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return b'{"a": ' + opening * depth + b"1" + closing * depth + b"}"


HOSTILE_TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: raw[:0],
    "zeros": lambda raw: bytes(len(raw)),
    "no text": lambda raw: b"\xff\xfe\x00" + raw,
    "another encoding": lambda raw: raw.decode().encode("utf-16-be") + b"\xd8\x00",
    "a list": lambda raw: b"[" + raw + b"]",
    "a text": lambda raw: b'"' + raw[:0] + b'"',
    "two of them": lambda raw: raw + raw,
    "cut": lambda raw: raw[:-1],
    "no end": lambda raw: raw + b",",
    "nested lists": lambda raw: raw[:-1] + b", " + nest(100_000)[1:],
    "nested objects": lambda raw: raw[:-1] + b", " + nest(100_000, b'{"a":', b"}")[1:],
    "nested without end": lambda raw: b"[" * 1_000_000 + raw,
    "a number of 5,000 digits": lambda raw: raw[:-1] + b', "a": ' + b"9" * 5000 + b"}",
    "a field twice": lambda raw: raw[:-1] + b', "format_version": 1}',
    "not a number": lambda raw: raw[:-1] + b', "a": NaN}',
    "infinite": lambda raw: raw[:-1] + b', "a": -Infinity}',
    "many empty lists": lambda raw: b"[" + b"[]," * 50_000 + raw + b"]",
}


@pytest.mark.parametrize("change", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_manifest_that_is_no_json_of_ours_is_refused(change: Callable[[bytes], bytes]) -> None:
    """Both kinds are read by `read_manifest`."""
    seed = find_seed("packed")
    assert all_refused(use_all(seed, {MANIFEST: change(seed.manifest.raw)}))


@pytest.mark.parametrize("name", ["store", "packed"])
@pytest.mark.parametrize("depth", [300, *range(970, 1000, 5)])
def test_manifest_may_be_nested_as_deep_as_json_goes(name: str, depth: int) -> None:
    """What is parsed on a short stack is shown on a longer one."""
    seed = find_seed(name)
    start, end = seed.manifest.places[("options",)]
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        changes: Files = {
            MANIFEST: apply_edits(seed.manifest.raw, [(start, end, nest(depth, opening, closing))])
        }
        use_all(seed, changes)


@pytest.mark.parametrize("size", [1 << 30, 1 << 40])
@pytest.mark.parametrize(
    ("name", "file"),
    [(name, file) for name in ("store", "packed") for file in (MANIFEST, "run.json")],
)
def test_file_of_a_gigabyte_is_refused_before_it_is_read(name: str, file: str, size: int) -> None:
    seed = find_seed(name)
    with put_kind(seed.folder / file, "nothing"):
        with (seed.folder / file).open("wb") as sparse:
            sparse.truncate(size)
        errors = use_all(seed, {}, growth_bytes=128 << 20)
    assert errors == use_all(seed, {}) if file == "run.json" else all_refused(errors)


def test_tokenizer_of_a_gigabyte_is_refused_before_it_is_read() -> None:
    seed = find_seed("packed")
    with put_kind(seed.folder / "tokenizer.json", "nothing"):
        with (seed.folder / "tokenizer.json").open("wb") as sparse:
            sparse.truncate(1 << 30)
        errors = use_all(seed, {}, growth_bytes=128 << 20)
    assert str(errors["run_unpack"][0]).startswith("FolderError")


def test_field_that_stands_twice_among_many_is_found_in_time() -> None:
    seed = find_seed("packed")
    many = b"".join(b'"%d": 0, ' % number for number in range(100_000))
    with limited(seconds=10), replace_files(seed, {MANIFEST: b"{" + many + b'"99999": 0}'}):
        assert run_use(read_batches, seed.folder, Choices(b"")).error is not None


def test_sparse_manifest_of_wide_characters_takes_no_gigabyte() -> None:
    """A hole of 256 MiB costs a stranger nothing."""
    seed = find_seed("packed")
    with put_kind(seed.folder / MANIFEST, "nothing"):
        (seed.folder / MANIFEST).write_bytes('{"a": "\U0001f600'.encode())
        with (seed.folder / MANIFEST).open("ab") as sparse:
            sparse.truncate(256 << 20)
        with limited(growth_bytes=1 << 30):
            assert run_use(read_batches, seed.folder, Choices(b"")).error is not None


@pytest.mark.parametrize(("use", "count"), [("unpack", 40_000), ("inspect", 80_000)])
def test_sequence_of_many_pieces_is_read_in_time(tmp_path: Path, use: str, count: int) -> None:
    """A shard of 1 or 2 MB took a minute, and one of 10 MB an hour."""
    path = make_shards(tmp_path, [5, 3], layout="varlen", max_tokens=100)

    def change(arrays: Arrays) -> None:
        arrays["lengths"], arrays["data"] = np.ones(count, np.int64), np.ones(count, np.uint16)
        arrays["original_indices"], arrays["piece_starts"] = np.zeros((2, count), np.int64)
        arrays["piece_starts"] += np.arange(count)
        arrays["sequence_offsets"] = arrays["data_offsets"] = np.array([0, count])

    change_shard(path, change, num_rows=count, num_batches=1, longest=1, num_tokens=count)
    shards = open_shards(path)
    with limited(seconds=15):
        if use == "unpack":
            assert [len(each.ids) for each in iter_unpacked(shards, {})] == [count]
        else:
            assert describe_sequence(shards, 0)["length"] == count


def header_of(raw: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return header


def join(header: bytes, raw: bytes, *, length: int | None = None) -> bytes:
    """Put another header before the arrays of a shard."""
    size = len(header) if length is None else length
    return size.to_bytes(8, "little") + header + raw[8 + int.from_bytes(raw[:8], "little") :]


def lie(name: str, **values: object) -> Callable[[bytes], bytes]:
    """Say something else of one tensor."""

    def change(raw: bytes) -> bytes:
        header = header_of(raw)
        header[name].update(values)
        return join(json.dumps(header).encode(), raw)

    return change


def rename(raw: bytes) -> bytes:
    header = header_of(raw)
    header["more"] = header.pop("lengths")
    return join(json.dumps(header).encode(), raw)


def overlap(raw: bytes) -> bytes:
    header = header_of(raw)
    header["original_indices"]["data_offsets"] = header["lengths"]["data_offsets"]
    return join(json.dumps(header).encode(), raw)


def repeat(raw: bytes) -> bytes:
    header = raw[8 : 8 + int.from_bytes(raw[:8], "little")].rstrip()
    entry = json.dumps({**header_of(raw)["lengths"], "shape": [1]})
    return join(header[:-1] + b',"lengths":' + entry.encode() + b"}", raw)


HEADERS: dict[str, Callable[[bytes], bytes]] = {
    "petabytes": lie("data", shape=[2**52], data_offsets=[0, 2**53]),
    "petabytes without a place": lie("data", shape=[2**52]),
    "a shape that wraps around": lie("data", shape=[2**62, 4]),
    "a shape beyond 64 bits": lie("data", shape=[2**64]),
    "a shape without end": lie("data", shape=[1] * 100_000),
    "an empty shape of many": lie("lengths", shape=[0, 2**62]),
    "no shape": lie("lengths", shape=[]),
    "a negative shape": lie("lengths", shape=[-1]),
    "a shape of a fraction": lie("lengths", shape=[7.0]),
    "a place that ends before it begins": lie("lengths", data_offsets=[56, 0]),
    "a place beyond the file": lie("lengths", data_offsets=[2**40, 2**40 + 56]),
    "a place that wraps around": lie("lengths", data_offsets=[2**64 - 8, 48]),
    "a negative place": lie("lengths", data_offsets=[-56, 0]),
    "bools": lie("lengths", dtype="BOOL", shape=[56]),
    "unsigned": lie("lengths", dtype="U64"),
    "floats": lie("lengths", dtype="F64"),
    "complex": lie("lengths", dtype="C64"),
    "bytes of 8 bits": lie("data", dtype="F8_E4M3", shape=[74]),
    "16-bit floats": lie("data", dtype="BF16"),
    "numbers of 4 bits": lie("lengths", dtype="F4", shape=[112]),
    "an unknown dtype": lie("lengths", dtype="I65"),
    "an object": lie("lengths", dtype="O"),
    "another name": rename,
    "one place twice": overlap,
    "one name twice": repeat,
    "a length of nothing": lambda raw: join(b"", raw),
    "a length beyond the file": lambda raw: join(b"{}", raw, length=10**6),
    "the longest length": lambda raw: join(b"{}", raw, length=2**64 - 1),
    "a length that wraps around": lambda raw: join(b"{}", raw, length=2**64 - 8),
    "an empty header": lambda raw: join(b"{}", raw),
    "a nested header": lambda raw: join(nest(100_000), raw),
    "nested metadata": lambda raw: join(b'{"__metadata__": ' + nest(100) + b"}", raw),
    "no text": lambda raw: join(b"\xff" * 64, raw),
    "many names": lambda raw: join(b"{" + b'"a":1,' * 150_000 + b'"a":1}', raw),
    "half of a length": lambda raw: raw[:4],
    "nothing": lambda raw: raw[:0],
    "half": lambda raw: raw[: len(raw) // 2],
    "more": lambda raw: raw + bytes(8),
    "pickle": lambda raw: b"\x80\x04cos\nsystem\n(S'true'\ntR." + raw,
    "a zip file": lambda raw: b"PK\x03\x04" + raw,
}


READING = (read_batches, unpack_sequences, run_verify)  # what every other use does first, or less
EVERYWHERE = ("petabytes", "an unknown dtype", "half")


@pytest.mark.parametrize("name", HEADERS)
def test_header_that_lies_is_refused(name: str) -> None:
    """Size and checksum in the manifest are those of the file."""
    seed = find_seed("packed")
    changed = HEADERS[name](seed.files[SHARD])
    files = {SHARD: changed, **mend(seed, ("shards", 0), changed)}
    errors = use_all(seed, files, uses=() if name in EVERYWHERE else READING)
    assert all_refused({name: errors[name] for name in ("read_batches", "unpack_sequences")})
    assert errors["run_verify"][0] is None or all_refused(errors)  # a fault that it finds


def mend(seed: Seed, path: tuple[str | int, ...], raw: bytes) -> Files:
    """Return a manifest that names size and checksum of a changed file."""
    edits = [
        seed.manifest.set((*path, "bytes"), len(raw)),
        seed.manifest.set((*path, "blake3"), blake3(raw).hexdigest()),
    ]
    return {MANIFEST: apply_edits(seed.manifest.raw, edits)}


def index_of(
    lengths: Sequence[int],
    *,
    starts: Sequence[int] | None = None,
    firsts: Sequence[int] | None = None,
    head: tuple[int, int, int, int] | None = None,
) -> bytes:
    """Make an `.idx` of uint16 ids."""
    counts = np.array(lengths, np.int64)
    starts = ((np.cumsum(counts) - counts) * 2).tolist() if starts is None else starts
    firsts = range(len(lengths) + 1) if firsts is None else firsts
    version, code, num_sequences, num_firsts = head or (1, 8, len(lengths), len(firsts))
    return b"".join(
        [
            b"MMIDIDX\0\0" + version.to_bytes(8, "little") + code.to_bytes(1, "little"),
            num_sequences.to_bytes(8, "little") + num_firsts.to_bytes(8, "little"),
            counts.astype("<i4").tobytes(),
            np.array(starts, "<i8").tobytes() + np.array(firsts, "<i8").tobytes(),
        ]
    )


INDEXES: dict[str, bytes] = {
    "nothing": b"",
    "a head alone": index_of([])[:34],
    "no documents at all": index_of([], firsts=[]),
    "sequences of petabytes": index_of([3, 20], head=(1, 8, 2**50, 3)),
    "a size that wraps around": index_of([3, 20], head=(1, 8, (2**64 - 48) // 12, 3)),
    "a size of 2**64": index_of([3, 20], head=(1, 8, 0, 2**61)),
    "every number the largest": index_of([3], head=(2**64 - 1, 255, 2**64 - 1, 2**64 - 1)),
    "another version": index_of([3, 20], head=(2, 8, 2, 3)),
    "another dtype": index_of([3, 20], head=(1, 4, 2, 3)),
    "an unknown dtype": index_of([3, 20], head=(1, 9, 2, 3)),
    "negative lengths": index_of([-3, 26]),
    "a length of 0": index_of([0, 23]),
    "lengths whose sum wraps around 32 bits": index_of([2**31 - 1, 2**31 - 1, 25]),
    "starts before the file": index_of([3, 20], starts=[-6, 0]),
    "starts behind the file": index_of([3, 20], starts=[0, 2**62]),
    "starts that overlap": index_of([3, 20], starts=[0, 0]),
    "documents that fall": index_of([3, 20], firsts=[0, 2, 1, 2]),
    "documents beyond the sequences": index_of([3, 20], firsts=[0, 99, 2]),
    "documents that end before": index_of([3, 20], firsts=[0, 1]),
    "documents before the first": index_of([3, 20], firsts=[-(2**63), 1, 2]),
    "documents that differ by more than 64 bits": index_of([3, 20], firsts=[0, 2**63 - 1, -2, 2]),
}


@pytest.mark.parametrize("raw", INDEXES.values(), ids=INDEXES)
def test_index_that_lies_is_refused(raw: bytes) -> None:
    """Size, checksum and counts in the manifest are those of the file."""
    seed = find_seed("store")
    num_sequences, num_firsts = (
        int.from_bytes(raw[18 + place : 26 + place], "little") for place in (0, 8)
    )
    path = ("parts", 0)
    edits = [
        seed.manifest.set((*path, "files", 1, "bytes"), len(raw)),
        seed.manifest.set((*path, "files", 1, "blake3"), blake3(raw).hexdigest()),
        seed.manifest.set((*path, "num_sequences"), min(num_sequences, 2**53)),
        seed.manifest.set((*path, "num_documents"), min(max(num_firsts - 1, 0), 2**53)),
    ]
    changes: Files = {
        "part-00000.idx": raw,
        MANIFEST: apply_edits(seed.manifest.raw, edits),
    }
    assert all_refused(use_all(seed, changes))


def test_ids_of_petabytes_are_refused() -> None:
    seed = find_seed("store")
    for count in (2**49, 2**53, 2**63):
        edits = [
            seed.manifest.set(("parts", 0, "num_tokens"), count),
            seed.manifest.set(("parts", 0, "files", 0, "bytes"), 2 * count),
            seed.manifest.set(("ledger", "num_tokens"), count),
        ]
        assert all_refused(use_all(seed, {MANIFEST: apply_edits(seed.manifest.raw, edits)}))


HOSTILE_TOKENIZERS: dict[str, bytes] = {
    "nothing": b"",
    "no object": b"[]",
    "no text": b"\xff\xfe",
    "nested": nest(100_000),
    "nested inside": b'{"version": "1.0", "model": ' + nest(120) + b"}",
    "no model": b'{"version": "1.0"}',
    "no tokens": b'{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}',
    "an id beyond 32 bits": (
        b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 4294967296}, "merges": []}}'
    ),
    "the largest id": (
        b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}}'
    ),
    "a regex that takes for ever": json.dumps(
        {
            "version": "1.0",
            "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},
            "decoder": {
                **{"type": "Replace", "pattern": {"Regex": "(a|a| )*(a| )*c"}},
                **{"content": ""},
            },
        }
    ).encode(),
}


@pytest.mark.parametrize("raw", HOSTILE_TOKENIZERS.values(), ids=HOSTILE_TOKENIZERS)
@pytest.mark.parametrize("name", ["store", "packed"])
def test_hostile_tokenizer_is_used_or_refused(name: str, raw: bytes) -> None:
    """Its checksum in the manifest is right."""
    seed = find_seed(name)
    edit = seed.manifest.set(("tokenizer_blake3",), blake3(raw).hexdigest())
    changes: Files = {"tokenizer.json": raw, MANIFEST: apply_edits(seed.manifest.raw, [edit])}
    use_all(seed, changes)


LEFT_BEHIND = ("plan.json", "manifest.json", "shard-00000.json")
COMMANDS = ("pack", "tokenize over")


@pytest.mark.parametrize(
    ("file", "command"),
    [("plan.json", "pack"), ("shard-00000.json", "pack"), ("manifest.json", "tokenize over")],
)
@pytest.mark.parametrize("change", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_run_into_what_a_stranger_left_is_done_or_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], file: str, command: str
) -> None:
    output = tmp_path / "output"
    output.mkdir()
    (output / "plan.json").write_bytes(b'{"format": "seqpack.shards", "options": {}}')
    (output / file).write_bytes(change(b'{"name": "x", "format": "seqpack.shards"}'))
    run_into(output, command)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", [kind for kind in FILE_KINDS if kind != "nothing"])
@pytest.mark.parametrize(
    "file", [*LEFT_BEHIND, ".lock", "tokenizer.json", SHARD, "run.json", ".plan.json.1.tmp"]
)
def test_run_into_links_pipes_and_folders_touches_nothing_outside(
    tmp_path: Path, file: str, kind: str, command: str
) -> None:
    output = tmp_path / "output"
    output.mkdir()
    plan = {"format": f"seqpack.{'shards' if 'pack' in command else 'tokens'}", "options": {}}
    if file != "plan.json":
        (output / "plan.json").write_text(json.dumps(plan))
    with put_kind(output / file, kind):
        run_into(output, command)


def run_into(output: Path, command: str) -> None:
    """Pack or tokenize into a folder; a SeqpackError is as good as a finished run."""
    seed = find_seed("store")
    overwrite = command.endswith("over")
    text = output.parent / "text.txt"
    text.write_text("ab\ncde\n")
    try:
        with limited():
            if command.startswith("pack"):
                options = PackOptions(batch_size=3, shard_bytes=300)
                pack(seed.folder, output, options, executor=HERE, overwrite=overwrite)
                assert sum(1 for _ in open_shards(output)) == 3
            else:
                tokenize([str(text)], output, executor=HERE, overwrite=overwrite)
                assert len(open_store(output)) == 2
    except SeqpackError:
        return
