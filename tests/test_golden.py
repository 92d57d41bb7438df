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
    SPLITS,
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
from seqpack_cli.shards.split_manifest import open_splits
from seqpack_cli.tokens import store_manifest
from seqpack_cli.tokens.columns.kinds import KINDS

MAX_GOLDEN_BYTES = 160_000
WRITES_OTHERWISE = (
    "a changed byte is another format: raise format_version and make golden files of it; "
    "other batches from the same options are another plan: raise PLAN_VERSION too"
)
# Of every file of every version, so that none is edited unseen.
DIGEST = {
    "v6": """
3e214993966f9431a0a67fa56814b89a9654fd20501e891f3eaec3fea412386c expected.json
cb6ab5ce654f7c5820538c8a350a0d26cce5148f4c9b4555c06edb1680b31cd4 filler/manifest.json
1247c92274bd047d73a4d149a2c2dd7a213ff3b166bcbd68302b7e987e23f6fd filler/run.json
f9acf0b07fbd3c3e279a6fbe9844c808fa97af7350d70296f887ac9a2400457d filler/shard-00000.safetensors
7bb8ef247b47a709b1bbe995c30fdad96d650ddbd45138a19043c40ff04244c5 filler/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 filler/tokenizer.json
66e9a36467e6cc354a13e7bfae4f0c4d99dae74ea30456f7e364acd5fbb1324c filler_columns/manifest.json
2aa81e1854cd44a225f4eb6902a2272ed89c3bf1059164d01cbe6e2f691b24e8 filler_columns/run.json
cc1d3d52778ac694692b265f03b310e927b89da0231e0252ab4005f7e069edd3 filler_columns/shard-00000.safetensors
6896c55537c20c4672dc20d4b9270f281b5943b2db282d7fce9558f5a1047a63 filler_columns/shard-00001.safetensors
5a44c39bf297a7a4b0696634e8a5bfb08c6a8b83569e4a2b315e369b95641823 filler_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 filler_columns/tokenizer.json
007e026f733d945108a5108c880697d513664ea51858ac61074ce02aa8551d9f input/fields.jsonl
f0877793769040f348faa1ecc99de8895a66cffc7c63db97366289dad422075b input/lines.txt
c0f3e06336f06fca817dffba8db85b8445bc31c4a00c69a939227daf792ccb90 input/records.jsonl
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 input/words.tokenizer.json
5c7b8708eb7551a6fff67bdb846a7da5c9bc97565ec8ba34b0d94660013eeb49 input/words.txt
4e2088c1423e793193081042763b52f45300f5e25e384ac21d6ef80cdddab0fe mixed/manifest.json
f417467b7e2e10d27f165b27cef6e77ec0bf65eadb1b27323d0f56223716b2a8 mixed/run.json
42ebedc91ee1ad1b48a0e70d13fc2d4dae7bb784198cfa2ab625bbd50ae8f2bc mixed/shard-00000.safetensors
59e5214db6d60f337cc28244c6b3562407e4c7590f958200b1100c3ae0beeca1 mixed/shard-00001.safetensors
9809deae0bf1163ab99238cce034d19a30261f464654694de6eac6ccc06d6aa5 mixed/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 mixed/tokenizer.json
ed56c827d380453f6b586e121487e2d77d663ab4556730dc31dc3e864a4377f4 packed/manifest.json
a2807b5f99c23638190869ad410961621e76f24ef3c0494271d666c91f55a719 packed/run.json
6faf6310d87ba72ffef1b5e0e968081ad23c2cbc4ceef4287add943d0d07adf6 packed/shard-00000.safetensors
b3cc7d8d81259f7f6cd8e6a4288888630457d4e1ffe4d3f9104c8392e8d93087 packed/shard-00001.safetensors
a736c08cf1f625de0ddfc675c0216c6789e063d0145ff9f11a21aab0ef09a22a packed/shard-00002.safetensors
49f6578bf6b7505a880c44e652d8abd98e6f754b8d7d409b8a7bf5459bba55d8 packed/shard-00003.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed/tokenizer.json
bbf29091fd25e41694454c7f312d38e228daf8d7fe089f383db39ee028fd63ff packed_columns/manifest.json
08b43ab7b64188cc716595668dca0c88baa20bc70cea6f6a16d971603c13298a packed_columns/run.json
a2612d2b9634e806f7e8854780fe0f0ce1322d5d50b8694090f30d582ea0b7e3 packed_columns/shard-00000.safetensors
594eddd5240a7d53362d770e0393e60a141ca99d0059cb28d757095de7dd3b6b packed_columns/shard-00001.safetensors
c438a3aec19a0b4d7727509000a25b5f89388331246e1a9111c714ec77893cc5 packed_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed_columns/tokenizer.json
2be124e2526e2d360c106cebb4f800ed165a02cbaac86208f227b76a26372a44 padded/manifest.json
33e40a65b9124729163cfe451278286fa6478f548434fdc0543a234986a18fe2 padded/run.json
d46289c729af998412c585b39f556208db019754e6f13c3fa09690f6ed92f792 padded/shard-00000.safetensors
4608f797b39d44d60cf2a915bfbcb7acec16698bfcd45979faa2202c54055a2e padded/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 padded/tokenizer.json
44898bd167ce7d70fec4b9127dae4d8e8b9315f97bd1040974c08d6ea0233116 padded_left/manifest.json
10145ba5761865b1f416ab44379475fabc7d0102f5a697121dfbc5a4c3629361 padded_left/run.json
91b1049611d9f853acb36531062ff0e60174f8bf88fece64492774899a1f8067 padded_left/shard-00000.safetensors
8aac2ad6f935c3ee3336c080caa1db3d3ca97f87fe9365325a67d17f98b4689a padded_left/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_left/tokenizer.json
969e3db8a4f45589b272ea19ae13408244854fe58a15af5b53e2dd63fd6c2d82 splits/manifest.json
61a5e7ee845acd250dc49ccafb46a898d1b492a9cc3ad3126113faeb8876b5cc splits/run.json
3e97e37484ce5d72a1e5412df8b0f9b1ed817c7f737126e8f762c7149c9b2260 splits/test/manifest.json
52f89d02c6a41a5def670ffb7985e1daee51cf969da3de29c916b11333ec96db splits/test/run.json
0941a3996bf31d79bc69a962f9623547ba41271226e29ed62b6392b452722916 splits/test/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/test/tokenizer.json
f055ef043aeae1d912b6d45b8b0eeb2a6d275e0d3b53c3d9e1c217aa443f7f14 splits/train/manifest.json
b3b6255b897d59ee70b3651ab9de18827cf0c07ab4a5bbbc1faa648b6e125d2b splits/train/run.json
0443dee5ae4d51a2ff9db2c44c3a891e6d7c9c7f68464184942f6be7cb9bda89 splits/train/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/train/tokenizer.json
019e76a879273090002dd76a57ed3205082be732896b9495d449df96054a5978 tokens_bytes/manifest.json
b4aa4ea8fa3bfbe941bb7efc1e627f2f3f1bb35ec3176b0f56d73d9cdafe46b1 tokens_bytes/part-00000.bin
7b8499db58694974e75d1d4ca19b2499af8c2d9b818ed50b0b7f339a993c9e0e tokens_bytes/part-00000.columns.safetensors
bff95ec07187b06c05fb8233a01e7596fb5800069c1ec0565ff14d095bbbe21f tokens_bytes/part-00000.idx
44d80857f393477d6b4e00958690c37732abc1a0e80a942262fdfb3af8488bd9 tokens_bytes/part-00001.bin
9a82c971a4a5701a784596e64e7979180adfbc8cf9e9cf2a75477fe3394458d9 tokens_bytes/part-00001.columns.safetensors
00094060a61e9dfdf64950f41d76bc287b073449fe4e28bc2864a2856e7fb1f3 tokens_bytes/part-00001.idx
4bc1c5219fe284c6bc197016e3bcc219d663e9bd97b96bab78549e510011b327 tokens_bytes/rejects.jsonl
9a95460db45d665d25ba52d363b91ae242b12c60c73f7c17b0b71af2dbf4efd0 tokens_bytes/run.json
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
f4c4955ac670693e740e2f52fdc58e86dbc11c31b966da81727e2b71cd32dbdd tokens_fields/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_fields/tokenizer.json
60ca3ec45dcfb5a102c754a33845bed953cdad0be131b39c84125c120b2bc7e2 tokens_words/manifest.json
573234eac418fa74e54431fce20a18f23d53c4a531bb27d8d57010f00cfd7c89 tokens_words/part-00000.bin
2d24240961c3eb136307223680db3ec5277c01d0c9f2bbb680b5e72919894456 tokens_words/part-00000.columns.safetensors
8ecfd8efb9ffb00352070c6ce5d8d3fbc0e626e4982c5ff0a863d754e3602d72 tokens_words/part-00000.idx
c3ff1cb6bc73d7fc98b090b875b0dde96ae1883911b50a856ed15533c583f370 tokens_words/part-00001.bin
edf9c450dabfe3c1c8ca031b158bfe8cfb261b3f6d8340ba93bcf0a6550ffefb tokens_words/part-00001.columns.safetensors
d53e769de5d15cf68032d0bb768f732a32a79aead3aec77c87d466da72587925 tokens_words/part-00001.idx
47ee0658691a2b08cfde835f8e16e8d2fb90f2d442ae6d7190777aba5cd99fe4 tokens_words/run.json
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 tokens_words/tokenizer.json
f041936d05ca6cb225fd6e487b34085320f3556234f850dd361859e732e1c124 varlen/manifest.json
861e2faf2194c46bdfc94bc87d77902131dbe7f7df1ada36c46923951cf40155 varlen/run.json
fe8b00c1a773682c1f4d21f94a1cb83527ca82d6bf9a7f28d2f670cdc0d4777a varlen/shard-00000.safetensors
e3138282b145ef38c952881751e3affebcadbb5f1f37e5f2bfa742c570cfa070 varlen/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen/tokenizer.json
953b62d4bb86864b3272d09d7a990b3cd3a649f504efa70eaf71f8447c6349fa varlen_columns/manifest.json
60c55bdd094eb6d543100734987f4b9182ed7e943a486dbc0f7018f82f1cb22c varlen_columns/run.json
640d6fbf1f02fd7dc8bed10bd09675124173222d715eedb8fbb12306bd2d61cd varlen_columns/shard-00000.safetensors
0b995850bca85ec5b5e2dc56b48e26af9f273c81f6a95bab0b982fff52b69b68 varlen_columns/shard-00001.safetensors
803534f4383a977ab18d9afb60cc0359b84be1f864903e6383ad519516ef7a3b varlen_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_columns/tokenizer.json
"""  # noqa: E501
}
VERSIONS = sorted(DIGEST)
# Both formats are written into one folder, which has the larger of their versions.
FILTERED = ("packed_columns", *SPLITS)
LATEST = f"v{max(store_manifest.FORMAT_VERSION, shard_manifest.FORMAT_VERSION)}"
ALL_STORES = [(version, name) for version in VERSIONS for name in STORES]
ALL_SHARDS = [(version, name) for version in VERSIONS for name in SHARDS]


def expected(version: str, name: str) -> Any:
    """Return what a golden store or golden shards must hold."""
    return json.loads((GOLDEN / version / "expected.json").read_bytes())[name]


def expected_sequences(version: str, *stores: str) -> list[list[int]]:
    return [ids for store in stores for pieces in expected(version, store) for ids in pieces]


def stores_of(name: str) -> list[str]:
    return [word for word in COMMANDS[name.split("/")[0]].split() if word in STORES]


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
    assert all(shards[name].num_shards >= 2 for name in SHARDS if name not in SPLITS)
    assert shards["padded_left"].manifest["padding_side"] == "left"
    assert shards["padded_left"].manifest["bucket_keys"] == [12, 24, 40]
    assert shards["filler"].manifest["ledger"]["num_filler_rows"] == 2
    assert shards["varlen"].manifest["ledger"]["num_split_sequences"] == 3
    assert shards["filler_columns"].manifest["ledger"]["num_filler_rows"] > 0
    assert shards["varlen_columns"].manifest["ledger"]["num_split_sequences"] > 0
    assert shards["mixed"].manifest["ledger"]["num_repeated_sequences"] > 0
    assert [*shards["mixed"].columns] == ["store"]
    assert [*open_splits(GOLDEN / LATEST / "splits").splits] == ["train", "test"]
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
            assert pieces.get((index, start), ids) == ids or index < 0
            assert (index, start) not in pieces or index < 0 or name == "mixed"
            assert bool(ids) == (index >= 0)
            pieces[index, start] = ids
    sequences = expected_sequences(version, *stores_of(name))
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
    index = 1 if name in STORES else expected(version, name)[0]["rows"][0][0]
    row = json.loads(run("inspect", folder, "--sequence", index, "--json").stdout)
    stores = [name] if name in STORES else stores_of(name)
    assert row["ids"] == expected_sequences(version, *stores)[index]


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
    sequences = expected_sequences(version, *stores_of(name))
    kept = [row["index"] for row in rows]
    assert [row["ids"] for row in rows] == [sequences[index] for index in kept]
    if name not in (*FILTERED, "mixed"):
        assert kept == list(range(len(sequences)))
    if stores_of(name) == ["tokens_fields"]:
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
    manifests = [path / "splits" / "manifest.json" for path in (tmp_path, GOLDEN / LATEST)]
    assert manifests[0].read_bytes() == manifests[1].read_bytes()
    for name in (*STORES, *SHARDS):
        found, golden = read_folder(tmp_path / name), read_folder(GOLDEN / LATEST / name)
        assert sorted(found) == sorted(golden), f"{name}: {WRITES_OTHERWISE}"
        for file, data in golden.items():
            assert found[file] == data, f"{name}/{file}: {WRITES_OTHERWISE}"


def test_input_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    write_input(tmp_path / "input")
    for version in VERSIONS:
        assert read_folder(tmp_path / "input") == read_folder(GOLDEN / version / "input")
