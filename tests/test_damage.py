"""Damage to stores and shards: who refuses it, who finds it, at which level, and where it is named.

A forger (`oracle/forger.py`) makes all sums and checksums fit, so what is left to see is the
damage itself. The sets are small, one or more of each layout.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from command import run
from oracle.forger import (
    FORGERIES,
    Arrays,
    Draws,
    Forgery,
    Json,
    add_empty_piece,
    add_empty_row,
    change_filler,
    change_json,
    change_part,
    count_rows,
    double_a_row,
    double_in_batch,
    fit_shards,
    follow_stores,
    load_json,
    load_tensors,
    move_border,
    repeat_batch,
    save_json,
    show_batches,
    swap_equal_rows,
    swap_neighbours,
    swap_streams,
    take_apart,
    widen_batch,
)
from oracle.plan import SHARED
from oracle.stores import describe_file, make_tensor_file
from small_sets import HERE, SETS, SPLITS, make_set, make_stores

from seqpack_cli import (
    Finding,
    PackOptions,
    PairsReport,
    Report,
    ShardDataset,
    SplitsReport,
    VerifyOptions,
    open_shards,
    open_store,
    pack,
    verify,
)
from seqpack_cli.errors import DataError, FolderError, OptionError

pytestmark = pytest.mark.usefixtures("one_thread")

SHARD = "shard-00000.safetensors"
WHOLE = [name for name in SETS if name not in SPLITS]  # one set of shards
SINGLE = [name for name in WHOLE if not name.endswith("pairs")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all stores, and the sets under their names in `sets`."""
    folder = tmp_path_factory.mktemp("made")
    make_stores(folder)
    (folder / "sets").mkdir()
    for name in SETS:
        make_set(folder, name, folder / "sets" / name)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a set to where its stores are found too."""
    (tmp_path / "sets").mkdir()
    for store in {store for stores, decoder, _ in SETS.values() for store in stores + decoder}:
        (tmp_path / store).symlink_to(made / store)

    def make_copy(name: str) -> Path:
        return Path(shutil.copytree(made / "sets" / name, tmp_path / "sets" / name))

    return make_copy


def own_stores(made: Path, shards: Path) -> Path:
    """Put copies of the stores in place of the links to them; return the folder of them."""
    folder = shards.parents[1]
    for link in [path for path in folder.iterdir() if path.is_symlink()]:
        link.unlink()
        shutil.copytree(made / link.name, folder / link.name)
    return folder


def find(path: Path, level: str = "structure", **options: Any) -> list[Finding]:
    """Return what verify finds."""
    report = verify(path, VerifyOptions(level=level, **options))
    assert report.passed is (not report.findings)
    return report.findings


def say(path: Path, level: str = "structure") -> list[str]:
    """Return what verify finds, or why it refuses a folder."""
    try:
        return [str(finding) for finding in find(path, level)]
    except FolderError as error:
        return [str(error)]


def is_planned(path: Path) -> bool:
    """Return whether verify compares shards with their plan."""
    report = verify(path, VerifyOptions(level="structure"))
    sides = report.sides.values() if isinstance(report, PairsReport) else [report]
    return all(side.plan.compared for side in sides)


def hide_stores(path: Path) -> None:
    """Let shards, or all splits, name stores that are nowhere."""

    def lead_away(manifest: Json) -> None:
        for side in (manifest, manifest.get("decoder") or {}):
            for entry in side.get("stores", []) + (side.get("decoder_stores") or []):
                entry["path"] = f"{entry['path']}-gone"

    for manifest in [*path.glob("*/manifest.json"), path / "manifest.json"]:
        change_json(manifest.parent, lead_away)


@pytest.mark.parametrize("name", SETS)
def test_good_set_passes_and_a_forger_who_changes_nothing_changes_nothing(
    made: Path, copy: Callable[[str], Path], name: str
) -> None:
    path = copy(name)
    for folder in [*path.glob("*/")] if name in SPLITS else [path]:
        take_apart(folder).put_together()
        fit_shards(folder)
    for file in (made / "sets" / name).rglob("*.*"):
        ours = path / file.relative_to(made / "sets" / name)
        if file.name == "manifest.json" and name in WHOLE:
            assert load_json(ours.parent) == load_json(file.parent)
        elif file.name != "manifest.json":
            assert ours.read_bytes() == file.read_bytes()
    report = verify(path, VerifyOptions(level="roundtrip"))
    assert report.findings == []
    check_counts(report, path)
    assert name in SPLITS or is_planned(path)
    hide_stores(path)
    assert find(path) == []
    assert name in SPLITS or not is_planned(path)
    with pytest.raises(FolderError, match="is not at"):
        find(path, "roundtrip")


def check_counts(report: Any, path: Path) -> None:
    """Assert that a report covers all batches, tokens and documents."""
    manifest = load_json(path)
    if isinstance(report, SplitsReport):
        assert [*report.splits] == [entry["name"] for entry in manifest["splits"]]
        num_documents = sum(entry["num_documents"] for entry in manifest["splits"])
        if manifest["decoder_stores"]:  # documents without a decoder's sequence are in no pair
            ledgers = [load_json(path / name)["ledger"] for name in report.splits]
            num_documents = sum(ledger["num_sequences"] for ledger in ledgers)
        for name, split in report.splits.items():
            check_counts(split, path / name)
    elif isinstance(report, PairsReport):
        num_documents = manifest["ledger"]["num_sequences"]
        check_side(report.sides["encoder"], manifest)
        check_side(report.sides["decoder"], manifest["decoder"])
    else:
        check_side(report, manifest)
        return
    assert report.documents.compared
    assert report.documents.num_documents == num_documents


def check_side(report: Report, side: Json) -> None:
    """Assert that both levels saw every batch, token and value of a side."""
    ledger, columns = side["ledger"], side["columns"]
    per_token = sum(column["kind"] in ("tags", "targets") for column in columns)
    num_values = per_token * ledger["num_tokens"]
    num_values += (len(columns) - per_token) * (ledger["num_rows"] - ledger["num_filler_rows"])
    for level in report.levels:
        seen = level.num_batches, level.num_tokens
        assert seen == (ledger["num_batches"], ledger["num_tokens"])
    assert report.levels[1].num_column_values == num_values
    assert (report.num_batches, report.num_tokens) == seen
    assert report.columns == [column["name"] for column in columns]


# Rows and batches moved, with all sums, checksums and links made to fit: found by the plan.

SHARING = ("varlen", "rows", "aligned", "chunk", "streams", "rounds")  # sets of shared rows
ONLY: dict[Any, tuple[str, ...]] = {
    widen_batch: ("padded", "left", "filler"),
    change_filler: ("filler",),
    add_empty_row: ("rows", "chunk"),
    swap_streams: ("rows", "chunk", "streams", "rounds"),
    swap_neighbours: SHARING,
    move_border: ("packed", "tokens", "padded", "left", "filler"),
    add_empty_piece: SHARING,
}


def choose_forgeries() -> list[tuple[str, Any]]:
    """Return each forgery with a quarter of the sets, or with those that can have it."""
    return [
        (name, forge)
        for i, name in enumerate(WHOLE)
        for k, forge in enumerate(FORGERIES)
        if (name in ONLY[forge] if forge in ONLY else (i + k) % 4 == 0)
    ]


@pytest.mark.parametrize(("name", "forge"), choose_forgeries())
def test_what_fits_but_was_not_planned_is_found_in_its_place(
    copy: Callable[[str], Path], name: str, forge: Callable[[Forgery, Draws], bool]
) -> None:
    path = copy(name)
    forgery = take_apart(path)
    before, shards = show_batches(forgery), [len(shard) for shard in forgery.shards]
    if not forge(forgery, random.Random(len(name))):
        return
    after = show_batches(forgery)
    if before == after and shards == [len(shard) for shard in forgery.shards]:
        return
    forgery.put_together()
    try:
        found = find(path)
    except FolderError:  # such as a reason for what is missing that the options do not give
        return
    assert found
    assert {finding.level for finding in found} == {"structure"}
    if forgery.layout != "streams":  # whose links show elsewhere
        check_places(found, before, after, is_shared=forgery.layout in SHARED)


def check_places(
    found: list[Finding], before: list[list[Any]], after: list[list[Any]], *, is_shared: bool
) -> None:
    """Assert that findings name batches that differ, or hold what is there too often."""
    differ = {b for b in range(len(after)) if before[b : b + 1] != after[b : b + 1]}
    more = count_rows(after) - count_rows(before)
    extra = {b for b, batch in enumerate(after) if any(row[:3] in more for row in batch[-1][0])}
    named = {finding.batch for finding in found if finding.batch is not None}
    if is_shared:  # whose rows go on in the batches beside them
        beside = {b + step for b in differ | extra for step in (-1, 0, 1)}
        assert not named or named & beside
        return
    assert named <= differ | extra
    assert not differ or named or before[: len(after)] == after[: len(before)]
    for finding in found:
        if finding.row is not None and finding.batch in differ - extra:
            rows = [[side[0] for side in which[finding.batch]] for which in (before, after)]
            row = slice(finding.row, finding.row + 1)
            assert any(a[row] != b[row] for a, b in zip(*rows, strict=True)) or len(rows[0]) > 1


# What the shards hold is not what the store holds.


def change_id(forgery: Forgery, index: int, step: int) -> None:
    sequence = forgery.sides[-1].store.sequences[index]
    sequence[step] = 10 + (sequence[step] == 10)


def change_column(name: str, *values: Any) -> Callable[[Forgery, int, int], None]:
    """Return a function that gives a row, or a token, the first value that it does not have."""

    def change(forgery: Forgery, index: int, step: int) -> None:
        column = forgery.sides[-1].store.columns[name]
        if isinstance(column[index], list):
            column, index = column[index], step
        column[index] = next(value for value in values if value != column[index])

    return change


CONTENTS: list[tuple[str, Any]] = [
    *((name, change_id) for name in WHOLE),
    *((name, change_column("label", "x", "y")) for name in ("columns", "filler")),
    *((name, change_column("title", "wö", "é")) for name in ("columns", "rows")),
    *((name, change_column("score", 0.5, 1e300)) for name in ("filler", "rows")),
    *((name, change_column("count", 7)) for name in ("columns", "filler")),
    *((name, change_column("overlap", 1)) for name in ("columns", "rows")),
    *((name, change_column("tags", "N", None)) for name in ("columns", "filler", "rows")),
    *((name, change_column("targets", 0, 1)) for name in ("columns", "filler", "rows")),
    ("rounds", change_column("targets", 0, 1)),
    ("two", change_column("from", "more", "plain")),
]


@pytest.mark.parametrize(("name", "change"), CONTENTS)
def test_what_is_not_in_the_store_is_found_beside_every_row_that_has_it(
    copy: Callable[[str], Path], name: str, change: Callable[[Forgery, int, int], None]
) -> None:
    path = copy(name)
    forgery = take_apart(path)
    draws = random.Random(name)
    rows = [row for batch in forgery.batches for row in batch[-1].rows]
    row = draws.choice(rows)
    step = row.start + draws.randrange(row.length)
    change(forgery, row.index, step)
    forgery.put_together()
    expected = {
        (number, place)
        for number, batch in enumerate(forgery.batches)
        for place, each in reversed([*enumerate(batch[-1].rows)])
        if each.index == row.index and (each.start <= step < each.start + each.length)
    }
    found = find(path, "roundtrip")
    assert {finding.level for finding in found} <= {"structure", "roundtrip"}
    places = {(finding.batch, finding.row) for finding in found}
    if forgery.layout == "streams":  # the next ids may differ from those planned
        assert places & expected or found[0].level == "structure"
    else:
        assert found[0].level == "roundtrip"
        assert places <= expected
        assert {batch for batch, _ in places} == {batch for batch, _ in expected}


# One entry of one tensor changed.

HOSTILE = (-(2**63), -(2**31), -1, 0, 1, 2**31, 2**32, 2**62, 2**63 - 1)
OFFSETS = {"batch_sizes": "step_offsets", "data": "data_offsets"}  # all others: sequence_offsets


def set_entry(array: np.ndarray, place: int, value: int | float) -> None:
    """Change an entry to a value, or what is nearest to it in the array's type."""
    if array.dtype.kind == "f":
        array[place] = value
    else:
        limits = np.iinfo(array.dtype)
        array[place] = min(max(int(value), limits.min), limits.max)


def find_batch(arrays: Arrays, name: str, place: int) -> int | None:
    """Return the batch that must be named for an entry, None if others may be."""
    prefix = "decoder." if name.startswith("decoder.") else ""
    bare = name.removeprefix(prefix)
    if bare in ("widths", "num_filler_rows"):
        return place
    if bare not in ("lengths", "batch_sizes", "data", "encoder_rows"):
        return None
    offsets = arrays[prefix + OFFSETS.get(bare, "sequence_offsets")]
    return int(np.searchsorted(offsets, place, "right")) - 1


@pytest.mark.parametrize("name", ["packed", "padded", *WHOLE[7:]])
def test_one_changed_entry_of_any_tensor_is_found_in_its_batch(
    copy: Callable[[str], Path], name: str
) -> None:
    path, draws = copy(name), random.Random(name)
    good = {file: (path / file).read_bytes() for file in (SHARD, "manifest.json")}
    first, _ = load_tensors(path / SHARD)
    for tensor in first:
        array = first[tensor].copy()
        place, other = (draws.randrange(len(array)) for _ in "ab")
        way = draws.choice(("nearby", "hostile", "swapped"))
        if way == "nearby":
            set_entry(array, place, array[place].item() + draws.choice((-1, 1)))
        elif way == "hostile":
            set_entry(array, place, draws.choice(HOSTILE))
        else:
            array[[place, other]] = array[[other, place]]
        changed = np.flatnonzero(array != first[tensor]).tolist()
        if not changed:
            continue
        write_tensors(path, {**first, tensor: array})
        found = find(path) or find(path, "roundtrip")
        assert found, (tensor, place, way)
        batches = {find_batch(first, tensor, entry) for entry in changed}
        named = {finding.batch for finding in found}
        assert None in batches | named or named & batches, (tensor, place, way)
        for file, data in good.items():
            (path / file).write_bytes(data)


def write_tensors(path: Path, tensors: Arrays) -> None:
    """Write the first shard with other tensors, and its size and checksum in the manifest."""
    _, metadata = load_tensors(path / SHARD)
    (path / SHARD).write_bytes(make_tensor_file(metadata, tensors))
    change_json(path, lambda m: m["shards"][0].update(describe_file(path / SHARD)))


NAMED: list[tuple[str, str, int, int, str]] = [
    (
        "packed",
        "batch_sizes",
        1,
        9,
        r"batch 0: batch_sizes\[1\] is 9, but 4 rows are longer",
    ),
    ("packed", "lengths", 7, 0, "batch 1: row 3 has length 0, expected no empty sequence"),
    ("packed", "lengths", 5, 9, "batch 1: row 2 is longer than the one before, expected longest"),
    ("packed", "lengths", 0, 2**62, rf"batch 0: 25 batch_sizes, the longest row has {2**62} ids"),
    ("packed", "data", -1, 259, "batch 1: id 259 at cell 47, expected ids from 0 to 258"),
    ("packed", "data_offsets", 1, 75, "batch 0: batch_sizes add up to 76, data has 75 ids"),
    ("packed", "step_offsets", 1, 39, "step_offsets does not rise from 0 in 3 entries"),
    ("padded", "data", 63, 7, r"batch 0: cell \[2, 13\] is padding and holds 7, expected 256"),
    ("padded", "widths", 1, 10, "batch 1: 6 rows of width 10, data has 66 cells"),
    (
        "filler",
        "widths",
        0,
        2**62 + 20,
        f"batch 0: 4 rows of width {2**62 + 20}, data has 80 cells",
    ),
    ("padded", "lengths", 0, 26, "batch 0: row 0 has 26 ids, width is 25"),
    ("left", "data", 30, 7, r"batch 0: cell \[1, 0\] is padding and holds 7, expected 9"),
    ("filler", "num_filler_rows", 0, 4, "batch 0: 4 filler rows in a batch of 4 rows"),
    ("filler", "num_filler_rows", 0, 1, "batch 0: row 3 has length 12 and original index 26"),
    ("varlen", "lengths", 0, 2**62, rf"batch 0: row 0 has {2**62} ids, data has 32 cells"),
    ("varlen", "lengths", 1, 9, "batch 0: lengths take 31 cells, data has 32"),
    ("rows", "row_indices", 2, 0, r"batch 0: row_indices\[2\] is 0, expected ascending numbers"),
    ("rows", "lengths", 2, 2, "batch 0: row 1: its sequences take more than the 12 cells of a row"),
    ("streams", "resets", 6, 2, r"batch 1: resets\[0\] is 2, expected 0 or 1"),
    ("streams", "next_ids", 9, 259, r"batch 1: next_ids\[3\] is 259, expected -1 or ids from 0"),
    ("pairs", "decoder.encoder_rows", 0, 5, "batch 0: encoder_rows at row 0 do not name each row"),
    ("pairs", "decoder.encoder_rows", 1, 2, "batch 0: encoder_rows at row 1 do not name each row"),
    ("pairs", "decoder.data", 0, 259, "batch 0: id 259 at cell 0, expected ids from 0 to 258"),
]


@pytest.mark.parametrize(("name", "tensor", "place", "value", "said"), NAMED)
def test_every_reader_says_what_is_wrong_with_a_batch(
    copy: Callable[[str], Path], name: str, tensor: str, place: int, value: int, said: str
) -> None:
    path = copy(name)
    tensors, _ = load_tensors(path / SHARD)
    array = tensors[tensor].copy()
    array[place] = value
    write_tensors(path, {**tensors, tensor: array})
    assert re.match(f"structure: {SHARD}: (decoder: )?{said}", str(find(path)[0]))
    for read in [train] if "decoder." in tensor else [read_all, train]:
        with pytest.raises(FolderError, match=f"{SHARD}: {said}"):
            read(path)


# Honest damage: which readers refuse it, and what verify names.


def read_all(path: Path) -> None:
    """Open every batch."""
    shards = open_shards(path)
    for index in range(len(shards)):
        assert shards[index] is not None


def read_store(path: Path) -> None:
    """Open every sequence of a store and all its columns."""
    store = open_store(path)
    for index in range(len(store)):
        assert len(store[index])
        assert store.locate(index).record > 0


def train(path: Path) -> None:
    """Take every batch as torch's tensors."""
    for batch in ShardDataset(path):
        assert batch is not None


def run_command(*arguments: Any) -> Callable[[Path], None]:
    """Return a reader that runs a command: PATH is the folder, OUT and GOOD are beside it."""

    def read(path: Path) -> None:
        names = {name: path.parent / name.lower() for name in ("OUT", "GOOD", "SETS")}
        names["PATH"], names["SET"] = path, path.parent / "sets" / PACKED_FROM.get(path.name, "")
        result = run(*(names.get(argument, argument) for argument in arguments))
        if result.exit_code:
            raise READ_ERRORS[result.exit_code](result.stderr)

    return read


PACKED_FROM = {"plain": "packed", "columns": "columns", "pieces": "splits"}
READ_ERRORS = {1: AssertionError, 2: OptionError, 3: DataError, 4: FolderError}
READERS: dict[str, Callable[[Path], object]] = {
    "r": read_all,
    "t": train,
    "u": run_command("unpack", "PATH", "-o", "OUT", "-q"),
    "e": run_command("export", "PATH", "-o", "OUT", "-q"),
    "i": run_command("inspect", "PATH", "--json"),
    "d": run_command("diff", "PATH", "GOOD", "--json"),
    "v": run_command("verify", "PATH", "--level", "structure"),
    # of stores
    "s": read_store,
    "p": run_command("pack", "PATH", "-o", "OUT", "-q", "--pad-id", "0"),
    "x": run_command("inspect", "PATH", "--vocabulary", "--json"),
    "V": run_command("verify", "SET", "--level", "structure"),
    "W": run_command("verify", "SET", "--level", "roundtrip"),
}


def probe(path: Path, good: Path, letters: str) -> str:
    """Return the letters of the readers that refuse a folder, with a ! if that is a finding."""
    (path.parent / "good").symlink_to(good)
    found = ""
    for letter in letters:
        try:
            READERS[letter](path)
        except FolderError:
            found += letter
        except AssertionError:
            found += f"{letter}!"
        for output in path.parent.glob("out*"):
            shutil.rmtree(output) if output.is_dir() else output.unlink()
    (path.parent / "good").unlink()
    return found


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Return a damage of the bytes of a file."""
    return lambda path: (path / name).write_bytes(change((path / name).read_bytes()))


def flip(name: str, place: int) -> Callable[[Path], object]:
    """Return a damage of one bit."""

    def change(data: bytes) -> bytes:
        place_ = place % len(data)
        return data[:place_] + bytes([data[place_] ^ 1]) + data[place_ + 1 :]

    return rewrite(name, change)


def remove(name: str) -> Callable[[Path], object]:
    """Return a damage that removes a file."""
    return lambda path: (path / name).unlink()


def exchange(first: str, second: str) -> Callable[[Path], object]:
    """Return a damage that exchanges two files."""

    def damage(path: Path) -> None:
        one, other = (path / first).read_bytes(), (path / second).read_bytes()
        (path / first).write_bytes(other)
        (path / second).write_bytes(one)

    return damage


# Damage, the readers that refuse it, the file that verify names, and what it says of it.
SHARD_FILES: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "an id": (flip(SHARD, -2), "ev!", SHARD, "blake3 differs"),
    "an id beyond the vocabulary": (flip(SHARD, -1), "rtuedv!", SHARD, "blake3 differs"),
    "header": (flip(SHARD, 12), "rtueidv!", SHARD, "not a safetensors file"),
    "cut": (rewrite(SHARD, lambda data: data[:-1]), "rtueidv!", SHARD, "1,399 bytes"),
    "empty": (rewrite(SHARD, lambda _: b""), "rtueidv!", SHARD, "0 bytes"),
    "longer": (rewrite(SHARD, lambda data: data + b"x"), "rtueidv!", SHARD, "1,401 bytes"),
    "missing": (remove(SHARD), "rtueidv!", SHARD, "missing"),
    "last one missing": (
        remove("shard-00002.safetensors"),
        "rtueidv!",
        "shard-00002.safetensors",
        "missing",
    ),
    "exchanged": (exchange(SHARD, "shard-00001.safetensors"), "rtueidv!", SHARD, "1,338 bytes"),
    "no manifest": (remove("manifest.json"), "rtueidv", "", "no manifest.json"),
    "manifest cut": (rewrite("manifest.json", lambda data: data[:-3]), "rtueidv", "", "not JSON"),
    "plan left": (lambda path: (path / "plan.json").write_text("{}"), "rtueidv", "", "incomplete"),
    "no tokenizer": (remove("tokenizer.json"), "idv!", "tokenizer.json", "missing"),
    "tokenizer": (flip("tokenizer.json", 60), "idv!", "tokenizer.json", "blake3 differs"),
    "extra shard": (
        lambda path: shutil.copy(path / SHARD, path / "shard-00099.safetensors"),
        "v!",
        "shard-00099.safetensors",
        "not in the manifest",
    ),
    "extra part": (
        lambda path: (path / "part-00000.bin").write_bytes(b""),
        "v!",
        "part-00000.bin",
        "not in the manifest",
    ),
    "somebody's file": (lambda path: (path / "notes.txt").write_text("x"), "", "", ""),
    "no record of the run": (remove("run.json"), "", "", ""),
}


@pytest.mark.parametrize("damage", SHARD_FILES)
def test_damaged_file_of_shards_is_refused_or_found(
    made: Path, copy: Callable[[str], Path], damage: str
) -> None:
    change, readers, file, what = SHARD_FILES[damage]
    change(path := copy("packed"))
    assert probe(path, made / "sets" / "packed", "rtueidv") == readers
    if readers.endswith("!"):
        found = find(path)[0]
        assert (found.level, found.shard, found.batch) == ("structure", file, None)
        assert what in found.what
    elif readers:
        with pytest.raises(FolderError, match=what):
            find(path)


BIN, IDX, COLUMNS = (f"part-00000.{suffix}" for suffix in ("bin", "idx", "columns.safetensors"))
STORE_FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "an id": ("plain", flip(BIN, -2), "W"),
    "an id beyond the vocabulary": ("plain", flip(BIN, -1), "pxW"),
    "magic of the index": ("plain", flip(IDX, 0), "spixdVW"),
    "version of the index": ("plain", flip(IDX, 9), "spixdVW"),
    "type of the ids": ("plain", flip(IDX, 17), "spixdVW"),
    "number of sequences": ("plain", flip(IDX, 18), "spixdVW"),
    "number of documents": ("plain", flip(IDX, 26), "spixdVW"),
    "a length": ("plain", flip(IDX, 34), "spixdVW"),
    "a start": ("plain", flip(IDX, 34 + 4 * 35 + 8), "spixdVW"),
    "a document": ("plain", flip(IDX, -16), "spixdVW"),
    "last document": ("plain", flip(IDX, -8), "spixdVW"),
    "cut ids": ("plain", rewrite(BIN, lambda data: data[:-2]), "spixdVW"),
    "cut index": ("plain", rewrite(IDX, lambda data: data[:-8]), "spixdVW"),
    "cut columns": ("plain", rewrite(COLUMNS, lambda data: data[:-8]), "spixdVW"),
    "a hash": ("plain", flip(COLUMNS, -1), "W"),
    "a value": ("columns", flip(COLUMNS, -1), "pidVW"),
    "no ids": ("plain", remove(BIN), "spixdVW"),
    "no index": ("plain", remove(IDX), "spixdVW"),
    "no columns": ("plain", remove(COLUMNS), "spixdVW"),
    "no manifest": ("plain", remove("manifest.json"), "spixdW"),
    "no tokenizer": ("plain", remove("tokenizer.json"), "pixdVW"),
    "tokenizer": ("plain", flip("tokenizer.json", 60), "pixdVW"),
    "no record of the run": ("plain", remove("run.json"), ""),
}


@pytest.mark.parametrize("damage", STORE_FILES)
def test_damaged_file_of_a_store_is_refused_or_found(
    made: Path, copy: Callable[[str], Path], damage: str
) -> None:
    store, change, readers = STORE_FILES[damage]
    folder = own_stores(made, copy(PACKED_FROM[store]))
    change(folder / store)
    assert probe(folder / store, made / store, "spixdVW") == readers


@pytest.mark.parametrize("store", ["plain", "more"])
def test_damaged_index_of_either_of_two_stores_is_refused(
    made: Path, copy: Callable[[str], Path], store: str
) -> None:
    path = copy("two")
    flip(IDX, 34)(own_stores(made, path) / store)
    with pytest.raises(FolderError, match=f"{store}.*{IDX}"):
        find(path)


@pytest.mark.parametrize("name", ["packed", "plain"])
def test_folder_that_is_replaced_while_it_is_open_is_refused(
    made: Path, copy: Callable[[str], Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy("packed")
    path = own_stores(made, path) / "plain" if name == "plain" else path
    monkeypatch.chdir(path.parent)
    opened = [(open_store if name == "plain" else open_shards)(path.name) for _ in range(3)]
    assert str(opened[0].path) == path.name
    monkeypatch.chdir(path)
    assert Path(opened[0].path) == path
    manifest = (path / "manifest.json").read_bytes()
    (path / "manifest.json").unlink()
    (path / "manifest.json").write_bytes(manifest)  # the same one
    assert opened[0][0] is not None
    (path / "manifest.json").write_bytes(manifest + b" ")
    with pytest.raises(FolderError, match="replaced"):
        opened[1][0]
    (path / "manifest.json").unlink()
    with pytest.raises(FolderError, match="replaced"):
        opened[2][0]


INTO: list[tuple[Any, ...]] = [
    (4, "pack", "plain", "-o", "plain/new"),
    (4, "pack", "plain", "-o", "sets/packed/new"),
    (4, "unpack", "sets/packed", "-o", "sets/packed/new.jsonl"),
    (4, "export", "sets/packed", "-o", "sets/packed/new"),
    (4, "pack", "plain", "-o", "sets/splits/new"),
    (2, "unpack", "sets/rounds", "-o", "new.jsonl", "--text"),
    (4, "unpack", "sets/splits", "-o", "new.jsonl"),
    (4, "pack", "sets/packed", "-o", "new"),
    (4, "inspect", "nowhere"),
    (4, "inspect", "plain.txt"),
]


@pytest.mark.parametrize("arguments", INTO, ids=lambda found: " ".join(found[1:]))
def test_folder_of_another_kind_is_refused_and_none_is_written_into(
    made: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...]
) -> None:
    monkeypatch.chdir(made)
    before = sorted(made.rglob("*"))
    code, *words = arguments
    assert run(*words).exit_code == code
    assert sorted(made.rglob("*")) == before


# Counts and options that are not those of the batches.


def list_counts(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all whole numbers in a manifest."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [found for key, each in items for found in list_counts(each, (*place, key))]
    return [place] if type(value) is int else []


def add_to(manifest: Any, place: tuple[Any, ...], amount: int) -> None:
    """Add to a number in a manifest."""
    *way, last = place
    for key in way:
        manifest = manifest[key]
    manifest[last] += amount


@pytest.mark.parametrize("is_hidden", [False, True], ids=["with stores", "without"])
@pytest.mark.parametrize("name", ["packed", "passes", "filler", "chunk", "pairs"])
def test_every_count_of_a_manifest_is_compared(
    copy: Callable[[str], Path], name: str, is_hidden: bool
) -> None:
    path, draws = copy(name), random.Random(name)
    if is_hidden:
        hide_stores(path)
    manifest = load_json(path)
    places = [
        place
        for place in list_counts(manifest)
        if {"ledger", "shards", "stores"} & set(place) and not (place[0] == "shards" and place[1])
    ]
    places = draws.sample(places, len(places) // (3 if is_hidden else 2))
    for place in places:
        add_to(manifest, place, amount := draws.choice((-1, 1)))
        save_json(path, manifest)
        assert say(path), (place, amount)
        add_to(manifest, place, -amount)


OTHER_OPTIONS: dict[str, list[Any]] = {
    "batch_size": [1, 2, 4, 8, None],
    "max_tokens": [11, 32, 39, 41, 61, None],
    "order": ["length", "none"],
    "window": [1, 8, 9, 1000, None],
    "shuffle": [True, False],
    "seed": [0, 1, 2, 3],
    "buckets": ["auto", [6, 12], [8, 12, 40], None],
    "num_buckets": [2, 3, 8, None],
    "fill": ["best-fit", "sequential", "chunk", None],
    "overflow": ["error", "drop", "split", None],
    "last_batch": ["keep", "drop", "pad"],
    "drop_shorter": [1, 2, 3, None],
    "drop_longer": [11, 12, 30, None],
    "where": [["@length > 3"], ["@length <= 100"]],
    "passes": ["1=2", "1=1.5", None],
    "pad_to_multiple": [1, 2, 4, 8],
    "align_sequences": [1, 2, 4],
    "shard_bytes": [1, 1300, 1501, 1 << 20],
}


@pytest.mark.parametrize("name", ["windows", "passes", "filler", "aligned"])
def test_another_option_in_the_manifest_is_found_unless_it_gives_the_same(
    made: Path, copy: Callable[[str], Path], name: str
) -> None:
    path, draws = copy(name), random.Random(name)
    manifest = load_json(path)
    for option, values in OTHER_OPTIONS.items():
        value = draws.choice([each for each in values if each != manifest["options"][option]])
        options = {**manifest["options"], option: value}
        save_json(path, {**manifest, "options": options})
        if not say(path):
            apart = {each: manifest[each] for each in ("layout", "padding_side", "pad_id")}
            again = path.parent / f"again-{option}"
            stores = [made / store for store in SETS[name][0]]
            pack(stores, again, PackOptions(**apart, **options), executor=HERE)
            same = {each: load_json(again)[each] for each in ("shards", "ledger", "bucket_keys")}
            assert same == {each: manifest[each] for each in same}, (option, value)


MANIFESTS: dict[str, tuple[str, Callable[[Json], object], str]] = {
    "other bucket keys": ("filler", lambda m: m["bucket_keys"].append(50), ""),
    "no bucket keys": ("filler", lambda m: m.update(bucket_keys=None), ""),
    "other padding": ("left", lambda m: m.update(pad_id=8), "padding and holds 9"),
    "other side": ("left", lambda m: m.update(padding_side="right"), "padding"),
    "smaller vocabulary": ("rounds", lambda m: m.update(vocab_size=30, max_id=29), "expected ids"),
    "another end": ("packed", lambda m: m.update(eos_id=5), "eos_id"),
    "narrower ids": ("packed", lambda m: m.update(dtype="int32"), ""),
    "class names": ("columns", lambda m: swap_names(m, "label"), "class"),
    "tag names": ("columns", lambda m: swap_names(m, "tags"), "class"),
    "column's kind": ("columns", lambda m: m["columns"][2].update(kind="int", dtype="int64"), ""),
    "column's name": ("columns", lambda m: m["columns"][2].update(name="other"), ""),
    "columns exchanged": ("columns", lambda m: m["columns"].insert(2, m["columns"].pop(3)), ""),
    "a column less": ("columns", lambda m: m["columns"].pop(), ""),
    "passes": ("passes", lambda m: m["stores"][0].update(passes="2"), ""),
    "reasons exchanged": (
        "columns",
        lambda m: m["ledger"]["num_dropped_sequences"].update(drop_shorter=3, no_target=1),
        "",
    ),
    "stores exchanged": ("two", lambda m: m["stores"].reverse(), ""),
    "store's checksum": ("packed", lambda m: m["stores"][0].update(blake3="0" * 64), ""),
    "tokenizer's checksum": ("packed", lambda m: m.update(tokenizer_blake3="0" * 64), "blake3"),
    "no shards": ("packed", lambda m: m["shards"].clear(), "contradicts itself"),
    "last shard": ("packed", lambda m: m["shards"].pop(), ""),
    "shards in another order": ("packed", lambda m: m["shards"].reverse(), ""),
    "layout": ("packed", lambda m: m.update(layout="padded"), ""),
    "pairs' keys": ("padded pairs", lambda m: m["bucket_keys"].pop(0), ""),
    "decoder's end": ("pairs", lambda m: m["decoder"].update(eos_id=4), "eos_id"),
    "decoder hidden": ("pairs", lambda m: m.update(decoder=None), ""),
    "decoder of another store": (
        "pairs",
        lambda m: m["decoder"]["stores"][0].update(m["stores"][0]),
        "",
    ),
}


def swap_names(manifest: Json, name: str) -> None:
    (column,) = (each for each in manifest["columns"] if each["name"] == name)
    column["class_names"].reverse()


@pytest.mark.parametrize("damage", MANIFESTS)
def test_manifest_that_is_not_that_of_its_batches_is_refused_or_found(
    copy: Callable[[str], Path], damage: str
) -> None:
    name, change, what = MANIFESTS[damage]
    change_json(path := copy(name), change)
    found = say(path) or say(path, "roundtrip")
    assert found
    assert any(what in text for text in found)


# A plan of another version is not made again; then the roundtrip still compares.


@pytest.mark.parametrize("name", ["packed", "rows", "pairs", "padded pairs"])
def test_plan_of_another_version_leaves_what_the_stores_show(
    copy: Callable[[str], Path], name: str
) -> None:
    path = copy(name)
    change_json(path, lambda manifest: manifest.update(plan_version=3))
    assert find(path, "roundtrip") == []
    assert not is_planned(path)
    forgery = take_apart(path)
    before = show_batches(forgery)
    assert swap_equal_rows(forgery, random.Random(2))
    after = show_batches(forgery)
    forgery.put_together()
    found = find(path, "roundtrip")
    assert bool(found) is name.endswith("pairs")
    if found:
        assert {finding.level for finding in found} == {"roundtrip"}
        check_places(found, before, after, is_shared=False)
    forgery = take_apart(path)
    row = forgery.batches[1][-1].rows[0]
    change_id(forgery, row.index, row.start)
    forgery.put_together()
    places = {(each.level, each.batch, each.row) for each in find(path, "roundtrip")}
    assert ("roundtrip", 1, 0) in places


# Without the stores: checksums, sound arrays, sums and visits.


@pytest.mark.parametrize("name", ["packed", "passes", "padded", "varlen", "chunk", "streams"])
@pytest.mark.parametrize("forge", [double_a_row, double_in_batch, repeat_batch])
def test_sequence_that_is_lost_or_doubled_is_found_without_the_stores(
    copy: Callable[[str], Path], name: str, forge: Callable[[Forgery, Draws], bool]
) -> None:
    forgery = take_apart(path := copy(name))
    could = forge(forgery, random.Random(1))
    assert could or name == "streams"
    forgery.put_together()
    hide_stores(path)
    assert bool(say(path)) is could


@pytest.mark.parametrize("name", ["rows", "chunk", "streams", "rounds"])
def test_piece_that_does_not_go_on_is_found_without_the_stores(
    copy: Callable[[str], Path], name: str
) -> None:
    path, draws = copy(name), random.Random(name)
    hide_stores(path)
    good, _ = load_tensors(path / SHARD)
    for _ in range(5):
        starts = good["piece_starts"].copy()
        place = draws.choice(
            np.flatnonzero(starts if draws.random() < 0.7 else starts == 0).tolist() or [0]
        )
        set_entry(starts, place, starts[place] + draws.choice((-1, 1, 2**40, 2**62)))
        write_tensors(path, {**good, "piece_starts": starts})
        assert find(path), place


def test_each_shard_stops_at_the_first_level_that_finds_something(
    copy: Callable[[str], Path],
) -> None:
    forgery = take_apart(path := copy("packed"))
    for number in (1, 2):  # in both batches of one shard
        row = forgery.batches[number + 1][0].rows[-1]
        change_id(forgery, row.index, row.start)

    def spoil(arrays: Arrays) -> None:
        arrays["batch_sizes"][3:5] += [-1, 1]

    forgery.put_together(spoil)
    report = verify(path, VerifyOptions(level="backward", sample=1, hidden_size=4))
    places = [(each.level, each.shard[6:11], each.batch, each.row) for each in report.findings]
    assert places == [
        ("structure", "00000", 0, None),
        ("roundtrip", "00001", 2, 3),
        ("roundtrip", "00001", 3, 3),
    ]
    sizes = [len(shard) for shard in forgery.shards]
    seen = [level.num_batches for level in report.levels]
    assert seen == [sum(sizes) - 1, sum(sizes[1:]), 1, 1]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["rows", "pairs", "splits"])
def test_sizes_of_blocks_change_no_finding(copy: Callable[[str], Path], name: str) -> None:
    path = copy(name)
    assert find(path, "roundtrip") == []
    forgery = take_apart(path / "test" if name == "splits" else path)
    row = forgery.batches[-1][-1].rows[0]
    change_id(forgery, row.index, row.start + row.length - 1)
    forgery.put_together()
    (found,) = {(each.level, each.batch, each.row) for each in find(path, "roundtrip")}
    assert found == ("roundtrip", len(forgery.batches) - 1, 0)


# Stores whose contents contradict themselves, and that are not those that were packed.


def change_entry(name: str, value: int) -> Callable[[Path], None]:
    """Return a change of an entry in the middle of a part that fits it, all else made to fit."""

    def change(arrays: Arrays) -> None:
        array = arrays[name]
        is_like = array < 128 if name == "column.title" else array >= 0
        places = np.flatnonzero(is_like & (array != value))
        array[places[len(places) // 2]] = value

    return lambda store: change_part(store, change)


def swap_repeated(name: str) -> Callable[[Path], None]:
    """Return an exchange of the first token of a later piece, which is repeated, with its last."""

    def change(arrays: Arrays) -> None:
        ends = np.cumsum(arrays["lengths"])
        for later in np.flatnonzero(arrays["column.overlap"]).tolist():
            places = [ends[later - 1], ends[later] - 1]
            if arrays[name][places[0]] != arrays[name][places[1]]:
                arrays[name][places] = arrays[name][places[::-1]]
                return
        raise AssertionError(name)

    return lambda store: change_part(store, change)


def add_to_ledger(name: str, amount: int = 1) -> Callable[[Path], None]:
    """Return a change of a count in the ledger."""
    return lambda store: change_json(store, lambda m: add_to(m, ("ledger", name), amount))


def shorten(store: Path) -> None:
    """Move a token from one sequence to the next one."""

    def change(arrays: Arrays) -> None:
        arrays["lengths"][10:12] += np.array([-1, 1], np.int32)

    change_part(store, change)


OTHER_STORES: dict[str, tuple[str, str, Callable[[Path], None], str, str]] = {
    "id": ("packed", "plain", change_entry("ids", 100), "roundtrip", ""),
    "id of pairs": ("pairs", "german", change_entry("ids", 100), "roundtrip", ""),
    "number": ("columns", "columns", change_entry("column.count", 1), "roundtrip", "'count'"),
    "class": ("columns", "columns", change_entry("column.label", 1), "roundtrip", "'label'"),
    "tag": ("columns", "columns", change_entry("column.tags", -100), "roundtrip", "'tags'"),
    "text": ("columns", "columns", change_entry("column.title", 120), "roundtrip", "'title'"),
    "target": ("rounds", "ids", change_entry("column.targets", 1), "roundtrip", "'targets'"),
    "length": ("packed", "plain", shorten, "structure", "the plan has"),
    "overlap": ("columns", "columns", change_entry("column.overlap", 2), "structure", "overlap"),
    "repeated": (
        "columns",
        "columns",
        swap_repeated("ids"),
        "structure",
        "the piece before",
    ),
    "repeated target": (
        "columns",
        "columns",
        swap_repeated("column.targets"),
        "structure",
        "target",
    ),
    "targets": ("rounds", "ids", add_to_ledger("num_target_tokens", -1), "structure", "num_target"),
    "overlaps": ("columns", "columns", add_to_ledger("num_overlap_tokens"), "", "add up"),
    "encoded": ("packed", "plain", add_to_ledger("num_encoded_tokens"), "", "add up"),
    "sequences": ("packed", "plain", add_to_ledger("num_sequences"), "", "num_sequences"),
    "tokens": ("packed", "plain", add_to_ledger("num_tokens"), "", "num_tokens"),
    "documents": ("packed", "plain", add_to_ledger("num_documents"), "", "documents"),
}


@pytest.mark.parametrize("damage", OTHER_STORES)
def test_store_that_was_changed_after_packing_is_another_one(
    made: Path, copy: Callable[[str], Path], damage: str
) -> None:
    name, store, change, level, what = OTHER_STORES[damage]
    path = copy(name)
    folder = own_stores(made, path)
    change(folder / store)
    for options in ({"tokens": [folder / store]}, {}):
        with pytest.raises(FolderError):
            find(path, "roundtrip", **options)
    stores, decoder, _ = SETS[name]
    for is_decoder, names in enumerate((stores, decoder)):
        if names:
            follow_stores(path, [folder / each for each in names], is_decoder=bool(is_decoder))
    if level:
        found = find(path, "roundtrip")
        assert found
        assert found[0].level == level
        assert any(what in str(finding) for finding in found), found
    else:
        with pytest.raises(FolderError, match=what):
            find(path)


NO_VALUES = [
    *(("column.score", np.nan), ("column.title", 0xFF), ("column.title.offsets", 10**9)),
    *(("column.label", 99), ("column.label", -100), ("column.tags", 99), ("column.targets", 2)),
    *(("class_names.label", ord("q")), ("column.label", np.int64), ("column.count", slice(1, 9))),
]


@pytest.mark.parametrize(("name", "value"), NO_VALUES)
def test_value_that_cannot_be_is_refused_by_all_who_read_it(
    made: Path, copy: Callable[[str], Path], name: str, value: Any
) -> None:
    path = own_stores(made, copy("columns")) / "columns"

    def change(arrays: Arrays) -> None:
        if isinstance(value, slice):
            arrays[name] = arrays[name][value]
        elif isinstance(value, type):
            arrays[name] = arrays[name].astype(value)
        else:
            set_entry(arrays[name], 1, value)

    change_part(path, change)
    assert probe(path, made / "columns", "pid") == "pid"


def change_tokenizer(folder: Path, data: bytes) -> None:
    """Put another tokenizer.json into a folder, with its checksum."""
    (folder / "tokenizer.json").write_bytes(data)
    change_json(folder, lambda m: m.update(tokenizer_blake3=blake3(data).hexdigest()))


@pytest.mark.parametrize("data", ["cut", "", "{}", '{"model": {"type": "BPE", "vocab": {}}}'])
def test_tokenizer_that_is_none_is_noticed_though_its_checksum_fits(
    made: Path, copy: Callable[[str], Path], data: str
) -> None:
    path = copy("packed")
    store = own_stores(made, path) / "plain"
    good = (store / "tokenizer.json").read_bytes()
    found = good[: len(good) // 2] if data == "cut" else data.encode()
    change_tokenizer(store, found)
    follow_stores(path, [store])
    for words in (("inspect", store), ("verify", path, "--level", "structure")):
        result = run(*words)
        assert result.exit_code == 4
        assert f"{store}/tokenizer.json: not a tokenizer (" in result.stderr
    change_tokenizer(path, found)
    fit_shards(path)
    assert run("inspect", path).exit_code == 4
    result = run("verify", path, "--level", "structure")
    assert (result.exit_code, "structure: tokenizer.json: not a tok" in result.stdout) == (1, True)


@pytest.mark.parametrize(("name", "number"), [("vocab_size", 259), ("max_id", 258)])
def test_vocabulary_that_differs_from_the_manifest_is_named(
    copy: Callable[[str], Path], name: str, number: int
) -> None:
    path = copy("packed")
    change_json(path, lambda m: m.update({name: m[name] + 1}))
    said = f"tokenizer.json: {name} is {number}, manifest says"
    assert say(path)[0].startswith(f"structure: {said}")
    assert said in run("inspect", path).stderr


@pytest.mark.parametrize("name", ["num_empty_documents", "num_rejected", "special_tokens.jsonl"])
def test_store_whose_records_do_not_add_up_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.txt").write_text("a<eos>b\nc\n")
    store, shards = tmp_path / "store", tmp_path / "shards"
    assert run("tokenize", tmp_path / "text.txt", "-o", store, "-q").exit_code == 0
    if name.startswith("num"):
        add_to_ledger(name)(store)
    else:
        assert load_json(store)["ledger"]["num_special_tokens_in_text"] == 1
        (store / name).unlink()
    assert run("pack", store, "-o", shards, "-q").exit_code == 4


# Splits.


def move_batch(train: Forgery, test: Forgery) -> None:
    test.shards[-1].append(train.shards[0].pop())


def copy_batch(train: Forgery, test: Forgery) -> None:
    test.shards[-1].append(train.shards[0][-1])


def lose_batch(train: Forgery, test: Forgery) -> None:
    train.shards[0].pop()


def forge_splits(path: Path, change: Callable[[Forgery, Forgery], None]) -> None:
    """Change two splits; what is too much or missing then is that of the third."""
    forgeries = {name: take_apart(path / name) for name in ("train", "test")}
    before = {name: forgery.manifest["ledger"] for name, forgery in forgeries.items()}
    change(*forgeries.values())
    for name, forgery in forgeries.items():
        forgery.put_together()
        ledger, splits = load_json(path / name)["ledger"], load_json(path)
        for count in ("num_sequences", "num_tokens"):
            more = ledger[count] - before[name][count]
            for entry in splits["splits"]:
                entry[count] += more * ((entry["name"] == name) - (entry["name"] == "validation"))
        save_json(path, splits)


SPLIT_FORGERIES: dict[str, tuple[str, Callable[[Path], object], str, str]] = {
    "batch moved": ("splits", lambda p: forge_splits(p, move_batch), "one document is in two", "-"),
    "batch copied": ("splits", lambda p: forge_splits(p, copy_batch), "'train' too", "'train' too"),
    "batch lost": ("splits", lambda p: forge_splits(p, lose_batch), "leaves out", "leaves out"),
    "pairs moved": ("split pairs", lambda p: forge_splits(p, move_batch), "the same text", "-"),
    "in another split": (
        "split pairs",
        lambda p: forge_splits(p, move_batch),
        "'test', expected 'train'",
        "-",
    ),
    "a split's count of documents": (
        "splits",
        lambda p: change_json(p, lambda m: add_to(m, ("splits", 0, "num_documents"), 1)),
        "num_documents",
        "-",
    ),
    "a split's count of sequences": (
        "splits",
        lambda p: change_json(p, lambda m: add_to(m, ("splits", 0, "num_sequences"), 1)),
        "num_sequences",
        "num_sequences",
    ),
    "a split's count of tokens": (
        "splits",
        lambda p: change_json(p, lambda m: add_to(m, ("splits", 1, "num_tokens"), -1)),
        "num_tokens",
        "num_tokens",
    ),
    "share": (
        "splits",
        lambda p: change_json(p, lambda m: m["splits"][0].update(share="0.4")),
        "",
        "",
    ),
    "seed": ("splits", lambda p: change_json(p, lambda m: m.update(split_seed=1)), "", ""),
    "splits exchanged": (
        "splits",
        lambda p: (
            (p / "train").rename(p / "x"),
            (p / "test").rename(p / "train"),
            (p / "x").rename(p / "test"),
        ),
        "",
        "",
    ),
    "a split less": (
        "splits",
        lambda p: (change_json(p, lambda m: m["splits"].pop()), shutil.rmtree(p / "test")),
        "",
        "",
    ),
    "folder lost": ("splits", lambda p: shutil.rmtree(p / "test"), "test", "test"),
    "checksum": (
        "splits",
        lambda p: rewrite("manifest.json", lambda d: d + b" ")(p / "test"),
        "",
        "-",
    ),
    "store": (
        "splits",
        lambda p: change_json(p, lambda m: add_to(m, ("stores", 0, "num_tokens"), 1)),
        "",
        "",
    ),
    "layout": (
        "splits",
        lambda p: change_json(p, lambda m: m["options"].update(layout="padded")),
        "",
        "",
    ),
    "path": (
        "splits",
        lambda p: change_json(p, lambda m: m["stores"][0].update(path="../../other")),
        "",
        "",
    ),
}


@pytest.mark.parametrize("is_hidden", [False, True], ids=["with stores", "without"])
@pytest.mark.parametrize("damage", SPLIT_FORGERIES)
def test_splits_that_do_not_fit_together_are_found(
    copy: Callable[[str], Path], damage: str, is_hidden: bool
) -> None:
    name, change, *expected = SPLIT_FORGERIES[damage]
    path = copy(name)
    change(path)
    if is_hidden:
        hide_stores(path)
    what = expected[is_hidden]
    found = say(path)
    assert bool(found) is (what != "-")
    assert what == "-" or any(what in text for text in found), found
