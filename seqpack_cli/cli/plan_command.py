"""seqpack plan."""

from __future__ import annotations

import click

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.cli.options import (
    GroupedCommand,
    decoder_option,
    json_option,
    options_of,
    plot_option,
    quiet_option,
)
from seqpack_cli.cli.output import print_answer
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import PLACE
from seqpack_cli.files.places import Place


@click.command("plan", cls=GroupedCommand)
@click.argument("stores", type=PLACE, nargs=-1, required=True, metavar="STORE...")
@decoder_option
@plot_option("Write a picture of the comparison to FILE instead of printing it.")
@options_of(PackOptions, only=("keep_without_target",))
@json_option
@quiet_option
def command(
    stores: tuple[Place, ...],
    decoder: tuple[Place, ...],
    plot: Place | None,
    keep_without_target: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare the ways to pack a token store, or several as one, before packing.

    For each layout and a fixed list of batch sizes, buckets and row lengths (--batch-size,
    --buckets and --max-tokens of `seqpack pack`): the number of batches, the share of padding, and
    the size of the shards. Other options have their defaults: without splits, conditions or passes,
    all sequences that have a target are packed once. --shuffle with --window needs more padding.
    Only the lengths of the sequences are read, and their targets if a store has them. With
    --decoder, the ways to pack pairs, with the padding of both sides and of each; a pair of which a
    side is empty is left out.

    \b
    As a table:
        seqpack plan tokens
    As a picture:
        seqpack plan tokens --plot plan.svg
    Pairs of two stores:
        seqpack plan english --decoder german
    """
    from seqpack_cli.reporting.plans import plan
    from seqpack_cli.reporting.terminal.plan_lines import show_plans

    if plot is not None:
        from seqpack_cli.reporting.pictures.picture import check_picture_path

        check_picture_path(plot)
    with show_progress("plan", "way", quiet=quiet) as progress:
        found = plan(
            stores,
            decoder=decoder or None,
            keep_without_target=keep_without_target,
            progress=progress,
        )
    if plot is not None:
        from seqpack_cli.reporting.pictures.panels import make_plan_panels, make_plan_title
        from seqpack_cli.reporting.pictures.picture import save_picture

        save_picture(plot, make_plan_title(found), make_plan_panels(found))
    print_answer(found, show_plans, written=[plot], as_json=as_json, quiet=quiet)
