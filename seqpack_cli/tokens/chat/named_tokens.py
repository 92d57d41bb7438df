"""The special tokens that tokenizer_config.json and special_tokens_map.json name.

transformers adds those that tokenizer.json lacks, and takes those that it has for special tokens,
whatever tokenizer.json says about them. special_tokens_map.json is from older versions, and read
only if tokenizer_config.json does not list the added tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

CONFIG, TOKENS_MAP = "tokenizer_config.json", "special_tokens_map.json"
ADDED = "added_tokens_decoder"  # all added tokens of the tokenizer, by id
LISTS = ("additional_special_tokens", "extra_special_tokens")  # the second may have names too
NAMED = ("extra_special_tokens", "model_specific_special_tokens")


def merge_files(config: dict[str, Any], tokens_map: dict[str, Any]) -> dict[str, Any]:
    """Return what both files say."""
    return {**config, **({} if ADDED in config else tokens_map)}


def find_variables(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that have a name, such as bos_token."""
    named = {name: value for name, value in values.items() if name.endswith("_token")}
    for name in NAMED:
        if isinstance(values.get(name), dict):
            named |= values[name]
    spelled = {name: _spell(value) for name, value in named.items()}
    return {name: token for name, token in spelled.items() if token is not None}


def list_special(values: Mapping[str, Any]) -> list[str]:
    """Return the special tokens, those without a name too."""
    listed = [token for name in LISTS for token in _as_list(values.get(name))]
    added = [token for token in _list_added(values) if token.get("special")]
    found = [*find_variables(values).values(), *map(_spell, [*listed, *added])]
    return [token for token in dict.fromkeys(found) if token]


def find_missing(
    values: Mapping[str, Any], added: Collection[str], source: str, literals: Iterable[str]
) -> str | None:
    """Return a token that a chat template writes, though tokenizer.json does not have it.

    Args:
        added: the added tokens of tokenizer.json.
        source: of the template.
        literals: the texts in it.
    """
    texts = list(literals)
    variables = find_variables(values)
    for token in [*list_special(values), *map(_spell, _list_added(values))]:
        names = [name for name, value in variables.items() if value == token]
        if (
            token
            and token not in added
            and (
                any(token in text for text in texts)
                or any(re.search(rf"\b{re.escape(name)}\b", source) for name in names)
            )
        ):
            return token
    return None


def _list_added(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    added = values.get(ADDED)
    found = added.values() if isinstance(added, dict) else ()
    return [token for token in found if isinstance(token, dict)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _spell(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
