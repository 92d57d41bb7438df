"""The options and input of a tokenize run -> its plan and its tasks.

The plan is all that decides the bytes of the store; it becomes part of the manifest.
"""

from __future__ import annotations

from typing import Any

from seqpack_cli.corpus.parts import plan_parts
from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import OptionError
from seqpack_cli.tokens.affixes import Affixes, find_affixes
from seqpack_cli.tokens.indexed_dataset import choose_dtype
from seqpack_cli.tokens.store_manifest import FORMAT, FORMAT_VERSION
from seqpack_cli.tokens.tokenize_options import TokenizeOptions
from seqpack_cli.tokens.tokenize_part import PartTask
from seqpack_cli.tokens.vocabulary import Vocabulary


def make_plan(
    sources: list[Source], vocabulary: Vocabulary, options: TokenizeOptions
) -> dict[str, Any]:
    """Give all that decides the bytes of the store, as plain values."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "dtype": choose_dtype(vocabulary.max_id),
        "tokenizer_blake3": vocabulary.tokenizer_blake3,
        "options": options.record(),
        "sources": [{"path": source.name, "bytes": source.num_bytes} for source in sources],
    }


def adapt_plan(earlier: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Give an unfinished run's plan with the new options for what its parts did not meet.

    Parts that were finished where a bad record, a bad byte, a large or a long document is an error
    hold none, so their bytes are the same whatever the new plan does with those.
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
        DataError: a source can not be read.
    """
    parts = plan_parts(sources, part_bytes=options.part_bytes)
    return [PartTask(f"part-{number:05d}", ranges) for number, ranges in enumerate(parts)]


def choose_affixes(tokenizer_json: bytes, options: TokenizeOptions) -> Affixes:
    """Find the special tokens that go around each document.

    Raises:
        OptionError: --bos or --eos is unknown, or leaves no room for text.
        DataError: the tokenizer's template can not be followed.
    """
    affixes = find_affixes(
        tokenizer_json,
        add_special_tokens=options.add_special_tokens,
        bos=options.bos,
        eos=options.eos,
    )
    if options.overflow == "truncate" and (options.max_length or 0) <= len(affixes):
        raise OptionError(
            f"--max-length {options.max_length}: no room for text beside the "
            f"{len(affixes)} special tokens of each document"
        )
    return affixes
