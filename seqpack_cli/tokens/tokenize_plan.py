"""Make the plan and the tasks of a tokenize run from its options and input.

The plan is everything that decides the bytes of the store; it becomes part of the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqpack_cli.corpus.fields import KEEP, ValueReader
from seqpack_cli.corpus.fields import Field as RecordField
from seqpack_cli.corpus.parts import plan_parts
from seqpack_cli.corpus.records import sample_records
from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import OptionError
from seqpack_cli.tokens.affixes import Affixes, find_affixes
from seqpack_cli.tokens.chat.renderer import writes_special
from seqpack_cli.tokens.columns.keep_option import check_keep
from seqpack_cli.tokens.columns.kept import Kept, ValuesFrom
from seqpack_cli.tokens.columns.kind import Field
from seqpack_cli.tokens.columns.kind_choice import choose_kinds
from seqpack_cli.tokens.columns.kinds import KINDS
from seqpack_cli.tokens.columns.number_kinds import INT
from seqpack_cli.tokens.columns.targets_kind import TARGETS
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.part_setup import PartTask
from seqpack_cli.tokens.store_manifest import describe_plan
from seqpack_cli.tokens.text_readers import MessagesText, PromptText
from seqpack_cli.tokens.vocabulary import Vocabulary, find_saved_limits


def find_kept(sources: list[Source], options: TokenizeOptions) -> tuple[Kept, ...]:
    """Return the columns to make; kinds that are left open are found from the first records.

    Raises:
        DataError: the first records do not decide, or cannot be read.
        OptionError: an option does not apply to any of the fields.
    """
    keep = check_keep(options.keep)
    kept: list[Kept] = []
    if keep:
        readers = [ValueReader(RecordField(option.name, KEEP)) for option in keep]
        samples = sample_records(sources, readers, options.documents)
        kept = choose_kinds(keep, samples, options.documents.text_field)
    tags = next((each for each in kept if KINDS[each.kind].is_per_token), None)
    if options.tag_subtokens and tags is None:
        raise OptionError(
            f"--tag-subtokens {options.tag_subtokens}: no tags are kept",
            hint="pass --keep FIELD:tags, or leave it out",
        )
    if tags is not None and options.makes_texts:
        raise OptionError(
            f"--keep {tags.field.name}: tags belong to a text of one field, "
            f"found {next(iter(options.targets.fields))}",
            hint="tokenize the tags into a store of their own",
        )
    return (*_list_made(options), *kept)


def _list_made(options: TokenizeOptions) -> Iterator[Kept]:
    """Yield the columns that are made from no field."""
    if options.makes_texts:
        yield Kept(Field("targets"), TARGETS.name, ValuesFrom.TEXT)
    elif options.overlap is not None:
        yield Kept(Field("targets"), TARGETS.name, ValuesFrom.PIECES)
    if options.overlap is not None:
        yield Kept(Field("overlap"), INT.name, ValuesFrom.PIECES)


def make_plan(
    sources: list[Source],
    vocabulary: Vocabulary,
    options: TokenizeOptions,
    kept: Sequence[Kept] = (),
    text: PromptText | MessagesText | None = None,
) -> dict[str, Any]:
    """Return everything that decides the bytes of the store, as plain values."""
    fields = [each for each in kept if each.values_from is ValuesFrom.FIELD]
    recorded = {
        **options.record(),
        "chat": {} if text is None else text.describe(),
        "keep": [each.describe() for each in fields],
    }
    return describe_plan("tokenize", vocabulary, recorded, sources)


def adapt_plan(earlier: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of an unfinished run with those new options that its parts do not depend on.

    If a bad record, a bad byte, or a document that is too large or too long was an error, finished
    parts contain none, so their bytes are the same whatever the new plan does with those.
    """
    found, new = earlier.get("options"), plan["options"]
    if not isinstance(found, dict):
        return earlier

    def is_raised(name: str) -> bool:
        limit = found.get(name)
        return type(limit) is int and (new[name] is None or new[name] >= limit)

    names = [name for name in ("encoding_errors", "on_bad_record") if found.get(name) == "error"]
    if is_raised("max_document_bytes"):
        names.append("max_document_bytes")
    if found.get("overflow") == "error" and is_raised("max_length"):
        names += ["overflow", "max_length"]
    return {**earlier, "options": {**found, **{name: new[name] for name in names}}}


def make_tasks(sources: list[Source], options: TokenizeOptions) -> list[PartTask]:
    """Cut the input into parts, one task each.

    Raises:
        DataError: a source cannot be read.
    """
    parts = plan_parts(sources, part_bytes=options.part_bytes)
    return [PartTask(f"part-{number:05d}", ranges) for number, ranges in enumerate(parts)]


def choose_affixes(tokenizer_json: bytes, options: TokenizeOptions) -> Affixes:
    """Find the special tokens before and after each document.

    Raises:
        OptionError: --bos or --eos is unknown, or leaves no room for text.
        DataError: the tokenizer's template is not supported.
    """
    affixes = find_affixes(
        tokenizer_json,
        add_special_tokens=options.add_special_tokens and options.targets.messages_field is None,
        bos=options.bos,
        eos=options.eos,
    )
    if options.overflow == "truncate" and (options.max_length or 0) <= len(affixes):
        raise OptionError(
            f"--max-length {options.max_length}: no room for text beside the {len(affixes)} "
            f"special tokens of each document, expected at least {len(affixes) + 1}"
        )
    return affixes


def iter_notices(
    tokenizer_json: bytes,
    vocabulary: Vocabulary,
    affixes: Affixes,
    options: TokenizeOptions,
    text: PromptText | MessagesText | None = None,
) -> Iterator[str]:
    """Yield notes about settings that have no effect, or not the one that most users want."""
    for limit in find_saved_limits(tokenizer_json):
        yield f"tokenizer.json: ignoring its saved {limit}"
    if options.allow_special_tokens and not vocabulary.special_tokens:
        yield "--allow-special-tokens: the tokenizer has no special tokens"
    if options.targets.completion_field is not None and not affixes.suffix:
        yield (
            "--completion-field: no end token follows a completion, so a model does not learn to "
            "stop; pass --eos TOKEN to add one"
        )
    if isinstance(text, MessagesText) and not writes_special(text.setup):
        yield (
            f"--messages-field: the chat template {text.setup.path} writes no special token of the "
            "tokenizer, so a model does not learn to stop; pass a --tokenizer that has the "
            "template's special tokens"
        )
