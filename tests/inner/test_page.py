"""The page of `inspect --html`: what it says, that it stands alone, and that its search works."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import jinja2
import matplotlib
import pytest
from browser import find_browser, open_page
from command import run

from seqpack_cli import open_shards, open_store
from seqpack_cli.reporting.contents import describe
from seqpack_cli.reporting.page import batch_rows
from seqpack_cli.reporting.page import page as page_module
from seqpack_cli.reporting.page import places as places_module
from seqpack_cli.reporting.page.batch_cells import make_batch_cells
from seqpack_cli.reporting.page.places import collect_places
from seqpack_cli.shards.shard_set import open_any

assert jinja2 and matplotlib  # what the page is made with

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
LINES = ["ab", "", "twelve bytes", EVIL, "雨が降る", "\ttab", "x" * 400, "z"]
WIDE = ("--layout", "varlen", "--max-tokens", 450)
needs_browser = pytest.mark.skipif(find_browser() is None, reason="needs a browser")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store and shards of every kind, named as they are in a working folder."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "a <b> & 'c'.txt").write_text("".join(f"{line}\n" for line in LINES))
        (folder / "b.txt").write_text("one\ntwo\n<bos> is spelled\n")
        inputs = ["a <b> & 'c'.txt", "b.txt"]
        assert run("tokenize", *inputs, "-o", "tokens").exit_code == 0
        for name, *options in (
            ("packed", "--batch-size", 4, "--drop-shorter", 2),
            ("padded", "--layout", "padded", "--batch-size", 4, "--last-batch", "pad"),
            ("varlen", "--layout", "varlen", "--max-tokens", 150, "--no-shuffle"),
            ("equal", *WIDE, "--batch-size", 2, "--fill", "chunk"),
            ("streams", "--layout", "streams", "--max-tokens", 20, "--batch-size", 4),
        ):
            assert run("pack", "tokens", "-o", name, *options).exit_code == 0
    return folder


@pytest.fixture
def work(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(name: str) -> str:
    result = run("inspect", name, "--html", f"{name}.html")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{name}.html: written\n"
    return Path(f"{name}.html").read_text()


def make_without_pictures(name: str) -> str:
    """Return what is in the file of the page but for the pictures, which take longest."""
    opened = open_any(name)
    return page_module.make_page(opened, describe(opened), []).encode().decode()


class Elements(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def read_rows(page: str) -> list[tuple[str, str]]:
    """Return heading and text of each row that is shown."""
    rows = []
    for heading, tokens in re.findall(
        r"<article.*?<h3>(.*?)</h3>.*?<p class=\"tokens\"[^>]*>(.*?)</p>", page, re.DOTALL
    ):
        texts = re.findall(r"<span[^>]*>(.*?)</span>", tokens, re.DOTALL)
        rows.append((html.unescape(heading), html.unescape("".join(texts))))
    return rows


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("name", ["tokens", "packed", "padded", "varlen", "equal", "streams"])
def test_page_stands_alone_and_each_id_once(name: str) -> None:
    page = make(name)
    elements = Elements(page).found
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in elements:
        assert tag not in ("link", "img", "iframe", "object", "base"), tag
        assert not {"src", "onerror", "onclick", "srcset"} & set(attributes), (tag, attributes)
        for link in ("href", "xlink:href"):
            target = attributes.get(link) or "#"
            assert target.startswith(("#", "data:")), target
    assert page.count("<script") == 2
    script = page.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith(f"script-src 'sha256-{digest}'")
    assert page.count("<svg ") == (1 if name == "tokens" else 3)


@pytest.mark.usefixtures("work")
def test_rows_of_a_cut_document_say_which_piece_of_it_they_are() -> None:
    assert run("tokenize", "b.txt", "--max-length", 3, "-o", "cut").exit_code == 0
    page = make_without_pictures("cut")
    found = re.findall(r"b\.txt, record 3, document 2, piece (\d+) of (\d+)", page)
    assert found == [(str(number), "6") for number in range(1, 7)]


@pytest.mark.usefixtures("work")
def test_page_has_the_numbers_batches_and_rows_of_shards() -> None:
    page = make_without_pictures("packed")
    numbers = json.loads(run("inspect", "packed", "--json").stdout)
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert facts["sequences"] == str(numbers["ledger"]["num_sequences"])
    assert facts["tokens"] == f"{numbers['ledger']['num_tokens']:,}"
    assert facts["batch_size"] == "4"  # an option of the run
    shards = open_shards("packed")
    section = page.split('<section id="batches">')[1].split("</section>")[0]
    assert re.findall(r"<th>(.*?)</th>", section) == [
        *("batch", "rows", "longest", "tokens", "cells if padded", "padding if padded")
    ]
    table = [
        re.findall(r"<td[^>]*>(.*?)(?: <span|</td>)", row)
        for row in re.findall(r"<tr>(<td.*?)</tr>", section)
    ]
    assert table == [
        [
            str(index),
            str(len(batch.lengths)),
            str(batch.lengths[0]),
            str(len(batch.data)),
            f"{len(batch.lengths) * batch.lengths[0]:,}",
            f"{1 - len(batch.data) / (len(batch.lengths) * batch.lengths[0]):.2%}",
        ]
        for index, batch in enumerate(shards)
    ]
    lengths = facts["lengths"], facts["percentiles"]
    assert lengths[0].startswith("2 to 400 tokens, mean ")
    assert lengths[1].endswith("p99 400")
    rows = read_rows(page)
    assert len(rows) == sum(len(batch.lengths) for batch in shards) == 9
    assert rows[0] == ("batch 0, row 0, sequence 5: 400 tokens", "x" * 240)
    assert "<em>and 160 more tokens</em>" in page
    assert (f"batch 0, row 1, sequence 2: {len(EVIL)} tokens", EVIL) in rows
    assert ("batch 0, row 3, sequence 1: 12 tokens", "twelve bytes") in rows
    assert ("batch 1, row 0, sequence 3: 12 tokens", "雨が降る") in rows
    assert any(text == "⇥\ttab" for _, text in rows)
    assert "a &lt;b&gt; &amp; &#39;c&#39;.txt, record 4, document 3" in page


@pytest.mark.usefixtures("work")
def test_page_of_a_store_shows_its_sequences_and_special_tokens() -> None:
    page = make_without_pictures("tokens")
    assert "First 10 sequences" in page
    assert [text for _, text in read_rows(page)][:2] == ["ab", "twelve bytes"]
    assert '<td class="left"><code>&lt;bos&gt;</code></td><td>1</td>' in page
    assert "b.txt, record 3</td>" in page
    assert "<h2>Batches</h2>" not in page


@pytest.mark.usefixtures("work")
def test_page_names_the_command_date_and_versions_of_the_run() -> None:
    done = json.loads(Path("padded/run.json").read_text())
    section = make_without_pictures("padded").split('<section id="run">')[1].split("</section>")[0]
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(?:<code>)?(.*?)(?:</code>)?</dd>", section))
    assert facts["command"] == (
        "seqpack pack tokens -o padded --layout padded --batch-size 4 --last-batch pad"
    )
    assert facts["date"].split() == [done["date"][:10], done["date"][11:16], "UTC"]
    assert facts["duration"] == f"{done['seconds']:.1f} s"
    versions = done["versions"]
    assert facts["versions"] == ", ".join(f"{name} {versions[name]}" for name in versions)
    assert "seqpack" in versions
    assert facts["last_batch"] == "pad"  # one of all options


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("value", [EVIL, 7, 10**400, 1e300, None, [], {}, "9" * 400, "\ud800"])
def test_page_of_a_run_json_that_may_hold_anything(value: object) -> None:
    names = ("command", "date", "seconds", "versions")
    Path("padded/run.json").write_text(json.dumps(dict.fromkeys(names, value)))
    assert "<script>document" not in make_without_pictures("padded")


@pytest.mark.usefixtures("work")
def test_page_without_a_run_json_says_so() -> None:
    Path("padded/run.json").unlink()
    assert "Unknown: the folder has no readable run.json." in make_without_pictures("padded")


@pytest.mark.usefixtures("work")
def test_tokens_of_a_page_tell_their_ids_and_a_character_of_several_is_one_piece() -> None:
    page = make_without_pictures("tokens")
    assert '<span title="id 97">a</span><span title="id 98">b</span>' in page
    assert '<span title="id 233 155 168">雨</span>' in page


def test_page_marks_special_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    assert run("tokenize", "a.txt", "-o", "tokens", "--eos", "<eos>").exit_code == 0
    page = make_without_pictures("tokens")
    assert '<span title="id 258" class="special">&lt;eos&gt;</span>' in page


@pytest.mark.usefixtures("work")
def test_page_is_the_same_again_and_replaces_the_file() -> None:
    first = make("varlen")
    Path("varlen.html").write_text(make("packed"))
    assert make("varlen") == first


@pytest.mark.usefixtures("work")
def test_page_without_the_token_store_says_so() -> None:
    Path("tokens").rename("moved")
    page = make_without_pictures("packed")
    assert "unknown source" in page
    assert "the token store is missing, changed or damaged" in page


def test_page_shows_some_of_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(batch_rows, "MAX_BATCHES", 5)
    monkeypatch.setattr(batch_rows, "MAX_WORST", 2)
    (tmp_path / "a.txt").write_text("a\n" * 86 + "a\naa\n" + "a\n" * 52 + "a\naaa\n" + "a\n" * 58)
    run("tokenize", "a.txt", "-o", "tokens")
    run("pack", "tokens", "-o", "shards", "--batch-size", 2, "--order", "none")
    page = make_without_pictures("shards")
    shown = re.findall(r"<tr><td[^>]*>(.*?)</td>", page)
    assert shown == ["0", "25", "43", "50", "70", "74", "99"]
    assert (
        "7 of 100 batches: an even sample, and the ones that would have the most padding." in page
    )
    assert len(read_rows(page)) == 40


@pytest.mark.usefixtures("work")
def test_page_of_split_sequences_says_so() -> None:
    page = make_without_pictures("varlen")
    assert "<dt>lengths of pieces</dt>" in page
    headings = [heading for heading, _ in read_rows(page)]
    assert any(heading.endswith("sequence 5 from token 150: 150 tokens") for heading in headings)


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("name", ["packed", "padded", "varlen", "equal", "streams", "tokens"])
@pytest.mark.parametrize("limit", [3, 1000])
def test_places_are_those_of_the_rows(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    monkeypatch.setattr(places_module, "MAX_SEQUENCES", limit)
    store = open_store("tokens")
    opened = store if name == "tokens" else open_shards(name)
    places = collect_places(opened, store)
    assert (places["num_sequences"], places["num_sent"]) == (10, min(limit, 10))

    def decode(key: str) -> list[int]:
        raw = base64.b64decode(places[key])
        return [
            int.from_bytes(raw[at : at + 4], "little", signed=True) for at in range(0, len(raw), 4)
        ]

    expected: dict[int, tuple[int, int, int]] = defaultdict(lambda: (-1, -1, -1))
    for number, batch in enumerate(opened if name != "tokens" else []):
        rows = getattr(batch, "row_indices", None)
        for entry, index in enumerate(batch.original_indices.tolist()):
            row = entry if rows is None else int(rows[entry])
            before, starts = expected[index], batch.piece_starts
            is_first = starts is None or starts[entry] == 0
            place = (number, row) if is_first else before[:2]
            expected[index] = (*place, max(before[2], 0) + int(batch.lengths[entry]))
    for index in range(places["num_sent"]):
        assert decode("documents")[index] == store.locate(index).document
        if name == "tokens":
            assert decode("lengths")[index] == len(store[index])
        else:
            keys = [key for key in ("batches", "rows", "lengths") if key in places]
            found = dict(zip(("batches", "rows", "lengths"), expected[index], strict=True))
            assert {key: decode(key)[index] for key in keys} == {key: found[key] for key in keys}
            assert ("rows" in places) == (name != "varlen")  # whose batches are one row
            num_pieces = sum((batch.original_indices == index).sum() for batch in opened)
            assert ("pieces" in places) == (
                name == "streams" or (name in ("varlen", "equal") and limit > 5)
            )
            if "pieces" in places:
                assert decode("pieces")[index] == num_pieces
    assert places["sources"] == [["a <b> & 'c'.txt", 0], ["b.txt", 8]]


@pytest.mark.usefixtures("work")
def test_page_shows_streams_as_columns_with_their_resets() -> None:
    shards = open_shards("streams")
    cells = make_batch_cells(shards, 0)
    assert cells["streams"] == [f"stream {number}" for number in range(4)]
    found = {(step, cell["label"]) for step, row in enumerate(cells["steps"]) for cell in row}
    batch = shards[0]
    assert found >= {(step, f"id {batch.data[4 * step]}") for step in range(4)}  # "ab" is ASCII
    spans = [sum(cell["span"] for row in cells["steps"] for cell in row)]
    assert spans == [20 * 4]  # each cell of [T, B] once
    begins = sum("begin" in cell["classes"] for row in cells["steps"] for cell in row)
    assert begins == int(batch.resets.sum())
    assert [cell["classes"].split()[-1] for cell in make_batch_cells(shards, 1)["steps"][0]] == [
        "kept" if not reset else "begin"
        for reset in shards[1].resets[shards[1].first_steps == 0].tolist()
    ]
    page = make_without_pictures("streams")
    table = page.split('<table class="streams">')[1].split("</table>")[0]
    assert table.count("<th>") + table.count("<th ") == 1 + 4 + 20


@pytest.mark.usefixtures("work")
def test_page_shows_shared_rows_with_their_padding() -> None:
    (batch,) = open_shards("equal")
    (first, last) = make_batch_cells(open_shards("equal"), 0)["rows"]
    num_hidden = 240 - int(batch.lengths[batch.row_indices == 1].sum())
    assert last[-1] == {
        "text": f"padding x {num_hidden}",
        "label": f"{num_hidden} cells of padding",
        "tags": "",
        "classes": "pad",
    }
    assert sum("begin" in cell["classes"] for cell in first) == 6  # of those in the first columns
    section = make_without_pictures("equal").split('<section id="cells">')[1].split("</section>")[0]
    assert "2 rows x 450 cells, the first 240 columns." in section


@needs_browser
@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        pytest.param(
            "packed",
            "2",
            f"sequence 2 · batch 0 · row 1 · {len(EVIL)} tokens · document 3 · a <b> & 'c'.txt, "
            "record 4 · shown below",
            marks=pytest.mark.slow,
        ),
        ("packed", "6", "sequence 6 · not in these shards: dropped"),
        pytest.param(
            "packed",
            "1,000",
            "no sequence 1,000: there are 10, counted from 0",
            marks=pytest.mark.slow,
        ),
        ("packed", EVIL, "enter the index of a sequence: 0, 1, 2, …"),
        pytest.param(
            "tokens",
            "8",
            "sequence 8 · 3 tokens · document 9 · b.txt, record 2 · shown below",
            marks=pytest.mark.slow,
        ),
        ("varlen", "5", "sequence 5 · split into 3 pieces, the first in · batch "),
        pytest.param(
            "packed",
            "%",
            "enter the index of a sequence: 0, 1, 2, …",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_search_in_a_browser(work: Path, name: str, asked: str, expected: str) -> None:
    make(name)
    fragment = asked if asked == "%" else quote(asked)
    page, complaints = open_page(work / f"{name}.html", f"#sequence={fragment}", folder=work)
    assert complaints == []
    (result,) = re.findall(r'<p id="search-result".*?>(.*?)</p>', page, re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", "", result))
    assert text.startswith(expected), text
    assert "owned" not in re.findall(r"<title>.*?</title>", page)[0]


@needs_browser
def test_a_page_of_many_sequences_names_the_command(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_module, "MAX_SEQUENCES", 4)
    make("packed")
    page, complaints = open_page(work / "packed.html", "#sequence=7", folder=work)
    assert complaints == []
    assert "not in this page, which has the first 4" in page


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("-q x", "seqpack inspect './-q x'"),
        ("it's", "seqpack inspect 'it'\"'\"'s'"),
        ("a\nb", None),
    ],
)
def test_a_page_names_only_a_command_that_can_be_typed(folder: str, expected: str | None) -> None:
    Path("packed").rename(folder)
    assert run("inspect", "--html", "a.html", "--", folder).exit_code == 0
    (data,) = re.findall(
        r'<script type="application/json".*?>(.*?)</script>', Path("a.html").read_text(), re.DOTALL
    )
    assert json.loads(data)["command"] == expected


@needs_browser
def test_a_page_in_a_browser_runs_no_other_script(work: Path) -> None:
    page = make("packed")
    Path("evil.html").write_text(
        page.replace("</body>", "<script>document.title='owned'</script></body>")
    )
    shown, complaints = open_page(work / "evil.html", folder=work)
    assert "<title>owned</title>" not in shown
    assert any("Content Security Policy" in line for line in complaints)


@needs_browser
def test_a_table_that_scrolls_shows_it(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("many.txt").write_text("a\n" * 60)
    run("tokenize", "many.txt", "-o", "many-tokens")
    run("pack", "many-tokens", "-o", "many", "--batch-size", 1)
    for name, has_more in (("many", True), ("packed", False)):
        assert ("Scroll inside the table to see more." in make(name)) == has_more
        page, complaints = open_page(work / f"{name}.html", folder=work)
        assert complaints == []
        (classes,) = re.findall(r'<div class="([^"]*)"[^>]*aria-label="Batches"', page)
        assert ("more-below" in classes.split()) == has_more


@needs_browser
def test_a_page_answers_typed_searches_and_sorts_batches(work: Path) -> None:
    page = make("packed")
    driven = """
document.getElementById("search-index").value = " 8 ";
document.querySelector("#search-form button").click();
const typed = document.getElementById("search-result").textContent;
const tokens = document.querySelectorAll("#batches th")[3];
tokens.click();
const body = document.querySelector("#batches tbody");
const listBatches = () => Array.from(body.rows, (row) => row.cells[0].textContent);
const falling = listBatches();
tokens.click();
const rising = listBatches();
document.title = JSON.stringify([typed, location.hash, falling, rising, tokens.ariaSort]);
"""
    own = page.split("<script>")[1].split("</script>")[0]
    changed = own + driven
    digests = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in (own, changed)
    ]
    (work / "driven.html").write_text(page.replace(own, changed).replace(*digests))
    shown, complaints = open_page(work / "driven.html", folder=work)
    assert complaints == []
    (title,) = re.findall(r"<title>(.*?)</title>", shown)
    typed, fragment, falling, rising, order = json.loads(html.unescape(title))
    assert typed.startswith("sequence 8 · batch ")
    assert fragment == "#sequence=%208%20"
    batches = open_shards("packed")
    expected = sorted(range(len(batches)), key=lambda index: -len(batches[index].data))
    assert falling == [str(index) for index in expected]
    assert (rising, order) == (falling[::-1], "ascending")


def test_page_shows_columns_beside_their_rows_and_tokens(work: Path) -> None:
    record = {"text": "ab cd", "label": "<b>", "score": 0.5, "tag": [[0, 2, "</p>"]]}
    (work / "records.jsonl").write_text(json.dumps(record) + "\n")
    keep = [word for name in ("label:class", "score", "tag:tags") for word in ("--keep", name)]
    assert run("tokenize", "records.jsonl", *keep, "-o", "labelled").exit_code == 0
    assert run("pack", "labelled", "-o", "shards").exit_code == 0
    for name in ("labelled", "shards"):
        page = make(name)
        assert "label <b>&#34;&lt;b&gt;&#34;</b> · score <b>0.5</b>" in page
        assert '<span title="id 97, tag &lt;/p&gt;" data-tags="&lt;/p&gt;">a</span>' in page
        assert '<span title="id 32">' in page  # the space has no tag
        pictures = re.findall(r'<figure id="picture-([^"]*)"', page)
        assert pictures[-3:] == ["column-0", "column-1", "column-2"]


@pytest.mark.usefixtures("work")
def test_page_marks_targets_and_warns() -> None:
    make_targets()
    for name in ("store", "shards"):
        page = make_page(name)
        assert '<p class="warning"><b>no special token is a target' in page
        assert "<dt>targets</dt><dd>5 tokens" in page
        assert "<dt>completion field</dt><dd>a</dd>" in page
        assert '<span title="id 98">b</span>' in page
        assert '<span title="id 99, target" class="all">c</span>' in page
        assert '<span title="id 60, target" class="all">&lt;</span>' in page
        assert '<span title="id 233 155 168, target" class="all">雨</span>' in page
        assert "Targets</span> are underlined" in page
    headings = {heading.partition("row 0, ")[2] for heading, _ in read_rows(page)}
    assert headings == {
        "sequence 0: 4 tokens, 2 targets (50.00%)",
        "sequence 1: 4 tokens, 3 targets (75.00%)",
    }
    assert page.count('class="all"') == 1 + 3  # in the legend; 雨 is one piece of three ids
    section = page.split('<section id="batches">')[1].split("</section>")[0]
    assert re.findall(r"<th>(.*?)</th>", section)[3:5] == ["tokens", "targets"]
    assert "Targets" not in make_without_pictures("tokens")


@needs_browser
def test_a_page_with_targets_is_shown_without_complaints(work: Path) -> None:
    make_targets()
    make_page("shards")
    shown, complaints = open_page(work / "shards.html", fragment="#sequence=0", folder=work)
    assert complaints == []
    assert shown.count('class="all"') == 4


def make_targets() -> None:
    """Write a store of prompts and completions, and its shards."""
    lines = [{"q": "ab", "a": "c<"}, {"q": "d", "a": "雨"}, {"q": "only a prompt", "a": ""}]
    Path("qa.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fields = ("--prompt-field", "q", "--completion-field", "a")
    assert run("tokenize", "qa.jsonl", *fields, "-o", "store").exit_code == 0
    assert run("pack", "store", "-o", "shards", "--batch-size", 1).exit_code == 0


def make_page(name: str) -> str:
    """Write a page; its warnings are on stderr too."""
    result = run("inspect", name, "--html", f"{name}.html")
    assert (result.exit_code, result.stderr.count("warning: ")) == (0, 1)
    return Path(f"{name}.html").read_text()
