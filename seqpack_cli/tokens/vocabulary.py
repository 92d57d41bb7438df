"""Read a tokenizer.json, build its tokenizer, and describe its vocabulary.

A tokenizer.json is a file, in a folder, on the Hub, or the built-in `bytes`. Its bytes are kept
unchanged. Truncation and padding saved in it would change texts, so both are switched off. Special
tokens spelled in a text are text by default, a setting that `tokenizers` loses on pickling: build
the tokenizer in the process that uses it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from seqpack_cli.errors import DataError, FolderError, OptionError, SeqpackError
from seqpack_cli.files.inputs import Input
from seqpack_cli.files.manifest import (
    MAX_TOKENIZER_BYTES,
    has_tokenizer,
    read_kept_tokenizer,
    tokenizer_name,
)
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.outputs import FileKind
from seqpack_cli.files.places import Place, at, parse_place, suggest_name
from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.hub import HINT, download_tokenizer_json
from seqpack_cli.tokens.panics import is_failure
from seqpack_cli.tokens.roles import find_roles

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BYTES = "bytes"
MAX_ID = 2**31 - 1  # ids are stored as uint16 or int32
# A vocabulary may have these as words, but with whole numbers after them.
DROPOUT = re.compile(rb'"dropout"\s*:\s*(?:\d+[.eE]|1\b)')
SWITCHED_OFF = re.compile(DROPOUT.pattern + rb'|"(?:truncation|padding)"\s*:\s*\{')


@dataclass(frozen=True)
class Vocabulary:
    """What a token store records about its vocabulary."""

    tokenizer_blake3: str | None  # None: the ids were imported without a tokenizer
    vocab_size: int  # number of tokens, added ones included
    max_id: int  # more than vocab_size - 1 if the ids have gaps
    pad_id: int | None
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    special_tokens: tuple[str, ...]
    added_tokens: tuple[str, ...] = ()  # special tokens included


def read_tokenizer_json(name: str) -> bytes:
    """Read the tokenizer.json of a name: `bytes`, a file, a folder, or a repository on the Hub.

    Raises:
        OptionError: no file or folder has that name, and it is not on the Hub.
        MachineError: no file or folder has that name, and the Hub cannot be reached.
    """
    if name == BYTES:
        return byte_tokenizer_json()
    path = locate_tokenizer(name)
    tokenizer_json = Input(str(path)).read()
    if tokenizer_json is not None:
        return tokenizer_json
    is_odd = at(path).exists()  # a dangling link, a device or the like
    if is_odd or path.suffix == ".json" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise OptionError(f"{path}: no such file{suggest_name(path)}", hint=HINT)
    return download_tokenizer_json(name)


def spell_tokenizer(name: AnyPath) -> str:
    """Return the name of a tokenizer as text; one that is not a str is a path, never a Hub name."""
    return name if isinstance(name, str) else str(parse_place(name).resolve())


def locate_tokenizer(name: str) -> Place:
    """Return the path of the tokenizer.json that a file or folder name means."""
    path = parse_place(name)
    return path / "tokenizer.json" if path.is_dir() else path


@functools.lru_cache(maxsize=2)
def build_tokenizer(tokenizer_json: bytes, *, allow_special_tokens: bool) -> Tokenizer:
    """Build the tokenizer of a tokenizer.json, with neither truncation nor padding.

    Takes 0.2 s for 50,000 tokens, once: the tokenizer is cached, so do not change it.

    Args:
        allow_special_tokens: a special token spelled in a text becomes its id.

    Raises:
        DataError: it is not a tokenizer.json.
    """
    import tokenizers

    try:
        with catch_failure():
            tokenizer = tokenizers.Tokenizer.from_str(usable_json(tokenizer_json).decode())
    except DataError as error:
        raise DataError(
            f"{error.message}, expected a file in the format of Hugging Face's tokenizers",
            hint="pass --tokenizer bytes to use one id per byte",
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = not allow_special_tokens
    return tokenizer


def describe_vocabulary(
    tokenizer_json: bytes, named: Mapping[str, str] | None = None
) -> Vocabulary:
    """Find the size of a vocabulary and the ids of its roles.

    Args:
        named: tokens of roles, such as pad_token, by files beside tokenizer.json.

    Raises:
        DataError: it has no token, or an id above MAX_ID.
    """
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    if not ids:
        raise DataError("tokenizer.json: the vocabulary is empty")
    max_id = max(ids.values())
    if max_id > MAX_ID:
        raise DataError(
            f"tokenizer.json: its largest id is {max_id:,}, expected at most {MAX_ID:,}"
        )
    added = tokenizer.get_added_tokens_decoder()
    unk_token = getattr(tokenizer.model, "unk_token", None)
    return Vocabulary(
        tokenizer_blake3=blake3(tokenizer_json).hexdigest(),
        vocab_size=len(ids),
        max_id=max_id,
        **find_roles(ids, unk_token, named or {}),
        special_tokens=tuple(added[id_].content for id_ in sorted(added) if added[id_].special),
        added_tokens=tuple(added[id_].content for id_ in sorted(added)),
    )


def check_kept_tokenizer(folder: Place, manifest: dict[str, Any]) -> None:
    """Check that the tokenizer.json in a store or in shards builds, and fits the manifest.

    Its checksum alone does not show that it is a tokenizer. Takes 0.2 s for 50,000 tokens.

    Raises:
        FolderError: it cannot be built, its vocabulary differs from the manifest, or it exists
            although the manifest has none.
    """
    path = folder / tokenizer_name(manifest)
    if not has_tokenizer(manifest):
        if at(path).exists():
            raise FolderError(f"{path}: not in the manifest")
        return
    tokenizer_json = read_kept_tokenizer(folder, manifest)
    try:
        vocabulary = describe_vocabulary(tokenizer_json)
    except DataError as error:
        what = error.message.removeprefix("tokenizer.json: ")
        raise FolderError(f"{path}: not a tokenizer ({what})") from error
    for name in ("vocab_size", "max_id"):
        found = getattr(vocabulary, name)
        if found != manifest[name]:
            raise FolderError(f"{path}: {name} is {found}, manifest says {manifest[name]}")


def list_ids(tokenizer_json: bytes) -> list[int]:
    """Return every id of a vocabulary, sorted; there may be gaps."""
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    return sorted(set(tokenizer.get_vocab(with_added_tokens=True).values()))


def list_special_tokens(tokenizer_json: bytes) -> dict[int, str]:
    """Return the special tokens by their ids, sorted."""
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    added = tokenizer.get_added_tokens_decoder()
    return {id_: added[id_].content for id_ in sorted(added) if added[id_].special}


def usable_json(tokenizer_json: bytes) -> bytes:
    """Switch off BPE dropout, which would give different ids each time; change nothing else."""
    if not DROPOUT.search(tokenizer_json):
        return tokenizer_json
    try:
        saved = json.loads(tokenizer_json)
        saved["model"]["dropout"] = None
    except (ValueError, RecursionError, TypeError, KeyError):
        return tokenizer_json  # build_tokenizer reports the error
    return json.dumps(saved, ensure_ascii=False).encode()


def find_saved_limits(tokenizer_json: bytes) -> list[str]:
    """Return the names of the saved settings of a tokenizer.json that are ignored."""
    if not SWITCHED_OFF.search(tokenizer_json):
        return []
    try:
        saved = json.loads(tokenizer_json)
    except (ValueError, RecursionError):
        return []  # build_tokenizer reports the error
    if not isinstance(saved, dict):
        return []
    found = [name for name in ("truncation", "padding") if saved.get(name) is not None]
    model = saved.get("model")
    dropout = model.get("dropout") if isinstance(model, dict) else None
    return [*found, "dropout"] if dropout else found


@contextmanager
def catch_failure(place: str = "tokenizer.json", hint: str | None = None) -> Iterator[None]:
    """Turn errors and panics of `tokenizers` into DataError."""
    try:
        yield
    except SeqpackError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise DataError(f"{place}: {' '.join(str(error).split())[:200]}", hint=hint) from error


def _is_tokenizer(data: bytes) -> bool:
    try:
        build_tokenizer(data, allow_special_tokens=False)
    except DataError:
        return False
    return True


TOKENIZER_FILE = FileKind("a tokenizer.json", _is_tokenizer, max_bytes=MAX_TOKENIZER_BYTES)
