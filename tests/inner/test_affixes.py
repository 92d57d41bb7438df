"""The special tokens before and after a document, equal to those of the tokenizer's template."""

from __future__ import annotations

from pathlib import Path

import pytest
from seqpack_cli.tokens.affixes import Affixes, find_affixes
from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from seqpack_cli.errors import DataError, OptionError

WORDS = {"<unk>": 0, "<bos>": 1, "<eos>": 2, "<sep>": 3, "a": 4, "b": 5}


def with_template(template: str | None, vocabulary: dict[str, int] = WORDS) -> bytes:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if template is not None:
        specials = [("<bos>", 1), ("<eos>", 2), ("<sep>", 3)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=specials
        )
    return bytes(tokenizer.to_str(), "utf-8")


@pytest.mark.parametrize(
    ("template", "prefix", "suffix"),
    [
        (None, (), ()),
        ("$A", (), ()),
        ("<bos> $A", (1,), ()),
        ("$A <eos>", (), (2,)),
        ("<bos> $A <eos>", (1,), (2,)),
        ("<bos> <sep> $A <sep> <eos> <eos>", (1, 3), (3, 2, 2)),
    ],
)
@pytest.mark.parametrize("text", ["a", "b", "a b b"])
def test_affixes_around_ids_equal_the_library(
    template: str | None, prefix: tuple[int, ...], suffix: tuple[int, ...], text: str
) -> None:
    data = with_template(template)
    affixes = find_affixes(data, add_special_tokens=True, bos=None, eos=None)
    assert affixes == Affixes(prefix, suffix)
    assert len(affixes) == len(prefix) + len(suffix)
    library = Tokenizer.from_str(data.decode())
    ids = library.encode(text, add_special_tokens=False).ids
    assert [*affixes.prefix, *ids, *affixes.suffix] == library.encode(text).ids


@pytest.mark.parametrize(
    ("template", "add", "bos", "eos", "expected"),
    [
        ("<bos> $A <eos>", True, "<bos>", "<eos>", Affixes((1,), (2,))),
        ("<bos> $A <eos>", False, None, None, Affixes()),
        ("<bos> $A <eos>", False, "<bos>", None, Affixes((1,), ())),
        ("$A <eos>", True, "<bos>", "<eos>", Affixes((1,), (2,))),
        ("<sep> $A <sep>", True, "<bos>", "<eos>", Affixes((1, 3), (3, 2))),
        ("<bos> <sep> $A", True, "<bos>", "a", Affixes((1, 3), (4,))),
        (None, True, "<eos>", "<eos>", Affixes((2,), (2,))),
        ("<bos> <sep> $A <sep> <eos>", True, "<bos>", "<eos>", Affixes((1, 3), (3, 2))),
        ("<sep> <bos> $A <eos> <sep>", True, "<bos>", "<eos>", Affixes((1, 3, 1), (2, 3, 2))),
    ],
)
def test_bos_goes_first_and_eos_last_unless_the_template_has_them(
    template: str | None, add: bool, bos: str | None, eos: str | None, expected: Affixes
) -> None:
    found = find_affixes(with_template(template), add_special_tokens=add, bos=bos, eos=eos)
    assert found == expected


@pytest.mark.parametrize("option", ["bos", "eos"])
def test_token_that_is_not_in_the_vocabulary_is_refused(option: str) -> None:
    names: dict[str, str | None] = {"bos": None, "eos": None, option: "<start>"}
    with pytest.raises(OptionError) as caught:
        find_affixes(
            byte_tokenizer_json(), add_special_tokens=True, bos=names["bos"], eos=names["eos"]
        )
    assert caught.value.message == "token '<start>': not in the tokenizer's vocabulary"
    assert caught.value.hint == "pass one of its special tokens: '<pad>', '<bos>', '<eos>'"


def test_template_without_the_text_is_refused() -> None:
    """Such a template drops the text with and without special tokens."""
    vocabulary = {name: id_ for name, id_ in WORDS.items() if id_ < 4}
    data = with_template("<bos> $A <eos>", vocabulary)
    tokenizer = Tokenizer.from_str(data.decode())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    with pytest.raises(DataError) as caught:
        find_affixes(
            bytes(tokenizer.to_str(), "utf-8"), add_special_tokens=True, bos=None, eos=None
        )
    assert caught.value.message == (
        "tokenizer.json: unsupported template, expected one that adds tokens before and after "
        "the text"
    )
    assert caught.value.hint == "pass --no-add-special-tokens"


def test_probe_that_has_no_token_does_not_hide_the_template(tmp_path: Path) -> None:
    """A vocabulary without the letter a, as of another script, still has its <bos> and <eos>."""
    tokenizer = Tokenizer(models.BPE({"<bos>": 0, "<eos>": 1, "я": 2}, []))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 0), ("<eos>", 1)]
    )
    assert tokenizer.encode("я").ids == [0, 2, 1]
    affixes = find_affixes(
        bytes(tokenizer.to_str(), "utf-8"), add_special_tokens=True, bos=None, eos=None
    )
    assert affixes == Affixes((0,), (1,))
