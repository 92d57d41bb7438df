"""Read the files beside a tokenizer.json, and find the special tokens that they name.

They are in the same folder, or in the same repository on the Hub; each may be missing. transformers
adds the tokens that tokenizer.json lacks, and takes those that it has for special tokens, whatever
tokenizer.json says about them. special_tokens_map.json is from older versions, and read only if
tokenizer_config.json does not list the added tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from seqpack_cli.errors import DataError, quote
from seqpack_cli.files.inputs import Input
from seqpack_cli.files.places import Place
from seqpack_cli.tokens.hub import download_files
from seqpack_cli.tokens.vocabulary import BYTES, locate_tokenizer

CONFIG, TOKENS_MAP = "tokenizer_config.json", "special_tokens_map.json"
ADDED = "added_tokens_decoder"  # all added tokens of the tokenizer, by id
LISTS = ("additional_special_tokens", "extra_special_tokens")  # the second may have names too
NAMED = ("extra_special_tokens", "model_specific_special_tokens")


def read_named_tokens(tokenizer: str) -> dict[str, str]:
    """Return the special tokens that the files beside a tokenizer.json name, such as bos_token.

    Args:
        tokenizer: `bytes`, a tokenizer.json, a folder that contains one, or a name on the Hub.

    Raises:
        DataError: a file is not JSON.
        OptionError, MachineError: it is not on the Hub, or the Hub cannot be reached.
    """
    files, place = read_files(tokenizer, CONFIG, TOKENS_MAP)
    return find_variables(
        merge_files(parse_file(files, CONFIG, place), parse_file(files, TOKENS_MAP, place))
    )


def read_files(tokenizer: str, *names: str) -> tuple[dict[str, bytes], str]:
    """Return the files beside a tokenizer.json that exist, and the name of their folder."""
    if tokenizer == BYTES:
        return {}, tokenizer
    path = locate_tokenizer(tokenizer)
    if not path.exists():
        return download_files(tokenizer, "tokenizer.json", *names), tokenizer
    contents = {name: read_file(path.parent / name) for name in names}
    found = {name: content for name, content in contents.items() if content is not None}
    return found, str(path.parent)


def read_file(path: Place) -> bytes | None:
    """Return the content of a file; None if it does not exist."""
    return Input(str(path)).read() if path.exists() else None


def parse_file(files: Mapping[str, bytes], name: str, place: str) -> dict[str, Any]:
    """Return the JSON object in a file; {} if it does not exist."""
    if name not in files:
        return {}
    path = f"{place}/{name}"
    try:
        value = json.loads(decode_file(files[name], path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: {quote(value)}, expected an object")
    return value


def decode_file(content: bytes, path: str) -> str:
    """Return the text of a file; raises DataError."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = content[error.start]
        raise DataError(f"{path}: byte {found:#04x}, expected UTF-8") from error


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
