"""Uses of a hostile folder by the commands and the library, one function for each.

A use is a generator: it yields once the folder is open, so that a caller can tell what was refused
on opening from what was refused later. Anything except success and a `SeqpackError` is a finding
and is raised; so is output that cannot be printed, or would move the cursor of a terminal.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click
import numpy as np
from fuzz_lab import open_lab
from fuzz_mutators import NUMBERS, Choices

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import SeqpackError
from seqpack_cli.reporting import contents, rows
from seqpack_cli.runs.workers import Executor
from seqpack_cli.shards.shard_set import ShardSet, open_any, open_shards
from seqpack_cli.shards.unpack import iter_unpacked
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.store import TokenStore, open_store

if TYPE_CHECKING:
    from seqpack_cli.reporting.pictures.picture import Panel
    from seqpack_cli.training.batch_tensors import BatchTensors

Use = Callable[[Path, Choices], Iterator[None]]
PACK_OPTIONS = (
    *({}, {"max_tokens": 16}, {"shuffle": True, "window": 4}),
    {"batch_size": 2, "where": ("@length > 2", "@source = *")},
    *({"layout": "padded"}, {"layout": "padded", "last_batch": "pad", "buckets": "auto"}),
    {"layout": "padded", "buckets": (4, 8, 12), "padding_side": "left", "drop_longer": 9},
    *({"layout": "varlen", "max_tokens": 8}, {"layout": "varlen", "max_tokens": 2**31 - 1}),
    {"layout": "varlen", "max_tokens": 8, "fill": "sequential"},
)
STORE_BATCHES_OPTIONS = tuple(
    {name: value for name, value in options.items() if name != "shuffle"}
    for options in PACK_OPTIONS
)
# Hostile text on a terminal: all of these except the line end would move the cursor or ring.
CONTROL = frozenset(map(chr, [*range(10), *range(11, 32), 127, *range(0x80, 0xA0)]))


class UnprintableTextError(Exception):
    """A message or table contains characters that control a terminal."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one use."""

    use: str
    opened: bool
    error: str | None  # kind and place of a SeqpackError


# Watches each use; the runner sets its limits here.
_guard: list[Callable[[], contextlib.AbstractContextManager[None]]] = [contextlib.nullcontext]


def set_guard(guard: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    """Set what watches every use of this process."""
    _load_fonts()
    _guard[0] = guard


@functools.lru_cache(maxsize=1)
def _load_fonts() -> None:
    """Draw once, so that no watched execution reads or writes matplotlib's font cache."""
    from seqpack_cli.reporting.pictures.panels import make_panels

    for panel in make_panels(open_any(open_lab().stores[0].folder)):
        draw_picture([panel])


def run_use(use: Use, folder: Path, choices: Choices) -> Outcome:
    """Use a folder; every exception but a SeqpackError is a finding and is raised."""
    opened = False
    try:
        with _guard[0]():
            for _ in use(folder, choices):
                opened = True
    except SeqpackError as error:
        check_output(str(error), as_json=False)
        return Outcome(use.__name__, opened, _describe(error))
    return Outcome(use.__name__, opened, None)


def _describe(error: SeqpackError) -> str:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    name = traceback.tb_frame.f_code.co_qualname if traceback is not None else ""
    return f"{type(error).__name__} in {name}"


def read_store(folder: Path, choices: Choices) -> Iterator[None]:
    """Read every sequence and its source, all checksums and the tokenizer."""
    store = open_store(folder)
    yield
    num_ids = 0
    for index, ids in enumerate(store):
        num_ids += len(ids) + 0 * int(ids.sum())
        origin = store.locate(index)
        assert 0 <= origin.piece < origin.num_pieces
    assert num_ids == store.num_tokens
    for name, column in store.columns.items():
        for part in range(len(store.manifest["parts"])):
            json.dumps(column.spell(store.part_column(part, name)), allow_nan=False)
    if choices.one_in(4):
        store.check_digest()
        store.read_tokenizer_json()


def read_batches(folder: Path, choices: Choices) -> Iterator[None]:
    """Read every batch and all its rows; check that the quick way refuses the same batches."""
    shards = open_shards(folder)
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        yield
        unsound = shard.find_unsound()
        for index in range(len(shard)):
            try:
                batch = shard[index]
            except SeqpackError as error:
                assert unsound[index], f"{error}, but not found unsound"
                continue
            assert not unsound[index], f"batch {index} is unsound, but not refused"
            assert sum(len(row) for row in batch.rows()) == int(batch.lengths.sum())
            assert batch.count_padding() >= 0
            for name, column in shards.columns.items():
                values = batch.columns[name]
                flat = values.ravel() if isinstance(values, np.ndarray) else values
                json.dumps(column.spell(flat), allow_nan=False)
    if choices.one_in(4):
        shards.read_tokenizer_json()


def unpack_sequences(folder: Path, choices: Choices) -> Iterator[None]:
    """Read all sequences in the order of the store."""
    del choices
    shards = open_shards(folder)
    yield
    for sequence in iter_unpacked(shards, {}):
        assert sequence.index >= 0
        sequence.ids.sum()


def run_unpack(folder: Path, choices: Choices) -> Iterator[None]:
    """Run `seqpack unpack -o -`, as ids or as text."""
    from seqpack_cli.cli.pack_commands import unpack_command as command

    yield
    kind = choices.choose(("--text", "--ids"))
    text = _run_command(command, folder, "-o", "-", "-q", kind)
    for line in text.split("\n")[:-1]:
        assert json.loads(line)["index"] >= 0


def run_inspect(folder: Path, choices: Choices) -> Iterator[None]:
    """Run `seqpack inspect` in one of its forms."""
    from seqpack_cli.cli.inspect_commands import inspect_command
    from seqpack_cli.cli.pack_commands import plan_command

    as_json = choices.one_in(2)
    number = choices.choose((0, 0, 1, 2, 4, 6, NUMBERS[-1]))
    forms = ("", "", "", "", "--batch", "--batch", "--sequence", "--sequence", "plan")
    form = choices.choose(forms)
    if form != "plan":
        open_any(folder)
        yield
    values = [form, number] if form in ("--batch", "--sequence") else []
    command = plan_command if form == "plan" else inspect_command
    text = _run_command(command, folder, "-q", *values, *["--json"] * as_json)
    yield
    check_output(text, as_json=as_json)


def describe_all(folder: Path, choices: Choices) -> Iterator[None]:
    """Describe every batch or sequence, one by one."""
    opened = open_any(folder)
    yield
    describe = rows.describe_batch if isinstance(opened, ShardSet) else rows.describe_sequence
    for index in [*range(min(len(opened), 8)), choices.choose((0, 3, NUMBERS[-1]))]:
        with contextlib.suppress(SeqpackError):
            describe(opened, index)
    with contextlib.suppress(SeqpackError):
        rows.describe_sequence(opened, choices.choose((0, 3, 6, NUMBERS[-1])))


def run_vocabulary(folder: Path, choices: Choices) -> Iterator[None]:
    """Run `seqpack inspect --vocabulary`."""
    from seqpack_cli.cli.inspect_commands import inspect_command as command

    yield from _run_and_check(command, folder, choices, folder, "--vocabulary")


def run_diff(folder: Path, choices: Choices) -> Iterator[None]:
    """Run `seqpack diff` with itself or another folder of its kind, in either order."""
    from seqpack_cli.cli.inspect_commands import diff_command as command

    opened, lab = open_any(folder), open_lab()
    others = lab.shards if isinstance(opened, ShardSet) else lab.stores
    other = choices.choose((folder, *(seed.folder for seed in others)))
    first, second = (folder, other) if choices.one_in(2) else (other, folder)
    yield from _run_and_check(command, folder, choices, first, second)


def _run_and_check(
    command: click.Command, folder: Path, choices: Choices, *arguments: object
) -> Iterator[None]:
    as_json = choices.one_in(2)
    open_any(folder)
    yield
    text = _run_command(command, *arguments, "-q", *["--json"] * as_json)
    check_output(text, as_json=as_json)


def make_pictures(folder: Path, choices: Choices) -> Iterator[None]:
    """Make the panels of `inspect --plot`, and draw a few of them, which takes 0.2 s."""
    from seqpack_cli.reporting.pictures.panels import make_panels, make_title

    opened = open_any(folder)
    yield
    panels = make_panels(opened, batch=choices.choose((None, None, 0, 1, 2, NUMBERS[-1])))
    assert all(panel.title.isprintable() for panel in panels)
    if choices.one_in(8):
        draw_picture(panels, make_title(opened))


def make_html(folder: Path, choices: Choices) -> Iterator[None]:
    """Make the page of `inspect --html`, mostly without its pictures."""
    from seqpack_cli.reporting.page.page import make_page
    from seqpack_cli.reporting.pictures.panels import make_panels

    opened = open_any(folder)
    yield
    panels = make_panels(opened)
    shown = panels if choices.one_in(16) else []
    check_page(make_page(opened, contents.describe(opened), shown))


def draw_picture(panels: Sequence[Panel], title: str | None = None) -> None:
    """Draw panels, and raise unless they are XML."""
    from seqpack_cli.reporting.pictures import picture

    drawn = picture._draw(panels, "svg", title=title, salt="fuzz")
    ElementTree.fromstring(drawn)


def read_items(folder: Path, choices: Choices) -> Iterator[None]:
    """Read every item of a ShardDataset, as a training loop would."""
    from seqpack_cli.training.shard_dataset import ShardDataset

    dataset = ShardDataset(folder, labels=choices.choose((None, "next")))
    yield
    for index in range(min(len(dataset), 16)):
        with contextlib.suppress(SeqpackError):
            use_tensors(dataset[index])
    with contextlib.suppress(SeqpackError):
        dataset.plan_epoch(0).count_costs("attention")


def use_tensors(batch: BatchTensors) -> None:
    """Use a batch in the ways that would crash torch if it were wrong."""
    from torch.nn.utils.rnn import pad_packed_sequence

    from seqpack_cli.training.batch_tensors import PackedTensors

    if isinstance(batch, PackedTensors):  # torch writes out of bounds if they are wrong
        pad_packed_sequence(batch.sequences)
        assert int(batch.sequences.data.min()) >= 0
    else:
        assert int(batch.ids.min()) >= 0
    assert batch.labels is None or int(batch.labels.min()) >= -100


def read_new_batches(folder: Path, choices: Choices) -> Iterator[None]:
    """Make batches of a token store, as a training loop would."""
    from seqpack_cli.training.store_batches import StoreBatches
    from seqpack_cli.training.store_dataset import StoreDataset

    dataset = StoreDataset(folder)
    yield
    batches = StoreBatches(dataset, PackOptions(**choices.choose(STORE_BATCHES_OPTIONS)))
    plan = batches.plan_epoch(choices.choose((None, 1)))
    collate = batches.make_collate(labels="next")
    for number in range(min(len(plan.keys), 16)):
        with contextlib.suppress(SeqpackError):
            use_tensors(collate(dataset.__getitems__(plan.keys[number])))


def run_verify(folder: Path, choices: Choices) -> Iterator[None]:
    """Run `seqpack verify`, `structure` or `roundtrip`; faults that it finds are its success."""
    from seqpack_cli.cli.verify_command import verify_command as command

    yield
    level, as_json = choices.choose(("structure", "roundtrip")), choices.one_in(2)
    options = ["--level", level, "--sample", 4, *["--json"] * as_json]
    check_output(_run_command(command, folder, *options), as_json=as_json)


def verify_columns(folder: Path, choices: Choices) -> Iterator[None]:
    """Verify shards; if they pass, their columns must be those of the store."""
    from seqpack_cli.verification.options import VerifyOptions
    from seqpack_cli.verification.verify_run import verify

    del choices
    shards = open_shards(folder)
    yield
    if not verify(folder, VerifyOptions(level="roundtrip", sample=1)).passed:
        return
    places = shards.find_stores()
    path = places[0] if places else None
    assert path is not None
    store = open_store(path)
    for each in iter_unpacked(shards, shards.columns):
        for name, column in store.columns.items():
            assert each.columns[name] == read_slowly(store, column, each.index), name


def read_slowly(store: TokenStore, column: Column, index: int) -> Any:
    """Return the value of a sequence, or one for each of its tokens, as JSON has them."""
    part = int(np.searchsorted(store.part_offsets, index, "right")) - 1
    values = column.spell(store.part_column(part, column.name))
    inside = index - int(store.part_offsets[part])
    if not column.is_per_token:
        return values[inside]
    lengths = store.part_lengths(part)
    start = int(lengths[:inside].sum())
    return values[start : start + int(lengths[inside])]


def pack_anew(folder: Path, choices: Choices) -> Iterator[None]:
    """Run `seqpack pack` into a new folder, and read its output."""
    from seqpack_cli.shards.pack import pack

    output = folder.parent / "packed anew"
    options = PackOptions(**choices.choose(PACK_OPTIONS))
    open_store(folder)
    yield
    try:
        pack(folder, output, options, executor=Executor(num_workers=1))
        for batch in open_shards(output):
            batch.rows()
    finally:
        shutil.rmtree(output, ignore_errors=True)


def pack_and_read(
    store: Path, output: Path, options: PackOptions, *, overwrite: bool
) -> Iterator[None]:
    """Pack a correct store into a folder with hostile files, and read the result."""
    from seqpack_cli.shards.pack import pack

    pack(store, output, options, executor=Executor(num_workers=1), overwrite=overwrite)
    yield
    for shard in map(open_shards(output).open_shard, range(open_shards(output).num_shards)):
        shard.find_unsound()


def _run_command(command: click.Command, *arguments: object) -> str:
    """Run a command without the group that prints errors; return its output.

    Output is caught as a strict UTF-8 terminal or file would get it.
    """
    output = io.BytesIO()
    text = io.TextIOWrapper(output, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(text):
        try:
            with command.make_context(None, [str(argument) for argument in arguments]) as context:
                command.invoke(context)
        except click.exceptions.Exit as end:
            assert end.exit_code == 1, end
    text.detach()
    return output.getvalue().decode()


class _Page(HTMLParser):
    """The elements and the ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str | None] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)
        self.ids += [value for name, value in attrs if name == "id"]


def check_page(text: str) -> None:
    """Raise if a page cannot be written, or contains foreign elements."""
    text.encode()
    page = _Page(text)
    allowed = {"html", "head", "meta", "title", "style", "body", "header", "nav", "footer"}
    allowed |= {"section", "article", "figure", "details", "summary", "div", "p", "h1", "h2", "h3"}
    allowed |= {"a", "b", "em", "code", "span", "dl", "dt", "dd", "script", "noscript", "form"}
    allowed |= {"label", "input", "button", "meter", "table", "thead", "tbody", "tr", "th", "td"}
    allowed |= {"svg", "g", "defs", "path", "use", "rect", "clippath", "text", "pattern", "tspan"}
    extra = {tag for tag in page.tags if tag not in allowed}
    assert not extra, extra
    assert page.tags.count("script") == 2
    assert not [name for name in page.attributes if name.startswith("on")]
    assert len(set(page.ids)) == len(page.ids)
    (places,) = re.findall(r'id="places">(.*?)</script>', text, re.DOTALL)
    json.loads(places)
    found = CONTROL.difference("\t").intersection(text)  # a tab is printed after its sign
    if found:
        raise UnprintableTextError(f"{min(found)!r} in the page")


def check_output(text: str, *, as_json: bool) -> None:
    """Raise unless it is JSON, or lines without characters that control a terminal."""
    if as_json:
        json.loads(text)
        return
    found = CONTROL.intersection(text)
    if found:
        raise UnprintableTextError(f"{min(found)!r} in {text[:500]!r}")


STORE_USES: tuple[Use, ...] = (
    *(read_store,) * 12,
    *(run_inspect,) * 4,
    describe_all,
    pack_anew,
    read_new_batches,
)
SHARDS_USES: tuple[Use, ...] = (
    *(read_batches,) * 7,
    *(unpack_sequences,) * 3,
    *(run_inspect,) * 2,
    run_unpack,
    describe_all,
    read_items,
    *(run_verify, verify_columns),
)
# For stores and shards; they are slower, and the hostile folders already use `run_inspect`.
REPORT_USES: tuple[Use, ...] = (run_vocabulary, run_diff, make_pictures, make_html)
