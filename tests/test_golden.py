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
    "v9": """
982e76c74818b7ea1dfb79087bde057298be667d35cfd37a39f5b8d45d0f841d aligned_rows/manifest.json
e694eec6d390e13afddc4766ca0c64c5353b0a98f469d8af5fb36bfb7ed23209 aligned_rows/run.json
6a3bb979626c3989f4936b2e95359efd8fa0507fbb6911a724d88d2ceecfa65b aligned_rows/shard-00000.safetensors
0454f20cba32ffb14416fd9e4acde0f0c3e62395af8df4eb7c0ba26b362d6896 aligned_rows/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 aligned_rows/tokenizer.json
176ecd2c3a648e15b1da370c1411183c8047c035084db0e7a3b6a721991f1b0d chunks/manifest.json
28569f1845639316013231a2dc8dc541f6a74eb74b25d59b53b512596cdb282c chunks/run.json
0b230023ef19440fed90a5aa904fe708c666c508357ae896531c7739f18225be chunks/shard-00000.safetensors
3fda96adfb95cd186560e65968be9410cc05314989c9ff0837e2b15f2b251ea7 chunks/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 chunks/tokenizer.json
ad5abad6cf45927c463081ae02fe656741a42ccf1ef6599e9a1b485e6f2fac53 expected.json
d2c70a174343877f71406c87d8058d9b1acb6021ed4353036a2c0a398d86abce filler/manifest.json
75444faf8edb5c6885367b9578032b554bef5e557f663d36b57a19e1a12b5977 filler/run.json
448001feb06b41eb347b334069010d3f6104414b7641eea43735f6e56e7bd366 filler/shard-00000.safetensors
fed738daccb2ed498277f2bfefc2bde155c5df0b7dc250a2440fa99a25e83712 filler/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 filler/tokenizer.json
90005c0df2a0ecae1bf1af5397b066f0b51793b62f89fcd23e3ead6936dd865d filler_columns/manifest.json
5e34a9ad1248c1477a785a4fd4fa3a0d71a78710b5d192dfeda4a048be083bf5 filler_columns/run.json
3bf16db73bfa06a99ee5c026f574f088cdfbf7d416333961f477bb523885d598 filler_columns/shard-00000.safetensors
7b2864695b7d5b18177cec306f6e3e77ec9681edd106a18d708532ef8bd8c2c3 filler_columns/shard-00001.safetensors
37da5b95c2f18aa1069ee6eb81fa473c8ab8dcfbe2e57805cec5f59f78847950 filler_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 filler_columns/tokenizer.json
3914cc720f3d0454aecaacbfb473753cc950008709f51612be31772659eaec5a input/answers.jsonl
007e026f733d945108a5108c880697d513664ea51858ac61074ce02aa8551d9f input/fields.jsonl
f0877793769040f348faa1ecc99de8895a66cffc7c63db97366289dad422075b input/lines.txt
c0f3e06336f06fca817dffba8db85b8445bc31c4a00c69a939227daf792ccb90 input/records.jsonl
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 input/words.tokenizer.json
5c7b8708eb7551a6fff67bdb846a7da5c9bc97565ec8ba34b0d94660013eeb49 input/words.txt
659a8e49eb13eb1208b1c7b35113f1aa4202660ea94f6501e037d4ff58da1695 mixed/manifest.json
ba180a0cc0ee22024f8b8793d959215ddd31baf6f654528974a250690c2a8b58 mixed/run.json
51b5d2e40c938aa69b9a32dbdbc8194518dbbeb1f3632af2a301fe1f7580b645 mixed/shard-00000.safetensors
836ef99466ccde96b811d53033ece34f54eba5f2b1a010510a607a6451a5b452 mixed/shard-00001.safetensors
ecff9c821413ca7938e7e0955c216a55905010b081dc20a8d0822c6e78b51e46 mixed/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 mixed/tokenizer.json
fe2afeb7d6e0d20a01d1f8acbe6bc0aa966967fbf31388e40d133bdf569372e1 packed/manifest.json
bcfc42bb2d3cef3375e94623a39916b960e94a859d12812f1108769b63d75801 packed/run.json
fcb410053a70505d200d9f22f574cb4a1311a63e41ce250cb4ebf30a98613b77 packed/shard-00000.safetensors
70e6cd34300f9964a56ff3b09d1a9002f1c934958dc5bcd6eed600947ffdfce1 packed/shard-00001.safetensors
d12e5ab158739568d572dfe922053b1f55234cc2e3556b6138ca1d540dad28e2 packed/shard-00002.safetensors
c01f78f7c2e405a7edbdc9611c49363b5860dc8c63fb8bd66eb8d7f09a0bdd10 packed/shard-00003.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed/tokenizer.json
0ef94b26fd7fcb9c4fbab4e89ebf740229eb17ad7e3ffedd1335fa195ed69f3b packed_columns/manifest.json
19abbf90ada148a2b02f343d7126fcab4adcf035c0280ae3e017d85faa773b1a packed_columns/run.json
ca53965fdeb57547eb7b39ff8597d0771f1f3df99c68147cd3a1ad7defbe1c20 packed_columns/shard-00000.safetensors
394b428aa6abdbe91095d58e0dbfc0e1490900674eec1de90fc6de1e10816723 packed_columns/shard-00001.safetensors
7037a867df5e873d487f1860c0cf8dffc773587bb3a7d46ba13d0de70c25c63f packed_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed_columns/tokenizer.json
572a098884770614a06e6f195789b48fe133f755eba195d0d5cda4d7b8b88745 padded/manifest.json
3b58092b63d31a7e22822e063481410e6a71b996a990219a38f5fcd10e160055 padded/run.json
fbd060ae7a151e6ff4d89cd98df3b91838f938cec7f6ca2256115b47d8b9fd25 padded/shard-00000.safetensors
6d1a9c07ac9e6b167fed8b71a5be1f66616a3fb664efcfd1454757958488db03 padded/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 padded/tokenizer.json
3b1224eeb665b1d0b862c30c4cc76a69a35516a49a2dfb8c476c48f915bf9370 padded_left/manifest.json
0b6fc184c0aab3d43b9e46eb05021c5ac490034eee1e786385ba6fb9da4822a1 padded_left/run.json
e4b2bac616d65d52350db11720fd4162056f07c8be52db4a9f60663439c2a926 padded_left/shard-00000.safetensors
79d4ba6e7b4b59044a7fdb1a3bbc70c3cccce9a2585f895436ea58e64d1c52cc padded_left/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_left/tokenizer.json
2ca8f002f885a84057036af577f145c342c305a4f029d286daa4ccc6a4739a57 padded_targets/manifest.json
678bc2339025a15ee530969a3c87548a7ab682242ee6c5bf233109a7c0713695 padded_targets/run.json
96d6a5a6ed7c0648aa580a7a7de7369d3b1d147504a0cf96fd00a743990fe705 padded_targets/shard-00000.safetensors
abc833bdbb6b4a9c5e38c87ab76810929072a844662852b8d85445bf5bad8fa6 padded_targets/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_targets/tokenizer.json
b583af4a26be5098a8dc691e388b71798762331aaf76ce839f5c9739c20214e8 splits/manifest.json
da0fc25e6f8d4de9ba5c902e8e7314c0ace9f04172e25a972b82aad1ef291cbf splits/run.json
8fbfa07823088c023b89e0fc62c8295871436adcf800cc4dc217453fa9a9a138 splits/test/manifest.json
1176a70d6305b7bd3ea1a2bb7aaee4cbe3c6e0be9d0ff65426ab833ef0c28d7b splits/test/run.json
8c652d5f7decd62281c14833fbc462f5233a2abafa6264a94791ff31516b3636 splits/test/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/test/tokenizer.json
d9f54933b880671ea5362b9b3a3c24ade730c4414763ade85dc2c60ff04a9c58 splits/train/manifest.json
cc9792a4ae547513360e49f5e330b29fd518a1402f208505597d742098f0a2ce splits/train/run.json
0294646612a12750b64a052968fb6cc3f3578fe90230e43a9eb3d960fc8eb041 splits/train/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/train/tokenizer.json
a013b8e751a6c473d6c292a074824e8bec4ea7cb367a80a6608208d491380d96 streams/manifest.json
c556a085622368a9a9ff8aa0bf4b9f2e5498629c6bf42390e3c088ed248ca0a8 streams/run.json
1dd6bc42bdf874f24898c3fa5d2e4e94c6e00a3c2938b4e5a3c98eab955fab8d streams/shard-00000.safetensors
9de0f61a92683932fe161560275f6845e1cb29c8becf4f9074fa37b5078d178b streams/shard-00001.safetensors
d9b8bde38ab52e9edacc6a08cdd08294de34bbb2d46fef77afad165eb12e1af6 streams/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 streams/tokenizer.json
b8f491020f8446d7bf636f40014568008c70ec7c66022a6081a9671f52c7a76c tokens_bytes/manifest.json
b4aa4ea8fa3bfbe941bb7efc1e627f2f3f1bb35ec3176b0f56d73d9cdafe46b1 tokens_bytes/part-00000.bin
7b8499db58694974e75d1d4ca19b2499af8c2d9b818ed50b0b7f339a993c9e0e tokens_bytes/part-00000.columns.safetensors
bff95ec07187b06c05fb8233a01e7596fb5800069c1ec0565ff14d095bbbe21f tokens_bytes/part-00000.idx
44d80857f393477d6b4e00958690c37732abc1a0e80a942262fdfb3af8488bd9 tokens_bytes/part-00001.bin
9a82c971a4a5701a784596e64e7979180adfbc8cf9e9cf2a75477fe3394458d9 tokens_bytes/part-00001.columns.safetensors
00094060a61e9dfdf64950f41d76bc287b073449fe4e28bc2864a2856e7fb1f3 tokens_bytes/part-00001.idx
4bc1c5219fe284c6bc197016e3bcc219d663e9bd97b96bab78549e510011b327 tokens_bytes/rejects.jsonl
0017c8a78402d47391c36711a87b875647c19c214cec80be708b7b633205b578 tokens_bytes/run.json
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
2ee8b2c24276bce277b294d9931948f84d998bbb3230163489357d5606263130 tokens_fields/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_fields/tokenizer.json
1e8f7c5298a25df3aa83af75e11006c2f83eb166721bbcbd77ed75cfbb99aa64 tokens_targets/manifest.json
92aad386f286fd595f57838b11ebfab62f77b927fe3cb23d735257b2c5cb43f2 tokens_targets/part-00000.bin
99f61184fd777cba78042379763ec0d42da19d80f583e6c7e2ce81ebdf179509 tokens_targets/part-00000.columns.safetensors
b2470352ff4f22b8d7ab58e61489adafb180c5f3a68d7fd5e4bfc555a2874ee9 tokens_targets/part-00000.idx
427485682b63da2c52bfcfae3145bb3843b2458d809254628c9759e44ef4f0df tokens_targets/part-00001.bin
7d163faa801b37d5d3fe34151992fd006c25a98fe6c0af71ba373727e1c8b80e tokens_targets/part-00001.columns.safetensors
4e7de0299d502ff87145ec4233edad6d8d34707d23de20e1417b5544874091db tokens_targets/part-00001.idx
01d10f1866f9a4f5426731aecefe9d0883557e5421f2ce73fb905605485cbce2 tokens_targets/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_targets/tokenizer.json
3e7251f10078e15646285c62c2013e52a1c4a4e1d76f26bc26ec5c503140b42e tokens_words/manifest.json
573234eac418fa74e54431fce20a18f23d53c4a531bb27d8d57010f00cfd7c89 tokens_words/part-00000.bin
2d24240961c3eb136307223680db3ec5277c01d0c9f2bbb680b5e72919894456 tokens_words/part-00000.columns.safetensors
8ecfd8efb9ffb00352070c6ce5d8d3fbc0e626e4982c5ff0a863d754e3602d72 tokens_words/part-00000.idx
c3ff1cb6bc73d7fc98b090b875b0dde96ae1883911b50a856ed15533c583f370 tokens_words/part-00001.bin
edf9c450dabfe3c1c8ca031b158bfe8cfb261b3f6d8340ba93bcf0a6550ffefb tokens_words/part-00001.columns.safetensors
d53e769de5d15cf68032d0bb768f732a32a79aead3aec77c87d466da72587925 tokens_words/part-00001.idx
6eaa38942a7329213ce6d3e925300dcf88d953915dd8a70f47dd3c9ed8cce5a7 tokens_words/run.json
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 tokens_words/tokenizer.json
6edcef548389d573d434f2bc3318b02591a32d835f450d479c3c64e335a9ed96 varlen/manifest.json
700f0e4c090a71b649722561306f4c78c49406d8f63a10a304a40fe4934757e4 varlen/run.json
258ef76850f12f5845fe254a7cf91e9e5c2182ef7b08428f050cbe41bb37999f varlen/shard-00000.safetensors
1a1320c7b67e15a95f0e9919bdec74f6b4b989cf3c86cd95ab86286e23844261 varlen/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen/tokenizer.json
ecbbe8e896161f69b83e4dbaf7c597f30570cc51eaae00eb0f7e95b85a32619d varlen_columns/manifest.json
511074bc8e18cdd4f21d7bb24392becdd2fa5a13a47b3725f4b05be9454c5f71 varlen_columns/run.json
5a23a6d946e9854e6b3d47400bc5bf00cb1023e08532e01e68eeaf365a27bcb5 varlen_columns/shard-00000.safetensors
39c7c10a881429c6f94b85551055213f02c57a6bbce9b7222f39f2f977e21c9b varlen_columns/shard-00001.safetensors
3d7bdd6c75bd24c4e2597b32be797e072af10123a5c65751f14ab5df28c824ed varlen_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_columns/tokenizer.json
a2aac718779fd7f76270dd80a4fc088eaf8a95e3814f8174c860cc2d0549fd4d varlen_targets/manifest.json
eee07db3ee17e4c265cb1b027646def16386f8b682143fe081416553dfdb8532 varlen_targets/run.json
1db5b5df4447f9e1f3463d89e0ab2a87281e23d40695784a9b8a3c9d47ee2ea6 varlen_targets/shard-00000.safetensors
e79b1c041bba7b614ab60c7bb6f701230537c651c31b599527d1fda96721dc1b varlen_targets/shard-00001.safetensors
3f3337b443f1ccb282d055373e3814b5e11b42974c2de6fb703f0070130c4983 varlen_targets/shard-00002.safetensors
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
    aligned = expected(LATEST, "aligned_rows")
    assert any(max(batch["row_indices"]) == 0 for batch in aligned)  # and a row of padding
    last = expected(LATEST, "streams")[-1]
    assert min(last["row_indices"]) > 0  # the first streams have ended
    assert {0, 1} <= {*last["resets"]}
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
