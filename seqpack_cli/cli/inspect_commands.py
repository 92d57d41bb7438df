"""seqpack inspect and diff."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from seqpack_cli.cli.options import (
    NATURAL,
    PLACE,
    grouped_command,
    plot_option,
    show_options,
    side_option,
)
from seqpack_cli.cli.output import print_lines, print_result, wants_colour
from seqpack_cli.cli.process import show_progress

if TYPE_CHECKING:
    from seqpack_cli.files.places import Place  # not for --help

MAX_TEXT_IDS = 4096  # of a row that is shown: the first few hundred characters are
Answer = tuple[dict[str, Any], Callable[[dict[str, Any]], list[str]]]


@grouped_command("inspect")
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
@show_options
def inspect_command(
    paths: tuple[Place, ...],
    plot: Place | None,
    html: Place | None,
    side: str | None,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> None:
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
    question = _find_question(asked, plot, html)
    if len(paths) > 1 and question != "vocabulary":
        raise click.UsageError(f"found {len(paths)} folders: only --vocabulary takes several")
    if plot is not None:  # before any work
        from seqpack_cli.reporting.pictures.picture import check_picture_path

        check_picture_path(plot)
    if html is not None:
        from seqpack_cli.reporting.page.page import check_page_path

        check_page_path(html)
    if question == "vocabulary":
        found, show = _count_vocabulary(paths, side, quiet=quiet)
    else:
        found, show = _answer(paths[0], side, plot, html, asked, None if as_json else MAX_TEXT_IDS)
    if not quiet:
        from seqpack_cli.reporting.facts import spell_warning

        for warning in found.get("warnings", ()):
            message, hint = spell_warning(warning)
            print_lines(f"warning: {message}", f"hint: {hint}", err=True)
    written = [f"{file}: written" for file in (plot, html) if file is not None]
    print_result(
        found, lambda: written or show(found), as_json=as_json, quiet=quiet and bool(written)
    )


def _find_question(asked: dict[str, Any], plot: Place | None, html: Place | None) -> str | None:
    """Return which of the options that choose what to show was given; None for the numbers."""
    questions = [name for name, value in asked.items() if value is not None and value is not False]
    spelled = [f"--{name}" for name in questions]
    if len(questions) > 1:
        raise click.UsageError(f"use only one of {', '.join(spelled)}")
    for name, value, allowed in (("plot", plot, ["batch"]), ("html", html, [])):
        if value is not None and questions and questions != allowed:
            raise click.UsageError(f"--{name} does not support {spelled[0]}")
    return questions[0] if questions else None


def _count_vocabulary(paths: tuple[Place, ...], side: str | None, *, quiet: bool) -> Answer:
    """Return how a store, several stores as one, or shards use the vocabulary."""
    from seqpack_cli.reporting.opened import choose_side, open_any_as_one
    from seqpack_cli.reporting.terminal.vocabulary_lines import show_vocabulary_use
    from seqpack_cli.reporting.vocabulary_use import describe_vocabulary_use

    opened = choose_side(open_any_as_one(paths), side)
    with show_progress("vocabulary", "id", quiet=quiet) as progress:
        return describe_vocabulary_use(opened, progress), show_vocabulary_use


def _answer(
    path: Place,
    side: str | None,
    plot: Place | None,
    html: Place | None,
    asked: dict[str, Any],
    max_text_ids: int | None,
) -> Answer:
    """Return the values to show, and the function that makes lines of them; write the files."""
    from seqpack_cli.reporting.opened import check_one, choose_side, open_any_or_splits

    opened = choose_side(open_any_or_splits(path), side)
    batch, sequence = asked["batch"], asked["sequence"]
    if sequence is not None:
        from seqpack_cli.reporting.rows import describe_sequence
        from seqpack_cli.reporting.terminal.row_lines import show_sequence

        found = describe_sequence(opened, sequence, max_text_ids=max_text_ids)
        return found, functools.partial(show_sequence, colour=wants_colour())
    from seqpack_cli.reporting.contents import describe
    from seqpack_cli.reporting.terminal.contents_lines import show_numbers

    options = [("batch", batch), ("plot", plot), ("html", html)]
    named = [f"--{name} {value}" for name, value in options if value is not None]
    if not named:
        return describe(opened), show_numbers
    one = check_one(opened, named[0])
    if batch is None:
        answer: Answer = describe(one), show_numbers
    else:
        from seqpack_cli.reporting.rows import describe_batch
        from seqpack_cli.reporting.terminal.batch_lines import show_batch

        answer = describe_batch(one, batch, max_text_ids=max_text_ids), show_batch
    if plot is None and html is None:
        return answer
    from seqpack_cli.reporting.pictures.panels import make_panels, make_title
    from seqpack_cli.reporting.pictures.picture import save_picture

    panels = make_panels(one, batch=batch, found=answer[0])
    if plot is not None:
        save_picture(plot, make_title(one), panels)
    if html is not None:
        from seqpack_cli.reporting.page.page import write_page

        write_page(html, one, answer[0], panels)
    return answer


@grouped_command("diff")
@click.argument("a", type=PLACE)
@click.argument("b", type=PLACE)
@show_options
def diff_command(a: Place, b: Place, as_json: bool, quiet: bool) -> None:
    """Show what differs between two token stores, or between two folders of shards.

    Compares options, counts, input files, sequences and batches, and counts the documents that both
    contain: those with equal texts, also from other stores. The exit code is 0 also if they differ;
    the field `identical` of --json is true if nothing differs. Of shards of pairs both sides are
    compared, and which sequences belong together; with single sequences, the encoder's side is.

    \b
    Two stores, made with different options or from different input:
        seqpack diff tokens-old tokens
    Two folders of shards:
        seqpack diff shards-old shards
    Documents of the test set that are in the training set too:
        seqpack diff splits/train splits/test
    """
    from seqpack_cli.reporting.differences import diff
    from seqpack_cli.reporting.terminal.difference_lines import show_differences

    with show_progress("diff", "sequence", quiet=quiet) as progress:
        found = diff(a, b, progress=progress)
    print_result(found, lambda: show_differences(found), as_json=as_json)
