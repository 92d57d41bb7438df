"""seqpack verify."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    PLACE,
    POSITIVE,
    SampleType,
    json_option,
    quiet_option,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.files.url import Place

EXIT_FAULT = 1


@click.command("verify")
@click.argument("shards", type=PLACE)
@click.option("--tokens", type=PLACE, help="The token store.  [default: where it was when packing]")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")
@click.option(
    "--level",
    type=click.Choice(["structure", "roundtrip", "run", "forward", "backward"]),
    default="backward",
    show_default=True,
    help="How deep; each level includes those before it.",
)
@click.option(
    "--cell", type=click.Choice(["lstm", "gru", "rnn"]), default="lstm", show_default=True
)
@click.option(
    "--layers",
    "num_layers",
    type=POSITIVE,
    default=1,
    show_default=True,
    help="Recurrent layers of the model.",
)
@click.option("--bidirectional", is_flag=True, help="Also run the model from the end.")
@click.option(
    "--hidden-size", type=POSITIVE, default=64, show_default=True, help="Units of the model."
)
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="Of forward and backward; errors of 16-bit ones are reported, not judged.",
)
@click.option(
    "--sample",
    type=SampleType(),
    default=32,
    show_default=True,
    help="Batches that forward and backward compute.",
)
@click.option(
    "--every-batch/--no-every-batch",
    default=None,
    help="With --level forward or backward: also check level run.  [default: on a GPU only]",
)
@click.option(
    "--max-batch-tokens",
    type=POSITIVE,
    default=32768,
    show_default=True,
    help="Larger batches are computed in part; lower it where memory runs out.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Measure tokens/s of packed, padded and even rows on this device.",
)
@click.option(
    "--self-test",
    is_flag=True,
    help="Damage one shard in memory, in each way, and see each damage found.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
@quiet_option
def command(shards: Place, as_json: bool, quiet: bool, **options: Any) -> None:
    """Prove that shards hold the token store's sequences, and that packing changes no result.

    Exit code 1 says that a fault was found.

    \b
    Every file and id, and a sample of batches through a model, on the GPU that will train:
        seqpack verify shards --device cuda
    Files, checksums and every id, without computing:
        seqpack verify shards --level roundtrip
    """
    from seqpack_cli.reporting.terminal.verify_summary import summarize_verify
    from seqpack_cli.verification.verify_options import VerifyOptions
    from seqpack_cli.verification.verify_run import verify_shards

    with show_progress("verify", "", quiet=quiet) as progress:
        report = verify_shards(shards, VerifyOptions(**options), progress=progress)
    if as_json:
        print_json(report.to_json())
    elif not quiet or not report.passed:
        findings = [str(finding) for finding in report.findings]
        print_lines(*summarize_verify(report.to_json(), findings))
    if not report.passed:
        click.get_current_context().exit(EXIT_FAULT)
