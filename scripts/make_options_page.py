"""Print docs/options.md, made from the commands and the options classes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent.parent))

from seqpack_cli.cli.main import main
from seqpack_cli.runs.options import RUN

HEAD = """\
# Options

What `--help` says of each command, in one table each. Fields of the options classes have the same
names, with `_` for `-`: `pack("tokens", "shards", batch_size=32)`. This page is made by
`scripts/make_options_page.py`.
"""


def spell_page() -> str:
    """Return the page."""
    parts = [HEAD]
    context = click.Context(main, info_name="seqpack")
    for name in main.list_commands(context):
        command = main.get_command(context, name) or main
        inner = click.Context(command, info_name=name, parent=context)
        groups: dict[str, list[str]] = {group: [] for group in getattr(command, "groups", ())}
        for param in command.get_params(inner):
            record = param.get_help_record(inner) if isinstance(param, click.Option) else None
            if record is None or "--help" in param.opts:
                continue
            option, text = (re.sub(r"([|<])", r"\\\1", part) for part in record)
            text, _, default = text.partition("  [default: ")
            line = f"| `{option}` | {text} | {default.removesuffix(']')} |"
            groups.setdefault(getattr(param, "group", RUN), []).append(line)
        parts.append(f"## seqpack {name}\n")
        for group, lines in groups.items():
            if lines:
                head = f"| {group} | | default |\n| --- | --- | --- |\n"
                parts.append(head + "\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(spell_page())
