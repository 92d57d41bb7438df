"""Progress of a run: tasks report it with `advance`, from any process, to the run's caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seqpack_cli.runs.arguments import check_fields


def _ignore(amount: int, num_tokens: int) -> None:
    del amount, num_tokens


# Where `advance` reports to, which differs between this process and a worker.
_report: Callable[[int, int], None] = _ignore


@dataclass(frozen=True)
class Progress:
    """Callbacks of a run, for a progress bar and for notices; the defaults do nothing.

    Args:
        on_total: called with the amount of work, in bytes, tokens or sequences.
        on_advance: called with the amount done since the last call.
        on_tokens: called with the tokens made since the last call.
        on_notice: called with a sentence that the user should see.
    """

    on_total: Callable[[int], None] = lambda _: None
    on_advance: Callable[[int], None] = lambda _: None
    on_tokens: Callable[[int], None] = lambda _: None
    on_notice: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        check_fields(self)

    def tell(self, amount: int, num_tokens: int) -> None:
        """Call `on_advance` and `on_tokens` with what a task reported."""
        if amount:
            self.on_advance(amount)
        if num_tokens:
            self.on_tokens(num_tokens)


def advance(amount: int, num_tokens: int = 0) -> None:
    """Report, from within a task, that an amount of its work is done."""
    _report(amount, num_tokens)


def report_to(report: Callable[[int, int], None]) -> None:
    """Set where `advance` reports to in this process."""
    global _report
    _report = report


@contextmanager
def reporting_to(report: Callable[[int, int], None]) -> Iterator[None]:
    """Set where `advance` reports to in this block."""
    before = _report
    report_to(report)
    try:
        yield
    finally:
        report_to(before)
