"""Find which bytes of a text each token stands for, and from these the targets.

A token of most vocabularies spells its bytes. Where the tokens of a text spell the text, byte by
byte, their lengths say where each one lies, and the equality proves it; so it is for byte-level BPE
whenever the numbers of bytes are equal. Other texts are encoded once more by `tokenizers`, whose
offsets are used if its ids are the same; those of a tokenizer that drops spaces or changes case
only by it. 100 MB/s, 20 to 40 MB/s where bytes are compared, and 1 to 2 MB/s for the others.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.tokens.decode import FALLBACK_BYTE
from seqpack_cli.tokens.sequences import EncodedTexts
from seqpack_cli.tokens.special_tokens import hide_special_tokens
from seqpack_cli.tokens.tokenizer import build_tokenizer, byte_of_character, catch_failure

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # not for a run without tags or targets

# Unicode's White_Space, as tokenizers splits at it; Python has four more, \x1c to \x1f.
SPACE_CHARACTERS = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
SPACE_CODES = list(map(ord, SPACE_CHARACTERS))
SPACES = b" \t\n\r\x0b\x0c"
WORD = re.compile(rf"[^{SPACE_CHARACTERS}]+")
METASPACE = "▁"
TYPE = re.compile(r'"type": "(\w+)"')  # of a part of a normalizer or pre-tokenizer
# They split at every space, and drop it.
DROP_SPACES = frozenset({"WhitespaceSplit", "Whitespace", "BertPreTokenizer"})
# Of their tokens, hardly any text is spelled; a space in front may be one that was taken away.
NOT_SPELLED = DROP_SPACES | {"BertNormalizer", "Lowercase", "Strip"}
Span = tuple[int, int]  # the first character, and the end of the last one
Encoder = Callable[[list[str]], EncodedTexts]


class TargetText(NamedTuple):
    """A text, made from several fields, of which some characters are targets."""

    text: str
    targets: tuple[Span, ...]  # rising, apart from each other, none empty
    canonical: bytes  # JSON of the fields, the same for equal values: what is hashed
    # Special tokens between MARKS are ids, and all others text. If not, all are what the encoder
    # makes of them.
    is_marked: bool = False
    spelled: str = ""  # what the record itself says, if special tokens may be spelled in it


class Places(NamedTuple):
    """The range of bytes of each token; the bytes of all texts of a batch are counted on.

    A space that the tokenizer added has the place of the character behind it.
    """

    starts: np.ndarray  # int64[S], rising
    ends: np.ndarray  # int64[S], rising
    text_offsets: np.ndarray  # int64[texts + 1]: where each text begins


class EncodersDifferError(Exception):
    """A fast encoder gives different ids from tokenizers, or fails where tokenizers may not."""


class FoundTargets(NamedTuple):
    """The targets of some texts."""

    entries: np.ndarray  # uint8[S], 1 for a target
    num_straddling: int  # tokens with other characters too


class PlaceFinder:
    """Encodes texts and finds the place of each token.

    Args:
        tokenizer_json: with which the texts are encoded.
        allow_special_tokens: special tokens in a text are encoded as their ids.
    """

    def __init__(self, tokenizer_json: bytes, *, allow_special_tokens: bool) -> None:
        if not allow_special_tokens:
            tokenizer_json = hide_special_tokens(tokenizer_json)
        saved = json.loads(tokenizer_json)
        tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=allow_special_tokens)
        self._json, self._allows = tokenizer_json, allow_special_tokens
        changes, splits = (
            json.dumps(saved.get(name), ensure_ascii=False)
            for name in ("normalizer", "pre_tokenizer")
        )
        self._normalizers, kinds = (
            set(TYPE.findall(it)) - {"Sequence"} for it in (changes, splits)
        )
        self._drops_spaces = not DROP_SPACES.isdisjoint(kinds)
        self._is_spelled = '"Removed"' not in splits and NOT_SPELLED.isdisjoint(
            self._normalizers | kinds
        )
        self._writes_spaces = METASPACE in changes + splits
        writes_bytes = "ByteLevel" in self._normalizers
        bytes_of = byte_of_character() if writes_bytes or "ByteLevel" in kinds else {}
        self._spelled = self._spell_tokens(tokenizer, saved["model"], bytes_of)
        self._is_blank = np.array([not it.strip(SPACES) for it in self._spelled], bool)
        self._num_bytes = np.array(list(map(len, self._spelled)), np.int64)
        self._takes_spaces = np.zeros(len(self._spelled), bool)
        for id_, token in tokenizer.get_added_tokens_decoder().items():
            is_in_text = allow_special_tokens or not token.special
            self._takes_spaces[id_] = is_in_text and (token.lstrip or token.rstrip)
        # Then the tokens have the bytes of the text, or more of them.
        self._is_complete = (
            "ByteLevel" in kinds
            and self._normalizers <= {"NFC"}
            and bytes_of.keys() <= dict(saved["model"]["vocab"]).keys()
        )
        self._normalizer = None if writes_bytes else tokenizer.normalizer
        self._is_solid = np.full(0x110000, -1, np.int8)  # of each character, -1 is unknown

    @functools.cached_property
    def _library(self) -> Tokenizer:
        """The tokenizer without its post-processor, which may leave spaces out of offsets."""
        plain = json.dumps({**json.loads(self._json), "post_processor": None}).encode()
        return build_tokenizer(plain, allow_special_tokens=self._allows)

    def encode(self, encoder: Encoder, texts: list[str]) -> tuple[EncodedTexts, Places]:
        """Encode texts, by the encoder if its tokens may spell them; return the tokens' places.

        Raises:
            DataError: `tokenizers` fails on a text.
            EncodersDifferError: it gives other ids.
        """
        if not self._is_spelled:
            return self._ask_library(texts)
        encoded = encoder(texts)
        raw = list(map(str.encode, texts))
        text_offsets = to_offsets(list(map(len, raw)))
        offsets = to_offsets(self._num_bytes[encoded.ids])
        bounds = offsets[to_offsets(encoded.lengths)]
        shifts = self._compare(texts, raw, encoded, np.diff(bounds))
        if not shifts.any():
            return encoded, Places(offsets[:-1], offsets[1:], text_offsets)
        move = np.repeat(text_offsets[:-1] - bounds[:-1] - shifts, encoded.lengths)
        first = np.repeat(text_offsets[:-1], encoded.lengths)
        starts = np.maximum(offsets[:-1] + move, first)
        ends = np.maximum(offsets[1:] + move, first + 1)
        others = np.flatnonzero(shifts < 0)
        if others.size:
            is_other = np.repeat(shifts < 0, encoded.lengths)
            again, found = self._ask_library([texts[index] for index in others.tolist()])
            if not np.array_equal(again.ids, encoded.ids[is_other]):
                what = "tokenizers gives other ids for a text with tags or targets"
                raise EncodersDifferError(what)
            move = np.repeat(text_offsets[others] - found.text_offsets[:-1], again.lengths)
            starts[is_other], ends[is_other] = found.starts + move, found.ends + move
        return encoded, Places(starts, ends, text_offsets)

    def leave_out_spaces(
        self, texts: Sequence[str], encoded: EncodedTexts, places: Places
    ) -> Places:
        """Return where each token has its first character that is not a space; empty if nowhere."""
        codes = _list_codes(texts)
        is_solid = np.repeat(self._find_solid(codes), _count_bytes(codes))
        solid = np.append(np.flatnonzero(is_solid), len(is_solid))
        starts = np.minimum(solid[to_offsets(is_solid)[places.starts]], places.ends)
        return places._replace(starts=np.where(self._is_blank[encoded.ids], places.ends, starts))

    def _compare(
        self, texts: list[str], raw: list[bytes], encoded: EncodedTexts, sizes: np.ndarray
    ) -> np.ndarray:
        """Return how many spaces the tokens of each text have in front of its bytes, 0 or 1.

        Args:
            raw: the bytes of each text.
            sizes: the number of bytes that the tokens of each text spell.

        Returns:
            int64[texts], -1 for a text that they do not spell.
        """
        more = sizes - np.fromiter(map(len, raw), np.int64, len(raw))
        shifts = np.full(len(raw), -1)
        if self._is_complete:
            shifts[more == 0] = 0
            if self._normalizers:
                is_normal = [unicodedata.is_normalized("NFC", text) for text in texts]
                shifts[~np.array(is_normal, bool)] = -1
        unknown = np.flatnonzero((shifts < 0) & ((more == 0) | (more == 1))).tolist()
        starts = to_offsets(encoded.lengths)
        for index in unknown:
            ids = encoded.ids[starts[index] : starts[index + 1]].tolist()
            text, found = raw[index], b"".join(map(self._spelled.__getitem__, ids))
            if found == text:
                shifts[index] = 0
            elif found[1:] == text and found[:1] == b" " and text[:1] != b" ":
                shifts[index] = 1
        if self._takes_spaces.any():
            takes = to_offsets(self._takes_spaces[encoded.ids])
            shifts[np.diff(takes[starts]) > 0] = -1
        return shifts

    def _ask_library(self, texts: list[str]) -> tuple[EncodedTexts, Places]:
        """Return the tokens that `tokenizers` gives, and their places as it says.

        A character without a token, which was joined with those before it, belongs to their token.
        """
        codes = _list_codes(texts)
        begins = to_offsets(list(map(len, texts)))
        skipped = np.zeros(len(texts), np.int64)
        if "Precompiled" in self._normalizers:  # offsets are wrong if the first one is removed
            for index, text in enumerate(texts):
                kept = (at for at, it in enumerate(text) if self._normalize(it))
                skipped[index] = next(kept, len(text))
            texts = [text[count:] for text, count in zip(texts, skipped.tolist(), strict=True)]
        with catch_failure():
            encodings = self._library.encode_batch(texts, add_special_tokens=False)
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = np.fromiter(chain.from_iterable(it.ids for it in encodings), np.int64)
        flat = chain.from_iterable(chain.from_iterable(it.offsets for it in encodings))
        places = np.fromiter(flat, np.int64, 2 * len(ids)).reshape(-1, 2)
        starts, ends = (places + np.repeat(begins[:-1] + skipped, lengths)[:, None]).T
        if self._drops_spaces:  # added tokens may have taken some
            is_word = ~np.isin(codes, SPACE_CODES)
            words, before = np.append(np.flatnonzero(is_word), len(codes)), to_offsets(is_word)
            has_text = before[starts] < before[ends]
            starts = np.where(has_text, words[before[starts]], ends)
            ends = np.where(has_text, words[before[ends] - 1] + 1, ends)
        covers = np.bincount(starts, minlength=len(codes) + 1)
        covers -= np.bincount(ends, minlength=len(codes) + 1)
        is_lost = np.cumsum(covers) == 0
        is_lost[begins] = False
        lost = np.flatnonzero(is_lost)
        is_lost[lost] = self._find_solid(codes[lost])
        stops = np.flatnonzero(~is_lost)
        ends = np.where(starts < ends, stops[np.searchsorted(stops, ends)], ends)
        at = to_offsets(_count_bytes(codes))
        starts, ends = np.maximum.accumulate(at[starts]), np.maximum.accumulate(at[ends])
        return EncodedTexts(ids, lengths), Places(starts, ends, at[begins])

    def _find_solid(self, codes: np.ndarray) -> np.ndarray:
        """Return which characters are not a space, and become something else than spaces."""
        is_solid = self._is_solid[codes]
        for code in np.unique(codes[is_solid < 0]).tolist():
            spelled = "" if code in SPACE_CODES else self._normalize(chr(code))
            self._is_solid[code] = bool(self._spell(spelled).strip())
        found: np.ndarray = self._is_solid[codes] > 0
        return found

    def _normalize(self, character: str) -> str:
        """Return what a character alone becomes in front of the model."""
        if self._normalizer is not None:
            with contextlib.suppress(DataError), catch_failure():  # it may fail on one character
                return str(self._normalizer.normalize_str(character))
        return character

    def _spell(self, text: str) -> bytes:
        """Return the bytes of a text of the vocabulary, which may write a space as a mark."""
        return (text.replace(METASPACE, " ") if self._writes_spaces else text).encode()

    def _spell_tokens(
        self, tokenizer: Tokenizer, model: dict[str, Any], bytes_of: dict[str, int]
    ) -> list[bytes]:
        """Return the bytes that each id stands for, up to the largest id; none for an unused id.

        A vocabulary writes them in its own way: byte-level BPE with one printable character per
        byte, SentencePiece with ▁ for a space and `<0x41>` for a byte, WordPiece with ## inside a
        word.
        """
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        added = tokenizer.get_added_tokens_decoder()
        spelled = [b""] * (max([*vocabulary.values(), *added], default=-1) + 1)
        prefix = model.get("continuing_subword_prefix") or ""
        suffix = model.get("end_of_word_suffix") or ""
        for content, id_ in vocabulary.items():
            if model.get("byte_fallback") and (byte := FALLBACK_BYTE.fullmatch(content)):
                spelled[id_] = bytes([int(byte[1], 16)])
                continue
            content = content.removeprefix(prefix).removesuffix(suffix)
            try:
                spelled[id_] = bytes(map(bytes_of.__getitem__, content))
            except KeyError:  # written as text
                spelled[id_] = self._spell(content)
        for id_, token in added.items():
            spelled[id_] = self._spell(token.content)
        return spelled


# Made once in each process: 0.2 s for 50,000 tokens.
open_place_finder = functools.lru_cache(maxsize=2)(PlaceFinder)


def find_targets(
    texts: Sequence[TargetText | None], places: Places, lengths: np.ndarray
) -> FoundTargets:
    """Return the targets of texts: the tokens with nothing but characters that are targets.

    A token with some characters inside a target and some outside straddles: it is not a target, and
    is counted. A token without characters is a target if all characters beside it are.

    Args:
        texts: None for one without tokens.
        lengths: number of tokens of each text.
    """
    borders: list[int] = []
    for text, done in zip(texts, places.text_offsets.tolist(), strict=False):
        if text is None:
            continue
        for start, end in pairwise((0, *chain.from_iterable(text.targets))):
            done += len(text.text[start:end].encode())
            borders.append(done)
    at = np.array(borders, np.int64)
    at = at[(np.diff(at, prepend=-1) > 0) & (np.diff(at, append=-1) != 0)]  # join spans that meet
    starts, ends = places.starts, places.ends
    first, behind = np.searchsorted(ends, at, "right"), np.searchsorted(starts, at)
    inside = np.maximum(behind - first, 0)  # tokens that a border divides
    num_straddling = len(np.unique(expand_ranges(first, inside)))
    if (starts == ends).any():
        is_empty = starts == ends
        first, last = (
            np.repeat(it, lengths) for it in (places.text_offsets[:-1], places.text_offsets[1:])
        )
        starts = np.maximum.accumulate(np.maximum(starts - is_empty, first))
        ends = np.minimum(ends + is_empty, last)
    behind, after = np.searchsorted(starts, at[::2]), np.searchsorted(ends, at[1::2], "right")
    has_tokens = behind < after
    changes = np.zeros(len(starts) + 1, np.int8)
    changes[behind[has_tokens]] = 1
    changes[after[has_tokens]] -= 1  # 0 where the next target begins at once
    entries = np.cumsum(changes[:-1], dtype=np.int8).view(np.uint8)
    return FoundTargets(entries, num_straddling)


def _list_codes(texts: Sequence[str]) -> np.ndarray:
    """Return the code points of all texts."""
    return np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")


def _count_bytes(codes: np.ndarray) -> np.ndarray:
    """Return the number of bytes of characters in UTF-8."""
    more = [(codes > last).view(np.int8) for last in (0x7F, 0x7FF, 0xFFFF)]
    return 1 + more[0] + more[1] + more[2]
