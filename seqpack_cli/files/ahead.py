"""Call a function on items ahead of time, in threads, to hide the latency of requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], *, num_threads: int
) -> Generator[Result, None, None]:
    """Call a function on every item, in threads, and yield the results in the items' order.

    num_threads=1 uses the calling thread. At most num_threads + 1 results are kept ahead. The
    threads end with the generator: close it if an exception's traceback would keep it.
    """
    if num_threads == 1:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_threads) as pool:
        ahead: deque[Future[Result]] = deque()
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > num_threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
