"""The tokenizer that needs no file: one id per UTF-8 byte."""

from __future__ import annotations

import hashlib
import json

import numpy as np
from hypothesis import given
from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.encoders.bytes_encoder import encode_bytes
from strategies import texts
from tokenizers import Tokenizer

GOLDEN = "f59667538c5ce3232533ce6fe7b52929ec5a70f8d70d398796337c7e5bd1f171"
LIBRARY = Tokenizer.from_str(byte_tokenizer_json().decode())


@given(text=texts())
def test_ids_equal_the_tokenizers_library(text: str) -> None:
    LIBRARY.encode_special_tokens = True
    encoded = encode_bytes([text])
    assert encoded.ids.tolist() == LIBRARY.encode(text).ids == list(text.encode())
    assert encoded.lengths.tolist() == [len(text.encode())]
    assert LIBRARY.decode(encoded.ids.tolist(), skip_special_tokens=False) == text


def test_every_byte_has_its_own_id() -> None:
    text = "".join(map(chr, range(0x800))) + "\u0800\uffff\U00010000\U0010ffff"
    assert encode_bytes([text]).ids.tolist() == LIBRARY.encode(text).ids
    model = json.loads(byte_tokenizer_json())["model"]
    assert sorted(model["vocab"].values()) == list(range(259))


def test_special_tokens_follow_the_bytes() -> None:
    assert [LIBRARY.token_to_id(name) for name in ("<pad>", "<bos>", "<eos>")] == [256, 257, 258]


def test_tokenizer_json_never_changes() -> None:
    """Stores name it by this sha256: a changed byte would make every one of them another's."""
    assert hashlib.sha256(byte_tokenizer_json()).hexdigest() == GOLDEN


def test_texts_are_encoded_back_to_back() -> None:
    encoded = encode_bytes(["né", "", "\0"])
    assert encoded.ids.dtype == np.uint8
    assert encoded.ids.tolist() == [110, 195, 169, 0]
    assert encoded.lengths.tolist() == [3, 0, 1]
    assert encode_bytes([]).lengths.tolist() == []
