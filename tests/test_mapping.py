"""Maps that outlive their file's descriptor, and whose pages can be let go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seqpack_cli.files.mapping import let_pages_go, map_file

CONTENTS = bytes(range(256)) * 64


def map_contents(path: Path) -> np.ndarray:
    """Write a file, map it, close and remove it."""
    path.write_bytes(CONTENTS)
    with path.open("rb") as file:
        mapped = map_file(file.fileno(), len(CONTENTS))
    path.unlink()
    return mapped


def test_map_is_the_file_and_can_not_be_written(tmp_path: Path) -> None:
    mapped = map_contents(tmp_path / "a")
    assert mapped.tobytes() == CONTENTS
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        mapped.flags.writeable = True


def test_views_keep_the_map(tmp_path: Path) -> None:
    view = map_contents(tmp_path / "a")[4:8].view("<u2")[1:]
    assert view.tolist() == [0x0706]


def count_maps(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_last_array_to_go_unmaps_the_file(tmp_path: Path) -> None:
    mapped = map_contents(tmp_path / "a")
    view = mapped[1:2]
    del mapped
    assert count_maps(tmp_path / "a") == 1
    del view
    assert count_maps(tmp_path / "a") == 0


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_pages_that_were_let_go_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENTS * 64)
    with path.open("rb") as file:
        mapped = map_file(file.fileno(), len(CONTENTS) * 64)

    def count_resident() -> int:
        lines = Path("/proc/self/smaps").read_text().split(str(path))[1].splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

    total = int(mapped.sum(dtype=np.int64))
    assert count_resident() == len(CONTENTS) * 64 // 1024
    let_pages_go(mapped[100:].view(np.uint16)[3:])  # of a view, the whole map's
    assert count_resident() == 0
    assert int(mapped.sum(dtype=np.int64)) == total == 64 * 64 * sum(range(256))


def test_letting_pages_of_other_arrays_go_changes_nothing() -> None:
    array = np.arange(5000)
    let_pages_go(array)
    assert array.tolist() == list(range(5000))


def test_file_that_can_not_be_mapped_is_an_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="No such device") as caught:
            map_file(reading, 10)
        assert caught.value.errno
    finally:
        os.close(reading)
        os.close(writing)


def test_interpreter_ends_well_with_maps_in_use() -> None:
    code = (
        "import numpy as np, seqpack_cli.files.mapping as m\n"
        "file = open(m.__file__, 'rb')\n"
        "np.kept = m.map_file(file.fileno(), 100)[3:]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
