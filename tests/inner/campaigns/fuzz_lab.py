"""Correct folders for a fuzzer to damage: token stores, and shards of each layout.

They are built once per process, in a tmpfs if there is one. Beside them is an outside folder that
nothing may touch: a file may be replaced by a link into it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_mutators import JsonText, spell
from shard_reference import make_column_store, make_store

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.runs.workers import Executor
from seqpack_cli.shards.pack_run import pack

MANIFEST = "manifest.json"
HOME_VARIABLE = "SEQPACK_FUZZ_HOME"
Files = dict[str, bytes | None]  # None: removed
LETTERS = "abcdefghijklmnop"
TEXTS = ["abc", "defghijkl", "abcde", "", "b", "cdefg", "abcdefghijkl", "ba"]
SHARDS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3, "shard_bytes": 300},
    "right": {"layout": "padded", "batch_size": 3, "pad_to_multiple": 2},
    "left": {
        **{"layout": "padded", "batch_size": 2, "padding_side": "left"},
        **{"buckets": (4, 8, 12), "last_batch": "pad"},
    },
    "varlen": {"layout": "varlen", "max_tokens": 8, "fill": "sequential"},
}


@dataclass(frozen=True)
class Seed:
    """A correct folder, and its original files."""

    folder: Path
    files: dict[str, bytes]
    manifest: JsonText

    @property
    def entries(self) -> str:
        """Return the place in the manifest where the files are listed."""
        return "parts" if ("parts",) in self.manifest.places else "shards"


@dataclass(frozen=True)
class Lab:
    """The correct folders of this process, and the outside folder that nothing may touch."""

    root: Path
    outside: Path
    stores: list[Seed]
    shards: list[Seed]


def find_memory_folder() -> str | None:
    """Return the folder to work in: that of the runner, which removes it, or a tmpfs."""
    tmpfs = "/dev/shm"  # noqa: S108 - there is no other name for it
    return os.environ.get(HOME_VARIABLE) or (tmpfs if os.access(tmpfs, os.W_OK) else None)


@functools.lru_cache(maxsize=1)
def open_lab() -> Lab:
    """Build the correct folders."""
    home = Path(tempfile.mkdtemp(prefix="seqpack-fuzz-", dir=find_memory_folder())).resolve()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    root, outside = home / "root", home / "outside"
    root.mkdir()
    outside.mkdir()
    words = {letter: number for number, letter in enumerate(LETTERS[:-1])}
    stores, shards = [], []
    for name, last, part_bytes in (("narrow", 15, 400), ("wide", 70_000, 1 << 20)):
        model = {"type": "BPE", "vocab": {**words, LETTERS[-1]: last}, "merges": []}
        folder = root / name
        folder.mkdir()
        tokenizer = folder / "tokenizer.json"
        tokenizer.write_text(json.dumps({"version": "1.0", "model": model, "decoder": None}))
        options: dict[str, Any] = {"tokenizer": str(tokenizer), "part_bytes": part_bytes}
        if name == "narrow":
            store = make_column_store(folder, TEXTS, **options)
        else:
            store = make_store(folder, TEXTS, **options)
        stores.append(_read_seed(store))
        for layout, options in SHARDS.items() if name == "narrow" else [*SHARDS.items()][:1]:
            pack(store, folder / layout, PackOptions(**options), executor=Executor(num_workers=1))
            shards.append(_read_seed(folder / layout))
    return Lab(root, outside, stores, shards)


def _read_seed(folder: Path) -> Seed:
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    manifest = spell(json.loads(files[MANIFEST]))
    files[MANIFEST] = manifest.raw
    (folder / MANIFEST).write_bytes(manifest.raw)
    return Seed(folder, files, manifest)


@contextlib.contextmanager
def replace_files(seed: Seed, changes: Files) -> Iterator[None]:
    """Replace files of a folder until the block ends, by renaming, so that old maps stay valid."""
    try:
        for name, raw in changes.items():
            put_file(seed.folder / name, raw)
        yield
    finally:
        for name in changes:
            put_file(seed.folder / name, seed.files.get(name))


def put_file(path: Path, raw: bytes | None) -> None:
    """Write a file, or remove it, without fsync."""
    if raw is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - a hundred thousand times
        return
    temporary = f"{path}~"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, raw)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)  # noqa: PTH105


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target.format(path=path, kept=open_lab().outside / "kept"))


FILE_KINDS: dict[str, Callable[[Path], object]] = {
    "nothing": Path.exists,
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": functools.partial(os.mknod, mode=0o600 | stat.S_IFSOCK),
    "link": _link("{kept}"),  # to the original file, outside the folder
    "link to itself": _link("{path}"),
    "link to nothing": _link("{kept}.none"),
    "link to a new file": _link("{kept}.new"),
    "link to a device": _link("/dev/zero"),
    "link to a folder": _link("{kept}.folder"),
}


@contextlib.contextmanager
def put_kind(path: Path, kind: str) -> Iterator[Path]:
    """Put something else in the place of a file until the block ends; gives where the file is."""
    kept = open_lab().outside / "kept"
    Path(f"{kept}.folder").mkdir(exist_ok=True)
    was_there = path.exists()
    if was_there:
        path.replace(kept)
    else:
        kept.write_bytes(b"precious\n")
    before = kept.read_bytes()
    FILE_KINDS[kind](path)
    try:
        yield kept
        assert kept.read_bytes() == before, f"{kind} at {path.name}: the file behind it changed"
        found = sorted(entry.name for entry in kept.parent.rglob("*"))
        assert found == ["kept", "kept.folder"], f"{kind} at {path.name}: made {found}"
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if was_there:
            kept.replace(path)
        shutil.rmtree(kept.parent)
        kept.parent.mkdir()
