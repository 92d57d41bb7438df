"""Open a tokenizer.json with whatever version of `tokenizers` is installed, 0.2x or 1.x.

1.0 has another interface: it encodes and decodes, and nothing else. `SlimTokenizer` puts the
methods of 0.x that seqpack uses on it, so that no other module asks which version is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from seqpack_cli.errors import MachineError
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.newer_characters import NewerCharacters
from seqpack_cli.tokens.slim_parts import OLD_HINT, find_version
from seqpack_cli.tokens.slim_tokenizer import SlimTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def is_slim() -> bool:
    """Return whether `tokenizers` 1.x is installed."""
    from tokenizers import Tokenizer

    return not hasattr(Tokenizer, "from_str")


def open_tokenizer(tokenizer_json: bytes) -> Tokenizer:
    """Build the tokenizer of a tokenizer.json, with neither truncation nor padding.

    The library's own errors pass; see `vocabulary.catch_failure`.

    Raises:
        DataError: 1.x encodes with it differently, or does not support it.
    """
    import tokenizers

    if is_slim():
        return cast("Tokenizer", SlimTokenizer(tokenizer_json))  # has the methods that are used
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def join_ids(encodings: Sequence[Any]) -> EncodedTexts:
    """Join the ids of some encodings; 1.x returns them as arrays."""
    is_list = not encodings or not hasattr(encodings[0], "ids_array")
    ids = [encoding.ids if is_list else encoding.ids_array for encoding in encodings]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    if not is_list:
        return EncodedTexts(np.concatenate(ids), lengths)
    flat = chain.from_iterable(ids)
    return EncodedTexts(np.fromiter(flat, np.uint32, int(lengths.sum())), lengths)


def keep_comparable(texts: Sequence[str]) -> list[str]:
    """Return the texts of which a fast encoder and the installed version must make the same ids.

    They are all with 0.x. The Unicode tables of 1.x are newer than those of fastokens, too.
    """
    if not is_slim():
        return list(texts)
    newer = NewerCharacters()
    return [text for text in texts if newer.find([text]) is None]


def check_can_train() -> None:
    """Raise MachineError unless `tokenizers` has trainers, as only 0.x does."""
    if is_slim():
        raise MachineError(f"training needs tokenizers 0.x, found {find_version()}", OLD_HINT)
