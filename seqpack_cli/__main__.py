"""The program `seqpack`, also `python -m seqpack_cli`: imports the commands, and runs one."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command that the arguments name; Ctrl-C ends it even while it is imported."""
    try:
        from seqpack_cli.cli.main import main
    except KeyboardInterrupt:
        sys.exit(130)
    main()


if __name__ == "__main__":
    run()
