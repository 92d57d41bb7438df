"""A tokenizer of `tokenizers` 1.x with the methods of 0.x that seqpack uses.

1.x only encodes and decodes. Its vocabulary is read from the tokenizer.json, its normalizer and
pre-tokenizer are those of slim_parts.py, and there are no offsets. Tokenizers and characters of
which it makes other ids than 0.x are refused, so that a store has the same bytes with both.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from seqpack_cli.errors import DataError, MachineError, quote
from seqpack_cli.tokens.newer_characters import NewerCharacters
from seqpack_cli.tokens.panics import is_failure
from seqpack_cli.tokens.slim_parts import (
    OLD_HINT,
    SlimNormalizer,
    SlimPreTokenizer,
    describe_failure,
    find_version,
    flatten,
    load_slim,
    refuse,
)


class AddedToken(NamedTuple):
    """An added token of a tokenizer.json, as 0.x describes it."""

    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool


class SlimModel(NamedTuple):
    """What is asked of a model."""

    unk_token: str | None


class SlimTokenizer:
    """Encodes and decodes with neither truncation nor padding.

    Raises:
        DataError: 1.x does not support the tokenizer, or makes other ids than 0.x.
    """

    def __init__(self, tokenizer_json: bytes) -> None:
        self._tokenizer = load_slim(tokenizer_json)
        self._saved: dict[str, Any] = json.loads(tokenizer_json)
        model, pre_tokenizer = self._saved["model"], self._saved.get("pre_tokenizer")
        vocabulary = model["vocab"]
        if isinstance(vocabulary, list):  # Unigram
            vocabulary = {token: id_ for id_, (token, _) in enumerate(vocabulary)}
        self._vocabulary: dict[str, int] = vocabulary
        self._added = _read_added(self._saved.get("added_tokens") or (), vocabulary)
        self._newer = NewerCharacters([self._saved.get("normalizer"), pre_tokenizer])
        self.model = SlimModel(model.get("unk_token"))
        self.encode_special_tokens = False
        self._check_same()

    def get_vocab(self, *, with_added_tokens: bool = True) -> dict[str, int]:
        """Return the id of each token."""
        added = {token.content: id_ for id_, token in self._added.items()}
        return {**self._vocabulary, **added} if with_added_tokens else dict(self._vocabulary)

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Return the added tokens by their ids."""
        return dict(self._added)

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, None if there is no such token."""
        return self.get_vocab().get(token)

    def id_to_token(self, id_: int) -> str | None:
        """Return the token of an id, None if there is no such id."""
        return next(iter(self._tokenizer.decode_tokens([id_])), None)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Any:
        """Return the encoding of a text."""
        return self.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]

    def encode_batch_fast(self, texts: list[str], *, add_special_tokens: bool = True) -> list[Any]:
        """Return the encodings of texts, without offsets.

        Raises:
            DataError: a character is newer than the tables of 0.x.
        """
        newer = self._newer.find(texts)
        if newer is not None:
            raise DataError(
                f"U+{ord(newer):04X}: tokenizers {find_version()} may make other ids of it than "
                "tokenizers 0.x, whose Unicode tables are older",
                OLD_HINT,
            )
        encodings: list[Any] = self._tokenizer.encode_batch(
            texts,
            add_special_tokens=add_special_tokens,
            encode_special_tokens=self.encode_special_tokens,
            padding=None,
            truncation=None,
        )
        return encodings

    def encode_batch(self, *_: Any, **__: Any) -> NoReturn:
        """Raise MachineError: with offsets, 1.x cannot encode."""
        raise MachineError(
            f"tokenizers {find_version()} has no offsets, which tags and targets need for some "
            "texts of this tokenizer",
            OLD_HINT,
        )

    def decode_batch(
        self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool
    ) -> list[str]:
        """Return the texts of some ids."""
        decode = functools.partial(self._tokenizer.decode, skip_special_tokens=skip_special_tokens)
        return [decode(ids) for ids in sequences]

    def _check_same(self) -> None:
        """Refuse tokenizers of which 1.x is known to make other ids than 0.x, or none."""
        kinds = {part["type"] for part in flatten(self._saved.get("pre_tokenizer"))}
        model = self._saved["model"]
        if model.get("end_of_word_suffix"):
            refuse("end_of_word_suffix")
        if model.get("continuing_subword_prefix") and "ByteLevel" in kinds:
            refuse("continuing_subword_prefix beside a ByteLevel pre-tokenizer")
        for token in self._added.values():
            if token.normalized and "Metaspace" in kinds:
                refuse(
                    f"added token {quote(token.content)} has normalized=true beside a Metaspace "
                    "pre-tokenizer"
                )
        try:  # some regexes are refused only by their first text
            if self.pre_tokenizer is not None:
                self.pre_tokenizer.pre_tokenize_str("a")
        except BaseException as error:
            if not is_failure(error) or isinstance(error, DataError):
                raise
            refuse(describe_failure(error))

    @functools.cached_property
    def normalizer(self) -> SlimNormalizer | None:
        """The normalizer, if there is one."""
        saved = self._saved.get("normalizer")
        return None if saved is None else SlimNormalizer(saved)

    @functools.cached_property
    def pre_tokenizer(self) -> SlimPreTokenizer | None:
        """The pre-tokenizer, if there is one."""
        saved = self._saved.get("pre_tokenizer")
        return None if saved is None else SlimPreTokenizer(saved)


def _read_added(
    saved: Sequence[dict[str, Any]], vocabulary: dict[str, int]
) -> dict[int, AddedToken]:
    """Return the added tokens by id; 0.x ignores the ids in the file, and counts."""
    added: dict[int, AddedToken] = {}
    ids: dict[str, int] = {}
    for entry in saved:
        token = AddedToken(*(entry[name] for name in AddedToken._fields))
        size = len(vocabulary)
        counted = max(size, *(id_ + 1 for id_ in added)) if added else size
        expected = ids.get(token.content, vocabulary.get(token.content, counted))
        if entry["id"] != expected or not token.content:
            refuse(
                f"added token {quote(token.content)} has the id {entry['id']}, and is {expected} "
                "to tokenizers 0.x"
            )
        ids[token.content] = expected
        added[expected] = token
    return added
