"""What `compare` finds is what a slow look at every id finds, and what was changed by hand."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from here import HERE
from shard_reference import Arrays, change_manifest, change_shard, make_texts

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError, OptionError
from seqpack_cli.limits import LIMITS
from seqpack_cli.reporting.differences import compare
from seqpack_cli.reporting.terminal.difference_lines import show_differences
from seqpack_cli.reporting.wording import count_columns
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards import pack as pack_module
from seqpack_cli.shards.shard_set import open_any, open_shards
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize

TEXTS = ["abc", "defghijkl", "mnopq", "r", "stuvw", "xyzabcdefghi", "jk"]
LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3},
    "padded": {"layout": "padded", "batch_size": 2},
    "left": {"layout": "padded", "batch_size": 2, "padding_side": "left", "pad_to_multiple": 4},
    "filler": {"layout": "padded", "batch_size": 4, "last_batch": "pad", "shuffle": True},
    "varlen": {"layout": "varlen", "max_tokens": 12},
    "pieces": {"layout": "varlen", "max_tokens": 4, "shard_bytes": 200},
    "equal": {"layout": "varlen", "max_tokens": 12, "batch_size": 2, "align_sequences": 4},
    "streams": {"layout": "streams", "max_tokens": 4, "batch_size": 2},
}


def store(folder: Path, name: str, texts: Sequence[str], **options: Any) -> Path:
    """Tokenize texts, always from the same file, into folder/name."""
    corpus = folder / "corpus.txt"
    corpus.write_text("".join(f"{text}\n" for text in texts))
    tokenize([str(corpus)], folder / name, TokenizeOptions(**options), executor=HERE)
    return folder / name


def pack(tokens: Path, name: str, **options: Any) -> Path:
    """Pack a store into a folder beside it."""
    pack_module.pack(tokens, tokens.parent / name, PackOptions(**options), executor=HERE)
    return tokens.parent / name


def copy(path: Path, name: str) -> Path:
    """Copy a folder to one beside it."""
    return shutil.copytree(path, path.parent / name)


def find(a: Path, b: Path) -> dict[str, Any]:
    """Compare two folders; what is found is JSON, and its lines fit the terminal."""
    found = compare(open_any(a), open_any(b))
    lines = show_differences(found)
    assert all(count_columns(line) <= 80 for line in lines)
    assert lines[-1] == found["verdict"]
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def change_id(path: Path, place: int, id_: int) -> None:
    """Change one id of the only part of a store, and nothing that the manifest says of it."""
    ids = np.fromfile(path / "part-00000.bin", "<u2")
    ids[place] = id_
    ids.tofile(path / "part-00000.bin")


def slow_compare(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> dict[str, Any]:
    """Compare sequence by sequence as lists."""
    pairs = list(zip(first, second, strict=False))
    differing = [i for i, (a, b) in enumerate(pairs) if a.tolist() != b.tolist()]
    return {
        "num_compared": len(pairs),
        "num_differing": len(differing),
        "num_only_in_a": len(first) - len(pairs),
        "num_only_in_b": len(second) - len(pairs),
        "first": differing[0] if differing else None,
    }


def test_copy_of_a_store_is_the_same(tmp_path: Path) -> None:
    a = store(tmp_path, "a", TEXTS, part_bytes=12)
    b = copy(a, "b")
    (b / "run.json").unlink()
    found = find(a, b)
    assert found.pop("a") == str(a)
    assert found.pop("b") == str(b)
    assert len(found["documents"].pop("examples")) == 3
    assert found == {
        "kind": "differences",
        "compared": "token stores",
        "identical": True,
        "verdict": "identical",
        "options": [],
        "facts": [],
        "ledger": [],
        "sources": {"only_in_a": [], "only_in_b": [], "changed": [], "same_order": True},
        "sequences": {
            "num_compared": 7,
            "num_differing": 0,
            "num_only_in_a": 0,
            "num_only_in_b": 0,
            "first_only_in_a": None,
            "first_only_in_b": None,
            "first": None,
        },
        "documents": {
            "without_stores": [],
            "has_other_hashes": False,
            **dict.fromkeys(["num_in_a", "num_shared_in_a", "num_in_b", "num_shared_in_b"], 7),
            "num_shared_texts": 7,
            "num_differing": 0,
            "first_differing": None,
        },
        "columns": None,
        "batches": None,
        "same_arrays": None,
        "same_numbers": None,
        "decoder": None,
        "pairing": None,
    }


def test_stores_cut_into_other_parts_have_the_same_sequences(tmp_path: Path) -> None:
    a = store(tmp_path, "a", TEXTS, part_bytes=12)
    b = store(tmp_path, "b", TEXTS, part_bytes=20)
    found = find(a, b)
    assert found["options"] == [{"name": "part_bytes", "a": 12, "b": 20}]
    assert found["facts"] == [{"name": "num_parts", "a": 4, "b": 3}]
    assert found["sequences"]["num_differing"] == 0
    assert found["identical"] is False
    assert found["verdict"] == "different options and properties; same sequences"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ids_per_block", [1, 7, 1000])
def test_stores_are_compared_as_a_slow_look_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, ids_per_block: int
) -> None:
    monkeypatch.setattr(LIMITS, "ids_per_block", ids_per_block)
    monkeypatch.setattr(LIMITS, "mapped_ids", 50)
    generator = random.Random(seed)
    texts = make_texts([generator.randint(1, 9) for _ in range(generator.randint(12, 30))], seed)
    others = [
        generator.choice([text] * 8 + [text[:-1] + "!", text + "x", text[1:] or "?"])
        for text in texts[: generator.randint(9, len(texts))]
    ]
    a = store(tmp_path, "a", texts, part_bytes=generator.choice([1, 60, 1000]))
    b = store(tmp_path, "b", others, part_bytes=generator.choice([60, 1000]))
    for one, other in ((a, b), (b, a)):
        found = find(one, other)["sequences"]
        first = found.pop("first")
        expected = slow_compare(list(open_store(one)), list(open_store(other)))
        assert {**found, "first": first and first["sequence"]}.items() >= expected.items()
        if first:
            ids, other_ids = (
                open_store(one)[expected["first"]],
                open_store(other)[expected["first"]],
            )
            same = [x == y for x, y in zip(ids, other_ids, strict=False)]
            assert first["position"] == [*same, False].index(False)


def test_changed_id_is_found_though_no_manifest_says_so(tmp_path: Path) -> None:
    a = store(tmp_path, "a", TEXTS)
    b = copy(a, "b")
    change_id(b, 3 + 9 + 2, ord("O"))
    found = find(a, b)
    origin = {
        "source": str(tmp_path / "corpus.txt"),
        "record": 3,
        "document": 2,
        "piece": 0,
        "num_pieces": 1,
    }
    assert found["sequences"]["first"] == {
        "sequence": 2,
        "position": 2,
        "ids_from": 0,
        "a": {
            "length": 5,
            "ids": list(b"mnopq"),
            "text": "mnopq",
            "origin": {"store": str(a), **origin},
        },
        "b": {
            "length": 5,
            "ids": list(b"mnOpq"),
            "text": "mnOpq",
            "origin": {"store": str(b), **origin},
        },
    }
    assert found["verdict"] == "1 of 7 sequences differs, the first is 2"
    assert (found["options"], found["facts"], found["ledger"]) == ([], [], [])


def test_first_difference_shows_eight_ids_before_and_after_it(tmp_path: Path) -> None:
    a = store(tmp_path, "a", ["x" * 5, "abcdefghijklmnopqrstuvwxyz"])
    b = store(tmp_path, "b", ["x" * 5, "abcdefghijklMnopqrstuvwxyz"])
    first = find(a, b)["sequences"]["first"]
    assert (first["sequence"], first["position"], first["ids_from"]) == (1, 12, 4)
    assert first["a"]["text"] == "efghijklmnopqrstu"
    assert first["b"]["text"] == "efghijklMnopqrstu"
    assert bytes(first["b"]["ids"]) == b"efghijklMnopqrstu"


def test_difference_behind_the_end_of_the_shorter_one(tmp_path: Path) -> None:
    a, b = store(tmp_path, "a", ["abcdefghijkl"]), store(tmp_path, "b", ["abcdefghij"])
    first = find(a, b)["sequences"]["first"]
    assert (first["position"], first["a"]["length"], first["b"]["length"]) == (10, 12, 10)
    assert (first["a"]["text"], first["b"]["text"]) == ("cdefghijkl", "cdefghij")
    lines = show_differences(compare(open_any(a), open_any(b)))
    assert "    ids              … 99 100 101 102 103 104 105 106 [107] 108" in lines
    assert "    ids              … 99 100 101 102 103 104 105 106 [end]" in lines


def test_text_is_decoded_with_the_tokenizer_of_each_side(
    tmp_path: Path, tiny_tokenizer: Path
) -> None:
    a, b = (
        store(tmp_path, "a", ["one"]),
        store(tmp_path, "b", ["one"], tokenizer=str(tiny_tokenizer)),
    )
    found = find(a, b)
    first = found["sequences"]["first"]
    assert (first["a"]["text"], first["b"]["text"]) == ("one", "<bos>one<eos>")
    names = {entry["name"] for entry in found["facts"]}
    assert names >= {"vocab_size", "max_id", "pad_id", "bos_id", "eos_id", "tokenizer_blake3"}
    assert "num_special_tokens_added" in {entry["name"] for entry in found["ledger"]}


def test_damaged_id_that_has_no_text_is_shown(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 70_000}, "unk_token": "a"}
    tokenizer = {"version": "1.0", "added_tokens": [], "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    a = store(tmp_path, "a", ["a", "b"], tokenizer=str(tmp_path / "tokenizer.json"))
    b = copy(a, "b")
    np.array([0, -7], "<i4").tofile(b / "part-00000.bin")
    first = find(a, b)["sequences"]["first"]
    assert (first["a"]["ids"], first["a"]["text"]) == ([70_000], "b")
    assert (first["b"]["ids"], first["b"]["text"]) == ([-7], None)


def test_options_that_one_side_lacks_have_no_value_there(tmp_path: Path) -> None:
    a = store(tmp_path, "a", TEXTS)
    b = copy(a, "b")

    def change(manifest: dict[str, Any]) -> None:
        del manifest["options"]["bos"]
        manifest["options"].update(later=None, add_special_tokens=1)
        manifest["unk_id"] = 3

    change_manifest(b, change)
    found = find(a, b)
    assert found["options"] == [
        {"name": "add_special_tokens", "a": True, "b": 1},
        {"name": "bos", "a": None},
        {"name": "later", "b": None},
    ]
    assert found["facts"] == [{"name": "unk_id", "a": None, "b": 3}]
    assert found["verdict"] == "different options and properties; same sequences"


def test_sources_are_compared_by_path(tmp_path: Path) -> None:
    for name, text in (
        ("x", "one\n"),
        ("y", "two\n"),
        ("z", "three\n"),
        ("u", "u\n"),
        ("v", "v\n"),
    ):
        (tmp_path / name).write_text(text)

    def run(name: str, sources: str) -> Path:
        paths = [str(tmp_path / source) for source in sources]
        tokenize(paths, tmp_path / name, TokenizeOptions(), executor=HERE)
        return tmp_path / name

    a = run("a", "xyzu")
    (tmp_path / "y").write_text("TWO\n")
    (tmp_path / "z").write_text("three\nfour\n")
    found = find(a, run("b", "xyzv"))
    assert found["sources"] == {
        "only_in_a": [str(tmp_path / "u")],
        "only_in_b": [str(tmp_path / "v")],
        "changed": [
            {
                "path": str(tmp_path / "y"),
                "a": {"bytes": 4, "num_documents": 1},
                "b": {"bytes": 4, "num_documents": 1},
            },
            {
                "path": str(tmp_path / "z"),
                "a": {"bytes": 6, "num_documents": 1},
                "b": {"bytes": 11, "num_documents": 2},
            },
        ],
        "same_order": True,
    }
    assert found["verdict"] == "2 of 4 sequences differ, the first is 1, 1 only in B"
    assert {"name": "num_documents", "a": 4, "b": 5, "difference": 1} in found["ledger"]
    turned = find(tmp_path / "b", run("c", "yxzv"))["sources"]
    assert (turned["changed"], turned["same_order"]) == ([], False)


def test_copy_of_shards_is_the_same(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    for name, options in LAYOUTS.items():
        a = pack(tokens, name, **options)
        (tmp_path / "deeper").mkdir(exist_ok=True)
        b = copy(a, f"deeper/{name}")
        change_manifest(b, lambda manifest: manifest["stores"][0].update(path="../../tokens"))
        found = find(a, b)
        assert (found["identical"], found["verdict"]) == (True, "identical")
        assert found["sequences"]["num_compared"] == 7
        num_batches = len(open_shards(a))
        assert found["batches"] == {
            "entry": found["batches"]["entry"],
            "num_a": num_batches,
            "num_b": num_batches,
            "num_same": num_batches,
            "num_same_anywhere": num_batches,
            "first": None,
        }


def test_shards_of_other_layouts_have_the_same_sequences(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    paths = [pack(tokens, name, **options) for name, options in LAYOUTS.items()]
    for a in paths:
        for b in paths:
            found = find(a, b)
            layouts = {open_shards(path).layout for path in (a, b)}
            assert (found["batches"] is None) == (len(layouts) == 2)
            assert found["sequences"]["num_compared"] == 7
            assert found["sequences"]["num_differing"] == 0
            assert found["identical"] == (a == b)
            expected = "identical" if a == b else "same sequences"
            assert expected in found["verdict"]
            assert [entry["name"] == "layout" for entry in found["facts"]].count(True) == (
                len(layouts) - 1
            )


@pytest.mark.parametrize("name", LAYOUTS)
def test_changed_id_of_shards_is_found_with_its_place(tmp_path: Path, name: str) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    a = pack(tokens, "a", **LAYOUTS[name])
    b = pack(tokens, "b", **{**LAYOUTS[name], "shard_bytes": 1 << 20})

    def change(arrays: Arrays) -> None:
        (place,) = np.flatnonzero(arrays["data"] == ord("v"))  # of sequence 4 alone
        arrays["data"][place] = ord("V")

    change_shard(b, change)
    found = find(a, b)
    first = found["sequences"]["first"]
    assert found["sequences"]["num_differing"] == 1
    assert (first["sequence"], first["position"]) == (4, 3)
    assert (first["a"]["text"], first["b"]["text"]) == ("stuvw", "stuVw")
    assert first["a"]["origin"] == first["b"]["origin"]
    assert first["a"]["origin"]["record"] == 5
    assert found["verdict"] == "1 of 7 sequences differs, the first is 4"
    assert found["batches"]["num_same"] == found["batches"]["num_a"]
    tokens.rename(tmp_path / "elsewhere")
    assert find(a, b)["sequences"]["first"]["a"]["origin"] is None


def test_shards_without_some_sequences(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    a, b = pack(tokens, "a", drop_shorter=2, drop_longer=9), pack(tokens, "b", drop_longer=5)
    found = find(a, b)
    sequences = found["sequences"]
    assert (sequences["num_compared"], sequences["num_differing"]) == (4, 0)
    assert (sequences["num_only_in_a"], sequences["first_only_in_a"]) == (1, 1)
    assert (sequences["num_only_in_b"], sequences["first_only_in_b"]) == (1, 3)
    assert found["verdict"] == "4 sequences identical, 1 only in A, 1 only in B"
    ledger = {entry.pop("name"): entry for entry in found["ledger"]}
    assert ledger["num_dropped_sequences by drop_longer"] == {"a": 1, "b": 2, "difference": 1}
    assert ledger["num_dropped_tokens by drop_shorter"] == {"a": 1, "b": 0, "difference": -1}


def test_same_sequences_in_other_batches(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    a, b = pack(tokens, "a", batch_size=2), pack(tokens, "b", batch_size=3)
    found = find(a, b)
    assert found["verdict"] == "different options and counts; same sequences in different batches"
    assert found["batches"] == {
        "entry": "row",
        "num_a": 4,
        "num_b": 3,
        "num_same": 0,
        "num_same_anywhere": 1,  # the last, of one row
        "first": {
            "batch": 0,
            "row": 2,
            "a": {"original_indices": [5, 1]},
            "b": {"original_indices": [5, 1, 2]},
        },
    }


def test_same_batches_in_another_order(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", ["x" * n for n in range(1, 40)])
    paths = [pack(tokens, f"{n}", batch_size=4, shuffle=True, seed=n) for n in range(2)]
    found = find(*paths)
    rows = [[batch.original_indices.tolist() for batch in open_shards(path)] for path in paths]
    assert sorted(rows[0]) == sorted(rows[1])
    assert found["batches"]["num_same_anywhere"] == 10
    assert found["batches"]["num_same"] == sum(map(list.__eq__, *rows)) < 10
    assert found["verdict"] == (
        "different options; same sequences in the same batches, in a different order"
    )


def test_batch_that_one_side_lacks(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    a = pack(tokens, "a", batch_size=3)
    b = pack(tokens, "b", batch_size=3, last_batch="drop")
    batches = find(a, b)["batches"]
    assert (batches["num_a"], batches["num_b"], batches["num_same"]) == (3, 2, 2)
    rows = {"original_indices": [3]}
    assert batches["first"] == {"batch": 2, "row": 0, "a": rows, "b": None}
    assert "    B                no such batch" in show_differences(find(a, b))
    assert find(b, a)["batches"]["first"] == {"batch": 2, "row": 0, "a": None, "b": rows}


def test_batches_of_varlen_are_the_same_with_the_same_pieces(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", ["abcdef"])
    a = pack(tokens, "a", layout="varlen", max_tokens=3, shuffle=False)
    b = pack(tokens, "b", layout="varlen", max_tokens=4, shuffle=False)
    batches = find(a, b)["batches"]
    assert (batches["num_a"], batches["num_b"], batches["num_same_anywhere"]) == (2, 2, 0)
    piece = {"original_indices": [0], "piece_starts": [0]}
    assert batches["first"]["a"] == {**piece, "lengths": [3], "row_indices": [0]}
    assert batches["first"]["b"] == {**piece, "lengths": [4], "row_indices": [0]}


def test_same_sequences_in_other_rows_are_other_batches(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", ["ab", "cd", "ef"])
    options = {"layout": "varlen", "fill": "sequential", "batch_size": 2}
    a = pack(tokens, "a", **options, max_tokens=4)
    b = pack(tokens, "b", **options, max_tokens=3, overflow="error", last_batch="keep")
    c = pack(tokens, "c", layout="varlen", fill="sequential", max_tokens=6)
    assert find(a, b)["batches"]["first"]["row"] == 1  # the second sequence, in the second row
    lines = show_differences(find(a, c))
    assert "  first difference   batch 0, from sequence 2" in lines
    assert "    A                3 sequences, from there 2" in lines


def test_equal_cells_on_other_sides_are_other_rows(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", ["abc", "abc", "bbc"])
    a = pack(tokens, "a", layout="padded", padding_side="right", order="none")
    b = pack(tokens, "b", layout="padded", padding_side="left", order="none")
    found = find(a, b)
    assert found["same_arrays"] is False  # nobody knows before the rows are compared
    assert found["facts"] == [{"name": "padding_side", "a": "right", "b": "left"}]
    assert found["verdict"] == "different properties; same sequences in the same batches"


def test_arrays_that_no_manifest_explains_are_not_the_same(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", ["abc", "de"])
    a = pack(tokens, "a", layout="padded", batch_size=2)
    b = copy(a, "b")

    def widen(arrays: Arrays) -> None:
        pad_id = arrays["data"][-1]
        rows = arrays["data"].reshape(2, 3)
        arrays["data"] = np.concatenate([rows, np.full((2, 1), pad_id)], axis=1).ravel()
        arrays["data"] = arrays["data"].astype("<u2")
        arrays["widths"][:] = 4
        arrays["data_offsets"][1] = 8

    change_shard(b, widen)
    found = find(a, b)
    assert found["identical"] is False
    assert found["verdict"] == "same sequences in the same batches, laid out differently"


def test_store_and_shards_are_not_compared(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    shards = pack(tokens, "shards")
    for a, b, kinds in (
        (tokens, shards, ("shards", "a token store")),
        (shards, tokens, ("a token store", "shards")),
    ):
        with pytest.raises(OptionError) as caught:
            compare(open_any(a), open_any(b))
        assert str(caught.value) == (
            f"{b} holds {kinds[0]}, {a} {kinds[1]}\n\n"
            "hint: name two token stores, or the shards of both"
        )


def test_damage_is_named(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    a, b = pack(tokens, "a"), pack(tokens, "b")

    def raise_step(arrays: Arrays) -> None:
        arrays["batch_sizes"][1] += 1

    change_shard(b, raise_step)
    with pytest.raises(FolderError, match=r"b/shard-00000\.safetensors: batch 0: batch_sizes"):
        find(a, b)
    (b / "tokenizer.json").write_text("{}")
    with pytest.raises(FolderError, match=r"b/tokenizer\.json: blake3 differs from the manifest's"):
        find(a, b)


def test_progress_counts_sequences_or_rows(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    paths = [pack(tokens, name, **options) for name, options in LAYOUTS.items()]
    for a, b in ((tokens, tokens), *((path, paths[0]) for path in paths)):
        totals: list[int] = []
        advanced: list[int] = []

        def start(total: int, totals: list[int] = totals, advanced: list[int] = advanced) -> None:
            totals.append(total)
            advanced.clear()

        compare(open_any(a), open_any(b), Progress(on_total=start, on_advance=advanced.append))
        assert totals[-1] == sum(advanced) > 0


def test_show_differences_of_two_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = Path("one"), Path("two")
    Path("a.txt").write_text("ab\nThe quick brown fox\n")
    tokenize(["a.txt"], one, TokenizeOptions(), executor=HERE)
    Path("a.txt").write_text("ab\nThe quick\n\n")
    tokenize(["a.txt"], two, TokenizeOptions(max_length=7), executor=HERE)
    assert show_differences(compare(open_any(one), open_any(two))) == [
        "token stores compared",
        "  A                  one",
        "  B                  two",
        "",
        "options                        A                        B",
        "  max_length                   null                     7",
        "",
        "counts                                       A               B      difference",
        "  documents                                  2               3              +1",
        "  empty documents                            0               1              +1",
        "  sequences                                  2               3              +1",
        "  encoded tokens                            21              11             -10",
        "  tokens                                    21              11             -10",
        "  target tokens                             21              11             -10",
        "",
        "sources",
        "  changed            a.txt: 23 to 14 bytes, 2 to 3 documents",
        "",
        "sequences",
        "  in both            2",
        "  differ             1",
        "  only in B          1, the first is 2",
        "",
        "first sequence that differs: 1, from token 7",
        "  A                  a.txt, record 2, 19 tokens",
        "    ids              84 104 101 32 113 117 105 [99] 107 32 98 114 111 119 110 32",
        "                     …",
        '    text             "The quick brown "',
        "  B                  a.txt, record 2, piece 1 of 2, 7 tokens",
        "    ids              84 104 101 32 113 117 105 [end]",
        '    text             "The qui"',
        "",
        "documents",
        "  in A               2, 1 of them also in B",
        "  in B               2, 1 of them also in A",
        "  differ             1, the first is 1",
        "",
        "1 of 2 sequences differs, the first is 1, 1 only in B",
    ]


def test_show_differences_of_two_shard_sets(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", ["x" * n for n in range(1, 31)])
    a, b = pack(tokens, "a", batch_size=20), pack(tokens, "b", batch_size=10)
    assert show_differences(compare(open_any(a), open_any(b)))[4:] == [
        "options                        A                        B",
        "  batch_size                   20                       10",
        "",
        "counts                                       A               B      difference",
        "  batches                                    2               3              +1",
        "",
        "batches",
        "  number             2 in A, 3 in B",
        "  same rows          0 at the same index, 1 at any index",
        "  first difference   batch 0, from row 10",
        "    A                20 rows, from there 19 18 17 16 15 14 13 12 11 10",
        "    B                10 rows, ends before",
        "",
        "sequences",
        "  in both            30",
        "  differ             0",
        "",
        "different options and counts; same sequences in different batches",
    ]


def test_counts_of_stores_are_compared_with_those_of_a_single_one(tmp_path: Path) -> None:
    first, second = store(tmp_path, "first", ["a", "b"]), store(tmp_path, "second", ["c", "d", "e"])
    one = pack(first, "one")
    pack_module.pack([first, second], tmp_path / "two", PackOptions(drop_longer=9), executor=HERE)
    found = find(one, tmp_path / "two")
    assert [(it["name"], it["a"], it["b"]) for it in found["ledger"] if "store" in it["name"]] == [
        ("num_sequences of store 2", 0, 3),
        ("num_tokens of store 2", 0, 3),
    ]
    assert found["same_numbers"] is True  # of the first store, whose sequences come first
    assert found["verdict"] == "2 sequences identical, 3 only in B"


def test_shards_of_other_stores_are_compared_by_number(tmp_path: Path) -> None:
    a = pack(store(tmp_path, "first", ["ab", "cd"]), "a")
    b = pack(store(tmp_path, "second", ["ef", "ab"]), "b")
    found = find(a, b)
    assert found["same_numbers"] is False
    assert "  in both            2 by number; the token stores differ" in show_differences(found)


def test_names_of_counts_take_the_room_that_numbers_leave(tmp_path: Path) -> None:
    tokens = store(tmp_path, "tokens", TEXTS)
    splits = {"split": "x=0.5,y=0.5", "split_name": "x"}
    lines = show_differences(find(pack(tokens, "a"), pack(tokens, "b", **splits)))
    (line,) = [line for line in lines if line.startswith("  dropped sequences by other")]
    assert line.startswith("  dropped sequences by other splits              0  ")


def test_show_differences_lists_five_sources(tmp_path: Path) -> None:
    a = store(tmp_path, "a", TEXTS)
    b = copy(a, "b")
    (source,) = json.loads((a / "manifest.json").read_bytes())["sources"]
    others = [
        {"path": f"{n}.txt", "bytes": 0, "num_documents": 0, "first_document": 7} for n in range(8)
    ]
    change_manifest(b, lambda manifest: manifest.update(sources=[source, *others]))
    found = find(a, b)
    assert found["sources"]["only_in_b"] == [f"{n}.txt" for n in range(8)]
    lines = show_differences(found)
    place = lines.index("sources") + 1
    assert lines[place : place + 6] == [
        "  only in B          0.txt",
        *(f"                     {n}.txt" for n in range(1, 5)),
        "                     and 3 more",
    ]


def test_empty_sources_in_another_order_or_twice(tmp_path: Path) -> None:
    a = store(tmp_path, "a", TEXTS)
    b = copy(a, "b")
    (source,) = json.loads((a / "manifest.json").read_bytes())["sources"]
    empty = {"bytes": 0, "num_documents": 0, "first_document": 7}

    def change(path: Path, names: str) -> None:
        others = [{"path": name, **empty} for name in names]
        change_manifest(path, lambda manifest: manifest.update(sources=[source, *others]))

    change(a, "xy")
    change(b, "yx")
    found = find(a, b)
    assert found["sources"]["same_order"] is False
    assert (found["identical"], found["verdict"]) == (False, "different sources; same sequences")
    change(b, "xyx")
    expected = {"only_in_a": [], "only_in_b": ["x"], "changed": [], "same_order": True}
    assert find(a, b)["sources"] == expected
