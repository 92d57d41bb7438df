"""What a library prints about an expected failure is hidden, about another is not."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from command import run
from seqpack_cli.tokens.panics import hiding_panics
from tokenizer_kinds import tokenizer_of

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd_create")


def print_as_rust(text: str) -> None:
    os.write(2, text.encode())


def test_what_an_expected_failure_printed_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), hiding_panics(KeyError):
        print_as_rust("thread panicked")
        raise KeyError
    print_as_rust("after")
    assert capfd.readouterr().err == "after"


def test_all_else_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with hiding_panics(KeyError):
        print_as_rust("a warning")
    assert capfd.readouterr().err == "a warning"
    with pytest.raises(ValueError, match="other"), hiding_panics(KeyError):
        print_as_rust("thread panicked")
        raise ValueError("other")
    assert capfd.readouterr().err == "thread panicked"


def test_one_block_in_another_and_in_threads_gives_stderr_back(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def hide() -> None:
        for _ in range(50):
            with hiding_panics(KeyError), hiding_panics(KeyError):
                print_as_rust(".")

    threads = [threading.Thread(target=hide) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_as_rust("after")
    assert capfd.readouterr().err == "." * 400 + "after"


def test_a_run_that_succeeds_prints_no_panic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The regex of a normalizer that never ends on the probe, but ends on the run's text."""
    pytest.importorskip("fastokens")
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    tokenizer = json.loads(tokenizer_of("split_pattern"))
    pattern = {"Regex": "(a+a+)+b"}
    tokenizer["normalizer"] = {"type": "Replace", "pattern": pattern, "content": "x"}
    (tmp_path / "slow.json").write_text(json.dumps(tokenizer))
    (tmp_path / "a.txt").write_text("some text\n")
    arguments = ("--tokenizer", tmp_path / "slow.json", "--num-workers", 1)
    result = run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "out", *arguments)
    assert result.exit_code == 0
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("note: ")
    assert capfd.readouterr().err == ""
