"""The special tokens that go around a document: the tokenizer's template, `--bos` and `--eos`.

They are found once and then put around flat ids, so that no encoder needs to know of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqpack_cli.errors import DataError, OptionError, quote
from seqpack_cli.tokens.panics import hiding_panics
from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FIRST_PROBE = "a"


@dataclass(frozen=True)
class Affixes:
    """The special token ids that go before and after every document."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)


def find_affixes(
    tokenizer_json: bytes, *, add_special_tokens: bool, bos: str | None, eos: str | None
) -> Affixes:
    """Find what goes around every document.

    Args:
        add_special_tokens: take the tokenizer's own template.
        bos: a token to put first, unless the template does so already.
        eos: a token to put last, unless the template does so already.

    Raises:
        OptionError: bos or eos is not in the vocabulary.
        DataError: the template is not a prefix and a suffix.
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
        raise OptionError(
            f"token {quote(token)}: not in the tokenizer's vocabulary",
            hint="name a token as it stands in tokenizer.json",
        )
    return id_


def _probe_template(tokenizer_json: bytes) -> Affixes:
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    with catch_failure():
        for probe in _iter_probes(tokenizer):
            text = tokenizer.encode(probe, add_special_tokens=False).ids
            whole = tokenizer.encode(probe).ids
            for start in range(len(whole) - len(text) + 1):
                if text and whole[start : start + len(text)] == text:
                    return Affixes(tuple(whole[:start]), tuple(whole[start + len(text) :]))
        if not tokenizer.encode("").ids:  # no text gives a token, and nothing goes around one
            return Affixes()
    raise DataError(
        "tokenizer.json: its template does not put tokens before and after a text",
        hint="pass --no-add-special-tokens",
    )


def _iter_probes(tokenizer: Tokenizer) -> Iterator[str]:
    """Give texts of which one should have a token, in any script; a template looks at none."""
    for probe in (FIRST_PROBE, *tokenizer.get_vocab()):
        try:
            with hiding_panics(DataError), catch_failure():
                has_token = bool(tokenizer.encode(probe, add_special_tokens=False).ids)
        except DataError:
            continue  # a word that this vocabulary does not know and has no token for
        if has_token:
            yield probe
            return
