"""Progress bars and notices on stderr: a bar only where stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from seqpack_cli.execution import Progress


@contextmanager
def show_progress(name: str, unit: str, *, quiet: bool) -> Iterator[Progress]:
    """Draw the progress of a run.

    Args:
        unit: what is counted: "B" for bytes, else a word.
    """
    from tqdm import tqdm

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
                    click.echo(f"note: {text}", err=True)

        def advance(amount: int) -> None:
            bar.update(amount)

        def count_tokens(more: int) -> None:
            nonlocal num_tokens
            num_tokens += more
            seconds = max(bar.format_dict["elapsed"], 1e-3)
            bar.set_postfix_str(f"{tqdm.format_sizeof(num_tokens / seconds)} tokens/s", False)

        yield Progress(on_total=start, on_advance=advance, on_tokens=count_tokens, on_notice=notice)
