"""Plain files opened without trust, and their maps, which outlive the file's descriptor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files.disk import open_regular
from seqpack_cli.files.mapping import let_pages_go, map_file, map_regular, view_array
from seqpack_cli.files.places import at

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


def test_file_that_may_not_be_read_is_an_error_of_the_machine(tmp_path: Path) -> None:
    """Also for root, who may read everything: a name below a file that is none."""
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FolderError, match="missing"):
        open_regular(tmp_path / "file" / "below")
    assert not at(tmp_path / "file" / "below").exists()
    with pytest.raises(MachineError, match="File name too long"):
        open_regular(tmp_path / ("x" * 300))
    with pytest.raises(FolderError, match="null"):
        open_regular(tmp_path / "a\0b")


def test_mapped_array_is_a_read_only_view(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"\xff\1\0\2\0")
    mapped = map_regular(path, num_bytes=5)
    array = view_array(mapped, "<u2", count=2, offset=1)
    assert array.tolist() == [1, 2]
    assert not array.flags.writeable
    path.write_bytes(b"")
    assert map_regular(path).view("<u2").tolist() == []


MAPS_MANY = """
import resource, sys
from pathlib import Path
from seqpack_cli.files.mapping import map_regular

resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
maps = [map_regular(Path(sys.argv[1])) for _ in range(1000)]
print(len(maps), set(map(len, maps)))
"""


def test_maps_do_not_keep_files_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    arguments = [sys.executable, "-c", MAPS_MANY, tmp_path / "a"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout == "1000 {3}\n"
