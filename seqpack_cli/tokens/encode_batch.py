"""Encode a batch of texts, and find the place of each token; an error names the document."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, Encoder, interleave
from seqpack_cli.tokens.encoders.encoder import REFERENCE, open_encoder
from seqpack_cli.tokens.offsets import (
    FoundTargets,
    PlaceFinder,
    Places,
    find_targets,
    open_place_finder,
)
from seqpack_cli.tokens.special_tokens import TAKEN_SPACE
from seqpack_cli.tokens.target_text import TargetText
from seqpack_cli.tokens.text_batches import TextBatch
from seqpack_cli.tokens.texts import MessagesText, PromptText

# A space in front of the text alone, not of what follows a special token.
FIRST_ONLY = re.compile(rb'("prepend_scheme"\s*:\s*)"first"')


class EncodedBatch(NamedTuple):
    """Texts and their tokens, and what is asked for beside these."""

    batch: TextBatch
    encoded: EncodedTexts
    words: Places | None = None  # of each token, without the spaces in front
    targets: FoundTargets | None = None


class PlacedEncoder:
    """Encodes texts with special tokens at the places that they name, and nowhere else.

    The text between these places is encoded part by part, as the library does it.

    Args:
        special_tokens: those that may be at a place; tokenizer.json may not call them special.
    """

    def __init__(self, tokenizer_json: bytes, special_tokens: tuple[str, ...]) -> None:
        saved = json.loads(tokenizer_json)
        self._tokens = {token["content"]: token for token in saved["added_tokens"]}
        for token in special_tokens:
            self._tokens[token]["special"] = True
        marked = json.dumps(saved, ensure_ascii=False).encode()
        self._encode_first = _open_parts_encoder(marked)
        self._encode_later = _open_parts_encoder(FIRST_ONLY.sub(rb'\1"never"', marked))

    def encode(self, made: TargetText) -> tuple[EncodedTexts, FoundTargets]:
        """Return the ids of a text, and its targets."""
        text, end = made.text, 0
        pieces: list[str] = []  # a part, a special token, a part, and so on
        ids = []  # of the special tokens
        for first, stop in made.special or ():
            token = self._tokens[text[first:stop]]
            part = text[end:first].rstrip() if token["lstrip"] else text[end:first]
            if token["rstrip"] and (found := TAKEN_SPACE.match(text, stop)):
                stop = found.end()
            pieces += [part, text[end + len(part) : stop]]
            ids.append(token["id"])
            end = stop
        pieces.append(text[end:])
        parts = pieces[::2]
        encoded = zip(self._encode_first(parts[:1]), self._encode_later(parts[1:]), strict=True)
        of_parts, lengths, starts, ends = map(np.concatenate, encoded)
        bounds = to_offsets(np.array([len(piece.encode()) for piece in pieces]))
        shifts = np.repeat(bounds[:-1:2], lengths)
        behind = np.cumsum(lengths[:-1])  # where the special tokens are among the others
        whole = np.insert(of_parts, behind, ids)
        places = Places(
            np.insert(starts + shifts, behind, bounds[1:-1:2]),
            np.insert(ends + shifts, behind, bounds[2:-1:2]),
            bounds[[0, -1]],
        )
        lengths = np.array([len(whole)])
        return EncodedTexts(whole, lengths), find_targets([made], places, lengths)


open_placed_encoder = functools.lru_cache(maxsize=1)(PlacedEncoder)


def _open_parts_encoder(tokenizer_json: bytes) -> Callable[[list[str]], tuple[np.ndarray, ...]]:
    """Return what encodes parts: to ids, their number in each, and where each begins and ends."""
    encode = open_encoder(REFERENCE, tokenizer_json, allow_special_tokens=False)
    finder = open_place_finder(tokenizer_json, allow_special_tokens=False)

    def encode_parts(parts: list[str]) -> tuple[np.ndarray, ...]:
        encoded = encode(parts)
        found = finder.find(parts, encoded)
        befores = np.repeat(found.text_offsets[:-1], encoded.lengths)
        return encoded.ids, encoded.lengths, found.starts - befores, found.ends - befores

    return encode_parts


@dataclass(frozen=True)
class BatchEncoder:
    """How the texts of a part are encoded.

    Args:
        finder: finds the places of tokens, if they are asked for.
        has_targets: they are asked for since the texts have targets.
        open_placed: opens the encoder of texts that say where their special tokens are; None if
            there are none.
    """

    encoder: Encoder
    finder: PlaceFinder | None = None
    has_targets: bool = False
    open_placed: Callable[[], PlacedEncoder] | None = None

    def encode(self, batch: TextBatch) -> EncodedBatch:
        """Encode a batch.

        Raises:
            DataError: the tokenizer fails on a text.
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
        if self.finder is None:
            return EncodedBatch(batch, encoded)
        found = self.finder.find(texts, encoded)
        if not self.has_targets:
            words = self.finder.leave_out_spaces(texts, encoded, found)
            return EncodedBatch(batch, encoded, words)
        made = batch.fields[0] if is_whole else [batch.fields[0][it] for it in places]
        return EncodedBatch(batch, encoded, targets=find_targets(made, found, encoded.lengths))

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
    if text is None and not needs_offsets:
        return BatchEncoder(encoder)
    finder = open_place_finder(tokenizer_json, allow_special_tokens=allow_special_tokens)
    if not isinstance(text, MessagesText):
        return BatchEncoder(encoder, finder, has_targets=text is not None)
    open_placed = functools.partial(open_placed_encoder, tokenizer_json, text.setup.special_tokens)
    return BatchEncoder(encoder, finder, has_targets=True, open_placed=open_placed)


def list_spelled(batch: TextBatch, text: PromptText | MessagesText | None) -> list[str]:
    """Return where special tokens that records spell are looked for: not in a template's text."""
    if not isinstance(text, MessagesText):
        return batch.texts
    return ["" if made is None else made.spelled for made in batch.fields[0]]


def _find_placed(batch: TextBatch) -> list[int]:
    """Return which texts say where their special tokens are."""
    made: list[TargetText | None] = batch.fields[0]
    return [i for i, each in enumerate(made) if each is not None and each.special is not None]
