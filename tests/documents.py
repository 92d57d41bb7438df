"""Tokenize input as bytes, and return the documents and rejects that the store holds.

What a store says about itself is checked on the way, from docs/formats.md: counts, numbers of
documents, hashes of texts, and that the ranges of its parts are all bytes of every source, once.
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import fsspec
import pytest
import xxhash
from blake3 import blake3

from seqpack_cli import (
    DataError,
    DocumentOptions,
    Executor,
    FileOptions,
    Progress,
    TargetOptions,
    TokenizeOptions,
    open_store,
    tokenize,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHECKED = {zstd.CompressionParameter.checksum_flag: 1}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstd.compress(data, options=CHECKED),
}
MARK = b"\xef\xbb\xbf"
ONE = Executor(num_workers=1)
Text = str | None  # None: the record was rejected
Reject = tuple[str, int, int | None]  # source, record from 1, byte

# Line ends of every kind, characters that only look like line ends, blanks, NUL, 1 to 4 bytes.
PIECES = (
    *("a", "bc", "word ", "é", "漢", "𝄞", "\n", "\n", "\r\n", "\n\n", "\n \t\n", " ", "\t", "\r"),
    *("\x00", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\u00a0", "\ufeff"),
)
MARKS = ('"', '""', ",", ";", "'", "\\", "{", "}", "[", "]", ":", '\\"', "/")


def draw_text(rng: random.Random, most: int = 8, pieces: Sequence[str] = PIECES + MARKS) -> str:
    """Return a text that is made of difficult pieces."""
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0, most)))


@dataclass
class Reading:
    """What a run read."""

    texts: dict[str, list[Text]]  # the text of each record of each source, in order
    rejects: list[Reject]
    notices: list[str]
    manifest: dict[str, Any]
    folder: Path
    skipped: dict[str, int]  # as run.json counts

    @property
    def documents(self) -> list[Text]:
        """Return the texts of all sources."""
        return list(itertools.chain.from_iterable(self.texts.values()))

    @property
    def hashes(self) -> list[int]:
        """Return the hash of each document."""
        store = open_store(self.folder)
        parts = (store.part_hashes(part).tolist() for part in range(store.num_parts))
        return list(itertools.chain.from_iterable(parts))

    def column(self, name: str) -> list[Any]:
        """Return the values of a column, one for each sequence; a class by its name."""
        store = open_store(self.folder)
        parts = (store.part_column(part, name).tolist() for part in range(store.num_parts))
        values = list(itertools.chain.from_iterable(parts))
        names = store.columns[name].class_names
        return values if names is None else [None if n < 0 else names[n] for n in values]


def make_options(options: dict[str, Any]) -> TokenizeOptions:
    """Return the options of a run, each by its own name."""
    found: dict[str, Any] = dict(options)
    kinds = {"documents": DocumentOptions, "files": FileOptions, "targets": TargetOptions}
    for name, kind in kinds.items():
        inside = {field.name for field in fields(kind)} & set(found)
        found[name] = kind(**{key: found.pop(key) for key in inside})
    return TokenizeOptions(**found)


def read(folder: Path, inputs: Iterable[object], **options: Any) -> Reading:
    """Tokenize inputs into a new folder below one, and read the store."""
    output = new_folder(folder)
    notices: list[str] = []
    progress = Progress(on_notice=notices.append)
    names = list(map(str, inputs))
    tokenize(names, output, make_options(options), executor=ONE, progress=progress)
    return read_store(output, notices)


def new_folder(folder: Path) -> Path:
    """Return a folder that does not exist."""
    return next(path for n in itertools.count() if not (path := folder / f"store-{n}").exists())


def read_store(output: Path, notices: Sequence[str] = ()) -> Reading:
    """Read a store of bytes."""
    store = open_store(output)
    manifest = json.loads((output / "manifest.json").read_bytes())
    texts: dict[str, list[Text]] = {}
    first = 0
    for source in manifest["sources"]:
        assert source["first_document"] == first
        first += source["num_documents"]
        texts[source["path"]] = [""] * source["num_documents"]
    for index, ids in enumerate(store):
        origin = store.locate(index)
        texts[origin.source][origin.record - 1] += bytes(ids.tolist()).decode()
    rejects: list[Reject] = []
    path = output / "rejects.jsonl"
    for line in path.read_bytes().splitlines() if path.exists() else ():
        reject = json.loads(line)
        assert sorted(reject) == ["byte", "reason", "record", "source"]
        assert texts[reject["source"]][reject["record"] - 1] == ""
        texts[reject["source"]][reject["record"] - 1] = None
        rejects.append((reject["source"], reject["record"], reject["byte"]))
    found = Reading(texts, rejects, list(notices), manifest, output, {})
    found.skipped = json.loads((output / "run.json").read_bytes()).get("skipped", {})
    check_counts(found)
    check_ranges(found)
    if not manifest["options"]["prompt_field"] and not manifest["options"]["messages_field"]:
        assert found.hashes == [hash_text(text or "") for text in found.documents]
    return found


def hash_text(text: str) -> int:
    return int(xxhash.xxh3_64_intdigest(text.encode()))


def check_counts(found: Reading) -> None:
    ledger, documents = found.manifest["ledger"], found.documents
    assert ledger["num_documents"] == len(documents)
    assert ledger["num_rejected"] == len(found.rejects)
    assert ledger["num_empty_documents"] == documents.count("")
    assert ledger["num_tokens"] == sum(len(text.encode()) for text in documents if text)


def check_ranges(found: Reading) -> None:
    """Check that the parts hold all bytes of every source, in order, by their checksums."""
    sources = found.manifest["sources"]
    ends = [0] * len(sources)
    counts = [0] * len(sources)
    previous = 0
    for part in found.manifest["parts"]:
        assert part["ranges"], "a part of nothing"
        for piece in part["ranges"]:
            number = piece["source"]
            assert number >= previous
            previous = number
            assert piece["start"] == ends[number]
            ends[number] = piece["end"]
            counts[number] += piece["num_documents"]
            path = sources[number]["path"]
            if path != "-":
                data = read_bytes(path)[piece["start"] : piece["end"]]
                assert piece["blake3"] == blake3(data).hexdigest(), path
    assert ends == [source["bytes"] for source in sources]
    assert counts == [source["num_documents"] for source in sources]


def read_bytes(path: str) -> bytes:
    """Read a file, or an object in memory."""
    if "://" in path:
        data: bytes = fsspec.filesystem("memory").cat_file(path)
        return data
    return Path(path).read_bytes()


def write(path: object, data: bytes) -> str:
    """Write a file, or an object in memory, and return its name."""
    name = str(path)
    if "://" in name:
        fsspec.filesystem("memory").pipe_file(name, data)
    else:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    return name


def write_packed(path: Path, data: bytes) -> str:
    """Write a file that is compressed as its last suffix says."""
    return write(path, COMPRESS.get(path.suffix.lower(), bytes)(data))


def refused(folder: Path, inputs: Sequence[object], said: str = "", **options: Any) -> DataError:
    """Return the error about the last input, and check how it goes on and that no store is left."""
    output, names = new_folder(folder), list(map(str, inputs))
    with pytest.raises(DataError) as caught:
        tokenize(names, output, make_options(options), executor=ONE)
    assert not (output / "manifest.json").exists()
    expected = f"{names[-1]}:{said}"
    assert caught.value.message[: len(expected)] == expected
    return caught.value


def draw_part_bytes(size: int, rng: random.Random) -> int:
    """Return the size of parts that are large, or of which the input has a few."""
    return rng.choice([1 << 20, rng.randint(max(1, size // 3), max(1, size - 1))])
