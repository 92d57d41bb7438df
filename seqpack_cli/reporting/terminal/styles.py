"""Lines with colours and underlines, which a terminal shows and `print_lines` does not escape."""

from __future__ import annotations

from seqpack_cli.errors import escape_controls

GREEN = "\x1b[1;4;32m"  # bold and underlined
YELLOW = "\x1b[1;4;33m"
RESET = "\x1b[0m"


class StyledLine(str):
    """A line whose only control characters are those of `style`."""

    __slots__ = ()


def style(text: str, colour: str) -> str:
    """Return a text in a colour, its own control characters escaped.

    >>> style("a", GREEN)
    '\\x1b[1;4;32ma\\x1b[0m'
    """
    return f"{colour}{escape_controls(text)}{RESET}"
