"""Ctrl-C and SIGTERM: the first ends the program in order, the next ones do not disturb that."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# It waits in short steps: Python does not hear a signal that comes just before it reads a pipe.
PROGRAM = """
import select, signal, sys
from seqpack_cli.cli import process

def wait():
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        pass
    sys.stdin.readline()

process.CLEANUP_SECONDS = float(sys.argv[1])
interrupts = process.Interrupts()
process.Interrupts.has_work = True
try:
    print("working", flush=True)
    wait()
    print("done", flush=True)
except KeyboardInterrupt:
    print("cleaning", flush=True)
    wait()
    print("cleaned", flush=True)
interrupts.end()
sys.exit(0 if interrupts.first is None else 130)
"""
LOST = """
import signal, sys, time
from seqpack_cli.cli.process import Interrupts

class Lost:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))

interrupts = Interrupts()
Interrupts.has_work = True
try:
    Lost()
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""


@contextmanager
def started(
    patience: float = 60, sigint: signal.Handlers = signal.SIG_DFL, program: str = PROGRAM
) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(patience)],
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, sigint),
        **pipes,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        yield process
        process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Let the program go on; give its code and the rest of what it says."""
    stdout, stderr = process.communicate("go on\n", timeout=30)
    return process.returncode, stdout, stderr


INT, TERM = signal.SIGINT, signal.SIGTERM
SIGNALS = [  # the first, the ones while it cleans up, SIGINT when it begins; then how it ends
    *((first, again, signal.SIG_DFL, 130) for first in (INT, TERM) for again in (INT, TERM)),
    (INT, None, signal.SIG_IGN, 0),  # a background job does not hear Ctrl-C
    (TERM, INT, signal.SIG_IGN, 130),
]


@pytest.mark.parametrize(("first", "again", "sigint", "code"), SIGNALS)
def test_a_second_signal_does_not_disturb_cleaning_up(
    first: int, again: int | None, sigint: signal.Handlers, code: int
) -> None:
    with started(sigint=sigint) as process:
        process.send_signal(first)
        if again is not None:
            assert read_line(process) == "cleaning\n"
            for _ in range(3):
                process.send_signal(again)
        assert end(process) == (code, "cleaned\n" if code else "done\n", "")


def test_a_signal_that_comes_much_later_ends_the_program_at_once() -> None:
    with started(patience=0) as process:
        process.send_signal(INT)
        assert read_line(process) == "cleaning\n"
        process.send_signal(INT)
        assert process.wait(30) == 130
        assert read_line(process) == ""


@pytest.mark.parametrize(("number", "sigint"), [(INT, signal.SIG_DFL), (TERM, signal.SIG_IGN)])
def test_an_interrupt_is_not_lost_where_nothing_can_be_raised(
    number: signal.Signals, sigint: signal.Handlers
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(int(number))],
        capture_output=True,
        timeout=50,
        preexec_fn=lambda: signal.signal(INT, sigint),
    )
    assert (done.returncode, done.stderr) == (130, b"")


def test_an_interrupt_before_the_work_ends_the_program_where_it_stands() -> None:
    """An import that is interrupted may leave locks and half a package behind."""
    with started(program=PROGRAM.replace("has_work = True", "has_work = False")) as process:
        process.send_signal(INT)
        assert process.wait(30) == 130
        assert end(process) == (130, "", "\nInterrupted: run the same command again\n")


THREAD_AT_THE_END = """
import atexit, sys, threading
from seqpack_cli.cli.process import leave

atexit.register(print, "a library ends")
started = threading.Event()

def work() -> None:
    started.wait()
    print("a thread ends")

threading.Thread(target=work).start()
print("the command ends")
threading.Timer(0.05, started.set).start()
leave(3)
"""


def test_a_process_ends_after_its_threads_and_libraries() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREAD_AT_THE_END], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines() == ["the command ends", "a thread ends", "a library ends"]
