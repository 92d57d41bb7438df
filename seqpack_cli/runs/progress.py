"""How far a run is: what its tasks say reaches its caller, from wherever a task runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seqpack_cli.runs.arguments import check_fields


def _ignore(amount: int, num_tokens: int) -> None:
    del amount, num_tokens


# Where `advance` goes: the one thing that differs between this process and a worker.
_report: Callable[[int, int], None] = _ignore


@dataclass(frozen=True)
class Progress:
    """Callbacks of a run, for a bar and for notices; the defaults keep silent."""

    on_total: Callable[[int], None] = lambda _: None
    on_advance: Callable[[int], None] = lambda _: None
    on_tokens: Callable[[int], None] = lambda _: None
    on_notice: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        check_fields(self)

    def tell(self, amount: int, num_tokens: int) -> None:
        """Pass on what a task said."""
        if amount:
            self.on_advance(amount)
        if num_tokens:
            self.on_tokens(num_tokens)


def advance(amount: int, num_tokens: int = 0) -> None:
    """Say, from within a task, that so much more of it is done."""
    _report(amount, num_tokens)


def report_to(report: Callable[[int, int], None]) -> None:
    """Say where `advance` goes in this process from now on."""
    global _report
    _report = report


@contextmanager
def reporting_to(report: Callable[[int, int], None]) -> Iterator[None]:
    """Say where `advance` goes in this block."""
    before = _report
    report_to(report)
    try:
        yield
    finally:
        report_to(before)
