"""The command line that does a run again, spelled from its arguments, for `run.json`.

A run started from Python has one too. Options with their default value are left out, and so is what
does not decide the result: workers, executor, `--overwrite`.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from seqpack_cli.errors import escape_controls
from seqpack_cli.files.places import Place

OTHER_NAMES = {"file_format": "format"}  # fields whose option has another name


def spell_command(
    name: str,
    inputs: Sequence[Place | str],
    output: Place,
    options: Any,
    *,
    decoder: Sequence[Place] = (),
) -> str | None:
    """Return the command line of a run.

    None if it cannot be typed: a name has control characters, or is not Unicode. URLs with secrets
    never come this far: `url.check_address` refuses them.

    Args:
        options: a dataclass whose fields are the options of the command.
        decoder: the stores of the other side of pairs.

    >>> from seqpack_cli import PackOptions
    >>> spell_command("pack", ["my tokens"], "shards", PackOptions("padded", shuffle=False))
    "seqpack pack 'my tokens' -o shards --layout padded --no-shuffle"
    """
    names = [shlex.quote(str(place)) for place in inputs]
    looks_like_option = any(str(place).startswith("-") and str(place) != "-" for place in inputs)
    folder = "./-" if str(output) == "-" else shlex.quote(str(output))  # `-o -` means stdout
    sides = [word for place in decoder for word in ("--decoder", shlex.quote(str(place)))]
    others = [*sides, "-o", folder, *map(shlex.quote, _spell_options(options))]
    words = [*others, "--", *names] if looks_like_option else [*names, *others]
    line = " ".join(["seqpack", name, *words])
    return line if line == escape_controls(line) else None


def _spell_options(options: Any) -> Iterator[str]:
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            yield from _spell_options(value)
            continue
        name = OTHER_NAMES.get(field.name, field.name).replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        elif isinstance(value, tuple) and all(isinstance(item, str) for item in value):
            for item in value:  # the option is repeated
                yield from (f"--{name}", item)
        else:
            yield f"--{name}"
            items = value if isinstance(value, tuple | list) else [value]
            yield ",".join(map(_spell_item, items))


def _spell_item(item: Any) -> str:
    return f"({','.join(map(str, item))})" if isinstance(item, tuple) else str(item)
