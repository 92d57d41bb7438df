"""Special tokens that are spelled in texts, counted as a plain search for all of them does."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizer_kinds import SPECIAL_TOKENS, sample_texts, tokenizer_of
from tokenizers import Tokenizer

from seqpack_cli.tokens.special_tokens import special_token_counter

# Few letters, so that tokens overlap, begin alike and hold one another; some mean much to `re`.
LETTERS = "ab<|"
ODD_LETTERS = "a.\\[(*|^é𝄞\n"


def slow_count(tokens: list[str], texts: list[str]) -> int:
    """Go through each text; where tokens begin, the longest counts and is passed over."""
    known = {token for token in tokens if token}
    count = 0
    for text in texts:
        place = 0
        while place < len(text):
            here = [token for token in known if text.startswith(token, place)]
            count += bool(here)
            place += max(map(len, here), default=1)
    return count


def regex_count(tokens: list[str], texts: list[str]) -> int:
    """Search for all tokens at once, longer ones first."""
    ordered = sorted(filter(None, tokens), key=len, reverse=True)
    if not ordered:
        return 0
    pattern = "|".join(map(re.escape, ordered))
    return sum(len(re.findall(pattern, text)) for text in texts)


def cases(letters: str) -> st.SearchStrategy[tuple[list[str], list[str]]]:
    """Tokens, and texts of which some are made of them."""

    def with_texts(tokens: list[str]) -> st.SearchStrategy[tuple[list[str], list[str]]]:
        piece = st.sampled_from([*tokens, *letters, "x"])
        text = st.lists(piece, max_size=12).map("".join)
        return st.tuples(st.just(tokens), st.lists(text, max_size=4))

    token = st.text(alphabet=letters, max_size=5)
    return st.lists(token, max_size=6).flatmap(with_texts)


@pytest.mark.parametrize("letters", [LETTERS, ODD_LETTERS])
def test_count_equals_slow_oracles(letters: str) -> None:
    @given(cases(letters))
    @example((["<a>", "<a><b>"], ["<a><b> <a>", "a<"]))
    @example((["ab", "abab", "ba"], ["ababab", "abaab"]))
    @example((["a", "b", "ab"], ["abba"]))
    @example((["a", "a"], ["aa"]))
    @example((["", "a"], ["a", ""]))
    def compare(case: tuple[list[str], list[str]]) -> None:
        tokens, texts = case
        found = special_token_counter(tokens)(texts)
        assert found == slow_count(tokens, texts) == regex_count(tokens, texts)

    compare()


@pytest.mark.parametrize("tokens", [[], [""]])
def test_without_special_tokens_nothing_is_counted(tokens: list[str]) -> None:
    assert special_token_counter(tokens)(["", "a <s>"]) == 0


def test_order_of_tokens_does_not_matter() -> None:
    texts = ["<s></s><|endoftext|>[SEP][CLS]<pad", *sample_texts()]
    assert special_token_counter(SPECIAL_TOKENS)(texts) == 5
    assert special_token_counter(SPECIAL_TOKENS[::-1])(texts) == 5


def test_one_counter_counts_any_number_of_texts() -> None:
    count = special_token_counter(["<s>"])
    assert [count(["<s>" * 3, "", "<s"]), count([]), count(["<s>"])] == [3, 0, 1]


@given(st.lists(st.sampled_from([*SPECIAL_TOKENS, "<", ">", "[", "|", "a", " "]), max_size=15))
def test_count_equals_the_special_tokens_that_the_library_finds(pieces: list[str]) -> None:
    """Allowed, each special token in a text becomes one id: as many as were counted."""
    library = Tokenizer.from_str(tokenizer_of("byte_level"))
    ids = library.encode("".join(pieces), add_special_tokens=False).ids
    special = {library.token_to_id(token) for token in SPECIAL_TOKENS}
    found = special_token_counter(SPECIAL_TOKENS)(["".join(pieces)])
    assert found == sum(id_ in special for id_ in ids)
