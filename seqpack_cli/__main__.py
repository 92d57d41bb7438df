"""The program `seqpack`, also `python -m seqpack_cli`: run one command."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command that the arguments name; Ctrl-C works even during its import."""
    try:
        from seqpack_cli.cli.process import Interrupts, leave

        interrupts = Interrupts()
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        from seqpack_cli.cli.main import run_program

        code = run_program()
    except KeyboardInterrupt:
        code = 130
    interrupts.end()
    leave(code if interrupts.first is None else 130)


if __name__ == "__main__":
    run()
