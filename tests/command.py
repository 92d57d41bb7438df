"""Run a command in this process, as a user would type it."""

from __future__ import annotations

from click.testing import CliRunner, Result

from seqpack_cli.cli.main import main


def run(*arguments: object) -> Result:
    """Run `seqpack ARGUMENTS`; a user's error is in the result, any other exception is raised."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def check_refused(result: Result, code: int, *lines: str) -> None:
    """Assert the exit code and all lines of stderr, with an empty line before the hint."""
    message = "\n\n".join(lines)
    assert result.stderr == f"Error: {message}\n"
    assert result.exit_code == code
    assert result.stdout == ""
