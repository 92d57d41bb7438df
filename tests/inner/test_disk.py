"""The calls that change a disk, one by one: what a kill or a power cut would show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seqpack_cli.files import disk


def test_a_new_file_holds_nothing_of_one_that_was_there(tmp_path: Path) -> None:
    """A killed process may have had the same number, and have written more."""
    path = tmp_path / ".a.bin.1.tmp"
    path.write_bytes(b"much longer than the new one")
    earlier = path.stat().st_ino
    with path.open("rb") as kept, disk.create_file(path) as file:
        disk.write_all(file, b"new", path)
        assert kept.read() == b"much longer than the new one"
    assert path.read_bytes() == b"new"
    assert path.stat().st_ino != earlier


def test_a_new_file_does_not_go_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"of somebody else")
    (tmp_path / "link").symlink_to("other")
    with disk.create_file(tmp_path / "link") as file:
        disk.write_all(file, b"new", tmp_path / "link")
    assert (tmp_path / "other").read_bytes() == b"of somebody else"
    assert not (tmp_path / "link").is_symlink()


def test_each_new_folder_is_synced_in_the_one_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    new_folders = disk.make_folder(tmp_path / "a" / "b" / "c")
    assert new_folders == [tmp_path / "a" / "b" / "c", tmp_path / "a" / "b", tmp_path / "a"]
    holders = [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    assert synced == [folder.stat().st_ino for folder in holders]
    assert disk.make_folder(tmp_path / "a" / "b") == []
    assert len(synced) == 3


def test_all_bytes_are_written_however_few_the_system_takes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "a.bin", os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with disk.create_file(path) as file:
        disk.write_all(file, b"0123456789", path)
    assert path.read_bytes() == b"0123456789"
