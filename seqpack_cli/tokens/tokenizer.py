"""Find, read and build a tokenizer; describe its vocabulary, and what it adds to each document.

A name means a tokenizer.json, its folder, a repository on the Hugging Face Hub, or the built-in
`bytes`. It is resolved once a run, into one value with all files, from the Hub of one revision.
Truncation, padding and dropout that a tokenizer.json saves are switched off. Special tokens spelled
in a text are text by default, a setting that `tokenizers` loses on pickling: build the tokenizer in
the process that uses it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from blake3 import blake3

from seqpack_cli.errors import (
    DataError,
    FolderError,
    MachineError,
    OptionError,
    SeqpackError,
    join_items,
    quote,
)
from seqpack_cli.files.inputs import Input
from seqpack_cli.files.manifest import (
    MAX_TOKENIZER_BYTES,
    has_tokenizer,
    read_kept_tokenizer,
    tokenizer_name,
)
from seqpack_cli.files.outputs import FileKind
from seqpack_cli.files.places import Place, at, parse_place, suggest_name

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BYTES = "bytes"  # the tokenizer that needs no file: an id per byte, and three special tokens
NUM_BYTES, SPECIAL_TOKENS = 256, ("<pad>", "<bos>", "<eos>")
NAME, CONFIG = "tokenizer.json", "tokenizer_config.json"
TOKENS_MAP = "special_tokens_map.json"  # of older versions of transformers
TEMPLATES = ("chat_template.jinja", "additional_chat_templates/tool_use.jinja")
ADDED = "added_tokens_decoder"  # all added tokens of the tokenizer, by id
GROUPS = (  # those that have a name of their own first, and lists or objects of tokens
    *("", "additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"),
    ADDED,
)
HINT = "pass a tokenizer.json, a folder that contains one, or 'bytes'"
CONNECT_SECONDS = 2.0  # after which an address of the Hub counts as unreachable
MAX_REASON = 200  # characters of a library's message
MAX_ID = 2**31 - 1  # ids are stored as uint16 or int32
COMMENT = re.compile(r"{#.*?#}", re.DOTALL)  # of a template
# Tokens of roles, if no file names them.
COMMON_NAMES = {
    "pad_id": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "bos_id": ("<bos>", "<s>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|bos|>"),
    "eos_id": ("<eos>", "</s>", "[EOS]", "<|end_of_text|>", "<|endoftext|>", "<|eos|>"),
    "unk_id": ("<unk>", "[UNK]", "<|unk|>"),
}
ROLES = tuple(COMMON_NAMES)
BYTE_LEVEL = (
    '{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}'
)
BYTE_TOKENIZER = (
    '{"version": "1.0", "truncation": null, "padding": null, "added_tokens": %s, '
    '"normalizer": null, "pre_tokenizer": %s, "post_processor": null, "decoder": %s, '
    '"model": {"type": "BPE", "dropout": null, "unk_token": null, '
    '"continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, '
    '"byte_fallback": false, "ignore_merges": false, "vocab": %s, "merges": []}}'
)


# Files


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer.json and the files beside it, each of which may be missing.

    transformers adds the tokens that tokenizer.json lacks, and takes those that it has for special
    tokens, whatever tokenizer.json says about them.
    """

    name: str  # as the user wrote it
    path: str  # of the tokenizer.json, or its name on the Hub
    folder: str  # or the name on the Hub
    tokenizer_json: bytes
    beside: Mapping[str, str]  # those that exist, by name

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """What the files beside tokenizer.json say.

        Raises:
            DataError: one is not a JSON object.
        """
        settings: dict[str, Any] = {}
        for name in (CONFIG, TOKENS_MAP):
            path = f"{self.folder}/{name}"
            try:
                found = json.loads(self.beside.get(name, "{}"))
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}: not JSON ({error})") from error
            if not isinstance(found, dict):
                raise DataError(f"{path}: {quote(found)}, expected an object")
            settings |= {} if ADDED in settings else found
        return settings

    @functools.cached_property
    def tokens(self) -> list[tuple[str, str, bool]]:
        """The tokens that the files name: the name, if any, the text, and whether it is special."""
        found = []
        roles = {name: it for name, it in self.settings.items() if name.endswith("_token")}
        for key, group in {"": roles, **self.settings}.items():
            if key not in GROUPS:
                continue
            named = dict(enumerate(group)) if isinstance(group, list) else group
            for name, it in named.items() if isinstance(named, dict) else ():
                text, is_special = it, key != ADDED
                if isinstance(it, dict):
                    text, is_special = it.get("content"), is_special or it.get("special") is True
                if isinstance(text, str) and text:  # of a list or of ids, the name is a number
                    found.append((name if str(name).isidentifier() else "", text, is_special))
        return found

    @property
    def named_tokens(self) -> dict[str, str]:
        """The special tokens that have a name, such as bos_token."""
        return {name: token for name, token, _ in self.tokens if name}

    def find_missing(self, known: Collection[str], template: str) -> str | None:
        """Return a token that a chat template writes and that tokenizer.json does not have.

        Args:
            known: the added tokens of tokenizer.json.
        """
        source = COMMENT.sub("", template)
        for name, token, _ in self.tokens:
            if token not in known and (
                token in source or (name and re.search(rf"\b{re.escape(name)}\b", source))
            ):
                return token
        return None

    def describe(self) -> Vocabulary:
        """Describe the vocabulary; raises DataError, with the path of the tokenizer.json."""
        named = self.named_tokens
        try:
            return describe_vocabulary(self.tokenizer_json, named)
        except DataError as error:
            what = error.message.removeprefix(f"{NAME}: ")
            raise DataError(f"{self.path}: {what}", error.hint) from error


def read_tokenizer(name: str, *, with_templates: bool = False) -> TokenizerFiles:
    """Read the files of a tokenizer.

    Args:
        name: `bytes`, a tokenizer.json, a folder that has one, or a repository on the Hub.
        with_templates: the chat templates too.

    Raises:
        OptionError: no file or folder has that name, and it is not on the Hub.
        MachineError: no file or folder has that name, and the Hub cannot be reached.
    """
    if name == BYTES:
        return TokenizerFiles(name, name, name, byte_tokenizer_json(), {})
    beside = (CONFIG, TOKENS_MAP, *(TEMPLATES if with_templates else ()))
    path = parse_place(name)
    path = path / NAME if path.is_dir() else path
    tokenizer_json = Input(str(path)).read()
    if tokenizer_json is not None:
        texts = {file: read_text(path.parent / file) for file in beside}
        found = {file: text for file, text in texts.items() if text is not None}
        return TokenizerFiles(name, str(path), str(path.parent), tokenizer_json, found)
    is_odd = at(path).exists()  # a dangling link, a device or the like
    if is_odd or path.suffix == ".json" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise OptionError(f"{path}: no such file{suggest_name(path)}", hint=HINT)
    files = _download(name, beside)
    tokenizer_json = files.pop(NAME)
    found = {file: _decode(content, f"{name}/{file}") for file, content in files.items()}
    return TokenizerFiles(name, str(path), name, tokenizer_json, found)


def read_text(path: Place) -> str | None:
    """Return the text of a file, None if it does not exist; raises DataError."""
    content = Input(str(path)).read() if path.exists() else None
    return None if content is None else _decode(content, str(path))


def _decode(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = content[error.start]
        raise DataError(f"{path}: byte {found:#04x}, expected UTF-8") from error


def _download(name: str, optional: Iterable[str]) -> dict[str, bytes]:
    """Download the files of a repository, or read its cached copies; return those that exist.

    huggingface_hub, which `tokenizers` depends on, needs half a minute to notice that the Hub
    cannot be reached; so that is checked first, and then only its cache is used.
    """
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    is_online = not constants.HF_HUB_OFFLINE and _can_reach(constants.ENDPOINT)
    found: dict[str, bytes] = {}
    revision = None  # of the first file, and then of all
    for file in (NAME, *optional):
        try:
            path = hf_hub_download(name, file, revision=revision, local_files_only=not is_online)
        except Exception as error:  # of a dozen types, from no network to no such repository
            # Without the Hub, what is not in the cache counts as not in the repository.
            is_missing = isinstance(error, EntryNotFoundError) and not (
                is_online and isinstance(error, LocalEntryNotFoundError)
            )
            if is_missing and file != NAME:
                continue
            if not is_online:
                raise MachineError(
                    f"{name}: no such file or folder, and the Hub ({constants.ENDPOINT}) cannot "
                    "be reached",
                    hint=HINT,
                ) from error
            what = f"no such file or folder, and not found on the Hub: {spell_error(error)}"
            raise OptionError(f"{name}: {what}", hint=HINT) from error
        found[file] = Path(path).read_bytes()
        revision = revision or Path(path).parent.name  # snapshots/REVISION/tokenizer.json
    return found


def _can_reach(endpoint: str) -> bool:
    """Return whether a server accepts connections; always True if a proxy is configured."""
    import socket
    from urllib.request import getproxies  # takes 16 ms, with ssl, and is rarely needed

    if getproxies():
        return True
    address = urlsplit(endpoint)
    port = address.port or (80 if address.scheme == "http" else 443)
    with suppress(OSError):
        socket.create_connection((address.hostname, port), timeout=CONNECT_SECONDS).close()
        return True
    return False


def byte_tokenizer_json() -> bytes:
    """Return the tokenizer.json of the default tokenizer, always the same bytes.

    One id per UTF-8 byte, followed by three special tokens: a byte-level BPE without merges, which
    gives the same ids in `tokenizers`.
    """
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    numbers = {token: NUM_BYTES + index for index, token in enumerate(SPECIAL_TOKENS)}
    added = [{"id": id_, "content": it, **flags, "special": True} for it, id_ in numbers.items()]
    vocabulary = json.dumps({**byte_of_character(), **numbers}, ensure_ascii=False)
    return (BYTE_TOKENIZER % (json.dumps(added), BYTE_LEVEL, BYTE_LEVEL, vocabulary)).encode()


@functools.cache
def byte_of_character() -> dict[str, int]:
    """Return GPT-2's table: the printable character that stands for each byte.

    It is the byte's own character where that is printable, else one from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {chr(byte if byte in printable else next(others)): byte for byte in range(NUM_BYTES)}


# The tokenizer


def build_tokenizer(tokenizer_json: bytes, *, allow_special_tokens: bool) -> Tokenizer:
    """Build the tokenizer of a tokenizer.json, with neither truncation, padding nor dropout.

    Takes 0.2 s for 50,000 tokens, once: the tokenizer is cached, so do not change it.

    Args:
        allow_special_tokens: a special token spelled in a text becomes its id.

    Raises:
        DataError: it is not a tokenizer.json.
    """
    return _build(tokenizer_json, allow_special_tokens)[0]


def list_ignored_settings(tokenizer_json: bytes) -> tuple[str, ...]:
    """Return the names of the saved settings of a tokenizer.json that are switched off."""
    return _build(tokenizer_json, False)[1]


@functools.lru_cache(maxsize=2)
def _build(tokenizer_json: bytes, allow_special_tokens: bool) -> tuple[Tokenizer, tuple[str, ...]]:
    import tokenizers

    try:
        with catch_failure():
            tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json.decode())
    except DataError as error:
        raise DataError(
            f"{error.message}, expected a file in the format of Hugging Face's tokenizers",
            hint="pass --tokenizer bytes to use one id per byte",
        ) from error
    names = [name for name in ("truncation", "padding") if getattr(tokenizer, name) is not None]
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):
        names.append("dropout")
        tokenizer.model.dropout = None
    tokenizer.encode_special_tokens = not allow_special_tokens
    return tokenizer, tuple(names)


@contextmanager
def catch_failure(
    place: str = NAME, failure: type[Exception] = DataError, hint: str | None = None
) -> Iterator[None]:
    """Turn errors and panics of a library in Rust into one sentence.

    A panic is a BaseException, which `except Exception` does not catch.
    """
    try:
        yield
    except (SeqpackError, failure, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        what = f"{place}: {spell_error(error)}"
        raise failure(what, *([] if hint is None else [hint])) from error


def spell_error(error: BaseException) -> str:
    """Return the message of a library's error on one line, shortened."""
    return " ".join(str(error).split())[:MAX_REASON] or type(error).__name__


def _is_tokenizer(data: bytes) -> bool:
    with suppress(DataError):
        build_tokenizer(data, allow_special_tokens=False)
        return True
    return False


TOKENIZER_FILE = FileKind("a tokenizer.json", _is_tokenizer, max_bytes=MAX_TOKENIZER_BYTES)


# The vocabulary


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
        raise DataError(f"{NAME}: the vocabulary is empty")
    max_id = max(ids.values())
    if max_id > MAX_ID:
        raise DataError(f"{NAME}: its largest id is {max_id:,}, expected at most {MAX_ID:,}")
    named, roles = named or {}, dict[str, int | None]()
    for role, common in COMMON_NAMES.items():
        own = getattr(tokenizer.model, "unk_token", None) if role == "unk_id" else None
        names = (own, named.get(token_of(role)), *common)
        roles[role] = next((ids[name] for name in names if name in ids), None)
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    return Vocabulary(
        tokenizer_blake3=blake3(tokenizer_json).hexdigest(),
        vocab_size=len(ids),
        max_id=max_id,
        **roles,
        special_tokens=tuple(list_special_tokens(tokenizer_json).values()),
        added_tokens=tuple(token.content for _, token in added),
    )


def token_of(role: str) -> str:
    """Return what files beside a tokenizer.json call the token of a role.

    >>> token_of("pad_id")
    'pad_token'
    """
    return role.replace("_id", "_token")


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
    try:
        vocabulary = describe_vocabulary(read_kept_tokenizer(folder, manifest))
    except DataError as error:
        what = error.message.removeprefix(f"{NAME}: ")
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
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    return {id_: token.content for id_, token in added if token.special}


# What it adds to each document


@dataclass(frozen=True)
class Affixes:
    """The ids of the special tokens before and after every document."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)


def find_affixes(
    tokenizer_json: bytes, *, add_special_tokens: bool, bos: str | None, eos: str | None
) -> Affixes:
    """Find the special tokens before and after every document, which no encoder has to add then.

    Args:
        add_special_tokens: apply the tokenizer's own template.
        bos: a token to put first, unless the template already does.
        eos: a token to put last, unless the template already does.

    Raises:
        OptionError: bos or eos is not in the vocabulary.
        DataError: the template does more than add a prefix and a suffix.
    """
    prefix, suffix = _apply_template(tokenizer_json) if add_special_tokens else ((), ())
    if bos is not None:
        bos_id = _find_id(tokenizer_json, bos)
        prefix = prefix if prefix[:1] == (bos_id,) else (bos_id, *prefix)
    if eos is not None:
        eos_id = _find_id(tokenizer_json, eos)
        suffix = suffix if suffix[-1:] == (eos_id,) else (*suffix, eos_id)
    return Affixes(prefix, suffix)


def _find_id(tokenizer_json: bytes, token: str) -> int:
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    id_: int | None = tokenizer.token_to_id(token)
    if id_ is None:
        special = join_items(map(quote, list_special_tokens(tokenizer_json).values()))
        raise OptionError(
            f"token {quote(token)}: not in the tokenizer's vocabulary",
            hint=f"pass one of its special tokens: {special}" if special else None,
        )
    return id_


def _apply_template(tokenizer_json: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what the template puts around a text of one token: it does not depend on the text."""
    import tokenizers

    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    words = tokenizers.models.WordLevel({"text": 0}, unk_token="text")  # noqa: S106
    with catch_failure():
        whole = tokenizer.post_process(tokenizers.Tokenizer(words).encode("text"))
    places = [place for place, is_added in enumerate(whole.special_tokens_mask) if not is_added]
    if len(places) != 1:
        raise DataError(
            f"{NAME}: unsupported template, expected one that adds tokens before and after the "
            "text",
            hint="pass --no-add-special-tokens",
        )
    return tuple(whole.ids[: places[0]]), tuple(whole.ids[places[0] + 1 :])
