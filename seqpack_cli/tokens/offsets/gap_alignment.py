"""Find the characters of each token, spaces included, where tokens have other spaces than the text.

Without spaces, the bytes of the tokens are those of the text, which divide both into gaps. In a gap
the tokens must have the spaces of the text, or none of them, or one more in front: one that the
tokenizer added there, whose place is the next character, as in `tokenizers`. All else is unknown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.offsets.alignment import Alignment
from seqpack_cli.tokens.offsets.characters import CharacterTable
from seqpack_cli.tokens.offsets.flat_bytes import FlatBytes
from seqpack_cli.tokens.offsets.space_rules import SpaceRules
from seqpack_cli.tokens.offsets.spelling import SPACES

IS_SPACE = np.isin(np.arange(256), list(SPACES))


class _Stream(NamedTuple):
    """The bytes of some items, characters or tokens, of some texts."""

    data: np.ndarray  # uint8[S]
    is_space: np.ndarray  # bool[S]
    gaps: np.ndarray  # int64[S]: the gap of each space, and for other bytes the gap before
    item_offsets: np.ndarray  # int64[items + 1], in bytes
    num_solid: np.ndarray  # int64[texts]: bytes that are not spaces
    num_spaces: np.ndarray  # int64[gaps]
    gap_starts: np.ndarray  # int64[gaps], in bytes


class _Gaps(NamedTuple):
    """What is known of each gap from the tokens beside it, bool."""

    is_first: np.ndarray  # of a text, or after an added token
    is_last: np.ndarray  # of a text
    is_taken: np.ndarray  # its spaces belong to the added token before it


def align_gaps(
    texts: list[str],
    encoded: EncodedTexts,
    tokens: FlatBytes,
    characters: CharacterTable,
    rules: SpaceRules,
) -> Alignment:
    """Find the first character of each token and the end of its last one.

    Args:
        tokens: what each id spells, spaces included.
        characters: with spaces, too.
    """
    offsets = np.zeros((len(encoded.ids), 2), np.int32)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    places = characters.look_up("".join(texts))
    num_solid = _count_solid(characters.bytes, places, lengths)
    is_aligned = num_solid == _count_solid(tokens, encoded.ids, encoded.lengths)
    takes = find_owners((rules.takes_left | rules.takes_right)[encoded.ids], encoded.lengths)
    if takes.any():  # whether these characters are taken, or end what is taken, is not known
        is_odd = characters.is_like_space[places] | (characters.bytes.lengths[places] == 0)
        is_aligned &= ~(takes & find_owners(is_odd, lengths))
    is_aligned &= num_solid > 0
    if not is_aligned.any():
        return Alignment(offsets, is_aligned)
    is_chosen = np.repeat(is_aligned, encoded.lengths)
    ids, lengths_of_ids = encoded.ids[is_chosen], encoded.lengths[is_aligned]
    text = _read(characters.bytes, places[np.repeat(is_aligned, lengths)], lengths[is_aligned])
    spelled = _read(tokens, ids, lengths_of_ids)
    gaps = _describe_gaps(spelled, ids, rules)
    found, is_right = _match(text, spelled, gaps, rules)
    starts, ends = _find_characters(found, text, spelled, gaps, rules.takes_left[ids])
    first = np.repeat(to_offsets(lengths[is_aligned])[:-1], lengths_of_ids)
    ends = np.maximum(np.maximum.accumulate(ends), first)
    starts = np.where(starts < 0, ends, starts)
    offsets[is_chosen] = np.stack([starts - first, ends - first], axis=1)
    is_aligned[is_aligned] = is_right
    return Alignment(offsets, is_aligned)


def _match(
    text: _Stream, spelled: _Stream, gaps: _Gaps, rules: SpaceRules
) -> tuple[np.ndarray, np.ndarray]:
    """Return the byte of the text for each byte of the tokens, and which texts are right."""
    num_open = np.where(gaps.is_taken, 0, text.num_spaces)  # spaces that tokens may spell
    extra = spelled.num_spaces - num_open
    may_add = (num_open == 0) & ~gaps.is_last
    if rules.adds_in_front:
        may_add |= gaps.is_first & ~gaps.is_taken
    is_right = (spelled.num_spaces == 0) | (extra == 0) | (extra == 1) & may_add & rules.adds_space
    ranks = np.arange(len(spelled.data)) - spelled.gap_starts[spelled.gaps]
    starts = text.gap_starts + text.num_spaces - num_open
    extra = extra[spelled.gaps]
    places = starts[spelled.gaps] + np.maximum(ranks - extra, 0)
    np.minimum(places, len(text.data) - 1, out=places)  # those of a gap that is not right
    differs = (text.data[places] != spelled.data) & (ranks >= extra)
    is_right[spelled.gaps[differs]] = False
    owners = np.repeat(np.arange(len(text.num_solid)), text.num_solid + 1)
    return places, np.bincount(owners[~is_right], minlength=len(text.num_solid)) == 0


def _find_characters(
    places: np.ndarray, text: _Stream, spelled: _Stream, gaps: _Gaps, takes_left: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first character and the end of each token; of one without bytes, -1 and 0."""
    lengths = np.diff(text.item_offsets)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    first, last = spelled.item_offsets[:-1], spelled.item_offsets[1:] - 1
    has_bytes = np.flatnonzero(first <= last)
    first, last = first[has_bytes], last[has_bytes]
    starts, ends = np.full(len(takes_left), -1, np.int64), np.zeros(len(takes_left), np.int64)
    starts[has_bytes], ends[has_bytes] = owners[places[first]], owners[places[last]] + 1
    before, behind = spelled.gaps[first], spelled.gaps[last] + 1
    takes = takes_left[has_bytes] & ~spelled.is_space[first] & ~gaps.is_taken[before]
    takes &= (spelled.num_spaces[before] == 0) & (text.num_spaces[before] > 0)
    starts[has_bytes[takes]] = owners[text.gap_starts[before[takes]]]
    takes = ~spelled.is_space[last]
    takes[takes] = gaps.is_taken[behind[takes]] & (text.num_spaces[behind[takes]] > 0)
    behind = behind[takes]
    ends[has_bytes[takes]] = owners[text.gap_starts[behind] + text.num_spaces[behind] - 1] + 1
    return starts, ends


def _describe_gaps(spelled: _Stream, ids: np.ndarray, rules: SpaceRules) -> _Gaps:
    ends = np.cumsum(spelled.num_solid + 1)
    is_first, is_last, is_taken = np.zeros((3, int(ends[-1])), bool)
    is_first[ends[:-1]] = is_first[0] = is_last[ends - 1] = True
    bounds = spelled.item_offsets
    for flags, found in ((rules.is_added, is_first), (rules.takes_right, is_taken)):
        last = bounds[1:][flags[ids] & (np.diff(bounds) > 0)] - 1
        found[spelled.gaps[last[~spelled.is_space[last]]] + 1] = True
    return _Gaps(is_first, is_last, is_taken)


def _read(table: FlatBytes, items: np.ndarray, num_items: np.ndarray) -> _Stream:
    data = table.take(items)
    is_space = IS_SPACE[data]
    num_before = to_offsets(~is_space)
    item_offsets = to_offsets(table.lengths[items])
    bounds = item_offsets[to_offsets(num_items)]
    num_solid = np.diff(num_before[bounds])
    gaps = num_before[:-1] + np.repeat(np.arange(len(num_items)), np.diff(bounds))
    num_gaps = int(num_solid.sum()) + len(num_items)
    num_spaces = np.bincount(gaps[is_space], minlength=num_gaps)
    solid_before = np.arange(num_gaps) - np.repeat(np.arange(len(num_items)), num_solid + 1)
    gap_starts = to_offsets(num_spaces)[:-1] + solid_before
    return _Stream(data, is_space, gaps, item_offsets, num_solid, num_spaces, gap_starts)


def _count_solid(table: FlatBytes, items: np.ndarray, num_items: np.ndarray) -> np.ndarray:
    """Return the number of bytes of each text that are not spaces."""
    num_before = to_offsets(~IS_SPACE[table.data])
    solid = num_before[table.starts + table.lengths] - num_before[table.starts]
    return np.asarray(np.diff(to_offsets(solid[items])[to_offsets(num_items)]))


def find_owners(flags: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the texts with a token that has a flag, bool."""
    return np.asarray(np.diff(to_offsets(flags)[to_offsets(lengths)]) > 0)
