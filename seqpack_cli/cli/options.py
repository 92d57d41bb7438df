"""Options of the command line: the kinds of their values, those that are made from options classes,
and those that commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import Field
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from seqpack_cli.errors import MAX_COUNT, MAX_SEED, MAX_SIZE, suggest
from seqpack_cli.runs.options import RUN, Option, list_options, spell_flag
from seqpack_cli.runs.workers import EXECUTORS, Executor
from seqpack_cli.sizes import read_size

if TYPE_CHECKING:
    from seqpack_cli.files.places import Place  # not for --help

Function = TypeVar("Function", bound=Callable[..., Any])


class Value(click.ParamType):  # type: ignore[type-arg]
    """A kind of value.

    Args:
        name: what stands for it in `--help`.
        read: returns the value of a text, or of a default; raises ValueError.
    """

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that a text stands for."""
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave the completion of paths to the shell."""
        del ctx, param
        return [CompletionItem(incomplete, type="file")] if self.name == "path" else []


def _is_count(value: object, at_least: int, at_most: int) -> bool:
    """Return whether a value is a number in the range; int() itself refuses very long ones."""
    text = str(value).strip()
    return text.isdecimal() and len(text) <= len(str(at_most)) and at_least <= int(text) <= at_most


def _read_count(value: Any, *, at_least: int, at_most: int) -> int:
    if not _is_count(value, at_least, at_most):
        expected = f"a number from {at_least} to {at_most:,}"
        raise ValueError(f"{str(value)[:60]!r} is not {expected}")
    return int(value)


def _read_sample(value: Any) -> int | None:
    if value != "all" and not _is_count(value, 1, MAX_COUNT):
        raise ValueError(f"{value!r} is not 'all' or a number from 1 to {MAX_COUNT:,}")
    return None if value == "all" else int(value)


def _read_size(value: Any) -> int:
    size = value if isinstance(value, int) else read_size(value)
    if size is None:
        raise ValueError(f"{value!r} is not a size, expected for example 1048576, 2MB or 64MiB")
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"{value!r} is not a size from 1 byte to 1024 TiB")
    return size


def _read_buckets(value: str) -> str | tuple[int, ...] | tuple[tuple[int, int], ...]:
    """Return "auto", or the keys: lengths, or two of them each."""
    if value == "auto":
        return "auto"
    text = re.sub(r"\s*([(),])\s*", r"\1", value).strip()
    is_pairs = re.fullmatch(r"\(\d+,\d+\)(,\(\d+,\d+\))*", text, re.ASCII)
    keys = re.findall(r"\d+", text) if is_pairs else text.split(",")
    if not all(_is_count(key, 1, MAX_COUNT) for key in keys):
        expected = "auto, lengths like 32,64,128, or for pairs (10,15),(20,25)"
        raise ValueError(f"{value!r}, expected {expected}")
    found = tuple(map(int, keys))
    return tuple(zip(found[::2], found[1::2], strict=True)) if is_pairs else found


def _read_place(value: Any, *, is_file: bool = False, takes_stdout: bool = True) -> Place:
    from seqpack_cli.files.outputs import names_folder
    from seqpack_cli.files.places import is_shared, parse_place

    if not str(value):
        raise ValueError("the name is empty")  # most often an unset shell variable
    if value == "-" and not takes_stdout:
        raise ValueError("stdout is not supported here; pass ./- for a file of this name")
    if is_file and names_folder(value):
        raise ValueError(f"{value}: names a folder, expected a file")
    place = parse_place(value)
    if not is_shared(place):
        raise ValueError(f"{value}: memory:// ends with this command")
    return place


PLACE = Value("path", _read_place)  # or the URL of an object store
NATURAL = Value("N", functools.partial(_read_count, at_least=0, at_most=MAX_SEED))
KINDS: dict[str, Any] = {
    "buckets": Value("auto|K1,K2,…", _read_buckets),
    "count": Value("N", functools.partial(_read_count, at_least=1, at_most=MAX_COUNT)),
    "id": int,
    "id from 0": click.IntRange(min=0),
    "place": PLACE,
    "places": PLACE,
    "sample": Value("N|all", _read_sample),
    "seed": NATURAL,
    "size": Value("size", _read_size),
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
        """Refuse an option that is given twice, where click takes the last value silently.

        For an unknown option suggest the nearest one; click sorts all that are similar by letter.
        """
        if not ctx.resilient_parsing:  # which completion does, with half a line
            try:
                _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            except click.NoSuchOption as error:
                name = error.option_name
                ctx.fail(f"no such option {name}{suggest(name, error.possibilities or ())}")
            for option in given:
                if not isinstance(option, click.Option) or option.multiple:
                    continue
                is_switch = option.is_flag and not option.secondary_opts
                if given.count(option) > 1 and not is_switch:  # --json twice is no contradiction
                    both = filter(None, (option.opts, option.secondary_opts))
                    name = "/".join(max(names, key=len) for names in both)
                    ctx.fail(f"{name} was given {given.count(option)} times, expected one value")
        return super().parse_args(ctx, args)


grouped_command = functools.partial(click.command, cls=GroupedCommand)


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
    kind = Value("path", functools.partial(_read_place, is_file=is_file, takes_stdout=takes_stdout))
    return click.option("-o", "--output", type=kind, required=True, help=help_text)


def plot_option(help_text: str) -> Callable[[Function], Function]:
    """Make the option --plot, which writes a picture."""
    return click.option(
        "--plot",
        type=PLACE,
        metavar="FILE.png|svg",
        help=f"{help_text} An existing FILE is replaced only if seqpack wrote it.",
    )


def side_option(what: str) -> Callable[[Function], Function]:
    """Make the option --side, which chooses one side of pairs."""
    from seqpack_cli.batching.options import SIDES

    return click.option("--side", type=click.Choice(SIDES), help=f"{what}  [default: both sides]")


JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print the numbers as one JSON document on stdout."
)
OVERWRITE = click.option(
    "--overwrite",
    is_flag=True,
    help="Start again, and replace an earlier output of this command; never anything else.",
)


def _quiet(help_text: str) -> Callable[[Function], Function]:
    return click.option("-q", "--quiet", is_flag=True, help=help_text)


def show_options(command: Function) -> Function:
    """Add the options of a command that shows something."""
    return JSON(_quiet("Print no progress bar and no notes.")(command))


def result_options(command: Function) -> Function:
    """Add the options of a command that says at its end what came of it."""
    return JSON(_quiet("Print no progress, notes or summary, only errors.")(command))


def write_options(command: Function) -> Function:
    """Add the options of a command that writes files."""
    return OVERWRITE(result_options(command))


def run_options(command: Function) -> Function:
    """Add the options of a run, which can have several workers."""
    executor = click.option(
        "--executor",
        "name",
        type=click.Choice(EXECUTORS),
        default="local",
        show_default=True,
        help="Where the workers run: on this machine, or on a Ray cluster.",
    )
    return options_of(Executor)(executor(write_options(command)))
