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
    DECODERS,
    FIELDS,
    GOLDEN,
    LINKS,
    MATCHED,
    SHARDS,
    SPLITS,
    STORES,
    expect_columns,
    expect_documents,
    expect_targets,
    hash_files,
    make,
    read_side,
    run_commands,
    write_input,
)
from reference import read_folder, read_store_documents

from seqpack_cli import open_shards, open_store
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.shards import shard_manifest
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_manifest import open_splits
from seqpack_cli.tokens import store_manifest
from seqpack_cli.tokens.columns.kinds import KINDS

MAX_GOLDEN_BYTES = 285_000
WRITES_OTHERWISE = (
    "a changed byte is another format: raise format_version and make golden files of it; "
    "other batches from the same options are another plan: raise PLAN_VERSION too"
)
# Of every file of every version, so that none is edited unseen.
DIGEST = {
    "v10": """
517fe1d95708f5e1e8e68c0b46577663362a8dec9be9de4b505e20f6a12f30c3 aligned_rows/manifest.json
8f2d650870cfe5031024b0f80775be7f0b000d316d17d249c56d14cceb637cbe aligned_rows/run.json
265c3b36d70d882433c2bd546870ccf9914dd36ee948f156b04ffbfdff7182e3 aligned_rows/shard-00000.safetensors
766b7408f85fda96adb1d4df0c927531cf07770c879183376aac8fc068c20b28 aligned_rows/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 aligned_rows/tokenizer.json
3a0c13ea5cef7485d71a7d0065a5b47bec7e50e42f5b07bff2c591bad8858729 chunks/manifest.json
8ad8a6d14dc6019fee90ce9f3280810418f21f1725f926222a0db505adf1e03f chunks/run.json
2687a81bec6d3547452b39956c1b19cfb7addd2e6831301546cc1285091ddd91 chunks/shard-00000.safetensors
0e5ae6917fc75a3e7c0eb0cbaed44214c37adfa74500c8bb5405360e98fa827e chunks/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 chunks/tokenizer.json
24a2ec22e74dc9b394f335c928f7e500aaf2655c0ae2a2516af36f06279872b0 expected.json
07cb9347bac9e5c20f13463c2fe285061623d1b207fffa00f8c84fe8e0cc5a63 filler/manifest.json
e38bd98f1959e84dab122f9f776e0347fe203d011a9fd767ca98caf10903c046 filler/run.json
09b3e057d225547182c0b64ab1c40c48470522920eeb26c9e3d77b244993957c filler/shard-00000.safetensors
85518313c5c82b501946abd1f6401c27ceb03384446cb37e14d07c8c994a797a filler/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 filler/tokenizer.json
fe241e83b9ea7f6151a0e3f00ec386c6dbb1efa2171d897d68dc697c53ef0dd1 filler_columns/manifest.json
b5750db48b44ba0e4dfb2345090183cff1f2ec3e340835b7cf5a66583c894f3f filler_columns/run.json
35b3a60d5cc427df483191eb417fb37bb6a4ae153b6a40b0beafa1ef268f9f23 filler_columns/shard-00000.safetensors
2d4b33fe5db6892de3de821e1ab75de3dc01edbec94a533ff8f170130b0167ce filler_columns/shard-00001.safetensors
a55c1989090d1a766022dcc4abdf1f02b16e7a02117b1ecd694efbf44935514e filler_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 filler_columns/tokenizer.json
3914cc720f3d0454aecaacbfb473753cc950008709f51612be31772659eaec5a input/answers.jsonl
007e026f733d945108a5108c880697d513664ea51858ac61074ce02aa8551d9f input/fields.jsonl
f0877793769040f348faa1ecc99de8895a66cffc7c63db97366289dad422075b input/lines.txt
3a783eb667f512219e04d999fc7fdf0c56a23bb5bef2d3afa032430f78375b9f input/pairs.jsonl
c0f3e06336f06fca817dffba8db85b8445bc31c4a00c69a939227daf792ccb90 input/records.jsonl
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 input/words.tokenizer.json
5c7b8708eb7551a6fff67bdb846a7da5c9bc97565ec8ba34b0d94660013eeb49 input/words.txt
1ed9914007efa8249c046e3180e24d355e8d5c97d8be51323bbfff5dd9e9d6d3 mixed/manifest.json
28c6658cfe3b38b41cdb944a22ad7988f68d29ac81f080c140c308d3a4e3e8e6 mixed/run.json
082baa78c93cab4b1759f83a33cfb69f6cb0b04d622632d4b3e19aaa065d4720 mixed/shard-00000.safetensors
7940a319c43cf3c716d3022d591e3213aa44385ed9441662195dfe5a30a45814 mixed/shard-00001.safetensors
270e36f67c4f52175e40d4c68762d186c4e0dcabe72cda9ad78dda8fc7cd9a3c mixed/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 mixed/tokenizer.json
9b496350707d9a7b5b9f39bbea14eb28747449c1a7dd481cac99dd1ae808570e packed/manifest.json
a2a1cd3ef0f4f319291522e6bc590df9e902fbe783065e8b380920a39d31acf4 packed/run.json
c35a205af4adaf7c71b812436c0706bc4ac95fd8d77d22ce989b9ff93837e7a2 packed/shard-00000.safetensors
8689f9b31bef8a1f9d3aa9c45be78ffe6d1b657fe046bdd97f821d47f1eaf3ee packed/shard-00001.safetensors
dcd668803b4541fb9c75ae280fab1715bbfce2008f5ea28ae23c264445e0e0f9 packed/shard-00002.safetensors
4b094db683500b4600ebf6f0a27b0f09b2388ad506b26f022ceff4d231bac11e packed/shard-00003.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed/tokenizer.json
d9b6a762cd8afef1c63dd4891353d7a0ec0ba6f3a31a7724dfc05be38f2e65ee packed_columns/manifest.json
82a2f018af6adbc3f542b9eddda0abfcf39152f4d1f703435a37e97c52156f5a packed_columns/run.json
1762637083e8aa33c0bbbd63854c9113ed42543fa52dbc508858afd559b865f4 packed_columns/shard-00000.safetensors
a231377ba58928e413196f5ca9d05ff39d4210820776c49d0bb44efd2ed16474 packed_columns/shard-00001.safetensors
139693e48f1b4d62aa03a95df8e41415ad4bf6e017ac672760f9c23d98a93e6f packed_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 packed_columns/tokenizer.json
bbe84fcc729149d9971e556dba70aff568e447209923ef7efe8cf144995ee308 padded/manifest.json
1554e9ef41dfafbfe344059609b9ff5238188788dd9020de808ee44aff49b3f8 padded/run.json
6255c6299f88d48bbb88427ab60f2acd0f729329652cb21c029055d85c706f2d padded/shard-00000.safetensors
04b365f59ed085f3f0f85706270ea147ec7e22b68a7152e608d31e6dadaa4bd9 padded/shard-00001.safetensors
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 padded/tokenizer.json
62c48145ae4edf7904bba0545f995b8bba280f259ef05105944864a3505839fa padded_left/manifest.json
8dffd313d6a1d6008ea1b7c48cdd143bcc42e2eb772fde6b5b593ad0db6cce4a padded_left/run.json
14c7f55f4b34f90c651a6beadfb525996317f26dcc7d464db8848ff6b99b54ff padded_left/shard-00000.safetensors
da547233c1b590a7e395ad94097ce5b63a1d70af96adf6fb33617e3ad1967c83 padded_left/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_left/tokenizer.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_pairs/decoder.tokenizer.json
79f0db948f80780b8d0b244db7b80878ce4c95d4fbb37670fbd2d98ce4c35861 padded_pairs/manifest.json
9b9f56923d20a97bde1a2df4b983d9d6e5c42c8a8d8b212541f60ce8ec4297e2 padded_pairs/run.json
e86905ada56953107d39b50e5caa981c9784dc17d3e9a946f91b8ddb841959b3 padded_pairs/shard-00000.safetensors
a282a41b4ee657f19bd5c955d1e6e9e92cbf7a0a2346188b8f127cac14edd2c8 padded_pairs/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_pairs/tokenizer.json
f46f1410e943bd6584cb761deb4f73a4124d3d99f1e8a1c783359d9e1b44d55c padded_targets/manifest.json
ca9df92f36e8e16369460aca09a65ae3fee4f978d3eef5201f1a10e4573739ba padded_targets/run.json
1ae984cc0c4cf47ebfb9b1719860e3ac70f5c50499a2feb0770b11f0a6f5a685 padded_targets/shard-00000.safetensors
c78db1a64009de320e2d4dacfde36297f6bed4bb8e9bb67d2b04f9079913e86f padded_targets/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 padded_targets/tokenizer.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 pairs/decoder.tokenizer.json
2144c7d00d6703bcba55a88f3c8d579d74aa8eec46329faf603a432456a3a9ca pairs/manifest.json
a9dc259f947324eec9b4a13cd88e5045b30b90c4ba8529de3926d79b9e4f66ef pairs/run.json
79811120a51d2cbbbf70583bf15992f67c1cba5858039322464db5b8c6418abd pairs/shard-00000.safetensors
b16ce6707c002f8eaac38f10649e2dcdb758937fdd572c7f1885dc9f6d840b4e pairs/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 pairs/tokenizer.json
03d72f814e9ede3972d2ecdc13dc9e17c8538c5c45cd70def69796da6be6c649 splits/manifest.json
1b5360b6e48fc617a05725b1204c2bed3f50ecaa6cb9a44ae9e38758f00d6d38 splits/run.json
1e28308b01227423d8c57cb83a95c8d563a7d44712a4e8f967cefa5352ee6180 splits/test/manifest.json
b6ee04b7aad3c590be73c663788142dfaf6cf82498a1fadf06d1f5871a86ec84 splits/test/run.json
2ef150f94efbb8f76c15e011f3deac282137459ff2f4dc1574c99ff7a668ffba splits/test/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/test/tokenizer.json
a2bf6de4f5c2fdee54f64a1e8a5ef07a51669433aab422a6920f3f02d87f4739 splits/train/manifest.json
912adb612e69044dce8a10a5c1cf7fb7992cdb3ce7d008580583067cb375137e splits/train/run.json
75133c213300cf93aedca27845a624394c599f3958e733f407549b3b01cd1bf5 splits/train/shard-00000.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 splits/train/tokenizer.json
9b18f885ecd60b533969d3dd7b5871752b079f38d73a33c4f2d7af339202735c streams/manifest.json
667de140463d1ae7a2d6ead7e8ad5db9c585a770d3d0961caa170ea2ffa7e400 streams/run.json
326386b4257275a8e0b0a231918dcf3047fa756e5168835e797c46f47ec820d6 streams/shard-00000.safetensors
a9a4674743cdba3d9d6d54cd1463a66d99feae82c43525d9c6493cc510972c8c streams/shard-00001.safetensors
0a4e8928cdfedf7ec70d18a4e5c1b83bfa3641f931393b792ff6b00b2c28d6a6 streams/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 streams/tokenizer.json
b8f491020f8446d7bf636f40014568008c70ec7c66022a6081a9671f52c7a76c tokens_bytes/manifest.json
b4aa4ea8fa3bfbe941bb7efc1e627f2f3f1bb35ec3176b0f56d73d9cdafe46b1 tokens_bytes/part-00000.bin
7b8499db58694974e75d1d4ca19b2499af8c2d9b818ed50b0b7f339a993c9e0e tokens_bytes/part-00000.columns.safetensors
bff95ec07187b06c05fb8233a01e7596fb5800069c1ec0565ff14d095bbbe21f tokens_bytes/part-00000.idx
44d80857f393477d6b4e00958690c37732abc1a0e80a942262fdfb3af8488bd9 tokens_bytes/part-00001.bin
9a82c971a4a5701a784596e64e7979180adfbc8cf9e9cf2a75477fe3394458d9 tokens_bytes/part-00001.columns.safetensors
00094060a61e9dfdf64950f41d76bc287b073449fe4e28bc2864a2856e7fb1f3 tokens_bytes/part-00001.idx
4bc1c5219fe284c6bc197016e3bcc219d663e9bd97b96bab78549e510011b327 tokens_bytes/rejects.jsonl
d116f845ce642f0d089a0370ebdcf03863c827ddbdfd5343deb5f49a5ee467da tokens_bytes/run.json
9b7a58b10cbefe06ba7b2b8e0d0ecec79aee32cf86136cadfacea8514c6eff14 tokens_bytes/special_tokens.jsonl
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_bytes/tokenizer.json
02cd51aeca9deb2debca8a8ce1c85fcf458f29d5435ab8e44256c3246b71f24e tokens_decoder/manifest.json
754ede47e67ee8456b9683b11c6a0c14b20888d105799998d227ec2de2ba19b8 tokens_decoder/part-00000.bin
42f28fc2602f97421b377b7302e9f00533d8f0d77ca971675c7f5e9d1833a76d tokens_decoder/part-00000.columns.safetensors
c4b02b03e6aeb4a2bc524f068dc8ab3a86c2b76fdcfdd920ea82a3dc36d9668e tokens_decoder/part-00000.idx
12b6be7d970b67dc844c2a2ca29908d8fde9bfed01099a4868318abc78f3a802 tokens_decoder/part-00001.bin
3f88ae4a8641983ed843267421474133d0642d8326e7ef005cd4f52f924d94c0 tokens_decoder/part-00001.columns.safetensors
dc0819b689e23487c44e5c0529baf71da02d2936f1f9878d6cdf2b7851f75e60 tokens_decoder/part-00001.idx
72db31c44b8df5748d131995ffc7f0ee0dacd27cc9a72f14852b7c9b41623af4 tokens_decoder/part-00002.bin
64f7874b409f551ad8fc3e1e5bee36fc471622d609a745edc0e61687971ba3e6 tokens_decoder/part-00002.columns.safetensors
3bacd7b782fd4631b569f0396e9493b1e4891ec371823848bf2b1ab2f42ffacd tokens_decoder/part-00002.idx
1d142c83094d5571f7d4e25db0ae712ff2d4407a6effd0add1abd9251198b99a tokens_decoder/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_decoder/tokenizer.json
45088be8243f29b83b84816a909aa80fb74c740e5031762714cae06a46acc3ae tokens_encoder/manifest.json
54e1b442c988f8f6ef8b41cdd74aa4641af9e57d5db384078a0ac0e95d038282 tokens_encoder/part-00000.bin
b1ff1ad520482776cabc30a0b14d08bafc3e6784a6bb144a2b60c2a04300ea04 tokens_encoder/part-00000.columns.safetensors
6cdaa688368cfc3aab7d79fc5c91a405e1cc83629a532dd291a02b652bb84717 tokens_encoder/part-00000.idx
9eb3768a13e7e6b8ee5f7738b47592962aa7b07a1e1bb5e87017ccbddcdf3bd1 tokens_encoder/part-00001.bin
23fa37d82739d44df780e4ca551f0eb37eab6f58bca897d433e664cd3c5bb4db tokens_encoder/part-00001.columns.safetensors
0c13a0a7b3701694a3b8a4d216177fdc488da75eb78831f3b161337072e48c7a tokens_encoder/part-00001.idx
3bdce0dfb9fc8fb3b9fc0f6d8bd084a0798dd70cb2b4d56ae0076829c59f0acd tokens_encoder/part-00002.bin
0af4c90cfef6779be94d61556278996e62edab104bf4ddbf717a3f5de62b72b6 tokens_encoder/part-00002.columns.safetensors
e27d604478b4407c29d79c344994414679a645a9bb5346760dc7e26a563788ec tokens_encoder/part-00002.idx
657093b54425043144206d00ff838f6ced5fc49e4adbaa9bce321c1fce298315 tokens_encoder/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_encoder/tokenizer.json
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
0829d17df8c6a1d5751609130394e965eb0cb625de1026a6d000d86db17a0956 tokens_fields/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_fields/tokenizer.json
1e8f7c5298a25df3aa83af75e11006c2f83eb166721bbcbd77ed75cfbb99aa64 tokens_targets/manifest.json
92aad386f286fd595f57838b11ebfab62f77b927fe3cb23d735257b2c5cb43f2 tokens_targets/part-00000.bin
99f61184fd777cba78042379763ec0d42da19d80f583e6c7e2ce81ebdf179509 tokens_targets/part-00000.columns.safetensors
b2470352ff4f22b8d7ab58e61489adafb180c5f3a68d7fd5e4bfc555a2874ee9 tokens_targets/part-00000.idx
427485682b63da2c52bfcfae3145bb3843b2458d809254628c9759e44ef4f0df tokens_targets/part-00001.bin
7d163faa801b37d5d3fe34151992fd006c25a98fe6c0af71ba373727e1c8b80e tokens_targets/part-00001.columns.safetensors
4e7de0299d502ff87145ec4233edad6d8d34707d23de20e1417b5544874091db tokens_targets/part-00001.idx
c0244f8235d906ea290c34f44dfea6ea2820795766ab986e7f2e99cab11a38a1 tokens_targets/run.json
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 tokens_targets/tokenizer.json
3e7251f10078e15646285c62c2013e52a1c4a4e1d76f26bc26ec5c503140b42e tokens_words/manifest.json
573234eac418fa74e54431fce20a18f23d53c4a531bb27d8d57010f00cfd7c89 tokens_words/part-00000.bin
2d24240961c3eb136307223680db3ec5277c01d0c9f2bbb680b5e72919894456 tokens_words/part-00000.columns.safetensors
8ecfd8efb9ffb00352070c6ce5d8d3fbc0e626e4982c5ff0a863d754e3602d72 tokens_words/part-00000.idx
c3ff1cb6bc73d7fc98b090b875b0dde96ae1883911b50a856ed15533c583f370 tokens_words/part-00001.bin
edf9c450dabfe3c1c8ca031b158bfe8cfb261b3f6d8340ba93bcf0a6550ffefb tokens_words/part-00001.columns.safetensors
d53e769de5d15cf68032d0bb768f732a32a79aead3aec77c87d466da72587925 tokens_words/part-00001.idx
a3ed42a084aaaeeab323da8c06d1fb95d4e45f95741beb5a60db9593bff7ba45 tokens_words/run.json
08d0938e8d5a56468e198ad51a5fc6235e7dd04bcdb1782ea4b2df33717c0bb6 tokens_words/tokenizer.json
2abc210c52e16df812c3e3042d5c1e892adfe74d38d7bf4d559184dc9b78682e varlen/manifest.json
dfca9fa1b3d92ae5f0a5c1c452814bda6036fb76d88bb90c8cae8ec0e82863eb varlen/run.json
6e8e63a5addac55862795fb2474f3bfda8126e4a8f001c23bca5734eb478037f varlen/shard-00000.safetensors
8b6ef78a88dbbdb2477a386ece317a9a41cfe271eb6c029e534228a5adb6f16c varlen/shard-00001.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen/tokenizer.json
7e6b1a7349bb3d4556d52abf236117425c7a0c459dd8fcfc7ed33bed1a23232e varlen_columns/manifest.json
9e82af404465e69fb3b454f6ee6f075fe0ea0ad1170ecf867ef005d7a8f8d299 varlen_columns/run.json
81a2ab041a7ae4a4354887a31d281852ba95298c44246f1a95fca43431b24dc0 varlen_columns/shard-00000.safetensors
e55b024b91f2845f4ec703a7178700bc7e7c427199ae81dbdf99461c89ea821b varlen_columns/shard-00001.safetensors
09c4e6b45781db696ab146b813fc2c5ef21f52526cff31ee8d1383c570910063 varlen_columns/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_columns/tokenizer.json
6688e9f1804568e8aef921b6ff2ff5f83abd7ced931f64c38ebafc415f15b932 varlen_targets/manifest.json
a6d8d6ad282a2af084685de82d80668dab19cbea39632497a761979f2880b296 varlen_targets/run.json
e3bf7bc8fb6677b949eaff0c8a357b376c526b7949a9f6a9b3076c881ffd426d varlen_targets/shard-00000.safetensors
9e95057ce7c164f52a9ab710dceea5a51d68cd47df839bfa13f1baef46e3bd91 varlen_targets/shard-00001.safetensors
035090590db429c8dbdf58160861767e40791ce1a89ea6040f659ca7b1640262 varlen_targets/shard-00002.safetensors
1d5d143373313bbee2118e27b3012aba12695cbdead0ca74d252cf5ef9d82451 varlen_targets/tokenizer.json
"""  # noqa: E501
}
VERSIONS = sorted(DIGEST)
# Both formats are written into one folder, which has the larger of their versions.
FILTERED = (
    "pairs",
    "padded_pairs",
    *DECODERS,
    "packed_columns",
    "varlen_targets",
    "streams",
    *SPLITS,
)
LATEST = f"v{max(store_manifest.FORMAT_VERSION, shard_manifest.FORMAT_VERSION)}"
ALL_STORES = [(version, name) for version in VERSIONS for name in STORES]
ALL_SHARDS = [(version, name) for version in VERSIONS for name in SHARDS]
ALL_SIDES = ALL_SHARDS + [(version, name) for version in VERSIONS for name in DECODERS]


def expected(version: str, name: str) -> Any:
    """Return what a golden store or golden shards must hold."""
    return json.loads((GOLDEN / version / "expected.json").read_bytes())[name]


def expected_sequences(version: str, *stores: str) -> list[list[int]]:
    return [ids for store in stores for pieces in expected(version, store) for ids in pieces]


def stores_of(name: str) -> list[str]:
    """Return the stores of golden shards, or of a decoder's side."""
    encoder, *decoder = COMMANDS[name.removeprefix("decoder.").split("/")[0]].split("--decoder")
    side = decoder[0] if name in DECODERS else encoder
    return [word for word in side.split() if word in STORES]


def open_side(version: str, name: str) -> ShardSet:
    """Open golden shards, or a decoder's side of them."""
    shards = open_shards(GOLDEN / version / name.removeprefix("decoder."))
    return shards.sides[name in DECODERS]


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
    assert dtypes == ["uint16", "int32", *["uint16"] * 4]
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
    pairs, padded = (open_side(LATEST, f"decoder.{name}") for name in ("pairs", "padded_pairs"))
    assert [*shards["pairs"].columns, *pairs.columns] == ["lang", "id"]
    dropped = pairs.manifest["ledger"]["num_dropped_sequences"]
    assert dropped == {"decoder.empty": 0, "encoder.empty": 1}
    assert padded.manifest["ledger"]["num_filler_rows"] > 0
    assert padded.manifest["bucket_keys"] == [[12, 16], [20, 40]]


def test_existing_version_is_never_made_again(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    with pytest.raises(FileExistsError):
        make(tmp_path / "v1")
    assert list((tmp_path / "v1").iterdir()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_expected_documents_follow_from_the_input(version: str) -> None:
    found = expect_documents(GOLDEN / version / "input")
    assert found == {name: expected(version, name) for name in STORES}


@pytest.mark.parametrize(("version", "name"), ALL_SIDES)
def test_expected_batches_hold_the_expected_documents(version: str, name: str) -> None:
    """Put the rows of `expected.json` together by hand: padding off, pieces joined."""
    folder = GOLDEN / version / name.removeprefix("decoder.")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    pad_id = (manifest["decoder"] if name in DECODERS else manifest)["pad_id"]
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


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_expected_batches_of_both_sides_are_of_the_same_documents(version: str, name: str) -> None:
    sides = [name.removeprefix("decoder."), name]
    documents_of = [
        [number for number, pieces in enumerate(expected(version, store)) if pieces]
        for side in sides
        for store in stores_of(side)
    ]
    for batch, decoder in zip(*(expected(version, side) for side in sides), strict=True):
        found = []
        for rows, documents in zip((batch["rows"], decoder["rows"]), documents_of, strict=True):
            found.append([documents[index] if index >= 0 else None for index, _, _ in rows])
        assert found[1] == [found[0][row] for row in decoder.get("encoder_rows", range(3))]


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


@pytest.mark.parametrize(("version", "name"), ALL_SIDES)
def test_golden_shards_are_read(version: str, name: str) -> None:
    found = []
    for batch in open_side(version, name):
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
    assert read_side(GOLDEN / version, name) == expected(version, name)


def _list_links(batch: Any) -> dict[str, list[int]]:
    links = {name: getattr(batch, name, None) for name in (*LINKS, *MATCHED)}
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
