"""seqpack inspect."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from seqpack_cli.cli.options import GroupedCommand, json_option, plot_option, quiet_option
from seqpack_cli.cli.output import print_answer, print_lines, wants_colour
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.side_option import side_option
from seqpack_cli.cli.values import NATURAL, PLACE
from seqpack_cli.files.places import Place

if TYPE_CHECKING:
    from seqpack_cli.reporting.opened import Opened

MAX_TEXT_IDS = 4096  # of a row that is shown: the first few hundred characters are
Answer = tuple[dict[str, Any], Callable[[dict[str, Any]], list[str]]]


@click.command("inspect", cls=GroupedCommand)
@click.argument("paths", type=PLACE, nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--batch",
    type=NATURAL,
    metavar="I",
    help="Show the rows of batch I of shards, counted from 0.",
)
@click.option(
    "--sequence",
    type=NATURAL,
    metavar="I",
    help="Show sequence I of the token store, counted from 0: its tokens, ids, text and columns, "
    "which tokens are targets, and the file and record it came from (if PATH is a folder of "
    "shards, also its batch and row; the origin only while the store is where pack found it).",
)
@click.option(
    "--vocabulary",
    is_flag=True,
    help="Count how often each id of a token store, of several as one, or of shards is used. Shows "
    "ids that never occur, "
    "unknown tokens, and special tokens that are spelled out in the text, with records where they "
    "occur.",
)
@plot_option(
    "Write a picture of the lengths, the padding, one batch and the columns (with --batch, of that "
    "batch) to FILE instead of printing the numbers."
)
@click.option(
    "--html",
    type=PLACE,
    metavar="FILE",
    help="Write one self-contained HTML page with numbers, pictures, batches, rows and a search "
    "box to FILE instead of printing the numbers. An existing FILE is replaced only if seqpack "
    "wrote it.",
)
@side_option(
    "For shards of pairs, show only this side; --sequence then counts the sequences of its store."
)
@json_option
@quiet_option
def command(paths: tuple[Place, ...], as_json: bool, quiet: bool, **asked: Any) -> None:
    """Show what a token store, a folder of shards, or all splits of `pack --split` contain.

    PATH is one folder; --vocabulary also takes several token stores. Use at most one of --batch,
    --sequence and --vocabulary; of these, --plot works with --batch and --html with none. Both
    replace the printed numbers, unless --json is given. Of all splits, only the numbers and
    --sequence can be shown; for the rest name one split, such as splits/train. Of shards of pairs
    both sides are shown; --batch puts the rows of a document below one another, and --sequence
    counts the encoder's sequences.

    \b
    Counts, lengths, padding and columns; the same as a picture or as a page:
        seqpack inspect shards
        seqpack inspect shards --plot shards.svg
        seqpack inspect shards --html shards.html
    One batch, or one sequence with its text and where it came from:
        seqpack inspect shards --batch 0
        seqpack inspect tokens --sequence 17
    One side of shards of pairs:
        seqpack inspect shards --side decoder
    How the vocabulary is used, by one token store or by several together:
        seqpack inspect tokens --vocabulary
        seqpack inspect english german --vocabulary
    """
    question = _find_question(asked)
    _check_files(asked["plot"], asked["html"])
    if question == "vocabulary":
        found, show = _count_vocabulary(paths, asked["side"], quiet=quiet)
    else:
        if len(paths) > 1:
            raise click.UsageError(f"found {len(paths)} folders: only --vocabulary takes several")
        found, show = _answer(paths[0], asked, None if as_json else MAX_TEXT_IDS)
    if not quiet:
        _print_warnings(found.get("warnings", ()))
    files = [asked["plot"], asked["html"]]
    print_answer(found, show, written=files, as_json=as_json, quiet=quiet)


def _print_warnings(warnings: Sequence[dict[str, Any]]) -> None:
    """Print warnings on stderr, each with a line that says what to do."""
    from seqpack_cli.reporting.facts import spell_warning

    for warning in warnings:
        message, hint = spell_warning(warning)
        print_lines(f"warning: {message}", f"hint: {hint}", err=True)


def _find_question(asked: dict[str, Any]) -> str | None:
    """Return which of the options that choose what to show was given; None for the numbers."""
    questions = [
        name
        for name in ("batch", "sequence", "vocabulary")
        if asked[name] is not None and asked[name] is not False
    ]
    spelled = [f"--{name}" for name in questions]
    if len(questions) > 1:
        raise click.UsageError(f"use only one of {', '.join(spelled)}")
    for name, allowed in (("plot", ["batch"]), ("html", [])):
        if asked[name] is not None and not set(questions) <= set(allowed):
            raise click.UsageError(f"--{name} does not support {spelled[0]}")
    return questions[0] if questions else None


def _check_files(plot: Place | None, html: Place | None) -> None:
    """Raise, before any work, unless the files can be made and written."""
    if plot is not None:
        from seqpack_cli.reporting.pictures.picture import check_picture_path

        check_picture_path(plot)
    if html is not None:
        from seqpack_cli.reporting.page.page import check_page_path

        check_page_path(html)


def _count_vocabulary(paths: tuple[Place, ...], side: str | None, *, quiet: bool) -> Answer:
    """Return how a store, several stores as one, or shards use the vocabulary."""
    from seqpack_cli.reporting.opened import choose_side, open_any_as_one
    from seqpack_cli.reporting.terminal.vocabulary_lines import show_vocabulary_use
    from seqpack_cli.reporting.vocabulary_use import describe_vocabulary_use

    opened = choose_side(open_any_as_one(paths), side)
    with show_progress("vocabulary", "id", quiet=quiet) as progress:
        return describe_vocabulary_use(opened, progress), show_vocabulary_use


def _answer(path: Place, asked: dict[str, Any], max_text_ids: int | None) -> Answer:
    """Return the values to show, and the function that makes lines of them; write the files."""
    from seqpack_cli.reporting.opened import check_one, choose_side, open_any_or_splits

    opened = choose_side(open_any_or_splits(path), asked["side"])
    if asked["sequence"] is not None:
        from seqpack_cli.reporting import rows
        from seqpack_cli.reporting.terminal import row_lines

        found = rows.describe_sequence(opened, asked["sequence"], max_text_ids=max_text_ids)
        return found, functools.partial(row_lines.show_sequence, colour=wants_colour())
    for name in ("batch", "plot", "html"):
        if asked[name] is not None:
            opened = check_one(opened, f"--{name} {asked[name]}")
    if asked["batch"] is not None:
        from seqpack_cli.reporting import rows
        from seqpack_cli.reporting.terminal import batch_lines

        one = check_one(opened, "--batch")
        found = rows.describe_batch(one, asked["batch"], max_text_ids=max_text_ids)
        answer: Answer = found, batch_lines.show_batch
    else:
        from seqpack_cli.reporting import contents
        from seqpack_cli.reporting.terminal import contents_lines

        answer = contents.describe(opened), contents_lines.show_numbers
    if asked["plot"] is not None or asked["html"] is not None:
        _write_files(check_one(opened, "--plot"), answer[0], asked)
    return answer


def _write_files(opened: Opened, found: dict[str, Any], asked: dict[str, Any]) -> None:
    """Write the picture and the page that were asked for."""
    from seqpack_cli.reporting.pictures.panels import make_panels, make_title
    from seqpack_cli.reporting.pictures.picture import save_picture

    plot, html = asked["plot"], asked["html"]
    panels = make_panels(opened, batch=asked["batch"], found=found)
    if plot is not None:
        save_picture(plot, make_title(opened), panels)
    if html is not None:
        from seqpack_cli.reporting.page.page import write_page

        write_page(html, opened, found, panels)
