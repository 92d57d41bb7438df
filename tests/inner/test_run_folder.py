"""An output folder from the first plan to the manifest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from object_store import write_object
from reference import read_folder

from seqpack_cli import PackOptions, TokenizeOptions, pack, tokenize
from seqpack_cli.corpus.document_block import DocumentOptions
from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.json_files import write_json
from seqpack_cli.files.manifest import check_files, read_manifest
from seqpack_cli.files.objects import Url, read_object
from seqpack_cli.files.places import at
from seqpack_cli.runs import run_folder
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.run_folder import (
    RunFolder,
    RunOutput,
    open_run,
    remove_temporary_files,
    write_receipt,
)

OVERWRITE_HINT = "choose another -o, or pass --overwrite to replace what is there"
KEEPING_HINT = (
    "choose another -o, or pass --overwrite, which keeps these files and replaces an earlier run"
)
SAME_COMMAND_HINT = "choose another -o; --overwrite only replaces what the same command wrote"
REMOVE_HINT = "remove them yourself if they are not needed, or choose another -o"
PLAN: dict[str, Any] = {
    "format": "seqpack.tokens",
    "options": {"a": 1, "b": None, "l": [1]},
    "sources": [{"path": "p"}],
}


def finish(folder: Path, plan: dict[str, Any] = PLAN, *, overwrite: bool = False) -> bool:
    """Hold a run to its end; say whether it was finished before."""
    with open_run(RunOutput(folder, overwrite), plan) as run:
        if run.manifest is not None:
            return True
        (folder / "part-00000.bin").write_bytes(b"ids")
        files = [{"name": "part-00000.bin", "bytes": 3, "blake3": ""}]
        write_receipt(run.path, "part-00000", {"files": files})
        run.finish({**plan, "more": 1}, files)
    return False


def refusal(folder: Path, plan: dict[str, Any] = PLAN, *, overwrite: bool = False) -> FolderError:
    with pytest.raises(FolderError) as caught, open_run(RunOutput(folder, overwrite), plan):
        pass
    assert caught.value.exit_code == 4
    return caught.value


def test_finished_run_leaves_neither_plan_nor_receipt_nor_lock(tmp_path: Path) -> None:
    assert not finish(tmp_path / "out")
    assert sorted(read_folder(tmp_path / "out")) == ["manifest.json", "part-00000.bin"]
    assert finish(tmp_path / "out")


@pytest.mark.parametrize("name", ["tokenizer.json", "part-00000.idx", "shard-00000.safetensors"])
@pytest.mark.parametrize("place", ["disk", "memory"])
@pytest.mark.parametrize("fault", ["missing", "2 bytes"])
def test_file_that_is_lost_during_a_run_is_said_and_made_again(
    tmp_path: Path, byte_store: Any, name: str, place: str, fault: str
) -> None:
    """Something removes or cuts a file while others are still being made."""
    folder = tmp_path / "out" if place == "disk" else Url(f"memory://{tmp_path.name}/out")
    is_pack = name.startswith("shard")
    texts = [f"document {number}" for number in range(40)]
    source = byte_store(texts) if is_pack else tmp_path / "store.jsonl"
    byte_store(texts)
    num_faults = 0

    def harm(_: int) -> None:
        nonlocal num_faults
        if num_faults == 0 and (folder / name).exists():
            num_faults += 1
            at(folder).remove_files([name])
            if fault != "missing":
                with at(folder / name).publish() as file:
                    file.write(b"12")

    def make(place: Path | Url, progress: Progress) -> None:
        if is_pack:
            pack(
                source,
                place,
                PackOptions(batch_size=8, shard_bytes=300),
                executor=HERE,
                progress=progress,
            )
        else:
            options = TokenizeOptions(part_bytes=300)
            tokenize([str(source)], place, options, executor=HERE, progress=progress)

    progress = Progress(on_advance=harm)
    with pytest.raises(FolderError) as caught:
        make(folder, progress)
    assert num_faults == 1
    said = "missing" if fault == "missing" else "2 bytes, manifest says [0-9,]+"
    assert re.fullmatch(
        rf"{folder / name}: {said}; another program changed it during this run",
        caught.value.message,
    )
    assert not (folder / "manifest.json").exists()
    make(folder, progress)
    make(tmp_path / "whole", Progress())
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert sorted(path.name for path in folder.iterdir()) == names
    for found in set(names) - {"run.json", "manifest.json"}:
        assert at(folder / found).hash() == at(tmp_path / "whole" / found).hash()


def test_plan_stands_before_anything_else(tmp_path: Path) -> None:
    with open_run(RunOutput(tmp_path / "out"), PLAN) as run:
        assert json.loads((run.path / "plan.json").read_bytes()) == PLAN
        assert run.manifest is None


def test_receipt_is_given_back_while_its_files_stand(tmp_path: Path) -> None:
    with open_run(RunOutput(tmp_path), PLAN) as run:
        assert run.read_receipt("part-00000", {"files": list}) is None
        (tmp_path / "part-00000.bin").write_bytes(b"ids")
        receipt = {"files": [{"name": "part-00000.bin", "bytes": 3, "blake3": ""}]}
        write_receipt(run.path, "part-00000", receipt)
        assert run.read_receipt("part-00000", {"files": list}) == receipt
        (tmp_path / "part-00000.bin").write_bytes(b"id")
        assert run.read_receipt("part-00000", {"files": list}) is None


def test_receipt_can_not_name_a_file_outside(tmp_path: Path) -> None:
    (tmp_path / "outside.bin").write_bytes(b"ids")
    with open_run(RunOutput(tmp_path / "out"), PLAN) as run:
        write_receipt(
            run.path,
            "part-00000",
            {"files": [{"name": "../outside.bin", "bytes": 3, "blake3": ""}]},
        )
        assert run.read_receipt("part-00000", {"files": list}) is None


def test_leftovers_of_a_run_killed_after_its_manifest_are_removed(tmp_path: Path) -> None:
    finish(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / "part-00000.json").write_text("{}")
    (tmp_path / ".part-00000.bin.77.tmp").write_bytes(b"id")
    (tmp_path / ".lock").write_text("elsewhere 1")
    assert finish(tmp_path)
    assert sorted(read_folder(tmp_path)) == ["manifest.json", "part-00000.bin"]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({**PLAN, "format": "seqpack.shards"}, "format was 'seqpack.tokens', is 'seqpack.shards'"),
        ({**PLAN, "options": {"a": 2, "b": None}}, "options.a was 1, is 2"),
        ({**PLAN, "options": {"a": 1, "b": 3}}, "options.b was None, is 3"),
        ({**PLAN, "options": {**PLAN["options"], "c": 3}}, "options.c was None, is 3"),
        ({**PLAN, "options": {"a": 1, "l": [1, 2]}}, "options.l was [1], is [1, 2]"),
        ({**PLAN, "sources": []}, "number of sources was 1, is 0"),
        ({**PLAN, "sources": [{"path": "q"}]}, "sources[0].path was 'p', is 'q'"),
        ({**PLAN, "options": {"a": 2, "b": 3}}, "options.a was 1, is 2, options.b was None, is 3"),
        (
            {**PLAN, "options": dict.fromkeys("abcdefg", 9)},
            "options.a was 1, is 9, options.b was None, is 9, options.c was None, is 9, "
            "options.d was None, is 9, options.e was None, is 9 and 2 more",
        ),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_other_run_is_refused_with_what_differs(
    tmp_path: Path, plan: dict[str, Any], said: str, finished: bool
) -> None:
    if finished:
        finish(tmp_path)
    else:
        with open_run(RunOutput(tmp_path), PLAN) as run:
            write_receipt(run.path, "part-00000", {"files": []})
    before = read_folder(tmp_path)
    error = refusal(tmp_path, plan)
    assert error.message == f"{tmp_path}: holds a run that differs: {said}"
    is_same = plan["format"] == PLAN["format"]
    assert error.hint == (OVERWRITE_HINT if is_same else SAME_COMMAND_HINT)
    assert read_folder(tmp_path) == before


def test_run_that_finished_nothing_gives_way_to_another(tmp_path: Path) -> None:
    with open_run(RunOutput(tmp_path), PLAN):
        pass
    other = {**PLAN, "format": "seqpack.shards"}
    assert not finish(tmp_path, other)
    assert json.loads((tmp_path / "manifest.json").read_bytes()) == {**other, "more": 1}


def test_foreign_files_are_refused_and_stay(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("years of work")
    (tmp_path / "photos").mkdir()
    error = refusal(tmp_path)
    assert error.message == (
        f"{tmp_path}: holds other files (photos, thesis.doc), expected an empty folder"
    )
    assert error.hint == KEEPING_HINT
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.doc", "photos"}


def test_foreign_files_stay_under_overwrite(tmp_path: Path) -> None:
    names = ["thesis.doc", "part-1.bin", "part-00000.bin.bak", "manifest.json5", ".hidden.tmp"]
    names += ["decoder.tokenizer.json"]  # which only shards have
    finish(tmp_path)
    for name in names:
        (tmp_path / name).write_text("years of work")
    (tmp_path / "photos").mkdir()
    assert not finish(tmp_path, {**PLAN, "dtype": "y"}, overwrite=True)
    assert all((tmp_path / name).read_text() == "years of work" for name in names)
    assert (tmp_path / "photos").is_dir()
    assert json.loads((tmp_path / "manifest.json").read_bytes())["dtype"] == "y"


def test_overwrite_does_not_take_a_run_of_another_command(tmp_path: Path) -> None:
    finish(tmp_path)
    before = read_folder(tmp_path)
    error = refusal(tmp_path, {**PLAN, "format": "seqpack.shards"}, overwrite=True)
    assert error.message == f"{tmp_path}: holds 'seqpack.tokens', expected seqpack.shards"
    assert error.hint == SAME_COMMAND_HINT
    assert read_folder(tmp_path) == before


@pytest.mark.parametrize("name", ["manifest.json", "plan.json"])
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_folder_inside_a_store_or_shards_is_refused(tmp_path: Path, name: str, place: str) -> None:
    """The store's own command would find a foreign folder there."""
    folder = tmp_path / "out" if place == "disk" else Url(f"memory://{tmp_path.name}/out")
    if isinstance(folder, Path):
        folder.mkdir()
    write_json(folder / name, PLAN)
    inner = folder / "a" / "b"
    error = refusal(inner)
    assert error.message == (f"{inner}: {folder} holds a store or shards, expected another folder")
    assert error.hint == "choose a name outside it"
    assert [path.name for path in folder.iterdir()] == [name]


def test_folder_that_links_into_a_store_is_refused(tmp_path: Path) -> None:
    finish(tmp_path / "store")
    (tmp_path / "store" / "inside").mkdir()
    (tmp_path / "link").symlink_to("store/inside")
    assert "holds a store or shards" in refusal(tmp_path / "link").message


def test_parts_without_manifest_or_plan_are_refused(tmp_path: Path) -> None:
    (tmp_path / "part-00000.bin").write_bytes(b"ids")
    error = refusal(tmp_path)
    assert error.message == f"{tmp_path}: holds part-00000.bin without a manifest or plan"
    assert error.hint == REMOVE_HINT
    assert refusal(tmp_path, overwrite=True).hint == REMOVE_HINT
    assert (tmp_path / "part-00000.bin").exists()


def test_overwrite_stopped_anywhere_leaves_the_old_run_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each removal may be the last thing that happens; the same command then ends the new run."""
    new_plan = {**PLAN, "options": {"a": 2}}
    remove_file = disk.remove_file
    for stop_at in range(20):
        folder = tmp_path / str(stop_at)
        finish(folder)
        countdown = iter(range(stop_at, -1, -1))

        def stopping_remove(path: Path, countdown: Iterator[int] = countdown) -> None:
            if path.suffix != ".tmp" and path.name != ".lock" and next(countdown) == 0:
                raise KeyboardInterrupt
            remove_file(path)

        monkeypatch.setattr(disk, "remove_file", stopping_remove)
        try:
            finish(folder, new_plan, overwrite=True)
            assert stop_at > 0
            return
        except KeyboardInterrupt:
            monkeypatch.setattr(disk, "remove_file", remove_file)
        manifest = folder / "manifest.json"
        if manifest.exists():
            assert (folder / "part-00000.bin").exists(), "a finished run is whole"
        finish(folder, new_plan, overwrite=True)
        assert json.loads(manifest.read_bytes())["options"] == {"a": 2}
    raise AssertionError("more removals than files")


def test_overwrite_stopped_behind_the_new_plan_takes_no_part_of_the_old_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the old run has the size of one of the new run, and other ids."""
    (tmp_path / "corpus.txt").write_text("".join(f"line {number}\n" for number in range(90)))

    def make(place: Path, *, overwrite: bool = False, **options: Any) -> None:
        tokenize(
            [str(tmp_path / "corpus.txt")],
            place,
            TokenizeOptions(part_bytes=300, **options),
            executor=HERE,
            overwrite=overwrite,
            progress=progress,
        )

    def stop(_: int) -> None:
        if (tmp_path / "out" / "part-00000.json").exists():
            raise KeyboardInterrupt

    def stop_behind_plan(path: Path, value: dict[str, Any]) -> str:
        write_json(path, value)
        raise KeyboardInterrupt

    progress = Progress(on_advance=stop)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "out", bos="<eos>")
    progress = Progress()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run_folder, "write_json", stop_behind_plan)
        make(tmp_path / "out", bos="<bos>", overwrite=True)
    make(tmp_path / "out", bos="<bos>")
    make(tmp_path / "whole", bos="<bos>")
    for path in (tmp_path / "whole").glob("part-*"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(
    ("name", "more"), [("manifest.json", 0), ("manifest.json", 1), ("plan.json", 0)]
)
def test_run_that_lost_its_folder_neither_finishes_nor_removes(
    tmp_path: Path, name: str, more: int
) -> None:
    folder = Url(f"memory://{tmp_path.name}/out")
    other = b"elsewhere 1 home 0123456789abcdef 0"
    with pytest.raises(FolderError), open_run(RunOutput(folder), PLAN) as run:
        write_object(folder / ".lock", other)
        with pytest.raises(FolderError) as caught:
            if name == "manifest.json":
                size = folder.list_files()["plan.json"]["size"] + more
                run.finish(PLAN, [{"name": "plan.json", "bytes": size, "blake3": ""}])
            else:
                run.forget("plan")
        assert caught.value.exit_code == 4
        assert caught.value.message == (
            f"{folder}: another process took over while this one was suspended"
        )
        assert caught.value.hint == "wait until it ends, or choose another -o"
        raise caught.value
    assert {path.name for path in folder.iterdir()} == {".lock", "plan.json"}
    assert read_object(folder / ".lock") == other


def test_overwrite_leaves_files_that_only_have_our_names(tmp_path: Path) -> None:
    """A manifest.json of a web page and a tokenizer.json of a model are not ours to replace."""
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    error = refusal(tmp_path, overwrite=True)
    assert error.message == (
        f"{tmp_path}: holds manifest.json, tokenizer.json without a manifest or plan of seqpack"
    )
    assert error.hint == "remove them yourself if they are not needed, or choose another -o"
    assert (tmp_path / "tokenizer.json").read_text() == "{}"


def test_folder_that_can_not_be_made_is_an_error_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError) as caught, open_run(RunOutput(tmp_path / "file"), PLAN):
        pass
    assert caught.value.message == f"{tmp_path / 'file'}: File exists"
    assert caught.value.hint == "choose another -o"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no folder")
def test_folder_that_can_not_exist_is_not_to_be_tried_again(tmp_path: Path) -> None:
    for folder in (Path("/proc/store"), tmp_path / ("x" * 300)):
        with pytest.raises(MachineError) as caught, open_run(RunOutput(folder), PLAN):
            pass
        assert caught.value.hint == "choose another -o"


def test_overwrite_removes_only_files_that_this_command_writes(tmp_path: Path) -> None:
    """A tokenize run has no shards, and a folder is nobody's file: it was found too late."""
    finish(tmp_path)
    (tmp_path / "shard-00000.safetensors").write_bytes(b"a model")
    assert not finish(tmp_path, {**PLAN, "dtype": "y"}, overwrite=True)
    assert (tmp_path / "shard-00000.safetensors").read_bytes() == b"a model"
    (tmp_path / "rejects.jsonl").mkdir()
    before = (tmp_path / "manifest.json").read_bytes()
    error = refusal(tmp_path, overwrite=True)
    assert error.message == f"{tmp_path / 'rejects.jsonl'}: not a regular file"
    assert (tmp_path / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("name", ["rejects.jsonl", "special_tokens.jsonl"])
def test_file_beside_the_parts_that_is_lost_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    corpus, output = tmp_path / "c.txt", tmp_path / "out"
    corpus.write_bytes(b"good <eos>\n\xff\n")
    finish_run = RunFolder.finish

    def lose_and_finish(run: RunFolder, *arguments: Any) -> None:
        (output / name).unlink()
        finish_run(run, *arguments)

    options = TokenizeOptions(documents=DocumentOptions(encoding_errors="skip"))
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", lose_and_finish)
        with pytest.raises(FolderError, match=name):
            tokenize([str(corpus)], output, options, executor=HERE)
    assert not (output / "manifest.json").exists()
    tokenize([str(corpus)], output, options, executor=HERE)
    assert (output / name).exists()


def test_second_writer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    finish(tmp_path)
    with at(tmp_path).lock_folder():
        before = read_folder(tmp_path)
        error = refusal(tmp_path, {**PLAN, "format": "seqpack.shards"}, overwrite=True)
        assert "is writing here" in error.message
        assert read_folder(tmp_path) == before


def test_temporary_files_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from seqpack_cli.runs.open_run import RunOutput, open_run\n"
        "from seqpack_cli.runs.run_folder import write_receipt\n"
        "from seqpack_cli.files.places import at\n"
        f"with open_run(RunOutput(Path(sys.argv[1])), {PLAN!r}) as run:\n"
        "    with at(run.path / 'part-00000.bin').publish() as file:\n"
        "        file.write(b'ids')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert process.returncode < 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0].startswith(".lock")
    assert names[1].startswith(".part-00000.bin.")
    assert names[2:] == ["plan.json"]
    assert not finish(tmp_path)
    assert sorted(read_folder(tmp_path)) == ["manifest.json", "part-00000.bin"]


def test_only_temporary_files_are_removed(tmp_path: Path) -> None:
    for name in (".a.bin.12.tmp", ".manifest.json.9.tmp", ".lock", "a.tmp", ".a.tmp", "a.12.tmp"):
        (tmp_path / name).write_text(json.dumps(name))
    remove_temporary_files(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".a.tmp", ".lock", "a.12.tmp", "a.tmp"]


# Reading a manifest


def read(folder: Path) -> dict[str, Any]:
    return read_manifest(
        folder, format_name="seqpack.tokens", version=3, fields={"dtype": str, "max_id": int}
    )


@pytest.mark.parametrize(
    ("manifest", "said", "hint"),
    [
        (
            {"format": "seqpack.shards", "format_version": 1},
            "format 'seqpack.shards', expected 'seqpack.tokens'",
            "these are shards: pass the token store they were packed from",
        ),
        ({"format": "other"}, "format 'other', expected 'seqpack.tokens'", None),
        ({}, "format None, expected 'seqpack.tokens'", None),
        (
            {"format": "seqpack.tokens", "format_version": 1},
            "format version 1, expected 3",
            "run seqpack tokenize again, or install the version of seqpack that wrote it",
        ),
        (
            {"format": "seqpack.tokens"},
            "no format version, expected 3",
            "run seqpack tokenize again, or install the version of seqpack that wrote it",
        ),
        (
            {"format": "seqpack.tokens", "format_version": 3, "dtype": "uint16"},
            "no field 'max_id'",
            None,
        ),
        (
            {"format": "seqpack.tokens", "format_version": 3, "dtype": 2, "max_id": 0},
            "field 'dtype' is 2, expected a string",
            None,
        ),
    ],
)
def test_manifest_of_another_kind_is_refused(
    tmp_path: Path, manifest: dict[str, Any], said: str, hint: str | None
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FolderError) as caught:
        read(tmp_path)
    assert caught.value.message == f"{tmp_path / 'manifest.json'}: {said}"
    assert caught.value.hint == hint


def test_token_store_in_the_place_of_shards_is_said(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "seqpack.tokens"}')
    with pytest.raises(FolderError) as caught:
        read_manifest(tmp_path, format_name="seqpack.shards", version=1, fields={})
    assert caught.value.hint == "this is a token store: run seqpack pack on it first"


def test_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(FolderError) as caught:
        read(tmp_path / "gone")
    assert str(caught.value) == f"{tmp_path / 'gone'}: no such folder"


def test_folder_of_something_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FolderError) as caught:
        read(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: no manifest.json, expected a token store or shards\n\n"
        "hint: name the folder that tokenize, import or pack wrote"
    )


def test_unfinished_run_is_said_with_how_far_it_is(tmp_path: Path) -> None:
    plan = {**PLAN, "format": "seqpack.shards"}
    with open_run(RunOutput(tmp_path), plan) as run:
        for number in range(3):
            write_receipt(run.path, f"shard-{number:05d}", {})
    with pytest.raises(FolderError) as caught:
        read(tmp_path)
    assert caught.value.message == (
        f"{tmp_path}: incomplete run, 3 shards finished, no manifest.json"
    )
    assert caught.value.hint == "run the same pack command again: it continues where it stopped"
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(FolderError) as caught:
        read(tmp_path)
    assert caught.value.hint == "run the same command again: it continues where it stopped"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "../a", "bytes": 1, "blake3": ""}, "'../a' is not a plain file name"),
        ({"name": "gone", "bytes": 1, "blake3": ""}, "gone: missing"),
        ({"name": "a", "bytes": 2, "blake3": ""}, "a: 1 bytes, manifest says 2"),
        ({"name": "link", "bytes": 1, "blake3": ""}, "link: not a regular file"),
        ({"name": "a", "bytes": -1, "blake3": ""}, "field 'bytes' is -1, expected a count"),
        ({"name": "a", "bytes": True, "blake3": ""}, "field 'bytes' is True, expected a count"),
        ({"name": "a", "bytes": 1}, "no field 'blake3'"),
        ("a", "'a', expected an object"),
    ],
)
def test_file_entry_that_does_not_hold_is_refused(tmp_path: Path, entry: Any, said: str) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(FolderError) as caught:
        check_files(tmp_path, [entry])
    assert str(caught.value).endswith(said)
