"""The click group: finds commands, and turns errors into messages and exit codes, once.

Commands are imported when they are asked for, and import what they run when they run it, so that
`--help` is quick and loads neither numpy nor torch.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from seqpack_cli.cli.process import EXIT_INTERRUPTED, MESSAGE
from seqpack_cli.cli.streams import OutputError, open_standard_streams
from seqpack_cli.cli.versions import show_versions
from seqpack_cli.errors import MachineError, SeqpackError

COMMANDS = (
    "tokenize",
    "plan",
    "pack",
    "inspect",
    "diff",
    "verify",
    "unpack",
    "train-tokenizer",
)


class CommandGroup(click.Group):
    """The group that knows the commands by their file names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of the way."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"seqpack_cli.cli.{name}_command")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; end with the code of what went wrong."""
        try:
            return super().invoke(ctx)
        except SeqpackError as error:
            _end_with(ctx, error)
        except MemoryError:
            _end_with(ctx, MachineError("out of memory", hint="use fewer --num-workers"))
        except OutputError as error:
            _describe_lost_output(error)
            ctx.exit(error.exit_code)
        except OSError as error:
            place = error.filename if error.filename is not None else "input or output"
            _end_with(ctx, MachineError(f"{place}: {error.strerror or error}"))
        except KeyboardInterrupt:
            click.echo(f"\n{MESSAGE}", err=True)
            ctx.exit(EXIT_INTERRUPTED)


def _end_with(ctx: click.Context, error: SeqpackError) -> None:
    click.echo(f"Error: {error}", err=True)
    ctx.exit(error.exit_code)


def _describe_lost_output(error: OutputError) -> None:
    """Say that stdout takes no more, unless its reader has gone."""
    if not error.reader_has_gone:
        click.echo(f"Error: stdout: {error}", err=True)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_versions,
    help="Show the versions of what matters and exit.",
)
def main() -> None:
    """Turn text into shards ready for training, and prove them.

    \b
    text -> token store -> batches -> shards -> proof
        seqpack tokenize corpus/ -o tokens
        seqpack pack tokens -o shards
        seqpack inspect shards
        seqpack verify shards --device cuda
        seqpack unpack shards -o rows.jsonl
    """


def run_program() -> int:
    """Run the command that the arguments name, as a process of its own; return its exit code."""
    open_standard_streams()
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except OutputError as error:  # of --help or --version, outside of any command
        _describe_lost_output(error)
        return error.exit_code
    return 0
