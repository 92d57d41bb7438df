"""The walk below folders and globs: links, entries that are not files, unreadable folders."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import run

from seqpack_cli.corpus.find_files import find_sources
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.corpus.streams import iter_blocks
from seqpack_cli.errors import DataError, FolderError, MachineError, OptionError
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize

NOBODY = 65534


def make_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(f"{Path(name).suffix}\n"))


def find(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str
) -> tuple[list[str], dict[str, int]]:
    """Find the sources of inputs that are typed in a folder, and count what was skipped."""
    monkeypatch.chdir(folder)
    sources, skipped = find_sources(names)
    return [source.path for source in sources], skipped.count()


@pytest.mark.parametrize("name", ["data", "data/**/*.txt", "data/**", "data/", "data/**/"])
def test_link_back_into_the_walk_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_files(tmp_path, "data/a.txt", "data/b/c.txt", "data/b/d.txt")
    (tmp_path / "data/latest").symlink_to("../data")
    (tmp_path / "data/b/up").symlink_to("..")
    found, skipped = find(monkeypatch, tmp_path, name)
    assert found == ["data/a.txt", "data/b/c.txt", "data/b/d.txt"]
    assert skipped == {"repeated_link": 2}


@pytest.mark.parametrize("name", ["data", "data/**/*.txt", "data/*/*.txt"])
def test_link_to_a_folder_outside_is_followed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_files(tmp_path, "data/sub/a.txt", "outside/x.txt")
    (tmp_path / "data/link").symlink_to(tmp_path / "outside")
    (tmp_path / "data/more").symlink_to("../outside")
    (tmp_path / "outside/back").symlink_to("../data")
    found, skipped = find(monkeypatch, tmp_path, name)
    assert found == ["data/link/x.txt", "data/sub/a.txt"]
    assert skipped["repeated_link"] >= 1


def test_link_to_a_hidden_folder_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "data/.versions/3/a.txt")
    (tmp_path / "data/current").symlink_to(".versions/3")
    assert find(monkeypatch, tmp_path, "data") == (["data/current/a.txt"], {})


@pytest.mark.parametrize("name", ["data", "data/*", "data/**/*.txt"])
def test_file_that_is_reached_twice_is_read_once_under_its_real_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_files(tmp_path, "data/z.txt")
    (tmp_path / "data/a.txt").symlink_to("z.txt")
    assert find(monkeypatch, tmp_path, name) == (["data/z.txt"], {"repeated_link": 1})


def test_file_behind_two_inputs_has_the_place_of_the_first_and_its_real_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "real/a.txt", "b.txt")
    (tmp_path / "link").symlink_to("real")
    assert find(monkeypatch, tmp_path, "link", "b.txt", "real")[0] == ["real/a.txt", "b.txt"]
    assert find(monkeypatch, tmp_path, "link")[0] == ["link/a.txt"]  # as it was typed


def test_link_gives_a_file_its_format_where_its_own_name_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "hub/blobs/9f8a")
    (tmp_path / "hub/snapshot").mkdir()
    (tmp_path / "hub/snapshot/train.txt").symlink_to("../blobs/9f8a")
    assert find(monkeypatch, tmp_path, "hub") == (["hub/snapshot/train.txt"], {})


def test_hard_links_are_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(tmp_path, "a.txt")
    (tmp_path / "b.txt").hardlink_to(tmp_path / "a.txt")
    assert find(monkeypatch, tmp_path, ".") == (["a.txt", "b.txt"], {})


@pytest.mark.parametrize("name", ["data", "data/*", "data/**/*.txt"])
def test_entries_that_are_not_files_are_skipped_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_files(tmp_path, "data/a.txt")
    (tmp_path / "data/gone.txt").symlink_to("nowhere")
    (tmp_path / "data/loop.txt").symlink_to("loop.txt")
    os.mkfifo(tmp_path / "data/pipe.txt")
    monkeypatch.chdir(tmp_path / "data")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.txt")
    monkeypatch.chdir(tmp_path)
    result = run("tokenize", name, "-o", "store", "--num-workers", 1)
    assert result.exit_code == 0
    assert (
        "note: skipped 2 dangling links: data/gone.txt, data/loop.txt; "
        "2 pipes, sockets or devices: data/pipe.txt, data/socket.txt\n"
    ) in result.stderr
    assert json.loads((tmp_path / "store/run.json").read_text())["skipped"] == {
        "dangling_link": 2,
        "special_file": 2,
    }
    assert [source["path"] for source in open_store(tmp_path / "store").manifest["sources"]] == [
        "data/a.txt"
    ]


def test_dangling_link_that_is_named_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("gone")
    with pytest.raises(OptionError) as caught:
        find_sources([str(tmp_path / "a.txt")])
    assert caught.value.message == f"{tmp_path}/a.txt: dangling link, expected a file"


@pytest.fixture
def locked(tmp_path: Path) -> None:
    """Make a folder and a file that only their owner may read, and links to them."""
    make_files(tmp_path, "data/a.txt", "data/locked/b.txt", "link/c.txt")
    (tmp_path / "link/b.txt").symlink_to("../data/locked/b.txt")
    (tmp_path / "data/locked").chmod(0)
    (tmp_path / "data/a.txt").chmod(0)


@pytest.fixture
def as_nobody(tmp_path: Path, locked: None) -> Iterator[None]:
    """Have no more rights than any user: root may read everything."""
    if os.getuid() != 0:
        yield
        return
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("data", "data/locked"),
        ("data/**/*.txt", "data/locked"),
        ("data/*/b.txt", "data/locked"),
        ("data/locked/b.txt", "data/locked/b.txt"),
        ("data/locked/*.txt", "data/locked/*.txt"),
        ("link", "link/b.txt"),
    ],
)
@pytest.mark.usefixtures("as_nobody")
def test_folder_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineError) as caught:
        find_sources([name])
    assert caught.value.message == f"{named}: Permission denied"


@pytest.mark.usefixtures("as_nobody")
def test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    sources, _ = find_sources([str(tmp_path / "data/a.txt")])
    with pytest.raises(DataError, match="Permission denied"):
        list(iter_blocks(SourceRange(0, sources[0], 0, 1), lambda _: None))


def test_folders_may_nest_deeper_than_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(1500):
        Path("d").mkdir()
        os.chdir("d")
    make_files(Path(), "a.txt")
    assert len(find_sources([str(tmp_path)])[0]) == 1
    Path("a.txt").unlink()
    for _ in range(1500):  # which shutil does not remove
        os.chdir("..")
        Path("d").rmdir()


# Names


@pytest.mark.parametrize(
    "name",
    [
        "a b.txt",
        "-a.txt",
        "a\nb.txt",
        "a\x1b[2J.txt",
        os.fsdecode(b"a\xff.txt"),
        "*.txt",
        "[ab].txt",
        "a?.txt",
        "é雨🏻.txt",
        "n" * 251 + ".txt",
    ],
)
def test_odd_names_are_kept_below_folders_in_globs_and_alone(tmp_path: Path, name: str) -> None:
    make_files(tmp_path, f"data/{name}", "data/b.txt")
    for inputs in ([f"{tmp_path}/data/{name}"], [f"{tmp_path}/data"], [f"{tmp_path}/data/*.txt"]):
        sources, _ = find_sources(inputs)
        assert f"{tmp_path}/data/{name}" in [source.path for source in sources]
    store = tmp_path / "store"
    tokenize([f"{tmp_path}/data/{name}"], store)
    assert open_store(store).manifest["sources"][0]["path"] == f"{tmp_path}/data/{name}"
    assert run("inspect", store, "--sequence", 0).exit_code == 0


def test_part_of_a_glob_that_exists_stands_for_itself(tmp_path: Path) -> None:
    make_files(tmp_path, "v[1]/a.txt", "v1/b.txt")
    sources, _ = find_sources([f"{tmp_path}/v[1]/*.txt"])
    assert [source.path for source in sources] == [f"{tmp_path}/v[1]/a.txt"]


@pytest.mark.parametrize("name", ["x" * 5000, "gone/*.txt", "a.txt/*", "*/", "none-*/"])
def test_name_of_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_files(tmp_path, "a.txt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="no such file or folder"):
        find_sources([name])


def test_order_is_that_of_pythons_glob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(tmp_path, "en-US/a.txt", "en/b.txt", "en.txt", "en/a/c.txt", "B.txt")
    expected = ["B.txt", "en/a/c.txt", "en/b.txt", "en-US/a.txt", "en.txt"]
    assert find(monkeypatch, tmp_path, "*")[0] == expected
    assert find(monkeypatch, tmp_path, ".")[0] == sorted(expected)
    assert find(monkeypatch, tmp_path, "./*.txt")[0] == ["./B.txt", "./en.txt"]


# What seqpack wrote itself


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the current one, with texts and a special token in one of them."""
    make_files(tmp_path, "data/a.txt", "data/sub/b.jsonl")
    (tmp_path / "data/a.txt").write_text("one <eos>\ntwo\n")
    (tmp_path / "data/sub/b.jsonl").write_text('{"text": "three"}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


@pytest.mark.parametrize("name", ["data", "data/**/*[lt]", "data/*"])
def test_outputs_below_the_input_are_skipped(corpus: Path, name: str) -> None:
    first = run("tokenize", name, "-o", "data/tok", "--json")
    assert (corpus / "tok/special_tokens.jsonl").exists()
    again = run("tokenize", name, "-o", "data/tok", "--json")
    assert json.loads(again.stdout)["already_complete"]
    other = json.loads(run("tokenize", name, "-o", "data/tok2", "--json").stdout)
    assert other["parts"] == json.loads(first.stdout)["parts"]
    assert run("pack", "data/tok", "-o", "data/shards").exit_code == 0
    third = run("tokenize", name, "-o", "tok3", "--json")
    assert json.loads(third.stdout)["parts"] == other["parts"]
    assert "skipped 3 folders written by seqpack: data/shards, data/tok, data/tok2" in third.stderr
    run_json = json.loads(Path("tok3/run.json").read_text())
    assert run_json["skipped"] == {"seqpack_output": 3}


def test_unfinished_output_and_one_behind_a_link_are_skipped(corpus: Path) -> None:
    tokenize(["data"], Path("tok"))
    (corpus / "link").symlink_to("../tok")
    (corpus / "unfinished").mkdir()
    (corpus / "unfinished/plan.json").write_bytes(Path("tok/manifest.json").read_bytes())
    (corpus / "unfinished/rejects.jsonl").write_text("{}\n")
    sources, skipped = find_sources(["data"])
    assert [source.path for source in sources] == ["data/a.txt", "data/sub/b.jsonl"]
    assert skipped.count() == {"seqpack_output": 2}


@pytest.mark.parametrize("manifest", [b'{"format": "other"}', b"[]", b"", b"\xff", None])
def test_manifest_of_another_program_hides_nothing(corpus: Path, manifest: bytes | None) -> None:
    if manifest is None:
        os.mkfifo(corpus / "manifest.json")
    else:
        (corpus / "manifest.json").write_bytes(manifest)
    assert len(find_sources(["data"])[0]) == 2


def test_file_of_a_store_that_is_named_is_read(corpus: Path) -> None:
    tokenize(["data"], Path("tok"))
    assert len(find_sources(["tok/special_tokens.jsonl"])[0]) == 1
    with pytest.raises(OptionError) as caught:
        find_sources(["tok"])
    assert caught.value.message == (
        "tok: no file with a known suffix (skipped 1 folder written by seqpack: tok)"
    )


@pytest.mark.parametrize("inputs", [["data"], ["data/*.txt"], ["data/a.txt"], ["data/sub"]])
def test_output_that_holds_the_inputs_is_refused(corpus: Path, inputs: list[str]) -> None:
    with pytest.raises(FolderError, match="data: contains the input data/"):
        tokenize(inputs, Path("data"))
    assert sorted(path.name for path in corpus.iterdir()) == ["a.txt", "sub"]


def test_file_that_unpack_wrote_below_the_input_is_named(corpus: Path) -> None:
    """Nothing in it says for sure that it is no input: it is read, but not silently."""
    tokenize(["data"], Path("tok"))
    assert run("pack", "tok", "-o", "shards").exit_code == 0
    assert run("unpack", "shards", "--text", "-o", "data/rows.jsonl").exit_code == 0
    result = run("tokenize", "data", "-o", "tok2")
    note = "read as input although apparently output of seqpack unpack --text: data/rows.jsonl"
    assert f"note: {note}\n" in result.stderr
    assert "6 documents" in result.stdout
    (corpus / "rows.jsonl").unlink()
    assert "unpack" not in run("tokenize", "data", "-o", "tok3").stderr


# Races


def test_folder_that_vanishes_during_the_walk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "data/a.txt", "data/b/c.txt", "data/d/e.txt")
    scandir: Callable[..., object] = os.scandir

    def remove_then_scan(path: str) -> object:
        if path == "data/b":
            (tmp_path / "data/b/c.txt").unlink()
            (tmp_path / "data/b").rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", remove_then_scan)
    assert find(monkeypatch, tmp_path, "data") == (["data/a.txt", "data/d/e.txt"], {"vanished": 1})


def test_failure_of_the_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(tmp_path, "data/a.txt", "data/b/c.txt")

    def fail(path: str) -> object:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(MachineError, match="data: Input/output error"):
        find(monkeypatch, tmp_path, "data")
