"""Runs on a real S3 server beside local ones, while it breaks requests, and names of all kinds.

`tests/test_remote.py` has the common ways; these are the long half. The server's faults are a
proxy's (`object_store`), which counts them: a test whose fault met no request fails.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from command import run
from object_store import FaultProxy, put_object, read_objects, remove_object
from object_store import s3_address as s3_address
from object_store import server as server
from tokenizer_kinds import SAMPLE_DATA

from seqpack_cli import (
    Executor,
    FolderError,
    PackOptions,
    Progress,
    open_shards,
    open_store,
    pack,
)
from seqpack_cli.limits import LIMITS

BUCKET = "bucket"
HERE = Executor(num_workers=1)
PARTS = ("--part-bytes", 25_000, "--num-workers", 1)
SHARDS = ("--shard-bytes", 30_000, "--num-workers", 1)
SECONDS = 60  # until a child process counts as hanging
PLACES = re.compile(rb'(s3:/)?/[^"]*/(?=corpus)|(?<="path": )"[^"]*store"')


@pytest.fixture
def url(server: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a place in the bucket that is this test's alone, with an empty cache and record."""
    monkeypatch.setenv("SEQPACK_CACHE_DIR", str(tmp_path / "cache"))
    server.forget()
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a corpus of 150 kB, its store and its shards."""
    folder = tmp_path_factory.mktemp("s3")
    lines = (SAMPLE_DATA / "stories.txt").read_text().splitlines()
    text = "".join(f"{number} {line}\n" for number, line in enumerate(lines * 40))[:120_000]
    (folder / "corpus").mkdir()
    (folder / "corpus" / "a.txt").write_text(text)
    (folder / "corpus" / "b.txt.gz").write_bytes(gzip.compress(text[:30_000].encode()))
    assert run("tokenize", folder / "corpus", "-o", folder / "store", *PARTS).exit_code == 0
    assert run("pack", folder / "store", "-o", folder / "shards", *SHARDS).exit_code == 0
    return folder


def put_folder(server: FaultProxy, folder: Path, url: str) -> str:
    """Put a local folder's files under a URL, and return its name there."""
    for path in filter(Path.is_file, folder.rglob("*")):
        key = f"{url.removeprefix('s3://')}/{folder.name}/{path.relative_to(folder)}"
        put_object(server.upstream, key, path.read_bytes())
    return f"{url}/{folder.name}"


@pytest.fixture
def remote(server: FaultProxy, url: str, made: Path) -> str:
    """Return the URL below which the store and the shards lie too."""
    for name in ("store", "shards"):
        put_folder(server, made / name, url)
    server.forget()
    return url


def read_url(server: FaultProxy, url: str) -> dict[str, bytes]:
    return read_objects(server.upstream, BUCKET, url.removeprefix(f"s3://{BUCKET}/"))


def read_tree(folder: Path) -> dict[str, bytes]:
    files = filter(Path.is_file, sorted(folder.rglob("*")))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def check_same(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Compare the files of folders, but for what they say about where others lie."""
    assert set(found) == set(expected)
    for name in expected:
        if not name.endswith("run.json"):
            assert PLACES.sub(b"", found[name]) == PLACES.sub(b"", expected[name]), name


# The same bytes


def test_every_kind_of_input_is_read_as_from_a_disk(server, url, made, tmp_path):
    """By two workers, which read ranges of one object."""
    from pyarrow import parquet, table

    corpus = tmp_path / "corpus"
    (corpus / "deep er").mkdir(parents=True)
    for path in (made / "corpus").iterdir():
        (corpus / path.name).write_bytes(path.read_bytes())
    records = [json.dumps({"text": f"text {n}", "n": n}) + "\n" for n in range(999)]
    (corpus / "deep er" / "d-ü%.jsonl").write_text("".join(records))
    rows = table({"text": ["some text"] * 500, "n": range(500)})
    parquet.write_table(rows, corpus / "e.parquet", row_group_size=50)
    there = put_folder(server, corpus, url)
    put_object(server.upstream, f"{there.removeprefix('s3://')}/deep er/", b"")  # marks a folder
    for name, *keep in (("",), ("/deep er", "--keep", "n"), ("/*.*[tz]",)):
        for place, out in ((corpus, "here"), (there, "there")):
            words = ("tokenize", f"{place}{name}", "-o", tmp_path / out, "--overwrite", *keep)
            result = run(*words, "--part-bytes", 25_000, "--num-workers", 2 if not name else 1)
            assert result.exit_code == 0, result.stderr
        check_same(read_tree(tmp_path / "there"), read_tree(tmp_path / "here"))


class Stop(BaseException):
    """Stands for a kill."""


def test_splits_and_pairs_are_packed_as_on_a_disk(server, url, made, tmp_path):
    """A run that stops is continued, and splits that no longer exist are removed."""
    here = shutil.copytree(made / "store", tmp_path / "store")  # "../store" in both places
    there = put_folder(server, here, url)
    done: list[int] = []

    def stop(_: int) -> None:
        done.append(1)
        if len(done) == 12:
            raise Stop

    packing = PackOptions(split="train=0.6,test=rest", shard_bytes=30_000, batch_size=16)
    with pytest.raises(Stop):
        pack(there, f"{url}/out", packing, executor=HERE, progress=Progress(on_advance=stop))
    result = run("inspect", f"{url}/out")
    assert result.exit_code == 4
    assert f"{url}/out: incomplete run, 1 of 2 splits finished" in result.stderr
    options = ("--shard-bytes", 30_000, "--batch-size", 16, "--num-workers", 1)
    for words in (
        ("--split", "train=0.6,test=rest", *options),
        ("--split", "train=0.8,dev=rest", *options, "--overwrite"),
    ):
        for store, out in ((there, f"{url}/out"), (here, tmp_path / "out")):
            assert run("pack", store, "-o", out, *words).exit_code == 0
        check_same(read_url(server, f"{url}/out"), read_tree(tmp_path / "out"))
    assert run("verify", f"{url}/out", "--level", "structure").exit_code == 0
    for store, out in ((there, f"{url}/pairs"), (here, tmp_path / "pairs")):
        assert run("pack", store, "--decoder", store, "-o", out, "--num-workers", 1).exit_code == 0
    check_same(read_url(server, f"{url}/pairs"), read_tree(tmp_path / "pairs"))


def test_readers_say_the_same_of_objects(server, remote, made, tmp_path):
    for name in ("store", "shards"):
        shown = [run("inspect", f"{it}/{name}", "--json").stdout for it in (made, remote)]
        assert json.loads(shown[1].replace(remote, str(made))) == json.loads(shown[0])
    tokens = ("--tokens", f"{remote}/store")
    assert run("verify", f"{remote}/shards", "--level", "roundtrip", *tokens).exit_code == 0
    for to in ("parquet", "megatron", "nanogpt"):
        (tmp_path / to).mkdir()
        assert run("export", made / "store", "-o", tmp_path / to / "x", "--to", to).exit_code == 0
        for _ in range(2):
            words = ("export", f"{remote}/store", "-o", f"{remote}/{to}/x", "--to", to)
            assert run(*words, "--overwrite").exit_code == 0
        assert read_url(server, f"{remote}/{to}") == read_tree(tmp_path / to)


def test_overwrite_replaces_no_object_but_an_earlier_output(server, remote):
    lines, tokenizer = f"{remote}/mine/lines.jsonl", f"{remote}/mine/tokenizer.json"
    train = ("train-tokenizer", SAMPLE_DATA / "stories.txt", "--vocab-size", 300)
    for _ in range(2):
        assert run("unpack", f"{remote}/shards", "-o", lines, "--overwrite").exit_code == 0
        assert run(*train, "-o", tokenizer, "--overwrite").exit_code == 0
    put_object(server.upstream, lines.removeprefix("s3://"), b"a thesis")
    before = read_url(server, remote)
    for place in (lines, f"{remote}/shards/manifest.json", f"{remote}/shards/new.jsonl"):
        result = run("unpack", f"{remote}/shards", "-o", place, "--overwrite")
        assert result.exit_code == 4, result.stderr
        assert result.stderr.startswith(f"Error: {place}: ")
    assert read_url(server, remote) == before


# Requests


def test_a_manifest_is_read_once_when_its_folder_is_opened(server, remote):
    """A listing tells whether the run ended and how long all files are."""
    for name in ("store", "shards"):
        server.forget()
        place = f"{remote}/{name}"
        opened = open_shards(place) if name == "shards" else open_store(place, check_indices=False)
        found = [(each.operation, each.key.rpartition("/")[2]) for each in server.find()]
        expected = [("HeadObject", "manifest.json"), ("GetObject", "manifest.json")]
        assert (found[0][0], found[1:]) == ("ListObjects", expected)
        assert len(opened) > 0


def test_many_objects_of_one_folder_need_one_request(server, url, monkeypatch, tmp_path):
    names = [f"{url}/{number}.txt" for number in (2, 0, 1)]
    for name in names:
        put_object(server.upstream, name.removeprefix("s3://"), b"text")
    monkeypatch.setattr(LIMITS, "objects_listed", 3)
    server.forget()
    assert run("tokenize", *names, "-o", tmp_path / "store").exit_code == 0
    assert server.find()[0].operation == "ListObjects"
    monkeypatch.setattr(LIMITS, "objects_listed", 4)
    num_requests = len(server.find())
    server.forget()
    assert run("tokenize", *names, "-o", tmp_path / "other").exit_code == 0
    assert len(server.find()) == num_requests + len(names) - 1
    sources = [source["path"] for source in open_store(tmp_path / "store").manifest["sources"]]
    assert sources == names


def test_a_slash_at_the_end_asks_for_what_lies_below(server, url, tmp_path):
    for name in ("name.txt", "name.txt/below.txt"):
        put_object(server.upstream, f"{url.removeprefix('s3://')}/{name}", b"text")
    for name, found in (("name.txt/", "name.txt/below.txt"), ("name.txt", "name.txt")):
        result = run("tokenize", f"{url}/{name}", "-o", tmp_path / "store", "--overwrite")
        assert result.exit_code == 0, result.stderr
        assert open_store(tmp_path / "store").locate(0).source == f"{url}/{found}"


# A server that breaks requests


@pytest.mark.parametrize(
    ("kind", "operation", "values"),
    [
        ("cut", "GetObject", {"every": 3, "num_bytes": 700}),
        ("drop", "GetObject", {"every": 4}),
        ("drop", "PutObject", {"every": 4, "num_bytes": 500}),
        ("lose", "PutObject", {"every": 4}),
        ("lose", "PutObject", {"key": r"plan\.json$", "limit": 1}),
        ("refuse", "", {"every": 3, "limit": 12}),
    ],
    ids=["cut", "gets dropped", "puts dropped", "answers lost", "plan's answer lost", "slow down"],
)
def test_faults_of_the_server_change_no_byte(server, url, made, kind, operation, values):
    there = put_folder(server, made / "corpus", url)
    with server.breaking(kind, *filter(None, [operation]), **values) as fault:
        result = run("tokenize", there, "-o", f"{url}/store", *PARTS)
    assert fault.num_done >= values.get("limit", 3)
    assert result.exit_code == 0, result.stderr
    check_same(read_url(server, f"{url}/store"), read_tree(made / "store"))


def test_a_server_that_is_down_ends_the_run_which_continues_later(server, url, made):
    words = ("tokenize", made / "corpus", "-o", f"{url}/store", *PARTS)
    with server.breaking("refuse", num_before=20) as fault:
        result = run(*words)
    assert fault.num_done > 1
    assert result.exit_code == 5
    assert re.match(rf"Error: {url}/store\S*: .*(request rate|Unavailable)", result.stderr)
    assert "hint: run the same command again" in result.stderr
    assert run(*words).exit_code == 0
    check_same(read_url(server, f"{url}/store"), read_tree(made / "store"))


def test_what_is_missing_is_said(server, remote, made):
    result = run("tokenize", made / "corpus", "-o", "s3://no-such-bucket/store")
    assert result.exit_code == 4
    assert "s3://no-such-bucket/store: no such bucket" in result.stderr
    put_object(server.upstream, f"{remote.removeprefix('s3://')}/new/", b"")  # marks a folder
    for _ in range(2):
        assert run("tokenize", made / "corpus", "-o", f"{remote}/new").exit_code == 0
    put_object(server.upstream, f"{remote.removeprefix('s3://')}/shards/plan.json", b"{}")
    with pytest.raises(FolderError, match=r"interrupted at its end, plan\.json still exists"):
        open_shards(f"{remote}/shards")
    remove_object(server.upstream, f"{remote.removeprefix('s3://')}/store/manifest.json")
    result = run("inspect", f"{remote}/store")
    assert result.exit_code == 4
    assert f"{remote}/store: no manifest.json, expected a token store" in result.stderr


def test_a_package_that_is_missing_is_named(tmp_path):
    code = "import sys; sys.modules['s3fs'] = None; sys.argv[0] = 'seqpack'\n"
    code += "from seqpack_cli.__main__ import run\nsys.exit(run())"
    words = ("tokenize", f"s3://{BUCKET}/corpus", "-o", str(tmp_path / "store"))
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 5, done.stderr
    assert "s3fs is not installed, s3:// needs it\n\nhint: pip install s3fs\n" in done.stderr


# The cache


def test_verify_finds_a_changed_object_though_the_cache_holds_the_old_one(server, remote, made):
    """All others go on with the copy, which is what the manifest means."""
    expected = [batch.data.tolist() for batch in open_shards(made / "shards")]
    words = ("verify", f"{remote}/shards", "--level", "structure")
    assert run(*words).exit_code == 0
    name = "shard-00001.safetensors"
    data = bytearray((made / "shards" / name).read_bytes())
    data[len(data) // 2] ^= 1
    put_object(server.upstream, f"{remote.removeprefix('s3://')}/shards/{name}", bytes(data))
    result = run(*words)
    assert (result.exit_code, name in result.stdout) == (1, True), result.stdout
    assert [batch.data.tolist() for batch in open_shards(f"{remote}/shards")] == expected


def test_a_limit_smaller_than_the_shards_holds(remote, made, tmp_path, monkeypatch):
    limit = max(path.stat().st_size for path in (made / "shards").glob("*.safetensors"))
    monkeypatch.setenv("SEQPACK_CACHE_BYTES", str(limit))
    theirs, ours = open_shards(made / "shards"), open_shards(f"{remote}/shards")
    for index in [*range(len(theirs)), *reversed(range(len(theirs)))]:
        assert ours[index].data.tolist() == theirs[index].data.tolist()
        copies = [path for path in (tmp_path / "cache").iterdir() if len(path.name) == 64]
        assert sum(path.stat().st_size for path in copies) <= limit


READ = """
import sys
from seqpack_cli import open_shards
print("ready", flush=True)
sys.stdin.readline()  # until the other one is ready too
print(sum(int(batch.data.sum()) for batch in open_shards(sys.argv[1])))
"""


def test_two_processes_fetch_each_shard_once(server, remote, made):
    pipe, code = subprocess.PIPE, [sys.executable, "-c", READ, f"{remote}/shards"]
    readers = [subprocess.Popen(code, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for reader in readers:
        assert reader.stdout.readline() == "ready\n"
    for reader in readers:
        reader.stdin.write("\n")
        reader.stdin.flush()
    answers = [reader.communicate(timeout=SECONDS)[0] for reader in readers]
    assert answers[0] == answers[1] != ""
    fetched = Counter[str]()
    for request in server.find("GetObject", key=r"shard-\d+\.safetensors$"):
        fetched[request.key.rpartition("/")[2]] += request.num_bytes
    files = (made / "shards").glob("*.safetensors")
    assert fetched == {path.name: path.stat().st_size for path in files}


# Names are taken literally: fsspec takes many for globs, and s3fs cuts some

PIECES = [  # of random names
    *"abc123._-+=@,;:!$&'()~^|<>{}\"`\\#%?*[] ",
    *("**", "g?", "[a-z]", "[!a]", "%20", "%2F", "%00", "+", "é", "e\u0301", "漢", "𝄞", "\u202e"),
    *("\t", "\x7f", "\ufeff", "..a", "a.", "a..", "-rf", "~", "$HOME", "{a,b}", "::", "c:"),
    *("manifest.json", "plan.json", ".lock", "part-00000.bin", "?list-type=2", "#gen", "?x"),
]


def name_neighbours(name: str) -> list[str]:
    """Return names that a pattern of this name would match, or that it would become when cut."""
    plain = "".join("a" if letter in "*?[]!" else letter for letter in name)
    cut = [name.partition(mark)[0] for mark in "?#%*["]
    found = {plain, *cut, name.replace("?", "1").replace("*", "1"), name.replace("[1]", "1")}
    found |= {name.strip(), name.rstrip("."), unicodedata.normalize("NFC", name), f"{name}1"}
    return sorted(found - {name, ""} - {other for other in found if other.strip("./") == ""})


def use_name(server: FaultProxy, folder: str, name: str, corpus: Path) -> None:
    """Write, read and replace a store and shards of a name; no neighbour may change."""
    neighbours = {}
    for neighbour in name_neighbours(name):
        for file in ("manifest.json", "part-00000.json", "part-00000.bin", "plan.json"):
            key = f"{neighbour}/tokens/{file}"
            neighbours[key] = key.encode()
            put_object(server.upstream, f"{BUCKET}/{folder}/{key}", key.encode())
    place = f"s3://{BUCKET}/{folder}/{name}"
    options = ("--part-bytes", 500, "--num-workers", 1, "-q")
    for words in (
        ("tokenize", corpus, "-o", f"{place}/tokens", *options),
        ("tokenize", corpus, "-o", f"{place}/tokens", *options, "--eos", "<eos>", "--overwrite"),
        ("pack", f"{place}/tokens", "-o", f"{place}/shards", "--num-workers", 1, "-q"),
        ("inspect", f"{place}/shards", "--sequence", 3),
        ("verify", f"{place}/shards", "--level", "structure"),
        ("unpack", f"{place}/shards", "--text", "-o", f"{place}/rows.jsonl", "--overwrite"),
        ("tokenize", f"{place}/rows.jsonl", "-o", f"{place}/again", *options),
    ):
        result = run(*words)
        assert result.exit_code == 0, (name, words[0], result.stderr)
    found = read_objects(server.upstream, BUCKET, folder)
    ours = {key.removeprefix(f"{name}/") for key in found if key.startswith(f"{name}/")}
    assert {key: found[key] for key in found if not key.startswith(f"{name}/")} == neighbours, name
    assert {"rows.jsonl", "tokens/manifest.json", "shards/manifest.json"} <= ours
    assert not any(key.endswith((".lock", "plan.json", "part-00000.json")) for key in ours), ours


@pytest.fixture
def lines(url: str, tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text("".join(f"line {number}\n" for number in range(99)))
    return tmp_path / "corpus.txt"


def test_a_name_is_taken_literally(server, tmp_path, lines):
    use_name(server, tmp_path.name, "run[1] g?*%20#é+&=", lines)


@pytest.mark.slow
def test_random_names_are_taken_literally(server, tmp_path, lines):
    """Some minutes: 30 names."""
    chance = random.Random(19)
    for number in range(30):
        name = "".join(chance.choices(PIECES, k=chance.randint(1, 8)))
        name = name.strip("/") * (1 if number % 10 else 900 // len(name.encode()))
        if name not in (".", ".."):
            use_name(server, f"{tmp_path.name}-{number}", name, lines)


def test_an_object_of_the_very_name_wins_over_what_a_glob_matches(server, url, tmp_path):
    for name, text in (("a[1].txt", "itself\n"), ("a1.txt", "one\ntwo\n")):
        put_object(server.upstream, f"{url.removeprefix('s3://')}/{name}", text.encode())
    for name, count in (("a[1].txt", 1), ("a[0-9].txt", 2)):
        result = run("tokenize", f"{url}/{name}", "-o", tmp_path / str(count), "--json")
        assert f'"num_documents": {count}' in result.stdout, result.stderr


def test_a_name_that_s3fs_would_cut_is_refused(server, url, tmp_path, lines):
    put_object(server.upstream, f"{url.removeprefix('s3://')}/x?versionId=1", b"one")
    for words in (
        ("tokenize", lines, "-o", f"{url}/x?versionId=1"),
        ("tokenize", f"{url}/x?versionId=1", "-o", tmp_path / "store"),
        ("tokenize", url, "--format", "text", "-o", tmp_path / "store"),
        ("inspect", f"{url}/x?versionId=1"),
    ):
        result = run(*words)
        assert result.exit_code == 2
        assert "names a version of an object (?versionId=), expected an object" in result.stderr
    assert read_url(server, url) == {"x?versionId=1": b"one"}
