"""The page and the pictures of `inspect` and `plan`: sound, with the numbers and labels."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from browser import find_browser, open_page
from command import run
from page_sets import Sets, write_stores

EVIL = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>"\'--><b>'
VOID = {"meta", "br", "hr", "img", "input", "link", "col"}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    folder = tmp_path_factory.mktemp("page")
    (folder / "sets").mkdir()
    return Sets(folder, write_stores(folder))


class Reader(HTMLParser):
    """Collects the texts of a page; every element must be closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        links = [x or "" for name, x in attrs if name in ("href", "src") or name.endswith(":href")]
        assert all(link.startswith(("#", "data:")) for link in links), links
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def make_files(path: Path, folder: Path, *more: object) -> tuple[str, str]:
    """Return the page and the picture of a store or shards."""
    files = ("--html", folder / "a.html", "--plot", folder / "a.svg")
    result = run("inspect", path, *files, *more)
    assert result.exit_code == 0, result.stderr
    page, picture = ((folder / name).read_text() for name in ("a.html", "a.svg"))
    ElementTree.fromstring(picture)
    return page, picture


@pytest.mark.parametrize("name", ["packed columns"])
def test_page_has_the_numbers(sets: Sets, name: str, tmp_path: Path) -> None:
    path = sets[name]
    page, picture = make_files(path, tmp_path)
    read = Reader(page)
    found = json.loads(run("inspect", path, "--json").stdout)
    text = " ".join(read.texts)
    assert f"{found['ledger']['num_tokens']:,}" in text
    assert f"{found['lengths']['mean']:,}" in text
    assert all(column["name"] in text for column in found["columns"])
    assert all(column["name"] in picture for column in found["columns"][:3])
    if name != "kept":
        assert str(found["ledger"]["num_batches"]) in text
        row = json.loads(run("inspect", path, "--batch", 0, "--json").stdout)
        first = row.get("rows", row.get("sequences"))[0]
        assert f"sequence {first['original_index']}: {first['length']} tokens" in text


def test_page_draws_both_sides(sets: Sets, tmp_path: Path) -> None:
    page, picture = make_files(sets["pairs ties"], tmp_path)
    for text in ("Encoder: typical batch", "Decoder: typical batch"):
        assert text in page
        assert text in picture
    found = json.loads(run("inspect", sets["pairs ties"], "--batch", 0, "--json").stdout)
    first = found["rows"][0]
    other = found["decoder"]["rows"][first["decoder_row"]]
    headings = [x for x in re.findall("<h3>(.*?)</h3>", page) if "row" in x][:2]
    headings = [re.sub("tokens, .*", "tokens", heading) for heading in headings]
    assert headings == [
        f"{side}, batch 0, row {row}, sequence {each['original_index']}: {each['length']} tokens"
        for side, row, each in (("encoder", 0, first), ("decoder", first["decoder_row"], other))
    ]


def make_evil(folder: Path) -> Path:
    """Make shards whose texts, names and path are markup."""
    records = [{"text": EVIL, "title": EVIL, "label": EVIL}] * 3
    source = folder / "<b>&amp;.jsonl"
    source.write_text("\n".join(map(json.dumps, records)))
    keep = ("--keep", "title:text", "--keep", "label:class")
    assert run("tokenize", source, "-o", folder / "<i>'", "-q", *keep).exit_code == 0
    assert run("pack", folder / "<i>'", "-o", folder / '<u>"', "-q").exit_code == 0
    return folder / '<u>"'


def test_page_runs_nothing_of_texts_and_names(tmp_path: Path) -> None:
    path = make_evil(tmp_path)
    page, _ = make_files(path, tmp_path)
    names = Reader(page).names
    assert EVIL not in page
    assert "<img src=x" not in page
    assert names.count("script") == page.count("</script>") <= 2
    assert "alert(1)" in page
    if find_browser():
        shown, errors = open_page(tmp_path / "a.html", folder=tmp_path)
        assert errors == []
        assert "<title>owned" not in shown


@pytest.mark.parametrize("arguments", ["inspect kept --plot", "plan kept --plot"])
def test_pictures_are_written_by_suffix(sets: Sets, tmp_path: Path, arguments: str) -> None:
    command, name, option = arguments.split()
    for suffix, start in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
        result = run(command, sets.folder / name, option, tmp_path / f"a{suffix}")
        assert result.exit_code == 0, result.stderr
        assert (tmp_path / f"a{suffix}").read_bytes().startswith(start)
    refused = run(command, sets.folder / name, option, tmp_path / "a.xyz")
    assert refused.exit_code == 2
    assert not (tmp_path / "a.xyz").exists()


def test_page_replaces_no_other_file(sets: Sets, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("mine")
    result = run("inspect", sets.folder / "kept", "--html", tmp_path / "a.html")
    assert result.exit_code == 4
    assert (tmp_path / "a.html").read_text() == "mine"
