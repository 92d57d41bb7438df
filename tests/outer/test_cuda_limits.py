"""The errors of random shard sets: those that fail, and Ctrl-C, leave what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cuda_limits
import pytest
from cuda_limits import MAX_FAILED, main


def measure_until(last: int, ending: BaseException) -> Any:
    """Return a measure that fails for odd seeds and ends with an exception."""

    def measure(store: Path, shards: Path, device: str, seed: int) -> list[dict[str, Any]]:
        if seed == last:
            raise ending
        if seed % 2:
            raise RuntimeError(f"set {seed}")
        key = {"dtype": "float32", "level": "forward", "quantity": "outputs"}
        return [{**key, "seed": seed, "error": float(10 - seed), "limit": 20.0}]

    return measure


@pytest.fixture(autouse=True)
def in_the_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])


def test_ctrl_c_leaves_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda_limits, "measure", measure_until(4, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        main(str(tmp_path), "cpu", "9")
    found = json.loads(capsys.readouterr().out)
    assert found["num_sets"] == 2
    assert [(it["seed"], it["error"]) for it in found["largest"]] == [(0, 10.0)]
    assert [it["seed"] for it in found["failed"]] == [1, 3]
    assert "RuntimeError: set 1" in found["failed"][0]["error"][-1]


def test_device_that_fails_for_every_set_ends_the_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda_limits, "measure", measure_until(-1, KeyboardInterrupt()))
    with pytest.raises(SystemExit) as ended:
        main(str(tmp_path), "cpu", "1000")
    assert ended.value.code == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["num_sets"], len(found["failed"])) == (5, MAX_FAILED)
