"""The house rules that a reader relies on: which way imports point, and who owns what package."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from graphlib import TopologicalSorter
from inspect import signature
from pathlib import Path

import pytest
from source_code import FILES, PACKAGE, find_nodes, parse

import seqpack_cli
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.files.inputs import LocalInput, RemoteInput
from seqpack_cli.files.local_place import LocalPlace
from seqpack_cli.files.remote_place import RemotePlace
from tests.conftest import OPTIONAL, find_imports

# A stage may import itself and what stands before it.
STAGES = [
    {"limits"},
    {"errors", "ranges", "sizes"},
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
    "orjson": {"corpus"},
    "ray": {"runs"},
    "pyarrow": {"corpus", "shards"},
    "matplotlib": {"reporting"},
    "jinja2": {"reporting", "tokens"},
    "huggingface_hub": {"tokens"},
    "safetensors": {"files"},
    "torch": {"training", "verification"},
}
NAME = Path(__file__).name
TESTS = sorted(Path(__file__).parent.glob("test_*.py"))


def _stage(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def _imports(path: Path) -> list[str]:
    found = []
    for node in find_nodes(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append(str(node.module))
    return found


def _height(stage: str) -> int:
    return next(height for height, stages in enumerate(STAGES) if stage in stages)


def _own_imports(path: Path) -> list[str]:
    return [name for name in _imports(path) if name.split(".")[0] == "seqpack_cli"]


def _of_types(path: Path) -> set[str]:
    """Return the modules that a file imports under `if TYPE_CHECKING`."""
    return {
        str(node.module)
        for block in parse(path).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }


def test_imports_point_one_way():
    wrong = [
        f"{_module(path)} imports {name}"
        for path in FILES
        for name in _own_imports(path)
        if _stage(name) != _stage(_module(path))
        and _height(_stage(name)) >= _height(_stage(_module(path)))
    ]
    assert not wrong


def test_no_two_modules_import_each_other():
    """Neither directly nor through others, unless for types alone."""
    modules = {_module(path) for path in FILES}
    graph = {
        _module(path): [name for name in _own_imports(path) if name in modules - _of_types(path)]
        for path in FILES
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_the_root_holds_three_modules():
    names = {path.name for path in PACKAGE.glob("*.py")}
    assert names == {
        "__init__.py",
        "__main__.py",
        "errors.py",
        "limits.py",
        "ranges.py",
        "sizes.py",
    }


def test_heavy_packages_have_one_owner():
    wrong = [
        f"{_module(path)} imports {name}"
        for path in FILES
        for name in _imports(path)
        if _stage(_module(path)) not in OWNERS.get(name.split(".")[0], {_stage(_module(path))})
    ]
    assert not wrong


LAYOUT_FILES = {
    "layouts.py",
    *(f"{name}{kind}.py" for name in LAYOUTS for kind in ("", "_layout")),
}


def test_batching_and_layouts_are_pure():
    pure = [
        path
        for path in FILES
        if path.parent.name == "batching"
        or (path.parent.name == "shards" and path.name in LAYOUT_FILES)
    ]
    impure = {"pathlib", "os", "io", "torch"}
    assert not [
        f"{_module(path)} imports {name}"
        for path in pure
        for name in _imports(path)
        if name.split(".")[0] in impure
    ]


def test_files_stay_small():
    sizes = {_module(path): len(path.read_text().splitlines()) for path in FILES}
    del sizes["seqpack_cli.__init__"]  # a table of all public names
    assert not {module: size for module, size in sizes.items() if size > 250}, "one noun a file"


def test_functions_stay_small():
    sizes = {
        f"{_module(path)}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in find_nodes(path)
        if isinstance(node, ast.FunctionDef)  # decorators, a command's options, do not count
    }
    assert not {name: size for name, size in sizes.items() if size > 50}


def test_functions_have_six_parameters_at_most():
    found = {
        f"{_module(path)}.{node.name}"
        for path in FILES
        for node in find_nodes(path)
        if isinstance(node, ast.FunctionDef)
        and not any("click.command" in ast.unparse(each) for each in node.decorator_list)
        and len([each for each in ast.walk(node.args) if isinstance(each, ast.arg)])
        - _is_method(node)
        > 6
    }
    # A collate function is bound by functools.partial: an options class would be in the way.
    collate = "seqpack_cli.training.collate"
    collates = {f"{collate}.collate_padded", f"{collate}.collate_varlen"}
    # What `pack` reads and `unpack` writes may have two sides.
    of_pairs = {"seqpack_cli.shards.pack_run.pack", "seqpack_cli.shards.unpack_run.unpack"}
    assert found == {*collates, *of_pairs}


def _is_method(node: ast.FunctionDef) -> bool:
    return bool(node.args.args) and node.args.args[0].arg in ("self", "cls")


def test_public_names_exist_and_are_documented():
    assert all(getattr(seqpack_cli, name).__doc__ for name in seqpack_cli.__all__)


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


KINDS = {"Path", "Url", "LocalPlace", "RemotePlace", "LocalInput", "RemoteInput"}


def _find_kind_tests(path: Path) -> list[str]:
    """Name the places of a module that ask whether something is a path or a URL."""
    found = []
    for node in find_nodes(path):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = list(ast.walk(node.args[1]))
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node):
            asked = list(ast.walk(node))
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        elif isinstance(node, ast.Call):
            asked = [node.func] if "is_url" in ast.unparse(node.func) else []
        if {getattr(part, "id", getattr(part, "attr", "")) for part in asked} & {*KINDS, "is_url"}:
            found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    return found


def test_one_place_asks_whether_something_is_a_path_or_a_url():
    """`places.at` does, and gives what has the verbs of both kinds: a third is one class more.

    For inputs, which are texts, `inputs.find_input` does. The others, in `url.py`, turn text into a
    place or back, and spell one place as seen from another: twice a text is asked whether it is a
    URL, three times a place whether it is a path, once what a caller passes whether it is a place.
    """
    found = [place for path in FILES for place in _find_kind_tests(path)]
    modules = Counter(place.partition(":")[0] for place in found)
    assert modules == {"files/places.py": 1, "files/inputs.py": 1, "files/url.py": 6}, found


def test_places_of_both_kinds_have_the_same_verbs():
    """Of the same parameters too, so that nobody has to ask which kind a place is."""
    for kinds in ((LocalPlace, RemotePlace), (LocalInput, RemoteInput)):
        local, remote = (
            {name: value for name, value in vars(kind).items() if not name.startswith("_")}
            for kind in kinds
        )
        assert set(local) - {"path"} == set(remote) - {"url"}
        for name in set(local) & set(remote):
            if callable(local[name]):
                assert signature(local[name]).parameters == signature(remote[name]).parameters, name


READERS = {"read_bytes", "read_text", "memmap", "fromfile", "mmap", "open", "safe_open", "load"}


def test_stores_and_shards_are_read_in_one_way():
    """Through `files`, which checks; texts and the tokenizer that a user names are not theirs."""
    others = ("tokens/hub.py", "cli/streams.py")  # the last: /dev/null
    wrong = []
    for path in FILES:
        module = str(path.relative_to(PACKAGE))
        if module.startswith(("corpus/", "files/")) or module in others:
            continue
        for node in find_nodes(path):
            function = node.func if isinstance(node, ast.Call) else None
            name = getattr(function, "attr", getattr(function, "id", ""))
            is_checked = (module, name) == ("files/tensor_file.py", "safe_open")  # after `reading`
            if name in READERS and not is_checked:
                wrong.append(f"{module}:{node.lineno} calls {name}")
    assert not wrong


# Torch's functions differ by layout, and shards/ may not load torch: one table there, one here.
TORCH_TABLES = ("verification/torch_rows.py", "training/collate.py")


def test_only_shards_asks_which_layout_something_is():
    """A layout is one file in shards/ and one line in layout_rules: nothing else names it.

    Counted are comparisons with the name of a layout, tables keyed by such names alone, and tests
    of the type of a batch. Messages and default values may name layouts.
    """
    found = []
    for path in FILES:
        module = str(path.relative_to(PACKAGE))
        if module.startswith("shards/") or module in ("batching/layout_rules.py", *TORCH_TABLES):
            continue
        found += [f"{module}:{node.lineno}" for node in find_nodes(path) if _asks(node)]
    assert not found


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(_is_layout(side) for side in [node.left, *node.comparators])
    if isinstance(node, ast.Dict):
        return bool(node.keys) and all(key is not None and _is_layout(key) for key in node.keys)
    if not isinstance(node, ast.Call):
        return False
    names = [child.id for child in ast.walk(node) if isinstance(child, ast.Name)]
    batch_types = {f"{layout.capitalize()}Batch" for layout in LAYOUTS}
    return names[:1] == ["isinstance"] and bool(batch_types & set(names))


def _is_layout(node: ast.AST) -> bool:
    return any(
        isinstance(child, ast.Constant) and child.value in LAYOUTS for child in ast.walk(node)
    )
