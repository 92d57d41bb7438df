"""Random folder trees, walked by the program and by a slow oracle: the same files, each once."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import random
import shutil
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqpack_cli.corpus.find_files import (
    Reason,
    find_sources,
)
from seqpack_cli.errors import MachineError, OptionError, SeqpackError

NOBODY = 65534
NAMES = [
    "a",
    "b.txt",
    "B.txt",
    "c.md",
    "d-e",
    "d",
    "x.png",
    ".hid",
    "é.txt",
    "[a].txt",
    "-r",
    "a b",
]
ODD_NAMES = [
    "\n",
    "*",
    "?",
    "a\x1b.txt",
    os.fsdecode(b"\xff.txt"),
    "**",
    "..x",
    "~",
    "$HOME",
    "a\\b",
]
PATTERNS = [
    "",
    "/**",
    "/**/*.txt",
    "/*",
    "/*/*",
    "/*/*.txt",
    "/**/d*",
    "/d/**/*",
    "/**/",
    "/*/",
    "/.*",
]


def make_tree(root: Path, rng: random.Random, *, with_links: bool = True) -> None:
    """Fill `root/in` and `root/out` with folders, files, links and other entries."""
    folders = [root / "in", root / "out"]
    for folder in folders:
        folder.mkdir(parents=True)
    paths = list(folders)
    for number in range(rng.randrange(4, 28)):
        name = rng.choice(NAMES if rng.random() < 0.8 else ODD_NAMES)
        path = rng.choice(folders) / name
        if os.path.lexists(path):
            continue
        kind = rng.random()
        with contextlib.suppress(OSError):  # a name too long for a socket
            if kind < 0.35:
                path.mkdir()
                folders.append(path)
            elif kind < 0.65 or not with_links:
                path.write_text(f"{number}\n")
            elif kind < 0.92:
                make_link(path, rng.choice(paths), rng)
            elif kind < 0.95:
                os.mkfifo(path)
            elif kind < 0.97:
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(os.fsencode(os.path.relpath(path)))
            else:
                (path.parent / "manifest.json").write_text('{\n "format": "seqpack.tokens"\n}')
        paths.append(path)


def make_link(path: Path, target: Path, rng: random.Random) -> None:
    spelled = rng.choice([str(target), os.path.relpath(target, path.parent)])
    path.symlink_to(rng.choice([spelled, spelled, spelled, "nowhere", path.name, f"{spelled}/x"]))


def can_read(path: str) -> bool:
    return os.access(path, os.R_OK, effective_ids=True)


# The oracle: every path that exists, one at a time


class Oracle:
    """All files that a pattern matches, by real path."""

    def __init__(self) -> None:
        self.files: dict[str, set[tuple[str, bool]]] = {}  # real path: spelled paths, named or not
        self.dangling: set[str] = set()
        self.special: set[str] = set()
        self.unreadable: set[str] = set()
        self.outputs: set[str] = set()
        self._seen: set[tuple[str, tuple[str, ...] | None]] = set()

    def visit(self, path: str, parts: tuple[str, ...] | None) -> None:
        """Go through a folder; without parts everything matches."""
        if (os.path.realpath(path), parts) in self._seen:
            return
        self._seen.add((os.path.realpath(path), parts))
        if parts == ("**", "") or parts == ("",):
            self.visit(path, None)
            return
        try:
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except PermissionError:
            self.unreadable.add(os.path.realpath(path))
            return
        if "manifest.json" in [entry.name for entry in found] and can_read(f"{path}/manifest.json"):
            self.outputs.add(os.path.realpath(path))
            return
        if parts and parts[0] == "**" and len(parts) > 1:
            self.visit(path, parts[1:])
        for entry in found:
            if entry.is_file(follow_symlinks=False) and parts and len(parts) > 1:
                continue  # what is below it is wanted
            self._take(os.path.join(path, entry.name), entry.name, parts)

    def _take(self, path: str, name: str, parts: tuple[str, ...] | None) -> None:
        hidden = name.startswith(".")
        if parts is None:
            if not hidden:
                self._enter(path, None, file=True, named=False)
        elif parts[0] == "**":
            if not hidden:
                self._enter(path, parts, file=len(parts) == 1, named=True)
        elif fnmatch.fnmatchcase(name, parts[0]) and (not hidden or parts[0].startswith(".")):
            is_last = len(parts) == 1
            self._enter(path, None if is_last else parts[1:], file=is_last, named=True)

    def _enter(self, path: str, parts: tuple[str, ...] | None, *, file: bool, named: bool) -> None:
        real = os.path.realpath(path)
        try:
            mode = os.stat(path).st_mode
        except PermissionError:
            self.unreadable.add(real)
        except OSError:
            self.dangling.add(real_entry(path))
        else:
            if stat.S_ISDIR(mode):
                self.visit(path, parts)
            elif file and stat.S_ISREG(mode):
                self.files.setdefault(real, set()).add((path, named))
            elif file:
                self.special.add(real)

    def wanted(self) -> set[str]:
        """Return the real paths of the files to read."""
        return {
            real
            for real, spelled in self.files.items()
            if any(named or path.endswith((".txt", ".md")) for path, named in spelled)
        }


def real_entry(path: str) -> str:
    return os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))


def check_tree(root: Path, pattern: str, output: Path) -> None:
    name = f"{root}/in{pattern}"
    first = f"{root}/in/{pattern[1:].partition('/')[0]}"
    if glob.has_magic(pattern) and (os.path.lexists(name) or os.path.lexists(first)):
        return  # what exists is no pattern
    oracle = Oracle()
    start, parts = f"{root}/in", tuple(pattern[1:].split("/")) if pattern else None
    if parts and not glob.has_magic(parts[0]):
        start, parts = f"{start}/{parts[0]}", parts[1:]
    if os.path.isdir(start):
        oracle.visit(start, parts)
    try:
        sources, skipped = find_sources([name], output=output)
    except MachineError:
        assert oracle.unreadable, "an error, and all can be read"
        return
    except OptionError as error:
        assert not oracle.wanted() or "files are not supported" in error.message, error
        return
    assert not oracle.unreadable, "unreadable, and no error"
    found = [source.path for source in sources]
    assert sorted(map(os.path.realpath, found)) == sorted(oracle.wanted())
    for path in found:  # the real path, where the pattern passes it
        real = os.path.realpath(path)
        has_real = any(spelled == real for spelled, _ in oracle.files[real])
        assert path == real or not has_real or not real.endswith((".txt", ".md"))
    assert (
        set(
            map(
                real_entry,
                sorted(path for path, why in skipped.items() if Reason.DANGLING_LINK in why),
            )
        )
        == oracle.dangling
    )
    assert (
        set(
            map(
                os.path.realpath,
                sorted(path for path, why in skipped.items() if Reason.SPECIAL_FILE in why),
            )
        )
        == oracle.special
    )
    assert (
        set(
            map(
                os.path.realpath,
                sorted(path for path, why in skipped.items() if Reason.SEQPACK_OUTPUT in why),
            )
        )
        == oracle.outputs
    )
    unknown = set(
        map(
            os.path.realpath,
            sorted(path for path, why in skipped.items() if Reason.UNKNOWN_SUFFIX in why),
        )
    )
    assert unknown == set(oracle.files) - oracle.wanted()
    assert len(str(skipped)) < 4000


@contextlib.contextmanager
def new_root(folder: Path, seed: int) -> Iterator[Path]:
    root = folder / str(seed)
    yield root
    for path, _, _ in os.walk(root):
        Path(path).chmod(0o755)
    shutil.rmtree(root)


def run_seeds(folder: Path, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        with new_root(folder, seed) as root:
            make_tree(root, rng)
            for pattern in rng.sample(PATTERNS, 4):
                output = rng.choice([root / "none", root / "in/d", root / "out"])
                try:
                    check_tree(root, pattern, output)
                except (AssertionError, SeqpackError) as error:
                    if isinstance(error, SeqpackError) and "contains the input" in error.message:
                        continue
                    raise AssertionError(f"seed {seed}, pattern {pattern!r}: {error}") from error


def run_globs(folder: Path, seeds: range) -> None:
    """Without links, Python's own glob gives the same files in the same order."""
    for seed in seeds:
        rng = random.Random(seed)
        with new_root(folder, seed) as root:
            make_tree(root, rng, with_links=False)
            for pattern in ("/**/*.txt", "/*.txt", "/*/*.md", "/d/*.txt", "/**/b*.txt"):
                expected = sorted(glob.glob(f"{root}/in{pattern}", recursive=True), key=os.fsencode)
                exists = os.path.lexists(f"{root}/in{pattern}")
                if exists or not expected or any(map(os.path.isdir, expected)):
                    continue
                sources, _ = find_sources([f"{root}/in{pattern}"])
                assert [source.path for source in sources] == expected, f"{seed} {pattern}"


def run_locked(folder: Path, seeds: range) -> None:
    """Some folders may not be read: an error, if and only if the walk meets one."""
    for seed in seeds:
        rng = random.Random(seed)
        with new_root(folder, seed) as root:
            make_tree(root, rng)
            made = [Path(path) for path, _, _ in os.walk(root / "in")][1:]
            for path in rng.sample(made, min(len(made), 1)):
                path.chmod(rng.choice([0, 0o111, 0o444]))
            os.seteuid(NOBODY)
            try:
                for pattern in ("", "/**/*.txt", "/*/*"):
                    check_tree(root, pattern, root / "none")
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, pattern {pattern!r}: {error}") from error
            finally:
                os.seteuid(0)


def run_races(folder: Path, seeds: range) -> None:
    """Entries come and go during the walk: an error of ours or some of the files, never more."""
    for seed in seeds:
        rng = random.Random(seed)
        with new_root(folder, seed) as root:
            make_tree(root, rng)
            ended = threading.Event()

            def disturb(
                root: Path = root, rng: random.Random = rng, ended: threading.Event = ended
            ) -> None:
                while not ended.is_set():
                    with contextlib.suppress(OSError, IndexError):
                        path = Path(rng.choice([*map(str, (root / "in").rglob("*"))]))
                        kind = rng.randrange(4)
                        if kind == 0:
                            path.rename(path.with_name(rng.choice(NAMES)))
                        elif kind == 1:
                            path.unlink()
                        elif kind == 2:
                            path.with_name("new").mkdir()
                        else:
                            path.with_name("new.txt").symlink_to(rng.choice(["..", "d", "b.txt"]))

            thread = threading.Thread(target=disturb)
            thread.start()
            try:
                for pattern in (*PATTERNS, "") * 3:
                    with contextlib.suppress(SeqpackError):
                        sources, _ = find_sources([f"{root}/in{pattern}"])
                        found = [source.path for source in sources]
                        assert len(set(found)) == len(found), f"seed {seed}"
            finally:
                ended.set()
                thread.join()


def test_random_trees_are_walked_as_by_the_oracle(tmp_path: Path) -> None:
    run_seeds(tmp_path, range(150))
    run_globs(tmp_path, range(60))


def open_to_all(folder: Path) -> None:
    for path in (folder, *folder.parents[:3]):
        path.chmod(0o755)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_random_locked_folders_are_errors(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    run_locked(tmp_path, range(60))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_campaign_of_random_trees(tmp_path: Path, seed: int) -> None:
    open_to_all(tmp_path)
    run_seeds(tmp_path, range(300 * seed, 300 * seed + 300))
    run_globs(tmp_path, range(60 * seed, 60 * seed + 60))
    run_races(tmp_path, range(20 * seed, 20 * seed + 20))
    if os.getuid() == 0:
        run_locked(tmp_path, range(150 * seed, 150 * seed + 150))
