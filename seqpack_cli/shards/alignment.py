"""Which sequence of a decoder store belongs to each sequence of an encoder store.

Both are those of the same document. Where every document has a sequence, nothing is read for it;
else the indices are, part by part, with 1 byte per document besides the results.
"""

from __future__ import annotations

import functools
from functools import cached_property

import numpy as np

from seqpack_cli.shards.alignment_checks import (
    check_numbers,
    check_pair,
    find_present,
    has_one_each,
)
from seqpack_cli.shards.store_conditions import PartTest
from seqpack_cli.tokens.store import TokenStore

NO_SEQUENCE = -1


class Alignment:
    """The sequences of two stores that are those of the same documents.

    Args:
        encoder: the store, or several, whose sequences are looked up.
        decoder: as many stores, in the same order. Call `check` before anything else is used.
    """

    def __init__(self, encoder: TokenStore, decoder: TokenStore) -> None:
        self.encoder, self.decoder = encoder, decoder

    def check(self) -> None:
        """Compare what the manifests say of the documents of both sides, store by store.

        Raises:
            OptionError: the stores are not aligned, or a document has several sequences; the first
                difference is named.
        """
        encoders, decoders = self.encoder.folders, self.decoder.folders
        check_numbers(len(encoders), len(decoders))
        for encoder, decoder in zip(encoders, decoders, strict=True):
            check_pair(encoder, decoder)
            for store, folder in ((self.encoder, encoder), (self.decoder, decoder)):
                if folder.num_sequences > folder.num_documents - folder.num_silent:
                    for number in folder.parts:
                        find_present(store, number)

    @cached_property
    def decoder_indices(self) -> np.ndarray:
        """The index of the decoder's sequence of the same document, int64[N].

        N is the number of the encoder's sequences; -1 where the decoder's document is empty.
        """
        if all(map(has_one_each, (*self.encoder.folders, *self.decoder.folders))):
            return np.arange(len(self.encoder))
        parts = range(self.decoder.num_parts)
        is_present = np.concatenate([find_present(self.decoder, number) for number in parts])
        found = np.empty(len(self.encoder), np.int64)
        document = num_before = 0  # so many documents and decoder sequences come before the part
        for number, first in enumerate(self.encoder.part_offsets[:-1].tolist()):
            is_wanted = find_present(self.encoder, number)
            is_known = is_present[document : document + len(is_wanted)]
            indices = np.cumsum(is_known) + (num_before - 1)
            document, num_before = document + len(is_wanted), num_before + int(is_known.sum())
            indices[~is_known] = NO_SEQUENCE
            indices = indices[is_wanted]
            found[first : first + len(indices)] = indices
        return found

    @cached_property
    def decoder_lengths(self) -> np.ndarray:
        """The length of the decoder's sequence of the same document, int32[N]; 0 where empty."""
        found = np.where(self._is_known, self.decoder.lengths[self.decoder_indices], 0)
        return found.astype(np.int32, copy=False)

    def find_lone_lengths(self) -> np.ndarray:
        """Return the lengths of the decoder's sequences whose encoder document is empty, int32."""
        is_lone = np.ones(len(self.decoder), bool)
        is_lone[self.decoder_indices[self._is_known]] = False
        lengths: np.ndarray = self.decoder.lengths[is_lone]
        return lengths

    def spread(self, test: PartTest) -> PartTest:
        """Return a test of the decoder's sequences as one of the encoder's.

        It is False where the decoder's document is empty. The decoder's parts are all evaluated
        when the first result is needed, and are kept with 1 bit per sequence.
        """
        parts = range(self.decoder.num_parts)
        find_bits = functools.cache(lambda: _pack_bits([test(number) for number in parts]))

        def spread_part(number: int) -> np.ndarray:
            first, last = self.encoder.part_offsets[number : number + 2].tolist()
            indices = self.decoder_indices[first:last]
            bits = find_bits()[indices >> 3] >> (indices & 7).astype(np.uint8)
            found: np.ndarray = (bits & 1).astype(bool) & (indices != NO_SEQUENCE)
            return found

        return spread_part

    @property
    def _is_known(self) -> np.ndarray:
        """Return which of the encoder's sequences have one of the decoder, bool[N]."""
        is_known: np.ndarray = self.decoder_indices != NO_SEQUENCE
        return is_known


def _pack_bits(parts: list[np.ndarray]) -> np.ndarray:
    """Return a bit per sequence of all parts, the first in the lowest bit of a byte, uint8."""
    return np.packbits(np.concatenate(parts), bitorder="little")
