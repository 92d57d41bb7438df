"""Encoders return the same ids as the tokenizers library does one text at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.encoders.bytes_encoder import encode_bytes
from seqpack_cli.tokens.encoders.encoder import choose_encoder, open_encoder
from strategies import texts
from tokenizers import Tokenizer, models

from seqpack_cli.errors import DataError


@pytest.mark.parametrize("allow", [True, False])
@given(documents=st.lists(texts() | st.just("a<eos>b <bos>"), max_size=5))
def test_flat_ids_equal_the_library_text_by_text(
    tiny_tokenizer: Path, allow: bool, documents: list[str]
) -> None:
    library = Tokenizer.from_file(str(tiny_tokenizer))
    library.encode_special_tokens = not allow
    expected = [library.encode(text, add_special_tokens=False).ids for text in documents]
    data = tiny_tokenizer.read_bytes()
    encode = open_encoder("tokenizers", data, allow_special_tokens=allow)
    encoded = encode(documents)
    assert encoded.lengths.tolist() == [len(ids) for ids in expected]
    assert encoded.ids.tolist() == [id_ for ids in expected for id_ in ids]


def test_byte_tokenizer_needs_no_library() -> None:
    data = byte_tokenizer_json()
    assert choose_encoder("auto", data, allow_special_tokens=False) == "bytes"
    assert open_encoder("bytes", data, allow_special_tokens=False) is encode_bytes


def test_byte_tokenizer_with_special_tokens_allowed_goes_through_the_library() -> None:
    data = byte_tokenizer_json()
    name = choose_encoder("auto", data, allow_special_tokens=True)
    assert name in ("fastokens", "tokenizers")
    for library in {name, "tokenizers"}:
        encoded = open_encoder(library, data, allow_special_tokens=True)(["é<eos>", ""])
        assert encoded.ids.tolist() == [195, 169, 258]
        assert encoded.lengths.tolist() == [3, 0]


def test_text_that_the_tokenizer_cannot_encode_is_an_error() -> None:
    """A word-level vocabulary without its unknown token fails on every other word."""
    model = models.WordLevel({"a": 0}, unk_token="<unk>")  # noqa: S106
    data = Tokenizer(model).to_str().encode()
    encode = open_encoder("tokenizers", data, allow_special_tokens=False)
    assert encode(["a"]).ids.tolist() == [0]
    with pytest.raises(DataError) as caught:
        encode(["b"])
    assert caught.value.message.startswith("tokenizer.json: ")
