"""What `tokenizers` 1.x does with a text before the model: it has no parts that can be asked.

They are put before a model that spells its input, so that the ids are the bytes of what is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from seqpack_cli.errors import DataError
from seqpack_cli.files.disk import create_file, temporary_folder, write_all
from seqpack_cli.tokens.byte_tokenizer import byte_of_character
from seqpack_cli.tokens.panics import is_failure

OLD_HINT = "pip install 'tokenizers<1'"
METASPACE = "▁"


class SlimNormalizer:
    """What a normalizer does, seen through a model that spells its input."""

    def __init__(self, saved: dict[str, Any]) -> None:
        self.normalize_str = _open_speller(saved, None)


class SlimPreTokenizer:
    """What a pre-tokenizer does, seen in the same way."""

    def __init__(self, saved: dict[str, Any]) -> None:
        self._spell = _open_speller(None, saved)

    def pre_tokenize_str(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        """Return each character that is left of a text, and its place.

        Right for pre-tokenizers that only leave out characters, add a space, or write one as ▁.
        """
        found, place = [], 0
        for character in self._spell(text).replace(METASPACE, " "):
            start = text.find(character, place)
            if start >= 0 and (character != " " or start == place):  # else it was added
                place = start + 1
                found.append((character, (start, place)))
        return found


def load_slim(tokenizer_json: bytes) -> Any:
    """Open a tokenizer.json, which 1.x reads only from a file."""
    import tokenizers

    with temporary_folder() as folder:
        path = folder / "tokenizer.json"
        with create_file(path) as file:
            write_all(file, tokenizer_json, path)
        try:
            return tokenizers.Tokenizer.from_file(str(path))
        except BaseException as error:
            if is_failure(error) and _is_whole(tokenizer_json):
                refuse(describe_failure(error))
            raise


def _is_whole(tokenizer_json: bytes) -> bool:
    """Return whether a file that 1.x refused has what a tokenizer.json needs."""
    try:
        model = json.loads(tokenizer_json)["model"]
        return bool(model["type"] and model["vocab"])
    except (ValueError, RecursionError, TypeError, KeyError):
        return False


def refuse(reason: str) -> NoReturn:
    """Raise the error about a tokenizer that works with 0.x only."""
    raise DataError(
        f"tokenizer.json: not supported by tokenizers {find_version()} ({reason})", OLD_HINT
    )


def describe_failure(error: BaseException) -> str:
    """Return the first sentence of an error of the library, on one line."""
    return " ".join(str(error).split()).split(". ")[0][:200]


def find_version() -> str:
    """Return the version of `tokenizers`."""
    import tokenizers

    return tokenizers.__version__


def flatten(saved: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a pre-tokenizer, those of a sequence one after another."""
    if saved is None:
        return
    if saved.get("type") != "Sequence":
        yield saved
    for child in saved.get("pretokenizers", ()):
        yield from flatten(child)


def _open_speller(normalizer: Any, pre_tokenizer: Any) -> Callable[[str], str]:
    """Return a function from a text to what is left of it before the model."""
    is_byte_level = any(part["type"] == "ByteLevel" for part in flatten(pre_tokenizer))
    codes = byte_of_character()
    names = {code: f"<0x{code:02X}>" for code in range(256)}
    if is_byte_level:  # its output is spelled as it is
        names = {code: character for character, code in codes.items()}
    model = {
        **{"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False},
        **{"continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False},
        **{"byte_fallback": not is_byte_level, "merges": []},
        "vocab": {name: code for code, name in names.items()},
    }
    saved = {
        **{"version": "1.0", "truncation": None, "padding": None, "added_tokens": []},
        **{"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None},
        **{"decoder": None, "model": model},
    }
    tokenizer = load_slim(json.dumps(saved).encode())

    def spell(text: str) -> str:
        return bytes(tokenizer.encode(text, add_special_tokens=False).ids).decode()

    return spell
