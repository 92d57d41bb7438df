"""Many runs of verify for the report of a GPU: what a lost device, a crash or Ctrl-C leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_verify
import pytest
from cuda_verify import DEVICE_IS_LOST, INTERRUPTED, is_lost, list_options, run_all, run_from

from seqpack_cli import Executor, PackOptions, pack, tokenize

ROOT = Path(__file__).parents[2]
RUNS = ["zero", "one", "two", "three", "four"]
# Run 1 loses the device, run 3 kills the process while it writes.
RUNNER = f"""
import json, os, sys
for number in range(int(sys.argv[1]), {len(RUNS)}):
    if number == 3:
        print('{{"options": "thr', end="", flush=True)
        os.kill(os.getpid(), 9)
    entry = {{"options": str(number), "status": 5 * (number == 1), "process": os.getpid()}}
    print(json.dumps(entry), flush=True)
    if number == 1:
        os._exit({DEVICE_IS_LOST})
"""
SMALLEST = [["--level", "structure"], ["--level", "roundtrip"], ["--cell", "none"]]
HERE = (str(ROOT), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", ""))
WITH_SOURCES = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, HERE))}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    (folder / "few.txt").write_text("abc\nab\na\n")
    here = Executor(num_workers=1)
    tokenize([str(folder / "few.txt")], folder / "store", executor=here)
    pack(folder / "store", folder / "shards", PackOptions(batch_size=2), executor=here)
    return folder / "shards"


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that can import the scripts."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=WITH_SOURCES, capture_output=True, text=True)


def test_runs_go_on_in_a_new_process_after_a_lost_device_and_a_crash(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert not run_all([sys.executable, "-c", RUNNER], RUNS)
    entries = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(it["options"], it["status"]) for it in entries] == [
        ("0", 0),
        ("1", 5),
        ("2", 0),
        ("three", -signal.SIGKILL),
        ("4", 0),
    ]
    processes = [it.get("process") for it in entries]
    assert processes[0] == processes[1] != processes[2] != processes[4]


def test_failed_run_leaves_the_others_in_the_same_process(
    shards: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda_verify, "list_options", lambda: [SMALLEST[2], *SMALLEST])
    run_from(1, str(shards), "cpu")
    entries = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [it["status"] for it in entries] == [0, 0, 2]
    assert not is_lost("cpu")


def test_ctrl_c_ends_the_runs_and_keeps_those_that_ended(shards: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "scripts/cuda_verify.py", str(shards), "cpu"],
        cwd=ROOT,
        env=WITH_SOURCES,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    with started as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["report"]["passed"] is True
        os.killpg(process.pid, signal.SIGINT)
        others = process.stdout.read().splitlines()
        assert process.wait() != 0
    assert len(others) < len(list_options()) - 1


def test_run_that_is_interrupted_is_the_last(
    shards: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def verify(*_: object) -> dict[str, Any]:
        return {"options": "", "status": INTERRUPTED}

    monkeypatch.setattr(cuda_verify, "verify", verify)
    with pytest.raises(SystemExit) as ended:
        run_from(0, str(shards), "cpu")
    assert ended.value.code == INTERRUPTED
    assert len(capfd.readouterr().out.splitlines()) == 1


def test_process_ends_when_its_device_is_lost() -> None:
    code = (
        "import cuda_verify as it; it.is_lost = lambda device: True;"
        "it.verify = lambda shards, device, options: {'status': int(options[-1] == 'float64')};"
        "it.run_from(0, '', '')"
    )
    done = run_code(code)
    assert done.returncode == DEVICE_IS_LOST
    assert done.stdout.splitlines() == ['{"status": 0}', '{"status": 1}']


@pytest.mark.cuda
def test_device_is_lost_after_an_assertion_of_a_kernel() -> None:
    code = (
        "import sys, torch, cuda_verify; places = torch.tensor([5], device='cuda')\n"
        "print(cuda_verify.is_lost('cuda'))\n"
        "try: torch.zeros(1, device='cuda')[places].sum().item()\n"
        "except RuntimeError: print(cuda_verify.is_lost('cuda'))"
    )
    done = run_code(code)
    assert done.stdout.split() == ["False", "True"], done.stderr
