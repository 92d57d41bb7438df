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
from cuda_parts import LONGEST, find_files, list_parts
from cuda_report import Command, Part, Report, choose, run_parts, stretch

ROOT = Path(__file__).parent.parent

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


def test_parts_are_chosen_by_name() -> None:
    parts = {"first": Part(1), "second": Part(1), "third": Part(1, is_chosen=False)}
    assert list(choose(parts, [])) == ["first", "second"]
    assert list(choose(parts, ["third", "first"])) == ["first", "third"]
    with pytest.raises(SystemExit, match="--part forth: expected one of first, second, third"):
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
    having = [path.name for path in (ROOT / "tests").glob("*.py") if marked in path.read_text()]
    assert {*having} - {"test_imports.py"} == {Path(name).name for name in find_files()}
    file, _, test = LONGEST.partition("::")
    assert f"def {test}(" in (ROOT / file).read_text()


def test_script_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    code = (
        "import sys, signal, cuda_report as it; signal.signal(signal.SIGTERM, it.leave);"
        "sleep = 'import time; print(1, flush=True); time.sleep(6); print(2)';"
        "it.wait([sys.executable, '-c', sleep], 60, None, None)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT / "scripts", stdout=subprocess.PIPE, text=True
    )
    with started as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.terminate()
        assert process.stdout.read() == ""  # the end comes when no process holds it any more
        assert process.wait() == 128 + signal.SIGTERM


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
