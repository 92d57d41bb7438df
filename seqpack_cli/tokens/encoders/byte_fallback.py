"""Write a BPE that falls back to bytes so that fastokens, which has no Metaspace, encodes alike.

Metaspace writes each space as ▁, puts one before a text that begins with neither, and cuts before
each ▁, or nowhere. A normalizer and a split do the same, with a space put first by the caller.
"""

from __future__ import annotations

from typing import Any

from seqpack_cli.tokens.encoders.encoded_texts import EncoderRefusedError

METASPACE = "▁"
BLANKS = (" ", METASPACE)
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
SPACES_TO_METASPACE = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
CUT = {
    **{"type": "Split", "pattern": {"String": METASPACE}},
    **{"behavior": "MergedWithNext", "invert": False},
}


def check_model(model: dict[str, Any]) -> None:
    """Refuse a model that fastokens is known to read differently.

    At a character that is not a token it takes a token that the merges do not make, such as <0x41>
    where a text spells it.
    """
    vocabulary = model["vocab"]
    if model["type"] != "BPE" or not vocabulary.keys() >= set(BYTES):
        raise EncoderRefusedError("it is not BPE that falls back to all bytes")
    for name in ("ignore_merges", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise EncoderRefusedError(f"it has {name} and falls back to bytes")
    if not vocabulary.keys() >= set("".join(vocabulary)):
        raise EncoderRefusedError("its tokens have characters that are no tokens")


def replace_metaspace(
    saved: dict[str, Any], *, allow_special_tokens: bool
) -> tuple[dict[str, Any], bool]:
    """Return a tokenizer.json without Metaspace, and whether to `put_spaces_first`.

    Raises:
        EncoderRefusedError: the ids may differ.
    """
    part = saved.get("pre_tokenizer")
    if part is None or part["type"] != "Metaspace":
        return saved, False
    if part["replacement"] != METASPACE or "add_prefix_space" in part or saved.get("normalizer"):
        raise EncoderRefusedError("its Metaspace has other options, or a normalizer before it")
    added = saved.get("added_tokens") or ()
    if any(allow_special_tokens or not token["special"] for token in added):
        raise EncoderRefusedError("it has added tokens beside Metaspace")
    other = {"normalizer": SPACES_TO_METASPACE, "pre_tokenizer": CUT if part["split"] else None}
    return {**saved, **other, "added_tokens": []}, part["prepend_scheme"] != "never"


def put_spaces_first(texts: list[str]) -> list[str]:
    """Return texts with a space before each that has none.

    >>> put_spaces_first(["a b", " c", "▁", ""])
    [' a b', ' c', '▁', '']
    """
    return [f" {text}" if text and not text.startswith(BLANKS) else text for text in texts]
