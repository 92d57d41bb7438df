"""Make corpora large enough for benchmarks, from text on this machine.

    python benchmarks/make_corpora.py OUT --documents docs.jsonl --lines wikitext2.txt \\
        --folder FOLDER [--folder FOLDER ...] [--megabytes 600] [--num-files 100000]

Documents, lines and the files of the folders (text, source code, HTML without its tags) alternate,
because encoders cache words: repeated text would make them look too fast. Writes `documents.jsonl`
(long documents), `lines.txt` (one short line per document), a `50mb` version of both, `files/`
(files of 2 kB) and `files.jsonl` (their texts, one per line).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

SUFFIXES = {".c", ".h", ".hpp", ".html", ".md", ".py", ".rs", ".rst", ".txt"}
TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
MIN_CHARACTERS = 200
FILE_CHARACTERS = 2000


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--documents", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--lines", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--folder", "folders", multiple=True, type=click.Path(exists=True, path_type=Path))
@click.option("--megabytes", default=600)
@click.option("--num-files", default=100_000)
def main(
    out: Path,
    documents: Path,
    lines: Path,
    folders: tuple[Path, ...],
    megabytes: int,
    num_files: int,
) -> None:
    """Write the corpora into OUT."""
    out.mkdir(parents=True)
    for name, size in (("documents", megabytes), ("documents-50mb", 50)):
        texts = iter_documents(documents, folders)
        write(out / f"{name}.jsonl", map(encode_record, texts), size)
    for name, size in (("lines", megabytes), ("lines-50mb", 50)):
        write(out / f"{name}.txt", iter_lines(lines, documents, folders), size)
    (out / "files").mkdir()
    with (out / "files.jsonl").open("w") as file:
        for number, text in enumerate(itertools.islice(iter_pieces(documents, folders), num_files)):
            path = out / "files" / f"{number // 1000:03d}" / f"{number:06d}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode())
            file.write(encode_record(text))


def iter_documents(documents: Path, folders: tuple[Path, ...]) -> Iterator[str]:
    """Yield the documents again and again, one file of the folders after each."""
    with documents.open() as file:
        texts = [json.loads(line)["text"] for line in file]
    others = itertools.chain.from_iterable(iter_files(folders) for _ in itertools.count())
    for text, other in zip(itertools.cycle(texts), others, strict=False):
        yield text
        yield other


def iter_files(folders: tuple[Path, ...]) -> Iterator[str]:
    """Yield the text files below the folders, the folders taking turns."""
    walks = [
        iter(sorted(path for path in folder.rglob("*") if path.is_file())) for folder in folders
    ]
    for paths in itertools.zip_longest(*walks):
        for path in paths:
            if path is None or path.suffix not in SUFFIXES:
                continue
            try:
                text = path.read_bytes().decode()
            except (OSError, UnicodeDecodeError):
                continue
            if path.suffix == ".html":
                text = re.sub(r"\s*\n\s*", "\n", TAGS.sub(" ", text))
            if len(text) >= MIN_CHARACTERS:
                yield text


def iter_lines(lines: Path, documents: Path, folders: tuple[Path, ...]) -> Iterator[str]:
    """Yield the lines again and again, each followed by as much text of lines of the documents."""
    with lines.open(newline="\n") as file:
        own = file.readlines()
    others = (
        line.strip() + "\n"
        for text in iter_documents(documents, folders)
        for line in text.split("\n")
        if len(line.strip()) >= MIN_CHARACTERS // 4
    )
    for line in itertools.cycle(own):
        yield line
        left = len(line)
        while left > 0:
            other = next(others)
            yield other
            left -= len(other)


def iter_pieces(documents: Path, folders: tuple[Path, ...]) -> Iterator[str]:
    """Yield pieces of documents, each a small file."""
    for text in iter_documents(documents, folders):
        for start in range(0, len(text) - MIN_CHARACTERS, FILE_CHARACTERS):
            yield text[start : start + FILE_CHARACTERS].replace("\r", "").replace("\n", " ")


def encode_record(text: str) -> str:
    """Return one JSON line."""
    return json.dumps({"text": text}, ensure_ascii=False) + "\n"


def write(path: Path, records: Iterator[str], megabytes: int) -> None:
    """Write records until the file has the wanted size."""
    num_bytes = 0
    with path.open("wb") as file:
        for record in records:
            num_bytes += file.write(record.encode())
            if num_bytes >= megabytes * 1_000_000:
                return


if __name__ == "__main__":
    main()
