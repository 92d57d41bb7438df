"""The package as its users hold it: what is exported, what a path may be, what a repr says."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import seqpack_cli as seqpack

OPERATORS = ("__init__", "__iter__", "__getitem__", "__getitems__")
TEXTS = ["one\ntwo two\n", "three\nfour four four\n"]

TOKENIZER = Path(__file__).parents[1] / "sample_data" / "tokenizer.json"


def iter_hints(exported: Any) -> Iterator[tuple[str, Any]]:
    """Yield every type that a public function, or a class with its methods, names, and where."""
    functions = {"": exported}
    if isinstance(exported, type):
        yield from typing.get_type_hints(exported).items()
        functions = {
            name: each
            for name, each in vars(exported).items()
            if name[0] != "_" or (name in OPERATORS and isinstance(each, types.FunctionType))
        }
    for name, value in functions.items():
        function = value.fget if isinstance(value, property) else value
        function = getattr(function, "__func__", function)  # of a class method
        if isinstance(function, functools.cached_property):
            function = function.func
        if callable(function) and not isinstance(function, type):
            # a method may name its own class, which the module of its code cannot import
            own = {exported.__name__: exported} if isinstance(exported, type) else {}
            hints = typing.get_type_hints(function, localns=own)
            yield from ((f"{name}.{argument}", hint) for argument, hint in hints.items())


def iter_types(hint: Any) -> Iterator[Any]:
    """Yield the types that a hint consists of."""
    yield typing.get_origin(hint) or hint
    for argument in typing.get_args(hint):
        if not isinstance(argument, list):
            yield from iter_types(argument)


def test_every_type_of_a_public_signature_is_exported() -> None:
    exported = {name: getattr(seqpack, name) for name in seqpack.__all__}
    hidden = {
        f"{name}.{place} names {kind.__qualname__}"
        for name, value in exported.items()
        if callable(value)
        for place, hint in iter_hints(value)
        for kind in iter_types(hint)
        if getattr(kind, "__module__", "").startswith("seqpack_cli")
        and isinstance(kind, type)
        and not any(kind is each for each in exported.values())
    }
    assert not hidden


class Named:
    """A path of somebody else's class, which has nothing but `__fspath__`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return self._path


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a corpus, a token store and shards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "corpus" / f"{number}.txt").write_text(text)
    here = seqpack.Executor(num_workers=1)
    seqpack.tokenize("corpus", "tokens", executor=here)
    seqpack.pack("tokens", "shards", seqpack.PackOptions(batch_size=2), executor=here)
    return tmp_path


def read_texts(path: Path) -> str:
    return "".join(json.loads(line)["text"] for line in path.read_text().splitlines())


def fields_of_chat(as_path: Callable[[str], Any]) -> seqpack.TargetOptions:
    Path("chat.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    Path("chat.jsonl").write_text('{"messages": [{"role": "assistant", "content": "Yes."}]}')
    return seqpack.TargetOptions(messages_field="messages", chat_template=as_path("chat.jinja"))


def num_documents(made: tuple[dict[str, Any], bool]) -> int:
    assert not made[1]
    return int(made[0]["ledger"]["num_documents"])


def tokenize(inputs: Any, output: Any = "other", **options: Any) -> int:
    made = seqpack.tokenize(inputs, output, seqpack.TokenizeOptions(**options), overwrite=True)
    return num_documents(made)


Of = Callable[[Any], Any]
# A call with paths made by `of` in the folder of `work`, and what it returns.
CALLS: dict[str, tuple[Callable[[Of], Any], Any]] = {
    "FileOptions": (
        lambda of: (
            Path("list").write_text("corpus/0.txt\n"),
            tokenize([], files=seqpack.FileOptions(files_from=of("list"))),
        )[1],
        2,
    ),
    "ImportOptions": (
        lambda of: num_documents(
            seqpack.import_store(
                "tokens/part-00000.bin", "ids", tokenizer=of("tokens/tokenizer.json")
            )
        ),
        4,
    ),
    "ShardDataset": (lambda of: len(seqpack.ShardDataset(of("shards"))), 2),
    "StoreDataset": (lambda of: len(seqpack.StoreDataset(of("tokens"))), 4),
    "TargetOptions": (lambda of: tokenize("chat.jsonl", targets=fields_of_chat(of)), 1),
    "TokenizeOptions": (lambda of: tokenize("corpus", tokenizer=of("tokens/tokenizer.json")), 4),
    "VerifyOptions": (
        lambda of: (
            seqpack.verify(
                "shards", level="roundtrip", tokens=of(str(Path("tokens").rename("moved")))
            ).passed
        ),
        True,
    ),
    "diff": (lambda of: seqpack.diff(of("tokens"), of("tokens"))["identical"], True),
    "export": (
        lambda of: seqpack.export(of("tokens"), of("ids"), to="megatron")["files"],
        ["ids.bin", "ids.idx"],
    ),
    "import_store": (
        lambda of: num_documents(
            seqpack.import_store(of("tokens/part-00000.idx"), of("ids"), tokenizer="bytes")
        ),
        4,
    ),
    "inspect": (
        lambda of: [seqpack.inspect(of(name))["kind"] for name in ("tokens", "shards")],
        ["token store", "shards"],
    ),
    "open_shards": (lambda of: len(seqpack.open_shards(of("shards"))), 2),
    "open_store": (lambda of: len(seqpack.open_store(of("tokens"))), 4),
    "pack": (
        lambda of: seqpack.pack(of("tokens"), of("other"))[0]["ledger"]["num_batches"],
        1,
    ),
    "plan": (lambda of: seqpack.plan(of("tokens"))["num_sequences"], 4),
    "tokenize": (
        lambda of: [
            tokenize(inputs, of("other"))
            for inputs in (of("corpus"), [of("corpus/0.txt"), of("corpus/1.txt")])
        ],
        [4, 4],
    ),
    "train_tokenizer": (
        lambda of: seqpack.train_tokenizer(
            [of("corpus/0.txt"), of("corpus/1.txt")], of("own.json"), vocab_size=262
        ),
        262,
    ),
    "unpack": (
        lambda of: (
            seqpack.unpack(of("shards"), of("rows.jsonl"), as_text=True),
            read_texts(Path("rows.jsonl")),
        ),
        (4, "".join(TEXTS).replace("\n", "")),
    ),
    "verify": (lambda of: seqpack.verify(of("shards"), level="roundtrip").passed, True),
}


@pytest.mark.parametrize("as_path", [str, Named], ids=["str", "PathLike"])  # Path: elsewhere
@pytest.mark.parametrize("name", CALLS)
def test_every_path_is_a_str_or_a_path_like(
    name: str, as_path: Callable[[str], Any], work: Path
) -> None:
    call, expected = CALLS[name]
    assert call(as_path) == expected


def test_every_public_name_that_takes_a_path_is_called_above() -> None:
    taking = {
        name
        for name in seqpack.__all__
        if callable(found := getattr(seqpack, name))
        for place, hint in iter_hints(found)
        if os.PathLike in iter_types(hint) and not place.endswith("return")
    }
    assert taking == set(CALLS)


def test_no_path_is_taken_that_only_pathlib_has() -> None:
    """A parameter of a public function that is a `Path` would refuse a text."""
    wrong = [
        f"{name}.{place}"
        for name in seqpack.__all__
        if inspect.isfunction(found := getattr(seqpack, name))
        for place, hint in iter_hints(found)
        if Path in iter_types(hint) and not place.endswith("return")
    ]
    assert not wrong


@pytest.mark.parametrize("inputs", [b"corpus", 3, None, [b"corpus"], [3]])
def test_inputs_of_another_type_are_refused(inputs: Any, work: Path) -> None:
    with pytest.raises(TypeError, match=r"^inputs is .*, expected str \| PathLike"):
        seqpack.tokenize(inputs, "other")
    assert not Path("other").exists()


def test_a_path_that_was_a_url_is_refused() -> None:
    with pytest.raises(seqpack.OptionError, match="a Path cannot hold a URL") as caught:
        seqpack.open_store(Path("s3://bucket/tokens"))
    assert caught.value.hint == "pass the URL as a str"


UNGUARDED = """
import seqpack_cli as seqpack
print("once")
options = seqpack.TokenizeOptions(part_bytes=8)
seqpack.tokenize(INPUTS, "other", options, executor=seqpack.Executor(num_workers=2))
print("end")
"""


@pytest.mark.parametrize("inputs", ["corpus", "a.parquet"])  # a process reads Parquet's footers
@pytest.mark.parametrize("script", ["script.py", "-"])
def test_a_script_without_a_main_guard_is_run_once(work: Path, script: str, inputs: str) -> None:
    """Also one read from standard input: worker processes never import it."""
    pq.write_table(pa.table({"text": ["one", "two", "three", "four"]}), "a.parquet")
    text = UNGUARDED.replace("INPUTS", repr(inputs))
    Path("script.py").write_text(text)
    done = subprocess.run([sys.executable, script], input=text, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("once\nend\n", "")
    assert seqpack.open_store("other").num_documents == 4


def _record(sums: dict[str, int]) -> seqpack.Progress:
    """Return callbacks that add up what they are told."""

    def add(name: str, amount: int) -> None:
        sums[name] = sums.get(name, 0) + amount

    return seqpack.Progress(
        on_total=functools.partial(add, "total"),
        on_advance=functools.partial(add, "bytes"),
        on_tokens=functools.partial(add, "tokens"),
    )


@pytest.mark.parametrize("num_workers", [None, 1, 2])
def test_progress_adds_up_to_the_bytes_and_tokens(work: Path, num_workers: int | None) -> None:
    Path("long.txt").write_text("one two two\n" * 500)
    sums: dict[str, int] = {}
    manifest, _ = seqpack.tokenize(
        "long.txt",
        "other",
        seqpack.TokenizeOptions(part_bytes=1000),
        executor=seqpack.Executor(num_workers=num_workers),
        progress=_record(sums),
    )
    num_bytes = Path("long.txt").stat().st_size
    num_tokens = manifest["ledger"]["num_tokens"]
    assert sums == {"total": num_bytes, "bytes": num_bytes, "tokens": num_tokens}


def test_two_runs_in_two_threads_report_to_their_own_callers(work: Path) -> None:
    both = threading.Barrier(2)
    sums: dict[str, dict[str, int]] = {"a": {}, "b": {}}

    def tokenize(name: str) -> int:
        Path(f"{name}.txt").write_text(f"{name}\n" * 20_000 * (1 + (name == "b")))
        progress = _record(sums[name])
        both.wait()
        manifest, _ = seqpack.tokenize(
            f"{name}.txt",
            f"{name} store",
            seqpack.TokenizeOptions(part_bytes=1000),
            executor=seqpack.Executor(num_workers=1),
            progress=progress,
        )
        return int(manifest["ledger"]["num_tokens"])

    with ThreadPoolExecutor(2) as pool:
        num_tokens = dict(zip("ab", pool.map(tokenize, "ab"), strict=True))
    for name in "ab":
        num_bytes = Path(f"{name}.txt").stat().st_size
        expected = {"total": num_bytes, "bytes": num_bytes, "tokens": num_tokens[name]}
        assert sums[name] == expected


@pytest.fixture
def opened(work: Path) -> dict[str, Any]:
    """Each kind of thing that has items, four sequences or two batches, by name."""
    shards = seqpack.open_shards("shards")
    return {
        "store": seqpack.open_store("tokens"),
        "shards": shards,
        "shard": shards.open_shard(0),
        "shard dataset": seqpack.ShardDataset("shards", labels="next"),
        "store dataset": seqpack.StoreDataset("tokens"),
    }


KINDS = ["store", "shards", "shard", "shard dataset", "store dataset"]


def read_ids(item: Any) -> list[int]:
    """Return the ids of a sequence or of a batch, whatever it is."""
    found = getattr(item, "sequences", item)
    found = found if hasattr(found, "tolist") else getattr(found, "data", getattr(found, "ids", 0))
    ids: list[int] = found.tolist()
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_indices_are_those_of_a_list(kind: str, opened: dict[str, Any]) -> None:
    items, number = opened[kind], len(opened[kind])
    expected = [read_ids(items[index]) for index in range(number)]
    assert number == (4 if "store" in kind else 2)
    assert len({tuple(ids) for ids in expected}) == number
    for index in range(number):
        for as_index in (int, np.int16, np.uint64, torch.tensor):
            assert read_ids(items[as_index(index)]) == expected[index]
        for as_index in (int, np.int16, torch.tensor):
            assert read_ids(items[as_index(index - number)]) == expected[index]
    for outside in (number, -number - 1, 2**70):
        with pytest.raises(IndexError):
            items[outside]
    for wrong in ("0", 1.0, None, (0, 1)):
        with pytest.raises((TypeError, ValueError)):
            items[wrong]


@pytest.mark.parametrize("part", [slice(1, 3), slice(None), slice(None, None, -1), slice(9, None)])
@pytest.mark.parametrize("kind", KINDS)
def test_slices_are_those_of_a_list(kind: str, part: slice, opened: dict[str, Any]) -> None:
    items = opened[kind]
    found, expected = items[part], [items[index] for index in range(len(items))][part]
    assert len(found) == len(expected)
    for item, other in zip(found, expected, strict=True):
        assert read_ids(item) == read_ids(other)


def test_locating_counts_from_the_end_too(opened: dict[str, Any]) -> None:
    store = opened["store"]
    assert store.locate(-1) == store.locate(3) == store.locate(np.int64(3))
    with pytest.raises(IndexError, match=r"^sequence -5 of 4$"):
        store.locate(-5)


def test_repr_says_in_one_line_what_it_is(opened: dict[str, Any]) -> None:
    assert repr(opened["store"]) == (
        "TokenStore('tokens', num_sequences=4, num_tokens=29, dtype='uint16')"
    )
    assert repr(opened["shards"]) == (
        "ShardSet('shards', layout='packed', num_batches=2, num_shards=1)"
    )
    assert repr(opened["shard"]) == (
        "Shard('shards/shard-00000.safetensors', layout='packed', num_batches=2)"
    )
    dataset = "ShardDataset('shards', layout='packed', num_batches=2, labels='next')"
    assert repr(opened["shard dataset"]) == dataset
    assert repr(opened["store dataset"]) == "StoreDataset('tokens', num_sequences=4)"
    sampler = seqpack.EpochSampler(opened["shard dataset"], seed=7, shuffle=False)
    sampler.set_epoch(2)
    assert repr(sampler) == (
        f"EpochSampler({dataset}, seed=7, shuffle=False, epoch=2, rank=0, world_size=1)"
    )
    options = seqpack.PackOptions("padded", batch_size=2, buckets=(8, 32))
    assert repr(seqpack.StoreBatches(opened["store dataset"], options)) == (
        "StoreBatches(StoreDataset('tokens', num_sequences=4), "
        "PackOptions(layout='padded', batch_size=2, buckets=(8, 32)))"
    )


def test_repr_of_a_batch_has_shapes_and_no_ids(opened: dict[str, Any]) -> None:
    assert repr(opened["shards"][0]) == (
        "PackedBatch(data=uint16[21], batch_sizes=int64[14], lengths=int64[2], "
        "original_indices=int64[2])"
    )
    assert repr(opened["shard dataset"][0]) == (
        "PackedTensors(sequences=PackedSequence(data=int64[21], batch_sizes=int64[14]), "
        "lengths=int64[2], original_indices=int64[2], labels=int64[21])"
    )
    sequences = opened["store dataset"].__getitems__([0, 1])
    assert repr(sequences) == "TokenSequences(num_sequences=2, num_tokens=10)"
    padded = seqpack.collate_padded(sequences, pad_id=0)
    assert repr(padded) == (
        "PaddedTensors(ids=int64[2, 7], mask=bool[2, 7], lengths=int64[2], "
        "original_indices=int64[2])"
    )
    assert "ids=int64[2, 7] on meta" in repr(padded.to("meta"))
    varlen = seqpack.collate_varlen(sequences)
    assert "cu_seqlens=int32[3], max_seqlen=7, position_ids=int64[10]" in repr(varlen)
    assert repr(seqpack.pad_sequence([[1, 2], [3]])) == (  # type: ignore[list-item]
        "PaddedBatch(ids=int64[2, 2], lengths=int64[2], padding_side='right', num_filler_rows=0)"
    )


def test_batches_can_be_compared_and_kept_in_a_set(opened: dict[str, Any]) -> None:
    """As objects: their arrays have no one answer."""
    batch, again = opened["shards"][0], opened["shards"][0]
    assert batch == batch
    assert batch != again
    assert len({batch, again}) == 2


def test_a_tokenizer_that_is_a_path_is_not_asked_from_the_hub(work: Path) -> None:
    with pytest.raises(seqpack.OptionError, match=r"gpt2: .*file") as caught:
        seqpack.tokenize("corpus", "other", seqpack.TokenizeOptions(tokenizer=Path("gpt2")))
    assert "Hub" not in caught.value.message


@pytest.mark.parametrize("encoder", ["tokenizers", "fastokens"])
def test_the_library_changes_no_environment_variables(work: Path, encoder: str) -> None:
    """The command line and worker processes set those of tokenizers and fastokens."""
    before = dict(os.environ)
    options = seqpack.TokenizeOptions(TOKENIZER, encoder=encoder)
    here = seqpack.Executor(num_workers=1)
    seqpack.tokenize("corpus", encoder, options, executor=here)
    assert dict(os.environ) == before


def test_no_input_and_no_name_are_refused(work: Path) -> None:
    with pytest.raises(ValueError, match=r"^inputs is empty, expected at least one path$"):
        seqpack.tokenize([], "other")
    for call in (
        seqpack.open_store,
        lambda name: seqpack.pack("tokens", name),
        lambda name: seqpack.tokenize(name, "other"),
        lambda name: seqpack.train_tokenizer(["corpus", name], "other.json"),
    ):
        with pytest.raises(seqpack.OptionError, match=r"^the path is empty"):
            call("")
    assert sorted(path.name for path in work.iterdir()) == ["corpus", "shards", "tokens"]


def test_options_are_keywords(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "abcdef", "n": 1}\n')
    store = tmp_path / "store"
    found, _ = seqpack.tokenize(
        tmp_path / "a.jsonl", store, text_field="body", max_length=4, keep=["n:int"], num_workers=1
    )
    assert found["ledger"]["num_sequences"] == 2
    same = seqpack.TokenizeOptions(
        documents=seqpack.DocumentOptions(text_field="body"), max_length=4, keep=("n:int",)
    )
    assert seqpack.tokenize(tmp_path / "a.jsonl", store, options=same)[1]  # already complete
    assert (
        seqpack.pack(store, tmp_path / "out", layout="padded", batch_size=1)[0]["layout"]
        == "padded"
    )
    for given, words in (
        ({"max_lenght": 4}, "tokenize has no option 'max_lenght'; did you mean 'max_length'?"),
        ({"max_length": "4"}, "max_length is '4', expected int | None"),
        ({"max_length": 4, "options": same}, "tokenize takes options or max_length, not both"),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(words)}$"):
            seqpack.tokenize(tmp_path / "a.jsonl", tmp_path / "never", **given)  # type: ignore[arg-type]


NONSENSE: list[tuple[type, dict[str, list[object]]]] = [
    (seqpack.DocumentOptions, {"encoding_errors": ["ignore"], "on_bad_record": ["log"]}),
    (seqpack.DocumentOptions, {"max_document_bytes": [0, 10**30]}),
    (seqpack.TokenizeOptions, {name: ["x"] for name in ("overflow", "document", "file_format")}),
    (seqpack.TokenizeOptions, {"max_length": [0, 10**30], "part_bytes": [-1, 2**50 + 1]}),
    (seqpack.TrainTokenizerOptions, {"vocab_size": [10**30], "model": ["lstm"]}),
    (seqpack.PackOptions, {"layout": ["jagged"], "last_batch": ["fill"], "order": ["random"]}),
    (seqpack.PackOptions, {"fill": ["first-fit"], "overflow": ["cut"], "padding_side": ["top"]}),
    (seqpack.PackOptions, {name: [0] for name in ("batch_size", "window", "num_buckets")}),
    (seqpack.PackOptions, {"seed": [-1, 2**64], "buckets": ["many", (), (8, 0)]}),
    (seqpack.VerifyOptions, {"level": ["all"], "cell": ["LSTM"], "seed": [2**64], "sample": [0]}),
]


@pytest.mark.parametrize(("options", "values"), NONSENSE)
def test_options_that_no_run_can_follow_are_a_value_error_at_once(
    options: type, values: dict[str, list[object]]
) -> None:
    for name, some in values.items():
        for value in some:
            with pytest.raises(ValueError, match=f"^{name} is {re.escape(repr(value))}, expected "):
                options(**{name: value})


def test_every_option_is_in_the_plan_of_a_store(work: Path) -> None:
    """One that the plan forgot would let a changed run pass as the same one."""
    classes = (seqpack.TokenizeOptions, seqpack.DocumentOptions, seqpack.TargetOptions)
    names = {field.name for each in classes for field in dataclasses.fields(each)}
    # The tokenizer has a checksum, the files are the sources, and encoders give the same bytes.
    names -= {"tokenizer", "documents", "encoder", "targets", "files", "chat_template"}
    assert {*seqpack.open_store("tokens").manifest["options"]} == names | {"chat"}


def test_dir_shows_public_names_only() -> None:
    assert sorted(dir(seqpack)) == sorted([*seqpack.__all__, "__version__"])
