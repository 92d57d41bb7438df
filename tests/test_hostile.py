"""Folders from a stranger: whatever their bytes are, readers refuse them or give a result.

No other exception, no file outside the folder, no memory beyond what the files hold. Where the
page of formats says what a field must be, anything else is refused. See docs/security.md.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from command import run
from oracle.forger import Json, load_json, load_tensors
from oracle.stores import HEADER, describe_file, make_tensor_file
from small_sets import HERE, make_set, make_stores

from seqpack_cli import (
    DataError,
    FolderError,
    OptionError,
    PackOptions,
    Progress,
    SeqpackError,
    ShardDataset,
    VerifyOptions,
    diff,
    inspect,
    open_shards,
    open_store,
    pack,
    verify,
)

pytestmark = pytest.mark.usefixtures("one_thread", "watch_files")

SHARD = "shard-00000.safetensors"
STORES = ("columns", "ids")
SHARDS = ("packed", "filler", "rows", "rounds", "pairs")
FOLDERS = (*STORES, *SHARDS, "splits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a set under each name, and all stores."""
    folder = tmp_path_factory.mktemp("hostile")
    make_stores(folder)
    for name in (*SHARDS, "splits"):
        make_set(folder, name, folder / name)
    return folder


@contextmanager
def kept(path: Path) -> Iterator[Path]:
    """Put the folder back as it was, whatever is done to it."""
    spare = path.with_name(f"{path.name}-spare")
    shutil.copytree(path, spare)
    try:
        yield path
    finally:
        shutil.rmtree(path)
        spare.rename(path)


# No reader opens a file outside: an audit hook sees each file that is opened.

PYTHON = (sys.prefix, sys.base_prefix)
ROOTS = (*map(os.path.realpath, PYTHON), "/proc", "/sys", "/usr", "/lib", "/dev", "/opt")
opened: set[str] = set()
watching: list[bool] = []


def note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    """Note the path of a file that is opened."""
    if watching and event == "open" and isinstance(arguments[0], str | bytes):
        opened.add(os.path.realpath(os.fsdecode(arguments[0])))


@pytest.fixture(scope="module")
def watch_files(folder: Path) -> Iterator[None]:
    """Check after all tests that no file outside was opened, and how much memory was taken."""
    sys.addaudithook(note_opened)
    watching.append(True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    watching.clear()
    inside = (str(folder.resolve()), str(Path(__file__).resolve().parents[1]), *ROOTS)
    temporary = str(folder.resolve().parent)
    assert {p for p in opened if not p.startswith((*inside, temporary))} == set()
    assert not any("passwd" in path for path in opened)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # in KiB


# The readers; each ends, or raises a SeqpackError.


def take_all(path: Path) -> None:
    for batch in ShardDataset(path):
        assert batch is not None


def read_shards(path: Path) -> None:
    shards = open_shards(path)
    for index in range(len(shards)):
        assert shards[index] is not None


def read_store(path: Path) -> None:
    store = open_store(path)
    for index in range(len(store)):
        assert len(store[index]) > 0
        store.locate(index)


def run_command(*arguments: Any) -> Callable[[Path], None]:
    """Return a reader that runs a command."""

    def read(path: Path) -> None:
        output = path.parent / "output"
        names = {"PATH": path, "OUT": output}
        result = run(*(names.get(argument, argument) for argument in arguments))
        shutil.rmtree(output, ignore_errors=True)
        output.unlink(missing_ok=True)
        if result.exit_code not in (0, 1):
            raise CODES[result.exit_code](result.stderr)

    return read


CODES = {2: OptionError, 3: DataError, 4: FolderError}
ALL_READERS: list[Callable[[Path], object]] = [
    lambda path: inspect(path),
    lambda path: diff(path, path),
]
READERS: dict[str, list[Callable[[Path], object]]] = {
    "store": [
        read_store,
        *ALL_READERS,
        run_command("inspect", "PATH", "--vocabulary"),
        run_command("inspect", "PATH", "--sequence", 3),
        run_command("pack", "PATH", "-o", "OUT", "-q", "--layout", "padded", "--pad-id", 0),
        run_command("export", "PATH", "-o", "OUT", "-q"),
    ],
    "shards": [
        read_shards,
        take_all,
        *ALL_READERS,
        run_command("inspect", "PATH", "--batch", 0),
        run_command("unpack", "PATH", "-o", "OUT", "-q"),
        lambda path: verify(path, VerifyOptions(level="structure")),
        lambda path: verify(path, VerifyOptions(level="roundtrip")),
    ],
    "splits": [*ALL_READERS, lambda path: verify(path, VerifyOptions(level="structure"))],
}


def kind_of(name: str) -> str:
    return "store" if name in STORES else "splits" if name == "splits" else "shards"


OPENERS: dict[str, Callable[[Path], object]] = {
    "store": open_store,
    "shards": open_shards,
    "splits": inspect,
}


def is_refused(read: Callable[[Path], object], path: Path) -> bool:
    """Return whether a reader refuses a folder; it may do nothing else but read it."""
    try:
        read(path)
    except SeqpackError:
        return True
    return False


# Every field of every manifest.

ABSENT = "absent"
NASTY = (
    *(ABSENT, None, True, -1, 1.5, math.nan, "x", "../x", "/etc/passwd", "a\0b", "x" * 300),
    *([], {}, [None], {"a": None}, 2**53 + 1, 2**63, 2**70),
)
NO_COUNTS = (-1, 2**53 + 1, 2**63, 2**70)
# What a reader need not look at: how a store was made, which hint to give.
FREE = {("options",), ("parts", 0, "first_document"), ("parts", 0, "first_sequence")}
FREE |= {("parts", 0, "ranges", 0)}  # which may be none
FREE |= {("columns", 1, "name")}  # compared with the files of the parts when these are read


def walk(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all fields, and of the first two items of lists."""
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value[:2]) if isinstance(value, list) else items
    for key, each in items:
        yield (*place, key)
        yield from walk(each, (*place, key))


def take(manifest: Any, place: tuple[Any, ...]) -> Any:
    """Return a value in a manifest."""
    for key in place:
        manifest = manifest[key]
    return manifest


def put(manifest: Any, place: tuple[Any, ...], value: Any) -> None:
    """Change a value in a manifest, or leave it out."""
    holder = take(manifest, place[:-1])
    if value is ABSENT:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value


def must_be_refused(name: str, place: tuple[Any, ...], good: Any, value: Any) -> bool:
    """Return whether no reader may take a value for a field."""
    if name in STORES and (place in FREE or place[0] == "options"):
        return False
    if value is ABSENT:
        return isinstance(place[-1], str)
    if isinstance(value, float) and math.isnan(value):
        return True
    if place[-1] == "name":
        return True
    if value is None and place[-1] in ("pad_id", "bos_id", "eos_id", "unk_id"):
        return False  # a store may have none
    if isinstance(good, int) and not isinstance(good, bool):
        return type(value) is not int or value in NO_COUNTS
    if good is None or value is None:
        return isinstance(value, dict)
    return type(value) is not type(good)


@pytest.mark.parametrize("name", FOLDERS)
def test_no_value_of_a_field_is_more_than_refused(folder: Path, name: str) -> None:
    path, draws, kind = folder / name, random.Random(name), kind_of(name)
    text = (path / "manifest.json").read_text()
    share = 0.25 if name in ("columns", "pairs", "splits") else 0.08
    taken = []
    try:
        for place in walk(json.loads(text)):
            for value in NASTY:
                if draws.random() > share:
                    continue
                manifest = json.loads(text)
                good = take(manifest, place)
                put(manifest, place, value)
                (path / "manifest.json").write_text(json.dumps(manifest))
                refused = is_refused(OPENERS[kind], path)
                if not refused and draws.random() < 0.1:
                    is_refused(draws.choice(READERS[kind]), path)
                if not refused and must_be_refused(name, place, good, value):
                    taken.append((place, value))
    finally:
        (path / "manifest.json").write_text(text)
    assert taken == []


UNKNOWN = [("packed", "shards"), ("splits", "splits"), ("splits", "stores")]


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        *((name, ("format",), value) for name in FOLDERS for value in ("seqpack.x", "", None)),
        *((name, ("format_version",), value) for name in FOLDERS for value in (0, 1, 12, True)),
        *((name, ("format_version",), value) for name in FOLDERS for value in (11.0, "11", None)),
        *((name, ("options", "unknown"), 1) for name in (*SHARDS, "splits")),
        *((name, ("unknown",), 1) for name in (*SHARDS, "splits")),
        *(("packed", place, 1) for place in [("ledger", "unknown"), ("stores", 0, "unknown")]),
        *((name, (field, 0, "unknown"), 1) for name, field in UNKNOWN),
        ("pairs", ("shards", 0, "decoder", "num_rows"), 1),
        ("pairs", ("decoder",), None),
        ("filler", ("bucket_keys",), None),
        ("packed", ("options", "split"), "a=0.5,b=0.5"),
        ("splits", ("split_seed",), 1),
        ("splits", ("splits", 0, "name"), "../splits"),
        ("pairs", ("decoder", "unknown"), 1),
        ("pairs", ("shards", 0, "decoder", "unknown"), 1),
        ("columns", ("columns", 0, "unknown"), 1),
        ("packed", ("ledger", "num_dropped_sequences", "unknown"), 1),
        ("packed", ("plan_version",), 0),
        *(("packed", ("stores", 0, "passes"), v) for v in ("0", "1e9", "10001", "-1", "x")),
        *(("packed", ("shards", 0, "name"), v) for v in (SHARD + "x", "shard-0.safetensors")),
        *(("packed", ("shards", 0, "bytes"), v) for v in (1, 10**12)),
        *(("packed", ("shards", 0, "num_rows"), v) for v in (10**9, 2**53)),
        *(("columns", ("parts", 0, "files", 0, "bytes"), v) for v in (1, 10**12)),
        ("columns", ("parts", 0, "ranges", 0, "source"), 1),
        ("columns", ("ledger", "num_sequences"), 0),
        ("columns", ("made_by",), "hand"),
        ("ids", ("made_by",), "tokenize"),
        ("columns", ("max_id",), 65_536),
        ("ids", ("max_id",), 38),
        ("columns", ("eos_id",), 10**6),
        ("rows", ("pad_id",), 10**6),
        ("columns", ("sources", 0, "first_document"), 1),
        ("packed", ("stores",), [{}] * 4097),
    ],
)
def test_version_or_value_that_nobody_writes_is_refused(
    folder: Path, name: str, place: tuple[Any, ...], value: Any
) -> None:
    path, kind = folder / name, kind_of(name)
    text = (path / "manifest.json").read_text()
    manifest = json.loads(text)
    put(manifest, place, value)
    try:
        (path / "manifest.json").write_text(json.dumps(manifest))
        assert is_refused(OPENERS[kind], path)
    finally:
        (path / "manifest.json").write_text(text)


# Bytes that are no manifest.


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe{}", b"[" * 100_000, b"{}"),
        *(b'{"a":' * 100_000, b'{"format": NaN}', b'{"format": Infinity}', b"\0" * 64),
    ],
    ids=lambda data: repr(data[:12]),
)
@pytest.mark.parametrize("name", ["columns", "packed", "splits"])
def test_file_that_is_no_manifest_is_refused(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    text = (path / "manifest.json").read_bytes()
    try:
        (path / "manifest.json").write_bytes(data)
        assert is_refused(OPENERS[kind_of(name)], path)
        assert is_refused(inspect, path)
    finally:
        (path / "manifest.json").write_bytes(text)


def test_manifest_that_is_too_large_is_refused(folder: Path) -> None:
    with kept(folder / "packed") as path:
        os.truncate(path / "manifest.json", (128 << 20) + 1)
        assert is_refused(open_shards, path)
        (path / "manifest.json").write_bytes(b'{"a": [' + b"[]," * 10_000_000 + b"[]]}")
        with pytest.raises(FolderError, match="more than 10,000,000 items"):
            open_shards(path)


@pytest.mark.parametrize("name", ["columns", "packed"])
@pytest.mark.parametrize("file", ["manifest.json", "tokenizer.json", "run.json"])
def test_size_of_a_file_is_looked_at_before_it_is_read(folder: Path, name: str, file: str) -> None:
    with kept(folder / name) as path:
        os.truncate(path / file, 1 << 40)
        assert is_refused(inspect, path) is (file != "run.json")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"\xff\xfe", b'{"version": "1.0"}', b"[" * 100_000),
        b'{"version": "1.0", "model": ' + b'{"a":' * 120 + b"1" + b"}" * 121,
        *(
            b'{"model": {"type": "BPE", "vocab": {"a": %d}, "merges": []}}' % number
            for number in (2**32 - 1, 2**32)
        ),
        b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "decoder": {"type":'
        b' "Replace", "pattern": {"Regex": "(a|a| )*(a| )*c"}, "content": ""}}',
    ],
    ids=lambda data: repr(data[:60]),
)
@pytest.mark.parametrize("name", ["columns", "packed"])
def test_tokenizer_of_a_stranger_is_used_or_refused(folder: Path, name: str, data: bytes) -> None:
    with kept(folder / name) as path:
        (path / "tokenizer.json").write_bytes(data)
        manifest = {**load_json(path), "tokenizer_blake3": blake3(data).hexdigest()}
        (path / "manifest.json").write_text(json.dumps(manifest))
        for read in READERS[kind_of(name)]:
            is_refused(read, path)
        is_refused(run_command("unpack", "PATH", "--text", "-o", "OUT", "-q"), path)


# Files that are no files.


def lead_to(target: str) -> Callable[[Path], object]:
    return lambda file: file.symlink_to(target)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "link out": lead_to("/etc/passwd"),
    "link to itself": lambda file: file.symlink_to(file.name),
    "link to a copy": lambda file: file.symlink_to(file.with_name("moved")),
    "dangling": lead_to("nowhere"),
    "pipe": lambda file: os.mkfifo(file),
    "folder": lambda file: file.mkdir(),
    "device": lead_to("/dev/zero"),
}
FILES = [
    *(("columns", f"part-00000.{suffix}") for suffix in ("bin", "idx", "columns.safetensors")),
    *(("columns", "manifest.json"), ("columns", "tokenizer.json")),
    *(("packed", name) for name in ("manifest.json", "tokenizer.json", SHARD)),
    ("splits", "manifest.json"),
]


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize(("name", "file"), FILES)
def test_what_is_no_file_is_refused_in_its_place(
    folder: Path, name: str, file: str, kind: str
) -> None:
    with kept(folder / name) as path:
        (path / file).rename(path / "moved")
        NO_FILES[kind](path / file)
        readers = READERS[kind_of(name)]
        if file != "tokenizer.json":
            assert is_refused(OPENERS[kind_of(name)], path) or is_refused(readers[0], path)
        assert is_refused(inspect, path)


def test_split_that_is_a_link_is_refused(folder: Path) -> None:
    with kept(folder / "splits") as path:
        (path / "test").rename(path.parent / "moved-test")
        (path / "test").symlink_to(path.parent / "moved-test")
        assert is_refused(inspect, path)
        assert is_refused(READERS["splits"][-1], path)
        (path / "test").unlink()
        (path.parent / "moved-test").rename(path / "test")


# Headers: of tensors, and of the index of a part.


def rewrite_header(path: Path, change: Callable[[Json], object]) -> None:
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def fit(path: Path) -> None:
    """Make sizes and checksums of a folder fit again."""
    manifest = load_json(path)
    for part in manifest.get("parts", []):
        part["files"] = [describe_file(path / file["name"]) for file in part["files"]]
    for shard in manifest.get("shards", []):
        shard |= describe_file(path / shard["name"])
    (path / "manifest.json").write_text(json.dumps(manifest))


TENSOR_FILES = [("columns", "part-00000.columns.safetensors"), ("packed", SHARD), ("pairs", SHARD)]


@pytest.mark.parametrize(("name", "file"), TENSOR_FILES)
def test_header_of_tensors_that_lies_is_refused(folder: Path, name: str, file: str) -> None:
    draws = random.Random(name)
    with kept(folder / name) as path:
        good, (tensors, metadata) = (path / file).read_bytes(), load_tensors(path / file)
        (size,) = struct.unpack("<Q", good[:8])
        places = list(walk(json.loads(good[8 : 8 + size])))
        # any other data of those types; what is missing, and what has no length of its own
        values = [ABSENT, None, -1, 1.5, "x", "F16", "I64", [], {}, [1, 2], 0, 2**40, 2**63]
        reader = take_all if name != "columns" else inspect
        for place in places:
            for value in draws.sample(values, 3 if name == "columns" else 2):
                header = json.loads(good[8 : 8 + size])
                if take(header, place) == value:
                    continue
                (path / file).write_bytes(good)
                rewrite_header(path / file, lambda h, p=place, v=value: put(h, p, v))
                fit(path)
                assert is_refused(reader, path), (place, value)
        for length in (0, 1, size + 1, 2**20 + 1, 2**40, 2**63, 2**64 - 1):
            (path / file).write_bytes(struct.pack("<Q", length) + good[8:])
            fit(path)
            assert is_refused(reader, path), length
        length = 2**20 + 8  # of a good header with spaces behind it
        header, data = good[8 : 8 + size].ljust(length), good[8 + size :]
        (path / file).write_bytes(struct.pack("<Q", length) + header + data)
        fit(path)
        assert is_refused(reader, path)
        extra = {"lengths": np.zeros(1), "extra": np.zeros(1)}
        for more in extra:
            (path / file).write_bytes(make_tensor_file(metadata, {**tensors, more: extra[more]}))
            fit(path)
            assert is_refused(reader, path), more


def test_index_that_lies_is_refused(folder: Path) -> None:
    with kept(folder / "columns") as path:
        index = path / "part-00000.idx"
        good = index.read_bytes()
        fields = list(HEADER.unpack(good[: HEADER.size]))
        for place in range(1, 5):
            for value in (0, 2, 255, 2**31, 2**63, 2**64 - 1):
                changed = list(fields)
                changed[place] = value if place != 2 else value % 256
                if changed != fields:
                    index.write_bytes(HEADER.pack(*changed) + good[HEADER.size :])
                    fit(path)
                    assert is_refused(read_store, path), (place, value)
        for data in (b"", good[:8], good[: HEADER.size], b"X" + good[1:], good + b"x", good[:-1]):
            index.write_bytes(data)
            fit(path)
            assert is_refused(read_store, path), data[:20]
        num_sequences = fields[3]
        spans = {"<i4": (34, num_sequences), "<i8": (34 + 4 * num_sequences, num_sequences)}
        spans["firsts"] = (34 + 12 * num_sequences, fields[4])
        for dtype, (start, count) in spans.items():
            real = "<i8" if dtype == "firsts" else dtype
            for place, value in product(
                {count // 2, count - 1 if dtype == "firsts" else count // 2},
                (-1, 0, 1, 2**31 - 1, -(2**31), 10**6),
            ):
                data = bytearray(good)
                array = np.frombuffer(data, real, count, start)
                if array[place] == value:
                    continue
                array[place] = value
                index.write_bytes(data)
                fit(path)
                assert is_refused(read_store, path), (dtype, value)


# Entries of all arrays: what torch could not bear is refused before it sees it.

ENTRIES = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 2**31, 2**32, 2**62, 2**63 - 1)


@pytest.mark.parametrize("name", ["packed", "filler", "rows", "rounds", "pairs"])
def test_nasty_entries_of_arrays_crash_no_reader(folder: Path, name: str) -> None:
    draws = random.Random(name)
    with kept(folder / name) as path:
        first, metadata = load_tensors(path / SHARD)
        for tensor, array in first.items():
            for _ in range(3):
                changed = array.copy()
                places = draws.sample(range(len(array)), min(len(array), draws.choice((1, 1, 4))))
                value = draws.choice(ENTRIES)
                if changed.dtype.kind == "f":
                    changed[places] = draws.choice((math.nan, math.inf, -math.inf))
                else:
                    limits = np.iinfo(changed.dtype)
                    changed[places] = min(max(value, limits.min), limits.max)
                (path / SHARD).write_bytes(make_tensor_file(metadata, {**first, tensor: changed}))
                fit(path)
                is_read = not is_refused(read_shards, path)
                is_taken = not is_refused(take_all, path)
                assert is_taken <= is_read, (tensor, places, value)
                assert is_taken == is_read or name == "pairs", (tensor, places, value)
                if draws.random() < 0.25:
                    report = verify(path, VerifyOptions(level="structure"))
                    assert is_read or report.findings, (tensor, places, value)
                if tensor == "data" and int(changed.max()) > 255:
                    assert not is_read


# Random bytes.


def mutate(data: bytes, draws: random.Random) -> bytes:
    """Change, cut out, double or insert some bytes."""
    place = draws.randrange(len(data) + 1)
    size = draws.choice((1, 1, 2, 8, 64))
    some = draws.randbytes(size)
    way = draws.randrange(4)
    if way == 0:
        return data[:place] + some + data[place + size :]
    if way == 1:
        return data[:place] + data[place + size :]
    if way == 2:
        return data[:place] + data[place : place + size] * 2 + data[place + size :]
    return data[:place] + some + data[place:]


@pytest.mark.parametrize("name", FOLDERS)
def test_random_bytes_are_read_or_refused(folder: Path, name: str) -> None:
    draws, kind = random.Random(f"bytes {name}"), kind_of(name)
    with kept(folder / name) as path:
        files = sorted(file for file in path.rglob("*") if file.is_file())
        files = [file for file in files if file.name != "run.json"]
        good = {file: file.read_bytes() for file in files}
        for _ in range(40):
            file = draws.choice(files)
            for _ in range(draws.choice((1, 1, 3))):
                file.write_bytes(mutate(file.read_bytes(), draws))
            if file.name != "manifest.json" and kind != "splits" and draws.random() < 0.7:
                fit(path)
            is_refused(draws.choice(READERS[kind]), path)
            for each, data in good.items():
                each.write_bytes(data)


# A run that a stranger left.


def test_plan_that_a_stranger_left_is_refused_or_continued(folder: Path) -> None:
    draws = random.Random(1)
    stop = folder / "stopped"
    plan = leave_run(folder, stop)
    texts = json.dumps(plan)
    for place in walk(plan):
        for value in draws.sample(NASTY, 2):
            changed = json.loads(texts)
            put(changed, place, value)
            (stop / "plan.json").write_text(json.dumps(changed))
            assert is_refused(inspect, stop)
            if draws.random() < 0.3:
                is_refused(lambda path: pack(folder / "plain", path, executor=HERE), stop)
                shutil.rmtree(stop)
                leave_run(folder, stop)


def leave_run(folder: Path, stop: Path) -> Json:
    """Leave a run in a folder that was stopped after its first shard; return its plan."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(
            folder / "plain",
            stop,
            PackOptions(batch_size=4),
            executor=HERE,
            progress=Progress(on_advance=interrupt),
        )
    found: Json = json.loads((stop / "plan.json").read_text())
    return found
