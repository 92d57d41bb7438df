"""Format numbers and texts for people: counts, sizes and rates; lines of 80 columns.

A Chinese character takes two columns, a combining mark none; a text is cut between what readers see
as characters. Widths come from Unicode's tables, 1.5 us each; terminals differ on a few emoji.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence

from seqpack_cli.errors import escape_controls

WIDTH = 80
LABEL_WIDTH = 18  # of a pair; its value begins in column 21
VALUE_WIDTH = WIDTH - LABEL_WIDTH - 3
MAX_LISTED = 16
MAX_TOKEN_CHARACTERS = 304  # a limit for characters without width
MAX_CODES_OF_COLUMN = 8  # a limit for the marks of a character
ZERO_WIDTH_JOINER = "\u200d"
SOFT_HYPHEN = "\xad"  # a format character that terminals show
VARIATION_SELECTORS = range(0xFE00, 0xFE10)  # they make a symbol wider in some terminals
SKIN_TONES = range(0x1F3FB, 0x1F400)
FLAG_LETTERS = range(0x1F1E6, 0x1F200)
JOINING_LETTERS = (range(0x1160, 0x1200), range(0xD7B0, 0xD800))  # Korean, after another letter


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "shard"), count(2000, "batch")
    ('1 shard', '2,000 batches')
    """
    plural = f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def show_bytes(count: int) -> str:
    """Return a size in a readable unit."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= 0.99995 * size:  # less would be rounded to 999.9 of the unit below
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def show_share(share: float) -> str:
    """Return a share in percent; only 1 is 100 %, only 0 is 0 %.

    >>> show_share(0.12345), show_share(0.99999), show_share(1), show_share(1e-9)
    ('12.35%', '99.99%', '100.00%', '0.01%')
    """
    if 0 < share < 1:
        share = min(max(share, 0.0001), 0.9999)
    return f"{share:.2%}"


def show_span(first: int, last: int) -> str:
    """Return a range of numbers.

    >>> show_span(1, 2000), show_span(64, 64)
    ('1 to 2,000', '64')
    """
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def show_rounded(number: float) -> str:
    """Return a number in three digits.

    >>> show_rounded(41_234_567), show_rounded(2_340), show_rounded(12), show_rounded(999_600)
    ('41.2 M', '2.34 k', '12', '1.00 M')
    """
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * size:  # less would be rounded to 1000 of the unit below
            return f"{number / size:#.3g}".rstrip(".") + f" {unit}"
    return f"{number:.3g}"


def count_columns(text: str) -> int:
    """Count the terminal columns of a text without control characters.

    >>> count_columns("quick"), count_columns("雨"), count_columns("e\\u0301")
    (5, 2, 1)
    """
    return len(text) if text.isascii() else sum(map(_count_columns_of_one, text))


def cut(text: str, width: int) -> str:
    """Cut the end of a text that is too wide, and mark it with "…".

    >>> cut("雨が降る", 6)
    '雨が…'
    """
    beginning = text[: width * MAX_CODES_OF_COLUMN]
    if len(beginning) == len(text) and count_columns(text) <= width:
        return text
    return "".join(_take(iter_characters(beginning), width - 1)) + "…"


def cut_front(text: str, width: int) -> str:
    """Cut the front of a path that is too wide: the file name stays.

    >>> cut_front("a/long/way/name.txt", 12)
    '…ay/name.txt'
    """
    end = text[-width * MAX_CODES_OF_COLUMN :]
    if len(end) == len(text) and count_columns(text) <= width:
        return text
    kept = _take(reversed(list(iter_characters(end))), width - 1)
    return "…" + "".join(reversed(kept))


def fill(text: str, width: int) -> str:
    """Add spaces up to a width."""
    return text + " " * (width - count_columns(text))


def wrap(text: str, width: int, *, max_lines: int | None = None) -> list[str]:
    """Break a text at spaces, or anywhere in a line without one; the last line may end with "…".

    >>> wrap("one two three", 7)
    ['one two', 'three']
    """
    lines, line, columns = [], "", 0
    for character in _iter_narrow(text, width):
        columns += count_columns(character)
        if columns <= width or character == " ":
            line += character
            continue
        kept, _, moved = line.rpartition(" ")
        if not kept.strip() or count_columns(moved + character) > width:
            kept, moved = line, ""
        lines.append(kept.rstrip(" "))
        if len(lines) == max_lines:
            return [*lines[:-1], cut(f"{lines[-1]} …", width)]
        line = moved + character
        columns = count_columns(line)
    return [*lines, line.rstrip(" ")]


def iter_characters(text: str) -> Iterator[str]:
    """Yield what readers see as one character each.

    >>> [len(character) for character in iter_characters("ae\\u0301")]
    [1, 2]
    """
    start = 0
    for place in range(1, len(text)):
        if not _continues(text, start, place):
            yield text[start:place]
            start = place
    if text:
        yield text[start:]


def pair(label: str, value: str) -> str:
    """Return the line of a label and its value, both cut to their widths."""
    label = fill(cut(escape_controls(label), LABEL_WIDTH), LABEL_WIDTH)
    return f"  {label} {cut(escape_controls(value), VALUE_WIDTH)}"


def pair_of_path(label: str, path: str, more: str = "") -> str:
    """Return the line of a label and a path, cut at its front, with more text after it."""
    room = max(VALUE_WIDTH - count_columns(more), 1)
    return pair(label, cut_front(escape_controls(path), room) + more)


def pair_of_text(label: str, text: str, *, max_lines: int) -> list[str]:
    """Return the lines of a label and a longer text, in quotes."""
    first, *others = wrap(quote_text(text), VALUE_WIDTH, max_lines=max_lines)
    return [pair(label, first), *(pair("", line) for line in others)]


def show_token(text: str) -> str:
    """Return a token with its invisible characters replaced by visible ones.

    >>> show_token(" a\\n"), show_token("  "), show_token("\\u0301")
    (' a↵', '␣␣', '◌́')
    """
    shown = "".join(map(_show_character, text[:MAX_TOKEN_CHARACTERS]))
    if shown and unicodedata.category(shown[0])[0] == "M":
        shown = "◌" + shown  # else the mark would join the border
    kept = shown.rstrip(" ")
    return kept + "␣" * (len(shown) - len(kept)) + "…" * (len(text) > MAX_TOKEN_CHARACTERS)


def quote_text(text: str) -> str:
    """Quote a text as JSON does, without control characters."""
    return escape_controls(json.dumps(text, ensure_ascii=False))


def list_some(values: Sequence[object], width: int = VALUE_WIDTH) -> str:
    """List as many numbers or keys as fit, and the count of the others.

    >>> list_some(range(30), 20)
    '0 1 2 3 and 26 more'
    """
    for num_shown in range(min(len(values), MAX_LISTED), 0, -1):
        shown = " ".join(map(str, values[:num_shown]))
        hidden = len(values) - num_shown
        line = f"{shown} and {hidden:,} more" if hidden else shown
        if len(line) <= width:
            return line
    return f"{len(values):,} numbers" if len(values) else "none"


def _show_character(character: str) -> str:
    if character == "\n":
        return "↵"
    is_hidden = unicodedata.category(character)[0] == "C" or character in "\u2028\u2029"
    if is_hidden or ord(character) in VARIATION_SELECTORS:
        return character.encode("unicode_escape").decode()
    return character


def _take(characters: Iterator[str], width: int) -> list[str]:
    """Return the first characters that fit."""
    kept, columns = [], 0
    for character in characters:
        columns += count_columns(character)
        if columns > width:
            break
        kept.append(character)
    return kept


def _iter_narrow(text: str, width: int) -> Iterator[str]:
    """Yield characters; one that is wider than a line, such as a joined emoji, in its parts."""
    for character in iter_characters(text):
        yield from [character] if count_columns(character) <= width else character


def _continues(text: str, start: int, place: int) -> bool:
    """Return whether the code point at `place` belongs to the character that begins at `start`."""
    code = ord(text[place])
    if code in FLAG_LETTERS:
        return place == start + 1 and ord(text[start]) in FLAG_LETTERS
    if code in SKIN_TONES:  # alone they are a square of colour, two columns wide
        return _count_columns_of_one(text[start]) == 2
    num_columns = _count_columns_of_one(text[place])
    is_joined = text[place - 1] == ZERO_WIDTH_JOINER and num_columns == 2
    return is_joined or not num_columns


def _count_columns_of_one(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") and character != SOFT_HYPHEN:
        return 0
    if any(ord(character) in letters for letters in JOINING_LETTERS):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
