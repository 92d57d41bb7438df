"""Fetched objects: by their checksum, checked, bounded, shared by processes and threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from object_store import write_object
from seqpack_cli.files.copy_marks import hashing_copies

from seqpack_cli.errors import FolderError, MachineError, OptionError
from seqpack_cli.files import object_cache
from seqpack_cli.files.cache import find_cache_folder, find_cache_limit, local_file
from seqpack_cli.files.mapping import map_regular
from seqpack_cli.files.objects import Url, remove_objects
from seqpack_cli.files.places import LocalPlace, at
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.open_store import open_store


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SEQPACK_CACHE_BYTES", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every object that is streamed from its store from now on, by name."""
    seen: list[str] = []
    stream = object_cache.iter_object

    def counted(url: Url, start: int, end: int) -> Iterator[bytes]:
        seen.append(url.name)
        return stream(url, start, end)

    monkeypatch.setattr(object_cache, "iter_object", counted)
    return seen


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every copy that is hashed from now on, by name."""
    seen: list[str] = []
    hash_file = LocalPlace.hash

    def counted(place: LocalPlace) -> str:
        seen.append(place.path.name)
        return hash_file(place)

    monkeypatch.setattr(LocalPlace, "hash", counted)
    return seen


def put(tmp_path: Path, name: str, data: bytes) -> tuple[Url, dict[str, Any]]:
    url = Url(f"memory://{tmp_path.name}/{name}")
    write_object(url, data)
    return url, {"bytes": len(data), "blake3": blake3(data).hexdigest()}


def list_kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.startswith("."))


def test_a_local_file_is_itself(tmp_path: Path, cache: Path) -> None:
    with at(tmp_path / "x").open_copy({}) as found:
        assert found == tmp_path / "x"
    assert not cache.exists()


def test_an_object_is_fetched_once(tmp_path: Path, cache: Path, fetches: list[str]) -> None:
    url, entry = put(tmp_path, "x", b"abc" * 1000)
    for _ in range(3):
        with local_file(url, entry) as found:
            assert found.read_bytes() == b"abc" * 1000
    assert fetches == ["x"]
    assert list_kept(cache) == [entry["blake3"]]
    other, _ = put(tmp_path, "moved", b"abc" * 1000)
    remove_objects([url])
    with local_file(other, entry):
        assert fetches == ["x"]  # by what it is, not by where it was


def test_an_object_that_is_not_what_the_manifest_says_is_refused(
    tmp_path: Path, cache: Path
) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    for wrong, message in (
        ({"blake3": "0" * 64}, f"{url}: blake3 differs from the manifest's"),
        ({"bytes": 4}, f"{url}: 3 bytes, manifest says 4"),
        ({"bytes": 2}, f"{url}: blake3 differs from the manifest's"),
        ({"blake3": "../../name"}, f"{url}: blake3 '../../name' in the manifest is not a checksum"),
    ):
        with pytest.raises(FolderError) as caught, local_file(url, entry | wrong):
            pass
        assert caught.value.message == message
        assert not cache.exists() or list_kept(cache) == []
    assert not list(cache.glob(".*.tmp"))
    remove_objects([url])
    with pytest.raises(FolderError, match="missing"), local_file(url, entry):
        pass


def flip_bit(path: Path, *, keep_time: bool) -> None:
    """Flip a bit in place; a disk that goes bad keeps the time of change."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2])


def damage_swap(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.write_bytes(b"xyz")


def damage_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def damage_bit(path: Path) -> None:
    flip_bit(path, keep_time=False)


def damage_mark(path: Path) -> None:
    """What a mark says is not believed of a file that it does not describe."""
    damage_swap(path)
    mark = path.with_name(f".{path.name}.checked")
    mark.write_text("x" * 1000)


@pytest.mark.parametrize("damage", [damage_cut, damage_swap, damage_link, damage_bit, damage_mark])
def test_copy_that_was_changed_is_fetched_again(
    tmp_path: Path, cache: Path, fetches: list[str], damage: Callable[[Path], None]
) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    with local_file(url, entry) as found:
        pass
    damage(found)
    for _ in range(2):
        with local_file(url, entry) as found:
            assert found.read_bytes() == b"abc"
            assert not found.is_symlink()
    assert fetches == ["x", "x"]


def test_copy_that_went_bad_is_found_by_every_run_and_hashed_once_in_it(
    tmp_path: Path, cache: Path, fetches: list[str], hashes: list[str]
) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    with local_file(url, entry) as found:
        pass
    with hashing_copies() as began:
        for _ in range(3):
            with local_file(url, entry):
                pass
    flip_bit(found, keep_time=True)
    with hashing_copies(began), local_file(url, entry):
        assert hashes == [entry["blake3"]]  # in its first run, not in its fetch
    with hashing_copies(), local_file(url, entry):
        assert found.read_bytes() == b"abc"
    assert fetches == ["x", "x"]
    assert hashes == [entry["blake3"]] * 2


def test_copy_without_a_mark_is_hashed_once(
    tmp_path: Path, cache: Path, fetches: list[str], hashes: list[str]
) -> None:
    """One that an earlier version fetched; and what a run has hashed, loaders trust."""
    url, entry = put(tmp_path, "x", b"abc")
    cache.mkdir()
    (cache / entry["blake3"]).write_bytes(b"abc")
    for _ in range(3):
        with local_file(url, entry):
            pass
    assert (fetches, hashes) == ([], [entry["blake3"]])


def test_damaged_copy_of_a_damaged_object_is_the_error_of_the_object(
    tmp_path: Path, cache: Path
) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    with local_file(url, entry) as found:
        pass
    damage_bit(found)
    write_object(url, b"xyz")
    found_wrong = pytest.raises(FolderError, match="x: blake3 differs from the manifest's")
    with found_wrong, local_file(url, entry):
        pass
    assert list_kept(cache) == []


def test_copy_that_is_replaced_while_it_is_opened_is_not_used(tmp_path: Path, cache: Path) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    changed = pytest.raises(MachineError, match=f"{entry['blake3']}: changed while it was opened")
    with changed, local_file(url, entry) as found:
        damage_swap(found)


def test_copy_that_is_replaced_before_it_is_marked_is_not_trusted(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    rename = object_cache.disk.rename

    def rename_and_swap(temporary: Path, path: Path) -> None:
        rename(temporary, path)
        monkeypatch.setattr(object_cache.disk, "rename", rename)
        damage_swap(path)

    monkeypatch.setattr(object_cache.disk, "rename", rename_and_swap)
    with local_file(url, entry) as found:
        assert found.read_bytes() == b"abc"


def test_cache_that_can_not_be_written_is_named(tmp_path: Path, cache: Path) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    (cache / ".room.lock").mkdir(parents=True)
    with pytest.raises(MachineError) as caught, local_file(url, entry):
        pass
    assert caught.value.message == f"{cache}/.room.lock: Is a directory"
    assert caught.value.hint == "set SEQPACK_CACHE_DIR to a writable folder"


def test_cache_that_is_cleared_meanwhile_is_filled_again(
    tmp_path: Path, cache: Path, fetches: list[str]
) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    for _ in range(2):
        with local_file(url, entry) as found:
            assert found.read_bytes() == b"abc"
        shutil.rmtree(cache)
    assert fetches == ["x", "x"]


def test_what_was_used_longest_ago_makes_room(
    tmp_path: Path, cache: Path, fetches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQPACK_CACHE_BYTES", "2500")
    made = {name: put(tmp_path, name, name.encode() * 1000) for name in "abc"}

    def use(name: str) -> None:
        with local_file(*made[name]) as found:
            assert found.read_bytes() == name.encode() * 1000

    for seconds, name in enumerate("aba"):
        use(name)
        os.utime(cache / f".{made[name][1]['blake3']}.checked", (seconds, seconds))
    use("c")  # b goes: a was used after it
    assert list_kept(cache) == sorted(made[name][1]["blake3"] for name in "ac")
    use("b")
    assert fetches == ["a", "b", "c", "b"]
    assert sum(path.stat().st_size for path in cache.iterdir()) <= 2500


def test_what_is_larger_than_the_limit_is_kept_alone(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQPACK_CACHE_BYTES", "100")
    kept = []
    for name in "ab":
        url, entry = put(tmp_path, name, name.encode() * 1000)
        with local_file(url, entry) as found:
            kept.append(map_regular(found, num_bytes=1000))
        assert list_kept(cache) == [entry["blake3"]]
    np.testing.assert_array_equal(kept[0], np.full(1000, ord("a")))  # removed, and mapped still


def test_what_a_killed_fetch_left_is_removed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    (cache / f".{'0' * 64}.123.tmp").write_bytes(b"half")
    url, entry = put(tmp_path, "x", b"abc")
    with local_file(url, entry):
        assert not list(cache.glob(".*.tmp"))


def test_threads_share_one_fetch(tmp_path: Path, cache: Path, fetches: list[str]) -> None:
    url, entry = put(tmp_path, "x", os.urandom(3_000_000))
    found: list[str] = []

    def use() -> None:
        with local_file(url, entry) as path:
            found.append(blake3(path.read_bytes()).hexdigest())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [entry["blake3"]] * 8
    assert fetches == ["x"]


def test_a_small_cache_serves_many_threads(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody finds a file gone that was promised, though there is room for one of four."""
    monkeypatch.setenv("SEQPACK_CACHE_BYTES", "1500")
    made = [put(tmp_path, str(number), bytes([number]) * 1000) for number in range(4)]
    faults: list[BaseException] = []

    def use(first: int) -> None:
        try:
            for step in range(30):
                number = (first + step) % 4
                with local_file(*made[number]) as path:
                    assert path.read_bytes() == bytes([number]) * 1000
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=use, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


WAITS_IN_A_FETCH = """
import sys
from pathlib import Path
from seqpack_cli.files import object_cache
from seqpack_cli.files.url import Url

def stream(url, start, end):
    yield b"ab"
    print("half", flush=True)
    sys.stdin.read()
    yield b"c"

object_cache.iter_object = stream
with object_cache.local_file(Url("memory://x/y"), {"bytes": 3, "blake3": sys.argv[1]}) as path:
    print(path.read_bytes().decode(), flush=True)
"""


def test_a_process_waits_for_the_fetch_of_another(
    tmp_path: Path, cache: Path, fetches: list[str]
) -> None:
    url, entry = put(tmp_path, "x", b"abc")
    with subprocess.Popen(
        [sys.executable, "-c", WAITS_IN_A_FETCH, entry["blake3"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"half\n"
        found: list[bytes] = []

        def use() -> None:
            with local_file(url, entry) as path:
                found.append(path.read_bytes())

        thread = threading.Thread(target=use)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and found == []
        other.stdin.close()
        assert other.stdout.readline() == b"abc\n"
        thread.join()
    assert found == [b"abc"]
    assert fetches == []  # the other's copy served


@pytest.mark.parametrize(("text", "size"), [("", 64 << 30), ("1000", 1000), ("1.5KiB", 1536)])
def test_the_limit_is_a_size(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("SEQPACK_CACHE_BYTES", text)
    assert find_cache_limit() == size


@pytest.mark.parametrize("text", ["much", "-5", "1e9"])
def test_a_limit_that_is_no_size_is_refused_before_anything_is_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("SEQPACK_CACHE_BYTES", text)
    for read in (open_store, open_shards):
        with pytest.raises(OptionError, match=f"SEQPACK_CACHE_BYTES: '{text}' is not a size"):
            read(f"memory://{tmp_path.name}/nowhere")
    assert not cache.exists()


def test_the_folder_is_where_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQPACK_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert find_cache_folder() == Path("/somewhere/seqpack")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert find_cache_folder() == Path("/home/someone/.cache/seqpack")
