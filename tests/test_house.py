"""The house rules that a reader relies on: which way imports point, and who owns what package."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from source_code import FILES, PACKAGE, find_nodes, parse

import seqpack_cli
from tests.conftest import OPTIONAL, TESTS, find_imports

# A room may import itself and those before it.
ROOMS = [
    {"errors", "limits"},
    {"ranges", "sizes"},
    {"files"},
    {"runs"},
    {"corpus"},
    {"tokens", "batching"},
    {"shards"},
    {"training"},
    {"verification", "reporting"},
    {"cli"},
    {"__main__", "__init__"},
]
OWNERS = {
    "click": {"cli"},
    "fsspec": {"files"},
    "tqdm": {"cli"},
    "tokenizers": {"tokens"},
    "fastokens": {"tokens"},
    "orjson": {"corpus", "tokens"},
    "ray": {"runs"},
    "pyarrow": {"corpus", "shards"},
    "matplotlib": {"reporting"},
    "jinja2": {"reporting", "tokens"},
    "huggingface_hub": {"tokens"},
    "safetensors": {"files"},
    "torch": {"training", "verification"},
}
# Circles that are left, imports for types alone included; each goes when its room is rebuilt.
CIRCLES = [
    {"training.kernel_arguments", "training.attention_masks", "training.batch_tensors"},
]
PUBLIC = {"seqpack_cli", *(f"seqpack_cli.{name}" for name in ("errors", "limits", "__main__"))}
PUBLIC.add("seqpack_cli.cli.main")


def _module(path: Path) -> str:
    """Return the name of a module without that of the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def _imports(path: Path) -> set[str]:
    """Return the modules that a file imports, wherever it does so."""
    found = set()
    for node in find_nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = str(node.module)
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


MODULES = {_module(path): path for path in FILES if path.name != "__init__.py"}
GRAPH = {
    name: {found.removeprefix("seqpack_cli.") for found in _imports(path)} & set(MODULES) - {name}
    for name, path in MODULES.items()
}


def _room(module: str) -> str:
    return module.partition(".")[0]


def _height(room: str) -> int:
    return next(height for height, rooms in enumerate(ROOMS) if room in rooms)


def test_imports_point_one_way() -> None:
    assert [
        f"{name} imports {other}"
        for name, others in GRAPH.items()
        for other in others
        if _room(other) != _room(name) and _height(_room(other)) >= _height(_room(name))
    ] == []


def _reach(start: str) -> set[str]:
    """Return the modules that one imports, directly or through others."""
    found: set[str] = set()
    todo = [start]
    while todo:
        new = GRAPH[todo.pop()] - found
        found |= new
        todo += new
    return found


def test_no_modules_import_each_other_but_two_known_circles() -> None:
    """Directly or through others; an import for types alone counts too."""
    reached = {name: _reach(name) for name in GRAPH}
    circles = {
        frozenset(other for other in others if name in reached[other])
        for name, others in reached.items()
        if name in others
    }
    assert sorted(map(sorted, circles)) == sorted(map(sorted, CIRCLES))


def test_heavy_packages_have_one_owner() -> None:
    assert [
        f"{_module(path)} imports {name}"
        for path in FILES
        for name in _imports(path)
        if _room(_module(path)) not in OWNERS.get(name.partition(".")[0], {_room(_module(path))})
    ] == []


# Methods of any object and functions of two modules that change a disk, and modes of `open`.
CHANGES = re.compile(
    r"(?<!\bdisk)\.(unlink|rename|mkdir|makedirs|rmdir|rmtree|touch|symlink_to|write_bytes|"
    r"write_text|tofile)\(|\b(os|shutil)\.(write|fsync|replace|remove|move)\(|"
    r"""\bopen\([^()\n]*['"](w|a|x)b?['"]"""
)


def test_only_one_module_changes_the_disk() -> None:
    assert [path.name for path in FILES if CHANGES.search(path.read_text())] == ["disk.py"]


def test_batching_computes_and_touches_nothing() -> None:
    touching = {"pathlib", "os", "io", "torch"}
    for name, path in MODULES.items():
        if _room(name) == "batching":
            assert not {found.partition(".")[0] for found in _imports(path)} & touching, name


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    names = {path.stem for path in FILES} - {"__init__", "__main__"}
    assert not names & sys.stdlib_module_names


def test_every_module_says_what_it_is_for() -> None:
    for path in FILES:
        assert ast.get_docstring(parse(path)) or not path.stat().st_size, path


def test_public_names_exist_and_are_documented() -> None:
    assert all(getattr(seqpack_cli, name).__doc__ for name in seqpack_cli.__all__)


HEAVY = {"torch", "numpy", "tokenizers", "safetensors", "tqdm"}
# Each takes 5 to 20 ms, and only runs with workers, networks or object stores need them.
OF_RUNS = {"asyncio", "concurrent.futures", "logging", "multiprocessing", "socket", "tempfile"}
PROBE = """
import sys
from seqpack_cli.cli.main import main
for arguments in {commands!r}:
    try:
        main(arguments)
    except SystemExit as end:
        assert end.code in (0, None), end.code
print("loaded:", *sorted(sys.modules))
"""


def _loaded_by(*commands: tuple[object, ...]) -> set[str]:
    """Run commands in a new process, and return the modules that it has loaded then."""
    code = PROBE.format(commands=[[str(part) for part in command] for command in commands])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.strip().splitlines()[-1].split()[1:])


def test_help_loads_no_heavy_package_and_no_command() -> None:
    loaded = _loaded_by(("--help",))
    assert not loaded & (HEAVY | OF_RUNS)
    assert not [name for name in loaded if name.endswith(("_command", "_commands"))]
    assert not _loaded_by(("--version",)) & HEAVY


def test_help_of_every_command_loads_no_heavy_package() -> None:
    from seqpack_cli.cli.main import main

    names = main.list_commands(None)  # type: ignore[arg-type]
    assert "pack" in names
    assert not _loaded_by(*((name, "--help") for name in names)) & (HEAVY | OF_RUNS)


def test_all_commands_but_verify_run_without_torch(tmp_path: Path) -> None:
    text, tokens, shards = (tmp_path / name for name in ("a.txt", "tokens", "shards"))
    text.write_text("one\ntwo two\n")
    loaded = _loaded_by(
        ("tokenize", text, "-o", tokens, "--num-workers", 1),
        ("plan", tokens),
        ("pack", tokens, "-o", shards, "--num-workers", 1),
        ("inspect", tokens),
        ("inspect", shards, "--sequence", 1),
        ("diff", tokens, tokens),
        ("unpack", shards, "-o", tmp_path / "rows.jsonl"),
        ("export", tokens, "--to", "megatron", "-o", tmp_path / "megatron"),
    )
    assert "torch" not in loaded
    loaded = _loaded_by(("inspect", tokens), ("inspect", shards))
    assert not loaded & ({"torch", "tqdm", "fsspec", "hashlib"} | OF_RUNS)


def _imports_of_tests(path: Path) -> set[str]:
    """Return the modules of seqpack_cli that a test file imports, names of them apart."""
    found = set()
    for node in find_nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    return {name for name in found if name.split(".")[0] == "seqpack_cli"}


SURFACE = [path for path in sorted(TESTS.rglob("*.py")) if "inner" not in path.parts]


def test_surface_tests_import_public_names_alone() -> None:
    for path in SURFACE:
        assert _imports_of_tests(path) <= PUBLIC, path
        for node in find_nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module == "seqpack_cli":
                names = {alias.name for alias in node.names}
                assert names <= {*seqpack_cli.__all__, "__version__"}, path


def test_oracle_imports_nothing_of_seqpack_nor_of_the_tests() -> None:
    standard = sys.stdlib_module_names
    others = {"numpy", "safetensors", "xxhash", "blake3", "oracle", "tokenizers", "jinja2"}
    for path in sorted((TESTS / "oracle").glob("*.py")):
        assert not find_imports(path) - standard - others, path


@pytest.mark.parametrize(
    "path",
    [path for path in TESTS.rglob("test_*.py") if "pytest.mark.cuda" in path.read_text()],
    ids=lambda path: path.stem,
)
def test_cuda_tests_run_where_no_optional_package_is(path: Path) -> None:
    if path != Path(__file__):
        assert not find_imports(path) & set(OPTIONAL), "tests for a GPU need pytest alone"
