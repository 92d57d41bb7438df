"""What each token of a tokenizer.json spells in the text: bytes, with spaces or without.

A vocabulary writes a token in its own way: byte-level BPE with one printable character per byte,
SentencePiece with ▁ for a space and `<0x41>` for a byte, WordPiece with ## inside a word. Spaces
may be left out, since many kinds of tokenizers add or drop some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from seqpack_cli.tokens.byte_tokenizer import byte_of_character
from seqpack_cli.tokens.vocabulary import build_tokenizer, usable_json

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

SPACES = b" \t\n\r\x0b\x0c"
# Unicode's White_Space, as tokenizers splits at it; Python has four more, \x1c to \x1f.
SPACE_CHARACTERS = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
WORD = re.compile(rf"[^{SPACE_CHARACTERS}]+")
METASPACE = "▁"
FALLBACK_BYTE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Writing:
    """How a vocabulary writes its tokens."""

    is_byte_level: bool  # one character per byte
    normalizer_writes_bytes: bool  # in that way, so its output is not text
    has_fallback_bytes: bool
    markers: str  # characters that stand for a space
    prefix: str  # of a token inside a word
    suffix: str  # of the last token of a word
    keeps_spaces: bool = False  # what is spelled has them

    def keeping_spaces(self) -> Writing:
        """Return the same with spaces in what is spelled."""
        return replace(self, keeps_spaces=True)

    def spell_token(self, content: str) -> bytes:
        """Return the bytes that a token of the vocabulary stands for."""
        found = FALLBACK_BYTE.fullmatch(content) if self.has_fallback_bytes else None
        if found:
            return self._leave_out_spaces(bytes([int(found[1], 16)]))
        content = content.removeprefix(self.prefix).removesuffix(self.suffix)
        if self.is_byte_level:
            try:
                return self._leave_out_spaces(bytes(map(byte_of_character().__getitem__, content)))
            except KeyError:  # written as text
                pass
        return self.spell_text(content)

    def spell_text(self, normalized: str) -> bytes:
        """Return the bytes of text that was normalized."""
        for marker in self.markers:
            normalized = normalized.replace(marker, " " * self.keeps_spaces)
        return self._leave_out_spaces(normalized.encode())

    def _leave_out_spaces(self, spelled: bytes) -> bytes:
        return spelled if self.keeps_spaces else spelled.translate(None, SPACES)


def parse_tokenizer(tokenizer_json: bytes) -> dict[str, Any]:
    """Parse a tokenizer.json that the library has accepted."""
    saved: dict[str, Any] = orjson.loads(usable_json(tokenizer_json))
    return saved


def find_writing(saved: dict[str, Any]) -> Writing:
    """Find out from a parsed tokenizer.json how it writes its tokens."""
    of_normalizer = list(iter_parts(saved.get("normalizer")))
    parts = [*of_normalizer, *iter_parts(saved.get("pre_tokenizer"))]
    is_byte_level = any(part["type"] == "ByteLevel" for part in parts)
    replacements = [part.get("replacement") for part in parts if part["type"] == "Metaspace"]
    markers = [METASPACE, *filter(None, replacements)]
    model = saved["model"]
    return Writing(
        is_byte_level=is_byte_level,
        normalizer_writes_bytes=any(part["type"] == "ByteLevel" for part in of_normalizer),
        has_fallback_bytes=bool(model.get("byte_fallback")),
        markers="" if is_byte_level else "".join(dict.fromkeys(markers)),
        prefix=model.get("continuing_subword_prefix") or "",
        suffix=model.get("end_of_word_suffix") or "",
    )


def spell_tokens(tokenizer_json: bytes, writing: Writing) -> list[bytes]:
    """Return what each id spells, up to the largest id; an id without a token spells nothing."""
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    added = tokenizer.get_added_tokens_decoder()
    spelled = [b""] * (max([*vocabulary.values(), *added], default=-1) + 1)
    for content, id_ in vocabulary.items():
        spelled[id_] = writing.spell_token(content)
    for id_, token in added.items():  # as in the text
        spelled[id_] = _spell_added(token, tokenizer, writing)
    return spelled


def _spell_added(token: AddedToken, tokenizer: Tokenizer, writing: Writing) -> bytes:
    content: str = token.content
    if not writing.keeps_spaces:
        return content.encode().translate(None, SPACES)
    if token.normalized and tokenizer.normalizer and not writing.normalizer_writes_bytes:
        content = tokenizer.normalizer.normalize_str(content)  # this is what a text must have
    return writing.spell_text(content)


def iter_parts(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every component of a normalizer or pre-tokenizer, those in a sequence too."""
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield node
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from iter_parts(child)
