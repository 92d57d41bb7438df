"""The pictures of `inspect --plot`: what they draw, not their pixels."""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command import run
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from shard_reference import change_shard, make_store

from seqpack_cli import open_shards, open_store
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.reporting.contents import measure_batches
from seqpack_cli.reporting.pictures import panels as panels_module
from seqpack_cli.reporting.pictures.batch_panel import make_batch_panel
from seqpack_cli.reporting.pictures.column_panel import make_column_panels
from seqpack_cli.reporting.pictures.length_panel import make_length_panel
from seqpack_cli.reporting.pictures.padding_panel import MAX_STEPS, make_padding_panel
from seqpack_cli.reporting.pictures.panels import choose_batch, make_panels
from seqpack_cli.reporting.pictures.picture import Panel, draw_svg, save_picture
from seqpack_cli.shards.packed import pack_sequence
from seqpack_cli.shards.padded import pad_sequence

SVG = "{http://www.w3.org/2000/svg}"
LENGTHS = [9, 7, 7, 5, 4, 4, 4, 3, 2, 1, 1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store and shards of every kind, named as they are in a working folder."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "a.txt").write_text("".join("x" * length + "\n" for length in LENGTHS))
        assert run("tokenize", "a.txt", "-o", "tokens").exit_code == 0
        for name, *options in (
            ("packed", "--batch-size", 4),
            ("padded", "--batch-size", 4, "--layout", "padded", "--last-batch", "pad"),
            ("left", "--batch-size", 4, "--layout", "padded", "--padding-side", "left"),
            ("varlen", "--layout", "varlen", "--max-tokens", 12, "--no-shuffle"),
            ("equal", "--layout", "varlen", "--max-tokens", 12, "--batch-size", 3, "--no-shuffle"),
            ("streams", "--layout", "streams", "--max-tokens", 5, "--batch-size", 3),
        ):
            assert run("pack", "tokens", "-o", name, *options).exit_code == 0
    return folder


@pytest.fixture
def work(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draw(panel: Panel) -> Axes:
    axes = Figure().subplots()
    panel.draw(axes)
    return axes


def read_texts(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    return [" ".join("".join(text.itertext()).split()) for text in root.iter(f"{SVG}text")]


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("name", ["packed", "padded", "left", "varlen", "tokens"])
def test_plot_is_an_svg_whose_text_says_what_is_drawn(name: str) -> None:
    result = run("inspect", name, "--plot", "picture.svg")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "picture.svg: written\n"
    texts = read_texts(Path("picture.svg"))
    assert f"Lengths of {len(LENGTHS)} sequences: 1 to 9 tokens, mean 4.3" in texts
    assert {"length in tokens", "sequences", "p50 4", "p90 7", "p99 9"} <= set(texts)
    expected = {
        "packed": "time step t; red line: batch_sizes[t], the number of rows alive at step t",
        "padded": "column",
        "left": "dashed line: all batches, 18.97%",
        "varlen": "Fill of the rows: 97.92%; 1 of 4 rows not full",
        "tokens": "tokens: token store, 11 sequences, 47 tokens",
    }[name]
    if name in ("packed", "padded"):  # small enough for cells
        expected = "small numbers: index in data"
        assert any(expected in text for text in texts), texts
    else:
        assert expected in texts


@pytest.mark.usefixtures("work")
def test_plot_is_a_png_as_wide_as_a_page() -> None:
    assert run("inspect", "packed", "--plot", "picture.PNG", "-q").exit_code == 0
    data = Path("picture.PNG").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height > 600) == (1350, True)


@pytest.mark.usefixtures("work")
def test_plot_gives_the_same_bytes_again_and_replaces_the_file() -> None:
    first = {}
    for suffix in ("svg", "png"):
        path = Path(f"picture.{suffix}")
        assert run("inspect", "varlen", "--plot", path, "-q").exit_code == 0
        first[path] = path.read_bytes()
        path.write_bytes(first[path][:-1])
        assert run("inspect", "varlen", "--plot", path, "-q").exit_code == 0
        assert path.read_bytes() == first[path]
    assert b"<dc:date>" not in first[Path("picture.svg")]


@pytest.mark.usefixtures("work")
def test_plot_beside_json_prints_the_json_alone() -> None:
    plain = run("inspect", "packed", "--json").stdout
    assert run("inspect", "packed", "--json", "--plot", "picture.svg").stdout == plain
    assert Path("picture.svg").exists()


@pytest.mark.parametrize("lengths", [[5], [3, 3, 3], [9, 4, 1], [40, 30, 30, 2, 1, 1]])
def test_batch_panel_of_packed_draws_each_row_and_batch_sizes(lengths: list[int]) -> None:
    batch = pack_sequence([np.arange(length) for length in lengths])
    axes = draw(make_batch_panel(batch, title="Batch 0"))
    assert [bar.get_width() for bar in axes.patches] == lengths
    assert [bar.get_x() for bar in axes.patches] == [0] * len(lengths)
    assert axes.get_xlim() == (0, lengths[0])
    assert axes.get_ylim() == (len(lengths), 0)  # the longest at the top
    (edge,) = axes.get_lines()
    times, alive = (np.asarray(values) for values in edge.get_data())
    for step, expected in enumerate(batch.batch_sizes):
        before = np.flatnonzero(times <= step + 0.5)[-1]
        assert alive[before] == expected == alive[before + 1]
    assert (times[0], times[-1], alive[0], alive[-1]) == (0, lengths[0], len(lengths), 0)


@pytest.mark.parametrize(("side", "starts"), [("right", [0, 0, 0]), ("left", [0, 2, 5])])
def test_batch_panel_of_padded_draws_rows_on_their_side(side: str, starts: list[int]) -> None:
    batch = pad_sequence([np.arange(6), np.arange(4), np.arange(1)], padding_side=side)
    panel = make_batch_panel(batch, title="Batch 3 (padded)")
    assert panel.title == "Batch 3 (padded): 3 rows, 6 columns, 11 tokens, 38.89% padding"
    axes = draw(panel)
    padding, *bars = axes.patches
    assert [(bar.get_x(), bar.get_width()) for bar in bars] == list(
        zip(starts, [6, 4, 1], strict=True)
    )
    assert padding.get_hatch()
    assert axes.get_xlim() == (0, 6)
    assert not axes.get_lines()


def test_batch_panel_shows_tokens_and_their_places_in_data() -> None:
    batch = pack_sequence([np.array([1, 2, 3]), np.array([4])])
    axes = draw(make_batch_panel(batch, title="Batch 0", texts=[["a", "b", "c"], ["d"]]))
    shown = [text.get_text() for text in axes.texts]
    assert shown == ["a", "0", "b", "2", "c", "3", "d", "1"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0\n2", "1\n1", "2\n1"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]


@pytest.mark.parametrize("side", ["right", "left"])
def test_batch_panel_of_many_rows_is_one_shape(side: str) -> None:
    lengths = [9] * 32 + [5] * 32
    batch = pad_sequence([np.zeros(length, int) for length in lengths], padding_side=side)
    _, rows = draw(make_batch_panel(batch, title="Batch 0")).patches
    values, edges, baseline = rows.get_data()
    assert (edges[0], edges[-1], len(edges)) == (0, 64, 65)
    assert (values - baseline).tolist() == lengths
    assert (values if side == "left" else baseline).tolist() == [9 if side == "left" else 0] * 64
    assert rows.get_edgecolor()[3] == 0  # no lines between rows


def test_batch_panel_of_very_many_rows_draws_some() -> None:
    batch = pack_sequence([np.zeros(length, int) for length in range(1000, 0, -1)])
    axes = draw(make_batch_panel(batch, title="Batch 0"))
    values, edges, _ = axes.patches[0].get_data()
    assert len(values) == 256
    assert axes.get_ylim() == (1000, 0)
    assert (values[0], values[-1], edges[-1]) == (1000, 1, 1000)


@pytest.mark.usefixtures("work")
def test_row_panel_shares_rows_among_sequences_and_leaves_room() -> None:
    shards = open_shards("varlen")
    panel = make_panels(shards)[-1]
    axes = draw(panel)
    rooms, rows = axes.collections[::2], axes.collections[1::2]
    assert len(rooms) == len(rows) == len(shards)
    for number, (room, row, batch) in enumerate(zip(rooms, rows, shards, strict=True)):
        (whole,) = room.get_paths()
        corners = whole.get_extents().extents.tolist()
        assert corners == pytest.approx([0, number + 0.1, 12, number + 0.9])
        spans = [path.get_extents().intervalx.tolist() for path in row.get_paths()]
        offsets = batch.cu_seqlens.tolist()
        assert spans == [list(span) for span in pairwise(offsets)]
        assert len({tuple(colour) for colour in row.get_facecolors()}) == min(len(spans), 8)
    assert panel.title == "Rows 0 to 3 of up to 12 tokens: 11 sequences"


@pytest.mark.usefixtures("work")
def test_row_panel_of_streams_has_a_red_line_at_each_reset() -> None:
    shards = open_shards("streams")
    batch = shards[1]
    axes = draw(make_panels(shards, batch=1)[-1])
    lines = [it for it in axes.collections if isinstance(it, LineCollection)]
    assert len(lines) == 3  # one of each stream
    for stream, found in enumerate(lines):
        places = [segment[0].tolist() for segment in found.get_segments()]
        assert places == [[step, stream] for step in np.flatnonzero(batch.is_reset[:, stream])]
    panel = make_panels(shards, batch=len(shards) - 1)[-1]
    assert "hatched: padding; red line: reset of the state" in draw(panel).get_xlabel()
    assert panel.title == "Batch 3: 3 streams x 5 steps, 2 sequences, 2 tokens"


@pytest.mark.usefixtures("work")
def test_numbers_of_batches_are_those_of_the_batches_themselves() -> None:
    for name in ("packed", "padded", "left", "varlen", "equal", "streams"):
        shards = open_shards(name)
        numbers = measure_batches(shards)
        for index, batch in enumerate(shards):
            assert numbers.num_rows[index] == len(batch.lengths)
            assert numbers.num_tokens[index] == batch.lengths.sum()
            assert numbers.longest[index] == batch.lengths.max()
            if shards.layout == "packed":
                num_cells = len(batch.lengths) * batch.lengths[0]
            else:
                num_cells = 12 if name == "varlen" else batch.data.size
            assert numbers.num_cells[index] == num_cells
        if name not in ("packed", "varlen"):
            shown = json.loads(run("inspect", name, "--json").stdout)
            assert round(numbers.padding_ratio, 6) == shown["padding_ratio"]


def make_table(num_tokens: np.ndarray, **columns: np.ndarray) -> BatchTable:
    """Make a table of batches of one row each, but for other columns that are given."""
    table = BatchTable.of_batches(num_tokens, np.arange(len(num_tokens) + 1))
    return replace(table, **columns)


def make_numbers(ratios: np.ndarray) -> BatchTable:
    num_tokens = ((1 - ratios) * 1000).round().astype(int)
    return make_table(num_tokens, num_cells=np.full(len(ratios), 1000))


def test_padding_panel_draws_the_ratio_of_each_batch_and_of_all() -> None:
    ratios = np.array([0.5, 0.25, 0.0])
    panel = make_padding_panel(make_numbers(ratios), "padded")
    axes = draw(panel)
    assert panel.title == "Padding by batch: 25.00% of all cells"
    values, edges, _ = axes.patches[0].get_data()
    assert (values.tolist(), edges.tolist()) == ([0.5, 0.25, 0.0], [0, 1, 2, 3])
    assert axes.get_ylim() == (0, pytest.approx(0.55))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2"]
    assert axes.get_xticks().tolist() == [0.5, 1.5, 2.5]  # the middle of each
    assert axes.get_lines()[0].get_ydata()[0] == 0.25


def test_padding_panel_of_many_batches_draws_means() -> None:
    ratios = np.linspace(0, 1, 1001)
    numbers = make_numbers(ratios)
    numbers.num_cells[1], numbers.num_tokens[1] = 10_000, 1_000  # a large batch weighs more
    axes = draw(make_padding_panel(numbers, "padded"))
    (worst, _, _), (values, edges, _) = (patch.get_data() for patch in axes.patches)
    assert len(values) <= MAX_STEPS
    assert (edges[0], edges[-1]) == (0, 1001)
    assert values[0] == pytest.approx(1 - numbers.num_tokens[:3].sum() / 12_000)
    assert worst[0] == pytest.approx(0.9)
    assert axes.get_xlabel() == "batch (3 batches per step; pale line: the worst of them)"


def draw_lengths(lengths: list[int]) -> Axes:
    return draw(make_length_panel(np.array(lengths), what=f"{len(lengths)} sequences"))


@pytest.mark.parametrize(
    "lengths", [[1], [7, 7], list(range(1, 100)), [1, 5, 70_000], [63, 64], [1, 2048, 2048]]
)
def test_length_panel_counts_every_sequence(lengths: list[int]) -> None:
    axes = draw_lengths(lengths)
    assert sum(bar.get_height() for bar in axes.patches) == len(lengths)
    low, high = axes.get_xlim()
    assert low < max(lengths) + 0.5 and high > max(lengths)
    assert high < 1.5 * max(lengths) + 1  # the axis ends where the lengths do
    for bar in axes.patches:
        assert low <= bar.get_x() and bar.get_x() + bar.get_width() <= high
    labels = [text.get_text() for text in axes.texts if text.get_text().startswith("p")]
    assert labels[-1].endswith(f"p99 {max(lengths):,}")


def test_length_panel_numbers_few_bars_and_joins_equal_percentiles() -> None:
    axes = draw_lengths([50] * 500)
    assert [text.get_text() for text in axes.texts] == ["500", "p50 = p90 = p99 50"]
    axes = draw_lengths([1, 100, 100, 100])
    assert [text.get_text() for text in axes.texts[:7]] == ["1", "", "", "", "", "", "3"]
    assert len(draw_lengths(list(range(100, 160))).texts) == 3  # 48 bars have no room for numbers


@pytest.mark.parametrize(
    "lengths",
    [
        [1],
        [50] * 500,
        [1, 5, 70_000],
        [63, 64],
        [1, 2048, 2048],
        [33] * 50 + [34] * 40 + [35] * 9 + [256],
        [*range(1, 60), *[1000] * 60, 1001, 1002],
        [1] * 99 + [1000] * 60 + [1010] * 9,
        [1] * 400 + [480] * 500 + [520] * 99 + [1000] * 10,
        [1] * 60 + [900] * 100_000 + [1000] * 30_000 + [1024] * 3_000,
        [10] * 5 + [11] * 4 + [12] + [1000],
    ],
)
def test_lines_of_percentiles_cross_no_label(lengths: list[int]) -> None:
    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots()
    make_length_panel(np.array(lengths), what=f"{len(lengths)} sequences").draw(axes)
    figure.draw_without_rendering()
    texts = [text.get_window_extent() for text in axes.texts if text.get_text()]
    for line in axes.get_lines():
        drawn = line.get_window_extent()
        assert drawn.height > 0
        assert not [text for text in texts if text.overlaps(drawn)]
    for number, text in enumerate(texts):
        assert not [other for other in texts[:number] if text.overlaps(other)]
        assert axes.bbox.x0 - 1 <= text.x0 and text.x1 <= axes.bbox.x1 + 1


@pytest.mark.parametrize("lengths", [[50] * 3, [1], [7, 8], [1, 70_000]])
def test_ticks_of_lengths_are_whole_and_different(lengths: list[int]) -> None:
    axes = draw_lengths(lengths)
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        inside = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
        shown = axis.get_major_formatter().format_ticks(inside)
        assert len(set(shown)) == len(shown)
        assert all(tick == int(tick) for tick in inside)
        assert len(shown) <= 13


@pytest.mark.usefixtures("work")
def test_plan_picture_has_a_bar_for_each_way() -> None:
    compared = json.loads(run("plan", "tokens", "--json").stdout)
    assert run("plan", "tokens", "--plot", "plan.svg", "-q").exit_code == 0
    texts = read_texts(Path("plan.svg"))
    for plan in compared["plans"]:
        assert plan["options"].removeprefix("--layout ") in texts
        batches = f"{plan['num_batches']:,} batch{'es' * (plan['num_batches'] > 1)}"
        said = f"{plan['padding_ratio']:.2%}, {batches} of up to {plan['most_cells']:,} cells"
        assert said in texts or f"{said} *" in texts, said
    assert sum(text.endswith(" *") for text in texts) == 1
    (panel,) = panels_module.make_plan_panels(compared)
    axes = draw(panel)
    assert [bar.get_width() for bar in axes.patches] == [
        plan["padding_ratio"] for plan in compared["plans"]
    ]
    assert axes.get_xlim() == (0, 1)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 0.55, 0.97])
def test_numbers_of_the_plan_picture_stay_on_its_axis(ratio: float) -> None:
    plan = {"options": "--layout padded --batch-size 64", "padding_ratio": ratio}
    plan |= {"num_batches": 1_234_567, "most_cells": 2_147_483_647}
    figure = Figure(figsize=(9, 2), layout="constrained")
    axes = figure.subplots()
    (panel,) = panels_module.make_plan_panels({"plans": [plan]})
    panel.draw(axes)
    figure.draw_without_rendering()
    (text,) = (text.get_window_extent() for text in axes.texts)
    assert axes.bbox.x0 <= text.x0 and text.x1 <= axes.bbox.x1


def test_the_batch_shown_is_a_usual_one() -> None:
    num_rows = np.array([2, 4, 4, 4, 1])
    longest = np.array([90, 80, 30, 20, 10])
    assert choose_batch(make_table(longest, num_rows=num_rows)) == 2
    num_rows, longest = np.array([1, 900, 20, 21, 22]), np.array([9, 1, 8, 7, 6])
    assert choose_batch(make_table(longest, num_rows=num_rows)) == 3


@pytest.mark.usefixtures("work")
def test_plot_of_one_batch_shows_that_one() -> None:
    assert run("inspect", "packed", "--batch", 2, "--plot", "one.svg", "-q").exit_code == 0
    texts = read_texts(Path("one.svg"))
    assert "Batch 2 (packed): 3 rows, 2 steps, 4 tokens, no padding (padded: 33.33%)" in texts
    assert texts.count("x") == 4
    assert run("inspect", "varlen", "--batch", 1, "--plot", "one.svg", "-q").exit_code == 0
    texts = read_texts(Path("one.svg"))
    assert any(text.startswith("Row 1 of up to 12 tokens") for text in texts)


def test_tokens_that_are_parts_of_a_character_are_shown_as_ids(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["aé"])
    assert run("pack", store, "-o", tmp_path / "shards", "-q").exit_code == 0
    panel = make_panels(open_shards(tmp_path / "shards"), batch=0)[0]
    assert [text.get_text() for text in draw(panel).texts][::2] == ["a", "195", "169"]


def test_svg_in_a_page_has_its_own_ids() -> None:
    panel = make_length_panel(np.array([1, 2, 3]), what="3 sequences")
    other = Panel("other", panel.title, panel.draw)
    first, second = draw_svg(panel), draw_svg(other)
    assert first.startswith("<svg ") and "<!DOCTYPE" not in first
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in (first, second)]
    assert ids[0] and not ids[0] & ids[1]
    used = set(re.findall(r"url\(#([^)]+)\)", first)) | set(re.findall(r'href="#([^"]+)"', first))
    assert used and used <= ids[0]


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--plot", "a.pdf"], 2, "a.pdf: suffix '.pdf', expected .png or .svg"),
        (["--plot", "a"], 2, "a: suffix '', expected .png or .svg"),
        (["--html", "a.svg"], 2, "a.svg: suffix '.svg', expected .html or .htm"),
        (["--plot", "none/a.svg"], 4, "none: no such folder"),
        (["--plot", "a.svg", "--sequence", 0], 2, "--plot does not support --sequence"),
        (["--html", "a.html", "--batch", 0], 2, "--html does not support --batch"),
        (["--plot", "a.svg", "--batch", 9], 2, "--batch 9: packed has batches 0 to 2"),
    ],
)
def test_plot_refuses(arguments: list[object], code: int, message: str) -> None:
    before = sorted(Path().iterdir())
    result = run("inspect", "packed", *arguments)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert sorted(Path().iterdir()) == before


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(("option", "missing"), [("plot", "matplotlib"), ("html", "jinja2")])
def test_a_missing_package_is_named_before_any_work(
    monkeypatch: pytest.MonkeyPatch, option: str, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    suffix = {"plot": "svg", "html": "html"}[option]
    result = run("inspect", "none", f"--{option}", f"a.{suffix}")
    assert result.exit_code == 5
    assert result.stderr == (f"Error: {missing} is not installed\n\nhint: pip install {missing}\n")


@pytest.mark.usefixtures("work")
def test_inspect_without_a_picture_loads_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)
    for arguments in (
        ["inspect", "packed"],
        ["inspect", "packed", "--batch", 0],
        ["plan", "tokens"],
    ):
        assert run(*arguments).exit_code == 0


def test_lengths_that_are_none_are_an_error(work: Path) -> None:
    change_shard(work / "packed", lambda arrays: arrays["lengths"].put(-1, -5))
    result = run("inspect", "packed", "--plot", "a.svg")
    assert (result.exit_code, result.stdout) == (4, "")
    assert not Path("a.svg").exists()


def test_panels_of_a_store_and_of_its_shards_count_the_same(work: Path) -> None:
    store, shards = open_store(work / "tokens"), open_shards(work / "packed")
    titles = {make_panels(opened)[0].title for opened in (store, shards)}
    assert titles == {f"Lengths of {len(LENGTHS)} sequences: 1 to 9 tokens, mean 4.3"}


@pytest.mark.usefixtures("work")
def test_pieces_are_not_called_sequences() -> None:
    assert (
        run("pack", "tokens", "-o", "split", "--layout", "varlen", "--max-tokens", 4).exit_code == 0
    )
    shards = open_shards("split")
    num_pieces = sum(len(batch.lengths) for batch in shards)
    panel = make_panels(shards)[0]
    assert panel.title.startswith(f"Lengths of {num_pieces} pieces of sequences: 1 to 4 tokens")
    assert draw(panel).get_ylabel() == "pieces"
    assert "\nlengths of pieces  1 to 4 tokens, " in run("inspect", "split").stdout


@pytest.mark.usefixtures("work")
def test_filler_rows_are_named_and_crossed() -> None:
    panel = make_panels(open_shards("padded"), batch=2)[0]
    expected = "Batch 2 (padded): 4 rows (1 filler row), 2 columns, 4 tokens, 50.00% padding"
    assert panel.title == expected
    hatches = [patch.get_hatch() for patch in draw(panel).patches]
    assert hatches[:2] == ["////", "xxx"]


def test_a_png_needs_no_other_fonts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    panel = make_length_panel(np.array([1, 2]), what="2 sequences")
    save_picture(tmp_path / "picture.png", "雨が降る", [panel])
    assert capfd.readouterr().err == ""  # matplotlib complains there of fonts that it misses


def make_classes(num_classes: int) -> dict[str, object]:
    classes = [{"name": f"c{n}", "count": 100 - n, "share": 0.1} for n in range(num_classes)]
    counts = {"num_classes": num_classes, "num_unused_classes": 0}
    return {"name": "$label", "kind": "class", "unit": "rows", **counts, "classes": classes}


def make_numbers_column(values: list[float]) -> dict[str, object]:
    spans = [*pairwise(values)]
    bins = [{"from": first, "to": last, "count": 1} for first, last in spans]
    ends = {"smallest": values[0], "mean": values[0], "largest": values[-1]}
    return {"name": "n", "kind": "float", "unit": "rows", **ends, "histogram": bins}


def test_class_panel_sums_the_classes_that_have_no_bar() -> None:
    (panel,) = make_column_panels([make_classes(13)])
    axes = draw(panel)
    assert [label.get_text() for label in axes.get_yticklabels()][-2:] == ['"c9"', "3 more classes"]
    assert [bar.get_width() for bar in axes.patches][-2:] == [91, 90 + 89 + 88]


@pytest.mark.parametrize(
    "values", [[-1.7e308, 0.0, 1.7e308], [-(2**63), 5, 2**63 - 1], [0, 5e-324]]
)
def test_number_panel_of_any_numbers_has_a_bar_for_each_bin(values: list[float]) -> None:
    (panel,) = make_column_panels([make_numbers_column(values)])
    assert [bar.get_height() for bar in draw(panel).patches] == [1] * (len(values) - 1)


def test_target_panel_has_a_bar_for_each_tenth() -> None:
    bins = [{"from": n / 10, "to": (n + 1) / 10, "count": n % 3} for n in range(10)]
    column = {"name": "targets", "kind": "targets", "unit": "tokens", "row": "row"}
    (panel,) = make_column_panels([{**column, "share": 0.25, "shares": bins}])
    assert panel.title == "targets: 25.00% of the tokens; share per row"
    axes = draw(panel)
    assert [bar.get_height() for bar in axes.patches] == [n % 3 for n in range(10)]
    assert axes.get_xticklabels()[-1].get_text() == "90%\nto 100%"
    assert axes.get_ylabel() == "rows"


def test_at_most_four_columns_are_drawn_and_the_others_counted() -> None:
    text = {"name": "id", "kind": "text", "unit": "rows", "example": None}
    panels = make_column_panels([make_classes(2)] * 5 + [text])
    assert len(panels) == 4
    assert panels[-1].title == "$label: 2 classes (2 more columns not drawn)"
