"""Fixtures for all tests: the sample texts, a small tokenizer trained on them, small stores."""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from object_store import s3_address as s3_address  # fixtures of the tests with a real S3 server
from object_store import server as server

from seqpack_cli.corpus import parts
from seqpack_cli.runs.executor import Executor
from seqpack_cli.runs.workers import Workers
from seqpack_cli.tokens.tokenize_options import TokenizeOptions
from seqpack_cli.tokens.tokenize_run import tokenize

HERE = Executor(num_workers=1)  # a run in this process, without threads
# Otherwise each of the hundreds of processes that tests start compiles the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A GPU machine may have only pytest: tests that import missing packages are not collected there.
OPTIONAL = (
    "backports",
    "fastokens",
    "hypothesis",
    "jinja2",
    "matplotlib",
    "orjson",
    "pyarrow",
    "ray",
)


FOLDERS = (Path(__file__).parent, Path(__file__).parent / "campaigns")  # of what tests import


def find_imports(path: Path) -> set[str]:
    """Name the packages that a test file imports, also through files of FOLDERS."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            ours = [folder / f"{name}.py" for folder in FOLDERS if (folder / f"{name}.py").exists()]
            found |= find_imports(ours[0]) if ours else {name.split(".")[0]}
    return found


_missing = {name for name in OPTIONAL if importlib.util.find_spec(name) is None}
if sys.version_info >= (3, 14):
    _missing.discard("backports")  # whose zstd the standard library has
collect_ignore = [
    str(path.relative_to(FOLDERS[0]))
    for folder in FOLDERS
    for path in folder.glob("*.py")
    if _missing and find_imports(path) & _missing
]

if "hypothesis" not in _missing:
    from hypothesis import HealthCheck, settings

    # Every example writes files: a slow disk is not a failure, and tmp_path may be shared.
    settings.register_profile(
        "seqpack",
        deadline=None,
        max_examples=50,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    settings.load_profile("seqpack")


def import_zstd() -> Any:
    """Import zstd: of the standard library from Python 3.14 on, else the package."""
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd")
    return pytest.importorskip("backports.zstd")


def pytest_report_header() -> str:
    names = ("torch", "tokenizers", "numpy", "safetensors", "click")
    return "versions: " + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def pytest_configure() -> None:
    """Let the processes that tests start receive Ctrl-C, even under `nohup` or `&` in a script."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


SERVERS = ("ray_node", "s3_address")  # fixtures of a session that take seconds to make


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

    spread = Workers.run

    def run(self: Workers, *arguments: Any, **options: Any) -> Iterator[Any]:
        if self.are_local and self.executor.num_workers is None:
            options["max_processes"] = 1
        return spread(self, *arguments, **options)

    def run_here(
        function: Callable[[Any], Any], tasks: Sequence[Any], **_: object
    ) -> Iterator[Any]:
        return map(function, tasks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "run", run)
        patch.setattr(parts, "run_in_processes", run_here)  # of the footers of Parquet
        yield


@pytest.fixture(scope="session")
def ray_node() -> Iterator[Any]:
    """The one Ray cluster of this process: a node of two cores."""
    from ray_clusters import running_cluster

    with running_cluster(num_cpus=2) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(ray_node: Any) -> Iterator[Any]:
    """The Ray cluster, with this process connected to it."""
    with ray_node.connected():
        yield ray_node.cluster


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
    """The folder of small texts that come with the project."""
    return Path(__file__).parent.parent / "sample_data"


@pytest.fixture(scope="session")
def tiny_tokenizer(sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE of 400 tokens with a template that puts <bos> and <eos> around a text."""
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


@pytest.fixture
def byte_store(tmp_path: Path) -> Callable[..., Path]:
    """Build a token store from texts, with the byte tokenizer unless options say otherwise.

    `byte_store(["ab", ""], name="other", part_bytes=10)` returns the folder of the store. Texts may
    contain anything: they are written as JSON lines.
    """

    def build(texts: Sequence[str], *, name: str = "store", **options: Any) -> Path:
        corpus = tmp_path / f"{name}.jsonl"
        lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts]
        corpus.write_bytes("".join(lines).encode())
        tokenize([str(corpus)], tmp_path / name, TokenizeOptions(**options), executor=HERE)
        return tmp_path / name

    return build
