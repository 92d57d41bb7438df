"""The parts of `scripts/cuda.sh`: what they run and how long they may take."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from cuda_commands import FIRST, ROOT, Command, Part

SEQPACK = ("-m", "seqpack_cli")
LAST_FILES = ("test_cuda.py", "test_cuda_kernels.py", "test_cases_input.py")  # the slowest last
LONGEST = "tests/test_cases_input.py::test_case_27_longer_than_65535_on_cuda"
MARK = re.compile(r"^\s*@pytest\.mark\.cuda$|marks=.*mark\.cuda|^pytestmark.*cuda", re.MULTILINE)
LAYOUTS = {
    "packed": ("--layout", "packed"),
    "padded": ("--layout", "padded"),
    "varlen": ("--layout", "varlen", "--max-tokens", "256"),
    "streams": ("--layout", "streams", "--batch-size", "16", "--max-tokens", "64"),
}
MAKE_STORE = """
import sys
from pathlib import Path
sys.path.insert(0, "benchmarks")
from random_store import make_store
make_store(Path(sys.argv[1]), int(sys.argv[2]), 32_000, 120)
"""
VERSIONS = """
import json, os, platform, subprocess, sys
from importlib.metadata import distributions
import torch
from seqpack_cli.errors import SeqpackError
from seqpack_cli.verification.device import open_device
sys.path.insert(0, "benchmarks")
from machine import find_commit
found = {"python": platform.python_version(), "cores": os.cpu_count()}
found |= {"machine": platform.platform(), "commit": find_commit(), "torch": torch.__version__}
found |= {"CUDA": torch.version.cuda, "cuDNN": torch.backends.cudnn.version()}
found["packages"] = {it.metadata["Name"]: it.version for it in distributions()}
if torch.cuda.is_available():
    found["device"] = str(torch.cuda.get_device_properties(0))
    found["capability"] = torch.cuda.get_device_capability(0)
    query = "name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv"]
    try:
        found["nvidia-smi"] = subprocess.run(command, capture_output=True, text=True).stdout
    except OSError as error:
        found["nvidia-smi"] = str(error)
print(json.dumps(found), flush=True)
try:
    open_device(sys.argv[1])
except SeqpackError as error:
    print(f"Error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def list_parts(device: str, work: Path) -> dict[str, Part]:
    """Return all parts in the order in which they run; on a CPU with smaller sizes."""
    is_cpu = device == "cpu"
    return {
        FIRST: list_environment(device),
        "tests": list_tests(is_cpu),
        "verify": list_verify(device, work),
        "errors": list_benchmark(device, work, "errors", 35, "--sample", "2" if is_cpu else "6"),
        "run": list_benchmark(device, work, "run", 45, "--repeats", "1" if is_cpu else "2"),
        "compare": list_compare(device, work),
        "tokens": list_tokens(device, work),
        "integers": list_benchmark(
            device, work, "integers", 25, "--window", "4096", "--repeats", "1"
        ),
        "load": list_load(device, work),
        "examples": list_examples(device, work),
        "plan": list_benchmark(device, work, "plan", 60, "--repeats", "1"),
        "limits": list_limits(device, work),
        "longest": Part(150, (pytest(LONGEST, is_cpu=is_cpu, limit=140),), is_chosen=False),
    }


def list_environment(device: str) -> Part:
    """Return the part that says what this machine is, and fails where the device is not."""
    versions = Command("versions", ("-c", VERSIONS, device))
    return Part(20, (versions, Command("seqpack", (*SEQPACK, "--version"))))


def find_files() -> list[str]:
    """Return the test files that have tests for CUDA, the slowest last."""
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if MARK.search(path.read_text())]
    paths.sort(key=lambda path: (*[path.name == name for name in reversed(LAST_FILES)], path.name))
    return [str(path.relative_to(ROOT)) for path in paths]


def list_tests(is_cpu: bool) -> Part:
    """Return the part that runs the tests for CUDA; on a CPU they are only collected."""
    files = find_files()
    return Part(150, (pytest(*files, "--deselect", LONGEST, is_cpu=is_cpu, limit=60),))


def pytest(*arguments: str, is_cpu: bool, limit: int) -> Command:
    """Return a run of the tests for CUDA."""
    given = ["-rfEs", "-m", "cuda", "--require-cuda", "-p", "no:cacheprovider", "--tb", "short"]
    given += ["--maxfail", "30", "--durations", "25"]
    if find_spec("pytest_timeout"):
        given += ["--timeout", str(limit)]
    if is_cpu:
        given += ["-q", "--collect-only"]
    elif find_spec("xdist"):  # a GPU that is lost is lost to one process
        given += ["-v", "--numprocesses", "4"]
    return Command("pytest", ("-m", "pytest", *given, *arguments))


def list_verify(device: str, work: Path) -> Part:
    """Return the part that verifies sample_data in all layouts, and pairs, in every way."""
    store, encoder, decoder = work / "sample", work / "written", work / "iso"
    dates = ("tokenize", "examples/dates.jsonl", "--text-field")
    commands = [
        seqpack("tokenize", "sample_data", "--max-length", 128, "-o", store),
        seqpack(*dates, "written", "-o", encoder),
        seqpack(*dates, "iso", "-o", decoder),
    ]
    shards = {name: work / f"shards-{name}" for name in LAYOUTS}
    for name, options in LAYOUTS.items():
        commands.append(seqpack("pack", store, *options, "-o", shards[name]))
    for name in ("packed", "padded"):
        shards[f"pairs, {name}"] = path = work / f"pairs-{name}"
        options = ("--decoder", decoder, "--layout", name, "--json")
        commands.append(seqpack("pack", encoder, *options, "-o", path))
    verify = ("verify", shards["packed"], "--device", device, "--json")
    model = ("--model", "examples.my_model:make", "--device", device, "--json")
    commands += [seqpack(*verify), seqpack("verify", shards["padded"], *model)]
    together = [
        Command(name, ("scripts/cuda_verify.py", str(path), device))
        for name, path in shards.items()
    ]
    return Part(200 if device == "cpu" else 80, tuple(commands), tuple(together))


def seqpack(command: str, *arguments: object) -> Command:
    """Return a run of seqpack's command line."""
    given = [str(argument) for argument in arguments]
    names = [it.name if isinstance(it, Path) else str(it) for it in arguments]
    return Command(" ".join((command, *names)), (*SEQPACK, command, *given))


def list_benchmark(device: str, work: Path, case: str, seconds: float, *options: str) -> Part:
    """Return the part that runs one case of bench_verify.py."""
    sizes = ("--run-tokens", "2000000", "--tokens", "20000000")
    if device == "cpu":
        sizes = ("--run-tokens", "20000", "--tokens", "200000", "--hidden-size", "32")
    given = (
        "--device",
        device,
        "--case",
        case,
        "--folder",
        str(work / f"bench-{case}"),
        *sizes,
        *options,
    )
    command = Command(f"bench_verify, {case}", ("benchmarks/bench_verify.py", *given))
    return Part(seconds, (command,), is_chosen=case != "plan")


def list_compare(device: str, work: Path) -> Part:
    """Return the part that measures the speeds of the layouts with verify --compare."""
    store, shards = work / "compare-store", work / "compare-shards"
    sizes, num_tokens = (("64", "512", "1024"), 2_000_000)
    if device == "cpu":
        sizes, num_tokens = (("16", "32"), 20_000)
    compare = ("verify", shards, "--device", device, "--json", "--compare", "--level", "structure")
    commands = [
        Command("make a store", ("-c", MAKE_STORE, str(store), str(num_tokens))),
        seqpack("pack", store, "-o", shards),
        *[seqpack(*compare, "--hidden-size", size) for size in sizes],
    ]
    return Part(30, tuple(commands))


def list_tokens(device: str, work: Path) -> Part:
    """Return the part that verifies 100 million made-up tokens."""
    store, shards = work / "many-store", work / "many-shards"
    num_tokens = "200000" if device == "cpu" else "100000000"
    verify = ("verify", shards, "--device", device, "--json", "--level")
    commands = (
        Command("make a store", ("-c", MAKE_STORE, str(store), num_tokens)),
        seqpack("pack", store, "--batch-size", 512, "-o", shards),
        seqpack(*verify, "roundtrip"),
        seqpack(*verify, "run", "--hidden-size", 16 if device == "cpu" else 64),
    )
    return Part(60, commands)


def list_limits(device: str, work: Path) -> Part:
    """Return the part that measures what the limits of verify must hold, by name alone."""
    num_sets, seconds = ("2", "60") if device == "cpu" else ("1000", "500")
    given = ("scripts/cuda_limits.py", str(work / "limits"), device, num_sets, seconds)
    return Part(530, (Command("limits", given),), is_chosen=False)


def list_load(device: str, work: Path) -> Part:
    """Return the part that measures pinned loading."""
    num_tokens = "20000" if device == "cpu" else "2000000"
    given = ("--case", "device", "--device", device, "--tokens", num_tokens, "--repeats", "2")
    command = ("benchmarks/bench_load.py", *given, "--folder", str(work / "load"))
    return Part(30, (Command("bench_load, device", command),))


def list_examples(device: str, work: Path) -> Part:
    """Return the part that runs the examples."""
    is_cpu = device == "cpu"  # where inductor takes a minute per shape
    steps = ("--steps", "2" if is_cpu else "50")
    stories, buckets = "sample_data/stories.txt", ("buckets", "sample_data", *steps)
    runs: list[tuple[str, ...]] = [
        (*buckets, "--backend", "aot_eager" if is_cpu else "inductor"),
        (*buckets, "--backend", "eager"),
        ("word_language_model", stories, "--work", str(work / "words"), *steps),
        ("stateful_language_model", stories, "--epochs", "1" if is_cpu else "2"),
        ("classifier", "sample_data/languages.jsonl", "--output", str(work / "out.tsv"), *steps),
        ("tagger", "examples", *steps),
        ("transformer", stories, *steps),
        ("chat", "examples/conversations.jsonl", *steps),
        ("translation", "--num-pairs", "400" if is_cpu else "5000", *steps),
    ]
    if not is_cpu:
        runs.insert(0, (*buckets, "--mode", "reduce-overhead"))
    together = [
        Command(" ".join(run), (f"examples/{run[0]}.py", *run[1:], "--device", device))
        for run in runs
    ]
    return Part(120 if is_cpu else 55, together=tuple(together))
