"""Find which bytes of a text each token stands for, and from these the targets.

A token of most vocabularies spells its bytes. Where the tokens of a text spell the text, byte by
byte, their lengths say where each one lies, and the equality proves it; so it is for byte-level BPE
whenever the numbers of bytes are equal. All other texts are encoded once more by `tokenizers`,
whose offsets are used if its ids are the same. 100 MB/s, 10 to 20 MB/s where bytes are compared,
and 1 MB/s for the others.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import unicodedata
from collections.abc import Sequence
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
    from tokenizers import Tokenizer

# Unicode's White_Space, as tokenizers splits at it; Python has four more, \x1c to \x1f.
SPACE_CHARACTERS = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
SPACES = b" \t\n\r\x0b\x0c"
WORD = re.compile(rf"[^{SPACE_CHARACTERS}]+")
METASPACE = "▁"
# They split at every space, and drop it.
DROP_SPACES = frozenset({"WhitespaceSplit", "Whitespace", "BertPreTokenizer"})


Span = tuple[int, int]  # the first character, and the end of the last one


class TargetText(NamedTuple):
    """A text, made from several fields, of which some characters are targets."""

    text: str
    targets: tuple[Span, ...]  # rising, apart from each other, none empty
    canonical: bytes  # JSON of the fields, the same for equal values: what is hashed
    # Where special tokens are ids; elsewhere they are text, which has no private characters from
    # U+100000 on. None: wherever they are spelled, or nowhere, as the encoder is set.
    special: tuple[Span, ...] | None = None
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
    """Finds the places of tokens, for any encoder.

    Args:
        tokenizer_json: with which the texts are encoded.
        allow_special_tokens: special tokens in a text were encoded as their ids.
    """

    def __init__(self, tokenizer_json: bytes, *, allow_special_tokens: bool) -> None:
        if not allow_special_tokens:
            tokenizer_json = hide_special_tokens(tokenizer_json)
        self._json, self._allows = tokenizer_json, allow_special_tokens
        saved = json.loads(self._json)
        tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=allow_special_tokens)
        added = tokenizer.get_added_tokens_decoder().items()
        in_text = {id_: it for id_, it in added if allow_special_tokens or not it.special}
        changes, splits = (_list_parts(saved.get(it)) for it in ("normalizer", "pre_tokenizer"))
        self._normalizers, kinds = ([part["type"] for part in it] for it in (changes, splits))
        self._drops_spaces = not DROP_SPACES.isdisjoint(kinds)
        # A space put in front may look like one that was taken away.
        is_odd = (
            any(not it.content.strip(SPACE_CHARACTERS) for it in in_text.values())
            if self._drops_spaces
            else any(part.get("strip_left") for part in changes)
        )
        self._is_exact = not is_odd and all(it.get("behavior") != "Removed" for it in splits)
        marks = "".join(it["replacement"] for it in splits if it["type"] == "Metaspace")
        if any(METASPACE in (it.get("content"), it.get("prepend")) for it in changes):
            marks += METASPACE
        spelled = _spell_tokens(saved, tokenizer, marks, [*self._normalizers, *kinds])
        self._is_blank = np.array([not it.strip(SPACES) for it in spelled], bool)
        if self._drops_spaces:
            spelled = [it.translate(None, SPACES) for it in spelled]
        self._spelled = np.frombuffer(b"".join(spelled), np.uint8)
        self._num_bytes = np.fromiter(map(len, spelled), np.int64, len(spelled))
        self._offsets = to_offsets(self._num_bytes)  # of each id in `_spelled`
        takes = [id_ for id_, it in in_text.items() if it.lstrip or it.rstrip]
        self._takes_spaces = np.isin(np.arange(len(spelled)), takes)
        # Then the tokens have the bytes of the text, or more of them.
        self._is_complete = (
            "ByteLevel" in kinds
            and self._normalizers in ([], ["NFC"])
            and byte_of_character().keys() <= saved["model"]["vocab"].keys()
        )
        writes_bytes = "ByteLevel" in self._normalizers
        normalizer = None if writes_bytes else tokenizer.normalizer
        self._characters = _Characters(normalizer, marks, drops_spaces=self._drops_spaces)
        self._is_solid = np.full(0x110000, -1, np.int8)  # of each character, -1 is unknown

    def find(self, texts: Sequence[str], encoded: EncodedTexts) -> Places:
        """Return the places of all tokens.

        Raises:
            DataError: `tokenizers` fails on a text.
            EncodersDifferError: it gives other ids.
        """
        raw = list(map(str.encode, texts))
        text_offsets = to_offsets(list(map(len, raw)))
        offsets = to_offsets(self._num_bytes[encoded.ids])
        bounds = offsets[to_offsets(encoded.lengths)]
        shifts = np.full(len(texts), -1)
        if self._is_exact and not self._drops_spaces:
            spelling = b"".join(raw), text_offsets
            shifts = self._compare(texts, spelling, encoded, bounds, is_complete=self._is_complete)
        if not shifts.any():
            return Places(offsets[:-1], offsets[1:], text_offsets)
        move = np.repeat(text_offsets[:-1] - bounds[:-1] - shifts, encoded.lengths)
        starts, ends = offsets[:-1] + move, offsets[1:] + move
        first = np.repeat(text_offsets[:-1], encoded.lengths)
        np.maximum(starts, first, out=starts)
        np.maximum(ends, first + 1, out=ends)
        for find in (self._align, self._ask_library):
            others = np.flatnonzero(shifts < 0)
            if not others.size:
                break
            is_other = np.repeat(shifts < 0, encoded.lengths)
            some = EncodedTexts(encoded.ids[is_other], encoded.lengths[others])
            found, is_known = find([texts[index] for index in others.tolist()], some)
            move = np.repeat(text_offsets[others] - found.text_offsets[:-1], some.lengths)
            starts[is_other], ends[is_other] = found.starts + move, found.ends + move
            shifts[others[is_known]] = 0
        np.maximum.accumulate(starts, out=starts)
        np.maximum.accumulate(ends, out=ends)
        return Places(starts, ends, text_offsets)

    def leave_out_spaces(
        self, texts: Sequence[str], encoded: EncodedTexts, places: Places
    ) -> Places:
        """Return where each token has its first character that is not a space; empty if nowhere."""
        codes = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
        is_solid = self._is_solid[codes]
        if is_solid.min(initial=1) < 0:
            for code in np.unique(codes[is_solid < 0]).tolist():
                spelled = b"" if chr(code) in SPACE_CHARACTERS else self._characters[chr(code)]
                self._is_solid[code] = bool(spelled.strip())
            is_solid = self._is_solid[codes]
        is_solid = np.repeat(is_solid, _count_bytes(codes))
        solid = np.append(np.flatnonzero(is_solid), len(is_solid))
        starts = np.minimum(solid[to_offsets(is_solid)[places.starts]], places.ends)
        return places._replace(starts=np.where(self._is_blank[encoded.ids], places.ends, starts))

    def _compare(
        self,
        texts: Sequence[str],
        spelling: tuple[bytes, np.ndarray],
        encoded: EncodedTexts,
        bounds: np.ndarray,
        *,
        is_complete: bool = False,
    ) -> np.ndarray:
        """Return how many spaces the tokens of each text have in front of its bytes, 0 or 1.

        Args:
            spelling: what the tokens of all texts should spell, and where each text begins in it.
            bounds: where each text begins in what its tokens spell.
            is_complete: it is enough to compare the numbers of bytes.

        Returns:
            int64[texts], -1 for a text that they do not spell.
        """
        raw, text_offsets = spelling
        more = np.diff(bounds) - np.diff(text_offsets)
        shifts = np.full(len(texts), -1)
        if is_complete:
            shifts[more == 0] = 0
            if self._normalizers and not raw.isascii():
                is_normal = [unicodedata.is_normalized("NFC", text) for text in texts]
                shifts[~np.array(is_normal, bool)] = -1
        unknown = np.flatnonzero((shifts < 0) & ((more == 0) | (more == 1))).tolist()
        if unknown:
            at = expand_ranges(self._offsets[encoded.ids], self._num_bytes[encoded.ids])
            spelled = self._spelled[at].tobytes()
            starts, ends = text_offsets.tolist(), bounds.tolist()
            for index in unknown:
                text = raw[starts[index] : starts[index + 1]]
                found = spelled[ends[index] : ends[index + 1]]
                if found == text:
                    shifts[index] = 0
                elif found[1:] == text and found[:1] == b" " and text[:1] != b" ":
                    shifts[index] = 1
        if self._takes_spaces.any():
            takes = to_offsets(self._takes_spaces[encoded.ids])
            shifts[np.diff(takes[to_offsets(encoded.lengths)]) > 0] = -1
        return shifts

    def _align(self, texts: Sequence[str], encoded: EncodedTexts) -> tuple[Places, np.ndarray]:
        """Return places by what each character becomes alone, and for which texts they are known.

        Tokens may be whole characters then, never parts.
        """
        joined = "".join(texts)
        sizes, text_offsets = _measure(texts, joined)
        nothing = np.zeros(len(encoded.ids), np.int64)
        if not self._is_exact:
            return Places(nothing, nothing, text_offsets), np.zeros(len(texts), bool)
        pieces = list(map(self._characters.__getitem__, joined))
        num_bytes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        raw_offsets = to_offsets(num_bytes)[to_offsets(lengths)]
        offsets = to_offsets(self._num_bytes[encoded.ids])
        bounds = offsets[to_offsets(encoded.lengths)]
        shifts = self._compare(texts, (b"".join(pieces), raw_offsets), encoded, bounds)
        move = np.repeat(raw_offsets[:-1] - bounds[:-1] - shifts, encoded.lengths)
        first, last = (np.repeat(it, encoded.lengths) for it in (raw_offsets[:-1], raw_offsets[1:]))
        starts = np.clip(offsets[:-1] + move, first, last)
        ends = np.clip(offsets[1:] + move, np.minimum(starts + 1, last), last)
        owners = np.append(np.repeat(np.arange(len(pieces)), num_bytes), len(pieces))
        byte_offsets = to_offsets(sizes)
        end_of_text = np.repeat(text_offsets[1:], encoded.lengths)
        byte_starts = np.minimum(byte_offsets[owners[starts]], end_of_text)
        behind = np.minimum(owners + 1, len(pieces))  # all may have become nothing
        byte_ends = np.where(starts < ends, byte_offsets[behind[ends - 1]], byte_starts)
        return Places(byte_starts, byte_ends, text_offsets), shifts >= 0

    def _ask_library(
        self, texts: Sequence[str], encoded: EncodedTexts
    ) -> tuple[Places, np.ndarray]:
        """Return the places that `tokenizers` says.

        A character without a token, which was joined with those before it, belongs to their token.
        """
        joined, lengths = "".join(texts), np.fromiter(map(len, texts), np.int64, len(texts))
        sizes, text_offsets = _measure(texts, joined)
        skipped = np.zeros(len(texts), np.int64)
        if "Precompiled" in self._normalizers:  # offsets are wrong if the first one is removed
            skipped[:] = list(map(self._count_removed, texts))
            texts = [text[count:] for text, count in zip(texts, skipped.tolist(), strict=True)]
        with catch_failure():
            encodings = self._library.encode_batch(texts, add_special_tokens=False)
        ids = np.fromiter(chain.from_iterable(it.ids for it in encodings), np.int64)
        if not np.array_equal(ids, encoded.ids):
            raise EncodersDifferError("tokenizers gives other ids for a text with tags or targets")
        flat = chain.from_iterable(chain.from_iterable(it.offsets for it in encodings))
        places = np.fromiter(flat, np.int64, 2 * len(ids)).reshape(-1, 2)
        texts_at = to_offsets(lengths)
        places += np.repeat(texts_at[:-1] + skipped, encoded.lengths)[:, None]
        starts, ends = places.T
        if self._drops_spaces:  # added tokens may have taken some
            is_solid = np.array([it not in SPACE_CHARACTERS for it in joined], bool)
            solid, before = np.flatnonzero(is_solid), to_offsets(is_solid)
            has_text = before[starts] < before[ends]
            starts = np.where(has_text, np.append(solid, 0)[before[starts]], ends)
            ends = np.where(has_text, np.append(solid, 0)[before[ends] - 1] + 1, ends)
        covers = np.zeros(len(joined) + 1, np.int64)
        np.add.at(covers, starts, 1)
        np.add.at(covers, ends, -1)
        is_lost = np.cumsum(covers) == 0
        is_lost[texts_at] = False
        for index in np.flatnonzero(is_lost).tolist():
            is_lost[index] = bool(self._characters[joined[index]].strip())
        stops = np.flatnonzero(~is_lost)
        ends = np.where(starts < ends, stops[np.searchsorted(stops, ends)], ends)
        byte_offsets = to_offsets(sizes)
        found = Places(byte_offsets[starts], byte_offsets[ends], text_offsets)
        return found, np.ones(len(texts), bool)

    def _count_removed(self, text: str) -> int:
        """Return how many characters the normalizer removes in front of a text."""
        kept = (index for index, it in enumerate(text) if self._characters[it])
        return next(kept, len(text))

    @functools.cached_property
    def _library(self) -> Tokenizer:
        """The tokenizer without its post-processor, which may leave spaces out of offsets."""
        saved = {**json.loads(self._json), "post_processor": None}
        return build_tokenizer(json.dumps(saved).encode(), allow_special_tokens=self._allows)


@functools.lru_cache(maxsize=2)
def open_place_finder(tokenizer_json: bytes, *, allow_special_tokens: bool) -> PlaceFinder:
    """Return the finder of a tokenizer, made once in each process: 0.2 s for 50,000 tokens."""
    return PlaceFinder(tokenizer_json, allow_special_tokens=allow_special_tokens)


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
        of_text = chain.from_iterable(text.targets)
        if text.text.isascii():
            borders += [done + border for border in of_text]
        else:
            for start, end in pairwise((0, *of_text)):
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


class _Characters(dict[str, bytes]):
    """What each character becomes in front of the model, alone: UTF-8."""

    def __init__(self, normalizer: Any, marks: str, *, drops_spaces: bool) -> None:
        self._normalizer = normalizer
        self._marks = marks
        self._drops_spaces = drops_spaces

    def __missing__(self, character: str) -> bytes:
        found = character
        if self._normalizer is not None:
            with contextlib.suppress(DataError), catch_failure():  # it may fail on one character
                found = self._normalizer.normalize_str(character)
        spelled = _spell(found, self._marks)
        if self._drops_spaces:
            is_space = character in SPACE_CHARACTERS
            spelled = b"" if is_space else spelled.translate(None, SPACES)
        self[character] = spelled
        return spelled


def _spell(text: str, marks: str) -> bytes:
    """Return the bytes of text in which some characters stand for a space."""
    for mark in marks:
        text = text.replace(mark, " ")
    return text.encode()


def _list_parts(node: Any) -> list[dict[str, Any]]:
    """Return the parts of a normalizer or pre-tokenizer, those of a sequence one after another."""
    if node is None:
        return []
    children = node.get("normalizers", node.get("pretokenizers"))
    return [node] if children is None else [part for it in children for part in _list_parts(it)]


def _spell_tokens(
    saved: dict[str, Any], tokenizer: Tokenizer, marks: str, kinds: Sequence[str]
) -> list[bytes]:
    """Return the bytes that each id stands for, up to the largest id; none for an unused id.

    A vocabulary writes them in its own way: byte-level BPE with one printable character per byte,
    SentencePiece with ▁ for a space and `<0x41>` for a byte, WordPiece with ## inside a word.
    """
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    added = tokenizer.get_added_tokens_decoder()
    spelled = [b""] * (max([*vocabulary.values(), *added], default=-1) + 1)
    model = saved["model"]
    bytes_of = byte_of_character() if "ByteLevel" in kinds else {}
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
            spelled[id_] = _spell(content, marks)
    for id_, token in added.items():
        content = token.content
        if token.normalized and tokenizer.normalizer and not bytes_of:
            content = tokenizer.normalizer.normalize_str(content)  # this is what a text must have
        spelled[id_] = _spell(content, marks)
    return spelled


def _measure(texts: Sequence[str], joined: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of bytes of each character, and where each text begins, in bytes."""
    sizes = _count_bytes(np.frombuffer(joined.encode("utf-32-le"), "<u4"))
    characters = to_offsets(list(map(len, texts)))
    return sizes, to_offsets(sizes)[characters]


def _count_bytes(codes: np.ndarray) -> np.ndarray:
    """Return the number of bytes of characters in UTF-8."""
    more = [(codes > last).view(np.int8) for last in (0x7F, 0x7FF, 0xFFFF)]
    return 1 + more[0] + more[1] + more[2]
