"""Pairs: good ones pass on both sides, and a damage to either side or to the pairs is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from command import run
from here import HERE
from pair_corpus import make_pair_shards, make_pair_stores
from shard_reference import (
    Arrays,
    change_manifest,
    change_shard,
    load_shard,
    mend_manifest,
    plan_by_another_version,
    put,
    safetensors_bytes,
)

from seqpack_cli.batching.options import DECODER, PackOptions
from seqpack_cli.errors import FolderError, OptionError
from seqpack_cli.shards.manifest import name_tensors
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.store import open_store, open_stores
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.batch_damages import exchange_batches
from seqpack_cli.verification.integers.pair_documents import Documents
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.pair_damages import repeat_encoder_row, swap_pairs
from seqpack_cli.verification.report import PairsReport

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ("abc", "", "abcdefgh", "ab", "abcdef", "a", "", "abc", "abcdefghi")
SIDES = ("read", "written")  # the stores of the encoder and of the decoder
RECORDS = [
    {"read": text, "written": TEXTS[number * 4 % 9], "lang": "de", "number": number}
    for number, text in enumerate(TEXTS)
]
KINDS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 2},
    "padded": {"layout": "padded", "batch_size": 3, "last_batch": "pad"},
    "left": {"layout": "padded", "padding_side": "left", "batch_size": 3},
    "buckets": {"buckets": ((4, 9), (9, 9)), "max_tokens": 20, "count": "sum", "shard_bytes": 1},
}


SWAPPED, TWICE, BATCHES = "swapped pairs", "duplicate encoder row", "swapped decoder batches"
CAUGHT = {
    "packed": [SWAPPED, TWICE, BATCHES],
    "padded": [SWAPPED, BATCHES],
    "left": [SWAPPED, BATCHES],
    "buckets": [],  # the smallest shard has one pair
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Shards of each kind, each beside its stores."""
    folder = tmp_path_factory.mktemp("pairs")
    return {name: make_pair_shards(folder / name, RECORDS, **KINDS[name]) for name in KINDS}


@pytest.fixture
def copy(made: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copy shards of a kind and their stores, to be changed."""

    def copy_kind(name: str) -> Path:
        shutil.copytree(made[name].parent, tmp_path / name)
        return tmp_path / name / made[name].name

    return copy_kind


def verify(path: Path, **options: Any) -> PairsReport:
    report = verify_run.verify(path, VerifyOptions(**{"level": "roundtrip", **options}))
    assert isinstance(report, PairsReport)
    return report


@pytest.mark.parametrize("name", KINDS)
def test_good_pairs_pass_and_every_damage_in_memory_is_caught(
    made: dict[str, Path], name: str
) -> None:
    report = verify(made[name], level="backward", self_test=True, hidden_size=8)
    assert [str(finding) for finding in report.findings] == []
    assert report.documents.num_documents == 6
    assert all(side.plan.compared for side in report.sides.values())
    num_batches = [[it.num_batches for it in side.levels] for side in report.sides.values()]
    assert num_batches[0] == num_batches[1]
    assert 0 not in num_batches[0]
    assert [control.name for control in report.controls if control.caught] == CAUGHT[name]


Change = Callable[[Path], object]


def change_decoder(change: Callable[[Shard], Arrays | None]) -> Change:
    """Return a function that damages the decoder's side of the first shard."""

    def change_file(path: Path) -> None:
        shards = open_shards(path).decoder
        assert shards is not None
        changed = change(shards.open_shard(0))
        assert changed is not None
        change_shard(path, lambda arrays: arrays.update(name_tensors(changed, DECODER)))

    return change_file


def put_decoder(name: str, place: int, value: int) -> Change:
    """Return a function that changes an entry of an array of the decoder's side."""
    return lambda path: change_shard(path, put(f"decoder.{name}", place, value))


def swap_ties(shard: Shard) -> Arrays:
    """Swap the pairs of two rows of one length, in the second batch."""
    return {"encoder_rows": shard.tensors["encoder_rows"][[0, 1, 3, 2, 4, 5]]}


def drop_by_other_side(path: Path) -> None:
    """Count a pair of the decoder's ledger under another reason."""

    def change(manifest: dict[str, Any]) -> None:
        dropped = manifest["decoder"]["ledger"]["num_dropped_sequences"]
        dropped.update({"encoder.empty": dropped["encoder.empty"] - 1, "decoder.empty": 1})

    change_manifest(path, change)


def set_options(**options: Any) -> Change:
    """Return a function that records other options."""
    return lambda path: change_manifest(path, lambda it: it["options"].update(options))


def add_key(path: Path) -> None:
    """Record another bucket key."""
    keys = [[4, 4], [4, 9], [9, 9]]
    set_options(buckets=keys)(path)
    change_manifest(path, lambda manifest: manifest.update(bucket_keys=keys))


def take_other_store(path: Path) -> None:
    """Name a store of one document more as the decoder's, in the manifest and in the file."""
    more = [*RECORDS, {**RECORDS[0], "written": "", "number": 9}]
    store = make_pair_stores(path.parent / "more", more)[1]
    shutil.rmtree(path.parent / "written")
    store.rename(path.parent / "written")
    digest = open_store(path.parent / "written").digest
    change_manifest(path, lambda it: it["decoder"]["stores"][0].update(blake3=digest))
    file = path / "shard-00000.safetensors"
    arrays, metadata = load_shard(file)
    file.write_bytes(safetensors_bytes(arrays, {**metadata, "decoder.stores_blake3": digest}))
    mend_manifest(path)


def swap_first(shard: Shard) -> Arrays:
    return exchange_batches(shard, 0)


FILE, LAST = "shard-00000.safetensors", "shard-00003.safetensors"
OTHER = f"roundtrip: {FILE}: batch 0: row 0: the decoder has document "
# The kind, the damage, whether the plan is compared, and how the first finding begins.
DAMAGES: dict[str, tuple[str, Change, bool, str]] = {
    "pairs": ("packed", change_decoder(swap_pairs), False, OTHER),
    "pairs of the plan": (
        *("packed", change_decoder(swap_pairs), True),
        f"structure: {FILE}: decoder: batch 0: row 0: encoder's row 0, the plan has 1",
    ),
    "padded rows": ("padded", change_decoder(swap_pairs), False, OTHER),
    "batches": ("packed", change_decoder(swap_first), False, OTHER),
    "a row twice": (
        *("packed", change_decoder(repeat_encoder_row), False),
        f"structure: {FILE}: decoder: batch 0: encoder_rows at row 0 do not name each row once",
    ),
    "ties": (
        *("packed", change_decoder(swap_ties), False),
        f"structure: {FILE}: batch 1: row 1: encoder_rows is 0 after 1, expected rising rows of 3",
    ),
    "an id": (
        *("left", put_decoder("data", -1, 97), False),
        f"roundtrip: {FILE}: decoder: batch 1: row 2: id 97 at step",
    ),
    "a column": (
        *("packed", put_decoder("column.number", 0, 99), False),
        f"roundtrip: {FILE}: decoder: batch 0: row 0: column 'number' is 99",
    ),
    "a ledger": (
        *("packed", drop_by_other_side, True),
        "structure: manifest.json: decoder: num_dropped_sequences by decoder.empty is 1",
    ),
    "the budget": (
        *("buckets", set_options(max_tokens=17), False),
        f"structure: {LAST}: batch 3: 19 cells on both sides, the options allow at most 17",
    ),
    "the budget of the plan": (
        *("packed", set_options(max_tokens=4, count="max"), True),
        f"structure: {FILE}: encoder: batch 0: 17 cells, the options allow at most 4",
    ),
    "the buckets": (
        *("buckets", add_key, False),
        f"structure: {LAST}: batch 3: row 1: a pair of 3 and 3 tokens belongs to another bucket",
    ),
    "a store": (
        *("packed", take_other_store, True),
        "structure: manifest.json: pack refuses these options: ",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(copy: Callable[[str], Path], name: str) -> None:
    kind, change, is_planned, expected = DAMAGES[name]
    path = copy(kind)
    change(path)
    if not is_planned:
        plan_by_another_version(path)
    found = [str(finding) for finding in verify(path).findings]
    assert [what[: len(expected)] for what in found[:1]] == [expected]


def test_document_of_another_row_is_named(copy: Callable[[str], Path]) -> None:
    path = copy("padded")
    for damage in (change_decoder(swap_pairs), plan_by_another_version):
        damage(path)
    (found,) = verify(path).findings
    source = open_store(path.parent / "read").locate(0).source
    expected = f"the decoder has document {source}:3, row 0 of the encoder is {source}:9"
    assert (found.what, found.batch, found.row) == (expected, 0, 0)


def test_stores_of_both_sides_are_recognised(copy: Callable[[str], Path]) -> None:
    path = copy("packed")
    moved = [(path.parent / name).rename(path.parent / f"moved-{name}") for name in SIDES]
    with pytest.raises(FolderError, match=r"the encoder's token store is not at \.\./read"):
        verify(path)
    assert verify(path, tokens=moved[::-1]).passed
    other = make_pair_stores(path.parent / "other", RECORDS[:3])[0]
    with pytest.raises(FolderError, match="not a token store that these shards"):
        verify(path, tokens=[*moved, other])
    report = verify(path, level="structure")
    assert report.passed
    assert {side.plan.why_not for side in report.sides.values()} == {
        f"{path}: the encoder's token store is not at ../read"
    }


def test_documents_of_several_stores_are_counted_through_all_of_them(tmp_path: Path) -> None:
    sides = [make_pair_stores(tmp_path / name, RECORDS) for name in "ab"]
    encoders, decoders = ([Path(path) for path in side] for side in zip(*sides, strict=True))
    documents = Documents(open_stores(encoders))
    one = [number for number, record in enumerate(RECORDS) if record["read"]]
    assert documents.numbers.tolist() == [*one, *(number + len(RECORDS) for number in one)]
    pack(encoders, tmp_path / "out", PackOptions(batch_size=5), decoder=decoders, executor=HERE)
    report = verify(tmp_path / "out")
    assert report.passed
    assert report.documents.num_documents == 12


def test_file_that_is_damaged_is_named_once(copy: Callable[[str], Path]) -> None:
    path = copy("packed")
    (path / FILE).write_bytes((path / FILE).read_bytes()[:-8])
    (found,) = verify(path).findings
    assert (found.level, found.shard) == ("structure", FILE)


def test_columns_of_the_decoder_are_checked_before_they_are_used(
    copy: Callable[[str], Path],
) -> None:
    path = copy("packed")
    change_manifest(path, lambda manifest: manifest["decoder"].update(columns=[None]))
    with pytest.raises(FolderError, match="None, expected an object"):
        open_shards(path)


def test_splits_of_pairs(tmp_path: Path) -> None:
    path = make_pair_shards(tmp_path, 30, split="train=0.7,test=0.3")
    result = run("verify", str(path), "--level", "roundtrip", "--self-test")
    assert result.exit_code == 0, result.stdout
    assert "; both sides of each have the same document number\n" in result.stdout
    assert "  documents: 30 packed, each in exactly one split\n" in result.stdout
    change_decoder(swap_first)(path / "test")
    manifest = blake3((path / "test" / "manifest.json").read_bytes()).hexdigest()
    change_manifest(path, lambda it: it["splits"][1].update(blake3=manifest))
    result = run("verify", str(path), "--level", "roundtrip")
    assert result.exit_code == 1
    assert f"structure: test/{FILE}: decoder: batch 0: row 0: sequence " in result.stdout


def test_report_of_both_sides(made: dict[str, Path]) -> None:
    path = made["packed"]
    result = run("verify", str(path), "--level", "roundtrip", "--json")
    report = json.loads(result.stdout)
    assert list(report) == ["passed", "shards", "sides", "documents", "findings", "controls"]
    sides = report["sides"]
    assert {name: side["side"] for name, side in sides.items()} == {
        "encoder": "encoder",
        "decoder": "decoder",
    }
    assert [side["num_tokens"] for side in sides.values()] == [29, 26]
    result = run("verify", str(path), "--level", "roundtrip")
    lines = result.stdout.splitlines()
    assert lines[0] == f"{path}: encoder: packed, 3 batches, 6 sequences, 29 tokens"
    assert lines[-3:] == [
        f"{path}: 6 pairs; both sides of each have the same document number",
        "",
        "all levels passed",
    ]


def test_own_model_of_pairs_is_refused(made: dict[str, Path]) -> None:
    with pytest.raises(OptionError) as caught:
        verify(made["packed"], level=None, model="json:loads")
    assert caught.value.message == (
        "--model conflicts with pairs: a model of pairs takes both sides at once, verify checks "
        "each side alone"
    )
