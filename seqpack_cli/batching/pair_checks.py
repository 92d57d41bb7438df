"""Refuse options of pack that only pairs have, or that pairs do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.errors import OptionError

if TYPE_CHECKING:
    from seqpack_cli.batching.pack_options import PackOptions


def check_pairs(options: PackOptions, *, pairs: bool) -> None:
    """Refuse options that only pairs have, or that pairs do not have."""
    if not pairs:
        needed = {
            f"--count {options.count}": options.count is not None,
            "--buckets with two lengths each": options.pair_keys is not None,
        }
        refuse_first(
            needed, "{} needs --decoder", "pass the decoder's store as --decoder, or leave out {}"
        )
        return
    if not LAYOUTS[options.layout].holds_pairs:
        names = [name for name, rules in LAYOUTS.items() if rules.holds_pairs]
        raise OptionError(
            f"--decoder conflicts with --layout {options.layout}, whose rows hold single sequences",
            hint=f"pass --layout {' or '.join(names)}",
        )
    if options.overflow == "split":
        raise OptionError(
            "--overflow split conflicts with --decoder: a pair is whole documents",
            hint="pass --overflow drop, or tokenize --max-length N --overflow truncate",
        )
    if (options.split_by or "").startswith("decoder."):
        raise OptionError(
            f"--split-by {options.split_by}: splits follow the encoder's side",
            hint="keep the column on the encoder's side too: tokenize --keep",
        )
    if options.count is not None and options.max_tokens is None:
        raise OptionError(
            f"--count {options.count} needs --max-tokens",
            hint="pass --max-tokens, or leave out --count",
        )
    if isinstance(options.buckets, tuple) and options.pair_keys is None:
        raise OptionError(
            f"--buckets {options.buckets[0]}: found one length, expected two, of the encoder's and "
            "of the decoder's row",
            hint="pass pairs of lengths, such as --buckets '(10,15),(20,25)'",
        )


def refuse_first(refused: dict[str, bool], message: str, hint: str = "leave out {}") -> None:
    """Raise OptionError for the first option that is refused."""
    for name, is_refused in refused.items():
        if is_refused:
            raise OptionError(message.format(name), hint=hint.format(name))
