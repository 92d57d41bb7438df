"""Sizes of blocks, pieces, caches and windows of 1, 2, 3 and 7 change nothing in all commands."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import random
import re
import shlex
from pathlib import Path

import command
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from seqpack_cli.limits import LIMITS

WORDS = ["one", "three\tfour", "'fünf'", '"six"', "sieben\\", "acht,", "九", "🎈", "nine\u2028ten"]
CHAT = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
COMMANDS = """
tokenize text --document paragraph --max-length 40 --overlap 3 --part-bytes 300 -o texts
tokenize rows --keep label:class --keep score:float --keep note --on-bad-record skip -o records
tokenize chat.jsonl --messages-field messages --chat-template chat.jinja -o chats
tokenize pairs.jsonl --text-field a -o left
tokenize pairs.jsonl --text-field b -o right
tokenize pairs.jsonl --prompt-field a --completion-field b --part-bytes 300 -o answers
export texts --to megatron -o ids; export records --to parquet -o table
export left --to nanogpt --eos 258 -o left.bin
import ids.idx --tokenizer bytes --part-bytes 700 -o megatron
import left.bin --dtype uint16 --eos 258 --tokenizer bytes -o flat
import ids.jsonl --tokenizer bytes -o labelled
pack texts --batch-size 4 --shuffle --window 16 --shard-bytes 3000 -o packed
pack records --layout padded --buckets auto --last-batch pad --where "label = b" -o padded
pack texts answers --layout varlen --max-tokens 64 --overflow split --passes texts=1.5 -o varlen
pack chats --layout streams --batch-size 3 --max-tokens 24 --shuffle -o streams
pack left --decoder right --max-tokens 200 --order length --shard-bytes 3000 -o both
pack answers left --split train=0.6,test=0.4 --batch-size 8 --shuffle -o splits
unpack packed --ids -o packed.jsonl; unpack padded --text --format parquet -o padded.parquet
export varlen --to parquet -o rows.varlen
inspect records --vocabulary --json; inspect padded --vocabulary --json
diff texts megatron --json; diff packed varlen --json
verify padded --level roundtrip -q; verify varlen --level roundtrip -q
verify streams --level roundtrip -q; verify both --level roundtrip -q
"""
TIMES = re.compile(rb'"(date|seconds|\w+_per_second)": [^,}\n]*')


def write_inputs(folder: Path) -> None:
    """Write small inputs of every format that is read in blocks."""
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(0, 9))) for _ in range(20)]
    data, few = "\n\n".join(texts).encode(), "\r\n".join(texts[:5]).encode()
    rows = [[text, "abc"[n % 3], n / 7, texts[-n]] for n, text in enumerate(texts)]
    columns = map(pa.array, zip(*rows, strict=True))
    table = pa.table(list(columns), ["text", "label", "score", "note"])
    lines = [json.dumps(row, ensure_ascii=n % 2 == 0) for n, row in enumerate(table.to_pylist())]
    turns = [{"role": f"r{n % 2}", "content": text} for n, text in enumerate(texts)]
    files = {
        "text/a.txt": b"\xef\xbb\xbf" + data,
        "text/b.txt.gz": gzip.compress(few, mtime=0) * 2 + bytes(9),
        "text/c.txt.bz2": bz2.compress(few),
        "text/d.txt.xz": lzma.compress(few),
        "rows/a.jsonl": "\n".join([*lines[:9], '{"text": 1}', "", *lines]),
        "rows/b.json": f" [{', '.join(lines)}]\n ",
        "chat.jinja": CHAT,
        "chat.jsonl": "\n".join(json.dumps({"messages": turns[n:][:4]}) for n in range(6)),
        "pairs.jsonl": "\n".join(json.dumps({"a": f"{a}!", "b": f"{b}?"}) for a, *_, b in rows),
        "ids.jsonl": "\n".join(json.dumps({"input_ids": [*text.encode()]}) for text in texts),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    pa_csv.write_csv(table, folder / "rows/c.csv")
    pq.write_table(table, folder / "rows/d.parquet", row_group_size=8)
    with pa.ipc.new_file(folder / "rows/e.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=13)


def run_all(folder: Path) -> dict[str, object]:
    """Run the commands in a folder; return what they print and write, without times and paths."""
    write_inputs(folder)
    found: dict[str, object] = {}
    with contextlib.chdir(folder):
        for line in re.split("[;\n] *", COMMANDS.strip()):
            result = command.run(*shlex.split(line))
            assert result.exit_code == 0, (line, result.output)
            if "--json" in line:
                found[line] = TIMES.sub(b"", result.stdout.replace(str(folder), "").encode())
    for path in filter(Path.is_file, folder.rglob("*")):
        is_table = path.suffix == ".parquet"  # whose row groups are blocks
        data = pq.read_table(path) if is_table else TIMES.sub(b"", path.read_bytes())
        found[str(path.relative_to(folder))] = data
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return run_all(tmp_path_factory.mktemp("default"))


@pytest.mark.parametrize("tiny", [1], indirect=True)
def test_small_sizes_change_no_byte(tmp_path: Path, expected: dict[str, object], tiny: int) -> None:
    found = run_all(tmp_path)
    assert [name for name in found | expected if found.get(name) != expected.get(name)] == []


def test_a_worker_has_the_sizes_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_inputs(tmp_path)
    monkeypatch.setattr(LIMITS, "batch_bytes", "none")  # which only workers read
    arguments = ["tokenize", tmp_path / "text", "--part-bytes", 100, "--num-workers", 2]
    with pytest.raises(TypeError, match="not supported between") as caught:
        command.run(*arguments, "-o", tmp_path / "store")
    assert caught.value.__notes__[0].startswith("Traceback")  # a worker's
