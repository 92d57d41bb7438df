"""The options of tokenize, import and train-tokenizer: what decides the bytes, but the input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from itertools import permutations
from typing import Any

from seqpack_cli.corpus.options import (
    DOCUMENTS,
    IDS_FORMATS,
    INPUT,
    TEXT_FORMATS,
    DocumentOptions,
    FileOptions,
)
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.runs.options import (
    RUN,
    Conflicts,
    check_options,
    find_given,
    option,
    refuse,
)

UNKNOWN = "<unk>"
ROLES = ("labels", "attention_mask", "loss_mask")  # and the names that such fields have
PACKED = ("seq_lengths", "seq_start_id")  # lists that say where sequences of a record begin
TARGET_MASKS = ("assistant_masks", "completion_mask")  # loss masks, as TRL names them
TOKENS, TARGETS, IDS = "Tokens", "Targets", "Ids and their fields"
FIELD_OPTIONS = ("prompt_field", "completion_field", "messages_field", "tools_field")
FORMATS = ("auto", *TEXT_FORMATS.names)
# What the manifest names apart: the tokenizer by its checksum, the files and the fields that were
# found. The encoder does not change a byte.
RECORDED_ELSEWHERE = frozenset(
    ("tokenizer", "vocab_size", "encoder", "files", "keep", "documents", "targets")
)


def _spell_tokenizer(name: AnyPath) -> str:
    """Return the name of a tokenizer as text; one that is not a str is a path, never a Hub name."""
    if isinstance(name, str):
        return name
    from seqpack_cli.files.places import parse_place  # takes 10 ms, so not at the top

    return str(parse_place(name).resolve())


def _format_option(choices: tuple[str, ...], text: str) -> Any:
    return option("auto", text, INPUT, choices=choices, flag="--format")


def _keep_option(kinds: str) -> Any:
    text = f"Field of each record to keep as a column; TYPE is {kinds}. May be repeated."
    return option((), text, DOCUMENTS, metavar="FIELD[:TYPE]")


def _part_bytes_option() -> Any:
    text = "Bytes of input for one part file of the store; it does not change the sequences."
    return option(64 << 20, text, RUN, kind="size")


@dataclass(frozen=True)
class TargetOptions:
    """Which fields a text is made from, and which of its tokens count in the loss.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: options conflict, or one has no effect.
    """

    prompt_field: str | None = option(
        None,
        "Field of a prompt, whose tokens do not count in the loss.",
        TARGETS,
        metavar="FIELD",
    )
    completion_field: str | None = option(
        None,
        "Field of the completion that follows it: its tokens count, and the end token.",
        TARGETS,
        metavar="FIELD",
    )
    messages_field: str | None = option(
        None,
        "Field with the messages of a conversation; what the assistant says counts.",
        TARGETS,
        metavar="FIELD",
    )
    tools_field: str | None = option(
        None, "Field with the tools of a conversation.", TARGETS, metavar="FIELD"
    )
    chat_template: AnyPath | None = option(
        None,
        "Jinja template for --messages-field.",
        TARGETS,
        kind="place",
        metavar="FILE",
        shown="that of the tokenizer's folder",
    )
    target_turns: str = option(
        "all",
        "Which messages of the assistant count in the loss.",
        TARGETS,
        choices=("all", "last"),
    )
    template_date: str | None = option(
        None,
        "Day that the chat template may write into a text; without it that is an error.",
        TARGETS,
        metavar="YYYY-MM-DD",
    )

    def __post_init__(self) -> None:
        check_options(self)
        refuse(_conflicts_of_targets(self))

    @property
    def fields(self) -> dict[str, str]:
        """The fields that a text is made from, by the option that names each."""
        return {flag: value for name, flag, value in find_given(self) if name in FIELD_OPTIONS}

    def record(self) -> dict[str, Any]:
        """Return the options that decide the bytes, as in the manifest, without the template."""
        names = (*FIELD_OPTIONS, "target_turns", "template_date")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class TokenizeOptions:
    """How text becomes ids.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: options conflict, one has no effect, or a field cannot be kept.
    """

    tokenizer: AnyPath = option(
        "bytes",
        "A tokenizer.json, a folder that has one, a model on the Hugging Face Hub, or 'bytes': one "
        "id per UTF-8 byte, plus <pad>, <bos> and <eos>.",
        TOKENS,
    )
    file_format: str = _format_option(
        FORMATS, "Format of all files; auto: by the suffix of each. jsonl is an object per line."
    )
    document: str = option(
        "line",
        "What one document of a text file is: a line, the file, or a paragraph.",
        DOCUMENTS,
        choices=("line", "file", "paragraph"),
    )
    documents: DocumentOptions = field(default_factory=DocumentOptions)
    files: FileOptions = field(default_factory=FileOptions)
    keep: Sequence[str] = _keep_option("int, float, class, text or tags")
    tag_subtokens: str | None = option(
        None,
        "Which tokens of a word have its tag; others do not count.",
        DOCUMENTS,
        choices=("first", "all"),
        shown="first",
    )
    add_special_tokens: bool = option(
        True, "Add the special tokens of the tokenizer's own template.", TOKENS
    )
    bos: str | None = option(
        None, "Token of the vocabulary to put first in each document.", TOKENS, metavar="TOKEN"
    )
    eos: str | None = option(
        None, "Token of the vocabulary to put last in each document.", TOKENS, metavar="TOKEN"
    )
    allow_special_tokens: bool = option(
        False, "Special tokens spelled in the text, such as <eos>, become their ids.", TOKENS
    )
    targets: TargetOptions = field(default_factory=TargetOptions)
    max_length: int | None = option(
        None, "Most tokens in a sequence.", TOKENS, kind="count", shown="no limit"
    )
    overflow: str = option(
        "split",
        "A document longer than --max-length: split it into sequences, keep its first tokens, drop "
        "it (counted), or stop.",
        TOKENS,
        choices=("split", "truncate", "drop", "error"),
    )
    overlap: int | None = option(
        None,
        "Begin each later piece with the last K tokens of the one before, which do not count.",
        TOKENS,
        kind="count",
        metavar="K",
        shown="none",
    )
    part_bytes: int = _part_bytes_option()
    encoder: str = option(
        "auto",
        "Library that tokenizes; the ids are the same. auto: the faster one.",
        RUN,
        choices=("auto", "fastokens", "tokenizers"),
    )

    def __post_init__(self) -> None:
        from seqpack_cli.tokens.columns import check_keep

        check_options(self)
        object.__setattr__(self, "tokenizer", _spell_tokenizer(self.tokenizer))
        check_keep(self.keep)
        refuse(_conflicts_of_tokenize(self))

    @property
    def makes_texts(self) -> bool:
        """Whether a text is made from several fields, with targets."""
        return bool(self.targets.fields)

    @property
    def encodes_special_tokens(self) -> bool:
        """Whether special tokens in a text become their ids: those of a chat template always do."""
        return self.allow_special_tokens or self.targets.messages_field is not None

    def record(self) -> dict[str, Any]:
        """Return the options that decide the bytes, as in the manifest."""
        values = {**asdict(self), **asdict(self.documents), **self.targets.record()}
        return {name: value for name, value in values.items() if name not in RECORDED_ELSEWHERE}


def _field_beside_ids(name: str, text: str) -> Any:
    shown = f"{name}, where the first 1,000 records have it"
    return option(None, text, IDS, metavar="FIELD", shown=shown)


@dataclass(frozen=True)
class ImportOptions:
    """How ids become a token store.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: there is neither a tokenizer nor the size of a vocabulary, or both; or a field
            cannot be kept.
    """

    tokenizer: AnyPath | None = option(
        None,
        "Tokenizer that made the ids, kept in the store: a tokenizer.json, its folder, a name on "
        "the Hugging Face Hub, or 'bytes'.",
        IDS,
    )
    vocab_size: int | None = option(
        None,
        "Instead of --tokenizer: ids are from 0 to N - 1, and are not decoded.",
        IDS,
        kind="count",
    )
    file_format: str = _format_option(
        ("auto", *IDS_FORMATS.names),
        "Format of all files; auto: by the name of each. megatron is .bin with .idx, flat ids "
        "alone (.bin, .npy).",
    )
    ids_field: str = option(
        "input_ids", "Field or column of a record with its ids.", IDS, metavar="FIELD"
    )
    labels_field: str | None = _field_beside_ids(
        "labels", "Field with the id of each token that counts in the loss, else -100."
    )
    attention_mask_field: str | None = _field_beside_ids(
        "attention_mask", "Field with 0 for padding, which is left out."
    )
    loss_mask_field: str | None = _field_beside_ids(
        "loss_mask", "Field with 1 for each token that counts in the loss."
    )
    ignore_fields: Sequence[str] = option(
        (),
        "Leave a field of labels, masks, lengths or overlap unread. May be repeated.",
        IDS,
        choices=(*ROLES, *TARGET_MASKS, *PACKED, "overlap"),
        metavar="FIELD",
        flag="--ignore-field",
    )
    dtype: str | None = option(
        None,
        "Type of the ids in files of ids alone, little-endian.",
        IDS,
        choices=("uint8", "uint16", "int32", "uint32", "int64"),
    )
    eos: int | None = option(
        None,
        "Id at the end of each document, which files of ids alone need.",
        IDS,
        kind="id from 0",
        metavar="ID",
    )
    files: FileOptions = field(default_factory=FileOptions)
    keep: Sequence[str] = _keep_option("int, float, class or text")
    on_bad_record: str = option(
        "error",
        "A document that cannot be read or has an id outside the vocabulary: stop, or skip it.",
        DOCUMENTS,
        choices=("error", "skip"),
    )
    max_document_bytes: int = option(
        64 << 20, "Largest document; a larger one is an error.", DOCUMENTS, kind="size"
    )
    part_bytes: int = _part_bytes_option()

    def __post_init__(self) -> None:
        from seqpack_cli.tokens.columns import check_keep

        check_options(self)
        refuse(_conflicts_of_import(self))
        if self.tokenizer is not None:
            object.__setattr__(self, "tokenizer", _spell_tokenizer(self.tokenizer))
        check_keep(self.keep)

    def record(self) -> dict[str, Any]:
        """Return the options that decide the bytes, as in the manifest."""
        values = {**asdict(self), "ignore_fields": sorted(set(self.ignore_fields))}
        return {name: value for name, value in values.items() if name not in RECORDED_ELSEWHERE}


@dataclass(frozen=True)
class TrainTokenizerOptions:
    """What to train, as the options of `seqpack train-tokenizer` say.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: a special token is empty or cannot be encoded in UTF-8.
    """

    model: str = option(
        "bpe",
        "Type of model: byte-level bpe encodes any text, the others have an unknown token.",
        TOKENS,
        choices=("bpe", "wordpiece", "unigram", "wordlevel"),
    )
    vocab_size: int = option(
        32000, "Most tokens in the vocabulary, special ones included.", TOKENS, kind="count"
    )
    min_frequency: int = option(
        2,
        "Ignore pairs (bpe, wordpiece) or words (wordlevel) that occur less often.",
        TOKENS,
        kind="count",
    )
    special_tokens: Sequence[str] = option(
        (),
        "One more special token than <pad>, <bos>, <eos> and <unk>. May be repeated.",
        TOKENS,
        metavar="TOKEN",
        flag="--special-token",
    )
    file_format: str = _format_option(FORMATS, "Format of all files; auto: by the suffix of each.")
    documents: DocumentOptions = field(default_factory=DocumentOptions)
    files: FileOptions = field(default_factory=FileOptions)

    def __post_init__(self) -> None:
        check_options(self)
        refuse(_conflicts_of_training(self))

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens in the order of their ids."""
        from seqpack_cli.tokens.tokenizer import SPECIAL_TOKENS

        unknown = () if self.model == "bpe" else (UNKNOWN,)
        return list(dict.fromkeys([*SPECIAL_TOKENS, *unknown, *self.special_tokens]))

    @property
    def min_vocab_size(self) -> int:
        """The special tokens, and 256 bytes or one other token."""
        return len(self.all_special_tokens) + (256 if self.model == "bpe" else 1)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


# Options that conflict


def _conflicts_of_targets(o: TargetOptions) -> Conflicts:
    for flag, name in o.fields.items():
        yield not name, f"{flag}: expected the name of a field, found ''", ""
    for flag, other in permutations(("--prompt-field", "--completion-field")):
        is_alone = flag in o.fields and other not in o.fields
        yield is_alone, f"{flag} needs {other}", f"pass {other} too"
    has_chats = o.messages_field is not None
    yield (
        has_chats and o.prompt_field is not None,
        "--messages-field and --prompt-field both say how the text is made",
        "leave one of them out",
    )
    of_chats = ("tools_field", "chat_template", "target_turns", "template_date")
    for name, flag, value in find_given(o):
        message = f"{flag} {value}: no conversations are read"
        yield name in of_chats and not has_chats, message, "pass --messages-field too"
    is_date = o.template_date is None or _is_date(o.template_date)
    yield not is_date, f"--template-date {o.template_date}: expected a date such as 2026-11-23", ""


def _conflicts_of_tokenize(o: TokenizeOptions) -> Conflicts:
    is_limited, overlap = o.max_length is not None, f"--overlap {o.overlap}"
    is_cut = o.overflow == "split"
    yield not is_cut and not is_limited, f"--overflow {o.overflow} needs --max-length", ""
    if o.overlap is not None:
        yield not is_limited, f"{overlap}: no document is cut, expected --max-length", ""
        yield not is_cut, f"{overlap}: no document is cut, expected --overflow split", ""
        is_long = o.overlap >= (o.max_length or 0)
        yield is_long, f"{overlap}: expected less than --max-length {o.max_length}", ""
    text_field = o.documents.text_field
    for flag in o.targets.fields:
        message = f"--text-field {text_field}: the text is made from {flag}"
        yield text_field != "text", message, "leave --text-field out"
    for flag, token in (("--bos", o.bos), ("--eos", o.eos)):
        yield (
            o.targets.messages_field is not None and token is not None,
            f"{flag} {token}: the chat template writes every special token",
            f"leave {flag} out, or change the template: --chat-template FILE",
        )


def _conflicts_of_import(o: ImportOptions) -> Conflicts:
    num_given = (o.tokenizer is not None) + (o.vocab_size is not None)
    yield (
        num_given != 1,
        f"--tokenizer and --vocab-size: found {'both' if num_given else 'neither'}, expected one "
        "of them",
        "pass the --tokenizer that made the ids; without one, --vocab-size N, the rows of the "
        "model's embedding; ids alone (.bin, .npy) also need --dtype and --eos",
    )
    is_outside = o.eos is not None and o.vocab_size is not None and o.eos >= o.vocab_size
    yield is_outside, f"--eos {o.eos}: expected less than --vocab-size {o.vocab_size}", ""
    for role in ROLES:
        field = getattr(o, f"{role}_field")
        flag = f"--{role.replace('_', '-')}-field"
        message = f"{flag} {field}: conflicts with --ignore-field {field}"
        yield field in o.ignore_fields, message, "leave out one of the two"


def _conflicts_of_training(o: TrainTokenizerOptions) -> Conflicts:
    for token in o.special_tokens:
        yield not token, "--special-token '': expected at least one character", ""
        is_faulty = re.search("[\ud800-\udfff]", token)
        yield is_faulty, f"--special-token {token!r}: expected valid UTF-8", ""
    others = "256 bytes" if o.model == "bpe" else "one other token"
    yield (
        o.vocab_size < o.min_vocab_size,
        f"--vocab-size {o.vocab_size}: expected at least {o.min_vocab_size}, the special tokens "
        f"and {others}",
        "",
    )
