"""Options of the command line: made from options classes, and those that all commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field
from typing import Any, TypeVar

import click

from seqpack_cli.batching.options import WHICH
from seqpack_cli.cli.values import BUCKETS, NATURAL, PLACE, POSITIVE, SIZE, OutputType, SampleType
from seqpack_cli.runs.options import RUN, Option, list_options, spell_flag
from seqpack_cli.runs.workers import EXECUTORS, Executor

Function = TypeVar("Function", bound=Callable[..., Any])
KINDS: dict[str, Any] = {
    "buckets": BUCKETS,
    "count": POSITIVE,
    "id": int,
    "id from 0": click.IntRange(min=0),
    "place": PLACE,
    "places": PLACE,
    "sample": SampleType(),
    "seed": NATURAL,
    "size": SIZE,
}


class GroupedOption(click.Option):
    """An option under a heading of `--help`."""

    def __init__(self, *args: Any, group: str = RUN, **more: Any) -> None:
        super().__init__(*args, **more)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose options stand under headings, and are given once.

    Args:
        groups: the headings in the order of `--help`; others follow.
    """

    def __init__(self, *args: Any, groups: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in self.groups}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                group = self.groups[0] if param.required and self.groups else RUN
                rows.setdefault(getattr(param, "group", group), []).append(record)
        for name, records in rows.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records, col_max=26)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option that is given twice, where click takes the last value silently."""
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


def options_of(kind: type, *, only: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Add the options of a class to a command, which takes their values by the fields' names.

    Args:
        only: of these fields; () is all.
    """

    def decorate(command: Function) -> Function:
        for name, (each, known) in reversed(list_options(kind).items()):
            if name in (only or (name,)) and known.kind != "library":
                command = _make_option(each, known)(command)
        return command

    return decorate


def _make_option(each: Field[Any], known: Option) -> Callable[[Function], Function]:
    flag, kind, default = spell_flag(each), str(each.type), each.default
    more: dict[str, Any] = {"group": known.group, "cls": GroupedOption, "default": default}
    names = [flag, each.name]
    if "bool" in kind and default is False:
        more["is_flag"] = True
    elif "bool" in kind:
        names[0] += f"/--no-{flag.removeprefix('--')}"
    else:
        more["metavar"] = known.metavar
        more["multiple"] = default == () or known.kind == "places"
        more["type"] = click.Choice(known.choices) if known.choices else KINDS.get(known.kind)
    shown = known.shown or _spell_default(default, known)
    return click.option(
        *names, help=known.help + (f"  [default: {shown}]" if shown else ""), **more
    )


def _spell_default(default: Any, known: Option) -> str:
    if default in (None, (), "") or default is False:
        return ""
    if default is True:
        return "on"
    return f"{default >> 20}MiB" if known.kind == "size" else str(default)


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


decoder_option = click.option(
    "--decoder",
    type=PLACE,
    multiple=True,
    metavar="STORE",
    cls=GroupedOption,
    group=WHICH,
    help="Token store of the decoder's side: its documents and those of STORE are packed as pairs. "
    "Once for each STORE.  [default: single sequences]",
)
overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help="Start again, and replace an earlier output of this command; never anything else.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the numbers as one JSON document on stdout."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print no progress bar and no notes."
)
errors_only_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print no progress, notes or summary, only errors."
)
RUN_OPTIONS = (
    options_of(Executor),
    click.option(
        "--executor",
        type=click.Choice(EXECUTORS),
        default="local",
        show_default=True,
        help="Where the workers run: on this machine, or on a Ray cluster.",
    ),
    overwrite_option,
    json_option,
    errors_only_option,
)


def run_options(command: Function) -> Function:
    """Add the options of a run."""
    for option in reversed(RUN_OPTIONS):  # decorators apply from the last one up
        command = option(command)
    return command


def pop_executor(options: dict[str, Any]) -> Executor:
    """Take the options of the executor out of others."""
    executor, address = options.pop("executor"), options.pop("ray_address")
    return Executor(executor, address, options.pop("num_workers"))


def check_inputs(inputs: tuple[str, ...], options: dict[str, Any]) -> None:
    """Refuse a command line without INPUT and --files-from."""
    if options["files_from"] is None and not inputs:
        context = click.get_current_context()
        named = next(param for param in context.command.params if param.name == "inputs")
        message = "Pass a file or a folder, or --files-from LIST"
        raise click.MissingParameter(message, context, named, param_hint="'INPUT...'")
