"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from seqpack_cli.cli.values import PLACE, POSITIVE, SIZE, OutputType
from seqpack_cli.runs.workers import EXECUTORS, Executor

Function = TypeVar("Function", bound=Callable[..., Any])
Command = Callable[..., None]


class OneValueCommand(click.Command):
    """A command that refuses an option given twice, where click takes the last value silently."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments of the command line."""
        if not ctx.resilient_parsing:  # which completion does, with half a line
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            takes_one = [
                option
                for option in given
                if isinstance(option, click.Option) and not option.multiple
                if not option.is_flag or option.secondary_opts  # --json twice is no contradiction
            ]
            for option in takes_one:
                if takes_one.count(option) > 1:
                    both = filter(None, (option.opts, option.secondary_opts))
                    name = "/".join(max(names, key=len) for names in both)
                    ctx.fail(
                        f"{name} was given {takes_one.count(option)} times, expected one value"
                    )
        return super().parse_args(ctx, args)


format_option = click.option(
    "--format",
    "file_format",
    type=click.Choice(["auto", "text", "jsonl", "json", "parquet", "arrow", "csv"]),
    default="auto",
    show_default=True,
    help="Format of the input, for all files. auto: by the suffix of each file; text for - and "
    "for unknown suffixes of files that are named, match a glob, or match --include. jsonl is one "
    "JSON object per line, json one array of objects. csv includes tab-separated files (.tsv).",
)
decoder_option = click.option(
    "--decoder",
    type=PLACE,
    multiple=True,
    metavar="STORE",
    help="Token store of the decoder's side: the sequences of its documents and those of STORE, "
    "the encoder's side, are packed as pairs. Both must have the same documents, none of them "
    "split. With several STOREs, pass it once for each, in the same order. For packed and padded.  "
    "[default: single sequences]",
)
text_field_option = click.option(
    "--text-field",
    default="text",
    show_default=True,
    help="Field (JSON) or column (CSV, Parquet, Arrow) that holds the text; a.b is field b inside "
    "a. Instead of it, tokenize makes the text with --completion-field or --messages-field.",
)
max_document_option = click.option(
    "--max-document-bytes",
    type=SIZE,
    default="64MiB",
    show_default=True,
    help="Maximum size of one document, its text or its ids; a larger one stops the run with an "
    "error.",
)
part_bytes_option = click.option(
    "--part-bytes",
    type=SIZE,
    default="64MiB",
    show_default=True,
    help="Size of the input for one part file of the store. Workers take one part at a time, and "
    "an interrupted run continues after the last finished part. It does not change the sequences.",
)
RECORD_OPTIONS = (
    click.option(
        "--encoding-errors",
        type=click.Choice(["error", "replace", "skip"]),
        default="error",
        show_default=True,
        help="What to do with a record that is not valid UTF-8: stop with an error, replace the "
        "invalid bytes with U+FFFD, or skip the record.",
    ),
    click.option(
        "--on-bad-record",
        type=click.Choice(["error", "skip"]),
        default="error",
        show_default=True,
        help="What to do with a JSON line or table row that cannot be read, lacks the text or "
        "another field that is asked for, or has a conversation that the chat template cannot "
        "render: stop with an error, or skip it. tokenize lists all skipped records in "
        "rejects.jsonl in the token store.",
    ),
    max_document_option,
)
FILE_OPTIONS = (
    click.option(
        "--include",
        multiple=True,
        metavar="GLOB",
        help="Read only files below folders that match GLOB; may be given several times. GLOB is "
        "compared with the path below the folder ('en/**'; * does not match a slash, ** does), or, "
        "without a slash, with names at any depth ('*.txt'). A folder that matches stands for all "
        "files below it. tokenize reads a file that matches and has an unknown suffix as text. "
        "A file that INPUT names is always read.",
    ),
    click.option(
        "--exclude",
        multiple=True,
        metavar="GLOB",
        help="Skip files and folders below folders that match GLOB, even if they match --include; "
        "may be given several times. GLOB is as in --include; one that matches nothing is an "
        "error, in both.",
    ),
    click.option(
        "--files-from",
        metavar="LIST",
        help="Read the files that LIST names, after those of INPUT, which may be omitted. LIST is "
        "a file, or - for standard input, with one path or URL per line, relative to the current "
        "folder; globs are not expanded. Instead of lines, names may end with NUL (find -print0).",
    ),
)
overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help="Start again, and replace an earlier output of this command in the same place. What this "
    "command did not write is never replaced.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the numbers as one JSON document on stdout."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print no progress bar and no notes."
)
errors_only_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print no progress, notes or summary, only errors.",
)


def output_option(
    help_text: str, *, is_file: bool = False, takes_stdout: bool = False
) -> Callable[[Function], Function]:
    """Make the option -o, of a folder or of a file, which may be stdout."""
    kind = OutputType(is_file=is_file, takes_stdout=takes_stdout)
    return click.option("-o", "--output", type=kind, required=True, metavar="PATH", help=help_text)


def plot_option(help_text: str) -> Callable[[Function], Function]:
    """Make the option --plot, which writes a picture."""
    return click.option(
        "--plot",
        type=PLACE,
        metavar="FILE.png|svg",
        help=f"{help_text} An existing FILE is replaced only if seqpack wrote it.",
    )


RUN_OPTIONS = (
    click.option(
        "--num-workers",
        type=POSITIVE,
        help="Number of worker processes.  [default: number of CPU cores, of this machine or of "
        "the cluster]",
    ),
    click.option(
        "--executor",
        type=click.Choice(EXECUTORS),
        default="local",
        show_default=True,
        help="Where the workers run: on this machine, or on a Ray cluster.",
    ),
    click.option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Ray cluster to connect to, with --executor ray.  [default: the environment variable "
        "RAY_ADDRESS, else a cluster running on this machine, else a new one on this machine]",
    ),
    overwrite_option,
    json_option,
    errors_only_option,
)


def record_options(function: Command) -> Command:
    """Add the options of records; with --text-field they arrive as one `DocumentOptions`."""

    @functools.wraps(function)
    def command(
        text_field: str,
        encoding_errors: str,
        on_bad_record: str,
        max_document_bytes: int,
        **others: Any,
    ) -> None:
        from seqpack_cli.corpus.document_block import DocumentOptions

        documents = DocumentOptions(text_field, encoding_errors, on_bad_record, max_document_bytes)
        function(documents=documents, **others)

    return _add(RECORD_OPTIONS, command)


def file_options(function: Command) -> Command:
    """Add the options that choose files, which arrive as one `FileOptions`; check INPUT."""

    @functools.wraps(function)
    def command(
        include: tuple[str, ...], exclude: tuple[str, ...], files_from: str | None, **others: Any
    ) -> None:
        from seqpack_cli.corpus.file_options import FileOptions

        context = click.get_current_context()
        if files_from is None and not others["inputs"]:
            inputs = next(param for param in context.command.params if param.name == "inputs")
            message = "Pass a file or a folder, or --files-from LIST"
            raise click.MissingParameter(message, context, inputs, param_hint="'INPUT...'")
        function(files=FileOptions(include, exclude, files_from), **others)

    return _add(FILE_OPTIONS, command)


def run_options(function: Command) -> Command:
    """Add the options of a run; those of the executor arrive as one `Executor`."""

    @functools.wraps(function)
    def command(
        num_workers: int | None, executor: str, ray_address: str | None, **others: Any
    ) -> None:
        function(executor=Executor(executor, ray_address, num_workers), **others)

    return _add(RUN_OPTIONS, command)


def _add(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):  # decorators apply from the last one up
        command = option(command)
    return command
