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
    ANSWERS,
    COMMANDS,
    FIELDS,
    GOLDEN,
    SHARDS,
    SPLITS,
    STORES,
    expect_columns,
    expect_documents,
    expect_targets,
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

MAX_GOLDEN_BYTES = 200_000
WRITES_OTHERWISE = (
    "a changed byte is another format: raise format_version and make golden files of it; "
    "other batches from the same options are another plan: raise PLAN_VERSION too"
)
# Of every file of every version, so that none is edited unseen.
DIGEST = {
    "v7": """
fce58f5702d85d7f964c8f4c784b731bf8d3fd42c7a85fbdede5069d58eac5b4 expected.json
6dcf58d2bac03f8f2e503730fd1dda98122988828b3c255fd5bfdf481963eb7b filler/manifest.json
b89578cdc4be858ebdc33472b8b8ae7dc8da3accd63fa8e980ef74f0e2dd429e filler/run.json
5cbf787dfbf828b57ceec96de1308c4c088a074e090954138276c3f900e4ad4a filler/shard-00000.safetensors
a426d3290baa1dd2ea539dadba2850bfa58022328cadad01c0a7cf62d3f521f0 filler/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 filler/tokenizer.json
1601b6f3ac66671d5ac1e172d18927dc1c6f065afe19494623cf564a991e3a60 filler_columns/manifest.json
121ce8fbe20b50cc36b6770943af01bdd70ef604312d7130c49420193cf2299e filler_columns/run.json
457dd1506f758a488a77e4d07c9ad7e1f9b466c83e749f6f8b0b940fbb77e58d filler_columns/shard-00000.safetensors
a3a9208906f13319a2d1be8771ed1a3817cc8b28529e0bb3976f1d943466198e filler_columns/shard-00001.safetensors
cb7146ad619da7b3851e59fd045840c79a5eb4628904811895ef6ce71f180f99 filler_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 filler_columns/tokenizer.json
3914cc720f3d0454aecaacbfb473753cc950008709f51612be31772659eaec5a input/answers.jsonl
007e026f733d945108a5108c880697d513664ea51858ac61074ce02aa8551d9f input/fields.jsonl
f0877793769040f348faa1ecc99de8895a66cffc7c63db97366289dad422075b input/lines.txt
c0f3e06336f06fca817dffba8db85b8445bc31c4a00c69a939227daf792ccb90 input/records.jsonl
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 input/words.tokenizer.json
5c7b8708eb7551a6fff67bdb846a7da5c9bc97565ec8ba34b0d94660013eeb49 input/words.txt
43f314b0a56df5fc503fb0333008e4c0372155bfebe0af00b6a608d779caca58 mixed/manifest.json
9b11979806a8e953d18230c7609448158ac35ab653a3bef14f74b1ac8689bbb7 mixed/run.json
1c79570cd69b15c71990f2b260ca0e50bc520d0fcbfb79228cabb869852edcb6 mixed/shard-00000.safetensors
5adbcc6fa96359f81b7279ac2e03507ce213f081dedb2439ab0abaa51f849ca5 mixed/shard-00001.safetensors
d98c44d637422fc22d59e014e6f2f6bf1799248b4ebac457e3bce349f52d6400 mixed/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 mixed/tokenizer.json
0963a50c4394ce8ae90e7cbc9587e0973f47d54de630cf47a8b8088728a74939 packed/manifest.json
8bc5d89feea1ecc292d6afb4427ea7b39c02f7e0b3cfe4b7c08ae9cdd7696180 packed/run.json
6b9261e42a91225437ebd1cf21cc83754196bf5541b8f167e95b1aa3261b484c packed/shard-00000.safetensors
537f6d854cf6cf99ba552dcfc6e105f79b5e035338375ea386716af1fde4157a packed/shard-00001.safetensors
cbd63ed502252b14f0fe6246f0f559023adc15730468dce011a4c7666a670aff packed/shard-00002.safetensors
f53eb0d18c056c6aa29a0385908265deef56da57e3a4e4eb1cc06b5ec3d9ad33 packed/shard-00003.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed/tokenizer.json
5d5a03b4ea994146f34d5dce61b0e2bea29a3a6271926856ec16aef5d1429fd4 packed_columns/manifest.json
1a84d643a87b88235ace601951e1166227c9f1a327cfbc4a115b9d058d380b1d packed_columns/run.json
d988eca60a07c446b3e23f3bb1191165be9df7b1d3e0e058016e93e16ab06505 packed_columns/shard-00000.safetensors
4d60cbba0c59eb0c15332b3ccc5b6f0f709eed85f9373714f616c92ead4201c6 packed_columns/shard-00001.safetensors
a2ff135fabff4788380cfe719b61e7ba80fbfe7679f5b7f2846168029e6ddafc packed_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed_columns/tokenizer.json
0e9fa568681dfbe943b338aadcf6f3590bcc1d4b9fa81252267d02a3621f1e82 padded/manifest.json
6003996a942b3b9c19b5115140982e0681e4ef04df49c22104e959e70b1caea8 padded/run.json
0a345e182bb916ca3a4fcc700d020b84edf4612484ef2c305fa31aa173fcd405 padded/shard-00000.safetensors
7d24e05a47d9562765fbdfb0d07d9651dc33763ebb1d30434354e7ba6fbc2736 padded/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 padded/tokenizer.json
f8b990af131e49be5d4c7500010fd40b54a190e37bbeb7c66f02a0ab22456d50 padded_left/manifest.json
e3473484ceca45c1049f93ec5c95ef388c2552bf272a384d598211b53926c352 padded_left/run.json
2fb7bd9a37f5aededffdd39fbb9c87257eb3e5cbc12c98aba3bf1f48b0b23fc8 padded_left/shard-00000.safetensors
4797b4b0d7e229894198fc1fafc2701d30edb2cffc371a039d970738bfe7c041 padded_left/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_left/tokenizer.json
74fe5bc891fa00197cd6926c1407a34849654f74c5da9b5eb05f69f2c1304913 padded_targets/manifest.json
d2f980382b1970ea175f21c255798e1f9338022cac32fe4d249b72f561635724 padded_targets/run.json
4f0cc4e0f0f4b984ccad946e3a219486c1f055a1dc4804da966618d7bb9d9cd9 padded_targets/shard-00000.safetensors
c50b92fa71f01b5caa45be167876888a7f62e2de4b6cc30a5941903019250a89 padded_targets/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_targets/tokenizer.json
ab3c3cbdf8197d14064b0bd90a9f1ae8c5a91900ad518784ff427e5dfeb27db1 splits/manifest.json
0baf3b14029ed7fa63c8d342b4486d5c6b82d7aa4e489edb7be6a04dc99dc3bd splits/run.json
bbdf3ae439523f0e7ce31d480c34d8013c607ac362bf90a6102d888e986866b0 splits/test/manifest.json
9a9e385be0c20dc21dd8e3bd52925df3fb69ec92bd4bdb4c1092431abd19544f splits/test/run.json
6b9ac6061540142007fe07b51220542cfa408882ea5f141f66bab28ad2aec84b splits/test/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/test/tokenizer.json
8feef85faa13bbac8fdd7c42e8fd0a3a42dcd9d6d37e6b6f301a188618cc62e4 splits/train/manifest.json
6eef6057d35a36eeafbace0ad7f1cb3e43604d0d7d0a4c32272577862f331c26 splits/train/run.json
12cd06d967fcf43464a81065a7e63579a97db0b49b79b5ac7df1bdf4198370e8 splits/train/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/train/tokenizer.json
5334d6d1d36ce2c99a3c2a9ef1045ff1a763fe1c54cc8536289ca9cbc2d0fa53 tokens_bytes/manifest.json
b4aa4ea8fa3bfbe941bb7efc1e627f2f3f1bb35ec3176b0f56d73d9cdafe46b1 tokens_bytes/part-00000.bin
7b8499db58694974e75d1d4ca19b2499af8c2d9b818ed50b0b7f339a993c9e0e tokens_bytes/part-00000.columns.safetensors
bff95ec07187b06c05fb8233a01e7596fb5800069c1ec0565ff14d095bbbe21f tokens_bytes/part-00000.idx
44d80857f393477d6b4e00958690c37732abc1a0e80a942262fdfb3af8488bd9 tokens_bytes/part-00001.bin
9a82c971a4a5701a784596e64e7979180adfbc8cf9e9cf2a75477fe3394458d9 tokens_bytes/part-00001.columns.safetensors
00094060a61e9dfdf64950f41d76bc287b073449fe4e28bc2864a2856e7fb1f3 tokens_bytes/part-00001.idx
4bc1c5219fe284c6bc197016e3bcc219d663e9bd97b96bab78549e510011b327 tokens_bytes/rejects.jsonl
9ae59b5628280ef11af562a8332231403934501dbd0b99517036be93a46af0a6 tokens_bytes/run.json
9b7a58b10cbefe06ba7b2b8e0d0ecec79aee32cf86136cadfacea8514c6eff14 tokens_bytes/special_tokens.jsonl
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_bytes/tokenizer.json
f8fbbbde709bba61bad311f1d69feef12e9dfe088f4fb45fdb62d3da0833aada tokens_fields/manifest.json
e6696c2494829d013782f9f9d72f02545a461ffdfc946f7cb61226b89830437d tokens_fields/part-00000.bin
2b1425671d974a9b90f51734c40520e32b2ff6e7a8493ae536c502e74686d56e tokens_fields/part-00000.columns.safetensors
be3441081c1a5c6e9136efc73edeba17a4976d68bbee81fa767bd24af709ea98 tokens_fields/part-00000.idx
36f7f83bdb5514290e5a7b0323c949b7730531d6ca38b0dbf8d75395fe695193 tokens_fields/part-00001.bin
0372bdf61a338a30a02400976c3a673773b7146048b91f60e684e0416596653a tokens_fields/part-00001.columns.safetensors
5c9b604f4460e0172d8742be1ffbdf1be10c012eb9c39d7b206df3559ccfdd3c tokens_fields/part-00001.idx
e03dcf6b84bcf2e0c62c9965ca027c6af7e032ed445411509b06de65640beada tokens_fields/part-00002.bin
ece00e5700a1788117e5153e8015f2fe95382e053b1e27e24d5b0d28132c875c tokens_fields/part-00002.columns.safetensors
f37c9b9395ef5f242ce732222f9caa4d69c0f5b759846581fa6ce0dbd9b5c667 tokens_fields/part-00002.idx
003db948e52415467c74421ecd18853137e08e2f4235558310a55f108df25f8e tokens_fields/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_fields/tokenizer.json
f04f18cc38cf9c630dceb194f1c2e84ba69db44c0925a8c251a09858d3842f94 tokens_targets/manifest.json
92aad386f286fd595f57838b11ebfab62f77b927fe3cb23d735257b2c5cb43f2 tokens_targets/part-00000.bin
99f61184fd777cba78042379763ec0d42da19d80f583e6c7e2ce81ebdf179509 tokens_targets/part-00000.columns.safetensors
b2470352ff4f22b8d7ab58e61489adafb180c5f3a68d7fd5e4bfc555a2874ee9 tokens_targets/part-00000.idx
427485682b63da2c52bfcfae3145bb3843b2458d809254628c9759e44ef4f0df tokens_targets/part-00001.bin
7d163faa801b37d5d3fe34151992fd006c25a98fe6c0af71ba373727e1c8b80e tokens_targets/part-00001.columns.safetensors
4e7de0299d502ff87145ec4233edad6d8d34707d23de20e1417b5544874091db tokens_targets/part-00001.idx
8f1a6ef20ab04cc6a198b5063e5d67f44e4c3ca9149c5c153cb724562cd7b7ca tokens_targets/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_targets/tokenizer.json
6969ffefaf07c8c32c7b8dbf43104fb6e27c62279e8902ce0cbfa831018a26bb tokens_words/manifest.json
573234eac418fa74e54431fce20a18f23d53c4a531bb27d8d57010f00cfd7c89 tokens_words/part-00000.bin
2d24240961c3eb136307223680db3ec5277c01d0c9f2bbb680b5e72919894456 tokens_words/part-00000.columns.safetensors
8ecfd8efb9ffb00352070c6ce5d8d3fbc0e626e4982c5ff0a863d754e3602d72 tokens_words/part-00000.idx
c3ff1cb6bc73d7fc98b090b875b0dde96ae1883911b50a856ed15533c583f370 tokens_words/part-00001.bin
edf9c450dabfe3c1c8ca031b158bfe8cfb261b3f6d8340ba93bcf0a6550ffefb tokens_words/part-00001.columns.safetensors
d53e769de5d15cf68032d0bb768f732a32a79aead3aec77c87d466da72587925 tokens_words/part-00001.idx
4bb7fecbdcbb5735927081a470bf15d5eeffa1d3a29232f3616f2e9e8babbec9 tokens_words/run.json
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 tokens_words/tokenizer.json
5458e689978903167082697b59af6f19dada0442cc78d96eb04b7d61bc0256dc varlen/manifest.json
3440b02f47cc4de236d6c46327b89be450deb45a426fdef1760e109faddec8c7 varlen/run.json
0f0cba17cb64dccfc6fc28872fe512106b3905a3755434a38414f103d51948fe varlen/shard-00000.safetensors
2f095044296c744c4e8c1430ddff30ae1283dcdcca8ae2f24d32ffcc466d784a varlen/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen/tokenizer.json
767677f45be5521f362d5add73e15f0c96589b942ef2b0d83b0f0b0a9be68f8d varlen_columns/manifest.json
986f1c5bd971a1a6491cf2f8e4848056f74aa2059ad1364488da11437d44a0a1 varlen_columns/run.json
8ec552ca46d986dc8d569480cf03b0780a54154b53c86e5293dfd88e826496f7 varlen_columns/shard-00000.safetensors
b266087185891c6d2effce5c843a71bf295cde6189039799b52f934cd5b04e16 varlen_columns/shard-00001.safetensors
c74471443b52605d486e70ad8962dcd74ce71637efb3f18df6102d1d5ef8b173 varlen_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_columns/tokenizer.json
7a1f837ac0352ae7a076afe78c481752a276a3e70575d73768d2f6ac28cd3f81 varlen_targets/manifest.json
a9d78b6528606d87a6ab89913b5722cc8f1017867d469077b9876f5ee0a1c451 varlen_targets/run.json
a8c4a13a6dad8e2ebacb7316a48a358e4836cf3c353cdaa88d190772d1412eb5 varlen_targets/shard-00000.safetensors
43215933d48623a6d55ddd9356d16b77837f4ecccf5ac04f7418307b46d2c691 varlen_targets/shard-00001.safetensors
f833550e05f9bbde9688d46c60fb31a16babeacc9c46e8b948e67730af1dc0dd varlen_targets/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_targets/tokenizer.json
"""  # noqa: E501
}
VERSIONS = sorted(DIGEST)
# Both formats are written into one folder, which has the larger of their versions.
FILTERED = ("packed_columns", "varlen_targets", *SPLITS)
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
    dtypes = [store.dtype for store in stores.values()]
    assert dtypes == ["uint16", "int32", "uint16", "uint16"]
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
    dropped = shards["varlen_targets"].manifest["ledger"]["num_dropped_sequences"]
    assert dropped["no_target"] > 0
    assert shards["varlen_targets"].manifest["ledger"]["num_split_sequences"] > 0
    assert len(shards["padded_targets"].manifest["stores"]) == 2
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
    sequences, stores = expected_sequences(version, *stores_of(name)), stores_of(name)
    kept = [row["index"] for row in rows]
    repeated = [row.get("columns", {}).get("overlap", 0) for row in rows]
    both = list(zip(kept, repeated, strict=True))
    assert [row["ids"] for row in rows] == [sequences[index][start:] for index, start in both]
    if name not in (*FILTERED, "mixed"):
        assert kept == list(range(len(sequences)))
    if stores == ["tokens_fields"]:
        columns = expect_columns()
        assert [row["columns"] for row in rows] == [columns[index] for index in kept]
    if stores == ["tokens_targets"]:
        columns = expect_targets()
        assert repeated == [columns[index]["overlap"] for index in kept]
        assert [row["columns"] for row in rows] == [
            {**columns[index], "targets": columns[index]["targets"][start:]}
            for index, start in both
        ]


def test_golden_columns_are_read() -> None:
    """From each part, and hashes of the texts of all documents."""
    kinds = set()
    canonical = [
        f'{{"completion":"{answer}","prompt":"{question}"}}' for question, answer in ANSWERS
    ]
    for name, texts, expected_columns in (
        ("tokens_fields", [text for text, *_ in FIELDS], expect_columns()),
        ("tokens_targets", canonical, expect_targets()),
    ):
        store = open_store(GOLDEN / LATEST / name)
        numbers = range(len(store.manifest["parts"]))
        hashes = [found for number in numbers for found in store.part_hashes(number).tolist()]
        assert hashes == [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
        for name, column in store.columns.items():
            parts = (column.spell(store.part_column(number, name)) for number in numbers)
            values = [sequence[name] for sequence in expected_columns]
            if column.is_per_token:
                values = [value for entries in values for value in entries]
            assert [value for part in parts for value in part] == values
        kinds |= {column.kind for column in store.columns.values()}
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
