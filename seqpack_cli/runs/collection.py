"""Keep Python from looking for unreachable cycles while many small objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pausing_collection() -> Iterator[None]:
    """Make objects in this block, or in a function decorated with it, without collections.

    Every collection looks through all that was made before it; of 100,000 sources none is garbage,
    and half of the time to list them would go there.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
