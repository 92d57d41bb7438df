"""seqpack verify."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from seqpack_cli.cli.options import OneValueCommand, errors_only_option, json_option
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import NATURAL, PLACE, POSITIVE, SampleType
from seqpack_cli.files.places import Place

EXIT_FAULT = 1


@click.command("verify", cls=OneValueCommand)
@click.argument("shards", type=PLACE)
@click.option(
    "--tokens",
    type=PLACE,
    metavar="STORE",
    multiple=True,
    help="Token store that the shards were packed from; repeat it for several stores, of either "
    "side of pairs, in any order.  [default: the paths recorded by pack]",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="Device to compute on: cpu, cuda or cuda:N. A missing GPU is an error.",
)
@click.option(
    "--level",
    type=click.Choice(["structure", "roundtrip", "run", "forward", "backward", "model"]),
    default=None,
    help="How much to check; each level includes the ones before it, but on a CPU forward and "
    "backward leave out run unless --every-batch is given. structure: files, checksums, counts, "
    "and that the batches are those that pack's options give; roundtrip: unpacking in torch gives "
    "every id back; run: the test model computes every batch without an error; forward: outputs "
    "equal those of each sequence alone; backward: so do gradients. model: structure, roundtrip, "
    "then your own model.  [default: backward; with --model: model]",
)
@click.option(
    "--cell",
    type=click.Choice(["lstm", "gru", "rnn"]),
    default="lstm",
    show_default=True,
    help="Recurrent network of the test model: nn.LSTM, nn.GRU or nn.RNN. varlen shards are "
    "tested with causal attention too.",
)
@click.option(
    "--layers",
    "num_layers",
    type=POSITIVE,
    default=1,
    show_default=True,
    help="Number of recurrent layers (num_layers of torch).",
)
@click.option("--bidirectional", is_flag=True, help="Make the recurrent network bidirectional.")
@click.option(
    "--hidden-size",
    type=POSITIVE,
    default=64,
    show_default=True,
    help="Hidden size of the test model.",
)
@click.option(
    "--model",
    metavar="MODULE:FUNCTION",
    help="Check your own model instead of the test model: the function takes (vocab_size, device, "
    "dtype) and returns an nn.Module. Modules of the current folder are found. Not for pairs.",
)
@click.option(
    "--call",
    metavar="MODULE:FUNCTION",
    help="Function that takes (model, batch) and returns the outputs of your model, per token or "
    "per sequence. batch is as ShardDataset returns it, on the device.  [default: packed: "
    "model(batch.sequences); padded: model(batch.ids, batch.mask); varlen: the keyword arguments "
    "of transformers]",
)
@click.option(
    "--causal",
    is_flag=True,
    help="With --model: also check that no token sees a later one, and that no token behind the "
    "last target changes the loss.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="Data type for computing. With bfloat16 and float16 the differences are reported but do "
    "not fail the check.",
)
@click.option(
    "--sample",
    type=SampleType(),
    metavar=SampleType.name,
    default=32,
    show_default=True,
    help="Number of batches whose results are compared at the levels forward, backward and model, "
    "or all.",
)
@click.option(
    "--every-batch/--no-every-batch",
    default=None,
    help="With --level forward or backward: whether to include the level run, which computes "
    "every batch and not only the sample.  [default: only on a GPU]",
)
@click.option(
    "--max-batch-tokens",
    type=POSITIVE,
    default=32768,
    show_default=True,
    help="At the levels forward and backward, compute only part of a batch that has more than N "
    "tokens; run always computes whole batches.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Also measure the speed of the test model in tokens/s on this device: on sampled batches "
    "as PackedSequence, on the same sequences padded, and on rows of equal length.",
)
@click.option(
    "--self-test",
    is_flag=True,
    help="Also test verify itself: damage a copy of one shard in memory in several ways and check "
    "that each damage is found.",
)
@click.option(
    "--seed",
    type=NATURAL,
    default=0,
    show_default=True,
    help="Random seed for the sampled batches and the weights of the test model.",
)
@click.option(
    "--num-workers",
    type=POSITIVE,
    help="Worker processes for the level roundtrip on a CPU.  [default: number of CPU cores, fewer "
    "for less than 300 million tokens each]",
)
@json_option
@errors_only_option
def command(
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
    from seqpack_cli.verification.verify_options import VerifyOptions
    from seqpack_cli.verification.verify_run import verify

    # what the user's model prints must not mix with the report
    with show_progress("verify", "", quiet=quiet) as progress, redirect_stdout(sys.stderr):
        chosen = VerifyOptions(tokens=tokens or None, **options)
        report = verify(shards, chosen, progress=progress)
    if as_json:
        print_json(report.to_json())
    elif not quiet or not report.passed:
        findings = [str(finding) for finding in report.findings]
        print_lines(*summarize(report.to_json(), findings))
    if not report.passed:
        click.get_current_context().exit(EXIT_FAULT)
