"""Write a self-contained HTML page about a token store or shards.

The page loads nothing, and its content security policy forbids it to. Texts and names are untrusted
and escaped. The same folder makes the same page.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seqpack_cli import __version__
from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.errors import escape_controls
from seqpack_cli.files.outputs import FileKind, publish_alone
from seqpack_cli.files.places import Place
from seqpack_cli.reporting.column_facts import list_column_facts
from seqpack_cli.reporting.contents import measure_batches
from seqpack_cli.reporting.facts import (
    Facts,
    list_run_facts,
    spell_warning,
)
from seqpack_cli.reporting.opened import Opened, find_store, name_entry
from seqpack_cli.reporting.page.batch_cells import make_batch_cells
from seqpack_cli.reporting.page.batch_rows import describe_batches
from seqpack_cli.reporting.page.places import collect_places
from seqpack_cli.reporting.page.token_rows import make_rows
from seqpack_cli.reporting.pair_facts import list_page_facts, view_sides
from seqpack_cli.reporting.pictures.panels import choose_batch, make_title
from seqpack_cli.reporting.pictures.picture import Panel, check_output, draw_svg
from seqpack_cli.reporting.spelled_counts import describe_spelled
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.store import TokenStore

if TYPE_CHECKING:
    from jinja2 import Environment

SUFFIXES = (".html", ".htm")
MAX_OPTION_CHARACTERS = 200
MAX_RUN_CHARACTERS = 5_000  # of the command
PAGE = FileKind(
    "a page that seqpack wrote", lambda head: b'<meta name="generator" content="seqpack ' in head
)


def check_page_path(path: Place) -> None:
    """Check, before any work, that a page can be made and written.

    Raises:
        OptionError: the suffix is neither .html nor .htm.
        FolderError: the file exists and is not a page of seqpack.
        MachineError: matplotlib or Jinja is not installed.
    """
    check_output(path, PAGE, SUFFIXES, ["matplotlib", "jinja2"])


def write_page(
    path: Place, opened: Opened, numbers: dict[str, Any], panels: Sequence[Panel]
) -> None:
    """Make the page and publish it; a page of seqpack is replaced.

    Args:
        numbers: what `describe` returns.
        panels: the pictures, in their order.

    Raises:
        FolderError: a batch is damaged, or the file exists and is not a page of seqpack.
        MachineError: the disk failed.
    """
    page = make_page(opened, numbers, panels)
    with publish_alone(path, PAGE, overwrite=True) as file:
        file.write(page.encode())


def make_page(opened: Opened, numbers: dict[str, Any], panels: Sequence[Panel]) -> str:
    """Return the text of the page; see `write_page`."""
    sides: Sequence[Opened] = opened.sides if isinstance(opened, ShardSet) else [opened]
    stores = [find_store(side) for side in sides]
    environment = _open_environment()
    script = _read(environment, "page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    places = collect_places(opened, stores[0])
    places["command"] = _spell_inspect(opened)
    page: str = environment.get_template("page.html.jinja").render(
        title=escape_controls(make_title(opened)),
        version=__version__,
        style=_read(environment, "page.css"),
        script=script,
        script_sha256=digest,
        facts=[(label, escape_controls(value)) for label, value in list_page_facts(numbers)],
        column_facts=[
            (escape_controls(label), escape_controls(value))
            for label, value in _list_columns(numbers)
        ],
        run=[
            (label, escape_controls(value[:MAX_RUN_CHARACTERS]))
            for label, value in list_run_facts(numbers["run"])
        ],
        options=[
            (_spell(name), _spell(value)) for name, value in sorted(numbers["options"].items())
        ],
        pictures=[
            {"name": panel.name, "title": panel.title, "svg": draw_svg(panel)} for panel in panels
        ],
        whose="encoder's " if len(sides) > 1 else "",
        warnings=[list(map(escape_controls, spell_warning(it))) for it in numbers["warnings"]],
        special_tokens=[
            _clean_entry(entry)
            for store in stores
            for entry in describe_spelled(store)["tokens"] or ()
        ],
        num_sequences=places["num_sequences"],
        # Text of a script element: `</` would end it.
        places=json.dumps(places).replace("<", "\\u003c"),
        cells=_make_cells(opened),
        **_describe_rows(opened, sides, stores),
        **describe_batches(opened),
    )
    return page


def _describe_rows(
    opened: Opened, sides: Sequence[Opened], stores: Sequence[TokenStore | None]
) -> dict[str, Any]:
    """Return the first rows, and what the text above them says."""
    rows, title = make_rows(opened, stores)
    columns = [(name, column) for side in sides for name, column in side.columns.items()]
    return {
        "rows": rows,
        "rows_title": title,
        "rows_name": "Pairs" if len(sides) > 1 else f"{name_entry(opened).capitalize()}s",
        "has_tags": any(column.is_per_token and name != TARGETS for name, column in columns),
        "has_targets": any(name == TARGETS for name, _ in columns),
        "all_known": all(store is not None for store in stores),
    }


def _list_columns(numbers: dict[str, Any]) -> Facts:
    """Return the labels and values of the columns, of pairs with the name of each side."""
    if numbers.get("decoder") is None:
        return list_column_facts(numbers["columns"])
    sides = [(name, list_column_facts(side["columns"])) for name, side in view_sides(numbers)]
    return [(f"{name}: {label}", value) for name, facts in sides for label, value in facts]


def _make_cells(opened: Opened) -> dict[str, Any] | None:
    """Return a typical batch token by token, if its rows are shared."""
    if not isinstance(opened, ShardSet) or not LAYOUTS[opened.layout].shares_rows:
        return None
    return make_batch_cells(opened, choose_batch(measure_batches(opened)))


def _spell_inspect(opened: Opened) -> str | None:
    """Return the command that inspects a folder, None if its name cannot be typed."""
    path = str(opened.path)
    command = f"seqpack inspect {shlex.quote(f'./{path}' if path.startswith('-') else path)}"
    if isinstance(opened, ShardSet) and opened.side is not None and opened.decoder is None:
        command += f" --side {opened.side}"
    return command if command == escape_controls(command) else None


def _open_environment() -> Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )


def _read(environment: Environment, name: str) -> str:
    assert environment.loader is not None  # noqa: S101 - it was made with one
    return environment.loader.get_source(environment, name)[0]


def _spell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape_controls(text[:MAX_OPTION_CHARACTERS])


def _clean_entry(entry: dict[str, Any]) -> dict[str, Any]:
    places = [f"{place['source']}, record {place['record']:,}" for place in entry["places"]]
    return {
        "token": escape_controls(entry["token"]),
        "count": entry["count"],
        "places": escape_controls("; ".join(places)),
    }
