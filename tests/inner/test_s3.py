"""Runs whose input, output or both lie on a real S3 server, each compared with a local run.

The server's faults are a proxy's (`object_store`), which says how often each of them happened: a
test whose fault met no request fails.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3
from command import run
from here import HERE, import_zstd
from object_store import (
    FaultProxy,
    put_object,
    read_objects,
    remove_object,
    write_object,
)
from unfinished import Stop

from seqpack_cli import PackOptions, ShardDataset, TokenizeOptions, open_shards, open_store
from seqpack_cli.corpus.find_files import find_sources
from seqpack_cli.errors import FolderError
from seqpack_cli.files import objects
from seqpack_cli.files.objects import Url, read_object
from seqpack_cli.files.places import parse_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.pack import pack
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.tokens.tokenize_run import tokenize

COMMAND = [sys.executable, "-m", "seqpack_cli"]
BUCKET = "bucket"
PART_BYTES = 25_000  # of the texts: six parts
SHARD_BYTES = 30_000
SECONDS = 60  # until a child process counts as hanging
RUN_NAMES = {"run.json"}  # what says only how a run was done
PLACES = re.compile(rb'(s3:/)?/[^"]*/(?=corpus)|(?<="path": )"[^"]*store"')


# The server, and what a test has of it


@pytest.fixture
def url(server: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a place in the bucket that is this test's alone, with an empty cache and record."""
    monkeypatch.setenv("SEQPACK_CACHE_DIR", str(tmp_path / "cache"))
    server.forget()
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, sample_data: Path) -> Path:
    """Write a folder of every kind of file."""
    import pyarrow
    from pyarrow import parquet

    zstd = import_zstd()

    folder = tmp_path_factory.mktemp("s3") / "corpus"
    (folder / "deep er").mkdir(parents=True)
    lines = (sample_data / "stories.txt").read_text().splitlines()
    text = "".join(f"{number} {line}\n" for number, line in enumerate(lines * 40))[:120_000]
    records = [json.dumps({"text": line, "n": n}) + "\n" for n, line in enumerate(lines * 3)]
    (folder / "a.txt").write_text(text)
    (folder / "b.txt.gz").write_bytes(gzip.compress(text[:30_000].encode()))
    (folder / "c.jsonl.zst").write_bytes(zstd.compress("".join(records).encode()))
    (folder / "deep er" / "d-ü%.jsonl").write_text("".join(records))
    table = pyarrow.table({"text": lines * 5})
    parquet.write_table(table, folder / "e.parquet", row_group_size=50)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """Write a folder of what needs no process of its own, as Parquet does."""
    folder = tmp_path_factory.mktemp("s3") / "corpus"
    folder.mkdir()
    for path in (corpus / "a.txt", corpus / "b.txt.gz"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture(scope="module")
def store(texts: Path) -> Path:
    """Tokenize the texts locally."""
    options = ("--part-bytes", PART_BYTES, "--num-workers", 1)
    result = run("tokenize", texts, "-o", texts.parent / "store", *options)
    assert result.exit_code == 0, result.stderr
    return texts.parent / "store"


@pytest.fixture(scope="module")
def shards(store: Path) -> Path:
    """Pack the local store locally."""
    options = ("--shard-bytes", SHARD_BYTES, "--num-workers", 1)
    result = run("pack", store, "-o", store.parent / "shards", *options)
    assert result.exit_code == 0, result.stderr
    return store.parent / "shards"


def put_folder(server: FaultProxy, folder: Path, url: str) -> str:
    """Put a local folder's files under a URL, and return its name there."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            key = f"{url.removeprefix('s3://')}/{folder.name}/{path.relative_to(folder)}"
            put_object(server.upstream, key, path.read_bytes())
    return f"{url}/{folder.name}"


def read_url(server: FaultProxy, url: str) -> dict[str, bytes]:
    return read_objects(server.upstream, BUCKET, url.removeprefix(f"s3://{BUCKET}/"))


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_same(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Compare a folder's files, but for what they say about where others lie."""
    assert set(found) == set(expected)
    for name in set(expected) - RUN_NAMES:
        assert PLACES.sub(b"", found[name]) == PLACES.sub(b"", expected[name]), name


def start(*arguments: object, code: str | None = None) -> subprocess.Popen[str]:
    """Start the program, or other code, in a process of its own."""
    command = [sys.executable, "-c", code] if code else COMMAND
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*command, *map(str, arguments)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


# Requests


def test_a_manifest_is_read_once_when_its_folder_is_opened(server, remote, store):
    """A listing tells whether the run ended and how long all files are, one look how long it is."""
    for name, open_folder in (("store", open_store_alone), ("shards", open_shards)):
        server.forget()
        opened = open_folder(f"{remote}/{name}")
        requests = [(found.operation, found.key.rpartition("/")[2]) for found in server.find()]
        expected = [("HeadObject", "manifest.json"), ("GetObject", "manifest.json")]
        assert requests[0][0] == "ListObjects"
        assert requests[1:] == expected
        assert len(opened) > 0
    digest = blake3((store / "manifest.json").read_bytes()).hexdigest()
    assert open_store_alone(f"{remote}/store").digest == digest


def open_store_alone(url: str) -> TokenStore:
    return open_store(url, check_indices=False)


@pytest.mark.parametrize("name", ["store", "shards"])
def test_a_folder_whose_plan_is_still_there_is_unfinished(server, remote, name):
    put_object(server.upstream, f"{remote.removeprefix('s3://')}/{name}/plan.json", b"{}")
    with pytest.raises(FolderError, match=r"interrupted at its end, plan\.json still exists"):
        open_store(f"{remote}/{name}") if name == "store" else open_shards(f"{remote}/{name}")


# The same bytes


@pytest.mark.parametrize(
    "name",
    [
        *("", "/deep er/d-ü%.jsonl", "/*.*[tz]"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("/a.txt", "/b.txt.gz", "/c.jsonl.zst", "/e.parquet")
        ),
    ],
)
def test_tokenize_from_s3_gives_the_bytes_of_a_local_run(server, url, corpus, tmp_path, name):
    there = put_folder(server, corpus, url)
    options = ("--part-bytes", PART_BYTES, "--num-workers", 1)
    for source, output in ((f"{corpus}{name}", "local"), (f"{there}{name}", "remote")):
        result = run("tokenize", source, "-o", tmp_path / output, *options)
        assert result.exit_code == 0, result.stderr
    check_same(read_folder(tmp_path / "remote"), read_folder(tmp_path / "local"))
    assert server.find("GetObject", key="corpus/")


def test_workers_read_ranges_of_one_object(server, url, texts, store, tmp_path):
    there = put_folder(server, texts, url)
    options = ("--part-bytes", PART_BYTES, "--num-workers", 2)
    result = run("tokenize", there, "-o", tmp_path / "remote", *options)
    assert result.exit_code == 0, result.stderr
    check_same(read_folder(tmp_path / "remote"), read_folder(store))


def test_tokenize_to_s3_gives_the_objects_of_a_local_run(server, url, texts, store):
    result = run("tokenize", texts, "-o", f"{url}/store", "--part-bytes", PART_BYTES)
    assert result.exit_code == 0, result.stderr
    check_same(read_url(server, f"{url}/store"), read_folder(store))
    again = run("tokenize", texts, "-o", f"{url}/store", "--part-bytes", PART_BYTES)
    assert again.exit_code == 0
    assert "already complete" in again.stdout + again.stderr


def test_the_manifest_is_the_last_object_of_a_run(server, url, texts):
    for arguments in (
        ("tokenize", texts, "--part-bytes", PART_BYTES, "-o", f"{url}/store"),
        ("pack", f"{url}/store", "--shard-bytes", SHARD_BYTES, "-o", f"{url}/shards"),
    ):
        server.forget()
        assert run(*arguments, "--num-workers", 1).exit_code == 0
        puts = server.find("PutObject", "CompleteMultipartUpload", key=r"/[^.][^/]*$")
        names = [request.key.rpartition("/")[2] for request in puts]
        assert names.count("manifest.json") == 1
        assert names[-1] == "manifest.json"
        assert len(names) > 10


@pytest.mark.parametrize("places", ["s3 to s3", "s3 to local", "local to s3"])
def test_pack_gives_the_same_shards_anywhere(server, url, store, shards, tmp_path, places):
    source = put_folder(server, store, url) if places.startswith("s3") else store
    output = f"{url}/shards" if places.endswith("s3") else tmp_path / "shards"
    options = ("--shard-bytes", SHARD_BYTES, "--num-workers", 1)
    result = run("pack", source, "-o", output, *options)
    assert result.exit_code == 0, result.stderr
    found = read_url(server, output) if isinstance(output, str) else read_folder(output)
    check_same(found, read_folder(shards))


def test_pairs_are_packed_in_an_object_store_as_on_a_disk(server, url, store, tmp_path):
    """Each text with itself; the other side's tokenizer is an object of its own."""
    there = put_folder(server, store, url)
    for source, output in ((store, tmp_path / "out"), (there, f"{url}/out")):
        result = run("pack", source, "--decoder", source, "-o", output, "--num-workers", 1)
        assert result.exit_code == 0, result.stderr
    found, expected = read_url(server, f"{url}/out"), read_folder(tmp_path / "out")
    assert "decoder.tokenizer.json" in expected
    check_same(found, expected)
    here, opened = open_shards(tmp_path / "out").decoder, open_shards(f"{url}/out").decoder
    assert [row.tolist() for row in opened[0].rows()] == [row.tolist() for row in here[0].rows()]


def test_splits_of_stores_are_packed_in_an_object_store_as_on_a_disk(
    server, url, texts, store, tmp_path
):
    """A run that stops is continued there, and splits that no longer exist are removed."""
    more = tmp_path / "more-store"
    assert run("tokenize", texts / "b.txt.gz", "-o", more, "--num-workers", 1).exit_code == 0
    here = [Path(shutil.copytree(store, tmp_path / "store")), more]  # "../store" in both places
    there = [put_folder(server, each, url) for each in here]
    done: list[int] = []

    def stop(_: int) -> None:
        done.append(1)
        if len(done) == 12:
            raise Stop

    options = {"passes": "more-store=1.5", "shard_bytes": SHARD_BYTES, "batch_size": 16}
    packing = PackOptions(split="train=0.6,test=rest", **options)
    with pytest.raises(Stop):
        pack(there, f"{url}/out", packing, executor=HERE, progress=Progress(on_advance=stop))
    result = run("inspect", f"{url}/out")
    assert result.exit_code == 4
    assert re.match(rf"Error: {url}/out: incomplete run, 1 of 2 splits finished", result.stderr)
    for split in (packing.split, "train=0.8,dev=rest"):
        packing = replace(packing, split=split)
        overwrite = split != "train=0.6,test=rest"
        for stores, place in ((there, f"{url}/out"), (here, tmp_path / "out")):
            _, was_complete = pack(stores, place, packing, executor=HERE, overwrite=overwrite)
            assert not was_complete
        found = read_url(server, f"{url}/out")
        files = filter(Path.is_file, (tmp_path / "out").rglob("*"))
        ours = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in files}
        names = {name for name in found if not name.endswith("run.json")}
        assert {name: found[name] for name in names} == {name: ours[name] for name in names}
    assert run("verify", f"{url}/out", "--level", "structure").exit_code == 0


def test_columns_go_through_an_object_store(server, url, corpus, tmp_path):
    there = put_folder(server, corpus / "deep er", url)
    for source, place in ((corpus / "deep er", str(tmp_path)), (there, url)):
        keep = ("--keep", "n", "--keep", "text", "--part-bytes", PART_BYTES, "--num-workers", 1)
        assert run("tokenize", source, "-o", f"{place}/store", *keep).exit_code == 0
        assert run("pack", f"{place}/store", "-o", f"{place}/shards", "--shuffle").exit_code == 0
        level = ("--level", "roundtrip", "--tokens", f"{place}/store")
        assert run("verify", f"{place}/shards", *level).exit_code == 0
    found, expected = read_url(server, f"{url}/store"), read_folder(tmp_path / "store")
    columns = [name for name in expected if name.endswith(".columns.safetensors")]
    assert len(columns) > 1
    assert [found[name] for name in columns] == [expected[name] for name in columns]


# Readers


@pytest.fixture
def remote(server: FaultProxy, url: str, store: Path, shards: Path) -> str:
    """Return the URL below which the local store and shards lie too."""
    put_folder(server, store, url)
    put_folder(server, shards, url)
    return url


@pytest.mark.parametrize("name", ["store", "shards"])
def test_inspect_says_the_same_of_objects(remote, store, name):
    here, there = (
        json.loads(run("inspect", f"{place}/{name}", "--json").stdout)
        for place in (store.parent, remote)
    )
    text = json.dumps(there).replace(remote, str(store.parent))
    assert json.loads(text) == here


def test_verify_proves_objects(remote):
    result = run(
        "verify", f"{remote}/shards", "--level", "roundtrip", "--tokens", f"{remote}/store"
    )
    assert result.exit_code == 0, result.stdout + result.stderr


def test_unpack_gives_the_same_lines(server, remote, shards, tmp_path):
    assert run("unpack", shards, "-o", tmp_path / "here.jsonl").exit_code == 0
    assert run("unpack", f"{remote}/shards", "-o", tmp_path / "there.jsonl").exit_code == 0
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    assert run("unpack", f"{remote}/shards", "-o", f"{remote}/out/lines.jsonl").exit_code == 0
    found = read_url(server, f"{remote}/out")
    assert found == {"lines.jsonl": (tmp_path / "here.jsonl").read_bytes()}


@pytest.mark.parametrize("to", ["parquet", "megatron", "nanogpt"])
def test_an_export_has_the_same_files_anywhere(server, remote, store, tmp_path, to):
    (tmp_path / "out").mkdir()
    assert run("export", store, "-o", tmp_path / "out" / "x", "--to", to).exit_code == 0
    for _ in range(2):
        arguments = ("export", f"{remote}/store", "-o", f"{remote}/out/x", "--to", to)
        assert run(*arguments, "--overwrite").exit_code == 0
    expected = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert read_url(server, f"{remote}/out") == expected


def test_overwrite_replaces_no_object_but_an_earlier_output(remote, shards, sample_data):
    lines, other = f"{remote}/mine/lines.jsonl", f"{remote}/shards/manifest.json"
    for _ in range(2):
        assert run("unpack", f"{remote}/shards", "-o", lines, "--overwrite").exit_code == 0
    tokenizer = f"{remote}/mine/tokenizer.json"  # longer objects are asked for in ranges
    for _ in range(2):
        arguments = (
            "train-tokenizer",
            sample_data / "stories.txt",
            "--vocab-size",
            300,
            "-o",
            tokenizer,
        )
        assert run(*arguments, "--overwrite").exit_code == 0
    write_object(Url(lines), b"a thesis")
    before = {place: read_object(Url(place)) for place in (lines, other)}
    for place in (lines, other, f"{remote}/shards/new.jsonl"):
        result = run("unpack", f"{remote}/shards", "-o", place, "--overwrite")
        assert result.exit_code == 4, result.stderr
        assert result.stderr.startswith(f"Error: {place}: ")
    assert {place: read_object(Url(place)) for place in before} == before
    assert not Url(f"{remote}/shards/new.jsonl").exists()


def test_the_library_reads_urls(remote, store, shards):
    there = open_store(parse_place(f"{remote}/store"))
    here = open_store(store)
    assert [row.tolist() for row in there] == [row.tolist() for row in here]
    ours, theirs = ShardDataset(parse_place(f"{remote}/shards")), ShardDataset(shards)
    assert len(ours) == len(theirs) > 10
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.sequences.data.equal(other.sequences.data)


def test_the_library_takes_a_url_as_text(remote, shards):
    assert len(open_shards(f"{remote}/shards")) == len(open_shards(shards))


def test_a_url_in_memory_and_one_of_a_file_are_places_too(texts, store, shards, tmp_path):
    expected = [batch.data.tolist() for batch in open_shards(shards)]
    for place in (Url(f"memory://{tmp_path.name}"), parse_place(f"file://{tmp_path}/file")):
        options = TokenizeOptions(part_bytes=PART_BYTES)
        tokenize([str(texts)], place / "store", options, executor=HERE)
        packing = PackOptions(shard_bytes=SHARD_BYTES)
        pack(place / "store", place / "shards", packing, executor=HERE)
        assert [batch.data.tolist() for batch in open_shards(place / "shards")] == expected
    assert read_folder(tmp_path / "file" / "store").keys() == read_folder(store).keys()


# Runs that are broken off


def test_an_answer_that_is_lost_does_not_lock_a_run_out(server, url, texts, store):
    options = ("--part-bytes", PART_BYTES, "--num-workers", 1)
    with server.breaking("lose", "PutObject", key=r"plan\.json$", limit=1) as fault:
        result = run("tokenize", texts, "-o", f"{url}/store", *options)
    assert fault.num_done == 1
    assert result.exit_code == 0, result.stderr
    check_same(read_url(server, f"{url}/store"), read_folder(store))


@pytest.mark.parametrize(
    ("kind", "operation", "values"),
    [
        ("cut", "GetObject", {"every": 3, "num_bytes": 700}),
        ("drop", "GetObject", {"every": 4}),
        ("drop", "PutObject", {"every": 4, "num_bytes": 500}),
        ("lose", "PutObject", {"every": 4}),
        pytest.param(  # each costs a second or two
            "refuse", "", {"every": 3, "limit": 12}, marks=pytest.mark.slow
        ),
    ],
    ids=["answers cut", "gets dropped", "puts dropped", "answers lost", "slow down"],
)
def test_faults_of_the_server_change_no_byte(server, url, texts, store, kind, operation, values):
    there = put_folder(server, texts, url)
    operations = (operation,) if operation else ()
    with server.breaking(kind, *operations, **values) as fault:
        result = run(
            *("tokenize", there, "-o", f"{url}/store", "--part-bytes", PART_BYTES),
            *("--num-workers", 1),
        )
    assert fault.num_done > 2
    assert result.exit_code == 0, result.stderr
    check_same(read_url(server, f"{url}/store"), read_folder(store))


@pytest.mark.slow
def test_a_server_that_is_down_ends_the_run_which_continues_later(
    server, url, texts, store, monkeypatch
):
    import s3fs

    patient = objects.S3_SETTINGS["config_kwargs"]
    hasty = {"config_kwargs": {**patient, "retries": {"mode": "standard", "max_attempts": 1}}}
    monkeypatch.setattr(objects, "S3_SETTINGS", {**objects.S3_SETTINGS, **hasty})
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 2)
    objects.open_file_system.cache_clear()
    arguments = ("tokenize", texts, "-o", f"{url}/store", "--part-bytes", PART_BYTES)
    with server.breaking("refuse", num_before=20) as fault:
        result = run(*arguments, "--num-workers", 1)
    objects.open_file_system.cache_clear()
    assert fault.num_done > 1
    assert result.exit_code == 5
    assert re.match(
        rf"Error: {re.escape(url)}/store\S*: .*(request rate|Unavailable)", result.stderr
    )
    assert "hint: run the same command again" in result.stderr
    assert "Traceback" not in result.stderr
    again = run(*arguments, "--num-workers", 1)
    assert again.exit_code == 0, again.stderr
    check_same(read_url(server, f"{url}/store"), read_folder(store))


def test_a_slash_at_the_end_asks_for_what_lies_below(server, url):
    key = url.removeprefix("s3://")
    put_object(server.upstream, f"{key}/name.txt", b"itself")
    put_object(server.upstream, f"{key}/name.txt/below.txt", b"below")
    for name, found in (("name.txt/", "name.txt/below.txt"), ("name.txt", "name.txt")):
        sources, _ = find_sources([f"{url}/{name}"])
        assert [source.path for source in sources] == [f"{url}/{found}"]


def test_many_objects_of_one_folder_need_one_request(server, url, monkeypatch):
    names = [f"{url}/{number}.txt" for number in (2, 0, 1)]
    for name in names:
        put_object(server.upstream, name.removeprefix("s3://"), b"text")
    one_by_one, _ = find_sources(names)
    monkeypatch.setattr(LIMITS, "objects_listed", 3)
    server.forget()
    assert find_sources(names)[0] == one_by_one
    assert [source.path for source in one_by_one] == names
    assert len(server.find()) == 1


def test_a_mark_of_a_folder_is_no_file_in_it(server, url, texts):
    put_object(server.upstream, f"{url.removeprefix('s3://')}/store/", b"")
    for _ in range(2):
        result = run("tokenize", texts, "-o", f"{url}/store", "--num-workers", 1)
        assert result.exit_code == 0, result.stderr


def test_a_bucket_that_is_not_there_is_said(url, texts):
    result = run("tokenize", texts, "-o", "s3://no-such-bucket/store", "--num-workers", 1)
    assert result.exit_code == 4
    assert "s3://no-such-bucket/store: no such bucket" in result.stderr


# What is not as the manifest says


@pytest.mark.parametrize("name", ["store", "shards"])
def test_a_missing_manifest_is_said_as_of_a_folder(server, remote, store, tmp_path, name):
    remove_object(server.upstream, f"{remote.removeprefix('s3://')}/{name}/manifest.json")
    here = tmp_path / name
    here.mkdir()
    for path in (store.parent / name).iterdir():
        if path.name != "manifest.json":
            (here / path.name).write_bytes(path.read_bytes())
    errors = [run("inspect", place) for place in (f"{remote}/{name}", here)]
    assert [error.exit_code for error in errors] == [4, 4]
    there, local = (error.stderr for error in errors)
    assert there.replace(f"{remote}/{name}", str(here)) == local


def flip(server: FaultProxy, url: str, data: bytes) -> None:
    """Put an object again with one bit in its middle changed."""
    middle = len(data) // 2
    changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    put_object(server.upstream, url.removeprefix("s3://"), changed)


def test_an_object_that_was_changed_is_refused_by_name(server, remote, store, shards, tmp_path):
    flip(server, f"{remote}/store/part-00001.bin", (store / "part-00001.bin").read_bytes())
    result = run("pack", f"{remote}/store", "-o", tmp_path / "out", "--num-workers", 1)
    assert result.exit_code == 4
    assert f"{remote}/store/part-00001.bin: blake3 differs from the manifest's" in result.stderr
    name = "shard-00001.safetensors"
    flip(server, f"{remote}/shards/{name}", (shards / name).read_bytes())
    result = run("unpack", f"{remote}/shards", "-o", tmp_path / "lines")
    assert result.exit_code == 4
    assert f"{remote}/shards/{name}: blake3 differs from the manifest's" in result.stderr


def test_verify_finds_a_changed_object_though_the_cache_holds_the_old_one(server, remote, shards):
    arguments = ("verify", f"{remote}/shards", "--level", "structure")
    assert run(*arguments).exit_code == 0
    name = "shard-00001.safetensors"
    flip(server, f"{remote}/shards/{name}", (shards / name).read_bytes())
    result = run(*arguments)
    assert result.exit_code == 1, result.stdout
    assert name in result.stdout


def test_the_cache_never_gives_other_bytes_than_the_manifest_means(server, remote, shards):
    there, here = (
        lambda: [batch.data.tolist() for batch in open_shards(parse_place(f"{remote}/shards"))],
        [batch.data.tolist() for batch in open_shards(shards)],
    )
    assert there() == here
    name = "shard-00001.safetensors"
    flip(server, f"{remote}/shards/{name}", (shards / name).read_bytes())
    assert there() == here


# The cache

READ = """
import sys, torch
from seqpack_cli import ShardDataset
from seqpack_cli.files.places import parse_place
print("ready", flush=True)
sys.stdin.readline()  # until the other one is ready too
dataset = ShardDataset(parse_place(sys.argv[1]))
print(sum(int(dataset[i].sequences.data.sum()) for i in range(len(dataset))))
"""


def count_fetches(server: FaultProxy) -> dict[str, int]:
    """Return how many bytes of each shard were sent, by name."""
    found: dict[str, int] = {}
    for request in server.find("GetObject", key=r"shard-\d+\.safetensors$"):
        name = request.key.rpartition("/")[2]
        found[name] = found.get(name, 0) + request.num_bytes
    return found


def read_sizes(shards: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in shards.glob("shard-*.safetensors")}


def test_a_second_reader_fetches_nothing(server, remote, shards):
    def read() -> int:
        dataset = ShardDataset(parse_place(f"{remote}/shards"))
        return sum(int(dataset[index].sequences.data.sum()) for index in range(len(dataset)))

    first = read()
    assert count_fetches(server) == read_sizes(shards)
    server.forget()
    assert read() == first
    assert count_fetches(server) == {}


@pytest.mark.slow
def test_two_processes_fetch_each_shard_once(server, remote, shards):
    readers = [start(f"{remote}/shards", code=READ) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("\n")
        reader.stdin.flush()
    answers = [reader.communicate(timeout=SECONDS) for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert count_fetches(server) == read_sizes(shards)


def test_a_limit_smaller_than_the_shards_holds(remote, shards, tmp_path, monkeypatch):
    sizes = read_sizes(shards)
    limit = max(sizes.values())
    assert sum(sizes.values()) > 2 * limit
    monkeypatch.setenv("SEQPACK_CACHE_BYTES", str(limit))
    theirs = ShardDataset(shards)
    ours = ShardDataset(parse_place(f"{remote}/shards"))
    for index in [*range(len(theirs)), *reversed(range(len(theirs)))]:
        assert ours[index].sequences.data.equal(theirs[index].sequences.data)
        assert sum(path.stat().st_size for path in list_copies(tmp_path)) <= limit


# Copies that went bad on the disk of the cache


def list_copies(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").iterdir() if len(path.name) == 64]


def spoil_copies(tmp_path: Path) -> int:
    """Flip a bit in the middle of every copy, as a disk does: the time of change stays."""
    copies = list_copies(tmp_path)
    for path in copies:
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=times)
    return len(copies)


# Machines without the package


def test_a_package_that_is_missing_is_named(url, tmp_path):
    code = """
import sys
sys.modules["s3fs"] = None
from seqpack_cli.__main__ import run
sys.argv[0] = "seqpack"
sys.exit(run())
"""
    child = start("tokenize", f"{url}/corpus", "-o", tmp_path / "store", code=code)
    _, stderr = child.communicate(timeout=SECONDS)
    assert child.returncode == 5, stderr
    assert "s3fs is not installed, s3:// needs it" in stderr
    assert "hint: pip install s3fs" in stderr
