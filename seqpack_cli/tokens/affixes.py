"""Find the special tokens before and after each document: from the template, `--bos` and `--eos`.

They are found once per run and added to the encoded ids, so that no encoder has to add them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqpack_cli.errors import DataError, OptionError, join_items, quote
from seqpack_cli.tokens.panics import hiding_panics
from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FIRST_PROBE = "a"


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
    """Find the special tokens before and after every document.

    Args:
        add_special_tokens: apply the tokenizer's own template.
        bos: a token to put first, unless the template already does.
        eos: a token to put last, unless the template already does.

    Raises:
        OptionError: bos or eos is not in the vocabulary.
        DataError: the template does more than add a prefix and a suffix.
    """
    template = _probe_template(tokenizer_json) if add_special_tokens else Affixes()
    prefix, suffix = template.prefix, template.suffix
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    if bos is not None:
        bos_id = _find_id(tokenizer, bos)
        prefix = prefix if prefix[:1] == (bos_id,) else (bos_id, *prefix)
    if eos is not None:
        eos_id = _find_id(tokenizer, eos)
        suffix = suffix if suffix[-1:] == (eos_id,) else (*suffix, eos_id)
    return Affixes(prefix, suffix)


def _find_id(tokenizer: Tokenizer, token: str) -> int:
    id_: int | None = tokenizer.token_to_id(token)
    if id_ is None:
        added = tokenizer.get_added_tokens_decoder().values()
        special = join_items(quote(known.content) for known in added if known.special)
        raise OptionError(
            f"token {quote(token)}: not in the tokenizer's vocabulary",
            hint=f"pass one of its special tokens: {special}" if special else None,
        )
    return id_


def _probe_template(tokenizer_json: bytes) -> Affixes:
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    with catch_failure():
        for probe in _iter_probes(tokenizer):
            text = tokenizer.encode(probe, add_special_tokens=False).ids
            whole = tokenizer.encode(probe).ids
            places = range(len(whole) - len(text) + 1)
            starts = [start for start in places if whole[start : start + len(text)] == text]
            if len(starts) == 1:
                return Affixes(tuple(whole[: starts[0]]), tuple(whole[starts[0] + len(text) :]))
            if not starts:
                break
        if not tokenizer.encode("").ids:  # no text has a token, and the template adds none
            return Affixes()
    raise DataError(
        "tokenizer.json: unsupported template, expected one that adds tokens before and after the "
        "text",
        hint="pass --no-add-special-tokens",
    )


def _iter_probes(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield texts that have a token, in any script; templates do not depend on the text.

    The second and later ones are for words that the template adds itself.
    """
    for probe in _iter_words(tokenizer):
        try:
            with hiding_panics(DataError), catch_failure():
                has_token = bool(tokenizer.encode(probe, add_special_tokens=False).ids)
        except DataError:
            continue  # an unknown word, in a vocabulary without a token for those
        if has_token:
            yield probe


def _iter_words(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield a word, then those of the vocabulary by id, which take 0.05 s to list."""
    yield FIRST_PROBE
    vocabulary = tokenizer.get_vocab()
    yield from sorted(vocabulary, key=vocabulary.__getitem__)
