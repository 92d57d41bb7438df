"""Check offsets that `tokenizers` gave: the tokens in each word must be those of the word.

Every word, alone, is encoded once more; the tokens that lie in it in the text must spell the same.
So a word without a token is accepted only if it has none alone, and tokens that are shifted to
another word, or have no place, are found. Words that one token spans are checked together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from seqpack_cli.errors import quote
from seqpack_cli.tokens.offsets.spelling import SPACE_CHARACTERS, WORD

SPACES = frozenset(SPACE_CHARACTERS)
Place = tuple[int, int]


class WrongOffsetsError(Exception):
    """The tokens at a word are not those of the word."""

    def __init__(self, text: int, reason: str) -> None:
        super().__init__(text, reason)
        self.text = text
        self.reason = reason


class _Group(NamedTuple):
    """Words that tokens join, usually one, and what the tokens in them spell."""

    text: int
    start: int
    end: int
    spelled: bytes


def trim(
    text: str, places: Sequence[Place], spelled: Iterable[bytes | None] | None = None
) -> list[Place]:
    """Leave out the spaces around each token; a token that is known to spell nothing is empty.

    >>> trim("a b", [(0, 1), (1, 3), (1, 2)], [b"a", b"b", b""])
    [(0, 1), (2, 3), (1, 1)]
    """
    trimmed = []
    for (start, end), bytes_ in zip(places, spelled or [None] * len(places), strict=True):
        if bytes_ == b"":
            end = start
        elif text[start : start + 1] in SPACES or text[end - 1 : end] in SPACES:
            piece = text[start:end]
            start += len(piece) - len(piece.lstrip(SPACE_CHARACTERS))
            end = start + len(piece.strip(SPACE_CHARACTERS))
        trimmed.append((start, end))
    return trimmed


def cover_lost(places: Sequence[Place], has_bytes: Sequence[bool]) -> list[Place]:
    """Extend each token over the characters behind it that have bytes and no token.

    Args:
        has_bytes: of each character, whether it has bytes by itself, and is not a space.

    >>> cover_lost([(0, 1), (1, 2), (3, 5)], [True, True, True, False, True])
    [(0, 1), (1, 3), (3, 5)]
    """
    is_lost = [*has_bytes, False]
    for start, end in places:
        is_lost[start:end] = [False] * (end - start)
    covered = []
    for start, end in places:
        behind = end
        while start < end and is_lost[behind]:
            behind += 1
        covered.append((start, behind))
    return covered


def check_words(
    texts: list[str],
    ids: list[list[int]],
    places: list[list[Place]],
    spelled: list[bytes],
    encode: Callable[[list[str]], list[list[int]]],
) -> None:
    """Compare the tokens in every word with those of the word alone.

    Args:
        places: of each token, trimmed.
        spelled: what each id spells.

    Raises:
        WrongOffsetsError: they differ.
    """
    groups = [
        group
        for number, text in enumerate(texts)
        for group in _join_words(number, text, places[number], [spelled[i] for i in ids[number]])
    ]

    def spell(pieces: Iterable[str]) -> dict[str, bytes]:
        different = list(dict.fromkeys(pieces))
        found = encode(different)
        return {
            piece: b"".join(spelled[id_] for id_ in its_ids)
            for piece, its_ids in zip(different, found, strict=True)
        }

    def find_text(group: _Group, before: int = 0) -> str:
        return texts[group.text][max(0, group.start - before) : group.end]

    alone = spell(find_text(group) for group in groups)
    differing = [group for group in groups if alone[find_text(group)] != group.spelled]
    after_space = spell(find_text(group, 1) for group in differing)
    for group in differing:
        if after_space[find_text(group, 1)] != group.spelled:
            expected = alone[find_text(group)]
            raise WrongOffsetsError(
                group.text,
                f"the tokens at {quote(find_text(group))} spell {_describe(group.spelled)}, "
                f"expected {_describe(expected)}",
            )


def _join_words(
    number: int, text: str, places: list[Place], spelled: list[bytes]
) -> Iterable[_Group]:
    """Yield the words of a text, those joined that a token spans."""
    words = [found.span() for found in WORD.finditer(text)]
    tokens = [(place, bytes_) for place, bytes_ in zip(places, spelled, strict=True) if bytes_]
    tokens.sort(key=lambda token: token[0][0])  # stable
    next_token = 0
    next_word = 0
    while next_word < len(words):
        start, end = words[next_word]
        next_word += 1
        pieces = []
        while next_token < len(tokens) and tokens[next_token][0][0] < end:
            (token_start, token_end), bytes_ = tokens[next_token]
            next_token += 1
            if token_end <= token_start or token_end <= start:
                continue  # it has no place in a word
            pieces.append(bytes_)
            while next_word < len(words) and token_end > words[next_word][0]:
                end = words[next_word][1]
                next_word += 1
        yield _Group(number, start, end, b"".join(pieces))


def _describe(spelled: bytes) -> str:
    return quote(spelled.decode(errors="replace")) if spelled else "nothing"
