"""Settings and fixtures for all tests: the sample texts, a small tokenizer, small limits."""

from __future__ import annotations

import ast
import functools
import gc
import importlib.metadata
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqpack_cli.limits import LIMITS, Limits

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# Otherwise each of the processes that tests start compiles the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A GPU machine may have only pytest: tests that import missing packages are not collected there.
OPTIONAL = (
    "backports",
    "fastokens",
    "hypothesis",
    "jinja2",
    "matplotlib",
    "pyarrow",
    "ray",
)


@functools.cache
def find_imports(path: Path) -> set[str]:
    """Return the packages that a test file imports, also through other files of the tests."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            file = name.replace(".", "/") + ".py"
            ours = [folder / file for folder in (TESTS, path.parent) if (folder / file).exists()]
            found |= find_imports(ours[0]) if ours else {name.split(".")[0]}
    return found


_missing = {name for name in OPTIONAL if importlib.util.find_spec(name) is None}
if sys.version_info >= (3, 14):
    _missing.discard("backports")  # whose zstd the standard library has
collect_ignore = [
    str(path.relative_to(TESTS))
    for path in TESTS.rglob("test_*.py")
    if _missing and find_imports(path) & _missing
]

if "hypothesis" not in _missing:
    from hypothesis import HealthCheck, settings

    # Every example writes files: a slow disk is not a failure, and tmp_path may be shared.
    settings.register_profile(
        "seqpack",
        deadline=None,
        max_examples=50,
        derandomize=bool(os.environ.get("CI")),  # what fails there has to fail again
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    settings.load_profile("seqpack")


def pytest_report_header() -> str:
    names = ("torch", "tokenizers", "numpy", "safetensors", "click")
    return "versions: " + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def pytest_configure() -> None:
    """Let the processes that tests start receive Ctrl-C, even under `nohup` or `&` in a script."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


SERVERS = ("s3_address",)  # fixtures of a session that take seconds to make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of a server together, so that one of several test processes starts it."""
    items.sort(key=lambda item: [name not in getattr(item, "fixturenames", ()) for name in SERVERS])


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "Let tests marked cuda fail, not be skipped, where torch finds no GPU."
    parser.addoption("--require-cuda", action="store_true", help=about)


def skip_without_gpu(session: pytest.Session) -> None:
    """Skip the chosen tests that are marked cuda where torch finds no GPU."""
    chosen = [item for item in session.items if item.get_closest_marker("cuda")]
    if not chosen or session.config.getoption("require_cuda", False):
        return
    import torch  # which a run without such tests may not need

    if not torch.cuda.is_available():
        for item in chosen:
            item.add_marker(pytest.mark.skip(reason=f"torch {torch.__version__} finds no GPU"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude imported modules and collected tests from garbage collection: saves a tenth."""
    skip_without_gpu(session)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def trust_the_page_cache() -> Iterator[None]:
    """Skip fsync in this process, because no test cuts the power; child processes still sync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # still fails if the file is not open
        yield


@pytest.fixture(scope="session", autouse=True)
def start_no_worker_unasked() -> Iterator[None]:
    """Run in this process what no test asks to be spread: a worker process takes half a second.

    A number of workers above 1 starts them; so does every command in a process of its own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "default_workers", 1)
        patch.setattr(LIMITS, "footer_workers", 0)
        yield


COUNTS = ("default_workers", "footer_workers")  # of processes; all other limits are sizes


@pytest.fixture(params=[1, 2, 3, 7])
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Set all sizes of blocks, pieces, caches and windows to 1, 2, 3 or 7; return which."""
    for name in Limits.__annotations__:
        if name not in COUNTS:
            monkeypatch.setattr(LIMITS, name, request.param)
    return int(request.param)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: small models are slower with more."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def sample_data() -> Path:
    """Return the folder of small texts that come with the project."""
    return ROOT / "sample_data"


@pytest.fixture(scope="session")
def tiny_tokenizer(sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a byte-level BPE of 400 tokens whose template puts <bos> and <eos> around a text."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        special_tokens=["<pad>", "<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train([str(sample_data / "stories.txt")], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path
