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
23131b3acd33048c15d3ae6f5f8fcb961e75b85b843eae079ec37f122c924d0c filler/manifest.json
24da1490d550fbd255c00a6c3ffd3ac7b9d0182210f5e00cf3545cbf0cbb05d9 filler/run.json
87a3df217ec97e284eda098dfb5ae7602264153ac69a5aead4d1833565824079 filler/shard-00000.safetensors
717cb87e7bf185e848ea94e38540fb2a556231bb0b869929520d7814058c4b6f filler/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 filler/tokenizer.json
5f1e05097a8e95f9d699f8189bdffcedb7b464cb8b81a1935bbb7cf4075e8ef1 filler_columns/manifest.json
f8f30e5a998975ba8f6893f14b2841b7fe436c4e3f9550db800e0303a91ddae2 filler_columns/run.json
96da9dbc183ba623ba937f2237d1c8a812b1a5a1106dd18ac79d9a08d52136af filler_columns/shard-00000.safetensors
e79b3919999eec8bc8b6a21e0f6cec3445f0ce7bf7bf70f3030b0e16a17ce0a8 filler_columns/shard-00001.safetensors
a3897a352d69a46f7cf19404a5ef652be6dc27b6e7bdec082903f4de11f0a5af filler_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 filler_columns/tokenizer.json
007e026f733d945108a5108c880697d513664ea51858ac61074ce02aa8551d9f input/fields.jsonl
f0877793769040f348faa1ecc99de8895a66cffc7c63db97366289dad422075b input/lines.txt
c0f3e06336f06fca817dffba8db85b8445bc31c4a00c69a939227daf792ccb90 input/records.jsonl
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 input/words.tokenizer.json
5c7b8708eb7551a6fff67bdb846a7da5c9bc97565ec8ba34b0d94660013eeb49 input/words.txt
0918ff6ffd719592826b34e9d87c8f04488deaaed6942bf89b6d284a19e71c84 packed/manifest.json
d14bf9a6bc75bd6a8a9687aded73bb2a46dc950487f30f7e2b8cb7322af3f224 packed/run.json
a9d707fa0acfa10112f143cfce18e119459f867a3811933e0799ae82f4c8ba6a packed/shard-00000.safetensors
00dd43d514d5151ba445d933d9f0c3424b8ffc9674993b6e55ccfcae7c3bae50 packed/shard-00001.safetensors
829dcfe6784b0640efad580751514006d08ad1d1e0253d17a8736025e375dd75 packed/shard-00002.safetensors
e5d7cdfefbbf81e02692e52a7b6564809019631f547be4a5b060a19debc24065 packed/shard-00003.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed/tokenizer.json
4a1c10bbdc07407b104dd73d8f9dd4daeeafac5fa0389a9b7d61740be34a60ea packed_columns/manifest.json
ce8d7ce48d22940659deffcd4821c75c151c4c6e0e23803a03af5ecb67f000ce packed_columns/run.json
365ee71822090d83bd2ea8559f3c20593b7160a086821bb41fc5abf55a128006 packed_columns/shard-00000.safetensors
c8a8fd27affa14d552f69fc62ebf17ffe876a662bfb8b5bbf593486f73961471 packed_columns/shard-00001.safetensors
728b1a3ce067e6b5b1d38baf7371289f7e8226594f20bb2f41b24ff8f18a5af6 packed_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed_columns/tokenizer.json
17d47108c6f39ccbe9fd0a490e6b8f0af5d7d87a23b9e273778243663e74be38 padded/manifest.json
38a851329b87ab58db41c023b01292c006b302c4c2fb76a76c92c8106e79aa51 padded/run.json
666c122b60c41ddaea8acab8d84742b3dd3165b4768585c831562da8b4bfb4cb padded/shard-00000.safetensors
3b84c1799c1f10de0fe2a45049d7f10bd6458bf8e07e49facc280cf3997e7cc3 padded/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 padded/tokenizer.json
fac1fc5e879712995aa4d00a14c88f762c285b6139c7d98173add116b1fcebd3 padded_left/manifest.json
223047fa2c3b0bef629d2d00bc91c47762deb50b167dde5a08e925e860c6b7a9 padded_left/run.json
0941c19c28158dc5107cbb373b0b06707139d469e9002ffabcbaa68164339541 padded_left/shard-00000.safetensors
4790535549c4b4cf2d14cd7f8720184d95cff499724cf947a0a2588153f7345d padded_left/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_left/tokenizer.json
019e76a879273090002dd76a57ed3205082be732896b9495d449df96054a5978 tokens_bytes/manifest.json
b4aa4ea8fa3bfbe941bb7efc1e627f2f3f1bb35ec3176b0f56d73d9cdafe46b1 tokens_bytes/part-00000.bin
7b8499db58694974e75d1d4ca19b2499af8c2d9b818ed50b0b7f339a993c9e0e tokens_bytes/part-00000.columns.safetensors
bff95ec07187b06c05fb8233a01e7596fb5800069c1ec0565ff14d095bbbe21f tokens_bytes/part-00000.idx
44d80857f393477d6b4e00958690c37732abc1a0e80a942262fdfb3af8488bd9 tokens_bytes/part-00001.bin
9a82c971a4a5701a784596e64e7979180adfbc8cf9e9cf2a75477fe3394458d9 tokens_bytes/part-00001.columns.safetensors
00094060a61e9dfdf64950f41d76bc287b073449fe4e28bc2864a2856e7fb1f3 tokens_bytes/part-00001.idx
4bc1c5219fe284c6bc197016e3bcc219d663e9bd97b96bab78549e510011b327 tokens_bytes/rejects.jsonl
d3194b37351d7f1f8bbb7fec433794f95c35acd14749bf52eab64b6728df590f tokens_bytes/run.json
9b7a58b10cbefe06ba7b2b8e0d0ecec79aee32cf86136cadfacea8514c6eff14 tokens_bytes/special_tokens.jsonl
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_bytes/tokenizer.json
394636fac1e751ddbb4d673300701ab234aaa6823ab9459c4efd5e423fee5d82 tokens_fields/manifest.json
e6696c2494829d013782f9f9d72f02545a461ffdfc946f7cb61226b89830437d tokens_fields/part-00000.bin
2b1425671d974a9b90f51734c40520e32b2ff6e7a8493ae536c502e74686d56e tokens_fields/part-00000.columns.safetensors
be3441081c1a5c6e9136efc73edeba17a4976d68bbee81fa767bd24af709ea98 tokens_fields/part-00000.idx
36f7f83bdb5514290e5a7b0323c949b7730531d6ca38b0dbf8d75395fe695193 tokens_fields/part-00001.bin
0372bdf61a338a30a02400976c3a673773b7146048b91f60e684e0416596653a tokens_fields/part-00001.columns.safetensors
5c9b604f4460e0172d8742be1ffbdf1be10c012eb9c39d7b206df3559ccfdd3c tokens_fields/part-00001.idx
e03dcf6b84bcf2e0c62c9965ca027c6af7e032ed445411509b06de65640beada tokens_fields/part-00002.bin
ece00e5700a1788117e5153e8015f2fe95382e053b1e27e24d5b0d28132c875c tokens_fields/part-00002.columns.safetensors
f37c9b9395ef5f242ce732222f9caa4d69c0f5b759846581fa6ce0dbd9b5c667 tokens_fields/part-00002.idx
6be292ebdd9fc26ef87e270cf685ed1dd302f7f83a2cc3f3212539985f8a8223 tokens_fields/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_fields/tokenizer.json
60ca3ec45dcfb5a102c754a33845bed953cdad0be131b39c84125c120b2bc7e2 tokens_words/manifest.json
573234eac418fa74e54431fce20a18f23d53c4a531bb27d8d57010f00cfd7c89 tokens_words/part-00000.bin
2d24240961c3eb136307223680db3ec5277c01d0c9f2bbb680b5e72919894456 tokens_words/part-00000.columns.safetensors
8ecfd8efb9ffb00352070c6ce5d8d3fbc0e626e4982c5ff0a863d754e3602d72 tokens_words/part-00000.idx
c3ff1cb6bc73d7fc98b090b875b0dde96ae1883911b50a856ed15533c583f370 tokens_words/part-00001.bin
edf9c450dabfe3c1c8ca031b158bfe8cfb261b3f6d8340ba93bcf0a6550ffefb tokens_words/part-00001.columns.safetensors
d53e769de5d15cf68032d0bb768f732a32a79aead3aec77c87d466da72587925 tokens_words/part-00001.idx
33a3e05578f2976c46273d1db0c5daadf83c23b41a118ba73b5c5e8bd44df1eb tokens_words/run.json
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 tokens_words/tokenizer.json
681974cf08e2871d401287c0ad57e3e4226d93acedc33281b777a602aef164a0 varlen/manifest.json
5a4977e9585131adcc3a00491d1f17f662f31a1960cf814b6816f548b25e015f varlen/run.json
c6b9a2e00b5fcd9ebcae4c5a9a510c7823a53e94e815fd86d0b761dc3ac6ecde varlen/shard-00000.safetensors
8f40ed14c69b8b9935768aaca9b282487119260464bfc0f0aca890359ed2b990 varlen/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen/tokenizer.json
00ecdb1c399a52429425f0d437ffce9175e430b35bfef08993e2a687f699ebab varlen_columns/manifest.json
5f1b59e42c2d55821c5c69af3eaabeb1aae8dc9f1bd1492dd6f59d5bc3fb5e2c varlen_columns/run.json
882c13ff64d029f0aced30b6404a53b24a62c693ead6742b75b897b4aa5c24ca varlen_columns/shard-00000.safetensors
6f33bd1de20b3c2f4b53155f06b11f3e3a423e153c6bc34f1db8721687611460 varlen_columns/shard-00001.safetensors
bd320289578c306abe496ab0bac498425b4faa4b0fcef3c377d8cefd518a44e8 varlen_columns/shard-00002.safetensors
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
