"""The driver process, which is connected to a Ray cluster and runs the tasks that its parent sends.

Ray prints to stdout, logs to stderr, installs signal handlers, and ends the process silently when
the node that it is connected to goes away. In a process of its own, none of that reaches the run.
The driver ends with its parent, and its tasks end with it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from seqpack_cli.runs.ray_cluster import connect
from seqpack_cli.runs.ray_tasks import Calls, Common, cancel, run_calls

END_SECONDS = 15.0  # to end tasks, and a cluster that was started for the run


def serve(descriptor: int) -> None:
    """Connect to a cluster and run what the parent sends, until it closes the connection."""
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    calls: Calls = {}
    try:
        address, num_cores = inbox.get()
        error = _try(connect, address, num_cores=num_cores)
        connection.send(("ended", error))
        signal.signal(signal.SIGTERM, _leave)  # again: Ray has installed its own handler
        while error is None:
            common, num_workers = inbox.get()
            cancel(list(calls))  # tasks left by a run that failed
            calls.clear()
            failure = _try(_run, connection, inbox, common, calls, num_workers)
            connection.send(("ended", failure))
    finally:
        _end(list(calls))


def _run(
    connection: Connection,
    inbox: queue.SimpleQueue[Any],
    common: Common,
    calls: Calls,
    num_workers: int | None,
) -> None:
    def ask() -> Iterator[Any]:
        while True:
            connection.send(("wanted", None))
            found = inbox.get()
            if not found:
                return
            yield found[0]

    def on_notice(text: str) -> None:
        connection.send(("notice", text))

    for done in run_calls(common, ask(), calls, num_workers=num_workers, on_notice=on_notice):
        connection.send(("done", done))


def _try(function: Callable[..., None], *arguments: Any, **options: Any) -> Exception | None:
    """Call a function and return the exception that it raises, without what cannot be pickled."""
    try:
        function(*arguments, **options)
    except Exception as error:
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error
    return None


def _read(connection: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    """Queue what the parent sends; end this process when the parent closes the connection."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(connection.recv())
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_SECONDS)
    os._exit(1)  # Ray hangs if a node has stopped responding


def _leave(number: int, frame: object) -> None:
    del frame
    signal.signal(number, signal.SIG_IGN)  # no second exit during the cleanup
    sys.exit(number)


def _end(references: list[Any]) -> None:
    """Cancel tasks, so that they remove their temporary files, and disconnect."""
    import ray

    try:
        cancel(references, ways=({"force": False},))
    finally:
        ray.shutdown()
