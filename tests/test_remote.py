"""Runs whose output or input lies in an object store have the bytes of local ones.

The store is a real S3 server on this machine (`object_store`): commands refuse memory://.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from command import run
from object_store import FaultProxy, write_object
from object_store import s3_address as s3_address
from object_store import server as server

from seqpack_cli import (
    Executor,
    PackOptions,
    Progress,
    TokenizeOptions,
    open_shards,
    pack,
    tokenize,
)

BUCKET = "remote"
HERE = Executor(num_workers=1)
TEXT = "".join(f"line {number} of the text\n" for number in range(120)).encode()
PARTS = ("--part-bytes", 900, "--num-workers", 1)
SHARDS = ("--batch-size", 8, "--shard-bytes", 4000, "--num-workers", 1)
PLACES = re.compile(rb'"[^"]*/(text.txt|store)"')  # where others lie


class Stop(BaseException):
    """Stands for a kill."""


def read_url(url: str) -> dict[str, bytes]:
    """Return the objects directly below a URL."""
    protocol, _, key = url.partition("://")
    system = fsspec.filesystem(protocol, use_listings_cache=False)
    paths = [entry["name"] for entry in system.ls(key, detail=True) if entry["type"] == "file"]
    return {path.rpartition("/")[2]: system.cat_file(path) for path in paths}


def check_same(found: dict[str, bytes], folder: Path) -> None:
    """Compare objects with local files, but for what they say about where others lie."""
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"run.json", "manifest.json"}:
        if name.startswith("shard-"):  # which names the manifest of the store
            assert len(found[name]) == len(expected[name])
        else:
            assert found[name] == expected[name], name
    manifests = [PLACES.sub(b"", files["manifest.json"]) for files in (found, expected)]
    checks = [re.sub(rb'"(blake3|version)": ("[^"]*"|\d+)', b"", data) for data in manifests]
    assert checks[0] == checks[1]


@pytest.fixture
def url(server: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a place that is this test's alone, with an empty cache."""
    monkeypatch.setenv("SEQPACK_CACHE_DIR", str(tmp_path / "cache"))
    server.forget()
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_bytes(TEXT)
    return tmp_path / "text.txt"


def test_objects_are_those_of_local_files(text: Path, url: str) -> None:
    """Tokenize, pack, verify, unpack and export there and here; compare each output."""
    here = text.parent
    write_object(f"{url}/text.txt", TEXT)
    ways = [(str(here), str(text)), (url, f"{url}/text.txt")]
    for folder, source in ways:
        for words in (
            ("tokenize", source, "-o", f"{folder}/store", *PARTS),
            ("pack", f"{folder}/store", "-o", f"{folder}/shards", *SHARDS),
            ("unpack", f"{folder}/shards", "-o", f"{folder}/files/rows.jsonl"),
            ("export", f"{folder}/store", "--to", "megatron", "-o", f"{folder}/files/ids"),
        ):
            (here / "files").mkdir(exist_ok=True)
            result = run(*words)
            assert result.exit_code == 0, (words, result.output)
            if words[0] in ("tokenize", "pack"):
                assert "already complete" in run(*words).stdout
    for name in ("store", "shards"):
        check_same(read_url(f"{url}/{name}"), here / name)
    files = {path.name: path.read_bytes() for path in (here / "files").iterdir()}
    found = read_url(f"{url}/files")
    assert {name: found[name] for name in files if not name.endswith(".json")} == {
        name: data for name, data in files.items() if not name.endswith(".json")
    }
    batches = [open_shards(f"{folder}/shards") for folder, _ in ways]
    assert [batch.data.tolist() for batch in batches[0]] == [
        batch.data.tolist() for batch in batches[1]
    ]


def test_stopped_run_continues_and_another_plan_is_refused(text: Path, url: str) -> None:
    left = [1500]

    def stop(num_bytes: int) -> None:
        left[0] -= num_bytes
        if left[0] < 0:
            raise Stop

    options, progress = TokenizeOptions(part_bytes=900), Progress(on_advance=stop)
    with pytest.raises(Stop):
        tokenize(text, f"{url}/store", options, executor=HERE, progress=progress)
    before = read_url(f"{url}/store")
    assert "plan.json" in before
    assert "part-00000.json" in before
    words = ("tokenize", text, "-o", f"{url}/store", *PARTS)
    assert run("inspect", f"{url}/store").exit_code == 4
    other = run(*words, "--eos", "<eos>")
    assert other.exit_code == 4
    assert "holds a run that differs" in other.stderr
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "already finished" in result.stderr
    assert run(*words[:2], "-o", text.parent / "store", *PARTS).exit_code == 0
    check_same(read_url(f"{url}/store"), text.parent / "store")


def stop_at(monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[], None]) -> list[str]:
    """Call `do` after the put of an object of this number, from 1; return the list of all puts."""
    puts: list[str] = []
    run("inspect", f"s3://{BUCKET}/none")  # so that there is a connection to watch
    for system in type(fsspec.filesystem("s3"))._cache.values():
        for name, place in (("put_file", 1), ("pipe_file", 0)):
            put = getattr(system, name)

            def counted(*values: Any, put: Any = put, place: int = place, **options: Any) -> None:
                put(*values, **options)
                puts.append(values[place].rpartition("/")[2])
                if len(puts) == number:
                    do()

            monkeypatch.setattr(system, name, counted)
    return puts


def kill() -> None:
    raise Stop


def test_run_killed_after_any_put_continues_with_the_same_bytes(
    text: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TokenizeOptions(part_bytes=900)
    tokenize(text, text.parent / "store", options, executor=HERE)
    with monkeypatch.context() as patch:
        puts = stop_at(patch, 0, kill)
        tokenize(text, f"{url}/0", options, executor=HERE)
    assert (puts[0], puts[-1]) == ("plan.json", "manifest.json")
    for number in {1, 2, *range(3, len(puts), 3), len(puts) - 1, len(puts)}:
        with monkeypatch.context() as patch, pytest.raises(Stop):
            stop_at(patch, number, kill)
            tokenize(text, f"{url}/{number}", options, executor=HERE)
        is_complete = tokenize(text, f"{url}/{number}", options, executor=HERE)[1]
        assert is_complete == (number == len(puts))
        check_same(read_url(f"{url}/{number}"), text.parent / "store")


def test_of_two_plans_at_one_place_the_second_is_refused(
    text: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the first is stopped, or still at work: also before its first part is finished."""
    words, said = ("tokenize", text, "-o", f"{url}/store", *PARTS), []

    def run_other() -> None:
        said.append(run(*words, "--eos", "<eos>"))
        raise Stop

    for number in (1, 2, 5):
        stop_at(monkeypatch, number, run_other)
        with pytest.raises(Stop):
            tokenize(text, f"{url}/store", TokenizeOptions(part_bytes=900), executor=HERE)
        monkeypatch.undo()
        monkeypatch.setenv("SEQPACK_CACHE_DIR", str(text.parent / "cache"))
        assert said[-1].exit_code == 4
        assert "holds a run that differs: was no --eos, is --eos <eos>" in said[-1].stderr
    assert run(*words).exit_code == 0


def test_plan_that_appears_at_the_same_moment_is_not_replaced(
    text: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look of a run at its place and its first put."""
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, 1, kill)
        tokenize(text, f"{url}/other", TokenizeOptions(eos="<eos>"), executor=HERE)
    plan = read_url(f"{url}/other")["plan.json"]
    for system in type(fsspec.filesystem("s3"))._cache.values():

        def put_late(key: str, *values: Any, put: Any = system.pipe_file, **options: Any) -> None:
            if f"s3://{key}" == f"{url}/store/plan.json":
                put(key, plan)
            put(key, *values, **options)

        monkeypatch.setattr(system, "pipe_file", put_late)
    result = run("tokenize", text, "-o", f"{url}/store", *PARTS)
    assert result.exit_code == 4, result.output
    assert read_url(f"{url}/store") == {"plan.json": plan}


def test_run_whose_place_was_taken_over_stops(
    text: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("tokenize", text, "-o", f"{url}/store", *PARTS)
    other = []

    def replace() -> None:
        monkeypatch.undo()
        monkeypatch.setenv("SEQPACK_CACHE_DIR", str(text.parent / "cache"))
        assert run(*words, "--eos", "<eos>", "--overwrite").exit_code == 0
        other.append(read_url(f"{url}/store"))

    puts = stop_at(monkeypatch, 4, replace)
    result = run(*words)
    assert result.exit_code == 4, result.output
    assert f"{url}/store: another run has taken this place over" in result.stderr
    assert len(puts) == 4
    assert read_url(f"{url}/store") == other[0]


@pytest.mark.parametrize(
    ("name", "code", "fragment"),
    [
        ("notes.txt", 4, "holds other files (notes.txt)"),
        ("part-00000.bin", 4, "without a manifest or plan"),
        ("manifest.json", 4, "manifest.json"),
    ],
)
def test_objects_of_others_stay(text: Path, url: str, name: str, code: int, fragment: str) -> None:
    write_object(f"{url}/store/{name}", b"x")
    result = run("tokenize", text, "-o", f"{url}/store", *PARTS)
    assert result.exit_code == code
    assert fragment in result.stderr
    result = run("tokenize", text, "-o", f"{url}/store/{name}", *PARTS)
    assert (result.exit_code, "an object, expected a folder" in result.stderr) == (4, True)
    assert read_url(f"{url}/store") == {name: b"x"}


def test_damaged_object_is_named(text: Path, url: str) -> None:
    tokenize(text, f"{url}/store", TokenizeOptions(part_bytes=900), executor=HERE)
    pack(f"{url}/store", f"{url}/shards", PackOptions(batch_size=8), executor=HERE)
    place = f"{url}/shards/shard-00000.safetensors"
    data = read_url(f"{url}/shards")["shard-00000.safetensors"]
    for damaged in (data[:-9], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], None):
        if damaged is None:
            fsspec.filesystem("s3").rm_file(place.removeprefix("s3://"))
        else:
            write_object(place, damaged)
        result = run("unpack", f"{url}/shards", "-o", text.parent / "rows.jsonl")
        assert result.exit_code == 4, result.output
        assert place in result.stderr


def test_cache_is_used_and_its_damaged_copies_are_fetched_again(
    server: FaultProxy, text: Path, url: str
) -> None:
    rows = []
    tokenize(text, f"{url}/store", executor=HERE)
    pack(f"{url}/store", f"{url}/shards", PackOptions(batch_size=8), executor=HERE)
    for _ in range(2):
        server.forget()
        rows.append([batch.data.tolist() for batch in open_shards(f"{url}/shards")])
    assert not server.find("GetObject", key="safetensors$")
    assert rows[0] == rows[1]
    for copy in (text.parent / "cache").iterdir():
        if re.fullmatch("[0-9a-f]{64}", copy.name):
            copy.write_bytes(b"x")
    assert [batch.data.tolist() for batch in open_shards(f"{url}/shards")] == rows[0]


def test_verify_hashes_cached_copies(text: Path, url: str) -> None:
    tokenize(text, f"{url}/store", executor=HERE)
    pack(f"{url}/store", f"{url}/shards", PackOptions(batch_size=8), executor=HERE)
    words = ("verify", f"{url}/shards", "--level", "roundtrip")
    assert run(*words).exit_code == 0
    cached = [path for path in (text.parent / "cache").iterdir() if path.name[0] != "."]
    assert len(cached) == 3  # ids and index of a part, and a shard
    for copy in cached:
        copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    assert run(*words).exit_code == 0


SECRETS = """
s3://AKIA:SECRET@bucket/x  s3://AKIA:SEC/RET+SECRET@bucket/x  s3://SECRET@bucket/x
gs://bucket/x?X-Goog-Signature=SECRET  https://host/x.jsonl?sig=SECRET  s3:/AKIA:SECRET@bucket/x
s3://bucket/x.jsonl?X-Amz-Credential=SECRET&X-Amz-Signature=SECRET  https://me:SECRET@host/x.jsonl
s3://bucket/*.jsonl?part=1&token=SECRET  s3://bucket/x?X%2DAmz%2DSignature=SECRET
s3://bucket/x%3Ftoken%3DSECRET  s3://bucket/x#access_token=SECRET  s3://bucket/x;password=SECRET
"""
WITH_URL = """
tokenize URL -o new; tokenize a.txt -o URL; tokenize a.txt -o new --tokenizer URL; pack URL -o new
train-tokenizer URL -o new; train-tokenizer a.txt -o URL; pack a.txt -o URL; inspect URL --json
inspect a.txt --html URL; verify URL --json; verify a.txt --tokens URL; unpack URL -o new
unpack a.txt -o URL; export URL -o new; export a.txt -o URL; diff URL a.txt
"""


@pytest.mark.parametrize("url", [*SECRETS.split(), " s3://AKIA:SECRET@bucket/x"])
def test_secret_in_a_url_is_refused_everywhere_and_never_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("x\n")
    for line in re.split("[;\n] *", WITH_URL.strip()):
        result = run(*(url if word == "URL" else word for word in line.split()))
        assert result.exit_code == 2, (line, result.output)
        assert not re.search("SECRET|AKIA", result.output), line
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_web_address_is_refused(text: Path) -> None:
    for source in ("https://example.com/a.txt", "s3:/b/a.txt"):
        result = run("tokenize", source, "-o", text.parent / "store")
        assert result.exit_code == 2, result.output
    result = run("tokenize", text, "-o", "memory://bucket/store")
    assert (result.exit_code, "ends with this command" in result.stderr) == (2, True)
    assert not (text.parent / "store").exists()


def test_manifest_that_is_too_large_is_not_read(text: Path, url: str) -> None:
    store = text.parent / "store"
    assert run("tokenize", text, "-o", store).exit_code == 0
    data = (store / "manifest.json").read_bytes()
    write_object(f"{url}/store/manifest.json", data + b" " * (128 << 20))
    result = run("inspect", f"{url}/store")
    assert result.exit_code == 4
    assert re.search(r"manifest.json: [\d,]+ bytes, expected at most", result.stderr)


def test_cache_keeps_what_was_used_last(
    text: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenize(text, f"{url}/store", executor=HERE)
    options = PackOptions(batch_size=40, shard_bytes=1)
    manifest, _ = pack(f"{url}/store", f"{url}/shards", options, executor=HERE)
    first, second, third = manifest["shards"]
    room = first["bytes"] + max(second["bytes"], third["bytes"])
    monkeypatch.setenv("SEQPACK_CACHE_BYTES", str(room))
    monkeypatch.setenv("SEQPACK_CACHE_DIR", str(text.parent / "small"))
    for number in (0, 1, 0, 2):
        assert open_shards(f"{url}/shards")[number] is not None
    names = {path.name for path in (text.parent / "small").iterdir() if len(path.name) == 64}
    assert names == {first["blake3"], third["blake3"]}
