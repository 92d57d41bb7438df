"""Every common kind of tokenizer: each encoder gives the library's ids, text by text."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from here import HERE
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import read_store_documents
from seqpack_cli.tokens.encoders.agreement import open_checked_encoder
from seqpack_cli.tokens.encoders.encoded_texts import (
    EncodedTexts,
    Encoder,
    EncoderRefusedError,
    EncodersDifferError,
)
from seqpack_cli.tokens.encoders.encoder import open_encoder
from seqpack_cli.tokens.vocabulary import describe_vocabulary
from strategies import PIECES
from tokenizer_kinds import (
    ADDED_TOKEN,
    KINDS,
    LLAMA_3_PATTERN,
    SPECIAL_TOKENS,
    added_tokens_out_of_order,
    sample_texts,
    tokenizer_of,
)
from tokenizers import Tokenizer

from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.special_tokens import hide_special_tokens
from seqpack_cli.tokens.tokenize_run import tokenize

# The reason why fastokens refuses each kind: a change here changes the encoder of a run.
REFUSALS = dict.fromkeys(
    ("word_piece", "unigram", "word_level", "whitespace_bpe"),
    "it is neither byte-level BPE nor BPE that falls back to bytes",
) | dict.fromkeys(("metaspace", "byte_fallback"), "its tokens have characters that are no tokens")
FAST_KINDS = ("byte_level", "byte_level_with_prefix_space", "byte_level_nfc", "split_pattern")
SPELLED = (
    *SPECIAL_TOKENS,
    *(token[:-1] for token in SPECIAL_TOKENS),
    *(token[1:] for token in SPECIAL_TOKENS),
    *(token.swapcase() for token in SPECIAL_TOKENS),
    *(ADDED_TOKEN, ADDED_TOKEN[:-1], ADDED_TOKEN.title(), "[MASK]", "▁", "<0x41>", "##s", "Ġ"),
    *("'s", "'LL", "don't", "123", "1234", " x", "  y", "e\u0301", "\u1112\u1161\u11ab", "ſ", "İ"),
)
# Every general category; surrogates are not text.
CATEGORIES = (
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Zs", "Zl", "Zp"),
    *("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Cc", "Cf", "Co", "Cn"),
)


def texts() -> st.SearchStrategy[str]:
    """Any Unicode text, mixed with strings that tokenizers treat specially."""
    any_category = st.sampled_from(CATEGORIES).flatmap(
        lambda category: st.characters(categories=[category])
    )
    pieces = st.sampled_from([*PIECES, *SPELLED])
    return st.lists(st.one_of(any_category, pieces, st.text(max_size=5)), max_size=12).map("".join)


@functools.cache
def open_once(name: str, data: bytes, allow: bool) -> Encoder:
    """Open an encoder once for all examples."""
    return open_encoder(name, data, allow_special_tokens=allow)


@functools.cache
def library_of(kind: str, allow: bool) -> Tokenizer:
    """Build the bare library's tokenizer."""
    data = tokenizer_of(kind)
    if not allow:  # special tokens in a text are text, also for a model that has them as words
        hidden = json.loads(hide_special_tokens(data.encode()))
        data = json.dumps({**hidden, "post_processor": json.loads(data)["post_processor"]})
    library = Tokenizer.from_str(data)
    library.encode_special_tokens = not allow
    return library


def split(encoded: EncodedTexts) -> list[list[int]]:
    """Return the ids of each text."""
    ends = encoded.lengths.cumsum().tolist()
    return [
        encoded.ids[end - length : end].tolist()
        for end, length in zip(ends, encoded.lengths.tolist(), strict=True)
    ]


def check_encoders(kind: str, documents: list[str]) -> None:
    """Compare every encoder that should agree with the bare library."""
    data = tokenizer_of(kind).encode()
    names = ("tokenizers", "fastokens") if kind in FAST_KINDS else ("tokenizers",)
    for allow in (True, False):
        library = library_of(kind, allow)
        expected = [library.encode(text, add_special_tokens=False).ids for text in documents]
        for name in names:
            encode = open_once(name, data, allow)
            assert split(encode(documents)) == expected, (name, allow)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(documents=st.lists(texts(), max_size=6))
def test_ids_equal_the_library_text_by_text(kind: str, documents: list[str]) -> None:
    check_encoders(kind, documents)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5000)
@given(documents=st.lists(texts(), max_size=6))
def test_ids_equal_the_library_text_by_text_in_many_examples(
    kind: str, documents: list[str]
) -> None:
    check_encoders(kind, documents)


@pytest.mark.parametrize("name", ["tokenizers", "fastokens"])
def test_one_large_batch_equals_the_library_whatever_the_threads(name: str) -> None:
    """More than one slice of the encoder's second thread, and texts of every length."""
    if name == "fastokens":
        pytest.importorskip("fastokens")
    library = library_of("byte_level", False)
    whole = "\n".join(sample_texts())
    documents = [
        *sample_texts(),
        "",
        whole,
        *sample_texts()[::-1],
        whole * 20,
        "",
        whole[:1],
        whole * 10,
        "x",
    ]
    encode = open_encoder(
        name, tokenizer_of("byte_level").encode(), allow_special_tokens=False, num_threads=2
    )
    expected = [library.encode(text, add_special_tokens=False).ids for text in documents]
    assert split(encode(documents)) == expected


def test_kinds_that_fastokens_supports_are_known() -> None:
    pytest.importorskip("fastokens")
    assert set(KINDS) == {*FAST_KINDS, *REFUSALS}
    refusals = {}
    for kind in KINDS:
        try:
            open_encoder("fastokens", tokenizer_of(kind).encode(), allow_special_tokens=False)
        except EncoderRefusedError as error:
            refusals[kind] = str(error)
    assert refusals == REFUSALS


def with_all_characters(kind: str, **metaspace: Any) -> bytes:
    """Return a BPE that falls back to bytes, as large files have it, with only special tokens.

    All characters of its tokens are tokens, and some tokens are runs of spaces and cross words.

    Args:
        metaspace: options of its Metaspace to change.
    """
    saved = json.loads(tokenizer_of(kind))
    saved["added_tokens"].pop()
    model = saved["model"]
    pairs = [("▁", "▁"), ("▁▁", "▁▁"), ("e", "▁"), ("e▁", "t"), (".", "▁"), ("▁▁", "▁a")]
    for token in (*sorted(set("".join(model["vocab"]))), *map("".join, pairs)):
        model["vocab"].setdefault(token, len(model["vocab"]))
    model["merges"] += map(list, pairs)
    if metaspace:
        saved["pre_tokenizer"] |= metaspace
    return json.dumps(saved, ensure_ascii=False).encode()


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize(
    "metaspace",
    [
        {"prepend_scheme": scheme, "split": is_split}
        for scheme in ("first", "always", "never")
        for is_split in (True, False)
    ]
    + [{}],
    ids=str,
)
def test_bytes_fallen_back_to_are_those_of_the_library(
    metaspace: dict[str, Any], allow: bool
) -> None:
    pytest.importorskip("fastokens")
    data = with_all_characters("metaspace" if metaspace else "byte_fallback", **metaspace)
    if metaspace and allow:
        with pytest.raises(EncoderRefusedError, match="it has added tokens beside Metaspace"):
            open_once("fastokens", data, allow)
        return
    fast, slow = open_checked(data, allow), open_once("tokenizers", data, allow)

    @settings(max_examples=25)
    @given(documents=st.lists(texts(), max_size=6))
    def check(documents: list[str]) -> None:
        assert split(fast(documents)) == split(slow(documents))

    check()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"replacement": "_"}, "its Metaspace has other options, or a normalizer before it"),
        ({"add_prefix_space": True}, "its Metaspace has other options, or a normalizer before it"),
        ({"ignore_merges": True}, "it has ignore_merges and falls back to bytes"),
        ({"vocab": {"<0x00>": 0}}, "it is not BPE that falls back to all bytes"),
    ],
)
def test_byte_fallback_that_fastokens_may_read_differently_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    saved = json.loads(with_all_characters("metaspace"))
    saved["model" if "merges" in reason or "bytes" in reason else "pre_tokenizer"] |= changes
    with pytest.raises(EncoderRefusedError) as caught:
        open_once("fastokens", json.dumps(saved).encode(), False)
    assert str(caught.value) == reason


def change_pattern(pattern: str) -> bytes:
    """Return the tokenizer that is split by a pattern with another one."""
    saved = json.loads(tokenizer_of("split_pattern"))
    saved["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
    return json.dumps(saved).encode()


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize(
    "pattern", [r"\w+|.", r"a|\W", r"\b.", r"x\By|.", r"[^\s\w]+|.", "[[:alpha:]]+|.", r'"\w"|.']
)
def test_regex_that_engines_interpret_differently_is_refused(pattern: str, allow: bool) -> None:
    data = change_pattern(pattern)
    for spelled in (data, json.dumps(json.loads(data), indent=2).encode()):
        with pytest.raises(EncoderRefusedError) as caught:
            open_encoder("fastokens", spelled, allow_special_tokens=allow)
        assert (
            str(caught.value)
            == "its regex has character classes that regex engines interpret differently"
        )


def change_added_token(index: int, **changes: bool) -> bytes:
    saved = json.loads(tokenizer_of("byte_level"))
    saved["added_tokens"][index].update(changes)
    return json.dumps(saved).encode()


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
@pytest.mark.parametrize("index", [0, 3, -1])
def test_added_tokens_that_strip_spaces_are_refused_where_they_are_ids(
    side: str, index: int
) -> None:
    data = change_added_token(index, **{side: True})
    with pytest.raises(EncoderRefusedError) as caught:
        open_encoder("fastokens", data, allow_special_tokens=True)
    assert str(caught.value) == "its special tokens strip the whitespace beside them"


def open_checked(data: bytes, allow: bool) -> Encoder:
    encode, reference = open_checked_encoder(
        "fastokens",
        data,
        allow_special_tokens=allow,
        num_threads=1,
        added_tokens=describe_vocabulary(data).added_tokens,
    )
    assert reference is not None
    return encode


def check_blanks(data: bytes) -> None:
    """Compare blanks around added tokens with the library, if the probe finds no difference."""
    texts = [
        f"a{blank}{token}{blank}b"
        for token in (*SPECIAL_TOKENS, ADDED_TOKEN)
        for blank in ("", " ", "  ", "\n", " \t\u3000")
    ]
    try:
        encode = open_checked(data, False)
    except EncodersDifferError:
        return
    assert split(encode(texts)) == split(open_once("tokenizers", data, False)(texts))


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
@pytest.mark.parametrize("index", [0, 3, -1])
def test_tokens_that_strip_spaces_are_equal_or_found_where_special_ones_are_text(
    side: str, index: int
) -> None:
    """A token that is not special is always an id."""
    pytest.importorskip("fastokens")
    check_blanks(change_added_token(index, **{side: True}))


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("kind", FAST_KINDS)
def test_probe_finds_no_difference_where_there_is_none(kind: str, allow: bool) -> None:
    pytest.importorskip("fastokens")
    open_checked(tokenizer_of(kind).encode(), allow)


# The published patterns of DeepSeek-V3 (its last part) and of cl100k.
DEEPSEEK_PATTERN = (
    r"[!-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


def vowel_separator(pattern: str) -> bytes:
    """U+180E is whitespace for PCRE2, as before Unicode 6.3, but not for Oniguruma."""
    saved: dict[str, Any] = json.loads(change_pattern(pattern))
    # Georgian, Vietnamese or Khmer gives a vocabulary "Ġá"; it counts where blanks go first.
    model = saved["model"]
    saved["added_tokens"].pop()
    for left, right in (("Ġ", "Ġ"), ("Ġ", "á")):
        if left + right not in model["vocab"]:
            model["vocab"][left + right] = len(model["vocab"])
            model["merges"].append([left, right])
    return json.dumps(saved).encode()


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize(
    ("pattern", "is_disputed"),
    [(DEEPSEEK_PATTERN, True), (CL100K_PATTERN, True), (LLAMA_3_PATTERN, False)],
    ids=["deepseek", "cl100k", "llama 3"],
)
def test_disputed_character_is_encoded_as_the_library_does(
    pattern: str, is_disputed: bool, allow: bool
) -> None:
    pytest.importorskip("fastokens")
    data = vowel_separator(pattern)
    mixed = ["", "  \u180e", "a \u180e b", "plain  text", "", "\u180e", " \u180e\u180e \n", "  "]
    slow = split(open_once("tokenizers", data, allow)(mixed))
    assert split(open_checked(data, allow)(mixed)) == slow
    # Else this says nothing, or this version of fastokens needs no such care any more. It reads
    # the pattern of Llama 3 without PCRE2.
    assert (split(open_once("fastokens", data, allow)(mixed)) != slow) == is_disputed


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("kind", FAST_KINDS)
def test_checked_encoder_equals_the_library_text_by_text(kind: str, allow: bool) -> None:
    pytest.importorskip("fastokens")
    encode = open_checked(tokenizer_of(kind).encode(), allow)
    library = library_of(kind, allow)

    @settings(max_examples=25)
    @given(documents=st.lists(st.one_of(texts(), st.sampled_from(["", "  \u180e"])), max_size=6))
    def check(documents: list[str]) -> None:
        expected = [library.encode(text, add_special_tokens=False).ids for text in documents]
        assert split(encode(documents)) == expected

    check()


@pytest.mark.parametrize("allow", [True, False])
def test_probe_finds_added_tokens_with_other_ids_in_fastokens(allow: bool) -> None:
    pytest.importorskip("fastokens")
    data = added_tokens_out_of_order().encode()
    text = [f"some {ADDED_TOKEN}"]
    fast, slow = (open_once(name, data, allow)(text) for name in ("fastokens", "tokenizers"))
    if fast.ids.tolist() == slow.ids.tolist():
        pytest.skip("this version of fastokens does it as the library does")
    with pytest.raises(EncodersDifferError):
        open_checked(data, allow)


# Through the whole run


@pytest.mark.parametrize("add_special_tokens", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_store_equal_the_library(
    tmp_path: Path, kind: str, add_special_tokens: bool
) -> None:
    documents = [
        *sample_texts(),
        "",
        *(f"{token} a{token}b {token}" for token in (*SPECIAL_TOKENS, ADDED_TOKEN)),
        *SPELLED,
        *("\x00", "\u2028", "\ufeff", " ", "\n", "\r\n \t", "𝄞é漢", "\U0010ffff", "\u0378"),
    ]
    (tmp_path / "tokenizer.json").write_text(tokenizer_of(kind))
    corpus = tmp_path / "a.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    options = TokenizeOptions(
        tokenizer=str(tmp_path), add_special_tokens=add_special_tokens, part_bytes=4000
    )
    tokenize([str(corpus)], tmp_path / "store", options, executor=HERE)
    library = library_of(kind, False)
    expected = [
        [library.encode(text, add_special_tokens=add_special_tokens).ids]
        if library.encode(text, add_special_tokens=False).ids
        else []
        for text in documents
    ]
    assert read_store_documents(tmp_path / "store") == expected


@pytest.mark.parametrize("kind", KINDS)
def test_auto_uses_fastokens_for_the_kinds_that_agree(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("fastokens")
    (tmp_path / "tokenizer.json").write_text(tokenizer_of(kind))
    (tmp_path / "a.txt").write_text("some text\n")
    options = TokenizeOptions(tokenizer=str(tmp_path))
    tokenize([str(tmp_path / "a.txt")], tmp_path / "store", options, executor=HERE)
    done = json.loads((tmp_path / "store" / "run.json").read_bytes())
    assert done["encoder"] == ("fastokens" if kind in FAST_KINDS else "tokenizers")
