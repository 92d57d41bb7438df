"""The {% generation %} blocks of a chat template, which mark what the assistant writes.

Transformers runs such a block as a function, and takes its place from what was written before: in a
macro or a {% set %} block that is the wrong place. Here a block stands where it is, as a scope of
its own, between two marks that the text of the conversation does not contain; the marks are then
removed from the rendered text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from seqpack_cli.corpus.fields import BadRecordError
from seqpack_cli.tokens.target_text import Span

START, END = "seqpack_generation_start", "seqpack_generation_end"  # variables of the template
MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # noncharacters: no text should have them
Marks = tuple[str, str]
NO_MARKS: Marks = ("", "")
PARTIAL = "the chat template writes a part of a {% generation %} block, expected a whole one"


class GenerationBlocks(Extension):
    """Compile {% generation %}...{% endgeneration %} to mark, body, mark."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's interface

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse a block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        marks = [nodes.Output([nodes.Name(name, "load")], lineno=line) for name in (START, END)]
        return nodes.Scope([marks[0], *body, marks[1]], lineno=line)


def count_blocks(tree: nodes.Node) -> int:
    """Return the number of generation blocks in a template."""
    return sum(name.name == START for name in tree.find_all(nodes.Name))


def is_captured(tree: nodes.Node) -> bool:
    """Return whether the text of a generation block may become a value, which filters change."""
    kinds = (nodes.Macro, nodes.CallBlock, nodes.AssignBlock, nodes.FilterBlock, nodes.Block)
    captures = [*tree.find_all(kinds), *(f for f in tree.find_all(nodes.For) if f.recursive)]
    return any(count_blocks(capture) for capture in captures)


def choose_marks(texts: tuple[str, ...]) -> Marks:
    """Return two marks that none of the texts contains.

    Raises:
        BadRecordError: they contain almost all.
    """
    free = [mark for mark in MARKS if not any(mark in text for text in texts)][:2]
    if len(free) < 2:
        raise BadRecordError("the conversation contains almost all of U+FDD0 to U+FDEF")
    return free[0], free[1]


def take_blocks(pieces: Iterable[Sequence[str]], marks: Marks) -> tuple[str, list[Span]]:
    """Join pieces of a text, without those that are marks; return it and the outermost blocks.

    Args:
        pieces: lists of them; each list is joined before the next one is asked for.

    Raises:
        BadRecordError: a block has no end, or no beginning.

    >>> take_blocks(["a(b(c)", "d)e()"], ("(", ")"))
    ('abcde', [(1, 4), (5, 5)])
    """
    texts: list[str] = []
    blocks: list[Span] = []
    position = depth = first = 0
    for some in pieces:
        done = 0
        for place in [place for place, piece in enumerate(some) if piece in marks]:
            texts.append("".join(some[done:place]))
            position += len(texts[-1])
            done = place + 1
            if some[place] == marks[0]:
                first = position if depth == 0 else first
                depth += 1
                continue
            depth -= 1
            if depth < 0:
                raise BadRecordError(PARTIAL)
            if depth == 0:
                blocks.append((first, position))
        texts.append("".join(some[done:]))
        position += len(texts[-1])
    if depth > 0:
        raise BadRecordError(PARTIAL)
    return "".join(texts), blocks
