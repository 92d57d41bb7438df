"""Make pairs of texts and their translations from the message catalogs of programs.

    python benchmarks/make_pairs.py OUT.jsonl FOLDER [FOLDER ...] [--language de ...] [--pairs 1e6]

Programs keep their translations in gettext's catalogs: `LANGUAGE/LC_MESSAGES/*.mo`. A system's own
are in `share/locale`; many more are in packages of translations, which can be unpacked without
being installed (Debian's `libreoffice-l10n-de`, `wesnoth-1.16-data`, `gcc-12-locales`; KDE's and
GNOME's programs). Writes one JSON line per pair: `src` in English, `tgt` in the language `lang`.
The texts are short: labels, messages, hints, some dialogues. Left out are headers, plural forms
beyond the first, texts that are not translated, and pairs that occurred before.
"""

from __future__ import annotations

import gettext
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

CONTEXT = "\x04"  # ends the context that gettext puts before a message


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--language", "languages", multiple=True, help="Only these; by default all.")
@click.option("--pairs", "most", default="1e9", help="The maximum number of pairs.")
def main(out: Path, folders: tuple[Path, ...], languages: tuple[str, ...], most: str) -> None:
    """Write the pairs of all catalogs below the folders to OUT."""
    paths = sorted(path for folder in folders for path in folder.rglob("*.mo"))
    pairs = itertools.islice(iter_distinct(iter_pairs(paths, languages)), int(float(most)))
    with out.open("w") as file:
        for source, target, language in pairs:
            record = {"src": source, "tgt": target, "lang": language}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    click.echo(f"{len(paths):,} catalogs read")


def iter_pairs(paths: Iterable[Path], languages: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield each message, its translation and the language."""
    for path in paths:
        language = path.parent.parent.name
        if languages and language not in languages:
            continue
        for message, translation in read_catalog(path):
            source = message.rpartition(CONTEXT)[2]
            if source.strip() and translation.strip() and source != translation:
                yield source, translation, language


def read_catalog(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the messages and translations of a catalog; nothing if gettext cannot read it."""
    try:
        with path.open("rb") as file:
            catalog = gettext.GNUTranslations(file)
    except (OSError, ValueError, IndexError):
        return
    for key, translation in vars(catalog)["_catalog"].items():  # gettext has no way to list them
        message, form = key if isinstance(key, tuple) else (key, 0)
        if message and form == 0:
            yield message, translation


def iter_distinct(pairs: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield pairs that did not occur before."""
    seen: set[int] = set()
    for pair in pairs:
        if (digest := hash(pair)) not in seen:
            seen.add(digest)
            yield pair


if __name__ == "__main__":
    main()
