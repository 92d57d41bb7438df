"""Special tokens that are spelled in texts, counted as a plain search for all of them does."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizer_kinds import SPECIAL_TOKENS, sample_texts, tokenizer_of
from tokenizers import Tokenizer

from seqpack_cli.tokens.spelled_tokens import MAX_PLACES, SpecialTokenCounts

# Few letters, so that tokens overlap and contain each other; some are special in `re`.
LETTERS = "ab<|"
ODD_LETTERS = "a.\\[(*|^é𝄞\n"

Found = dict[str, list[object]]


def count_tokens(tokens: list[str], *batches: list[str]) -> tuple[int, Found]:
    """Count in consecutive batches; return the sum, and the counts of each token."""
    counts = SpecialTokenCounts(tokens)
    total = num_documents = 0
    for texts in batches:
        total += counts.add(texts, first_document=num_documents)
        num_documents += len(texts)
    return total, counts.describe()


def describe_slowly(found: list[list[str]]) -> Found:
    """Return the count of each token, and the first documents that contain it."""
    described: Found = {}
    for token in {token for tokens in found for token in tokens}:
        documents = [number for number, tokens in enumerate(found) if token in tokens]
        count = sum(tokens.count(token) for tokens in found)
        described[token] = [count, documents[:MAX_PLACES]]
    return described


def slow_find(tokens: list[str], texts: list[str]) -> list[list[str]]:
    """Scan each text; where tokens begin, count the longest and continue after it."""
    known = {token for token in tokens if token}
    found: list[list[str]] = []
    for text in texts:
        found.append([])
        place = 0
        while place < len(text):
            here = [token for token in known if text.startswith(token, place)]
            found[-1] += sorted(here, key=len)[-1:]
            place += max(map(len, here), default=1)
    return found


def regex_find(tokens: list[str], texts: list[str]) -> list[list[str]]:
    """Search for all tokens at once, longer ones first."""
    ordered = sorted(filter(None, tokens), key=len, reverse=True)
    pattern = "|".join(map(re.escape, ordered)) or r"(?!)"
    return [re.findall(pattern, text) for text in texts]


def cases(letters: str) -> st.SearchStrategy[tuple[list[str], list[str]]]:
    """Tokens, and texts, some made of them."""

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
    @example((["a", "ab", "aba", "abab", "ababa", "ababab"], ["abababababab", "ababaabaa"]))
    @example((["abcd", "abce", "abc", "abcdef", "abcdefg"], ["abcdefabcabcdabcdefgabcde"]))
    def compare(case: tuple[list[str], list[str]]) -> None:
        tokens, texts = case
        found = slow_find(tokens, texts)
        assert found == regex_find(tokens, texts)
        expected = sum(map(len, found)), describe_slowly(found)
        assert count_tokens(tokens, texts) == expected
        assert count_tokens(tokens, texts[:2], texts[2:]) == expected

    compare()


@pytest.mark.parametrize("tokens", [[], [""]])
def test_without_special_tokens_nothing_is_counted(tokens: list[str]) -> None:
    assert count_tokens(tokens, ["", "a <s>"]) == (0, {})


def test_order_of_tokens_does_not_matter() -> None:
    texts = ["<s></s><|endoftext|>[SEP][CLS]<pad", *sample_texts()]
    total, found = count_tokens(SPECIAL_TOKENS, texts)
    assert total == 5
    assert found["<s>"] == found["[CLS]"] == [1, [0]]
    assert count_tokens(SPECIAL_TOKENS[::-1], texts) == (5, found)


def test_first_documents_are_kept_and_all_are_counted() -> None:
    texts = ["", "<s><s>", *["no", "a <s>"] * 10]
    total, found = count_tokens(["<s>"], texts[:4], [], texts[4:])
    assert (total, found) == (12, {"<s>": [12, [1, 3, 5, 7, 9]]})


def test_hundreds_of_tokens_with_a_common_prefix_are_told_apart() -> None:
    tokens = [f"<|{name}_{number}|>" for name in ("reserved", "r", "im") for number in range(300)]
    texts = [f"{first}{second[:-1]}" for first, second in pairwise(tokens)]
    expected = {token: [1, [number]] for number, token in enumerate(tokens[:-1])}
    assert count_tokens(tokens, texts) == (899, expected)


@given(st.lists(st.sampled_from([*SPECIAL_TOKENS, "<", ">", "[", "|", "a", " "]), max_size=15))
def test_count_equals_the_special_tokens_that_the_library_finds(pieces: list[str]) -> None:
    """If allowed, each special token in a text becomes one id: as many as were counted."""
    library = Tokenizer.from_str(tokenizer_of("byte_level"))
    ids = library.encode("".join(pieces), add_special_tokens=False).ids
    special = {library.token_to_id(token) for token in SPECIAL_TOKENS}
    total, found = count_tokens(SPECIAL_TOKENS, ["".join(pieces)])
    assert total == sum(id_ in special for id_ in ids)
    counts = Counter(library.id_to_token(id_) for id_ in ids if id_ in special)
    assert found == {token: [number, [0]] for token, number in counts.items()}
