"""Run tasks in threads of this process, which start at once.

They suit work that does not hold Python's lock: reading, writing, checksums. As soon as one task
fails, or the caller is interrupted, the others end where they next report progress.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from seqpack_cli.runs.progress import Progress, reporting_to

Task = TypeVar("Task")
Result = TypeVar("Result")


class _StoppedError(Exception):
    """Another task failed; nobody sees this error."""


def run_in_threads(
    function: Callable[[Task], Result], tasks: Sequence[Task], num_threads: int, progress: Progress
) -> Iterator[Result]:
    """Call the function on every task and yield the results as they finish.

    Progress is reported by one thread at a time.
    """
    lock, stopped = threading.Lock(), threading.Event()

    def tell(amount: int, num_tokens: int) -> None:
        if stopped.is_set():
            raise _StoppedError
        with lock:
            progress.tell(amount, num_tokens)

    pool = ThreadPoolExecutor(num_threads)
    with reporting_to(tell):
        try:
            for future in as_completed([pool.submit(function, task) for task in tasks]):
                yield future.result()
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
