"""Find which tokens pad, begin and end a text, and which stands for unknown text.

tokenizer.json itself says this of the unknown token alone. Files beside it may name the others;
else they are found by the names that common tokenizers use.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMON_NAMES = {
    "pad_id": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "bos_id": ("<bos>", "<s>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|bos|>"),
    "eos_id": ("<eos>", "</s>", "[EOS]", "<|end_of_text|>", "<|endoftext|>", "<|eos|>"),
    "unk_id": ("<unk>", "[UNK]", "<|unk|>"),
}
ROLES = tuple(COMMON_NAMES)


def token_of(role: str) -> str:
    """Return what files beside a tokenizer.json call the token of a role.

    >>> token_of("pad_id")
    'pad_token'
    """
    return role.replace("_id", "_token")


def find_roles(
    ids: Mapping[str, int], unk_token: str | None, named: Mapping[str, str]
) -> dict[str, int | None]:
    """Return the id of each role, None for one without a token.

    Args:
        ids: of all tokens.
        unk_token: of the tokenizer.json.
        named: what files beside it name: pad_token and so on.

    >>> find_roles({"</s>": 0, "a": 1}, None, {"pad_token": "</s>", "bos_token": "<s>"})
    {'pad_id': 0, 'bos_id': None, 'eos_id': 0, 'unk_id': None}
    """
    of_model = {"unk_id": unk_token}
    found: dict[str, int | None] = {}
    for role, common in COMMON_NAMES.items():
        names = (of_model.get(role), named.get(token_of(role)), *common)
        found[role] = next((ids[name] for name in names if name is not None and name in ids), None)
    return found
