"""Find the targets of texts among their tokens, for any encoder."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.offsets.border_targets import BorderTargets
from seqpack_cli.tokens.offsets.character_targets import FoundTargets, find_character_targets
from seqpack_cli.tokens.offsets.offsets import open_offset_finder
from seqpack_cli.tokens.offsets.word_check import WrongOffsetsError
from seqpack_cli.tokens.target_text import TargetText


class TargetFinder:
    """Finds targets: from the bytes before each border, else from the characters of each token.

    Args:
        allow_special_tokens: special tokens in a text were encoded as their ids.
    """

    def __init__(self, tokenizer_json: bytes, *, allow_special_tokens: bool) -> None:
        self._quick = BorderTargets(tokenizer_json)
        self._open_offsets = functools.partial(  # takes half a second: only if it is needed
            open_offset_finder,
            tokenizer_json,
            allow_special_tokens=allow_special_tokens,
            with_spaces=True,
        )

    def find(self, texts: Sequence[TargetText | None], encoded: EncodedTexts) -> FoundTargets:
        """Return the targets of texts.

        Args:
            texts: None for one without tokens.

        Raises:
            WrongOffsetsError: the characters of a token cannot be found.
        """
        found, is_known = self._quick.find(texts, encoded)
        others = np.flatnonzero(~is_known).tolist()
        if not others:
            return found
        is_other = np.repeat(~is_known, encoded.lengths)
        some, lengths = [texts[index] for index in others], encoded.lengths[others]
        contents = ["" if text is None else text.text for text in some]
        try:
            offsets = self._open_offsets()(contents, EncodedTexts(encoded.ids[is_other], lengths))
        except WrongOffsetsError as error:
            raise WrongOffsetsError(others[error.text], error.reason) from error
        rest = find_character_targets(some, offsets, lengths)
        found.entries[is_other] = rest.entries
        return FoundTargets(found.entries, found.num_straddling + rest.num_straddling)


@functools.lru_cache(maxsize=2)
def open_target_finder(tokenizer_json: bytes, *, allow_special_tokens: bool) -> TargetFinder:
    """Return the finder of a tokenizer, made once in each process."""
    return TargetFinder(tokenizer_json, allow_special_tokens=allow_special_tokens)
