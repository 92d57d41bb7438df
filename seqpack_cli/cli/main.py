"""The click group: find commands, and turn errors into messages and exit codes.

A command is imported when it is called, and imports its libraries when it runs, so that `--help` is
fast and loads neither numpy nor torch.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from seqpack_cli.cli.process import EXIT_INTERRUPTED, MESSAGE
from seqpack_cli.cli.streams import OutputError, open_standard_streams
from seqpack_cli.cli.versions import show_versions
from seqpack_cli.errors import MachineError, SeqpackError

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


class CommandGroup(click.Group):
    """The group that knows the commands by their file names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they are used."""
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
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            suggestion = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{suggestion}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn an error into a message and its exit code."""
        try:
            return super().invoke(ctx)
        except SeqpackError as error:
            _end_with(ctx, error)
        except MemoryError:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            names = {param.name for param in command.params} if command else set()
            hint = "use fewer --num-workers" if "num_workers" in names else None
            _end_with(ctx, MachineError("out of memory", hint=hint))
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
    """Print that stdout cannot be written, unless its reader has closed it."""
    if not error.reader_has_gone:
        click.echo(f"Error: stdout: {error}", err=True)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
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
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except OutputError as error:  # of --help or --version, outside of any command
        _describe_lost_output(error)
        return error.exit_code
    return 0
