"""Hypothesis strategies for small inputs with many of the difficult cases of text."""

from __future__ import annotations

import json

from hypothesis import strategies as st

# Line ends of every kind, characters that only look like line ends, blanks, NUL, 1 to 4 bytes.
PIECES = [
    *("a", "bc", "word ", "é", "漢", "𝄞"),
    *("\n", "\n", "\r\n", "\n\n", "\n \t\n", " ", "\t"),
    *("\r", "\x00", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\u00a0", "\ufeff"),
]


def texts() -> st.SearchStrategy[str]:
    """Any Unicode text, often made of difficult pieces."""
    return st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.text())


def line_files() -> st.SearchStrategy[bytes]:
    """The bytes of a text file, with any line ends."""
    pieces = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
    return pieces.filter(lambda text: text != "\ufeff").map(str.encode)


def paragraph_files() -> st.SearchStrategy[bytes]:
    """The bytes of a text file of paragraphs; other edge cases have their own tests."""
    return line_files().filter(
        lambda data: b"\r\r" not in data and not data.startswith(b"\xef\xbb\xbf")
    )


@st.composite
def jsonl_files(draw: st.DrawFn) -> bytes:
    """The bytes of a file of JSON objects, with blank lines, with or without a last line end."""
    lines = [
        draw(st.sampled_from(["", " ", "\t"]))
        if text is None
        else json.dumps({"text": text}, ensure_ascii=draw(st.booleans()))
        for text in draw(st.lists(st.one_of(st.none(), texts()), max_size=6))
    ]
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return (end.join(lines) + draw(st.sampled_from(["", end]))).encode()


def documents() -> st.SearchStrategy[list[list[int]]]:
    """Token ids of a few documents, some without any."""
    return st.lists(st.lists(st.integers(10, 99), max_size=9), max_size=6)
