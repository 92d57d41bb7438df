"""pack --split: a shard set for each split; what stops, is killed, replaced or refused."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from command import run
from here import HERE
from reference import change_json
from test_disk_faults import DIE, FaultyOs, in_fork, run_unbroken

from seqpack_cli import PackOptions, TokenizeOptions, pack, tokenize
from seqpack_cli.errors import DataError, FolderError, OptionError, SeqpackError
from seqpack_cli.files import disk
from seqpack_cli.runs.run_folder import RunOutput, hold_folder
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.selection import hash_values
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.split_set import open_splits
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.store import open_store

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)
THREE = "train=0.6,validation=0.2,test=rest"
LANGUAGES = ("de", "en", "fr", "it", "nl")
OTHER_HINT = "choose another -o; --overwrite only replaces what the same command wrote"
REMOVE_HINT = "remove them yourself if they are not needed, or choose another -o"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of 60 documents in several parts; some are equal, some empty, some cut."""
    folder = tmp_path_factory.mktemp("splits")
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(60):
            text = "" if number % 20 == 7 else f"document {number % 50} " * (1 + number % 3)
            record = {
                "text": text,
                "lang": LANGUAGES[number % 5],
                "part": ("test", "train")[number % 4 > 0],
                "score": number % 3 / 4,
                "year": number % 4,
                "is_new": number % 6 == 0,
                "words": [{"start": 0, "end": 1, "label": "x"}] if text else [],
            }
            file.write(json.dumps(record) + "\n")
    keep = ("lang:class", "part", "score:float", "year:int", "is_new", "words:tags")
    options = TokenizeOptions(keep=keep, max_length=30, part_bytes=3000)
    tokenize([str(folder / "corpus.jsonl")], folder / "store", options, executor=HERE)
    return folder / "store"


def split(store: Path, output: Path, splits: str = THREE, **options: Any) -> dict[str, Any]:
    """Pack splits, which must not be complete yet."""
    overwrite = options.pop("overwrite", False)
    options = {"batch_size": 4, "shard_bytes": 3500, **options}
    packing = PackOptions(split=splits, **options)
    manifest, was_complete = pack(store, output, packing, executor=HERE, overwrite=overwrite)
    assert not was_complete
    return manifest


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, by path, except run.json."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if path.name != "run.json"
    }


def find_split_of(folder: Path) -> dict[int, str]:
    """Return the split of each sequence that is packed."""
    return {
        int(index): name
        for name, shards in open_splits(folder).splits.items()
        for batch in shards
        for index in batch.original_indices.tolist()  # type: ignore[union-attr]
    }


def test_each_document_is_in_one_split_and_the_ledgers_add_up(store: Path, tmp_path: Path) -> None:
    manifest = split(store, tmp_path / "out", drop_longer=29, split_seed=3)
    tokens = open_store(store)
    split_of = find_split_of(tmp_path / "out")
    assert set(split_of) == {index for index, ids in enumerate(tokens) if len(ids) <= 29}
    assert set(split_of.values()) == {"train", "validation", "test"}
    seen: dict[bytes, str] = {}
    for part in range(tokens.num_parts):
        numbers = tokens.number_documents(part) - tokens.number_documents(part)[0]
        for inside, number in enumerate(numbers.tolist()):
            index = int(tokens.part_offsets[part]) + inside
            if index in split_of:
                key = tokens.part_hashes(part)[number].tobytes()
                assert seen.setdefault(key, split_of[index]) == split_of[index]
    totals: Counter[str] = Counter()
    for name, shards in open_splits(tmp_path / "out").splits.items():
        ledger = shards.manifest["ledger"]
        entry = next(each for each in manifest["splits"] if each["name"] == name)
        for unit in ("sequences", "tokens"):
            dropped = ledger[f"num_dropped_{unit}"]
            inside = ledger[f"num_{unit}"] + dropped["drop_longer"]
            assert entry[f"num_{unit}"] == inside
            totals[unit] += inside
            whole = len(tokens) if unit == "sequences" else tokens.num_tokens
            assert dropped["other_splits"] == whole - inside
        totals["documents"] += entry["num_documents"]
        assert entry["blake3"] == shards.folder.digest
    assert totals == {"sequences": len(tokens), "tokens": tokens.num_tokens, "documents": 57}
    assert [(each["name"], each["share"]) for each in manifest["splits"]] == [
        ("train", "0.6"),
        ("validation", "0.2"),
        ("test", "0.2"),
    ]


@pytest.mark.parametrize(
    ("column", "seed"), [("lang", 0), ("part", 5), ("score", 0), ("year", 0), ("is_new", 0)]
)
def test_values_of_a_column_stay_together(
    store: Path, tmp_path: Path, column: str, seed: int
) -> None:
    split(store, tmp_path / "out", "a=0.5,b=rest", split_by=column, split_seed=seed)
    tokens, split_of = open_store(store), find_split_of(tmp_path / "out")
    seen: dict[object, str] = {}
    index = 0
    for part in range(tokens.num_parts):
        for value in tokens.columns[column].spell(tokens.part_column(part, column)):
            assert seen.setdefault(value, split_of[index]) == split_of[index]
            index += 1
    assert index == len(tokens)


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        *((-0.0, "0.0"), (3.0, "3.0"), (0.0001, "0.0001"), (1e-5, "1e-05"), (1.5e-7, "1.5e-07")),
        *((1e15, "1000000000000000.0"), (1e16, "1e+16"), (-12, "-12")),
    ],
)
def test_spelling_of_a_number_that_decides_a_split_is_fixed(
    value: float | int, spelled: str
) -> None:
    column = Column("x", "int" if type(value) is int else "float")
    (found,), _ = hash_values(column, np.array([value]))
    assert int(found) == xxhash.xxh3_64_intdigest(spelled.encode())


def test_values_of_a_column_name_the_splits(store: Path, tmp_path: Path) -> None:
    manifest = split(store, tmp_path / "out", "test,train", split_by="part")
    assert manifest["split_by"] == "part"
    tokens = open_store(store)
    values = [
        value
        for part in range(tokens.num_parts)
        for value in tokens.columns["part"].spell(tokens.part_column(part, "part"))
    ]
    assert find_split_of(tmp_path / "out") == dict(enumerate(values))


@pytest.mark.parametrize(
    ("splits", "by", "kind", "message", "hint"),
    [
        (
            "de,en,fr",
            "lang",
            DataError,
            "{}: column 'lang' has 'it', expected the name of a split: de, en, fr",
            "add it to --split: de,en,fr,it; or give each split a share, such as "
            "train=0.9,test=0.1",
        ),
        (
            "train,test,dev",
            "part",
            DataError,
            "{}: split 'dev' is empty: none of 57 documents is in it",
            "leave out dev: column 'part' has no such value",
        ),
        (
            "a=0.999999,b=rest",
            None,
            DataError,
            "{}: split 'b' is empty: none of 57 documents is in it",
            "pass a larger share to --split, or another --split-seed",
        ),
        (
            "a=0.5,b=rest",
            "words",
            OptionError,
            "--split-by words: differs within a document, expected one value per document",
            "split by another column, or by documents: leave out --split-by",
        ),
        (
            "a=0.5,b=rest",
            "overlap",
            OptionError,
            "--split-by overlap: differs within a document, expected one value per document",
            "split by another column, or by documents: leave out --split-by",
        ),
        (
            "a=0.5,b=rest",
            "language",
            OptionError,
            "--split-by language: {} has no such column (found: 'lang', 'part', 'score', 'year', "
            "'is_new' and 1 more)",
            "pass --keep language to tokenize, or leave out --split-by",
        ),
        (
            "Train=0.5,train=rest",
            None,
            OptionError,
            "--split 'Train=0.5,train=rest': found 'Train' and 'train', expected names that differ "
            "in more than case: some disks do not distinguish it",
            "rename Train",
        ),
    ],
)
def test_splits_that_do_not_fit_the_store_are_refused_before_anything_is_written(
    store: Path,
    tmp_path: Path,
    splits: str,
    by: str | None,
    kind: type[SeqpackError],
    message: str,
    hint: str | None,
) -> None:
    with pytest.raises(kind) as caught:
        split(store, tmp_path / "out", splits, split_by=by)
    assert (caught.value.message, caught.value.hint) == (message.format(store), hint)
    assert not (tmp_path / "out").exists()


def test_a_split_too_small_for_a_batch_is_noted_and_too_small_for_any_stops_first(
    store: Path, tmp_path: Path
) -> None:
    notices: list[str] = []
    progress = Progress(on_notice=notices.append)
    options = PackOptions(split="a=0.95,b=rest", batch_size=16)
    pack(store, tmp_path / "out", options, executor=HERE, progress=progress)
    (note,) = notices
    assert re.fullmatch(
        r"split 'b' does not fill a batch: it has \d+ sequences, fewer than --batch-size 16", note
    )
    with pytest.raises(DataError) as caught:
        split(store, tmp_path / "drop", "a=0.95,b=rest", batch_size=16, last_batch="drop")
    assert re.fullmatch(
        rf"{store}: split 'b': no batch is left, sequences dropped: \d+ by --last-batch",
        caught.value.message,
    )
    assert not (tmp_path / "drop" / "a").exists()
    split(store, tmp_path / "drop", "a=0.5,b=rest", batch_size=16, last_batch="drop")


# Kills


def arguments_for(store: Path, output: Path, *others: object) -> tuple[object, ...]:
    sizes = ("--batch-size", 8, "--shard-bytes", 3500, "--num-workers", 1)
    return ("pack", store, "-o", output, *sizes, *others)


def die_at(k: int, arguments: tuple[object, ...]) -> int:
    disk.os = FaultyOs(k, DIE)  # type: ignore[assignment] # this process is a fork and ends soon
    return run(*arguments).exit_code


def sweep(
    output: Path,
    prepare: Callable[[], object],
    arguments: tuple[object, ...],
    *,
    step: int,
    check: Callable[[], object],
) -> None:
    """Kill a run at every `step`-th change of the disk; `check` looks at what it left."""
    prepare()
    calls = run_unbroken(arguments)
    expected = read_tree(output)
    assert len(calls) > 60
    for k in range(0, len(calls) - 1, step):
        shutil.rmtree(output)
        prepare()
        assert in_fork(functools.partial(die_at, k, arguments)) == DIE
        check()
        # with --overwrite, a run that began continues without it
        again = arguments if (output / "manifest.json").exists() else arguments_without(arguments)
        done = run(*again)
        assert done.exit_code == 0, f"{k}: {calls[k]}: {done.stderr}"
        assert read_tree(output) == expected, f"{k}: {calls[k]}"


def arguments_without(arguments: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(word for word in arguments if word != "--overwrite")


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_continues_with_the_same_bytes(
    store: Path, tmp_path: Path, step: int
) -> None:
    output = tmp_path / "out"

    def check() -> None:
        with pytest.raises(FolderError, match=r"incomplete run|no such folder|no manifest\.json"):
            open_splits(output)

    sweep(
        output, lambda: None, arguments_for(store, output, "--split", THREE), step=step, check=check
    )


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_overwrite_with_other_splits_leaves_the_old_ones_or_a_run_that_continues(
    store: Path, tmp_path: Path, step: int
) -> None:
    output, old = tmp_path / "out", tmp_path / "old"
    split(store, old)
    before = read_tree(old)
    others = ("--split", "train=0.7,dev=rest", "--shuffle", "--overwrite")

    def check() -> None:
        try:
            open_splits(output)
        except FolderError as error:
            assert "incomplete run" in error.message
        else:
            found = {name for name in read_tree(output) if not name.startswith(".")}
            assert found == before.keys()  # with a lock or a temporary file beside them

    arguments = arguments_for(store, output, *others)
    sweep(output, lambda: shutil.copytree(old, output), arguments, step=step, check=check)
    assert sorted(path.name for path in output.iterdir() if path.is_dir()) == ["dev", "train"]


def test_overwrite_makes_damaged_splits_again(store: Path, tmp_path: Path) -> None:
    split(store, tmp_path / "out")
    whole = read_tree(tmp_path / "out")
    path = tmp_path / "out" / "test" / "shard-00000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    split(store, tmp_path / "out", overwrite=True)
    assert read_tree(tmp_path / "out") == whole


def test_a_sequence_that_does_not_fit_stops_before_any_split_is_written(
    store: Path, tmp_path: Path
) -> None:
    splits = "train=0.9,test=rest"  # all sequences of test have at most 12 tokens
    with pytest.raises(OptionError, match="--max-tokens allows 15"):
        split(store, tmp_path / "out", splits, split_seed=1, batch_size=None, max_tokens=15)
    assert not (tmp_path / "out").exists()
    split(store, tmp_path / "out", splits, split_seed=1, batch_size=None, max_tokens=30)


def test_an_unfinished_run_is_said_with_the_splits_that_are_finished(
    store: Path, tmp_path: Path
) -> None:
    split(store, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").rename(tmp_path / "out" / "plan.json")
    shutil.rmtree(tmp_path / "out" / "test")
    hint = "run the same pack --split command again: it continues where it stopped"
    for done in (run("inspect", tmp_path / "out"), run("verify", tmp_path / "out")):
        assert done.exit_code == 4
        assert done.stderr == (
            f"Error: {tmp_path}/out: incomplete run, 2 of 3 splits finished, no manifest.json\n\n"
            f"hint: {hint}\n"
        )


# What belongs to others


def make_foreign(kind: str, store: Path, out: Path) -> None:
    """Put something into the output folder that no run of splits wrote."""
    if kind == "file":
        out.mkdir()
        (out / "thesis.doc").write_text("x")
    elif kind == "shards below":
        pack(store, out / "train", PackOptions(batch_size=4), executor=HERE)
    elif kind == "shards":
        pack(store, out, PackOptions(batch_size=4), executor=HERE)
    elif kind == "file of a split's name":
        out.mkdir()
        (out / "train").write_text("x")
    elif kind == "new name":
        split(store, out, "a=0.5,b=rest")
        pack(store, out.with_name("s"), PackOptions(batch_size=4), executor=HERE)
        out.with_name("s").rename(out / "train")


@pytest.mark.parametrize(
    ("kind", "message", "hint"),
    [
        ("shards below", "holds train, which no pack --split wrote", REMOVE_HINT),
        ("file of a split's name", "holds train, which no pack --split wrote", REMOVE_HINT),
        ("shards", "holds 'seqpack.shards', expected seqpack.splits", OTHER_HINT),
        ("new name", "holds train, which no pack --split wrote", REMOVE_HINT),
    ],
)
def test_what_others_wrote_is_kept_even_with_overwrite(
    store: Path, tmp_path: Path, kind: str, message: str, hint: str
) -> None:
    out = tmp_path / "out"
    make_foreign(kind, store, out)
    before = read_tree(out)
    with pytest.raises(SeqpackError) as caught:
        split(store, out, overwrite=True)
    assert (caught.value.message, caught.value.hint) == (f"{out}: {message}", hint)
    with pytest.raises(SeqpackError):
        split(store, out)
    assert read_tree(out) == before


@pytest.mark.parametrize("place", [".", "train"])
def test_foreign_files_are_refused_and_kept_with_overwrite(
    store: Path, tmp_path: Path, place: str
) -> None:
    split(store, tmp_path / "out")
    (tmp_path / "out" / place / "thesis.doc").write_text("x")
    with pytest.raises(FolderError, match=r"thesis\.doc|holds a run that differs"):
        split(store, tmp_path / "out", split_seed=1)
    split(store, tmp_path / "out", split_seed=1, overwrite=True)
    assert (tmp_path / "out" / place / "thesis.doc").read_text() == "x"


@pytest.mark.parametrize("command", ["pack", "tokenize"])
def test_other_commands_do_not_write_over_splits(store: Path, tmp_path: Path, command: str) -> None:
    out = tmp_path / "out"
    split(store, out)
    before = read_tree(out)
    corpus = store.parent / "corpus.jsonl"
    arguments = ("pack", store) if command == "pack" else ("tokenize", corpus)
    done = run(*arguments, "-o", out)
    assert done.exit_code == 4
    assert done.stderr == (
        f"Error: {out}: holds splits (test, train, validation), expected an empty folder\n\n"
        f"hint: {OTHER_HINT}\n"
    )
    assert run(*arguments, "-o", out, "--overwrite").exit_code == 4
    done = run(*arguments, "-o", out / "train", "--overwrite")
    assert f"{out} holds a store or shards, expected another folder" in done.stderr
    assert read_tree(out) == before


def test_one_writer_at_a_time_writes_splits(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with hold_folder(RunOutput(out)), pytest.raises(FolderError, match="is writing here"):
        split(store, out)
    split(store, out)
    assert set(open_splits(out).splits) == {"train", "validation", "test"}


def test_splits_are_written_neither_into_a_store_nor_over_it(store: Path, tmp_path: Path) -> None:
    for output, message in (
        (store, f"{store}: is the token store itself"),
        (store / "out", f"{store / 'out'}: {store} holds a store or shards, expected another"),
    ):
        with pytest.raises(SeqpackError) as caught:
            split(store, output)
        assert caught.value.message.startswith(message)
    assert open_store(store).digest


def test_a_split_that_was_replaced_is_refused(store: Path, tmp_path: Path) -> None:
    split(store, tmp_path / "out")
    change_json(
        tmp_path / "out" / "test" / "manifest.json", lambda found: found.update(plan_version=1)
    )
    with pytest.raises(FolderError, match=r"out/test: not the shards that .*manifest\.json names"):
        open_splits(tmp_path / "out")


def test_a_split_alone_has_the_shards_of_its_folder(store: Path, tmp_path: Path) -> None:
    split(store, tmp_path / "out")
    split(store, tmp_path / "alone", split_name="test")
    assert open_shards(tmp_path / "alone").manifest["options"]["split_name"] == "test"
    names = {path.name for path in (tmp_path / "alone").iterdir()} - {"manifest.json", "run.json"}
    for name in names:
        both = (tmp_path / each / name for each in ("alone", "out/test"))
        assert len({path.read_bytes() for path in both}) == 1
    assert json.loads((tmp_path / "alone" / "run.json").read_bytes())["command"] is None
