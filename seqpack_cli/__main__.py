"""`python -m seqpack_cli` is the command `seqpack`."""

from __future__ import annotations

from seqpack_cli.cli.main import main

if __name__ == "__main__":
    main()
