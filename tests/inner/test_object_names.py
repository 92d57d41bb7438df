"""Names of objects with every kind of character: a run writes there, reads there, and nowhere else.

fsspec takes many names for globs, and s3fs cuts some. Beside each store lies a neighbour whose name
matches if its name is taken for a pattern; no byte of the neighbour may change.
"""

from __future__ import annotations

import ast
import random
import unicodedata
from pathlib import Path

import pytest
from command import run
from object_store import FaultProxy, put_object, read_objects
from source_code import FILES, find_nodes

BUCKET = "names"
TEXT = "".join(f"line {number} of the corpus\n" for number in range(60))
PIECES = [  # of random names
    *"abc123._-+=@,;:!$&'()~^|<>{}\"`\\#%?*[] ",
    *("**", "g?", "[a-z]", "[!a]", "%20", "%2F", "%00", "+", "é", "e\u0301", "漢", "𝄞", "\u202e"),
    *(
        "\t",
        "\x7f",
        "\ufeff",
        "..a",
        "a.",
        "a..",
        " ",
        "-rf",
        "~",
        "$HOME",
        "{a,b}",
        "::",
        "c:",
    ),
    *("manifest.json", "plan.json", ".lock", "part-00000.bin", "?list-type=2", "#gen", "?x"),
]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQPACK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "corpus.txt").write_text(TEXT)
    return tmp_path / "corpus.txt"


def name_neighbours(name: str) -> list[str]:
    """Return names that a pattern of this name would match, or that it would become when cut."""
    plain = "".join("a" if letter in "*?[]!" else letter for letter in name)
    cut = [name.partition(mark)[0] for mark in "?#%*["]
    found = {plain, *cut, name.replace("?", "1").replace("*", "1"), name.replace("[1]", "1")}
    found |= {name.strip(), name.rstrip("."), unicodedata.normalize("NFC", name), f"{name}1"}
    return sorted(found - {name, ""} - {other for other in found if other.strip("./") == ""})


def use_name(server: FaultProxy, folder: str, name: str, corpus: Path) -> None:
    """Write, read and replace a store and shards of a name, beside neighbours."""
    neighbours = {}
    for number, neighbour in enumerate(name_neighbours(name)):
        for file in ("manifest.json", "part-00000.json", "part-00000.bin", "plan.json"):
            key, data = f"{neighbour}/tokens/{file}", f"{number} {file}".encode()
            put_object(server.upstream, f"{BUCKET}/{folder}/{key}", data)
            neighbours[key] = data
    place = f"s3://{BUCKET}/{folder}/{name}"
    options = ("--part-bytes", 500, "--num-workers", 1, "-q")
    commands = [
        ("tokenize", corpus, "-o", f"{place}/tokens", *options),
        ("tokenize", corpus, "-o", f"{place}/tokens", *options, "--eos", "<eos>", "--overwrite"),
        ("pack", f"{place}/tokens", "-o", f"{place}/shards", "--num-workers", 1, "-q"),
        ("inspect", f"{place}/shards", "--sequence", 3),
        ("verify", f"{place}/shards", "--level", "structure"),
        ("unpack", f"{place}/shards", "--text", "-o", f"{place}/rows.jsonl", "--overwrite"),
        ("tokenize", f"{place}/rows.jsonl", "-o", f"{place}/again", *options),
    ]
    for command in commands:
        result = run(*command)
        assert result.exit_code == 0, (name, command[0], result.stderr)
    found = read_objects(server.upstream, BUCKET, folder)
    kept = {key: data for key, data in found.items() if not key.startswith(f"{name}/")}
    assert kept == neighbours, name
    ours = {key.removeprefix(f"{name}/") for key in found if key.startswith(f"{name}/")}
    assert {"rows.jsonl", "tokens/manifest.json", "shards/manifest.json"} <= ours
    assert not any(key.endswith((".lock", "plan.json", "part-00000.json")) for key in ours), ours


def test_a_name_is_taken_literally(server, tmp_path, corpus):
    use_name(server, tmp_path.name, "run[1] g?*%20#é+&=", corpus)


@pytest.mark.slow
def test_random_names_are_taken_literally(server, tmp_path, corpus):
    """Some minutes: 30 names."""
    chance = random.Random(19)
    for number in range(30):
        name = "".join(chance.choices(PIECES, k=chance.randint(1, 8)))
        name = name.strip("/") * (1 if number % 10 else 900 // len(name.encode()))
        if name not in (".", ".."):
            use_name(server, f"{tmp_path.name}-{number}", name, corpus)


def test_an_object_of_the_very_name_wins_over_what_a_glob_matches(server, tmp_path, corpus):
    for name, text in (("a[1].txt", "itself\n"), ("a1.txt", "one\ntwo\n")):
        put_object(server.upstream, f"{BUCKET}/{tmp_path.name}/{name}", text.encode())
    place = f"s3://{BUCKET}/{tmp_path.name}"
    result = run("tokenize", f"{place}/a[1].txt", "-o", tmp_path / "literal", "--json")
    assert '"num_documents": 1' in result.stdout, result.stderr
    result = run("tokenize", f"{place}/a[0-9].txt", "-o", tmp_path / "glob", "--json")
    assert '"num_documents": 2' in result.stdout, result.stderr


def test_a_name_that_s3fs_would_cut_is_refused(server, tmp_path, corpus):
    place = f"s3://{BUCKET}/{tmp_path.name}/x"
    put_object(server.upstream, f"{BUCKET}/{tmp_path.name}/x?versionId=1", b"one")
    said = "names a version of an object (?versionId=), expected an object"
    for result in (
        run("tokenize", corpus, "-o", f"{place}?versionId=1"),
        run("tokenize", f"{place}?versionId=1", "-o", tmp_path / "store"),
        run("tokenize", place.removesuffix("x"), "--format", "text", "-o", tmp_path / "store"),
        run("inspect", f"{place}?versionId=1"),
    ):
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    found = read_objects(server.upstream, BUCKET, tmp_path.name)
    assert found == {"x?versionId=1": b"one"}


def test_an_input_that_begins_with_a_slash_is_not_another(server, tmp_path):
    put_object(server.upstream, f"{BUCKET}//{tmp_path.name}/a.txt", b"itself")
    put_object(server.upstream, f"{BUCKET}/{tmp_path.name}/a.txt", b"another")
    result = run("tokenize", f"s3://{BUCKET}//{tmp_path.name}", "-o", tmp_path / "store")
    assert result.exit_code == 2
    assert "two slashes after the bucket, expected one" in result.stderr


# The house

LITERAL = {
    "call_s3",
    "cat_file",
    "cp_file",
    "find",
    "info",
    "ls",
    "open",
    "pipe_file",
    "put_file",
    "rm_file",
}
# A rename of the file system's own; the list of what a glob means; the client, for its events.
OTHERS = {
    *(("puts.py", "mv"), ("remote_files.py", "glob")),
    *(("objects.py", "s3"), ("held.py", "s3")),
}


def test_names_are_expanded_in_one_place_only() -> None:
    """Wherever the package has a file system at hand, it is called `system`."""
    num_calls = 0
    for path in FILES:
        if "system" not in path.read_text():
            continue
        for node in find_nodes(path):
            if isinstance(node, ast.Assign) and "open_file_system(" in ast.unparse(node.value):
                (target,) = node.targets
                assert isinstance(target, ast.Tuple), f"{path.name}:{node.lineno}"
                assert ast.unparse(target.elts[0]) == "system", f"{path.name}:{node.lineno}"
            is_used = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "system"
            if is_used and (path.name, node.attr) not in OTHERS:
                num_calls += 1
                assert node.attr in LITERAL, f"{path.name}:{node.lineno}: system.{node.attr}"
    assert num_calls > 8
