"""Shards are those of docs/formats.md: any stores and options give the bytes of the page's writer.

`tests/oracle/` makes shards from the page alone, and says what the page calls an error. Stores and
options are drawn by a seed, so a failing case is found again by its number.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blake3 import blake3
from command import run
from oracle.imports import write_pair, write_store
from oracle.selection import Refused, parse
from oracle.shards import ShardWriter, write_splits
from oracle.side import name_stores
from oracle.stores import PageStore, StoreWriter, read_store
from torch.nn.utils import rnn

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
from seqpack_cli.errors import DataError, OptionError

Given = dict[str, Any]
HERE = Executor(num_workers=1)
KEEP = ["id:int", "score:float", "label:class", "flag:class", "title:text", "tags:tags"]
SCORES = [0.0, -0.0, 1.5, 1e16, 1e-5, 1 / 7, -3.0, 123456789.125]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Return the byte tokenizer, one with a far id, and one that names no pad token."""
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "a.txt").write_text("a\n")
    assert run("tokenize", folder / "a.txt", "-o", folder / "store", "-q").exit_code == 0
    usual = (folder / "store" / "tokenizer.json").read_bytes()
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
    return [
        0,
        *sorted(drawn.sample(range(1, number), drawn.randint(0, min(3, number - 1)))),
        number,
    ]


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
    firsts = sorted(drawn.sample(range(num_files), drawn.randint(1, num_files)) + [num_files])
    firsts[0] = 0
    parts = [[*range(first, end)] for first, end in zip(firsts, firsts[1:], strict=False)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    StoreWriter(folder, tokenizer_json, given).write(files, parts)
    return read_store(folder)


def draw_stores(
    drawn: random.Random, folder: Path, tokenizers: list[bytes], *, most: int = 80
) -> list[PageStore]:
    """Draw one to three stores with the same tokenizer and nearly always the same columns."""
    tokenizer_json, keep = drawn.choice(tokenizers), drawn.sample(KEEP, drawn.choice([0, 2, 4, 6]))
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


def draw_pairs(
    drawn: random.Random, folder: Path, tokenizers: list[bytes], *, most: int = 60
) -> list[list[PageStore]]:
    """Draw one or two stores for each side, of the same documents; some are empty on a side."""
    counts = [drawn.choice([2, 9, most]) for _ in range(drawn.choice([1, 1, 2]))]
    cuts = [draw_cuts(drawn, count) for count in counts]
    lengths = [[drawn.choice([0, *[drawn.randint(1, 25)] * 5]) for _ in range(n)] for n in counts]
    sides: list[list[PageStore]] = []
    for side in ("encoder", "decoder"):
        keep = drawn.sample(KEEP, drawn.choice([0, 2, 4, 6]))
        tokenizer_json, found = drawn.choice(tokenizers), list[PageStore]()
        for number, count in enumerate(counts):
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
            made = write_documents(drawn, where, tokenizer_json, records, cuts[number], given)
            found.append(made)
        sides.append(found)
    return sides


# Options


def find_names(stores: Sequence[PageStore]) -> set[str]:
    return {each["name"] for store in stores for each in store.manifest["columns"]}


def draw_rows(drawn: random.Random, layout: str, lengths: list[int]) -> Given:
    """Draw how sequences are cut into batches of rows of their own."""
    longest, is_padded = max(lengths), layout == "padded"
    multiple = drawn.choice([1, 1, 4, 7]) if is_padded else 1
    widest = -(-longest // multiple) * multiple
    given: Given = {"batch_size": drawn.choice([None, 1, 3, 8, 20])}
    budgets = [None, None, widest, 2 * widest + drawn.randint(0, 9), 6 * widest, widest - multiple]
    given["max_tokens"] = budget = max(drawn.choice(budgets) or 0, multiple) or None
    if budget == multiple and multiple < widest:
        given["max_tokens"] = budget = None
    if is_padded:
        given |= {"pad_to_multiple": multiple, "padding_side": drawn.choice(["left", "right"])}
        given["pad_id"] = drawn.choice([None, 3])
    kind = drawn.choice([None, None, "auto", "given"])
    if kind == "auto":
        num_below = len({-(-length // multiple) for length in lengths}) - 1
        allowed = [n for n in (None, 1, 2, 3, 5, 9) if comb(num_below, (n or 8) - 1) < 2000]
        given |= {"buckets": "auto", "num_buckets": drawn.choice(allowed)}
    if kind == "given":
        most = min(widest, budget) if budget and is_padded else widest + 3
        keys = range(multiple, most + 1, multiple)
        given["buckets"] = sorted(drawn.sample(keys, drawn.randint(1, min(4, len(keys)))))
        if drawn.random() < 0.7:
            given["buckets"] = sorted({*given["buckets"], keys[-1]})
    if given["max_tokens"] or kind == "given":
        given["overflow"] = drawn.choice(["drop", "drop", "drop", None, "error"])
    given["order"] = drawn.choice(["length", "length", "none"])
    if given["order"] == "length":
        given["window"] = drawn.choice([None, 5, 12])
    lasts = ["keep", "keep", "drop"]
    if is_padded and (not given["max_tokens"] or kind):
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
    "id": ["id >= 3", "id != 1.5", "'id' < 2.5", "id <= -9223372036854775808", "id > 1e30"],
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
    both = [find_names(side) for side in sides]
    wheres = [
        prefix + text.lstrip() if prefix else text
        for prefix, names in zip(prefixes, both, strict=True)
        for name, texts in WHERES.items()
        if name in names | {"@"}
        for text in texts
    ]
    names = {
        prefix + name for prefix, of_side in zip(prefixes, both, strict=True) for name in of_side
    }
    given: Given = {
        "drop_shorter": drawn.choice([None, None, None, 2, 4]),
        "drop_longer": drawn.choice([None, None, None, 12, max(lengths) - 1]) or None,
        "where": drawn.sample(wheres, drawn.choice([0, 0, 0, 1, 2])),
        "store_column": drawn.choice([None, None, "store"]),
        "drop_column": sorted(
            drawn.sample(sorted(names), drawn.choice([0, 0, min(len(names), 2)]))
        ),
        "shard_bytes": drawn.choice([1, drawn.randint(1200, 6000), 67_108_864]),
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
        shares = {1: ["1"], 2: ["0.3", "0.7"], 3: ["0.5", "0.2", "0.3"]}[len(stores)]
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


def draw_options(drawn: random.Random, stores: Sequence[PageStore]) -> tuple[str, Given]:
    """Draw a layout and any of its options."""
    lengths = [len(ids) for store in stores for ids in store.sequences]
    layout = drawn.choice(["packed", "padded", "padded", "varlen", "varlen", "streams"])
    draw = draw_rows if layout in ("packed", "padded") else draw_shared_rows
    given = draw(drawn, layout, lengths) | draw_choice(drawn, [stores], lengths)
    is_shuffled = given["shuffle"]
    if is_shuffled is None:
        is_shuffled = layout == "varlen" and given["fill"] in (None, "best-fit")
    if is_shuffled or given.get("passes") or given.get("share"):
        given["seed"] = drawn.choice([0, 1, drawn.randrange(2**64)])
    return layout, given


def draw_pair_options(
    drawn: random.Random, sides: Sequence[Sequence[PageStore]]
) -> tuple[str, Given]:
    """Draw a layout of pairs and any of its options, but not keys that `pack` chooses."""
    layout, multiple = drawn.choice(["packed", "padded"]), 1
    given: Given = {"batch_size": drawn.choice([None, 1, 4, 9])}
    if layout == "padded":
        given["pad_to_multiple"] = multiple = drawn.choice([1, 1, 4, 5])
        given |= {
            "padding_side": drawn.choice(["left", "right"]),
            "pad_id": drawn.choice([None, 3]),
        }
    lengths = [[len(ids) for store in side for ids in store.sequences] for side in sides]
    longest = [-(-max(found) // multiple) * multiple for found in lengths]
    budgets = [None, None, max(longest), sum(longest), 4 * sum(longest), sum(longest) - multiple]
    given["max_tokens"] = budget = drawn.choice(budgets)
    if budget:
        given["count"] = drawn.choice([None, "max", "sum"])
    spans = [range(multiple, most + 1, multiple) for most in longest]
    if drawn.random() < 0.5:
        keys = {tuple(map(drawn.choice, spans)) for _ in range(3)} | {tuple(longest)}
        cost = sum if given.get("count") == "sum" else max
        most = budget if budget and layout == "padded" else sum(longest)
        given["buckets"] = [list(key) for key in sorted(keys) if cost(key) <= most] or None
    has_limit = budget or given.get("buckets")
    given["overflow"] = drawn.choice(["drop", "drop", "drop", None, "error"]) if has_limit else None
    given["order"] = drawn.choice(["length", "length", "none"])
    if given["order"] == "length":
        given["window"] = drawn.choice([None, 11])
    lasts = ["keep", "keep", "drop"]
    if layout == "padded" and (not budget or given.get("buckets")):
        lasts += ["pad", "pad"]
    given |= {"last_batch": drawn.choice(lasts), "shuffle": drawn.choice([None, True])}
    given |= draw_choice(drawn, sides, lengths[0])
    if given["shuffle"] or given.get("passes") or given.get("share"):
        given["seed"] = drawn.choice([0, drawn.randrange(2**64)])
    return layout, given


def respell(drawn: random.Random, given: Given, names: list[str]) -> Given:
    """Return the same options as a user may type them: names of stores, `rest`, zeros, any order."""
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


def write_shards(folder: Path, *arguments: Any, **options: Any) -> None:
    ShardWriter(folder, *arguments, **options).write()


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


def check_random(
    drawn: random.Random,
    folder: Path,
    tokenizers: list[bytes],
    *,
    most: int = 80,
    executor: Executor = HERE,
) -> None:
    stores = draw_stores(drawn, folder, tokenizers, most=most)
    layout, given = draw_options(drawn, stores)
    typed = respell(drawn, given, name_stores(stores))
    check_same_as_page([stores], folder, layout, given, typed=typed, executor=executor)


@pytest.mark.parametrize("seed", range(150))
def test_random_shards_are_those_of_the_page(
    tmp_path: Path, tokenizers: list[bytes], seed: int
) -> None:
    check_random(random.Random(seed), tmp_path, tokenizers)


@pytest.mark.parametrize("seed", range(6))
def test_random_shards_are_those_of_the_page_with_tiny_limits(
    tmp_path: Path, tokenizers: list[bytes], tiny: int, seed: int
) -> None:
    check_random(random.Random(f"{tiny} {seed}"), tmp_path, tokenizers, most=30)


@pytest.mark.parametrize("seed", [2, 7])
def test_random_shards_are_those_of_the_page_with_workers(
    tmp_path: Path, tokenizers: list[bytes], seed: int
) -> None:
    check_random(random.Random(seed), tmp_path, tokenizers, executor=Executor(num_workers=2))


def check_random_pairs(
    drawn: random.Random, folder: Path, tokenizers: list[bytes], *, most: int = 60
) -> None:
    sides = draw_pairs(drawn, folder, tokenizers, most=most)
    layout, given = draw_pair_options(drawn, sides)
    typed = respell(drawn, given, name_stores(sides[0]))
    check_same_as_page(sides, folder, layout, given, typed=typed)


@pytest.mark.parametrize("seed", range(50))
def test_random_pairs_are_those_of_the_page(
    tmp_path: Path, tokenizers: list[bytes], seed: int
) -> None:
    check_random_pairs(random.Random(seed), tmp_path, tokenizers)


@pytest.mark.parametrize("seed", range(2))
def test_random_pairs_are_those_of_the_page_with_tiny_limits(
    tmp_path: Path, tokenizers: list[bytes], tiny: int, seed: int
) -> None:
    check_random_pairs(random.Random(f"{tiny} {seed}"), tmp_path, tokenizers, most=20)
