"""seqpack inspect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from seqpack_cli.cli.options import PLACE, json_option, quiet_option
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.files.url import Place

if TYPE_CHECKING:
    from seqpack_cli.reporting.opened import Opened
    from seqpack_cli.runs.progress import Progress

MAX_TEXT_IDS = 4096  # of a row that is shown: the first few hundred characters are
Answer = tuple[dict[str, Any], Callable[[dict[str, Any]], list[str]]]


@click.command("inspect")
@click.argument("path", type=PLACE)
@click.option("--batch", type=click.IntRange(min=0), metavar="I", help="Show one batch of shards.")
@click.option(
    "--sequence",
    type=click.IntRange(min=0),
    metavar="I",
    help="Show one sequence by its index in the token store.",
)
@click.option(
    "--plan",
    is_flag=True,
    help="What each layout, batch size and bucket set would cost, from the lengths alone.",
)
@click.option(
    "--vocabulary",
    is_flag=True,
    help="Special tokens spelled in the text, unknown tokens, ids never used, and where.",
)
@click.option(
    "--diff", type=PLACE, metavar="OTHER", help="What differs from another store or shards."
)
@click.option(
    "--plot",
    type=PLACE,
    metavar="FILE.png|svg",
    help="Draw lengths, padding and a batch; with --batch or --plan that. Replaces a picture of "
    "seqpack, and no other file.",
)
@click.option(
    "--html",
    type=PLACE,
    metavar="FILE",
    help="Write one page that stands alone: numbers, pictures, batches, rows, search. Replaces a "
    "page of seqpack, and no other file.",
)
@json_option
@quiet_option
def command(path: Place, as_json: bool, quiet: bool, **asked: Any) -> None:
    """Show what is in a token store or in shards.

    \b
    Numbers, lengths and padding; the same with pictures, or as a page:
        seqpack inspect shards
        seqpack inspect shards --plot shards.svg
        seqpack inspect shards --html shards.html
    One batch, and one sequence with its text and where it came from:
        seqpack inspect shards --batch 0
        seqpack inspect tokens --sequence 17
    Batches, padding and bytes of each way to pack:
        seqpack inspect tokens --plan
    How the vocabulary is used, and what differs between two runs:
        seqpack inspect tokens --vocabulary
        seqpack inspect tokens --diff tokens-old
    """
    from seqpack_cli.reporting.opened import open_any

    question = _find_question(asked)
    _check_files(asked["plot"], asked["html"])
    opened = open_any(path)
    max_text_ids = None if as_json else MAX_TEXT_IDS
    unit = {"plan": "way", "vocabulary": "id", "diff": "sequence"}.get(question or "", "step")
    with show_progress(question or "inspect", unit, quiet=quiet) as progress:
        found, show = _answer(opened, asked, max_text_ids, progress)
    names = _write_files(opened, found, asked)  # first: an error is no answer
    if as_json:
        print_json(found)
        return
    written = [] if quiet else [f"{name}: written" for name in names]
    print_lines(*show(found), *[""] * bool(written), *written)


def _find_question(asked: dict[str, Any]) -> str | None:
    """Give the one thing that is asked, which a picture or page that is wanted must be of."""
    questions = [
        name
        for name in ("batch", "sequence", "plan", "vocabulary", "diff")
        if asked[name] is not None and asked[name] is not False
    ]
    spelled = [f"--{name}" for name in questions]
    if len(questions) > 1:
        raise click.UsageError(f"{' and '.join(spelled)} are separate questions, ask one")
    for name, allowed in (("plot", ("batch", "plan")), ("html", ())):
        if asked[name] is not None and not set(questions) <= set(allowed):
            raise click.UsageError(f"--{name} has nothing to show of {spelled[0]}")
    return questions[0] if questions else None


def _check_files(plot: Place | None, html: Place | None) -> None:
    """Raise, before any work, unless the files can be made and written."""
    if plot is not None:
        from seqpack_cli.reporting.pictures.picture import check_picture_path

        check_picture_path(plot)
    if html is not None:
        from seqpack_cli.reporting.page.page import check_page_path

        check_page_path(html)


def _answer(
    opened: Opened,
    asked: dict[str, Any],
    max_text_ids: int | None,
    progress: Progress,
) -> Answer:
    """Give the values that answer the question, and what makes lines of them."""
    from seqpack_cli.reporting import contents, differences, plans, rows, vocabulary_use
    from seqpack_cli.reporting.opened import open_any
    from seqpack_cli.reporting.terminal import (
        contents_lines,
        difference_lines,
        plan_lines,
        row_lines,
        vocabulary_lines,
    )

    if asked["plan"]:
        return plans.compare_plans(opened, progress), plan_lines.show_plans
    if asked["vocabulary"]:
        found = vocabulary_use.describe_vocabulary_use(opened, progress)
        return found, vocabulary_lines.show_vocabulary_use
    if asked["diff"] is not None:
        found = differences.compare(opened, open_any(asked["diff"]), progress)
        return found, difference_lines.show_differences
    if asked["sequence"] is not None:
        found = rows.describe_sequence(opened, asked["sequence"], max_text_ids=max_text_ids)
        return found, row_lines.show_sequence
    if asked["batch"] is not None:
        found = rows.describe_batch(opened, asked["batch"], max_text_ids=max_text_ids)
        return found, row_lines.show_batch
    return contents.describe(opened), contents_lines.show_numbers


def _write_files(opened: Opened, found: dict[str, Any], asked: dict[str, Any]) -> list[Place]:
    """Write the picture and the page that were asked for, and name them."""
    plot, html = asked["plot"], asked["html"]
    if plot is None and html is None:
        return []
    from seqpack_cli.reporting.pictures.panels import make_panels, make_plan_panels, make_title
    from seqpack_cli.reporting.pictures.picture import save_picture

    panels = make_plan_panels(found) if asked["plan"] else make_panels(opened, batch=asked["batch"])
    if plot is not None:
        save_picture(plot, make_title(opened), panels)
    if html is not None:
        from seqpack_cli.reporting.page.page import write_page

        write_page(html, opened, found, panels)
    return [path for path in (plot, html) if path is not None]
