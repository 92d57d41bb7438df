"""A damaged token store is refused with an error that names the file, never read as another."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from reference import change_json

from seqpack_cli.errors import FolderError
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize

Damage = Callable[[Path], object]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of two parts of equal numbers but for one length."""
    (tmp_path / "a.txt").write_text("abc\nde\nfghi\nj\n")
    options = TokenizeOptions(part_bytes=7)
    tokenize([str(tmp_path / "a.txt")], tmp_path / "store", options, executor=HERE)
    assert (tmp_path / "store" / "part-00001.bin").exists()
    return tmp_path / "store"


def manifest(change: Callable[[dict[str, Any]], object]) -> Damage:
    return lambda store: change_json(store / "manifest.json", change)


def put(name: str, offset: int, form: str, *values: int) -> Damage:
    def damage(store: Path) -> None:
        with (store / name).open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack(form, *values))

    return damage


def swap(store: Path, first: str, second: str) -> None:
    (store / first).rename(store / "aside")
    (store / second).rename(store / first)
    (store / "aside").rename(store / second)


def link(store: Path, name: str) -> None:
    shutil.move(store / name, store.parent / name)
    (store / name).symlink_to(store.parent / name)


def file_of(manifest: dict[str, Any], part: int, number: int) -> dict[str, Any]:
    found: dict[str, Any] = manifest["parts"][part]["files"][number]
    return found


# name -> (damage, the file named, what is said of it)
TABLE: dict[str, tuple[Damage, str, str]] = {
    "bin cut": (
        lambda store: os.truncate(store / "part-00000.bin", 9),
        "part-00000.bin",
        "9 bytes, manifest says 10",
    ),
    "bin longer": (
        lambda store: os.truncate(store / "part-00001.bin", 12),
        "part-00001.bin",
        "12 bytes, manifest says 10",
    ),
    "bin empty": (
        lambda store: os.truncate(store / "part-00000.bin", 0),
        "part-00000.bin",
        "0 bytes, manifest says 10",
    ),
    "bin gone": (lambda store: (store / "part-00000.bin").unlink(), "part-00000.bin", "missing"),
    "idx gone": (lambda store: (store / "part-00001.idx").unlink(), "part-00001.idx", "missing"),
    "idx cut": (
        lambda store: os.truncate(store / "part-00000.idx", 33),
        "part-00000.idx",
        "33 bytes, manifest says 82",
    ),
    "idx longer": (
        lambda store: os.truncate(store / "part-00000.idx", 83),
        "part-00000.idx",
        "83 bytes, manifest says 82",
    ),
    "idx magic flipped": (
        put("part-00000.idx", 0, "B", 0x4C),
        "part-00000.idx",
        "its header does not match",
    ),
    "idx version": (
        put("part-00000.idx", 9, "<Q", 2),
        "part-00000.idx",
        "its header does not match",
    ),
    "idx dtype": (
        put("part-00000.idx", 17, "B", 4),
        "part-00000.idx",
        "its header does not match",
    ),
    "idx count": (
        put("part-00000.idx", 18, "<Q", 3),
        "part-00000.idx",
        "its header does not match",
    ),
    "idx counts that fit the size": (
        put("part-00000.idx", 18, "<QQ", 0, 6),
        "part-00000.idx",
        "its header does not match",
    ),
    "idx length": (
        put("part-00000.idx", 34, "<i", 2),
        "part-00000.idx",
        "lengths do not add up to the 5 ids of its .bin",
    ),
    "bin linked": (
        lambda store: link(store, "part-00000.bin"),
        "part-00000.bin",
        "not a regular file",
    ),
    "manifest linked": (
        lambda store: link(store, "manifest.json"),
        "manifest.json",
        "not a regular file",
    ),
    "manifest no JSON": (
        lambda store: os.truncate(store / "manifest.json", 9),
        "manifest.json",
        "not JSON (",
    ),
    "manifest a list": (
        lambda store: (store / "manifest.json").write_text("[]"),
        "manifest.json",
        "a list, expected an object",
    ),
    "manifest other format": (
        manifest(lambda value: value.update(format="numpy")),
        "manifest.json",
        "format 'numpy', expected 'seqpack.tokens'",
    ),
    "manifest other version": (
        manifest(lambda value: value.update(format_version=1)),
        "manifest.json",
        "format version 1, expected 5",
    ),
    "manifest dtype": (
        manifest(lambda value: value.update(dtype="float32")),
        "manifest.json",
        "contradicts itself: dtype, vocab_size, max_id",
    ),
    "manifest other dtype": (
        manifest(lambda value: value.update(dtype="int32")),
        "manifest.json",
        "contradicts itself: the files of part 0",
    ),
    "manifest field gone": (
        manifest(lambda value: value.pop("parts")),
        "manifest.json",
        "no field 'parts'",
    ),
    "manifest field of another type": (
        manifest(lambda value: value.update(max_id="many")),
        "manifest.json",
        "field 'max_id' is 'many', expected a count",
    ),
    "manifest part is a name": (
        manifest(lambda value: value.update(parts=["part-00000"])),
        "manifest.json",
        "'part-00000', expected an object",
    ),
    "manifest source is a name": (
        manifest(lambda value: value.update(sources=["a.txt"])),
        "manifest.json",
        "'a.txt', expected an object",
    ),
    "manifest part count": (
        manifest(lambda value: value["parts"][0].update(num_sequences=3)),
        "manifest.json",
        "num_sequences of the parts do not add up to the ledger",
    ),
    "manifest parts swapped": (
        manifest(lambda value: value["parts"].reverse()),
        "manifest.json",
        "contradicts itself: the files of part 0",
    ),
    "manifest files swapped": (
        manifest(lambda value: value["parts"][0]["files"].reverse()),
        "manifest.json",
        "contradicts itself: the files of part 0",
    ),
    "name with traversal": (
        manifest(lambda value: file_of(value, 0, 0).update(name="../a.txt")),
        "",
        "'../a.txt' is not a plain file name",
    ),
    "absolute name": (
        manifest(lambda value: file_of(value, 0, 0).update(name="/etc/passwd")),
        "",
        "'/etc/passwd' is not a plain file name",
    ),
    "part name with traversal": (
        manifest(lambda value: value["parts"][0].update(name="../part-00000")),
        "",
        "",
    ),
    "size without reason": (
        manifest(lambda value: file_of(value, 0, 0).update(bytes=-10)),
        "manifest.json",
        "field 'bytes' is -10, expected a count",
    ),
    "size and file agree but not the ids": (
        lambda store: (
            os.truncate(store / "part-00000.bin", 12),
            change_json(
                store / "manifest.json", lambda value: file_of(value, 0, 0).update(bytes=12)
            ),
        ),
        "manifest.json",
        "contradicts itself: the files of part 0",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_damaged_store_is_refused_by_name(store: Path, name: str) -> None:
    damage, file, said = TABLE[name]
    for path in store.glob("part-00000.*"):
        shutil.copy(path, store.parent)  # something to find outside
    damage(store)
    with pytest.raises(FolderError) as caught:
        open_store(store)
    assert caught.value.exit_code == 4
    assert caught.value.message.startswith(f"{store / file if file else store}")
    assert said in caught.value.message


@pytest.mark.parametrize(
    "damage",
    [
        put("part-00001.bin", 4, "<H", 120),
        lambda store: swap(store, "part-00000.bin", "part-00001.bin"),
        lambda store: swap(store, "part-00000.idx", "part-00001.idx"),
    ],
    ids=["flipped id", "bins swapped", "indexes swapped"],
)
def test_damage_that_keeps_every_size_is_found_by_its_checksum(store: Path, damage: Damage) -> None:
    damage(store)
    opened = open_store(store)
    with pytest.raises(FolderError) as caught:
        opened.check_digest()
    assert caught.value.message.endswith(": blake3 differs from the manifest's")
    assert caught.value.hint == "the store was changed or damaged: make it again with --overwrite"


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.unlink, "missing"),
        (_replace_by_folder, "not a regular file"),
        (lambda path: path.write_text("{}"), "blake3 differs from the manifest's"),
    ],
)
def test_other_tokenizer_is_refused(store: Path, damage: Damage, said: str) -> None:
    opened = open_store(store)
    damage(store / "tokenizer.json")
    with pytest.raises(FolderError) as caught:
        opened.read_tokenizer_json()
    assert caught.value.message == (f"{store / 'tokenizer.json'}: {said}")


def test_file_in_the_place_of_a_store_is_refused(store: Path) -> None:
    with pytest.raises(FolderError) as caught:
        open_store(store / "manifest.json")
    assert caught.value.message == f"{store / 'manifest.json'}: a file, expected a folder"


def test_every_flipped_byte_of_a_store_is_found(store: Path) -> None:
    """By opening it, or by its checksum; run.json is for people alone."""
    for path in sorted(store.iterdir()):
        if path.suffix not in (".bin", ".idx"):
            continue
        data = path.read_bytes()
        for offset in range(len(data)):
            path.write_bytes(data[:offset] + bytes([data[offset] ^ 0x11]) + data[offset + 1 :])
            with pytest.raises(FolderError):
                open_store(store).check_digest()
        path.write_bytes(data)
    open_store(store).check_digest()
