"""Find the characters of each token, spaces included, in three ways from fast to exact."""

from __future__ import annotations

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.offsets.alignment import Alignment, align
from seqpack_cli.tokens.offsets.byte_alignment import align_bytes
from seqpack_cli.tokens.offsets.characters import CharacterTable
from seqpack_cli.tokens.offsets.flat_bytes import FlatBytes, join_bytes
from seqpack_cli.tokens.offsets.gap_alignment import align_gaps, find_owners
from seqpack_cli.tokens.offsets.space_rules import SpaceRules


class SpaceAligner:
    """Finds the characters of each token of a tokenizer that keeps spaces.

    Args:
        spelled: what each id spells, spaces included.
        characters: with spaces, too.
    """

    def __init__(self, spelled: list[bytes], characters: CharacterTable, rules: SpaceRules) -> None:
        self._spelled = spelled
        self._tokens = join_bytes(spelled)
        self._characters = characters
        self._rules = rules

    def __call__(self, texts: list[str], encoded: EncodedTexts) -> Alignment:
        """Find the first character of each token and the end of its last one."""
        rules = self._rules
        num_bytes = self._tokens.lengths
        offsets, is_aligned = align_bytes(texts, encoded, self._spelled, num_bytes, rules)
        if rules.adds_space:  # a space that was added may look like one that was taken
            takes = rules.takes_left | rules.takes_right
            is_aligned &= ~find_owners(takes[encoded.ids], encoded.lengths)
        others = np.flatnonzero(~is_aligned).tolist()
        if others:
            is_other = np.repeat(~is_aligned, encoded.lengths)
            rest = EncodedTexts(encoded.ids[is_other], encoded.lengths[others])
            chosen = [texts[index] for index in others]
            found = align_gaps(chosen, rest, self._tokens, self._characters, rules)
            offsets[is_other], is_aligned[others] = found
        return Alignment(offsets, is_aligned)


def align_without_spaces(
    texts: list[str],
    encoded: EncodedTexts,
    tokens: FlatBytes,
    characters: CharacterTable,
    markers: str,
) -> Alignment:
    """Find the characters of each token of a tokenizer that drops spaces.

    A token that stands for a space alone was added, so its place is the next character.

    Args:
        tokens: what each id spells, without spaces.
        characters: without spaces, too.
        markers: characters that stand for a space in tokens; not known if they are in a text.
    """
    offsets, is_aligned = align(texts, encoded, tokens, characters)
    has_marker = [any(marker in text for marker in markers) for text in texts]
    is_aligned &= ~np.array(has_marker, bool)
    is_empty = offsets[:, 0] == offsets[:, 1]
    filled, empty = np.flatnonzero(~is_empty), np.flatnonzero(is_empty)
    if len(filled) and len(empty):
        owners = np.repeat(np.arange(len(texts)), encoded.lengths)
        behind = filled[np.minimum(np.searchsorted(filled, empty), len(filled) - 1)]
        is_there = (behind > empty) & (owners[behind] == owners[empty])
        offsets[empty[is_there]] = offsets[behind[is_there], :1] + np.array([0, 1])
    return Alignment(offsets, is_aligned)
