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
5619cd44a18efc21d8e73fc827cf0bff8c529af6190ccdf8e5b980115dc59f2d filler/manifest.json
4d911d3fed12e26698c25b590d6ca8425620b544ae3e1cca83e259fa3c68e02d filler/run.json
e517231fb4af105912ffcd69c6538f0cde525931c1cc17fccd59bff4889ee1bb filler/shard-00000.safetensors
35afe9f68fb29ae667450d38c0a53947ccfbd945f5d808c5d6e88871f3aba94a filler/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 filler/tokenizer.json
b294d086dcfd857fc297622970a99dc8bc6a43568d8d84c5af0fc7cd21c2a26d filler_columns/manifest.json
974c2b2d29235b812abda0cfb11726b4441ebef1683a2443139d082b2fb37129 filler_columns/run.json
b366b1cb3eaafb519712b6930acce7d756365b49fd4852a8846bd2b7c90c0978 filler_columns/shard-00000.safetensors
764ef8276151b8d30eea9fd04c2fdaec0cf54d3a92c80c988be56168268b2cd1 filler_columns/shard-00001.safetensors
2eaac2c1595475d6d2152eef1867c86d9f50bd873484b3eb82698c5490de6a61 filler_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 filler_columns/tokenizer.json
3914cc720f3d0454aecaacbfb473753cc950008709f51612be31772659eaec5a input/answers.jsonl
007e026f733d945108a5108c880697d513664ea51858ac61074ce02aa8551d9f input/fields.jsonl
f0877793769040f348faa1ecc99de8895a66cffc7c63db97366289dad422075b input/lines.txt
c0f3e06336f06fca817dffba8db85b8445bc31c4a00c69a939227daf792ccb90 input/records.jsonl
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 input/words.tokenizer.json
5c7b8708eb7551a6fff67bdb846a7da5c9bc97565ec8ba34b0d94660013eeb49 input/words.txt
1822c4f4422606ff057deed54fee60706c999c89eac9e2eec39fbd37f9a9ec20 mixed/manifest.json
2f11969d7c7b7688edc0b435fc95feecbee21d98c0b6ee7d777688496d8a62fa mixed/run.json
eef7c30f580dcd2a0930b462312c1a3af44eb685942171ce5ede8daf6685ed24 mixed/shard-00000.safetensors
78923ea003464340e1e3fc12194447096fc1641a349a19d6b7f13484bc803026 mixed/shard-00001.safetensors
2b9887e59da1473b83c3ac4dd770ac8b01cf670738b0134447aaa574e0db9b5b mixed/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 mixed/tokenizer.json
47def92992d454d2731247a04ebea557b63a860645c4723155ec495a8f63bf12 packed/manifest.json
83d37b8f043097ce838860ae3e322be6da35b5e96bbb9662895ddf008d5dfa35 packed/run.json
64a9ddb65afeb977376a933065b9dd57abe04be5708e7dae5750c52e92bc7b35 packed/shard-00000.safetensors
cc028f2448ff50c7e9875afad68149f860f5eb5c1ef5c6b599697a69355c4490 packed/shard-00001.safetensors
2afaddcfa76037a345a45bcdc09971338f03396139dbbda828fa817cd3e5cf37 packed/shard-00002.safetensors
dbabdd3c98c269c5de87d28d1618174538d81c8f13ad0f9737e03db946a584ff packed/shard-00003.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed/tokenizer.json
60411041e26cb24f8374e7f99f57715b6af2dc17dce63a17d6016c84ae750ec9 packed_columns/manifest.json
0d8be34f303f84221dfcef8bfa1459954bb65e879155d22921b43565a151b09f packed_columns/run.json
97f8d3027aa9293bee83149bcc15110bf8c070321a02680a9ce50eeb37a9527b packed_columns/shard-00000.safetensors
48f6d4a4bf8cf2e368a3fa06e2dc48ff2cded81c7acbbb1b3cd7e0c1fd6496db packed_columns/shard-00001.safetensors
1dfcbe6e04d9567f810cbff415f1227db99fa94fbdc5ab280d61bfeca6e7aad3 packed_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed_columns/tokenizer.json
b7237825efd34c1008defd243a6b78a39fd7b285dc9f0694101acc846de0bb7e padded/manifest.json
7c6bd713199a954cc6d403f5752802632186fe26ec15921b45e27b48c9308e86 padded/run.json
a4c453b208bd2e6320027c30855a1d8e3d4b3ca97cee68557f3f7ffdecddbe6a padded/shard-00000.safetensors
53566a42c4b7c25f5473c9bb0b84098fdd23398f0f4eae5ad6a1f27db402a87b padded/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 padded/tokenizer.json
d12aaf4859206339b41519f8c97c6f75ea46c248cf11edbfa63c7fb29bd7aff9 padded_left/manifest.json
e318ad2c740c67d24b4bb9fa8a91dd975fa92bfe4008fbeb6b632ea8a6b68ec1 padded_left/run.json
419749d50fb27483be94c255a3d971d6246ef71f70ffcba2a11701ee93b6582c padded_left/shard-00000.safetensors
97b3e818f84296b8cdb0fed311bfe82c38a246f67f92de14de3c0ffce40cfbc3 padded_left/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_left/tokenizer.json
b75210d613e641e80cc827323b35b1d3d479239e189c16d0a5c130b3aa14c0df padded_targets/manifest.json
b164d26eb2a26e3594d90564646c85c1b650a7f27cc86b49420a42a8db397410 padded_targets/run.json
f3d07759daf7faa1b059fb1aa8a5011fe4d8b45495c1c59ed1987cceff70f77d padded_targets/shard-00000.safetensors
3db6f51a58e0ec05e18006836988f0cea72dd982d3b003a56380ab8b6b7461fd padded_targets/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_targets/tokenizer.json
c55fe056bf2d88d64370d71a676e9f9cb1050a1e8aefad52c2ec4e7ed456060c splits/manifest.json
75ec78fbc31b86c0f3cab24d970f4c859a747cea4880ec469b114db6d76c88aa splits/run.json
9230bb9f90738cb9ce330ce3dec953820d5beabb6a9b665ebb72b26fb9802a10 splits/test/manifest.json
0982d049c17f9dd8442f867a6ddb394014ea1c759c46d3ebfa19f157ca3cfdd0 splits/test/run.json
43406cdf759c8c12de3e4dc685eb3abac6e19491c7a7e4dec443d4ee5f45b7c6 splits/test/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/test/tokenizer.json
bd5a6fe6cecc4a3dc670b498dc9fe71f30ee153de1a48fa3d92245e3a2173213 splits/train/manifest.json
61cc8a0affebcbe8e5a050e9fee1f52751c0d291e6bb0d6d8795c078d32c9923 splits/train/run.json
c88bf86623f3ef01aef3c8e264775121ac0aabf8ca8ffc3e146d52c6533cdf88 splits/train/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/train/tokenizer.json
d25561d91bd22cc66dda0ea762d6f214a592119f130fdb2abaff144d9b66e48e tokens_bytes/manifest.json
b4aa4ea8fa3bfbe941bb7efc1e627f2f3f1bb35ec3176b0f56d73d9cdafe46b1 tokens_bytes/part-00000.bin
7b8499db58694974e75d1d4ca19b2499af8c2d9b818ed50b0b7f339a993c9e0e tokens_bytes/part-00000.columns.safetensors
bff95ec07187b06c05fb8233a01e7596fb5800069c1ec0565ff14d095bbbe21f tokens_bytes/part-00000.idx
44d80857f393477d6b4e00958690c37732abc1a0e80a942262fdfb3af8488bd9 tokens_bytes/part-00001.bin
9a82c971a4a5701a784596e64e7979180adfbc8cf9e9cf2a75477fe3394458d9 tokens_bytes/part-00001.columns.safetensors
00094060a61e9dfdf64950f41d76bc287b073449fe4e28bc2864a2856e7fb1f3 tokens_bytes/part-00001.idx
4bc1c5219fe284c6bc197016e3bcc219d663e9bd97b96bab78549e510011b327 tokens_bytes/rejects.jsonl
18825dc6dbfa0fe76d13cf946a3583c1ddaf7abfe91fe09b2b9a25228b9f9de1 tokens_bytes/run.json
9b7a58b10cbefe06ba7b2b8e0d0ecec79aee32cf86136cadfacea8514c6eff14 tokens_bytes/special_tokens.jsonl
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_bytes/tokenizer.json
7f9ddca4fb6848a2e34f4443fdd2522572d271b5121767349365f2cb7cf112fc tokens_fields/manifest.json
e6696c2494829d013782f9f9d72f02545a461ffdfc946f7cb61226b89830437d tokens_fields/part-00000.bin
2b1425671d974a9b90f51734c40520e32b2ff6e7a8493ae536c502e74686d56e tokens_fields/part-00000.columns.safetensors
be3441081c1a5c6e9136efc73edeba17a4976d68bbee81fa767bd24af709ea98 tokens_fields/part-00000.idx
36f7f83bdb5514290e5a7b0323c949b7730531d6ca38b0dbf8d75395fe695193 tokens_fields/part-00001.bin
0372bdf61a338a30a02400976c3a673773b7146048b91f60e684e0416596653a tokens_fields/part-00001.columns.safetensors
5c9b604f4460e0172d8742be1ffbdf1be10c012eb9c39d7b206df3559ccfdd3c tokens_fields/part-00001.idx
e03dcf6b84bcf2e0c62c9965ca027c6af7e032ed445411509b06de65640beada tokens_fields/part-00002.bin
ece00e5700a1788117e5153e8015f2fe95382e053b1e27e24d5b0d28132c875c tokens_fields/part-00002.columns.safetensors
f37c9b9395ef5f242ce732222f9caa4d69c0f5b759846581fa6ce0dbd9b5c667 tokens_fields/part-00002.idx
287d79f9159950fb58abe00ce8b4212ba551cf70a291f3a84f2ad7f2432153d5 tokens_fields/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_fields/tokenizer.json
6548e0b287e6b333c637dbd15e43bdaba4dab93f3add9a0fc8adbfd238bb9e5f tokens_targets/manifest.json
92aad386f286fd595f57838b11ebfab62f77b927fe3cb23d735257b2c5cb43f2 tokens_targets/part-00000.bin
99f61184fd777cba78042379763ec0d42da19d80f583e6c7e2ce81ebdf179509 tokens_targets/part-00000.columns.safetensors
b2470352ff4f22b8d7ab58e61489adafb180c5f3a68d7fd5e4bfc555a2874ee9 tokens_targets/part-00000.idx
427485682b63da2c52bfcfae3145bb3843b2458d809254628c9759e44ef4f0df tokens_targets/part-00001.bin
7d163faa801b37d5d3fe34151992fd006c25a98fe6c0af71ba373727e1c8b80e tokens_targets/part-00001.columns.safetensors
4e7de0299d502ff87145ec4233edad6d8d34707d23de20e1417b5544874091db tokens_targets/part-00001.idx
6d366f91f902bbdfeb4ce5eb606a333d9dab5c1b50ac7fd15849d74781e4cdb2 tokens_targets/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_targets/tokenizer.json
c3705bec831545ccfa510e3300e39da5940f1b2b32d5ab47d3adbe9431133001 tokens_words/manifest.json
573234eac418fa74e54431fce20a18f23d53c4a531bb27d8d57010f00cfd7c89 tokens_words/part-00000.bin
2d24240961c3eb136307223680db3ec5277c01d0c9f2bbb680b5e72919894456 tokens_words/part-00000.columns.safetensors
8ecfd8efb9ffb00352070c6ce5d8d3fbc0e626e4982c5ff0a863d754e3602d72 tokens_words/part-00000.idx
c3ff1cb6bc73d7fc98b090b875b0dde96ae1883911b50a856ed15533c583f370 tokens_words/part-00001.bin
edf9c450dabfe3c1c8ca031b158bfe8cfb261b3f6d8340ba93bcf0a6550ffefb tokens_words/part-00001.columns.safetensors
d53e769de5d15cf68032d0bb768f732a32a79aead3aec77c87d466da72587925 tokens_words/part-00001.idx
66fdb8ed306c7bff6d55d0610b11774c9cacda22a3fbab78cbd2e67697f32e94 tokens_words/run.json
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 tokens_words/tokenizer.json
76e43fed8dda861348a7a259204e0683f776756ebe2e70aec32e08b93dd0eaab varlen/manifest.json
6a8abbd64358b4b69149dc8b1bf8e3b26f6db3956c90fc1415af15becdc6dce4 varlen/run.json
56fbf6eb64d44a6e3041e0afc4b7f715c17d94b8cca8d870dc41357450d69502 varlen/shard-00000.safetensors
d943a5a7716bba6a7b1522b06d2a1631e3acbc724cbbbc5f7ec189f810c7ab3b varlen/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen/tokenizer.json
47c013fd0b85e93a67e32793503cc869088df650f32336436a28ae8be8689722 varlen_columns/manifest.json
e70234914a677cf17322e6283d19ec867f6c62dd2cf91ece4c4daf3a173bd8b3 varlen_columns/run.json
f35d62538cb6a2ba80a9af8e5a6cdcba9477ae718d39b036db9cc433934a5b04 varlen_columns/shard-00000.safetensors
9cf7125f4b31f1b596c2eea122f0be6db650ea48ed41bb6cb6c7d5231da495b0 varlen_columns/shard-00001.safetensors
8eb9853b4fd623c104437a7ee48cc25d2e89684b921446b039067355ba5012a2 varlen_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_columns/tokenizer.json
eea7c451927f57ccb5cf5733f78c407685a2b815ff0603bc0110ea3ed392cc73 varlen_targets/manifest.json
5322381741cd1df4f8f61230b3baf36b6cd9307a5536081054e708a12d4a273d varlen_targets/run.json
c1138be4b70f291be36e39b5a8b9d7a1203b221cb355db041692229ec0161d04 varlen_targets/shard-00000.safetensors
d605fd48c0fb1111e0048a9ccb10c9798089287dc791c875afb02b7ba5d5c111 varlen_targets/shard-00001.safetensors
416e81ad8594183693f4810135d0e595a6ccfa0b8cc658d2541f8dad86bd42f2 varlen_targets/shard-00002.safetensors
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
