"""How a tokenizer treats white space: its own parts are asked, on a few short texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.offsets.spelling import METASPACE, SPACE_CHARACTERS, Writing, iter_parts
from seqpack_cli.tokens.panics import hiding_panics
from seqpack_cli.tokens.vocabulary import catch_failure, usable_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PROBES = ("x x  x", " x", "x ", "  x  ", "x\r\nx", "x \n\n\t x\n", "\nx")
BYTE_LEVEL_SPACE = "Ġ"
KEPT, DROPPED, MIXED = "kept", "dropped", "mixed"


class SpaceRules(NamedTuple):
    """How a tokenizer treats white space; of added tokens, those that a text can have."""

    treatment: str  # KEPT, DROPPED between words, or anything else
    adds_space: bool  # in front of a text, maybe after added tokens or between words too
    adds_in_front: bool  # then never behind spaces of the text
    is_added: np.ndarray  # bool, by id
    takes_left: np.ndarray  # bool, by id: it takes the spaces before it
    takes_right: np.ndarray


def find_space_rules(
    tokenizer: Tokenizer, tokenizer_json: bytes, writing: Writing, num_ids: int
) -> SpaceRules:
    """Find out how a tokenizer treats white space."""
    saved = json.loads(usable_json(tokenizer_json))
    parts = list(_iter_leaves(saved.get("pre_tokenizer")))
    places = [place for place, part in enumerate(parts) if _adds_space(part)]
    prepends = any(part["type"] == "Prepend" for part in iter_parts(saved.get("normalizer")))
    flags = np.zeros((3, num_ids), bool)
    is_space = False
    for id_, token in tokenizer.get_added_tokens_decoder().items():
        if not (token.special and tokenizer.encode_special_tokens):
            flags[:, id_] = True, token.lstrip, token.rstrip
            is_space |= not token.content.strip(SPACE_CHARACTERS)
    try:
        with hiding_panics(DataError), catch_failure():
            treatment = _find_treatment(tokenizer, writing)
    except DataError:
        treatment = MIXED
    if treatment == DROPPED and is_space:  # some spaces have a token
        treatment = MIXED
    return SpaceRules(treatment, bool(places) or prepends, not any(places), *flags)


def normalize_inside(tokenizer: Tokenizer, character: str) -> str | None:
    """Return what a character becomes between two letters; None if that cannot be told."""
    normalize = tokenizer.normalizer.normalize_str
    around, found = normalize("xx"), normalize(f"x{character}x")
    head = around[:-1]
    is_apart = around.endswith("xx") and found.startswith(head) and found.endswith("x")
    return found[len(head) : -1] if is_apart and len(found) > len(head) else None


def _find_treatment(tokenizer: Tokenizer, writing: Writing) -> str:
    normalizer, pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    probes = list(PROBES)
    if normalizer is not None:
        probes = list(map(normalizer.normalize_str, PROBES))
        front = normalizer.normalize_str("xx")[:-2]
        each = (front + "".join(normalize_inside(tokenizer, c) or "" for c in p) for p in PROBES)
        if not writing.normalizer_writes_bytes and probes != list(each):
            return MIXED
    if pre_tokenizer is None:
        return KEPT
    spaces = SPACE_CHARACTERS + METASPACE + BYTE_LEVEL_SPACE
    is_kept = {
        any(start <= place < end for _, (start, end) in pre_tokenizer.pre_tokenize_str(probe))
        for probe in probes
        for place, character in enumerate(probe)
        if character in spaces
    }
    if len(is_kept) > 1:
        return MIXED
    return KEPT if is_kept == {True} else DROPPED


def _adds_space(part: dict[str, Any]) -> bool:
    if part["type"] == "Metaspace":
        scheme = part.get("prepend_scheme", "always")
        return scheme != "never" and part.get("add_prefix_space", True) is not False
    return part["type"] == "ByteLevel" and part.get("add_prefix_space", True) is not False


def _iter_leaves(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a pre-tokenizer, those of a sequence one after another."""
    if not isinstance(node, dict):
        return
    if node.get("type") != "Sequence":
        yield node
    for child in node.get("pretokenizers", ()):
        yield from _iter_leaves(child)
