"""Golden files: what every format version wrote is read for ever, and written again byte for byte.

`make_golden.py` says how the files came to be. `expected.json` beside them holds documents and
batches as something other than our reader and writer gave them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from command import run
from make_golden import (
    COMMANDS,
    FIELDS,
    GOLDEN,
    SHARDS,
    STORES,
    expect_columns,
    expect_documents,
    hash_files,
    make,
    read_batches,
    run_commands,
    write_input,
)
from reference import read_folder, read_store_documents

from seqpack_cli import open_shards, open_store
from seqpack_cli.shards import shard_manifest
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.tokens import store_manifest
from seqpack_cli.tokens.columns.kinds import KINDS

MAX_GOLDEN_BYTES = 120_000
WRITES_OTHERWISE = (
    "a changed byte is another format: raise format_version and make golden files of it; "
    "other batches from the same options are another plan: raise PLAN_VERSION too"
)
# Of every file of every version, so that none is edited unseen.
DIGEST = {
    "v5": """
88b9afcf42274a08a92afea75bc2ff38ac661d4b12ecade3186988705ba27752 expected.json
234ade4c0c664155a549edb8a7106da7e7f32424167f872b03612994cedddcba filler/manifest.json
6f21c4dd1faa6eb5eeeffbf8cfca3d44661825c9ea57c76d68c88e9de0f711f8 filler/run.json
8310a020130bdcfd7a0effc65dfcd8e409ac53f41ff3c6235059f0282fa3aad1 filler/shard-00000.safetensors
90a190e6214c753ea71dccf7a8895d701a1ee4241a05ff8aa7ae35ec90d320a8 filler/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 filler/tokenizer.json
758134ba9fe5a492d4ccee356a8e0052a007ad5e02dd5583d5a4a6d284366007 filler_columns/manifest.json
11d2d96074b41a6e13fc690aa78339affb71fef8eb0197182ca39403c5adfa6e filler_columns/run.json
2838d6a48d753a4dea8ef4ad946adec1ae789b52c39e6374803e0279fc41044d filler_columns/shard-00000.safetensors
914e1448dfe0b4c20b59ddcd3cbc7d9013badec9e501dca83c75045c301bd1a1 filler_columns/shard-00001.safetensors
889e6699cd35d7d9dde4d37f0a5da311b04097181b95308a71b8396fddea3e39 filler_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 filler_columns/tokenizer.json
007e026f733d945108a5108c880697d513664ea51858ac61074ce02aa8551d9f input/fields.jsonl
f0877793769040f348faa1ecc99de8895a66cffc7c63db97366289dad422075b input/lines.txt
c0f3e06336f06fca817dffba8db85b8445bc31c4a00c69a939227daf792ccb90 input/records.jsonl
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 input/words.tokenizer.json
5c7b8708eb7551a6fff67bdb846a7da5c9bc97565ec8ba34b0d94660013eeb49 input/words.txt
6732387db16b5473893dc9ee4f1f813d131c82a67ced16d806317749fcb260a4 packed/manifest.json
4ac716f18c68e502216794f83836573ef256d7d8ddbbd70dfdb88af0a81632cc packed/run.json
2b5f7f9f412fa718b80e648b7352cc81d3e236479b400b6dc5a85cf8979458ef packed/shard-00000.safetensors
2c6867ffaad3bb3916a07246da5d5d338628a2f5e072b7be3da419ddcc601723 packed/shard-00001.safetensors
51d66d2695dbfd203d66e3ff62ae3e219174c5c77bbca10aa841f62157d32ab8 packed/shard-00002.safetensors
51e817a74a68a1669227bd019610b3f0e1587c52cbd85e5ddc3cdd0cc2c67aef packed/shard-00003.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed/tokenizer.json
fddce3896c2c275e8f86d0f2fd696367cf3a7db5280ae9b5e8b4772528541405 packed_columns/manifest.json
74ead7c5990af367481599d6639237dd1f52203a34ca78f9c70afc3573715721 packed_columns/run.json
bb6e0d4e426ff6e724c4131d608ac988318815644304b98ab9bdad8d34abe76c packed_columns/shard-00000.safetensors
e3e6d8b3ae9a414ae030dbb2d01b916f0048878d61fb5d913aefc3283594b034 packed_columns/shard-00001.safetensors
aeec5befdebd07599247c0b8a6c45870c7f044a3cddf0c573fbca6493c972c55 packed_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed_columns/tokenizer.json
27b1f93a7ad185313ff5a010d7f6ebb8251e23f295698542da633ccf19a1586e padded/manifest.json
4f0a67f710bb5ab2e5caccdfad4cca70609f274d512290125ccd7afe00272a08 padded/run.json
d36ace8b6cfadde5c1b4454f9cea1979b07fb1d160d15d670def12e92c13eff7 padded/shard-00000.safetensors
1600ab520cebb400f5becde8cbf127da1bbf0d081520e5133fb082ec0de36536 padded/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 padded/tokenizer.json
f72022982e0a01278b7663eb00200ed39779df51294d9ce844fa1fc389439eac padded_left/manifest.json
6b0c50276f1c7e6353271277d3373f42da74667250abf738012ee94e8889006d padded_left/run.json
af0f4125e96e3a6f0597648d95cd01e5a7c342cf3cc508365929763bbd571562 padded_left/shard-00000.safetensors
15a480551db8d12237746458eb562e1121314bb2898823fbb4347b1c1b38ac86 padded_left/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_left/tokenizer.json
a0a5f943b923ad7bb00bf50245fcf61cb864ac9c650dfd702cc0d79ef004488c tokens_bytes/manifest.json
b4aa4ea8fa3bfbe941bb7efc1e627f2f3f1bb35ec3176b0f56d73d9cdafe46b1 tokens_bytes/part-00000.bin
7b8499db58694974e75d1d4ca19b2499af8c2d9b818ed50b0b7f339a993c9e0e tokens_bytes/part-00000.columns.safetensors
bff95ec07187b06c05fb8233a01e7596fb5800069c1ec0565ff14d095bbbe21f tokens_bytes/part-00000.idx
44d80857f393477d6b4e00958690c37732abc1a0e80a942262fdfb3af8488bd9 tokens_bytes/part-00001.bin
9a82c971a4a5701a784596e64e7979180adfbc8cf9e9cf2a75477fe3394458d9 tokens_bytes/part-00001.columns.safetensors
00094060a61e9dfdf64950f41d76bc287b073449fe4e28bc2864a2856e7fb1f3 tokens_bytes/part-00001.idx
4bc1c5219fe284c6bc197016e3bcc219d663e9bd97b96bab78549e510011b327 tokens_bytes/rejects.jsonl
a83041ed4bb17d162ec53cd5148c8fb13c2cb646cc448bad216ba3837feda606 tokens_bytes/run.json
9b7a58b10cbefe06ba7b2b8e0d0ecec79aee32cf86136cadfacea8514c6eff14 tokens_bytes/special_tokens.jsonl
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_bytes/tokenizer.json
1c47d7868671dfc0f52ed740bf7efe99d47d44e00151c4a42dd0db9880c3668a tokens_fields/manifest.json
e6696c2494829d013782f9f9d72f02545a461ffdfc946f7cb61226b89830437d tokens_fields/part-00000.bin
2b1425671d974a9b90f51734c40520e32b2ff6e7a8493ae536c502e74686d56e tokens_fields/part-00000.columns.safetensors
be3441081c1a5c6e9136efc73edeba17a4976d68bbee81fa767bd24af709ea98 tokens_fields/part-00000.idx
36f7f83bdb5514290e5a7b0323c949b7730531d6ca38b0dbf8d75395fe695193 tokens_fields/part-00001.bin
0372bdf61a338a30a02400976c3a673773b7146048b91f60e684e0416596653a tokens_fields/part-00001.columns.safetensors
5c9b604f4460e0172d8742be1ffbdf1be10c012eb9c39d7b206df3559ccfdd3c tokens_fields/part-00001.idx
e03dcf6b84bcf2e0c62c9965ca027c6af7e032ed445411509b06de65640beada tokens_fields/part-00002.bin
ece00e5700a1788117e5153e8015f2fe95382e053b1e27e24d5b0d28132c875c tokens_fields/part-00002.columns.safetensors
f37c9b9395ef5f242ce732222f9caa4d69c0f5b759846581fa6ce0dbd9b5c667 tokens_fields/part-00002.idx
9dac593f1e179464747ce0485a3d75e8de20d7037a75af9fa7b28a3f28d54486 tokens_fields/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_fields/tokenizer.json
9eecb06a655e790fea7804393571e23d4f9ba7863bf67260fd0728e11dd4a853 tokens_words/manifest.json
573234eac418fa74e54431fce20a18f23d53c4a531bb27d8d57010f00cfd7c89 tokens_words/part-00000.bin
2d24240961c3eb136307223680db3ec5277c01d0c9f2bbb680b5e72919894456 tokens_words/part-00000.columns.safetensors
8ecfd8efb9ffb00352070c6ce5d8d3fbc0e626e4982c5ff0a863d754e3602d72 tokens_words/part-00000.idx
c3ff1cb6bc73d7fc98b090b875b0dde96ae1883911b50a856ed15533c583f370 tokens_words/part-00001.bin
edf9c450dabfe3c1c8ca031b158bfe8cfb261b3f6d8340ba93bcf0a6550ffefb tokens_words/part-00001.columns.safetensors
d53e769de5d15cf68032d0bb768f732a32a79aead3aec77c87d466da72587925 tokens_words/part-00001.idx
8df550128857a2e7cb02198eaacede49c7e6eb65cd84d2c88501c864d96feb8f tokens_words/run.json
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 tokens_words/tokenizer.json
ff4843b03fdc5d40b838669a04758c3e4e324589b23b55dbe24a435fb26ad340 varlen/manifest.json
b67fe4ff5d68f8976ce602b6716cbc4ee6a3991d40719dd3d7a660a0dbf4a1a5 varlen/run.json
0b6e672c1cd24801136d29684b1243b5938007133083472bcdc08bb67faf53c5 varlen/shard-00000.safetensors
0e8c4aa9ca37ac42bea1c2841402d895ce2aa971f8578088741feff2729f8a6c varlen/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen/tokenizer.json
cb1a39f12fe123902e253186e17e1d2701b77e2c4ac4c8db915bc6e90ce1e334 varlen_columns/manifest.json
fbad4d51e0aa0f764beeaa4df7938031ac7e83e6d1a8d466356a87cf18dc27a8 varlen_columns/run.json
bdbc8ffb3630b15d6673082f77a598987d3d084622248e0f779abd903506fd8c varlen_columns/shard-00000.safetensors
eb3e44e516a4d35b9bbb9671e210d5d860be7e53131eedefadec2ebd4457601f varlen_columns/shard-00001.safetensors
3a885255b15b6804e0bc4ec4382a8ea5b3ccf788a927d4a79e7969dd89723a60 varlen_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_columns/tokenizer.json
"""  # noqa: E501
}
VERSIONS = sorted(DIGEST)
# Both formats are written into one folder, which has the larger of their versions.
FILTERED = ("packed_columns",)
LATEST = f"v{max(store_manifest.FORMAT_VERSION, shard_manifest.FORMAT_VERSION)}"
ALL_STORES = [(version, name) for version in VERSIONS for name in STORES]
ALL_SHARDS = [(version, name) for version in VERSIONS for name in SHARDS]


def expected(version: str, name: str) -> Any:
    """Return what a golden store or golden shards must hold."""
    return json.loads((GOLDEN / version / "expected.json").read_bytes())[name]


def expected_sequences(version: str, store: str) -> list[list[int]]:
    return [ids for pieces in expected(version, store) for ids in pieces]


def store_of(name: str) -> str:
    return COMMANDS[name].split()[1]


# The files themselves


def test_every_golden_file_is_pinned() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(DIGEST)
    for version, table in DIGEST.items():
        pinned = dict(reversed(line.split()) for line in table.strip().splitlines())
        found = hash_files(GOLDEN / version)
        assert found == pinned, "a golden file is never edited; another format has another version"


def test_golden_files_are_small() -> None:
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MAX_GOLDEN_BYTES


def test_golden_files_hold_what_they_are_for() -> None:
    """Several parts and shards, both dtypes, all layouts, and every odd kind of document."""
    stores = {name: open_store(GOLDEN / LATEST / name) for name in STORES}
    assert [store.dtype for store in stores.values()] == ["uint16", "int32", "uint16"]
    assert all(len(store.manifest["parts"]) >= 2 for store in stores.values())
    assert stores["tokens_words"].max_id == 70_000
    documents = expected(LATEST, "tokens_bytes")
    assert [] in documents
    assert max(map(len, documents)) == 3
    assert stores["tokens_bytes"].manifest["ledger"]["num_rejected"] == 1
    assert stores["tokens_bytes"].manifest["ledger"]["num_special_tokens_in_text"] == 1
    shards = {name: open_shards(GOLDEN / LATEST / name) for name in SHARDS}
    assert {opened.layout for opened in shards.values()} == {"packed", "padded", "varlen"}
    assert all(opened.num_shards >= 2 for opened in shards.values())
    assert shards["padded_left"].manifest["padding_side"] == "left"
    assert shards["padded_left"].manifest["bucket_keys"] == [12, 24, 40]
    assert shards["filler"].manifest["ledger"]["num_filler_rows"] == 2
    assert shards["varlen"].manifest["ledger"]["num_split_sequences"] == 3
    assert shards["filler_columns"].manifest["ledger"]["num_filler_rows"] > 0
    assert shards["varlen_columns"].manifest["ledger"]["num_split_sequences"] > 0
    assert shards["packed_columns"].manifest["ledger"]["num_dropped_sequences"]["where"] > 0


def test_existing_version_is_never_made_again(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    with pytest.raises(FileExistsError):
        make(tmp_path / "v1")
    assert list((tmp_path / "v1").iterdir()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_expected_documents_follow_from_the_input(version: str) -> None:
    found = expect_documents(GOLDEN / version / "input")
    assert found == {name: expected(version, name) for name in STORES}


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_expected_batches_hold_the_expected_documents(version: str, name: str) -> None:
    """Put the rows of `expected.json` together by hand: padding off, pieces joined."""
    manifest = json.loads((GOLDEN / version / name / "manifest.json").read_bytes())
    pad_id = manifest["pad_id"]
    pieces: dict[tuple[int, int], list[int]] = {}
    for batch in expected(version, name):
        assert sum(index < 0 for index, _, _ in batch["rows"]) == batch["num_filler_rows"]
        for index, start, row in batch["rows"]:
            assert len(row) == (batch["width"] or len(row))
            ids = [id_ for id_ in row if id_ != pad_id]  # no text of ours holds it
            assert (index, start) not in pieces or index < 0
            assert bool(ids) == (index >= 0)
            pieces[index, start] = ids
    sequences = expected_sequences(version, store_of(name))
    if name in FILTERED:
        sequences = [ids if (index, 0) in pieces else [] for index, ids in enumerate(sequences)]
    joined: list[list[int]] = [[] for _ in sequences]
    for (index, start), ids in sorted(pieces.items()):
        if index >= 0:
            assert start == len(joined[index])
            joined[index] += ids
    assert joined == sequences


# Read for ever


@pytest.mark.parametrize(("version", "name"), ALL_STORES)
def test_golden_store_is_read(version: str, name: str) -> None:
    store = open_store(GOLDEN / version / name)
    store.check_digest()
    assert [ids.tolist() for ids in store] == expected_sequences(version, name)
    assert store.num_documents == len(expected(version, name))
    assert read_store_documents(GOLDEN / version / name) == expected(version, name)


@pytest.mark.parametrize(("version", "name"), ALL_STORES)
def test_golden_store_leads_back_to_its_documents(version: str, name: str) -> None:
    store = open_store(GOLDEN / version / name)
    origins = [store.locate(index) for index in range(len(store))]
    found = [(origin.document, origin.piece) for origin in origins]
    documents = expected(version, name)
    assert found == [
        (document, piece)
        for document, pieces in enumerate(documents)
        for piece in range(len(pieces))
    ]


def test_golden_rejects_are_as_they_were() -> None:
    lines = (GOLDEN / LATEST / "tokens_bytes" / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "source": "input/records.jsonl",
            "record": 2,
            "byte": 34,
            "reason": "field 'text' is int, expected a string",
        }
    ]


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_golden_shards_are_read(version: str, name: str) -> None:
    found = []
    for batch in open_shards(GOLDEN / version / name):
        assert batch.original_indices is not None
        starts = getattr(batch, "piece_starts", None)
        if starts is None:
            starts = np.zeros_like(batch.original_indices)
        is_padded = isinstance(batch, PaddedBatch)
        rows = batch.ids if is_padded else batch.rows()
        found.append(
            {
                "width": batch.ids.shape[1] if is_padded else None,
                "num_filler_rows": batch.num_filler_rows if is_padded else 0,
                "rows": [
                    [index, start, row.tolist()]
                    for index, start, row in zip(
                        batch.original_indices.tolist(), starts.tolist(), rows, strict=True
                    )
                ],
            }
        )
    assert found == expected(version, name)
    assert read_batches(GOLDEN / version / name) == expected(version, name)


@pytest.mark.parametrize(("version", "name"), ALL_STORES + ALL_SHARDS)
def test_golden_folder_is_inspected(version: str, name: str) -> None:
    folder = GOLDEN / version / name
    manifest = json.loads((folder / "manifest.json").read_bytes())
    result = run("inspect", folder, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["ledger"] == manifest["ledger"]
    assert run("inspect", folder).exit_code == 0
    row = json.loads(run("inspect", folder, "--sequence", 1, "--json").stdout)
    store = name if name in STORES else store_of(name)
    assert row["ids"] == expected_sequences(version, store)[1]


@pytest.mark.parametrize(("version", "name"), ALL_STORES + ALL_SHARDS)
def test_golden_folder_is_read_without_its_run_json(
    tmp_path: Path, version: str, name: str
) -> None:
    shutil.copytree(GOLDEN / version / name, tmp_path / name)
    (tmp_path / name / "run.json").unlink()
    assert run("inspect", tmp_path / name).exit_code == 0


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_golden_shards_are_verified(version: str, name: str) -> None:
    result = run("verify", GOLDEN / version / name, "--level", "roundtrip", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["passed"]
    assert report["findings"] == []


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_golden_shards_are_unpacked(tmp_path: Path, version: str, name: str) -> None:
    assert run("unpack", GOLDEN / version / name, "-o", tmp_path / "rows.jsonl").exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    sequences = expected_sequences(version, store_of(name))
    kept = [row["index"] for row in rows]
    assert [row["ids"] for row in rows] == [sequences[index] for index in kept]
    if name not in FILTERED:
        assert kept == list(range(len(sequences)))
    if store_of(name) == "tokens_fields":
        columns = expect_columns()
        assert [row["columns"] for row in rows] == [columns[index] for index in kept]


def test_golden_columns_are_read() -> None:
    """From each part, and hashes of the texts of all documents."""
    store = open_store(GOLDEN / LATEST / "tokens_fields")
    numbers = range(len(store.manifest["parts"]))
    hashes = [found for number in numbers for found in store.part_hashes(number).tolist()]
    assert hashes == [xxhash.xxh3_64_intdigest(text.encode()) for text, *_ in FIELDS]
    expected_columns = expect_columns()
    for name, column in store.columns.items():
        found = [
            value for number in numbers for value in column.spell(store.part_column(number, name))
        ]
        values = [sequence[name] for sequence in expected_columns]
        if column.is_per_token:
            values = [value for tags in values for value in tags]
        assert found == values
    kinds = {column.kind for column in store.columns.values()}
    assert kinds == set(KINDS)


# Written again


def test_golden_files_are_written_again_byte_for_byte(tmp_path: Path) -> None:
    """All runs begin in the version's folder, so that manifests hold the same relative paths."""
    shutil.copytree(GOLDEN / LATEST / "input", tmp_path / "input")
    run_commands(tmp_path)
    for name in COMMANDS:
        found, golden = read_folder(tmp_path / name), read_folder(GOLDEN / LATEST / name)
        assert sorted(found) == sorted(golden), f"{name}: {WRITES_OTHERWISE}"
        for file, data in golden.items():
            assert found[file] == data, f"{name}/{file}: {WRITES_OTHERWISE}"


def test_input_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    write_input(tmp_path / "input")
    for version in VERSIONS:
        assert read_folder(tmp_path / "input") == read_folder(GOLDEN / version / "input")
