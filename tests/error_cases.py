"""The folder of the table of errors: small inputs, stores and shards, right and wrong ones."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from command import run
from tokenizers import Tokenizer, models, pre_tokenizers

MODELS = """
from torch import nn

class Model(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 8)
        self.lstm = nn.LSTM(8, 8)

    def forward(self, sequences):
        return self.lstm(sequences._replace(data=self.embedding(sequences.data)))

def make(vocab_size, device, dtype):
    return Model(vocab_size).to(device, dtype)

name = 1
"""
FILES: dict[str, str | bytes] = {
    "a.txt": "abc\n\nabcdefgh\nde\n",
    "b.txt": "one\ntwo\nthree\n",
    "one.txt": "one\n",
    "empty.txt": "\n\n",
    "latin.txt": b"a\nna\xefve\n",
    "utf16.txt": "abc".encode("utf-16"),
    "picture.txt": b"\x89PNG\r\n\x1a\n",
    "cut.txt.gz": gzip.compress(b"abc\n" * 999)[:-9],
    "a.pdf": b"%PDF-1.4",
    "a.docx": b"PK\3\4",
    "a.arrow.gz": gzip.compress(b"abc"),
    "bad.idx": "text that is no index",
    "bad.bin": "text",
    "gz.bin": gzip.compress(b"abc", mtime=0),
    "a.jsonl": '{"text": "ab", "lang": "en", "n": 1}\n{"text": "cdef", "lang": "de", "n": 2}\n'
    '{"text": "g", "lang": "de", "n": 3}\n',
    "bad.jsonl": '{"text": "a"}\n{"text": 5}\n',
    "broken.jsonl": '{"text": "a"}\n{"text": "b"\n',
    "body.jsonl": '{"body": "a"}\n',
    "body.txt": '{"body": "a"}\n',
    "words.jsonl": '{"text": ["a", "b"]}\n',
    "rows.jsonl": "[1, 2]\n",
    "surrogate.jsonl": '{"text": "\\ud800"}\n',
    "tags.jsonl": '{"text": ["a", "b"], "tags": ["X"]}\n',
    "words_tags.jsonl": '{"text": ["a", "b"], "tags": ["X", "Y"]}\n',
    "prompts.jsonl": '{"p": "a", "c": "b", "tags": ["X"]}\n',
    "unanswered.jsonl": '{"p": "ab", "c": ""}\n',
    "trl.jsonl": '{"prompt": "a", "completion": "b"}\n',
    "chat.jsonl": '{"messages": [{"role": "user", "content": "a"}, '
    '{"role": "assistant", "content": "b"}]}\n',
    "silent.jsonl": '{"messages": []}\n',
    "keep.jsonl": '{"text": "a", "x": {"y": 1}, "none": null, "b": true}\n',
    "dotted.jsonl": '{"text": "a", "decoder": {"n": 1}}\n',
    "mixed.jsonl": '{"text": "a", "n": 1}\n{"text": "b", "n": "x"}\n',
    "array.json": '[{"text": "ab"}]',
    "cut.json": '[{"text": "ab"},',
    "numbers.json": "[1]",
    "map.json": '{"17": "ab", "18": "c"}',
    "data.json": '{"data": [{"text": "ab"}]}',
    "a.csv": "text,lang\nab,de\n",
    "wide.csv": "text,lang\nab,de,x\n",
    "open.csv": 'text,lang\nab,de\n"cd,de\nef,de\n',
    "twice.csv": "text,text\na,b\n",
    "semicolons.csv": "text;lang\nab;de\n",
    "tabs.csv": "text\tlang\nab\tde\n",
    "false.parquet": "text",
    "false.arrow": "text",
    "broken.jinja": "{% for m in messages %}",
    "dated.jinja": "{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}",
    "unmarked.jinja": "{% for m in messages %}{{ m.content }}{% endfor %}",
    "raises.jinja": "{{ raise_exception('roles must alternate') }}",
    "list": "a.txt\nnone.txt\n",
    "empty.list": "",
    "utf16.list": "a.txt\n".encode("utf-16"),
    "tokenizer.json": '{"a": 1}',
    "ids.bin": np.array([1, 2, 0, 3, 0], np.uint16).tobytes(),
    "odd.bin": b"abc",
    "ids.csv": "a,b",
    "ids.npz": b"ab",
    "text.npy": "text",
    "alone.idx": b"MMIDIDX\0\0",
    "ids.jsonl": '{"input_ids": [1, 2], "lang": "de"}\n{"input_ids": [3]}\n',
    "large.jsonl": '{"input_ids": [1, 20]}\n',
    "tokens.jsonl": '{"tokens": [1]}\n',
    "list.jsonl": "[1, 2]\n",
    "masked.jsonl": '{"input_ids": [1, 2], "attention_mask": [1]}\n',
    "labels.jsonl": '{"input_ids": [1, 2], "labels": [1]}\n',
    "mine.jsonl": "mine\n",
    "mine.png": "mine\n",
    "mine/thesis.doc": "years of work\n",
    "records/a.json": '[{"text": "ab"}]',
    "mixed/a.txt": "ab\n",
    "mixed/b.jsonl": '{"text": "ab"}\n',
    "nothing/a.log": "ab\n",
    "unfinished/part-00000.safetensors": "",
    "taken/x/thesis.doc": "",
    "filed/x": "",
    "other/manifest.json": '{"format": "other"}',
    "newer/manifest.json": '{"format": "seqpack.tokens", "format_version": 99}',
    "garbage/manifest.json": "x",
    "model/tokenizer_config.json": "x",
    "talker/chat_template.jinja": "{% for m in messages %}{{ m.content }}"
    "{% generation %} a{% endgeneration %}{% endfor %}",
    "models.py": MODELS,
}
TARGETS = "--prompt-field p --completion-field c"
STORES = (
    "tokenize a.txt -o tokens",
    "tokenize b.txt -o other_tokens",
    "tokenize one.txt -o single",
    "tokenize a.txt -o cut --max-length 3",
    "tokenize a.jsonl -o kept --keep lang:class --keep n:int",
    f"tokenize prompts.jsonl -o targets {TARGETS}",
    f"tokenize unanswered.jsonl -o unanswered {TARGETS}",
    "tokenize a.jsonl -o plain",
    "tokenize dotted.jsonl -o dotted --keep decoder.n:int",
    "tokenize b.txt -o deep/tokens",
    "tokenize words_tags.jsonl -o tagged --keep tags:tags",
    "export cut --to megatron -o pieces",
    "import pieces.idx -o pieces --tokenizer bytes",
    "import ids.jsonl -o ids --vocab-size 9",
    "import ids.jsonl -o big --vocab-size 99999",
    "pack ids -o ids_shards",
    "export tokens -o flat.bin --to nanogpt",
    "import ids.jsonl -o more_ids --vocab-size 10",
    "pack tokens -o shards",
    "pack tokens -o long --drop-shorter 3",
    "pack tokens -o split --split x=0.5,y=0.5",
    "pack tokens -o pairs --decoder tokens",
    "pack moved -o homeless",
    "unpack shards -o rows.out",
    "export tokens -o exported",
)


def make_folder() -> None:
    """Fill the current folder."""
    for name, data in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data if isinstance(data, bytes) else data.encode())
    pq.write_table(pa.table({"text": [["a"]], "n": [1]}), "lists.parquet")
    np.save("ids.npy", np.array([1, 2, 0], np.uint16))
    np.save("floats.npy", np.array([1.5]))
    words = {"<unk>": 0, "a": 1, "b": 2}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save("words.json")
    Path("dangling").symlink_to("none")
    Path("empty").mkdir()
    for name in ("model", "talker"):
        shutil.copy("words.json", f"{name}/tokenizer.json")
    for command in STORES:
        if command.startswith("pack moved"):
            shutil.copytree("other_tokens", "moved")
        result = run(*command.split(), "-q")
        assert result.exit_code == 0, f"{command}: {result.stderr}"
    shutil.rmtree("moved")
    shutil.copytree("tokens", "damaged")
    part = next(Path("damaged").glob("part-*.safetensors"))
    part.write_bytes(part.read_bytes()[:-1])
    shutil.copytree("shards", "damaged_shards")
    shard = Path("damaged_shards/shard-00000.safetensors")
    shard.write_bytes(shard.read_bytes()[:-1])
    shutil.copytree("tokens", "incomplete")
    Path("incomplete/manifest.json").rename("incomplete/plan.json")
