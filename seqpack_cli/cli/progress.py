"""Progress bars and notes on stderr; a bar only if stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from seqpack_cli.cli.output import print_lines
from seqpack_cli.cli.process import Interrupts
from seqpack_cli.runs.workers import Progress


@contextmanager
def show_progress(name: str, unit: str, *, quiet: bool) -> Iterator[Progress]:
    """Show the progress of a run; yield the callbacks that it reports to.

    Args:
        unit: what is counted, "B" for bytes.
    """
    from tqdm import tqdm

    Interrupts.has_work = True  # the command's imports are done
    hidden = quiet or not sys.stderr.isatty()
    with tqdm(
        desc=name, unit=unit, unit_scale=True, total=0, disable=hidden, leave=False, file=sys.stderr
    ) as bar:
        num_tokens = 0

        def start(total: int) -> None:
            nonlocal num_tokens
            num_tokens = 0
            bar.reset(total)

        def notice(text: str) -> None:
            if not quiet:
                with tqdm.external_write_mode(file=sys.stderr):
                    print_lines(f"note: {text}", err=True)

        def advance(amount: int) -> None:
            bar.update(amount)

        def count_tokens(more: int) -> None:
            nonlocal num_tokens
            num_tokens += more
            seconds = max(bar.format_dict["elapsed"], 1e-3)
            bar.set_postfix_str(f"{tqdm.format_sizeof(num_tokens / seconds)} tokens/s", False)

        yield Progress(on_total=start, on_advance=advance, on_tokens=count_tokens, on_notice=notice)
        if not hidden and bar.n:
            bar.clear()
            seconds = bar.format_dict["elapsed"]
            click.echo(_summarize(name, unit, bar.n, num_tokens, seconds), err=True)


def _summarize(name: str, unit: str, amount: float, num_tokens: int, seconds: float) -> str:
    """Return the final line, which replaces the bar.

    >>> _summarize("tokenize", "B", 50e6, 12_000_000, 2.0)
    'tokenize: 50.0 MB in 2.0 s, 25.0 MB/s, 6.00 M tokens/s'
    """
    from tqdm import tqdm

    def scale(number: float) -> str:
        digits = tqdm.format_sizeof(number).lstrip()
        return f"{digits[:-1]} {digits[-1]}" if digits[-1].isalpha() else f"{digits} "

    seconds = max(seconds, 1e-3)
    parts = [f"{scale(amount)}{unit} in {seconds:.1f} s", f"{scale(amount / seconds)}{unit}/s"]
    if num_tokens:
        parts.append(f"{scale(num_tokens / seconds)} tokens/s")
    return f"{name}: {', '.join(parts)}"
