"""Shards are those of docs/formats.md: any stores and options give the bytes of the page's writer.

`tests/oracle/` makes shards from the page alone, and says what the page calls an error. Stores and
options are drawn by a seed, so a failing case is found again by its number.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import string
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from blake3 import blake3
from command import run
from oracle.imports import write_pair, write_store
from oracle.selection import Refused, parse
from oracle.shards import open_shards, open_splits, write_shards, write_splits
from oracle.side import name_stores
from oracle.stores import PageStore, StoreWriter, read_store
from torch.nn.utils import rnn

import seqpack_cli
from seqpack_cli import (
    Executor,
    PackedBatch,
    PackOptions,
    PaddedBatch,
    pack,
    pack_sequence,
    pad_sequence,
    plan,
    unpack_sequence,
    unpad_sequence,
)
from seqpack_cli.errors import DataError, MachineError, OptionError

Given = dict[str, Any]
HERE = Executor(num_workers=1)
KEEP = ["id:int", "score:float", "label:class", "flag:class", "title:text", "tags:tags"]
SCORES = [0.0, -0.0, 1.5, 1e16, 1e-5, 1 / 7, -3.0, 123456789.125]


@functools.cache
def make_tokenizers() -> list[bytes]:
    """Return the byte tokenizer, one with a far id, and one that names no pad token."""
    with tempfile.TemporaryDirectory() as name:
        Path(name, "a.txt").write_text("a\n")
        assert run("tokenize", f"{name}/a.txt", "-o", f"{name}/store", "-q").exit_code == 0
        usual = Path(name, "store", "tokenizer.json").read_bytes()
    far = json.loads(usual)
    far["model"]["vocab"]["far"] = 70_000
    return [usual, json.dumps(far).encode(), usual.replace(b"<pad>", b"<fill>")]


# Stores


def draw_lengths(drawn: random.Random, number: int) -> list[int]:
    """Draw lengths of texts: skewed ones, some empty; few different ones; all equal."""
    kind = drawn.choice(["skewed", "skewed", "skewed", "few", "equal"])
    if kind == "equal":
        return [drawn.randint(1, 12)] * number
    if kind == "few":
        return drawn.choices(drawn.sample(range(1, 30), 3), k=number)
    most = drawn.choice([15, 60])
    return [1, *(min(int(drawn.lognormvariate(1.4, 1)), most) for _ in range(number - 1))]


def draw_text(drawn: random.Random, length: int) -> str:
    """Draw letters, with a blank now and then, but none beside another or at an end."""
    letters = drawn.choices(string.ascii_letters, k=length)
    for place in range(drawn.randint(1, 4), length - 1, drawn.randint(2, 6)):
        letters[place] = " "
    return "".join(letters)


def draw_record(drawn: random.Random, length: int, *, has_tags: bool) -> dict[str, Any]:
    """Draw a record with fields of every kind; a text of words if they have tags."""
    text = draw_text(drawn, length)
    border = drawn.choice([0, length, drawn.randint(0, length)])
    words = text.split() if has_tags else []
    return {
        "text": words if has_tags else text,
        "tags": [word[0].lower() for word in words],
        "prompt": text[:border],
        "completion": text[border:],
        "id": drawn.choice([drawn.randint(-20, 20), drawn.randint(-(2**63), 2**63 - 1)]),
        "score": drawn.choice(SCORES),
        "label": drawn.choice("abc"),
        "flag": drawn.random() < 0.4,
        "title": "ü" * drawn.choice([0, 0, 1, 2, 9, 40]),
    }


def draw_cuts(drawn: random.Random, number: int) -> list[int]:
    """Draw where records are cut into one to four files."""
    num_cuts = drawn.randint(0, min(3, number - 1))
    return [0, *sorted(drawn.sample(range(1, number), num_cuts)), number]


def write_documents(
    drawn: random.Random,
    folder: Path,
    tokenizer_json: bytes,
    records: list[dict[str, Any]],
    cuts: list[int],
    given: Given,
) -> PageStore:
    """Write the store of records, which are cut into files, in a few parts."""
    num_files = len(cuts) - 1
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    name = "-".join(folder.parts[-2:])
    files = {
        f"{name}-{number}.jsonl": "\n".join(lines[cuts[number] : cuts[number + 1]]).encode()
        for number in range(num_files)
    }
    borders = sorted(drawn.sample(range(1, num_files), drawn.randint(0, num_files - 1)))
    parts = [[*range(*ends)] for ends in pairwise([0, *borders, num_files])]
    folder.parent.mkdir(parents=True, exist_ok=True)
    StoreWriter(folder, tokenizer_json, given).write(files, parts)
    return read_store(folder)


def draw_stores(drawn: random.Random, folder: Path, *, most: int = 80) -> list[PageStore]:
    """Draw one to three stores with the same tokenizer and nearly always the same columns."""
    tokenizer_json = drawn.choice(make_tokenizers())
    keep = drawn.sample(KEEP, drawn.choice([0, 2, 4, 6]))
    names = drawn.choice(["abc", "abc", "aab", ["2", "x", "y"]])
    stores = []
    for number in range(drawn.choice([1, 1, 2, 3])):
        given: Given = {"keep": list(keep)}
        has_tags = "tags:tags" in keep
        if not has_tags and drawn.random() < 0.4:
            given |= {"prompt_field": "prompt", "completion_field": "completion"}
        if drawn.random() < 0.3:
            given |= {"bos": "<bos>", "eos": "<eos>"}
        if drawn.random() < 0.5:
            given["max_length"] = drawn.choice([5, 9, 20])
            if drawn.random() < 0.4:
                given["overlap"] = drawn.randint(1, 4)
        if keep and drawn.random() < 0.04:
            given["keep"].pop()
        count = drawn.choice([1, 2, 6, 25, most])
        records = [
            draw_record(drawn, length, has_tags=has_tags) for length in draw_lengths(drawn, count)
        ]
        place = folder / f"from-{number}" / names[number]
        cuts = draw_cuts(drawn, count)
        stores.append(write_documents(drawn, place, tokenizer_json, records, cuts, given))
    return stores


def draw_pairs(drawn: random.Random, folder: Path, *, most: int = 60) -> list[list[PageStore]]:
    """Draw one or two stores for each side, of the same documents; some are empty on a side."""
    counts = [drawn.choice([2, 9, most]) for _ in range(drawn.choice([1, 1, 2]))]
    cuts = [draw_cuts(drawn, count) for count in counts]
    lengths = [[drawn.choice([0, *[drawn.randint(1, 25)] * 5]) for _ in range(n)] for n in counts]
    sides: list[list[PageStore]] = []
    for side in ("encoder", "decoder"):
        keep = drawn.sample(KEEP, drawn.choice([0, 1, 3, 6]))
        tokenizer_json, found = drawn.choice(make_tokenizers()), list[PageStore]()
        for number, own_cuts in enumerate(cuts):
            given: Given = {"keep": keep}
            has_tags = "tags:tags" in keep
            if not has_tags and drawn.random() < 0.5:
                given |= {"prompt_field": "prompt", "completion_field": "completion"}
            given |= drawn.choice([{}, {"bos": "<bos>", "eos": "<eos>"}])
            overflow = "drop" if has_tags else drawn.choice(["truncate", "drop"])
            given |= drawn.choice([{}, {"max_length": 20, "overflow": overflow}])
            sizes = [max(length + drawn.choice([0, 0, -2, 3]), 0) for length in lengths[number]]
            sizes[0] = 4  # so that no side is empty
            records = [draw_record(drawn, size, has_tags=has_tags) for size in sizes]
            where = folder / side / f"store-{number}"
            made = write_documents(drawn, where, tokenizer_json, records, own_cuts, given)
            found.append(made)
        sides.append(found)
    return sides


# Options


def draw_rows(drawn: random.Random, layout: str, lengths: list[list[int]]) -> Given:
    """Draw how sequences or pairs are cut into batches of rows of their own.

    Bucket keys are given, or chosen by `pack` for single sequences.

    Args:
        lengths: of each side.
    """
    is_padded, multiple = layout == "padded", 1
    given: Given = {"batch_size": drawn.choice([None, 1, 3, 8, 20])}
    if is_padded:
        given["pad_to_multiple"] = multiple = drawn.choice([1, 1, 4, 7])
        given["padding_side"] = drawn.choice(["left", "right"])
        given["pad_id"] = drawn.choice([None, 3])
    widest = [-(-max(found) // multiple) * multiple for found in lengths]
    most, total = max(widest), sum(widest)
    budgets = [None, None, most, total, 2 * total + drawn.randint(0, 9), 6 * total, most - multiple]
    given["max_tokens"] = budget = drawn.choice(budgets) or None
    if budget and lengths[1:]:
        given["count"] = drawn.choice([None, "max", "sum"])
    kind = drawn.choice([None, None, "given", None if lengths[1:] else "auto"])
    if kind == "auto":
        num_below = len({-(-length // multiple) for length in lengths[0]}) - 1
        allowed = [n for n in (None, 1, 2, 3, 5, 9) if comb(num_below, (n or 8) - 1) < 2000]
        given |= {"buckets": "auto", "num_buckets": drawn.choice(allowed)}
    if kind == "given":
        spans = [range(multiple, most + 1, multiple) for most in widest]
        keys = {tuple(map(drawn.choice, spans)) for _ in range(drawn.randint(1, 4))}
        keys |= {tuple(widest)} if drawn.random() < 0.7 else set()
        cost = sum if given.get("count") == "sum" else max
        fitting = sorted(key for key in keys if not (budget and is_padded) or cost(key) <= budget)
        given["buckets"] = [list(key) if key[1:] else key[0] for key in fitting] or None
    if budget or isinstance(given.get("buckets"), list):
        given["overflow"] = drawn.choice(["drop", "drop", "drop", None, "error"])
    given["order"] = drawn.choice(["length", "length", "none"])
    if given["order"] == "length":
        given["window"] = drawn.choice([None, 5, 12])
    lasts = ["keep", "keep", "drop"]
    if is_padded and (not budget or given.get("buckets")):
        lasts += ["pad", "pad"]
    return {**given, "last_batch": drawn.choice(lasts), "shuffle": drawn.choice([None, True])}


def draw_shared_rows(drawn: random.Random, layout: str, lengths: list[int]) -> Given:
    """Draw how sequences are put into rows that they share."""
    given: Given = {"batch_size": drawn.choice([1, 2, 3, 8]), "pad_id": drawn.choice([None, 5])}
    given["max_tokens"] = drawn.choice([1, 4, 12, 60, max(lengths)])
    given["shuffle"] = drawn.choice([None, True, False])
    if layout == "streams":
        return given
    given["fill"] = drawn.choice([None, "best-fit", "sequential", "chunk"])
    given["batch_size"] = drawn.choice([None, given["batch_size"]])
    if given["fill"] != "chunk":
        aligned = drawn.choice([1, 1, 2, 3, 4])
        given |= {"align_sequences": aligned}
        given["max_tokens"] = -(-given["max_tokens"] // aligned) * aligned
        given["overflow"] = drawn.choice([None, "split", "drop", "error"])
    if given["batch_size"]:
        given["last_batch"] = drawn.choice(["keep", "pad"])
    return given


WHERES = {
    "id": [
        *("id >= 3", "id != 1.5", "'id' < 2.5", "id <= -9223372036854775808", "id > 1e30"),
        *("id != 3.0", "id < 4.0"),
    ],
    "score": ["score < 1e16", "score >= 0", "score != 0.14285714285714285", "score = -0"],
    "label": ["label != a", "'label' = \"b\""],
    "flag": ["flag = true", "flag != true"],
    "title": ["title != ü", "title = ''", "title != 'üü'"],
    "overlap": ["overlap = 0", "overlap > 0"],
    "@": ["@length < 9", "@length >= 3", "  @length!=4 ", "@source = *-0.jsonl"],
}


def draw_choice(
    drawn: random.Random, sides: Sequence[Sequence[PageStore]], lengths: list[int]
) -> Given:
    """Draw which sequences or pairs are packed, how often, and with which columns."""
    stores, prefixes = sides[0], ["", "decoder."][: len(sides)]
    both = [{name for store in side for name in store.columns} for side in sides]
    wheres = [
        prefix + text.lstrip() if prefix else text
        for prefix, names in zip(prefixes, both, strict=True)
        for name, texts in WHERES.items()
        if name in names | {"@"}
        for text in texts
    ]
    names = {prefix + name for prefix, found in zip(prefixes, both, strict=True) for name in found}
    given: Given = {
        "drop_shorter": drawn.choice([None, None, None, 2, 4]),
        "drop_longer": drawn.choice([None, None, None, 12, max(lengths) - 1]) or None,
        "where": drawn.sample(wheres, drawn.choice([0, 0, 0, 1, 2])),
        "store_column": drawn.choice([None, None, "store"]),
        "drop_column": sorted(
            drawn.sample(sorted(names), min(drawn.choice([0, 0, 2]), len(names)))
        ),
        "shard_bytes": drawn.choice([1, *[drawn.randint(1500, 9000)] * 6, *[67_108_864] * 5]),
    }
    if prefixes[-1] + "targets" in names - {*given["drop_column"]}:
        given["keep_without_target"] = drawn.random() < 0.4
    positions = range(1, len(stores) + 1)
    kind = drawn.choice([None, None, None, "passes", "share"])
    if kind == "passes":
        some = sorted(drawn.sample(positions, drawn.randint(1, len(stores))))
        numbers = [f"{n}={drawn.choice(['0.3', '1', '2', '2.5', '3.7'])}" for n in some]
        given["passes"] = ",".join(numbers)
    if kind == "share":
        shares = {1: ["1"], 2: ["0.3", "0.7"], 3: ["5", "2", "3.5"]}[len(stores)]
        given["share"] = ",".join(f"{n}={x}" for n, x in zip(positions, shares, strict=True))
        given["max_passes"] = drawn.choice([None, "1", "2.5"])
    if len(lengths) > 20 and drawn.random() < 0.3:
        by = sorted(both[0] & {"id", "score", "label", "flag", "title"})
        given["split_by"] = drawn.choice([None, *by])
        given["split"] = drawn.choice(["train=0.6,test=0.4", "a=0.5,b=0.3,c=0.2", "x=0.5,y=0.5"])
        values = {"flag": "true,false", "label": "a,c,b"}.get(given["split_by"] or "")
        given["split"] = drawn.choice([given["split"], values]) or given["split"]
        if "=" in given["split"]:
            given["split_seed"] = drawn.choice([0, drawn.randrange(2**64)])
        splits = [item.split("=")[0] for item in given["split"].split(",")]
        given["split_name"] = drawn.choice([None, None, *splits])
        if given["split_name"] and "=" in given["split"] and drawn.random() < 0.3:
            given["split"] = ",".join(f"{n}={0.05 if n else 0.1}" for n in range(19))
            given["split_name"] = drawn.choice(["0", "1", "17"])
    return given


def draw_options(drawn: random.Random, sides: Sequence[Sequence[PageStore]]) -> tuple[str, Given]:
    """Draw a layout and any of its options."""
    lengths = [[len(ids) for store in side for ids in store.sequences] for side in sides]
    layout = drawn.choice(["packed", "padded"])
    if not sides[1:]:
        layout = drawn.choice([layout, layout, "varlen", "varlen", "streams"])
    if layout in ("packed", "padded"):
        given = draw_rows(drawn, layout, lengths)
    else:
        given = draw_shared_rows(drawn, layout, lengths[0])
    given |= draw_choice(drawn, sides, lengths[0])
    is_shuffled = given["shuffle"]
    if is_shuffled is None:
        is_shuffled = layout == "varlen" and given["fill"] in (None, "best-fit")
    if is_shuffled or given.get("passes") or given.get("share"):
        given["seed"] = drawn.choice([0, 1, drawn.randrange(2**64)])
    return layout, given


def respell(drawn: random.Random, given: Given, names: list[str]) -> Given:
    """Return options as a user may type them: names of stores, `rest`, zeros, any order."""
    typed = dict(given)
    for option in ("passes", "share"):
        if given.get(option):
            numbers = parse(given[option]).items()
            typed[option] = " ,".join(f"{names[int(n) - 1]} = {float(x)}0" for n, x in numbers)
    for option in ("share", "split"):
        if "=" in (typed.get(option) or "") and drawn.random() < 0.5:
            typed[option] = typed[option].rpartition("=")[0] + "= rest"
    if isinstance(given.get("buckets"), list):
        typed["buckets"] = [*reversed(given["buckets"]), given["buckets"][0]]
    typed["drop_column"] = [*given["drop_column"], *given["drop_column"][::-1]]
    return typed


# Comparison


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def check_same_folder(ours: Path, theirs: Path) -> None:
    """Compare the names and bytes of all files, and manifests as JSON, in which 1 is not true."""
    files = [
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        for folder in (ours, theirs)
    ]
    assert [name for name in files[1] if not name.endswith("run.json")] == files[0]
    for name in files[0]:
        if not name.endswith("manifest.json"):
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
            continue
        found = [read_json(folder / name) for folder in (ours, theirs)]
        for folder, manifest in zip((ours, theirs), found, strict=True):
            for split in manifest.get("splits", []):  # spacing of the JSON text is free
                text = (folder / split["name"] / "manifest.json").read_bytes()
                assert split.pop("blake3") == blake3(text).hexdigest()
        assert found[0] == found[1]
        assert json.dumps(found[0], sort_keys=True) == json.dumps(found[1], sort_keys=True)


def check_same_as_page(
    sides: Sequence[Sequence[PageStore]],
    folder: Path,
    layout: str,
    given: Given,
    *,
    typed: Given | None = None,
    executor: Executor = HERE,
) -> None:
    """Pack stores, or pairs, and compare what is written or refused with the page's writer."""
    ours, theirs = folder / "ours", folder / "theirs"
    (encoder, *others), options = sides, PackOptions(layout=layout, **(typed or given))
    folders = [[store.folder for store in side] for side in sides]
    more: dict[str, Any] = {"executor": executor}
    more |= {"decoder": folders[1]} if others else {}
    has_splits = bool(given.get("split") and not given.get("split_name"))
    write = write_splits if has_splits else write_shards
    try:
        write(ours, encoder, layout, given, decoder=others[0] if others else ())
    except Refused as refused:
        with pytest.raises((OptionError, DataError)) as caught:
            pack(folders[0], theirs, options, **more)
        lacking = [words for words in refused.args if words not in caught.value.message]
        assert not lacking or has_splits  # of which any may be planned first
        assert not theirs.exists()
        return
    manifest, was_complete = pack(folders[0], theirs, options, **more)
    assert not was_complete
    assert json.loads(json.dumps(manifest)) == read_json(theirs / "manifest.json")
    check_same_folder(ours, theirs)
    (open_splits if has_splits else open_shards)(theirs)


def check_random(
    drawn: random.Random, folder: Path, *, pairs: bool, most: int = 60, executor: Executor = HERE
) -> None:
    if pairs:
        sides = draw_pairs(drawn, folder, most=most)
        sides = sides if drawn.random() < 0.95 else [sides[0], sides[0]]
    else:
        sides = [draw_stores(drawn, folder, most=most)]
    layout, given = draw_options(drawn, sides)
    typed = respell(drawn, given, name_stores(sides[0]))
    check_same_as_page(sides, folder, layout, given, typed=typed, executor=executor)


@pytest.mark.parametrize(
    ("pairs", "seed"),
    [(pairs, seed) for pairs in (False, True) for seed in range(40 if pairs else 140)],
)
def test_random_shards_are_those_of_the_page(tmp_path: Path, pairs: bool, seed: int) -> None:
    check_random(random.Random(seed), tmp_path, pairs=pairs)


@pytest.mark.parametrize("pairs", [*[False] * 6, *[True] * 2])
def test_random_shards_are_those_of_the_page_with_tiny_limits(
    tmp_path: Path, tiny: int, pairs: bool, request: Any
) -> None:
    check_random(random.Random(request.node.name), tmp_path, pairs=pairs, most=25)


@pytest.mark.parametrize("pairs", [False, True])
def test_random_shards_are_those_of_the_page_with_workers(tmp_path: Path, pairs: bool) -> None:
    check_random(random.Random(2), tmp_path, pairs=pairs, executor=Executor(num_workers=2))


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> list[PageStore]:
    """Return two stores of 1 to 300 letters in four parts each; a tenth has no target."""
    drawn, stores = random.Random(0), []
    sizes = {"a": [*range(1, 60), 2100], "b": [7 * n % 300 + 1 for n in range(80)]}
    for name, lengths in sizes.items():
        texts = [draw_text(drawn, length) for length in lengths]
        records = [
            {"text": text, "completion": text if number % 10 else "", "label": name}
            | {"prompt": "" if number % 10 else text}
            for number, text in enumerate(texts)
        ]
        given: Given = {"keep": ["label:class"]}
        given |= {"prompt_field": "prompt", "completion_field": "completion"}
        place = tmp_path_factory.mktemp("some") / name
        cuts = [0, 10, 20, 40, len(texts)]
        stores.append(write_documents(drawn, place, make_tokenizers()[0], records, cuts, given))
    return stores


@pytest.mark.parametrize(
    ("documents", "vocab_size", "layout", "given"),
    [
        ([[[5]]], 9, "packed", {}),
        ([[[1, 2, 3]], [], [[4], [65_535]]], 65_536, "packed", {"batch_size": 2}),
        ([[[1, 2, 3]], [], [[4]]], 65_537, "padded", {"pad_id": 65_536}),
        ([[[1, 2, 3]], [[4]]], 9, "padded", {}),
        ([[[1, 2, 3]], [[4]]], 9, "varlen", {"max_tokens": 4}),
        ([[[1, 2, 3]], [[4]]], 9, "varlen", {"max_tokens": 4, "align_sequences": 2}),
        ([[[1, 2, 3]], [[4]]], 9, "streams", {"max_tokens": 4, "batch_size": 2}),
        ([[[1, 2, 3]], [[4]]], 9, "streams", {"max_tokens": 4, "batch_size": 2, "pad_id": 0}),
        ([[[1] * 300]], 9, "packed", {"split": "a=0.5,b=0.5"}),
    ],
)
def test_shards_of_imported_ids_are_those_of_the_page(
    tmp_path: Path, documents: Any, vocab_size: int, layout: str, given: Given
) -> None:
    write_pair(tmp_path / "pair", documents, "int32")
    write_store(tmp_path / "store", tmp_path / "pair", documents, vocab_size)
    check_same_as_page([[read_store(tmp_path / "store")]], tmp_path, layout, given)


@pytest.mark.parametrize("window", [3, 5, 16])
def test_windows_go_over_the_borders_of_parts(tmp_path: Path, window: int) -> None:
    lines = "\n".join("a" * (7 * number % 23 + 1) for number in range(40))
    (tmp_path / "a.txt").write_text(lines)
    found = []
    for name, size in (("one", 1 << 20), ("many", 50)):
        options = ("-o", tmp_path / name, "--part-bytes", size)
        assert run("tokenize", tmp_path / "a.txt", *options).exit_code == 0
        pack(
            tmp_path / name, tmp_path / f"{name}_shards", window=window, batch_size=2, executor=HERE
        )
        shards = seqpack_cli.open_shards(tmp_path / f"{name}_shards")
        found.append([batch.original_indices.tolist() for batch in shards])
    assert len([*(tmp_path / "many").glob("*.bin")]) > 6
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("layout", "given"),
    [
        ("packed", {"batch_size": 3}),
        ("packed", {"batch_size": 5, "order": "none"}),
        ("padded", {"batch_size": 4, "shard_bytes": 20_000}),
        ("varlen", {"max_tokens": 1700, "batch_size": 2}),
        ("streams", {"max_tokens": 700, "batch_size": 3}),
    ],
)
def test_shards_of_long_sequences_are_those_of_the_page(
    tmp_path: Path, layout: str, given: Given
) -> None:
    drawn = random.Random(6)
    lengths = [1500, 1500, 1500, 1500, 1499, 1500, 2300, 900, 900, 900, 3, 900]
    records = [draw_record(drawn, length, has_tags=False) for length in lengths]
    kept = {"keep": ["id:int"], "prompt_field": "prompt", "completion_field": "completion"}
    store = write_documents(
        drawn, tmp_path / "store", make_tokenizers()[0], records, [0, 5, 12], kept
    )
    given = {**given, "keep_without_target": True}
    check_same_as_page([[store]], tmp_path, layout, given)


FILES = {"a": ["one", "two", ""], "b": ["three", "four"]}
SWAPPED = {"b": FILES["b"], "a": FILES["a"]}


def make_fields(text: str) -> str:
    """Return a record with the same text in two fields, and in a third if it is short."""
    return json.dumps({"text": text, "other": text, "rare": text if len(text) < 4 else None})


@pytest.mark.parametrize(
    ("files", "given", "words"),
    [
        ({"a": FILES["a"], "c": ["three"]}, {}, "1 document in source c, expected 2"),
        ({"a": ["one", "two", "", "x"]}, {}, "4 documents, expected 5"),
        ({**FILES, "b": ["three", "fours"]}, {}, "source b has other bytes"),
        ({**FILES, "b": ["three", "five"]}, {}, "source b has other bytes"),
        (FILES, {"max_length": 4, "overlap": 1}, "has 2 sequences, expected 1"),
        (SWAPPED, {"text_field": "other"}, "source a is number 2, expected 1"),
        ({"x": FILES["b"], "y": FILES["a"]}, {"text_field": "other"}, "which has the same bytes"),
        ({"x": FILES["a"], "y": ["three", "four five"]}, {"max_length": 5}, "y:2 has 2 sequences"),
        (FILES, {"text_field": "other"}, None),
        (FILES, {"on_bad_record": "skip", "text_field": "rare"}, None),
        ({"x": FILES["a"], "y": ["1", "2"]}, {"text_field": "other"}, None),
        ({"x": [*FILES["a"], *FILES["b"]]}, {}, None),
    ],
)
def test_stores_of_other_documents_are_no_pairs(
    tmp_path: Path, files: Any, given: Given, words: str | None
) -> None:
    for name, some, options in (("encoder", FILES, {}), ("decoder", files, given)):
        lines = {path: "\n".join(map(make_fields, texts)).encode() for path, texts in some.items()}
        named = {f"{path}.jsonl": data for path, data in lines.items()}
        writer = StoreWriter(tmp_path / name, make_tokenizers()[0], options)
        writer.write(named, [[number] for number in range(len(named))])
    stores = [tmp_path / "encoder"], [tmp_path / "decoder"]
    if words is None:
        sides = [[read_store(path) for path in side] for side in stores]
        check_same_as_page(sides, tmp_path, "padded", {})
        return
    with pytest.raises(OptionError) as caught:
        pack(stores[0], tmp_path / "out", decoder=stores[1])
    assert words in caught.value.message.replace(".jsonl", "")
    with pytest.raises(OptionError, match="--decoder: 2 stores, expected 1"):
        pack(stores[0], tmp_path / "out", decoder=[*stores[0], *stores[1]])


@pytest.mark.parametrize(
    ("encoder", "decoder", "given"),
    [
        ({"a": "abcdefghi"}, {"b": ["", *"bcdefghi"]}, {"where": ["decoder.@length > 0"]}),
        ({"a.en": ["one"], "a.de": ["eins"]}, {"a.de": ["eins"], "a.en": ["one"]}, {}),
        ({"-": ["one"]}, {"-": ["eins"]}, {}),  # from standard input, not one file
        ({"a": ["ab"] * 5}, {"b": ["cd"] * 5}, {"max_tokens": 4, "count": "max"}),
        ({"a": ["ab"] * 5}, {"b": ["cd"] * 5}, {"max_tokens": 8, "count": "sum"}),
    ],
)
def test_documents_of_any_files_are_pairs_if_they_are_as_many(
    tmp_path: Path, encoder: Any, decoder: Any, given: Given
) -> None:
    sides = []
    for name, files in (("encoder", encoder), ("decoder", decoder)):
        lines = {path: "\n".join(texts).encode() for path, texts in files.items()}
        StoreWriter(tmp_path / name, make_tokenizers()[0], {}).write(lines, [[*range(len(files))]])
        sides.append([read_store(tmp_path / name)])
    for layout in ("packed", "padded"):
        (tmp_path / layout).mkdir()
        check_same_as_page(sides, tmp_path / layout, layout, given)


def measure(folder: Path) -> Given:
    """Return what `plan` says of a way, from the shards that were packed."""
    manifest, cells, found = read_json(folder / "manifest.json"), list[int](), list[int]()
    num_bytes = 0
    for entry in manifest["shards"]:
        data = (folder / entry["name"]).read_bytes()
        arrays = safetensors.numpy.load(data)
        ends = sum(name.endswith("_offsets") for name in arrays)
        num_bytes += sum(array.nbytes for array in arrays.values()) - 8 * ends
        sides = ["", "decoder."] if manifest["decoder"] else [""]
        cells += sum(np.diff(arrays[f"{side}data_offsets"]) for side in sides).tolist()
        found += arrays.get("widths", arrays["lengths"]).tolist()
    ledgers = [side["ledger"] for side in (manifest, manifest["decoder"]) if side]
    options, ledger = manifest["options"], ledgers[0]

    def find_ratio(some: list[Any]) -> float:
        padding = sum(each["num_padding_cells"] for each in some)
        return round(padding / (padding + sum(each["num_tokens"] for each in some)), 6)

    measured = {
        "num_batches": ledger["num_batches"],
        "padding_ratio": find_ratio(ledgers),
        "bytes": num_bytes,
        "most_cells": max(cells),
        "bucket_keys": manifest["bucket_keys"],
    }
    if ledgers[1:]:
        names = ("encoder", "decoder")
        ratios = zip(names, ledgers, strict=True)
        return measured | {name: {"padding_ratio": find_ratio([each])} for name, each in ratios}
    if manifest["layout"] not in ("varlen", "streams"):
        return measured | {"longest": max(found)}
    num_rows, length = options["batch_size"] or 1, options["max_tokens"]
    return measured | {
        "longest": max(cells) // num_rows,
        "lower_bound_batches": -(-ledger["num_tokens"] // (length * num_rows)),
        "num_split_sequences": ledger["num_split_sequences"],
    }


@pytest.mark.parametrize("more", [[], ["--keep-without-target"]])
def test_plan_says_what_pack_makes_of_each_way(
    some: list[PageStore], tmp_path: Path, more: list[str]
) -> None:
    folders = [store.folder for store in some]
    compared = json.loads(run("plan", *folders, *more, "--json").stdout)
    left = [len(ids) for store in some for ids in store.sequences]
    num_all = len(left)
    if not more:
        left = [
            len(ids)
            for store in some
            for ids, targets in zip(store.sequences, store.columns["targets"], strict=True)
            if any(targets)
        ]
    assert compared["num_sequences"] == len(left)
    assert compared["num_tokens"] == sum(left)
    assert compared["num_sequences_without_target"] == num_all - len(left)
    assert (num_all == len(left)) == bool(more)
    assert compared["longest"] == max(left)
    assert compared == plan(folders, keep_without_target=bool(more))
    assert len({way["options"] for way in compared["plans"]}) == len(compared["plans"]) > 20
    for number, way in enumerate(compared["plans"][:: 4 if more else 1]):
        words = way.pop("options").split()
        output = tmp_path / str(number)
        assert run("pack", *folders, *more, *words, "-o", output, "-q").exit_code == 0
        assert measure(output) == way


def test_plan_of_pairs_says_what_pack_makes_of_each_way(tmp_path: Path) -> None:
    sides = draw_pairs(random.Random(1), tmp_path)
    assert not any("title" in store.columns for side in sides for store in side)  # sizes are exact
    folders = [[store.folder for store in side] for side in sides]
    others = [word for each in folders[1] for word in ("--decoder", each)]
    compared = json.loads(run("plan", *folders[0], *others, "--json").stdout)
    assert compared == plan(folders[0], decoder=folders[1])
    for number, way in enumerate(compared["plans"]):
        words = way.pop("options").split()
        if "--buckets" in words:
            continue
        output = tmp_path / str(number)
        assert run("pack", *folders[0], *others, *words, "-o", output, "-q").exit_code == 0
        assert measure(output) == way
        manifest = read_json(output / "manifest.json")
        ledgers = [manifest["ledger"], manifest["decoder"]["ledger"]]
        assert compared["num_pairs"] == ledgers[0]["num_sequences"]
        assert compared["num_tokens"] == sum(ledger["num_tokens"] for ledger in ledgers)
        dropped = [ledger["num_dropped_sequences"] for ledger in ledgers]
        counts = {reason: max(side[reason] for side in dropped) for reason in dropped[0]}
        assert compared["num_dropped_pairs"] == counts
        assert any(counts.values())
    sizes = [max(len(ids) for store in side for ids in store.sequences) for side in sides]
    assert all(0 < found <= size for found, size in zip(compared["longest"], sizes, strict=True))


def add_each(given: Given, options: str, words: str) -> list[tuple[Given, str]]:
    """Return one refused case for each of some options, whose name the message begins with."""
    found = []
    for name, value in (option.split("=") for option in options.split()):
        typed = int(value) if value.isdigit() else value
        found.append(({**given, name: typed}, f"--{name.replace('_', '-')} {value} {words}"))
    return found


VARLEN: Given = {"layout": "varlen", "max_tokens": 8}
STREAMS: Given = {"layout": "streams", "max_tokens": 8}
PADDED: Given = {"layout": "padded"}
# What is refused, and words that name the option to change.
CONFLICTS: list[tuple[Given, str]] = [
    ({"layout": "varlen"}, "varlen needs --max-tokens"),
    ({"layout": "streams"}, "streams needs --max-tokens"),
    *[
        ({**shared, name: value}, f"{words} needs --layout packed or padded")
        for shared in (VARLEN, STREAMS)
        for name, value, words in [
            ("window", 4, "--window"),
            ("buckets", (8,), "--buckets"),
            ("num_buckets", 4, "--num-buckets"),
            ("last_batch", "drop", "--last-batch drop"),
        ]
    ],
    *[
        ({**shared, name: value}, f"--{name.replace('_', '-')} needs --layout {layouts}")
        for shared, name, value, layouts in [
            (STREAMS, "align_sequences", 2, "varlen"),
            ({}, "align_sequences", 2, "varlen"),
            (PADDED, "fill", "sequential", "varlen or streams"),
            *((each, "pad_to_multiple", 4, "padded") for each in ({}, STREAMS, VARLEN)),
            *((each, "padding_side", "left", "padded") for each in ({}, STREAMS, VARLEN)),
        ]
    ],
    *add_each(STREAMS, "fill=best-fit fill=sequential overflow=drop overflow=error", "needs"),
    *add_each(STREAMS, "last_batch=pad", "needs --layout padded or varlen"),
    *add_each(VARLEN, "last_batch=pad", "conflicts with --layout varlen"),
    *add_each({**VARLEN, "fill": "chunk"}, "overflow=drop", "conflicts"),
    ({**VARLEN, "fill": "chunk", "align_sequences": 2}, "--align-sequences conflicts"),
    *add_each({**VARLEN, "fill": "best-fit"}, "order=none", "conflicts"),
    *add_each(VARLEN, "order=none", "conflicts with --fill best-fit"),
    *add_each({}, "last_batch=pad", "needs --layout padded or varlen"),
    *[
        case
        for each in ({}, STREAMS, {**VARLEN, "shuffle": False}, {**VARLEN, "fill": "sequential"})
        for case in add_each(each, "seed=5", "has no effect")
    ],
    ({**VARLEN, "align_sequences": 3}, "not a multiple of --align-sequences 3"),
    ({**VARLEN, "align_sequences": 16}, "not a multiple of --align-sequences 16"),
    *add_each({"max_tokens": 8}, "overflow=split", "needs --layout varlen"),
    *add_each({}, "overflow=drop", "needs --max-tokens or --buckets"),
    *add_each({"buckets": "auto"}, "overflow=error", "needs"),
    ({"window": 4, "order": "none"}, "--window conflicts with --order none"),
    ({"num_buckets": 2}, "--num-buckets needs --buckets auto"),
    ({"buckets": (4, 8), "num_buckets": 2}, "--num-buckets needs --buckets auto"),
    ({"buckets": "auto", "num_buckets": 1025}, "--num-buckets 1025"),
    *add_each({**PADDED, "max_tokens": 3000, "batch_size": 4}, "last_batch=pad", "needs a fixed"),
    ({**PADDED, "max_tokens": 7, "pad_to_multiple": 8}, "--max-tokens 7"),
    ({**PADDED, "buckets": (8, 12), "pad_to_multiple": 8}, "--buckets 12"),
    ({**PADDED, "buckets": (8, 2048), "max_tokens": 2047}, "--buckets 2048"),
    ({"count": "max", "max_tokens": 9}, "--count max needs --decoder"),
    ({"buckets": [(8, 9)]}, "--buckets with two lengths each needs --decoder"),
    ({"keep_without_target": True, "drop_column": ["targets"]}, "--keep-without-target has no"),
    ({"drop_column": ["absent"]}, "absent"),
    ({"store_column": "label"}, "label"),
    ({"pad_id": 259}, "--pad-id 259"),
    ({"pad_id": -1}, "--pad-id -1"),
    ({"passes": "a=2", "share": "a=0.5,b=0.5"}, "--passes conflicts with --share"),
    ({"max_passes": "2", "passes": "a=2"}, "--max-passes needs --share"),
    *[
        ({"share": "a=0.5,b=0.5", "max_passes": number}, "--max-passes")
        for number in ("0", "10001", "-1", "x", "1e-19")
    ],
    *[
        ({"passes": text}, "--passes")
        for text in ("a", "a=0", "a=10001", "a=1,a=2", "c=1", "3=1", "=1", "a=nan", "1=2,a=3")
    ],
    *[
        ({"share": text}, "--share")
        for text in (
            *("a=1", "a=1,b=rest", "a=rest,b=rest", "a=0.5,b=0", "a=0.5,b=10001", "a,b"),
            *("a=0.000000000000000001,b=rest", "a=0.0000000000000000001,b=rest"),
        )
    ],
    *[
        ({"split": text}, "--split")
        for text in ("a=1", "a,b", "a=0.5,b=0.4", "a=0.5,A=0.5", "../x=0.5,c=0.5", "a=0.5,b", "")
    ],
    ({"split": ",".join(f"s{n}" for n in range(1001)), "split_by": "label"}, "1,001 splits"),
    ({"split_seed": 1}, "--split-seed needs --split"),
    ({"split_by": "label"}, "--split-by needs --split"),
    ({"split": "a,b", "split_by": "label", "split_seed": 7}, "--split-seed 7 has no effect"),
    *[
        ({"split": "x=0.5,y=0.5", "split_by": name}, f"--split-by {name}")
        for name in ("absent", "targets", "overlap", "@length")
    ],
    *[
        ({"where": [text]}, f"--where {text!r}")
        for text in (
            *("", "label", "= a", "label = ", "label == a", "label <> a", "label = 'a"),
            *("label = 'a' b", "@size > 1", "@length 8", "@length = x", "@source < a"),
            *("@source = absent*", "label < a", "label = c", "absent = 1", "targets = 1"),
        )
    ],
    ({"where": ["s = a"], "store_column": "s"}, "--where 's = a'"),
]
COUNTS = ["batch_size", "max_tokens", "window", "num_buckets", "pad_to_multiple"]
COUNTS += ["align_sequences", "drop_shorter", "drop_longer"]
NONSENSE: list[tuple[Given, str]] = [
    *[
        ({name: "other"}, f"{name} is 'other'")
        for name in ("layout", "order", "fill", "overflow", "last_batch", "padding_side", "count")
    ],
    *[({name: value}, f"{name} is {value}") for name in COUNTS for value in (0, 2**31)],
    ({"shard_bytes": 0}, "shard_bytes is 0"),
    ({"shard_bytes": 2**50 + 1}, "shard_bytes is"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": 2**64}, f"seed is {2**64}"),
    ({"split_seed": -1}, "split_seed is -1"),
    *[({"buckets": keys}, "buckets is") for keys in ((), (8, 0), "most", [(1, 2, 3)], (2**31,))],
]


@pytest.mark.parametrize(
    ("error", "given", "words"),
    [*((OptionError, *each) for each in CONFLICTS), *((ValueError, *each) for each in NONSENSE)],
)
def test_options_that_pack_does_not_take_are_refused(
    some: list[PageStore], tmp_path: Path, error: type[Exception], given: Given, words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        pack([store.folder for store in some], tmp_path / "out", PackOptions(**given))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (VARLEN, "--decoder needs --layout packed or padded"),
        (STREAMS, "--decoder needs --layout packed or padded"),
        ({"overflow": "split"}, "--overflow split conflicts with --decoder"),
        ({"split": "de,en", "split_by": "decoder.id"}, "--split-by decoder.id"),
        ({"count": "max"}, "--count max needs --max-tokens"),
        ({"buckets": (8, 16)}, "--buckets 8"),
        ({**PADDED, "max_tokens": 20, "count": "sum", "buckets": [(9, 12)]}, "--buckets (9,12)"),
        ({**PADDED, "max_tokens": 11, "buckets": [(9, 9), (9, 12)]}, "--buckets (9,12)"),
        ({**PADDED, "pad_to_multiple": 4, "buckets": [(8, 10)]}, "--buckets (8,10)"),
        ({"drop_column": ["decoder.absent"]}, "absent"),
        ({"store_column": "decoder.a"}, "column 'decoder.a' is named like"),
        ({"where": ["decoder.absent = 1"]}, "--where 'decoder.absent = 1'"),
    ],
)
def test_options_that_pairs_do_not_have_are_refused(
    tmp_path: Path, given: Given, words: str
) -> None:
    sides = draw_pairs(random.Random(1), tmp_path, most=5)
    folders = [[store.folder for store in side] for side in sides]
    with pytest.raises(OptionError, match=re.escape(words)):
        pack(folders[0], tmp_path / "out", PackOptions(**given), decoder=folders[1])
    assert not (tmp_path / "out").exists()


def test_refusals_of_the_command_have_their_exit_codes(
    some: list[PageStore], tmp_path: Path
) -> None:
    store, output = some[1].folder, tmp_path / "out"
    for code, words in (
        (2, ["--layout", "varlen"]),
        (2, ["--max-tokens", 12]),
        (2, ["--buckets", "4,8", "--overflow", "error"]),
        (2, ["--layout", "nonsense"]),
        (2, ["--decoder", some[0].folder]),
        (2, [store]),
        (3, ["--drop-shorter", 1000]),
        (3, ["--split", "a=0.5,b=0.5", "--split-by", "label"]),
        (3, ["--split", "a,c", "--split-by", "label"]),
        (4, ["--decoder", tmp_path]),
    ):
        result = run("pack", store, *words, "-o", output)
        assert (result.exit_code, result.stdout) == (code, ""), words
        assert result.stderr
        assert not output.exists()
    assert run("pack", store, "-o", store).exit_code == 2


def test_batch_beyond_the_memory_of_the_machine_is_refused(
    some: list[PageStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda _: 60)
    with pytest.raises(MachineError, match=r"^the largest batch takes 0\.0 GB, this machine has"):
        pack(some[0].folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# torch's functions on arrays


def draw_arrays(drawn: random.Random) -> list[np.ndarray]:
    dtype = drawn.choice(["uint8", "int16", "int32", "int64"])
    lengths = [drawn.choice([1, 2, 9, drawn.randint(1, 40)]) for _ in range(drawn.randint(1, 9))]
    ids = [0, 1, 99, np.iinfo(dtype).max]
    return [np.array(drawn.choices(ids, k=length), dtype) for length in lengths]


@pytest.mark.parametrize("seed", range(20))
def test_sequences_are_packed_and_padded_as_torch_does(seed: int) -> None:
    drawn = random.Random(seed)
    arrays = draw_arrays(drawn)
    by_length = sorted(arrays, key=len, reverse=True)
    packed, theirs = pack_sequence(by_length), rnn.pack_sequence([*map(torch.tensor, by_length)])
    assert packed.data.dtype == arrays[0].dtype
    assert packed.data.tolist() == theirs.data.tolist()
    assert packed.batch_sizes.tolist() == theirs.batch_sizes.tolist()
    assert packed.lengths.tolist() == [*map(len, by_length)]
    for found, expected in zip(unpack_sequence(packed), by_length, strict=True):
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
    side, value = drawn.choice(["left", "right"]), drawn.choice([0, 7, 127])
    padded = pad_sequence(arrays, padding_value=value, padding_side=side)
    rectangle = rnn.pad_sequence([*map(torch.tensor, arrays)], True, value, side)
    assert (padded.ids.dtype, padded.ids.tolist()) == (arrays[0].dtype, rectangle.tolist())
    wide = pad_sequence(by_length, padding_value=value, total_length=50)
    unpacked, lengths = rnn.pad_packed_sequence(theirs, True, value, 50)
    assert (wide.ids.tolist(), wide.lengths.tolist()) == (unpacked.tolist(), lengths.tolist())
    for batch, expected in ((padded, arrays), (wide, by_length)):
        found = unpad_sequence(batch)
        assert [row.tolist() for row in found] == [row.tolist() for row in expected]
    cut = rnn.unpad_sequence(torch.from_numpy(wide.ids), lengths, batch_first=True)
    assert [row.tolist() for row in unpad_sequence(wide)] == [row.tolist() for row in cut]


ONE, TWO = np.array([1]), np.array([1, 2])


@pytest.mark.parametrize(
    ("function", "given", "error", "words"),
    [
        (pack_sequence, [], ValueError, "at least one"),
        (pack_sequence, [ONE, TWO], ValueError, "longe"),
        (pack_sequence, [ONE, ONE[:0]], ValueError, "empty"),
        (pack_sequence, [np.array([[1]])], ValueError, "shape"),
        (pack_sequence, [ONE, np.array([0.5])], TypeError, "sequence 1 is float64"),
        (pack_sequence, [np.array([1, 2], np.uint8), np.array([256])], ValueError, "id 256"),
        (pack_sequence, [np.array([1, 2], np.uint8), np.array([-1])], ValueError, "id -1"),
        (pad_sequence, [], ValueError, "at least one"),
        (pad_sequence, [np.array([True])], TypeError, "bool"),
        (pad_sequence, [ONE, TWO, {"total_length": 1}], ValueError, "total_length 1"),
        (pad_sequence, [ONE, {"padding_side": "up"}], ValueError, "padding_side"),
        (pad_sequence, [ONE.astype(np.uint8), {"padding_value": 256}], ValueError, "256"),
        (pad_sequence, [ONE.astype(np.uint8), {"padding_value": -1}], ValueError, "-1"),
        (unpack_sequence, PackedBatch(TWO, np.array([1, 2]), TWO), ValueError, "batch_sizes"),
        (unpack_sequence, PackedBatch(TWO, np.array([2, 1]), TWO), ValueError, "batch_sizes"),
        (unpack_sequence, PackedBatch(TWO, np.array([2, 0]), TWO), ValueError, "batch_sizes"),
        (unpad_sequence, PaddedBatch(TWO[None], np.array([3])), ValueError, "width 2"),
        (unpad_sequence, PaddedBatch(TWO[None], np.array([-1])), ValueError, "width 2"),
        (unpad_sequence, PaddedBatch(TWO[None], TWO), ValueError, "2 lengths for 1 rows"),
    ],
)
def test_sequences_that_make_no_batch_are_refused(
    function: Any, given: Any, error: type[Exception], words: str
) -> None:
    options: Given = {}
    if isinstance(given, list) and given and isinstance(given[-1], dict):
        *given, options = given
    with pytest.raises(error, match=words):
        function(given, **options)
