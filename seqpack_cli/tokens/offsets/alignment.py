"""Find the characters of each token from what the tokens spell: exact, and without a tokenizer.

Without spaces, the bytes of a text's tokens are the bytes of its normalized characters. If both are
equal, the k-th byte of the one is the k-th byte of the other, so each token's characters are known
and proven. Where they differ (unknown tokens, characters that are normalized together), nothing is
known. numpy on whole batches, about 30 MB/s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.offsets.characters import CharacterTable
from seqpack_cli.tokens.offsets.flat_bytes import FlatBytes


class Alignment(NamedTuple):
    """The place of each token in its text, where the text is aligned."""

    offsets: np.ndarray  # int32[S, 2]
    is_aligned: np.ndarray  # bool, one per text


class _Spans(NamedTuple):
    """Some items of each text, and their bytes."""

    places: np.ndarray  # of the items, in `table`
    table: FlatBytes
    bounds: np.ndarray  # int64[texts + 1]: where the items of each text begin

    def count_bytes(self) -> np.ndarray:
        """Return the number of bytes before each item, and of all: int64[items + 1]."""
        return np.concatenate([[0], np.cumsum(self.table.lengths[self.places])])


def align(
    texts: list[str], encoded: EncodedTexts, tokens: FlatBytes, characters: CharacterTable
) -> Alignment:
    """Find the first character of each token and the end of its last one, spaces left out.

    A token without anything but spaces is empty, and lies where the token before it ends.

    Args:
        tokens: what each id spells.
    """
    num_characters = np.fromiter(map(len, texts), np.int64, len(texts))
    places = characters.look_up("".join(texts))
    text = _Spans(places, characters.bytes, _find_bounds(num_characters))
    ids = _Spans(encoded.ids, tokens, _find_bounds(encoded.lengths))
    text_bytes, id_bytes = text.count_bytes(), ids.count_bytes()
    is_aligned = np.diff(text_bytes[text.bounds]) == np.diff(id_bytes[ids.bounds])
    if not is_aligned.all():  # only those of equal length can be compared byte by byte
        text, ids = _select(text, is_aligned), _select(ids, is_aligned)
        text_bytes, id_bytes = text.count_bytes(), ids.count_bytes()
    differs = text.table.take(text.places) != ids.table.take(ids.places)
    owners = np.searchsorted(text_bytes[text.bounds], np.flatnonzero(differs), side="right") - 1
    starts, ends = _find_characters(text, text_bytes, id_bytes, characters.is_space[text.places])
    of_text = np.repeat(text.bounds[:-1], np.diff(ids.bounds))
    ends = np.maximum(np.maximum.accumulate(ends), of_text)
    starts = np.where(starts < 0, ends, starts)
    offsets = np.zeros((len(encoded.ids), 2), np.int32)
    selected = np.repeat(is_aligned, encoded.lengths)
    offsets[selected] = np.stack([starts - of_text, ends - of_text], axis=1)
    is_aligned[owners] = False
    return Alignment(offsets, is_aligned)


def _find_characters(
    text: _Spans, text_bytes: np.ndarray, id_bytes: np.ndarray, is_space: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first character and the end of each token; of one without text, -1 and 0."""
    lengths = np.diff(text_bytes)
    owners = np.repeat(np.arange(len(text.places)), lengths)  # the character of each byte
    first, last = id_bytes[:-1], id_bytes[1:] - 1
    if (lengths[is_space] > 0).any():  # spaces with bytes, as U+3000 has: leave them out
        is_text = ~np.repeat(is_space, lengths)
        num_before = np.concatenate([[0], np.cumsum(is_text)])
        owners, first, last = owners[is_text], num_before[first], num_before[last + 1] - 1
    has_text = first <= last
    starts = np.full(len(first), -1, np.int64)
    ends = np.zeros(len(first), np.int64)
    starts[has_text] = owners[first[has_text]]
    ends[has_text] = owners[last[has_text]] + 1
    return starts, ends


def _find_bounds(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)])


def _select(spans: _Spans, is_selected: np.ndarray) -> _Spans:
    """Leave out the items of other texts."""
    lengths = np.diff(spans.bounds)
    kept = spans.places[np.repeat(is_selected, lengths)]
    return _Spans(kept, spans.table, _find_bounds(np.where(is_selected, lengths, 0)))
