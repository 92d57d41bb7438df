"""Run tasks in threads of this process, which start at once.

They suit work that does not hold Python's lock: reading, writing, checksums. If a task fails, those
after it end where they next report progress, and those before it are finished: the error is that of
the first task that fails, as if they ran one after another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from seqpack_cli.runs.progress import Progress, reporting_to

Task = TypeVar("Task")
Result = TypeVar("Result")


class _StoppedError(Exception):
    """An earlier task failed, or the caller has left; nobody sees this error."""


def run_in_threads(
    function: Callable[[Task], Result], tasks: Sequence[Task], num_threads: int, progress: Progress
) -> Iterator[Result]:
    """Call the function on every task and yield the results as they finish.

    Progress is reported by one thread at a time.
    """
    lock, own = threading.Lock(), threading.local()
    end = len(tasks)  # the tasks from here on stop

    def tell(amount: int, num_tokens: int) -> None:
        if getattr(own, "number", 0) >= end:
            raise _StoppedError
        with lock:
            progress.tell(amount, num_tokens)

    def work(number: int) -> Result:
        own.number = number
        return function(tasks[number])

    pool = ThreadPoolExecutor(num_threads)
    with reporting_to(tell):
        try:
            numbers: dict[Future[Result], int] = {}
            numbers |= {pool.submit(work, number): number for number in range(end)}
            failed = None
            for future in as_completed(numbers):
                if numbers[future] >= end:
                    continue
                if future.exception() is None:
                    yield future.result()
                    continue
                failed, end = future, numbers[future]
                for later, number in numbers.items():
                    if number > end:
                        later.cancel()
            if failed is not None:
                failed.result()
        finally:
            end = 0
            pool.shutdown(cancel_futures=True)
