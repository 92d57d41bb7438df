"""seqpack verify."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from seqpack_cli.cli.options import (
    PLACE,
    grouped_command,
    options_of,
    result_options,
)
from seqpack_cli.cli.output import print_result
from seqpack_cli.cli.process import show_progress
from seqpack_cli.verification.options import OWN, TEST, WHAT, VerifyOptions

if TYPE_CHECKING:
    from seqpack_cli.files.places import Place  # not for --help

EXIT_FAULT = 1


@grouped_command("verify", groups=(WHAT, TEST, OWN))
@click.argument("shards", type=PLACE)
@options_of(VerifyOptions)
@result_options
def verify_command(
    shards: Place, tokens: tuple[Place, ...], as_json: bool, quiet: bool, **options: Any
) -> None:
    """Check shards against their token store, on the device that you will train on.

    Every file, checksum and id is checked. A small test model is then run on a sample of the
    batches and on each of their sequences alone; the results must agree within rounding errors. The
    exit code is 1 if a fault is found.

    Of pairs, each side is checked by itself, and that both sides of each row are the same document.
    In the folder that pack --split wrote, every split is checked, and that no document is in two of
    them and none is missing.

    \b
    On the GPU that you will train on:
        seqpack verify shards --device cuda
    Files, checksums and ids only, without a model:
        seqpack verify shards --level roundtrip
    Your own model, made by the function make of models.py:
        seqpack verify shards --model models:make
    """
    from seqpack_cli.reporting.terminal.verify_summary import summarize
    from seqpack_cli.verification.verify_run import verify

    # what the user's model prints must not mix with the report
    with show_progress("verify", "", quiet=quiet) as progress, redirect_stdout(sys.stderr):
        chosen = VerifyOptions(tokens=tokens or None, **options)
        report = verify(shards, chosen, progress=progress)
    findings = [str(finding) for finding in report.findings]
    print_result(
        report.to_json(),
        lambda: summarize(report.to_json(), findings),
        as_json=as_json,
        quiet=quiet and report.passed,
    )
    if not report.passed:
        click.get_current_context().exit(EXIT_FAULT)
