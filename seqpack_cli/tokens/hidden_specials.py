"""Copies of a tokenizer.json in which special tokens cannot be spelled by a text.

Each special token is spelled otherwise: by as many characters of its own, from a private area of
Unicode, so that places in a text stay the same. Without that, a model with a special token among
its words writes it where a text spells it, though the library was told to take it as text.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from seqpack_cli.tokens.vocabulary import build_tokenizer, usable_json

FIRST_PRIVATE = 0x100000  # of the last private area, which has 65,534 characters
FALLBACK_BYTE = re.compile("<0x[0-9A-F]{2}>")


def name_privately(tokens: Iterable[str]) -> dict[str, str]:
    """Return a private spelling of each token, of the same length."""
    different = dict.fromkeys(tokens)
    return {token: chr(FIRST_PRIVATE + i) * len(token) for i, token in enumerate(different)}


def rename_tokens(tokenizer_json: bytes, names: Mapping[str, str]) -> bytes:
    """Return a tokenizer.json whose special tokens have other names, and that adds none to a text.

    Args:
        names: the new one of each special token.
    """
    saved = json.loads(usable_json(tokenizer_json))
    added = [
        {**token, "content": names.get(token["content"], token["content"])}
        for token in saved.get("added_tokens") or ()
    ]
    model = saved["model"]
    names = _leave_out_bytes(model, names)
    changed: dict[str, Any] = {"vocab": _rename_vocabulary(model["vocab"], names)}
    if model.get("unk_token") in names:
        changed["unk_token"] = names[model["unk_token"]]
    if model.get("merges"):
        changed["merges"] = [it for it in model["merges"] if names.keys().isdisjoint(_parts(it))]
    none = {"truncation": None, "padding": None, "post_processor": None}
    renamed = {**saved, **none, "added_tokens": added, "model": {**model, **changed}}
    return json.dumps(renamed, ensure_ascii=False).encode()


@functools.lru_cache(maxsize=2)
def hide_special_tokens(tokenizer_json: bytes) -> bytes:
    """Return a tokenizer.json with the same ids, whose special tokens no text can spell.

    It is the same one if its model cannot write them.
    """
    saved = json.loads(usable_json(tokenizer_json))
    special = [it["content"] for it in saved.get("added_tokens") or () if it["special"]]
    if not _can_write(saved["model"], special):
        return tokenizer_json
    # With spaces: nearly all tokenizers take them from words, so that no text can spell these.
    private = {token: f" {name} " for token, name in name_privately(special).items()}
    names = _leave_out_bytes(saved["model"], private)
    renamed = rename_tokens(tokenizer_json, names)
    ids, found = (
        build_tokenizer(each, allow_special_tokens=False).get_vocab(with_added_tokens=True)
        for each in (tokenizer_json, renamed)
    )
    is_same = {names.get(token, token): id_ for token, id_ in ids.items()} == found
    return renamed if is_same else tokenizer_json


def _can_write(model: dict[str, Any], special: list[str]) -> bool:
    """Return whether a model may write a special token where a text spells it."""
    vocabulary = model["vocab"]
    words = {each[0] for each in vocabulary} if isinstance(vocabulary, list) else vocabulary.keys()
    found = [token for token in special if token in words]
    if "merges" not in model:  # Unigram, WordLevel and WordPiece look whole words up
        return bool(found)
    whole = [token for token in found if len(token) > 1]
    if model.get("ignore_merges") or len(whole) < len(found):
        return bool(found)
    if not _may_have_parts(model["merges"], whole):
        return False
    return any(not set(whole).isdisjoint(_parts(it)) for it in model["merges"])


def _may_have_parts(merges: list[str] | list[list[str]], tokens: list[str]) -> bool:
    """Return False if no merge of BPE has one of the tokens as a part, or makes it."""
    joined = "\n".join(it if isinstance(it, str) else " ".join(it) for it in merges)
    return any(
        f"{token[:cut]} {token[cut:]}".strip(" ") in joined
        for token in tokens
        for cut in range(len(token))
    )


def _leave_out_bytes(model: dict[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """Return the names without those of bytes, by which a model finds them."""
    is_byte = FALLBACK_BYTE.fullmatch if model.get("byte_fallback") else lambda _: None
    return {token: name for token, name in names.items() if not is_byte(token)}


def _rename_vocabulary(vocabulary: Any, names: Mapping[str, str]) -> Any:
    if isinstance(vocabulary, list):
        return [[names.get(token, token), score] for token, score in vocabulary]
    return {names.get(token, token): id_ for token, id_ in vocabulary.items()}


def _parts(merge: str | list[str]) -> tuple[str, str, str]:
    """Return both parts of a merge of BPE, and what they make."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second, first + second
