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
    LINKS,
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
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.shards import shard_manifest
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.split_manifest import open_splits
from seqpack_cli.tokens import store_manifest
from seqpack_cli.tokens.columns.kinds import KINDS

MAX_GOLDEN_BYTES = 230_000
WRITES_OTHERWISE = (
    "a changed byte is another format: raise format_version and make golden files of it; "
    "other batches from the same options are another plan: raise PLAN_VERSION too"
)
# Of every file of every version, so that none is edited unseen.
DIGEST = {
    "v8": """
fce58f5702d85d7f964c8f4c784b731bf8d3fd42c7a85fbdede5069d58eac5b4 expected.json
d4a93fc28f1abe241d22b5ae1f76d6fc1537faa39a90b1deadbc563e3ca1e7ef filler/manifest.json
d57275187f646a3f2ca6c8cb28db4000e197d48ac10b800dcc0189e0fbbcb0ab filler/run.json
948250f0dc53c9ec3a07e5bfc33fefb10fd0933111965872e19116136420ff58 filler/shard-00000.safetensors
fd2de0060293a52e6148321db9387098eb6ebdf7c381444846751d7010483439 filler/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 filler/tokenizer.json
103732064d6740f9f5cdd10281852de84f5e5722fc326d9f8dcc488b0a1fa264 filler_columns/manifest.json
7703d04bb06305a5e38f4968bc477a2d3478b599c37538042bf52406df1bd601 filler_columns/run.json
32ad30053126102f092363f49619e7fe78397a4aa7c2c32fb32f6ef4e84ab859 filler_columns/shard-00000.safetensors
6251f764deefc31f6f366bfd7fa340c28ba76e6b8e3ceeb7f0b7a75b8df17ac5 filler_columns/shard-00001.safetensors
91f4a40625e7d883117acd56738b4abe4dc060c54d4d40102bb2c0f3728f9f71 filler_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 filler_columns/tokenizer.json
3914cc720f3d0454aecaacbfb473753cc950008709f51612be31772659eaec5a input/answers.jsonl
007e026f733d945108a5108c880697d513664ea51858ac61074ce02aa8551d9f input/fields.jsonl
f0877793769040f348faa1ecc99de8895a66cffc7c63db97366289dad422075b input/lines.txt
c0f3e06336f06fca817dffba8db85b8445bc31c4a00c69a939227daf792ccb90 input/records.jsonl
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 input/words.tokenizer.json
5c7b8708eb7551a6fff67bdb846a7da5c9bc97565ec8ba34b0d94660013eeb49 input/words.txt
29fc84296e51038c59f79c64b92e0e46e802f4814c3458881455a2a6e5ae97ab mixed/manifest.json
51fcf9d86a25ee3848f01bda42ea8d206e2afd2fb96819b97ed66b8139342a51 mixed/run.json
2102cb2cb6fc340e291d4dc56367d0e954842ab03ae9a6de3da9ddd45d2acbac mixed/shard-00000.safetensors
d730e3c817b586070e2c76b06135a89f2636d79412459a52d2a68817119dab6d mixed/shard-00001.safetensors
2f4f398881dfee50da3af02b2dc0e57e1d7b1f76ebb64ea67bb2fa162e2e403e mixed/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 mixed/tokenizer.json
105fabab9bcca3afa9503a56fe17344409c734d5a2b249ac936779d7136643de packed/manifest.json
32e889fe64ffc3a632732cdf720221f133c34692ec5ed4f6e4da1c0306e965b4 packed/run.json
94475c81934c515e2431e2642862ad4628b57e45465f6ca5c3412676e38069f6 packed/shard-00000.safetensors
ff64acc7dc564eca98d838f8d208b2462ef99f0bba4f32ae43cf59f662afaace packed/shard-00001.safetensors
dbd93bed8d751e30d613fc262026b18a53fcd1b49a8a8cd448d0da29d77c9dfc packed/shard-00002.safetensors
122d3cdfc5e4072abef92224688340b6c81db2b25f0853400ac7f51d318844a4 packed/shard-00003.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed/tokenizer.json
03dab5bf1d3a9783ef602db27dbc1545a3c1d986d585be082e5f59539c67d7d4 packed_columns/manifest.json
45553c4cef061efed77ef65d7fbb3d292879ec3bb60ee4de24bea605f28de59f packed_columns/run.json
a0abfdef2a7535776c2a394bb7ddc25bb5785854b81770679efbd5e1df8c974b packed_columns/shard-00000.safetensors
d0d97cd4128c09e6b2e1a3c32fed9d3564e322de3fab53e8f11c6b5591ee049e packed_columns/shard-00001.safetensors
25b8d977192db139461500ab00ee35143a3940c7c015e14af3ba8b3cad372e16 packed_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed_columns/tokenizer.json
4f7a1bba0be9a2c86b635857fdac5575a35ecb6a38258259dc4be821fec1438b padded/manifest.json
647c87284d627d9b642c26162a8748c4051db16d8aeca4f2e24508986865ea8b padded/run.json
f0ea77291883dc4c6ab58dd64b9f4a3cbf095feb1ab7f205a913285f30b86be3 padded/shard-00000.safetensors
1abe8fb698e3bb07f9d07dfde4168bd9077f1388f9d12f68e812be13043c5821 padded/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 padded/tokenizer.json
838eddd001a87a05d8108cfabd7e89f7fe09f10a09706a7fa4244e6db9f41470 padded_left/manifest.json
d6a283fe72abb0da6adfa0718c3c5c09471afa758700784c5ca7e138e9bb32f4 padded_left/run.json
5a6a2bb6bead0dc867a5add45c3680d918b51d0d9b4e6d6ad42bf6e0570cf22c padded_left/shard-00000.safetensors
7b93ace0fb1841950652d3feac29cb230fc450b0625561b5cdb2796ef83b24e4 padded_left/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_left/tokenizer.json
edfd6006028e5439a13ca2e95c74ba7625d250ac04177d84058826fb49a95b51 padded_targets/manifest.json
c393ed1726d7c8e59e7f6fe8cf2344df0e03dac4cfea3a6eb8e9bd67fe3efbdd padded_targets/run.json
a13849b066521f11cafe50a444b01fa3c3e8e516681dc86c9c53966d566335ff padded_targets/shard-00000.safetensors
e3d381da1bc5a345d7215d8f4dca9a2c934aef9081c566e9e4ef4b8e8288a117 padded_targets/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_targets/tokenizer.json
03bb5bea78fbd441bd00d4c3c17dbdec62765c8b7ab226a6c2a8ef67fdb4ea24 splits/manifest.json
c937d00ac94c9a47e9c651ab40d7ca153505d93a59216c3ee6203ee25fdd0895 splits/run.json
a847276c63bec7be2528739ba22bf38c578d12a9f52fc05d45630d8cbbd8eafb splits/test/manifest.json
c1be7063aa08dba5eb9a8058441dcd34ee26b7a8a149d37bd97b57a0cd090774 splits/test/run.json
2e3bb92cfbc22f3e4eaf6d77fcd000889d26359228a1026f7edb8fcbc1742ffc splits/test/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/test/tokenizer.json
4bb30248f8aacc71bfbdc83f1f9abd069dc3ba5bf5f3f98d91f7e12b33227321 splits/train/manifest.json
da3c1606784f5a8f34fb9626c8fc93372ad79e04f09d4857ee78ff2cef574ac0 splits/train/run.json
1e0f7e0807bdef4968f562576b9f3f9fbf1c2d3273994b76027eb5a5809b38df splits/train/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/train/tokenizer.json
b8f491020f8446d7bf636f40014568008c70ec7c66022a6081a9671f52c7a76c tokens_bytes/manifest.json
b4aa4ea8fa3bfbe941bb7efc1e627f2f3f1bb35ec3176b0f56d73d9cdafe46b1 tokens_bytes/part-00000.bin
7b8499db58694974e75d1d4ca19b2499af8c2d9b818ed50b0b7f339a993c9e0e tokens_bytes/part-00000.columns.safetensors
bff95ec07187b06c05fb8233a01e7596fb5800069c1ec0565ff14d095bbbe21f tokens_bytes/part-00000.idx
44d80857f393477d6b4e00958690c37732abc1a0e80a942262fdfb3af8488bd9 tokens_bytes/part-00001.bin
9a82c971a4a5701a784596e64e7979180adfbc8cf9e9cf2a75477fe3394458d9 tokens_bytes/part-00001.columns.safetensors
00094060a61e9dfdf64950f41d76bc287b073449fe4e28bc2864a2856e7fb1f3 tokens_bytes/part-00001.idx
4bc1c5219fe284c6bc197016e3bcc219d663e9bd97b96bab78549e510011b327 tokens_bytes/rejects.jsonl
944701b828fe43f3526f519cdc3b483aa0557ff1b1b95401c1bdbbefe252ea59 tokens_bytes/run.json
9b7a58b10cbefe06ba7b2b8e0d0ecec79aee32cf86136cadfacea8514c6eff14 tokens_bytes/special_tokens.jsonl
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_bytes/tokenizer.json
ef5a3ead2eb7e74284702d091f000ec3d42cb792d5d171a8209daa3537a96225 tokens_fields/manifest.json
e6696c2494829d013782f9f9d72f02545a461ffdfc946f7cb61226b89830437d tokens_fields/part-00000.bin
2b1425671d974a9b90f51734c40520e32b2ff6e7a8493ae536c502e74686d56e tokens_fields/part-00000.columns.safetensors
be3441081c1a5c6e9136efc73edeba17a4976d68bbee81fa767bd24af709ea98 tokens_fields/part-00000.idx
36f7f83bdb5514290e5a7b0323c949b7730531d6ca38b0dbf8d75395fe695193 tokens_fields/part-00001.bin
0372bdf61a338a30a02400976c3a673773b7146048b91f60e684e0416596653a tokens_fields/part-00001.columns.safetensors
5c9b604f4460e0172d8742be1ffbdf1be10c012eb9c39d7b206df3559ccfdd3c tokens_fields/part-00001.idx
e03dcf6b84bcf2e0c62c9965ca027c6af7e032ed445411509b06de65640beada tokens_fields/part-00002.bin
ece00e5700a1788117e5153e8015f2fe95382e053b1e27e24d5b0d28132c875c tokens_fields/part-00002.columns.safetensors
f37c9b9395ef5f242ce732222f9caa4d69c0f5b759846581fa6ce0dbd9b5c667 tokens_fields/part-00002.idx
05a107f62b38a15a2ae553bee24a49bf9740f3f35245f443a681d0c15951ae56 tokens_fields/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_fields/tokenizer.json
1e8f7c5298a25df3aa83af75e11006c2f83eb166721bbcbd77ed75cfbb99aa64 tokens_targets/manifest.json
92aad386f286fd595f57838b11ebfab62f77b927fe3cb23d735257b2c5cb43f2 tokens_targets/part-00000.bin
99f61184fd777cba78042379763ec0d42da19d80f583e6c7e2ce81ebdf179509 tokens_targets/part-00000.columns.safetensors
b2470352ff4f22b8d7ab58e61489adafb180c5f3a68d7fd5e4bfc555a2874ee9 tokens_targets/part-00000.idx
427485682b63da2c52bfcfae3145bb3843b2458d809254628c9759e44ef4f0df tokens_targets/part-00001.bin
7d163faa801b37d5d3fe34151992fd006c25a98fe6c0af71ba373727e1c8b80e tokens_targets/part-00001.columns.safetensors
4e7de0299d502ff87145ec4233edad6d8d34707d23de20e1417b5544874091db tokens_targets/part-00001.idx
2e67d74b2f3ba7ca9a977a4527f9851e8291aa8496f3cdf199ad8390255a004c tokens_targets/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_targets/tokenizer.json
3e7251f10078e15646285c62c2013e52a1c4a4e1d76f26bc26ec5c503140b42e tokens_words/manifest.json
573234eac418fa74e54431fce20a18f23d53c4a531bb27d8d57010f00cfd7c89 tokens_words/part-00000.bin
2d24240961c3eb136307223680db3ec5277c01d0c9f2bbb680b5e72919894456 tokens_words/part-00000.columns.safetensors
8ecfd8efb9ffb00352070c6ce5d8d3fbc0e626e4982c5ff0a863d754e3602d72 tokens_words/part-00000.idx
c3ff1cb6bc73d7fc98b090b875b0dde96ae1883911b50a856ed15533c583f370 tokens_words/part-00001.bin
edf9c450dabfe3c1c8ca031b158bfe8cfb261b3f6d8340ba93bcf0a6550ffefb tokens_words/part-00001.columns.safetensors
d53e769de5d15cf68032d0bb768f732a32a79aead3aec77c87d466da72587925 tokens_words/part-00001.idx
09faf6f868197fbab0be7f0535ff53bc4901642a4e6e854720d2fbc1b3861c5c tokens_words/run.json
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 tokens_words/tokenizer.json
a00b89e7d8b714f5c17f3f48e193612ee9c22f20030829bb09a4c8ea5e13cad5 varlen/manifest.json
8be799281a388f9458ba5987c7cc0c3caf820a48f405e9be6c899e82c397962d varlen/run.json
653887fa8b37644accacee6747562629b23f0475e80d75578f13cb29f8c823b0 varlen/shard-00000.safetensors
7e66ac10b3350a5d922b9296d9183cd1221457bcfe0d5bdd98b44d47df76f0dc varlen/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen/tokenizer.json
7612f52085daf9831ade4785c4cf22663081a39101eb8baa43fe811b831d3f81 varlen_columns/manifest.json
23113a910cc81de30489ac96600c9dcd2a80d1668ec11a4cc5c23684ff923412 varlen_columns/run.json
7995f93f3d512ca5cd37ad9b1250d49a02ff5353eb1a638cd0a356f3c27aa68c varlen_columns/shard-00000.safetensors
5d5a700c1347ddc166baa6266226a06dd48f06f6239d03169d5767d1e34834ce varlen_columns/shard-00001.safetensors
9424f83976d62fd6d337d3f6970685b66be61f692546ca6eda97b9f61859f6da varlen_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_columns/tokenizer.json
d025d8822ac6a2608c6f76a354d93efcde8ef1215d190f0581085171a5c5ec8a varlen_targets/manifest.json
acba63d82bc19aad977be78822c7fd747a3a11c10827811a61c89a1c51138e00 varlen_targets/run.json
063962e9b0eaa76086c22056e24889f61eaf6f6f8db486df84d312849698e73b varlen_targets/shard-00000.safetensors
e168688a34e85001f5e51ab2ac8700dc7ffc5afc794797952262b88b92683c93 varlen_targets/shard-00001.safetensors
f660d5f811f048a9288a9ced284d6a4a26777f57ffd099f0ac3e2370fccf1d65 varlen_targets/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_targets/tokenizer.json
"""  # noqa: E501
}
VERSIONS = sorted(DIGEST)
# Both formats are written into one folder, which has the larger of their versions.
FILTERED = ("packed_columns", "varlen_targets", "streams", *SPLITS)
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
    assert {opened.layout for opened in shards.values()} == {*LAYOUTS}
    assert all(shards[name].num_shards >= 2 for name in SHARDS if name not in SPLITS)
    assert shards["padded_left"].manifest["padding_side"] == "left"
    assert shards["padded_left"].manifest["bucket_keys"] == [12, 24, 40]
    assert shards["filler"].manifest["ledger"]["num_filler_rows"] == 2
    assert shards["varlen"].manifest["ledger"]["num_split_sequences"] == 3
    assert shards["filler_columns"].manifest["ledger"]["num_filler_rows"] > 0
    assert shards["varlen_columns"].manifest["ledger"]["num_split_sequences"] > 0
    assert shards["mixed"].manifest["ledger"]["num_repeated_sequences"] > 0
    assert [*shards["mixed"].columns] == ["store"]
    for name in ("aligned_rows", "chunks", "streams"):
        assert shards[name].manifest["ledger"]["num_padding_cells"] > 0
    assert expected(LATEST, "aligned_rows")[-1]["row_indices"][-1] == 0  # a row of padding
    links = [batch for batch in expected(LATEST, "streams") if 0 in batch["resets"]]
    assert any(-1 not in batch["next_ids"] or {*batch["next_ids"]} - {-1} for batch in links)
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
                **_list_links(batch),
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


def _list_links(batch: Any) -> dict[str, list[int]]:
    links = {name: getattr(batch, name, None) for name in LINKS}
    return {name: array.tolist() for name, array in links.items() if array is not None}


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
