"""Staging folders on a local disk: shared by processes, and moved into folders that exist."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seqpack_cli.errors import MachineError
from seqpack_cli.files.local_place import LocalPlace


def test_a_neighbour_that_cleans_up_takes_no_folder_away(tmp_path: Path) -> None:
    failures = list[BaseException]()
    place = LocalPlace(tmp_path / "out")

    def write() -> None:
        try:
            for _ in range(20):
                place.remove_left_overs()
                with place.hold_staging() as folder:
                    (folder / "file").write_bytes(b"a")
                    place.remove_left_overs()
                    assert (folder / "file").exists()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_stays(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir(0o700)
    output.chmod(0o2770)
    before = output.stat()
    for text in ("first", "second"):
        with LocalPlace(output / "part").hold_staging() as folder:
            for name in ("a", "b", text):
                (folder / name).write_text(text)
            LocalPlace(output).move_in(folder)
        expected = dict.fromkeys(("a", "b", text), text)
        assert {each.name: each.read_text() for each in output.iterdir()} == expected
    after = output.stat()
    assert (after.st_ino, after.st_mode, after.st_gid) == (
        before.st_ino,
        before.st_mode,
        before.st_gid,
    )


def test_a_folder_keeps_its_files_if_others_cannot_be_moved_in(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    for name in ("a", "b"):
        (output / name).write_text("old")
    with (
        pytest.raises(MachineError, match="No such file"),
        LocalPlace(output / "part").hold_staging() as folder,
    ):
        for name in ("a", "b"):
            (folder / name).write_text("new")
        _move_in_failing(LocalPlace(output), folder)
    assert {each.name: each.read_text() for each in output.iterdir()} == {"a": "old", "b": "old"}


def _move_in_failing(place: LocalPlace, folder: Path) -> None:
    """Move files in, the last of which somebody removes once the others were synced."""
    from seqpack_cli.files import disk

    rename = disk.rename

    def remove_first(temp: Path, path: Path, *, replace: bool = True) -> None:
        if temp == folder / "a":
            temp.unlink()
        rename(temp, path, replace=replace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "rename", remove_first)
        place.move_in(folder)
