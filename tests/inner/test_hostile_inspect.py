"""Stores and shards of a stranger, and odd ones of one's own, before every question of `inspect`.

Whatever they hold, the answer is right or a clear refusal: never a traceback, a line that moves the
cursor, an SVG that is no XML, or an element in the page that is not its own. Random cases are in
test_fuzz, by the uses of `fuzz_uses.REPORT_USES`.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import matplotlib
import pytest
from blake3 import blake3
from browser import find_browser, open_page
from click.testing import Result
from command import run
from fuzz_guard import limited
from fuzz_uses import check_output, check_page
from here import HERE
from shard_reference import (
    Arrays,
    change_manifest,
    change_shard,
    flip_byte,
    make_shards,
    make_store,
    pretend_to_be_of,
)

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import SeqpackError
from seqpack_cli.reporting.contents import describe
from seqpack_cli.reporting.page import page as page_module
from seqpack_cli.reporting.page.page import make_page
from seqpack_cli.reporting.pictures.panels import make_panels
from seqpack_cli.reporting.pictures.picture import draw_svg
from seqpack_cli.reporting.wording import WIDTH, count_columns
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_any

assert jinja2 and matplotlib  # what pictures and the page are made with

LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {},
    "filler": {"layout": "padded", "last_batch": "pad"},
    "varlen": {"layout": "varlen", "max_tokens": 20},
}
EVIL = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>"\'--><b>'
CONTROLS = "".join(map(chr, [*range(32), *range(127, 160), 0x202E, 0x2028, 0xFFFE]))
QUESTIONS: tuple[tuple[object, ...], ...] = (
    ("inspect", "this"),
    ("inspect", "this", "--batch", 0),
    ("inspect", "this", "--sequence", 0),
    ("inspect", "this", "--vocabulary"),
    ("plan", "this"),
    ("diff", "this", "good"),
    ("diff", "good", "this"),
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MAX_OUTPUT = 100_000  # characters on a terminal


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of store and shards for each layout; nothing changes them."""
    folder = tmp_path_factory.mktemp("good")
    for name, options in LAYOUTS.items():
        make_shards(folder / name, **options)
    return folder


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies the good store and shards of a layout, to be damaged."""
    return lambda name: shutil.copytree(good / name, tmp_path / name)


@pytest.fixture(autouse=True, scope="module")
def one_environment() -> Iterator[None]:
    """Compile the page's template once, which takes longer than all the rest of a page."""
    with pytest.MonkeyPatch.context() as patch:
        opened = functools.lru_cache(page_module._open_environment)
        patch.setattr(page_module, "_open_environment", opened)
        yield


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Nothing of numpy or matplotlib may be printed beside an answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def ask_all(folder: Path, other: Path, *, seconds: float = 30) -> dict[str, int]:
    """Ask everything of a folder, and as the other side of a comparison; give the exit codes."""
    codes = {}
    with limited(seconds=seconds):
        for question in QUESTIONS:
            words = [{"this": folder, "good": other}.get(str(word), word) for word in question]
            for as_json in (False, True):
                result = run(*words, *["--json"] * as_json)
                check_answer(result, as_json=as_json)
                codes[" ".join(map(str, question))] = result.exit_code
        codes["page"] = make_all(folder)
    return codes


def make_all(folder: Path) -> int:
    """Make panels, which are not drawn, and the page without them; give the exit code."""
    try:
        opened = open_any(folder)
        make_panels(opened)
        check_page(make_page(opened, describe(opened), []))
    except SeqpackError as error:
        check_output(str(error), as_json=False)
        return error.exit_code
    return 0


def draw(folder: Path, *question: object) -> Result:
    """Draw what `--plot` does, about 0.3 s a panel."""
    svg = folder.parent / "x.svg"
    result = run("inspect", folder, *question, "--plot", svg)
    check_output(result.stdout, as_json=False)
    if result.exit_code == 0:
        ElementTree.fromstring(svg.read_bytes())
    assert svg.exists() == (result.exit_code == 0)
    assert not [entry for entry in folder.parent.iterdir() if entry.name.startswith(".x")]
    return result


def check_answer(result: Result, *, as_json: bool) -> None:
    """Check the answer, or the refusal."""
    assert result.exit_code in (0, 2, 3, 4), result.stderr
    if result.exit_code:
        assert not result.stdout
        assert result.stderr.startswith("Error: ")
        check_output(result.stderr, as_json=False)
        return
    check_output(result.stdout, as_json=as_json)
    if not as_json:
        assert len(result.stdout) < MAX_OUTPUT
        assert max(map(count_columns, result.stdout.splitlines())) <= WIDTH


def put(name: str, value: object, where: object = slice(None)) -> Callable[[Arrays], object]:
    return lambda arrays: arrays[name].__setitem__(where, value)


ARRAYS: dict[str, tuple[Callable[[Arrays], object], dict[str, int]]] = {
    "a negative length": (put("lengths", -1, 1), {}),
    "the least length": (put("lengths", -(2**63)), {"longest": 0}),
    "a huge length": (put("lengths", 2**53, 0), {"longest": 2**53}),
    "huge indices": (put("original_indices", 2**63 - 1), {}),
    "one index for all": (put("original_indices", 0), {}),
}


@pytest.mark.parametrize("layout", ["filler", "varlen"])
@pytest.mark.parametrize(("change", "values"), ARRAYS.values(), ids=ARRAYS)
def test_arrays_that_lie_are_refused_or_shown(
    copy: Any,
    good: Path,
    layout: str,
    change: Callable[[Arrays], object],
    values: dict[str, int],
) -> None:
    shards = copy(layout) / "shards"
    change_shard(shards, change, **values)
    ask_all(shards, good / layout / "shards")


@pytest.mark.parametrize("layout", ["filler", "varlen"])
def test_page_of_negative_indices_is_refused_or_made(copy: Any, layout: str) -> None:
    shards = copy(layout) / "shards"
    change_shard(shards, put("original_indices", -5))
    assert make_all(shards) in (0, 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lengths_that_are_all_zero_are_refused_without_a_warning(copy: Any, layout: str) -> None:
    shards = copy(layout) / "shards"
    change_shard(shards, put("lengths", 0), longest=0)
    assert make_all(shards) == 4


@pytest.mark.parametrize("start", [-1, 2**62])
def test_piece_starts_may_be_anything(copy: Any, good: Path, start: int) -> None:
    shards = copy("varlen") / "shards"
    change_shard(shards, put("piece_starts", start))
    ask_all(shards, good / "varlen" / "shards")


@pytest.mark.parametrize("value", [None, 0, True, [], 2**62, 10**4000], ids=lambda v: str(v)[:9])
def test_room_of_varlen_rows_that_pack_does_not_take_is_refused(copy: Any, value: object) -> None:
    shards = copy("varlen") / "shards"
    change_manifest(shards, lambda manifest: manifest["options"].update(max_tokens=value))
    assert run("inspect", shards, "--batch", 0).exit_code == 4
    assert make_all(shards) == draw(shards).exit_code == draw(shards, "--batch", 0).exit_code == 4


def test_room_of_varlen_rows_that_no_row_needs_is_drawn(copy: Any) -> None:
    shards = copy("varlen") / "shards"
    change_manifest(shards, lambda manifest: manifest["options"].update(max_tokens=2**31 - 1))
    assert run("inspect", shards, "--batch", 0).exit_code == 0
    draw(shards, "--batch", 0)
    make_all(shards)


def nest(depth: int) -> Any:
    value: Any = 1
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


MANIFESTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "options of HTML": lambda m: m["options"].update({EVIL: EVIL, "b": {EVIL: [EVIL]}}),
    "options of controls": lambda m: m["options"].update(x=f"{CONTROLS}\ud800", y=[CONTROLS]),
    "huge options": lambda m: m["options"].update(x=10**4200, y=[-(10**300)], z=1e308),
    "long options": lambda m: m["options"].update(x="é" * 50_000, y=["x"] * 1_000),
    "nested options": lambda m: m["options"].update(x=nest(200)),
    "more fields": lambda m: m.update({EVIL: CONTROLS, "\ud800": "\ud800", "x": nest(200)}),
    "more counts": lambda m: m["ledger"].update({EVIL: 5, "\ud800": -9, "x": 10**4000, "y": [1]}),
}


@pytest.mark.parametrize("kind", [pytest.param("store", marks=pytest.mark.slow), "shards"])
@pytest.mark.parametrize("change", MANIFESTS.values(), ids=MANIFESTS)
def test_odd_manifest_is_shown_safely(
    copy: Any, good: Path, kind: str, change: Callable[[dict[str, Any]], object]
) -> None:
    folder = copy("packed")
    change_manifest(folder / kind, change)
    codes = ask_all(folder / kind, good / "packed" / kind)
    assert codes["inspect this"] == (4 if kind == "shards" else 0)


@pytest.mark.parametrize("name", ["\ud800", "\0", "\x1b[2J", "é" * 2_000_000])
def test_name_of_an_option_may_be_anything(copy: Any, name: str) -> None:
    """A lone surrogate cannot be encoded, controls stand in the page as they are."""
    store = copy("packed") / "store"
    change_manifest(store, lambda manifest: manifest["options"].update({name: 1}))
    opened = open_any(store)
    page = make_page(opened, describe(opened), [])
    check_page(page)
    assert len(page) < 1_000_000


SHARDS_FIELDS: dict[str, Callable[[dict[str, Any]], object]] = {
    **{
        f"path {number}": lambda m, path=path: m["stores"][0].update(path=path)
        for number, path in enumerate(("", "../..", "a\0b", "a\nb\x1b[2J", "\ud800", EVIL))
    },
    "no counts": lambda m: m["ledger"].update(num_sequences=0, num_tokens=0, num_batches=0),
    "huge counts": lambda m: m["ledger"].update(
        num_sequences=2**53, num_tokens=2**53, num_batches=2**53, num_padding_cells=2**53
    ),
}


@pytest.mark.parametrize("change", SHARDS_FIELDS.values(), ids=SHARDS_FIELDS)
def test_odd_shards_manifest_is_shown_safely(
    copy: Any,
    good: Path,
    change: Callable[[dict[str, Any]], object],
) -> None:
    shards = copy("packed") / "shards"
    change_manifest(shards, change)
    assert ask_all(shards, good / "packed" / "shards")["inspect this"] == 0


REFUSED: dict[str, Callable[[dict[str, Any]], object]] = {
    **{
        f"bucket keys {number}": lambda m, keys=keys: m.update(bucket_keys=keys)
        for number, keys in enumerate(([], [-1], [10**4200], [5, 5, 3], ["\ud800\x1b"]))
    },
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_odd_shards_manifest_is_refused_safely(
    copy: Any, good: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    shards = copy("packed") / "shards"
    change_manifest(shards, change)
    assert ask_all(shards, good / "packed" / "shards")["inspect this"] == 4


@pytest.mark.parametrize(
    "path",
    [
        f"{EVIL}\n\x1b[2J\ud800",
        "x" * 4000,
        "雨" * 4000,
        "\u202egpj.exe\u2066\u200fאבג",
        "",
        "\ufffe",
    ],
)
def test_path_of_a_source_may_be_anything(copy: Any, good: Path, path: str) -> None:
    folder = copy("packed")
    change_manifest(folder / "store", lambda m: [one.update(path=path) for one in m["sources"]])
    pretend_to_be_of(folder / "shards", folder / "store")
    for kind in ("store", "shards"):
        codes = ask_all(folder / kind, good / "packed" / kind)
        assert {
            codes[f"inspect this{question}"] for question in ("", " --sequence 0", " --vocabulary")
        } == {0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", "雨" * 200_000),
        ("path", "a" + "\u0301" * 200_000),
        ("encoder", "雨" * 500_000),
    ],
)
def test_long_name_is_shown_in_time_and_in_its_line(copy: Any, field: str, value: str) -> None:
    """Each character was looked at though 60 are shown; marks without width filled a line."""
    folder = copy("packed")
    if field == "encoder":
        (folder / "store" / "run.json").write_text(json.dumps({field: value}))
    else:
        change_manifest(folder / "shards", lambda m: m["stores"][0].update({field: value}))
    with limited(seconds=0.4):
        result = run("inspect", folder / ("store" if field == "encoder" else "shards"))
    check_answer(result, as_json=False)


def replace_tokens(folder: Path, tokenizer: dict[str, Any]) -> None:
    """Put another tokenizer into a store and shards, and mend its checksum."""
    raw = json.dumps(tokenizer).encode()
    digest = blake3(raw).hexdigest()
    for kind in ("store", "shards"):
        (folder / kind / "tokenizer.json").write_bytes(raw)
        change_manifest(folder / kind, lambda m: m.update(tokenizer_blake3=digest))


def spell(tokens: dict[str, int], decoder: object = None) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": tokens, "merges": []}
    return {"version": "1.0", "model": model, "decoder": decoder}


def make_letters(folder: Path, texts: list[str], **more: int) -> Path:
    """Make a store and shards of the ids 0 to 25."""
    folder.mkdir()
    tokenizer = folder / "letters.json"
    tokens = {letter: number for number, letter in enumerate(LETTERS)} | more
    tokenizer.write_text(json.dumps(spell(tokens)))
    store = make_store(folder, texts, tokenizer=str(tokenizer))
    pack(store, folder / "shards", PackOptions(batch_size=3), executor=HERE)
    return folder


SPECIAL = "\0|\x1b[2J|\u202e\u05d0|\u200f|</script>|<!--|-->|]]>|&#60;|$x^2$|\\frac|\ufffe|\uffff"
SPECIAL += "|\u2028|e\u0301\u0301|\u0301|\t|\n|\r|\x85|'onload=x|\U000e0001|\ufeff|  | id='x|url(#x"
TOKENS: dict[str, list[str]] = {
    "odd ones": SPECIAL.split("|"),
    "HTML": [f"{EVIL}{number}" for number in range(26)],
    "long ones": [letter * 1_000 for letter in LETTERS],
}
TEXTS = [LETTERS[:9], LETTERS[9:18], LETTERS[18:], "aza", "b"]


@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS)
def test_tokens_of_a_stranger_are_text(tmp_path: Path, tokens: list[str]) -> None:
    folder = make_letters(tmp_path / "x", TEXTS)
    replace_tokens(folder, spell({token: number for number, token in enumerate(tokens)}))
    for kind in ("store", "shards"):
        codes = ask_all(folder / kind, folder / kind)
        assert {
            codes[f"inspect this{question}"] for question in ("", " --sequence 0", " --vocabulary")
        } == {0}
    if tokens[0] != LETTERS[0] * len(tokens[0]):  # those that are short enough for cells
        assert draw(folder / "shards", "--batch", 0).exit_code == 0


def test_row_of_marks_without_width_fits_its_line(tmp_path: Path) -> None:
    folder = make_letters(tmp_path / "x", TEXTS)
    tokens = {f"{letter}{chr(0x301) * 20_000}": n for n, letter in enumerate(LETTERS)}
    replace_tokens(folder, spell(tokens))
    check_answer(run("inspect", folder / "shards", "--batch", 0), as_json=False)


def test_page_of_long_tokens_is_no_gigabyte(tmp_path: Path) -> None:
    """Tokens of 200 characters; of 20,000 the page takes minutes, of a million all memory."""
    folder = make_letters(tmp_path / "x", [LETTERS * 9] * 8)
    replace_tokens(folder, spell({letter * 200: n for n, letter in enumerate(LETTERS)}))
    opened = open_any(folder / "store")
    assert len(make_page(opened, describe(opened), [])) < 200_000


def test_drawing_in_the_page_shows_tokens_as_they_are(tmp_path: Path) -> None:
    """Its ids get a prefix, which what looks like one in a text must not."""
    folder = make_letters(tmp_path / "x", ["abc", "cb", "d"])
    tokens = ["url(#y", 'href="#b', 'q id="w', "zz"]
    more = {letter: number for number, letter in enumerate(LETTERS) if number > 3}
    replace_tokens(folder, spell({token: n for n, token in enumerate(tokens)} | more))
    (panel,) = make_panels(open_any(folder / "shards"), batch=0)
    drawn = draw_svg(panel)
    shown = [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]
    assert set(tokens) <= set(shown)


DECODERS: dict[str, dict[str, Any]] = {
    "fails": {"type": "Strip", "content": "a", "start": 50, "stop": 50},
    "joins": {"type": "Fuse"},
    "drops": {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True},
    "blows up": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10_000},
}


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_decoder_may_fail_or_give_anything(tmp_path: Path, decoder: dict[str, Any]) -> None:
    folder = make_letters(tmp_path / "x", TEXTS)
    tokens = {letter: number for number, letter in enumerate(LETTERS)}
    replace_tokens(folder, spell(tokens, decoder))
    for kind in ("store", "shards"):
        ask_all(folder / kind, folder / kind)


def write_spelled(folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Make a store whose text spells special tokens; give it and what its file says of them."""
    store = make_store(folder, ["a <bos> b", "<eos>", "<bos><pad>"])
    lines = (store / "special_tokens.jsonl").read_text().splitlines()
    return store, [json.loads(line) for line in lines]


Entries = list[dict[str, Any]]
SPELLED: dict[str, Callable[[Entries], object]] = {
    "nothing": lambda entries: entries.clear(),
    "a list": lambda entries: entries and [[]],
    "a token twice": lambda entries: [*entries, entries[0]],
    "a negative count": lambda entries: entries[0].update(count=-1),
    "a huge count": lambda entries: entries[0].update(count=10**30),
    "a true count": lambda entries: entries[0].update(count=True),
    "no places": lambda entries: entries[0].update(places=[]),
    "a place of text": lambda entries: entries[0].update(places=["x"]),
    "many places": lambda entries: entries[0].update(places=entries[0]["places"] * 9),
    "another source": lambda entries: entries[0]["places"][0].update(source=EVIL),
    "record 0": lambda entries: entries[0]["places"][0].update(record=0),
    "a huge record": lambda entries: entries[0]["places"][0].update(record=10**30),
}


@pytest.mark.parametrize("token", [f"\x1b[2J{EVIL}", "\0\ud800", "雨" * 100_000])
def test_special_token_of_a_stranger_is_text(tmp_path: Path, token: str) -> None:
    store, entries = write_spelled(tmp_path)
    entries[0]["token"] = token
    entries.sort(key=lambda entry: str(entry["token"]))
    text = "".join(f"{json.dumps(entry)}\n" for entry in entries)
    (store / "special_tokens.jsonl").write_text(text)
    for words in ((), ("--json",)):
        result = run("inspect", store, "--vocabulary", *words)
        assert result.exit_code == 0
        check_answer(result, as_json=bool(words))
    assert make_all(store) == 0


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_list_of_special_tokens_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    store, _ = write_spelled(tmp_path)
    path = store / "special_tokens.jsonl"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    with limited(seconds=10):
        assert run("inspect", store, "--vocabulary").exit_code == 4


STORES: dict[str, Callable[[Path], object]] = {
    "gone": shutil.rmtree,
    "another": lambda store: [shutil.rmtree(store), make_store(store.parent, ["abcd", "ef"])],
    "without manifest": lambda store: (store / "manifest.json").unlink(),
    "of another index": lambda store: flip_byte(store / "part-00000.idx", 60),
    "of other ids": lambda store: flip_byte(store / "part-00000.bin", 6),
    "cut": lambda store: (store / "part-00000.bin").write_bytes(b""),
    "a file": lambda store: [shutil.rmtree(store), store.write_text("x")],
}


@pytest.mark.parametrize("damage", STORES.values(), ids=STORES)
def test_shards_are_shown_whatever_became_of_their_store(
    copy: Any, good: Path, damage: Callable[[Path], object]
) -> None:
    folder = copy("packed")
    damage(folder / "store")
    codes = ask_all(folder / "shards", good / "packed" / "shards")
    assert codes.pop("plan this") == 4
    assert set(codes.values()) == {0}


def test_link_that_leads_to_itself_is_no_store(copy: Any, good: Path) -> None:
    folder = copy("packed")
    shutil.rmtree(folder / "store")
    (folder / "store").symlink_to(folder / "store")
    codes = ask_all(folder / "shards", good / "packed" / "shards")
    assert {name for name, code in codes.items() if code} == {"plan this"}


def test_store_of_one_token(tmp_path: Path) -> None:
    for name, options in {
        "packed": {"batch_size": 1},
        "padded": {"layout": "padded", "batch_size": 1},
        "varlen": {"layout": "varlen", "max_tokens": 1},
    }.items():
        shards = make_shards(tmp_path / name, [1], **options)
        codes = ask_all(shards, shards)
        assert codes.pop("plan this") == 4
        assert set(codes.values()) == {0}
        assert draw(shards, "--batch", 0).exit_code == 0
    assert draw(shards.parent / "store").exit_code == 0
    codes = ask_all(shards.parent / "store", shards.parent / "store")
    assert {name for name, code in codes.items() if code} == {"inspect this --batch 0"}


def test_lengths_that_are_all_equal(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, [8] * 64, layout="varlen", max_tokens=8)
    for path in (shards, shards.parent / "store"):
        assert ask_all(path, path)["inspect this"] == 0


def test_vocabulary_with_gaps_and_wide_ids(tmp_path: Path) -> None:
    folder = make_letters(tmp_path / "x", TEXTS, last=1_000_000)
    for kind in ("store", "shards"):
        assert ask_all(folder / kind, folder / kind)["inspect this --vocabulary"] == 0
    found = json.loads(run("inspect", folder / "store", "--vocabulary", "--json").stdout)
    assert (found["num_ids"], found["missing"]["num_ids"]) == (27, 1_000_001 - 27)


def test_row_of_many_sequences_is_drawn_as_one_picture(tmp_path: Path) -> None:
    """A row of a million tokens, or twelve of 8,192, takes minutes."""
    shards = make_shards(tmp_path, [2] * 1000, layout="varlen", max_tokens=2000)
    assert draw(shards, "--batch", 0).exit_code == 0
    assert (tmp_path / "x.svg").stat().st_size < 100_000


@pytest.mark.slow
def test_hundred_thousand_batches_and_a_row_of_five_million_tokens(tmp_path: Path) -> None:
    many = make_shards(tmp_path / "many", [3] * 100_000, batch_size=1)
    assert ask_all(many, many, seconds=200)["inspect this"] == draw(many).exit_code == 0
    long = make_shards(tmp_path / "long", [5_000_000, 3, 2], batch_size=2)
    assert ask_all(long, long, seconds=200)["inspect this"] == draw(long).exit_code == 0


NAMES = ['a\x1b[2J\nb<b>$x^2$ "q"\'', "\u05d0\u05d1 \u0915 \u0e01 雨", os.fsdecode(b"\xff")]


@pytest.mark.parametrize("name", [*NAMES, "a\ufffeb"])
def test_folder_of_any_name_is_drawn(copy: Any, name: str) -> None:
    folder = copy("packed")
    try:
        (folder / "shards").rename(folder / name)
    except OSError:
        pytest.skip("the file system takes no such name")
    assert draw(folder / name, "--batch", 0).exit_code == 0
    assert make_all(folder / name) == 0


def test_png_of_any_name_is_drawn_without_a_word(copy: Any) -> None:
    folder = copy("packed")
    (folder / "shards").rename(folder / NAMES[1])
    picture = folder / "x.png"
    assert run("inspect", folder / NAMES[1], "--plot", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("option", ["--plot", "--html"])
def test_file_that_can_not_be_written_is_refused(good: Path, tmp_path: Path, option: str) -> None:
    suffix = ".svg" if option == "--plot" else ".html"
    shards = good / "packed" / "shards"
    (tmp_path / f"folder{suffix}").mkdir()
    for name, code in {
        f"folder{suffix}": 4,
        f"none/x{suffix}": 4,
        "x.txt": 2,
        suffix: 2,
        "x": 2,
    }.items():
        result = run("inspect", shards, option, tmp_path / name)
        assert (result.exit_code, result.stdout) == (code, "")
    assert [entry.name for entry in tmp_path.iterdir()] == [f"folder{suffix}"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_read_only_folder_is_refused(good: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    result = run("inspect", good / "packed" / "shards", "--plot", tmp_path / "x.svg")
    tmp_path.chmod(0o700)
    assert result.exit_code == 5
    assert "Permission denied" in result.stderr


def test_picture_and_page_at_once_beside_json_or_quietly(good: Path, tmp_path: Path) -> None:
    shards, svg, page = good / "packed" / "shards", tmp_path / "x.svg", tmp_path / "x.html"
    svg.touch()
    assert "written" not in run("inspect", shards, "--batch", 0, "--plot", svg, "-q").stdout
    result = run("inspect", shards, "--plot", svg, "--html", page, "--json")
    assert json.loads(result.stdout)["kind"] == "shards"
    ElementTree.fromstring(svg.read_bytes())
    check_page(page.read_text())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["x.html", "x.svg"]


def start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "seqpack_cli", "inspect", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_reader_that_goes_is_no_error(good: Path, tmp_path: Path) -> None:
    """As with `| head -1`."""
    shards = good / "packed" / "shards"
    process = start(shards, "--plot", tmp_path / "x.svg", "--batch", 0)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate()[1] == b""
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]


def test_ctrl_c_leaves_no_file_behind(good: Path, tmp_path: Path) -> None:
    process = start(good / "packed" / "shards", "--html", tmp_path / "x.html")
    maps = Path(f"/proc/{process.pid}/maps")
    if not maps.exists():
        pytest.skip("needs /proc")
    while "ft2font" not in maps.read_text():  # matplotlib is there, the page is being made
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate()
    assert process.returncode == 130
    assert complaint == b"\nInterrupted: run the same command again\n"
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="needs a browser")
def test_browser_runs_nothing_of_a_stranger(tmp_path: Path) -> None:
    folder = make_letters(tmp_path / "x", TEXTS)
    tokens = {f"{EVIL}{number}": number for number in range(26)}
    replace_tokens(folder, spell(tokens))
    change_manifest(
        folder / "store",
        lambda m: [m["options"].update({EVIL: EVIL}), m["sources"][0].update(path=EVIL)],
    )
    pretend_to_be_of(folder / "shards", folder / "store")
    page = folder / "x.html"
    assert run("inspect", folder / "shards", "--html", page).exit_code == 0
    for fragment in ("", "#sequence=1", "#sequence=%", f"#sequence={EVIL}", "#sequence=-1"):
        shown, complaints = open_page(page, fragment, folder=tmp_path)
        assert "owned</title>" not in shown
        assert not complaints, (fragment, complaints)
        if fragment == "#sequence=1":
            assert "record 2" in shown.split('id="search-result"')[1][:1000]


def test_number_beyond_all_is_not_there(good: Path) -> None:
    for path in (good / "packed" / "shards", good / "packed" / "store"):
        for option in ("--batch", "--sequence"):
            for number in (7, 2**31, 2**63, 10**30, "9" * 5000):
                result = run("inspect", path, option, number)
                assert result.exit_code == 2
                check_output(result.stderr, as_json=False)


def test_int32_and_uint16_differ_in_their_facts_alone(tmp_path: Path) -> None:
    narrow = make_letters(tmp_path / "narrow", TEXTS)
    wide = make_letters(tmp_path / "wide", TEXTS, last=1_000_000)
    result = run("diff", narrow / "store", wide / "store", "--json")
    found = json.loads(result.stdout)
    assert found["sequences"]["num_differing"] == 0
    assert {"name": "dtype", "a": "uint16", "b": "int32"} in found["facts"]
