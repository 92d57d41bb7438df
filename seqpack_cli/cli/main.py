"""The click group: find commands, and turn errors into messages and exit codes.

A command is imported when it is called, and imports its libraries when it runs, so that `--help` is
fast and loads neither numpy nor torch.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from seqpack_cli import __version__
from seqpack_cli.cli.process import (
    EXIT_INTERRUPTED,
    MESSAGE,
    OutputError,
    open_standard_streams,
)
from seqpack_cli.errors import MachineError, SeqpackError, suggest

COMMANDS = {  # and their lines in the list of commands
    "tokenize": "Turn text files into a token store.",
    "import": "Turn ids of Megatron, nanoGPT or datasets into a token store.",
    "plan": "Compare what each way to pack would cost.",
    "pack": "Turn token stores into batches for training.",
    "inspect": "Show what a store or shards contain.",
    "diff": "Show what differs between two stores or shards.",
    "verify": "Check shards before training on them.",
    "unpack": "Get the ids or the text back out of shards.",
    "export": "Write files that other trainers read.",
    "train-tokenizer": "Train a tokenizer.json on text.",
}


MAX_WIDTH = 100  # of --help
MODULES = {  # of cli/, with the commands in each
    "data_commands": ("tokenize", "import", "train-tokenizer"),
    "pack_commands": ("plan", "pack", "unpack", "export"),
    "inspect_commands": ("inspect", "diff"),
    "verify_command": ("verify",),
}
# Required packages, then those of the extras.
PACKAGES = (
    *("torch", "numpy", "tokenizers", "fastokens", "safetensors", "orjson", "blake3", "xxhash"),
    *("click", "tqdm"),
)
# Of libraries: no progress bars but ours, and no threads inside those of a run.
ENVIRONMENT = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "FASTOKENS_BPE_THREADS": "1"}
EXTRAS = ("pyarrow", "backports.zstd", "matplotlib", "jinja2")
if sys.version_info >= (3, 14):  # zstd is part of the standard library
    EXTRAS = tuple(name for name in EXTRAS if name != "backports.zstd")


class CommandGroup(click.Group):
    """The group that imports the module of a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they are used."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = next(module for module, names in MODULES.items() if cmd_name in names)
        module = importlib.import_module(f"seqpack_cli.cli.{name}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        command.short_help = COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; suggest the nearest for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}{suggest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn an error into a message and its exit code."""
        try:
            return super().invoke(ctx)
        except SeqpackError as error:
            failure = error
        except MemoryError:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            names = {param.name for param in command.params} if command else set()
            hint = "use fewer --num-workers" if "num_workers" in names else None
            failure = MachineError("out of memory", hint=hint)
        except OSError as error:
            place = error.filename if error.filename is not None else "input or output"
            failure = MachineError(f"{place}: {error.strerror or error}")
        except KeyboardInterrupt:
            click.echo(f"\n{MESSAGE}", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        click.echo(f"Error: {failure}", err=True)
        ctx.exit(failure.exit_code)


def show_versions(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Print the versions that a bug report needs, without importing the packages, and exit."""
    if not is_asked or ctx.resilient_parsing:
        return
    import platform
    from importlib import metadata  # takes 20 ms, so not at the top

    click.echo(f"seqpack, version {__version__}")
    system = f"{platform.system()} {platform.machine()}"
    click.echo(f"python {platform.python_version()}, {system}")
    for name in (*PACKAGES, *EXTRAS):
        try:
            click.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            click.echo(f"{name} not installed")
    ctx.exit()


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_versions,
    help="Show the versions of seqpack and its libraries and exit.",
)
def main() -> None:
    """Turn text into batches ready for training sequence models, and verify them.

    \b
    Text files -> token store -> shards (files of batches):
        seqpack tokenize corpus/ -o tokens
        seqpack pack tokens -o shards
    Ids from Megatron, nanoGPT or datasets -> token store:
        seqpack import train.idx --tokenizer tokenizer.json -o tokens
    Look at them, check them on the GPU that will train, take them apart again:
        seqpack inspect shards
        seqpack verify shards --device cuda
        seqpack unpack shards -o rows.jsonl
    """


def run_program() -> int:
    """Run the command that the arguments name, as a process of its own; return its exit code."""
    open_standard_streams()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        main(terminal_width=_find_help_width())
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except OutputError as error:
        if not error.reader_has_gone:
            click.echo(f"Error: stdout: {error}", err=True)
        return error.exit_code
    return 0


def _find_help_width() -> int:
    """Return the width of `--help` as click finds it, without its import of shutil: 4 ms."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        width = int(columns)
    else:
        try:
            width = os.get_terminal_size(1).columns
        except OSError:  # not a terminal
            width = 80
    return max(min(width, MAX_WIDTH) - 2, 50)
