"""Find the characters of each token where the bytes of the tokens are those of the text itself.

So it is for most texts and tokenizers that keep spaces, whatever their normalizers: equal bytes are
the proof. One space more in front is one that the tokenizer added; its place is the next character.
About 20 MB/s.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.offsets.alignment import Alignment
from seqpack_cli.tokens.offsets.space_rules import SpaceRules
from seqpack_cli.tokens.offsets.spelling import SPACES


def align_bytes(
    texts: list[str],
    encoded: EncodedTexts,
    tokens: list[bytes],
    num_bytes: np.ndarray,
    rules: SpaceRules,
) -> Alignment:
    """Find the first character of each token and the end of its last one.

    Args:
        tokens: what each id spells, spaces included.
        num_bytes: of each of them.
    """
    spelled = b"".join(map(tokens.__getitem__, encoded.ids.tolist()))
    token_offsets = to_offsets(num_bytes[encoded.ids])
    bounds = token_offsets[to_offsets(encoded.lengths)]  # of each text in `spelled`
    raw = list(map(str.encode, texts))
    is_aligned, num_added = np.zeros(len(texts), bool), np.zeros(len(texts), np.int64)
    ends = bounds[1:].tolist()
    for index, (text, start, end) in enumerate(zip(raw, bounds[:-1].tolist(), ends, strict=True)):
        if len(text) == end - start:
            is_aligned[index] = spelled[start:end] == text
        elif rules.adds_space and text and len(text) + 1 == end - start:
            may_add = rules.adds_in_front or text[0] not in SPACES
            num_added[index] = is_aligned[index] = may_add and spelled[start:end] == b" " + text
    first = np.repeat(bounds[:-1] + num_added, encoded.lengths)
    places = np.stack([token_offsets[:-1] - first, token_offsets[1:] - first])
    if num_added.any():
        np.maximum(places, 0, out=places)
        np.maximum(places[1], np.repeat(num_added, encoded.lengths), out=places[1])
    if not is_aligned.all():
        places[:, np.repeat(~is_aligned, encoded.lengths)] = 0
    return Alignment(_to_characters(places, raw, encoded.lengths), is_aligned)


def _to_characters(places: np.ndarray, texts: list[bytes], lengths: np.ndarray) -> np.ndarray:
    """Return the characters of each token, int32[S, 2].

    Args:
        places: the first byte of each token in its text, and the end of its last one, int64[2, S].
    """
    joined = b"".join(texts)
    if joined.isascii():
        return places.T.astype(np.int32)
    is_lead = (np.frombuffer(joined, np.uint8) & 0xC0) != 0x80
    num_before = to_offsets(is_lead)
    first = np.repeat(to_offsets(list(map(len, texts)))[:-1], lengths)
    starts, ends = places + first
    is_empty = starts == ends
    starts[is_empty] -= 1  # whose character ends where the token is; that of no text, at 0
    starts, ends = num_before[starts + 1], num_before[ends]
    starts -= ~is_empty
    offsets = np.stack([starts, ends], axis=1) - num_before[first][:, None]
    return np.asarray(offsets, np.int32)
