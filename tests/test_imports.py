"""The house rules that a reader relies on: which way imports point, and who owns what package."""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path

import pytest
from conftest import OPTIONAL, find_imports

import seqpack_cli

PACKAGE = Path(seqpack_cli.__file__).parent
# A stage may import itself and what stands before it.
STAGES = [
    {"errors"},
    {"mapping", "progress", "ray_cluster"},
    {"spawned_workers"},
    {"ray_tasks"},
    {"ray_driver"},
    {"ray_runs"},
    {"ranges", "execution", "sizes"},
    {"remote"},
    {"reading"},
    {"disk"},
    {"storage", "manifest", "copy_marks"},
    {"object_cache", "single_file", "earlier_run"},
    {"run_folder"},
    {"corpus"},
    {"tokens"},
    {"batching"},
    {"shards"},
    {"training", "verification", "reporting"},
    {"cli"},
    {"__main__", "__init__"},
]
OWNERS = {
    "click": {"cli"},
    "fsspec": {"remote"},
    "tqdm": {"cli"},
    "tokenizers": {"tokens"},
    "fastokens": {"tokens"},
    "orjson": {"corpus"},
    "ray": {"ray_cluster", "ray_tasks", "ray_driver"},
    "pyarrow": {"corpus"},
    "matplotlib": {"reporting"},
    "jinja2": {"reporting"},
    "huggingface_hub": {"tokens"},
    "safetensors": {"shards"},
    "torch": {"training", "verification"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
NAME = Path(__file__).name
TESTS = sorted(Path(__file__).parent.glob("test_*.py"))


@functools.cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _stage(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def _imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append(str(node.module))
    return found


def _height(stage: str) -> int:
    return next(height for height, stages in enumerate(STAGES) if stage in stages)


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_imports_point_one_way(path):
    stage = _stage(_module(path))
    for name in _imports(path):
        if name.split(".")[0] == "seqpack_cli":
            other = _stage(name)
            lower = _height(other) < _height(stage)
            assert other in {stage, "__init__"} or lower, f"{stage} imports {other}"


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_heavy_packages_have_one_owner(path):
    stage = _stage(_module(path))
    for name in _imports(path):
        owners = OWNERS.get(name.split(".")[0], {stage})
        assert stage in owners, f"{stage} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_batching_and_layouts_are_pure(path):
    if path.parent.name == "batching" or path.name in ("packed.py", "padded.py", "layouts.py"):
        for name in _imports(path):
            top = name.split(".")[0]
            assert top not in ("pathlib", "os", "io", "torch"), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_files_stay_small(path):
    assert len(path.read_text().splitlines()) <= 250, "split it: one noun a file"


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_functions_stay_small(path):
    for node in ast.walk(_parse(path)):
        # a command's options are parameters, decorators do not count
        if isinstance(node, ast.FunctionDef):
            num_lines = (node.end_lineno or 0) - node.lineno + 1
            assert num_lines <= 50, f"{node.name} has {num_lines} lines"


@pytest.mark.parametrize("name", seqpack_cli.__all__)
def test_public_names_exist_and_are_documented(name):
    assert getattr(seqpack_cli, name).__doc__


def test_no_module_is_named_like_one_of_the_standard_library():
    import sys

    names = {path.stem for path in FILES} - {"__init__", "__main__"}
    assert not names & sys.stdlib_module_names


def test_every_module_says_what_it_is_for():
    for path in FILES:
        module = importlib.import_module(_module(path).removesuffix(".__init__"))
        assert module.__doc__ or path.stat().st_size == 0, path


@pytest.mark.parametrize(
    "path",
    [path for path in TESTS if "pytest.mark.cuda" in path.read_text() and path.name != NAME],
    ids=lambda path: path.stem,
)
def test_cuda_tests_run_where_no_optional_package_is(path):
    assert not find_imports(path) & set(OPTIONAL), "tests for a GPU need pytest alone"


READERS = {"read_bytes", "read_text", "memmap", "fromfile", "mmap", "open", "safe_open", "load"}


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_stores_and_shards_are_read_in_one_way(path):
    """Through `reading`, which checks; texts and the tokenizer that a user names are not theirs."""
    module = str(path.relative_to(PACKAGE))
    if module.startswith(("corpus/", "remote/")) or module in (
        "mapping.py",
        "reading.py",
        "disk.py",
        "tokens/vocabulary.py",
        "tokens/hub.py",
        "cli/streams.py",  # /dev/null alone
    ):
        return
    for node in ast.walk(_parse(path)):
        function = node.func if isinstance(node, ast.Call) else None
        name = getattr(function, "attr", getattr(function, "id", ""))
        is_safetensors = (module, name) == ("shards/shard_file.py", "safe_open")  # after `reading`
        assert name not in READERS or is_safetensors, f"{name} in line {node.lineno}"
