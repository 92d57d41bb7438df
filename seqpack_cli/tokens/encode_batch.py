"""Encode a batch of texts, and find the place of each token; an error names the document."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, Encoder
from seqpack_cli.tokens.offsets.offsets import OffsetFinder
from seqpack_cli.tokens.offsets.word_check import WrongOffsetsError
from seqpack_cli.tokens.text_batches import TextBatch


class EncodedBatch(NamedTuple):
    """Texts and their tokens."""

    batch: TextBatch
    encoded: EncodedTexts
    offsets: np.ndarray | None  # of each token in its text, int32[S, 2]; None if not asked for


def encode_batch(
    batch: TextBatch, encoder: Encoder, find_offsets: OffsetFinder | None
) -> EncodedBatch:
    """Encode a batch.

    Raises:
        DataError: the tokenizer fails on a text, or its offsets are wrong.
    """
    try:
        encoded = encoder(batch.texts)
    except DataError as error:
        raise _name_document(batch, encoder, error) from error
    if find_offsets is None:
        return EncodedBatch(batch, encoded, None)
    try:
        return EncodedBatch(batch, encoded, find_offsets(batch.texts, encoded))
    except WrongOffsetsError as error:
        raise DataError(
            f"{batch.find_place(error.text)}: {error.reason}",
            hint="the tokenizer's offsets are wrong, and tags need them: pass another --tokenizer",
        ) from error


def _name_document(batch: TextBatch, encoder: Encoder, error: DataError) -> DataError:
    for index, text in enumerate(batch.texts):
        try:
            encoder([text])
        except DataError:
            return DataError(f"{batch.find_place(index)}: {error.message}")
    return error
