"""Encode a batch of texts, and find the place of each token; an error names the document."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, Encoder, interleave
from seqpack_cli.tokens.offsets.character_targets import FoundTargets
from seqpack_cli.tokens.offsets.offsets import OffsetFinder, open_offset_finder
from seqpack_cli.tokens.offsets.target_finder import TargetFinder, open_target_finder
from seqpack_cli.tokens.offsets.word_check import WrongOffsetsError
from seqpack_cli.tokens.placed_specials import PlacedEncoder, open_placed_encoder
from seqpack_cli.tokens.target_text import TargetText
from seqpack_cli.tokens.text_batches import TextBatch
from seqpack_cli.tokens.text_readers import MessagesText, PromptText


class EncodedBatch(NamedTuple):
    """Texts and their tokens, and what is asked for beside these."""

    batch: TextBatch
    encoded: EncodedTexts
    offsets: np.ndarray | None = None  # of each token in its text, int32[S, 2]
    targets: FoundTargets | None = None


@dataclass(frozen=True)
class BatchEncoder:
    """How the texts of a part are encoded.

    Args:
        find_offsets: finds the characters of each token, if they are asked for.
        find_targets: finds the targets, if the texts have any.
        open_placed: opens the encoder of texts that say where their special tokens are; None if
            there are none.
    """

    encoder: Encoder
    find_offsets: OffsetFinder | None = None
    find_targets: TargetFinder | None = None
    open_placed: Callable[[], PlacedEncoder] | None = None

    def encode(self, batch: TextBatch) -> EncodedBatch:
        """Encode a batch.

        Raises:
            DataError: the tokenizer fails on a text, or its offsets are wrong.
        """
        placed = [] if self.open_placed is None else _find_placed(batch)
        if not placed:
            return self._encode(batch, range(len(batch.texts)))
        is_placed = np.zeros(len(batch.texts), bool)
        is_placed[placed] = True
        few, of_few = self._encode_placed(batch, placed)
        _, most, _, of_most = self._encode(batch, np.flatnonzero(~is_placed).tolist())
        assert of_most is not None  # noqa: S101 - texts with places have targets
        whole = interleave(few, most, is_placed)
        entries = np.empty(len(whole.ids), np.uint8)
        is_of_few = np.repeat(is_placed, whole.lengths)
        entries[is_of_few], entries[~is_of_few] = of_few.entries, of_most.entries
        num_straddling = of_few.num_straddling + of_most.num_straddling
        return EncodedBatch(batch, whole, targets=FoundTargets(entries, num_straddling))

    def _encode(self, batch: TextBatch, places: Sequence[int]) -> EncodedBatch:
        """Encode some texts of a batch."""
        is_whole = len(places) == len(batch.texts)
        texts = batch.texts if is_whole else [batch.texts[index] for index in places]
        try:
            encoded = self.encoder(texts)
        except DataError as error:
            raise self._name_document(batch, places, error) from error
        try:
            if self.find_targets is not None:
                made = batch.fields[0] if is_whole else [batch.fields[0][it] for it in places]
                found = self.find_targets.find(made, encoded)
                return EncodedBatch(batch, encoded, targets=found)
            offsets = None if self.find_offsets is None else self.find_offsets(texts, encoded)
        except WrongOffsetsError as error:
            raise _name_offsets(batch.find_place(places[error.text]), error) from error
        return EncodedBatch(batch, encoded, offsets)

    def _encode_placed(
        self, batch: TextBatch, places: Sequence[int]
    ) -> tuple[EncodedTexts, FoundTargets]:
        """Encode the texts that say where their special tokens are, one by one."""
        assert self.open_placed is not None  # noqa: S101 - there are such texts
        encoder, found = self.open_placed(), []
        for index in places:
            try:
                found.append(encoder.encode(batch.fields[0][index]))
            except DataError as error:
                place = batch.find_place(index)
                raise DataError(f"{place}: {error.message}", error.hint) from error
            except WrongOffsetsError as error:
                raise _name_offsets(batch.find_place(index), error) from error
        ids, lengths = ([getattr(each, name) for each, _ in found] for name in ("ids", "lengths"))
        whole = EncodedTexts(np.concatenate(ids), np.concatenate(lengths))
        entries = np.concatenate([targets.entries for _, targets in found])
        num_straddling = sum(targets.num_straddling for _, targets in found)
        return whole, FoundTargets(entries, num_straddling)

    def _name_document(
        self, batch: TextBatch, places: Sequence[int], error: DataError
    ) -> DataError:
        for index in places:
            try:
                self.encoder([batch.texts[index]])
            except DataError as own:
                return DataError(f"{batch.find_place(index)}: {own.message}", own.hint)
        return error


def open_batch_encoder(
    encoder: Encoder,
    tokenizer_json: bytes,
    text: PromptText | MessagesText | None,
    *,
    allow_special_tokens: bool,
    needs_offsets: bool,
) -> BatchEncoder:
    """Return how the texts of a part are encoded.

    Args:
        text: what makes them; None if they are one field.
        needs_offsets: whether the characters of each token are asked for.
    """
    is_special = allow_special_tokens
    if text is not None:
        finder = open_target_finder(tokenizer_json, allow_special_tokens=is_special)
        if not isinstance(text, MessagesText):
            return BatchEncoder(encoder, find_targets=finder)
        open_placed = functools.partial(
            open_placed_encoder, tokenizer_json, text.setup.special_tokens
        )
        return BatchEncoder(encoder, find_targets=finder, open_placed=open_placed)
    if not needs_offsets:
        return BatchEncoder(encoder)
    return BatchEncoder(
        encoder, open_offset_finder(tokenizer_json, allow_special_tokens=is_special)
    )


def list_spelled(batch: TextBatch, text: PromptText | MessagesText | None) -> list[str]:
    """Return where special tokens that records spell are looked for: not in a template's text."""
    if not isinstance(text, MessagesText):
        return batch.texts
    return ["" if made is None else made.spelled for made in batch.fields[0]]


def _find_placed(batch: TextBatch) -> list[int]:
    """Return which texts say where their special tokens are."""
    made: list[TargetText | None] = batch.fields[0]
    return [i for i, each in enumerate(made) if each is not None and each.special is not None]


def _name_offsets(place: str, error: WrongOffsetsError) -> DataError:
    return DataError(
        f"{place}: {error.reason}",
        hint="the tokenizer's offsets are wrong, and tags and targets need them: pass another "
        "--tokenizer",
    )
