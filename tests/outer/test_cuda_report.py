"""The script for machines with a GPU: parts chosen, limits kept, one report whatever happens."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cuda_commands import Command, Part, find_json
from cuda_parts import LONGEST, find_files, list_parts
from cuda_report import Report, choose, run_parts, stretch

ROOT = Path(__file__).parents[2]

QUICK = Command("quick", ("-c", "print('one'); print('{\"two\": 2}')"))
BROKEN = Command("broken", ("-c", "import sys; print('why', file=sys.stderr); sys.exit(3)"))
SLOW = Command("slow", ("-c", "print('begun', flush=True); import time; time.sleep(60)"), 1.5)


def run(folder: Path, parts: dict[str, Part], seconds: float = 60) -> dict[str, list[dict]]:
    """Run parts, and return the file that was written, by part."""
    report = Report(folder / "cuda.json", device="cpu")
    run_parts(parts, report, seconds, at_once=2)
    found = json.loads((folder / "cuda.json").read_text(encoding="utf-8"))
    assert report.passed == all(
        it["status"] == 0 for part in found["parts"].values() for it in part
    )
    return found["parts"]


def test_command_is_reported_with_its_last_lines_and_its_json(tmp_path: Path) -> None:
    (found,) = run(tmp_path, {"first": Part(60, (QUICK,))})["first"]
    assert (found["name"], found["status"], found["timed_out"]) == ("quick", 0, False)
    assert found["command"].startswith(f"{sys.executable} -c ")
    assert 0 < found["seconds"] < 60
    assert found["stdout"] == ["one", '{"two": 2}']
    assert found["json"] == {"two": 2}


def test_what_fails_or_runs_into_its_limit_does_not_stop_the_others(tmp_path: Path) -> None:
    parts = {"first": Part(60, (BROKEN, QUICK), (SLOW, QUICK)), "last": Part(60, (QUICK,))}
    found = run(tmp_path, parts)
    assert [it["status"] for it in found["first"][:2]] == [3, 0]
    assert found["first"][0]["stderr"] == ["why"]
    ends = {it["name"]: it for it in found["first"][2:]}
    assert ends["slow"]["timed_out"]
    assert ends["slow"]["status"] != 0
    assert ends["slow"]["stdout"] == ["begun"]
    assert ends["slow"]["seconds"] < 10
    assert ends["quick"]["status"] == found["last"][0]["status"] == 0


def test_commands_for_which_no_time_is_left_are_not_run(tmp_path: Path) -> None:
    (found,) = run(tmp_path, {"first": Part(60, (QUICK,))}, seconds=0.5)["first"]
    assert (found["status"], found["seconds"]) == (None, 0.0)


def test_time_that_a_part_did_not_need_is_left_to_the_next(tmp_path: Path) -> None:
    found = run(tmp_path, {"first": Part(50, (QUICK,)), "last": Part(2, (QUICK,))})
    assert 40 < found["last"][0]["limit"] <= 52
    limits = [part[0]["limit"] for part in run(tmp_path, {"only": Part(5, (QUICK,))}).values()]
    assert limits == [5.0]


def test_environment_that_fails_ends_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"environment": Part(60, (BROKEN, QUICK)), "last": Part(60, (QUICK,))}
    assert [it["status"] for it in run(tmp_path, parts)["environment"]] == [3, 0]
    assert capsys.readouterr().err == "why\n"
    content = json.loads((tmp_path / "cuda.json").read_text(encoding="utf-8"))
    assert list(content["parts"]) == ["environment"]
    assert content["ended"] == "environment: broken failed, so nothing else was run"
    parts["environment"] = Part(60, (SLOW,))  # a machine that was slow to start
    assert list(run(tmp_path, parts)) == ["environment", "last"]


def test_report_of_an_earlier_run_is_replaced_at_once(tmp_path: Path) -> None:
    (tmp_path / "cuda.json").write_text("old", encoding="utf-8")
    report = Report(tmp_path / "cuda.json", device="cpu")
    assert json.loads((tmp_path / "cuda.json").read_text(encoding="utf-8"))["ended"] == "no"
    run_parts({"first": Part(60, (QUICK,))}, report, 60, at_once=1)
    assert json.loads((tmp_path / "cuda.json").read_text(encoding="utf-8"))["ended"] == "yes"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n "a": [1]\n}\n', {"a": [1]}),
        ('{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ('a table\n\n{"a": 1}\n', {"a": 1}),
        ("passed\n", None),
        ("", None),
    ],
)
def test_json_of_an_output_is_found(text: str, expected: object) -> None:
    assert find_json(text) == expected


def test_parts_are_chosen_by_name() -> None:
    third = Part(1, is_chosen=False)
    parts = {"environment": Part(1), "first": Part(1), "second": Part(1), "third": third}
    assert list(choose(parts, [])) == ["environment", "first", "second"]
    assert list(choose(parts, ["third", "first"])) == ["environment", "first", "third"]
    with pytest.raises(SystemExit, match="--part forth: expected one of environment, first"):
        choose(parts, ["forth"])


def test_few_parts_share_all_of_the_time() -> None:
    stretched = stretch({"first": Part(1), "second": Part(2)}, 30)
    assert [part.seconds for part in stretched.values()] == [10, 20]
    assert stretch({"first": Part(40)}, 30)["first"].seconds == 40


def test_parts_fit_into_nine_minutes(tmp_path: Path) -> None:
    parts = choose(list_parts("cuda", tmp_path), [])
    assert sum(part.seconds for part in parts.values()) < 9 * 60


def test_parts_name_files_that_are_there_and_every_test_file_for_cuda(tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        for part in list_parts(device, tmp_path).values():
            for command in (*part.commands, *part.together):
                first = command.arguments[0]
                assert first in ("-c", "-m") or (ROOT / first).is_file(), command
    marked = "pytest.mark." + "cuda"  # in two, since this file has none
    having = [path.name for path in (ROOT / "tests").rglob("*.py") if marked in path.read_text()]
    assert {*having} - {"test_house.py"} == {Path(name).name for name in find_files()}
    file, _, test = LONGEST.partition("::")
    assert f"def {test}(" in (ROOT / file).read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_script_that_is_stopped_says_so_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    script = [ROOT / "scripts/cuda.sh", tmp_path / "out", "--device", "cpu", "--part", "load"]
    environment = {**os.environ, "PYTHON": sys.executable, "TMPDIR": str(folder)}
    # Under nohup SIGHUP is ignored, also by the processes that are started.
    with subprocess.Popen(
        script,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert "versions: passed" in process.stdout.readline()
        assert "seqpack: passed" in process.stdout.readline()
        process.send_signal(number)
        ending = process.stdout.read()  # the end comes when no process holds it any more
        assert process.wait() == 128 + number
    assert f"ended: stopped by {number.name}" in ending
    found = json.loads((tmp_path / "out/cuda.json").read_text(encoding="utf-8"))
    assert found["ended"] == f"stopped by {number.name}"
    assert [it["status"] for it in found["parts"].get("load", [])] in ([], [-signal.SIGKILL])
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("device", "status", "message"),
    [("cuda:9", 5, "Error: --device cuda:9: no "), ("gpu", 2, "Error: --device gpu: expected cpu")],
)
def test_device_that_is_not_there_ends_all_at_once(
    tmp_path: Path, device: str, status: int, message: str
) -> None:
    script = [ROOT / "scripts/cuda.sh", tmp_path, "--device", device]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(script, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert message in done.stderr
    found = json.loads((tmp_path / "cuda.json").read_text(encoding="utf-8"))
    assert found["ended"] == "environment: versions failed, so nothing else was run"
    versions, seqpack = found["parts"]["environment"]
    assert (versions["status"], seqpack["status"]) == (status, 0)
    assert versions["json"]["torch"] == torch.__version__


def test_python_that_does_not_run_is_named(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": "python3.99"}
    script = [ROOT / "scripts/cuda.sh", tmp_path]
    done = subprocess.run(script, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("Error: PYTHON=python3.99 does not run\n")


def test_folder_that_cannot_be_written_ends_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    script = [ROOT / "scripts/cuda.sh", tmp_path / "file", "--device", "cpu"]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(script, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {tmp_path}/file: no report can be written: ")


@pytest.mark.parametrize(
    ("options", "status", "outcome"),
    [((), 0, "6 skipped"), (("--require-cuda",), 1, "6 failed")],
)
def test_tests_for_a_gpu_are_skipped_without_one_unless_it_is_required(
    options: tuple[str, ...], status: int, outcome: str
) -> None:
    test = "tests/inner/test_data_loader.py::test_pin_memory_pins_every_batch_for_the_device"
    given = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-m", "cuda", test, *options]
    done = subprocess.run(
        [sys.executable, *given],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status
    assert outcome in done.stdout
    assert options or f": torch {torch.__version__} finds no GPU" in done.stdout


def test_script_runs_the_tests_so_that_none_is_skipped_for_want_of_a_gpu(tmp_path: Path) -> None:
    parts = list_parts("cuda", tmp_path)
    for command in (*parts["tests"].commands, *parts["longest"].commands):
        assert "--require-cuda" in command.arguments


def test_script_reports_the_versions_of_this_machine(tmp_path: Path) -> None:
    script = [ROOT / "scripts/cuda.sh", "out", "--device", "cpu", "--part", "environment"]
    done = subprocess.run(
        script, cwd=tmp_path, env={**os.environ, "PYTHON": sys.executable}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out/cuda.json").read_text(encoding="utf-8"))
    versions, seqpack = found["parts"]["environment"]
    assert re.match(r"3\.\d+", versions["json"]["python"])
    assert "torch" in versions["json"]["packages"]
    assert seqpack["status"] == 0
