"""A target that misbehaves from time to time, to check that the runner of the fuzzer notices."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from fuzz_lab import open_lab
from fuzz_mutators import Choices
from fuzz_uses import Outcome, run_use


def fuzz_faults(data: bytes) -> Outcome:
    """Misbehave from time to time."""

    def commit(folder: Path, choices: Choices) -> Iterator[None]:
        yield
        choices.choose((*FAULTS, *(lambda _: None,) * 25))(folder)

    return run_use(commit, open_lab().root, Choices(data))


def _refuse(folder: Path) -> None:
    raise ValueError(f"{folder}: not one of ours")


def _read_outside(folder: Path) -> None:
    (folder.parent / "outside" / "none").is_file()
    with contextlib.suppress(OSError):
        (folder / ".." / "outside" / "none").read_bytes()


def _write_outside(folder: Path) -> None:
    (folder.parent / "outside" / "new").mkdir(exist_ok=True)


def _follow_link(folder: Path) -> None:
    link = folder / "link"
    with contextlib.suppress(OSError):
        link.symlink_to(folder.parent / "outside" / "none")
    try:
        with contextlib.suppress(OSError):
            link.read_bytes()
    finally:
        link.unlink()


def _take_memory(folder: Path) -> None:
    bytearray(2 << 30)


def _start_process(folder: Path) -> None:
    with contextlib.suppress(OSError):
        subprocess.run([folder / "none"], check=False)


def _die(folder: Path) -> None:
    os.abort()


FAULTS: list[Callable[[Path], None]] = [
    *(_refuse, _read_outside, _write_outside, _follow_link, _take_memory, _start_process, _die),
]
CONTROLS: dict[str, Callable[[bytes], Outcome]] = {"faults": fuzz_faults}
