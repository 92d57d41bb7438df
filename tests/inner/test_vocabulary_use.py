"""What ids say of a vocabulary: counted as plain Python counts the sequences one by one."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz_guard import limited
from here import HERE
from make_golden import GOLDEN
from reference import change_json
from shard_reference import change_manifest, change_shard
from tokenizers import Tokenizer, models, pre_tokenizers

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.reporting.opened import open_any_as_one
from seqpack_cli.reporting.terminal.vocabulary_lines import show_vocabulary_use
from seqpack_cli.reporting.vocabulary_use import describe_vocabulary_use
from seqpack_cli.reporting.wording import WIDTH, count_columns
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.shard_set import open_any
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.store import TokenStore, open_store
from seqpack_cli.tokens.tokenize_run import tokenize

# Ids 4 to 6, 8, 10 and 11 are no tokens; "never" and "more" are in no text.
VOCABULARY = {
    "<unk>": 0,
    "<pad>": 1,
    "a": 2,
    "b": 3,
    "c": 7,
    "d": 9,
    "never": 12,
    "more": 13,
    "<s>": 14,
}
SPECIAL = ("<unk>", "<pad>", "<s>")
UNKNOWN = "<unk>"
UNK, COMMON, GAP = 0, 2, 5
PACKINGS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 4},
    "padded": {"layout": "padded", "batch_size": 4},
    "left, unshuffled": {
        "layout": "padded",
        "batch_size": 3,
        "padding_side": "left",
        "order": "none",
        "pad_id": COMMON,
    },
    "filler, unknown as padding": {
        "layout": "padded",
        "batch_size": 4,
        "last_batch": "pad",
        "pad_to_multiple": 4,
        "pad_id": UNK,
    },
    "no token as padding": {"layout": "padded", "batch_size": 5, "pad_id": GAP},
    "varlen": {"layout": "varlen", "max_tokens": 40},
    "pieces": {"layout": "varlen", "max_tokens": 7, "overflow": "split"},
}


def save_words(folder: Path, *, special: Iterable[str] = SPECIAL, **more: int) -> Path:
    """Save a tokenizer of VOCABULARY, and of more words with their ids."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    change_json(path, lambda value: value["model"]["vocab"].update(more))  # an id may be huge
    return path


def draw_lines(number: int = 40, *, unknown: float = 0.05, seed: int = 0) -> list[str]:
    """Draw lines of 1 to 20 words, some of which the vocabulary does not know."""
    generator = random.Random(seed)
    return [
        " ".join(
            "other" if generator.random() < unknown else generator.choice("aaaabbcd")
            for _ in range(generator.randint(1, 20))
        )
        for _ in range(number)
    ]


def make_store(folder: Path, lines: list[str], **options: Any) -> Path:
    if "tokenizer" not in options:
        options["tokenizer"] = str(save_words(folder))
    corpus = folder / "corpus.txt"
    corpus.write_text("".join(f"{line}\n" for line in lines))
    made = TokenizeOptions(**{"part_bytes": 300, **options})
    tokenize([str(corpus)], folder / "store", made, executor=HERE)
    return folder / "store"


def describe(folder: Path) -> dict[str, Any]:
    found = describe_vocabulary_use(open_any(folder))
    json.dumps(found, allow_nan=False)  # plain values
    for line in show_vocabulary_use(found):
        assert count_columns(line) <= WIDTH
    return found


def check_counts(found: dict[str, Any], store: TokenStore) -> None:
    """Compare all numbers with those of a loop over the sequences."""
    counts = Counter(id_ for ids in store for id_ in ids.tolist())
    total = sum(counts.values())
    words = {id_: word for word, id_ in VOCABULARY.items()}
    assert found["num_tokens"] == total
    assert (found["vocab_size"], found["max_id"]) == (9, 14)
    assert found["num_used_ids"] == sum(id_ in counts for id_ in words)
    unused = [id_ for id_ in sorted(words) if id_ not in counts]
    assert found["num_never_used_ids"] == len(unused)
    assert found["never_used_share"] == round(len(unused) / 9, 6)
    for name, wanted in (("special", True), ("ordinary", False)):
        expected = [id_ for id_ in unused if (words[id_] in SPECIAL) == wanted]
        kind = found["never_used"][name]
        assert kind["num_ids"] == len(expected)
        assert [entry["id"] for entry in kind["examples"]] == expected[:5]
        assert [entry["token"] for entry in kind["examples"]] == [words[id_] for id_ in expected]
    assert found["missing"] == {"num_ids": 6, "num_tokens": 0, "examples": []}
    special = [(entry["token"], entry["num_tokens"]) for entry in found["special_tokens"]]
    assert special == [(token, counts[VOCABULARY[token]]) for token in SPECIAL]
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
    assert [(entry["id"], entry["num_tokens"]) for entry in found["most_frequent"]] == frequent
    assert [entry["share"] for entry in found["most_frequent"]] == [
        round(count / total, 6) for _, count in frequent
    ]
    unknown = found["unknown"]
    assert (unknown["id"], unknown["num_tokens"]) == (UNK, counts[UNK])


def check_examples(found: dict[str, Any], store: TokenStore, lines: list[str]) -> None:
    """Look each example up in the store, and in the line of the text that it names."""
    words = {id_: word for word, id_ in VOCABULARY.items()}
    for example in found["unknown"]["examples"]:
        ids, position = store[example["sequence"]].tolist(), example["position"]
        assert ids[position] == UNK == example["id"]
        line = lines[example["origin"]["record"] - 1].split(" ")
        assert line == [words[id_] if id_ else "other" for id_ in ids]
        around = " ".join(words[id_] for id_ in ids)
        assert example["text"] in around
        assert "<unk>" in example["text"]


# Counts


def test_store_is_counted_as_a_loop_counts_it(tmp_path: Path) -> None:
    lines = draw_lines()
    store = open_store(make_store(tmp_path, lines))
    found = describe(store.path)
    assert len(store.manifest["parts"]) > 2
    assert (found["kind"], found["path"]) == ("vocabulary", str(store.path))
    check_counts(found, store)
    check_examples(found, store, lines)
    expected = [number for number, line in enumerate(lines) if "other" in line][:5]
    assert [example["sequence"] for example in found["unknown"]["examples"]] == expected
    firsts = [lines[number].split(" ").index("other") for number in expected]
    assert [example["position"] for example in found["unknown"]["examples"]] == firsts


@pytest.mark.parametrize("block_ids", [1, 7, 1 << 18])
@pytest.mark.parametrize("name", PACKINGS)
def test_shards_are_counted_without_their_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block_ids: int
) -> None:
    monkeypatch.setattr(LIMITS, "entries_per_block", block_ids)
    monkeypatch.setattr(LIMITS, "mapped_ids", 3 * block_ids)
    lines = draw_lines()
    store = open_store(make_store(tmp_path, lines))
    options = PackOptions(shard_bytes=900, **PACKINGS[name])
    manifest, _ = pack(store.path, tmp_path / "shards", options, executor=HERE)
    assert len(manifest["shards"]) > 1
    assert (manifest["ledger"]["num_padding_cells"] > 0) == (manifest["layout"] == "padded")
    assert bool(manifest["ledger"]["num_split_sequences"]) == (name == "pieces")
    found = describe(tmp_path / "shards")
    check_counts(found, store)
    assert len(found["unknown"]["examples"]) == 5
    if name != "pieces":  # whose text around ends where the piece does
        check_examples(found, store, lines)
        assert len({example["sequence"] for example in found["unknown"]["examples"]}) == 5
    for example in found["unknown"]["examples"]:
        assert store[example["sequence"]][example["position"]] == UNK
    assert describe(store.path)["unknown"]["num_tokens"] == found["unknown"]["num_tokens"]


def test_examples_stop_at_the_first_of_each_sequence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "entries_per_block", 3)
    lines = ["a", "x x x x x x", "b x", *["x"] * 9]
    store = make_store(tmp_path, lines)
    found = [
        (example["sequence"], example["position"])
        for example in describe(store)["unknown"]["examples"]
    ]
    assert found == [(1, 0), (2, 1), (3, 0), (4, 0), (5, 0)]


def test_text_around_an_example_has_eight_ids_on_each_side(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["b " + "a " * 9 + "x" + " c" * 8 + " d"])
    (example,) = describe(store)["unknown"]["examples"]
    assert example["position"] == 10
    assert example["text"] == "a " * 8 + "<unk>" + " c" * 8


def test_wide_ids_without_a_table_are_counted_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table up to an id of 2 billion would take 16 GiB."""
    lines = draw_lines()
    store = make_store(tmp_path / "narrow", lines)
    expected = describe(store)
    monkeypatch.setattr(LIMITS, "table_ids", 3)
    assert describe(store) == expected
    monkeypatch.undo()
    tokenizer = save_words(tmp_path / "wide", huge=2_000_000_000)
    found = describe(make_store(tmp_path / "wide", [*lines, "huge"], tokenizer=str(tokenizer)))
    assert found["num_tokens"] == expected["num_tokens"] + 1
    assert found["unknown"]["num_tokens"] == expected["unknown"]["num_tokens"]
    assert found["most_frequent"][-1]["id"] == 2_000_000_000
    assert found["missing"]["num_ids"] == 2_000_000_001 - 10


def test_progress_adds_up_to_its_total(tmp_path: Path) -> None:
    store = make_store(tmp_path, draw_lines())
    pack(store, tmp_path / "shards", PackOptions("padded", batch_size=4), executor=HERE)
    for folder in (store, tmp_path / "shards"):
        totals: list[int] = []
        amounts: list[int] = []
        progress = Progress(on_total=totals.append, on_advance=amounts.append)
        describe_vocabulary_use(open_any(folder), progress)
        assert totals == [sum(amounts)]


def test_vocabulary_without_an_unknown_token_has_none(tmp_path: Path) -> None:
    found = describe(make_store(tmp_path, ["b<pad>"], tokenizer="bytes"))
    assert found["unknown"] is None
    assert found["never_used"]["special"]["num_ids"] == 3
    assert found["num_never_used_ids"] == 259 - 6
    assert found["most_frequent"][0] == {
        "id": 60,
        "token": "<",
        "text": "<",
        "bytes": None,
        "num_tokens": 1,
        "share": round(1 / 6, 6),
    }
    unused = [*found["never_used"]["ordinary"]["ids"], *found["never_used"]["special"]["ids"]]
    assert sorted(unused) == sorted(set(range(259)) - set(b"b<pad>"))


def test_parts_of_characters_are_named_as_bytes(tmp_path: Path) -> None:
    found = describe(make_store(tmp_path, ["é"], tokenizer="bytes"))
    assert [(entry["text"], entry["bytes"]) for entry in found["most_frequent"]] == [
        ("\ufffd", "a9"),
        ("\ufffd", "c3"),
    ]
    lines = show_vocabulary_use(found)
    assert lines[-2].endswith("50.00%  bytes a9")
    assert lines[-1].endswith("50.00%  bytes c3")


# Special tokens in the raw text


def test_tokens_spelled_in_the_text_are_named_from_store_and_shards(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["a", "<s> b", "<unk><s>"])
    pack(store, tmp_path / "shards", PackOptions(batch_size=2), executor=HERE)
    source = str(tmp_path / "corpus.txt")
    expected = {
        "num_tokens": 3,
        "tokens": [
            {
                "token": "<s>",
                "count": 2,
                "places": [{"source": source, "record": 2}, {"source": source, "record": 3}],
            },
            {"token": "<unk>", "count": 1, "places": [{"source": source, "record": 3}]},
        ],
    }
    assert describe(store)["spelled_in_text"] == expected
    assert describe(tmp_path / "shards")["spelled_in_text"] == expected


def test_several_stores_are_counted_as_one(tmp_path: Path) -> None:
    stores = []
    for name, lines in (("a", ["a b", "c other <s>"]), ("b", ["<s> <s>", "d", "other"])):
        (tmp_path / name).mkdir()
        path = make_store(tmp_path / name, lines)
        stores.append(path.rename(tmp_path / f"store-{name}"))
    found = describe_vocabulary_use(open_any_as_one(stores))
    counts = {entry["id"]: entry["num_tokens"] for entry in found["most_frequent"]}
    assert found["num_tokens"] == sum(counts.values()) == 9
    places = [
        (it["sequence"], it["origin"]["store_name"], it["origin"]["record"])
        for it in found["unknown"]["examples"]
    ]
    assert places[-1] == (4, "store-b", 3)
    assert (1, "store-a", 2) in places
    (spelled,) = found["spelled_in_text"]["tokens"]
    assert (spelled["token"], spelled["count"]) == ("<s>", 3)
    assert [place["record"] for place in spelled["places"]] == [2, 1]
    assert spelled["places"][1]["source"].startswith("store-b: ")
    lines = show_vocabulary_use(found)
    assert any(line.endswith("b/corpus.txt, record 3") for line in lines)
    assert all(count_columns(line) <= WIDTH for line in lines)


def test_visits_of_a_sequence_are_counted_and_shown_once(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["a other", "b", "c"])
    options = PackOptions(passes="store=3", batch_size=2)
    pack(store, tmp_path / "shards", options, executor=HERE)
    found = describe(tmp_path / "shards")
    once = describe(store)
    assert found["num_tokens"] == 3 * once["num_tokens"]
    assert found["unknown"]["num_tokens"] == 3
    assert [it["sequence"] for it in found["unknown"]["examples"]] == [0]


def test_shards_without_their_store_know_no_places(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["a", "<s> b", "x"])
    pack(store, tmp_path / "shards", PackOptions(batch_size=2), executor=HERE)
    shutil.rmtree(store)
    found = describe(tmp_path / "shards")
    assert found["spelled_in_text"] == {"num_tokens": None, "tokens": None}
    assert [example["origin"] for example in found["unknown"]["examples"]] == [None, None]
    lines = show_vocabulary_use(found)
    title = "special tokens spelled out in the text"
    assert f"{title}  unknown: the token store cannot be read" in lines
    assert "  sequence 2, position 0: the token store cannot be read" in lines


def test_damaged_list_of_tokens_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["<s>"])
    (store / "special_tokens.jsonl").write_text("no JSON\n")
    with pytest.raises(FolderError, match=r"special_tokens\.jsonl:1: not JSON"):
        describe(store)


# Damages


def overwrite_id(path: Path, place: int, id_: int, dtype: str = "<u2") -> None:
    ids = np.frombuffer(path.read_bytes(), dtype).copy()
    ids[place] = id_
    path.write_bytes(ids.tobytes())


def test_id_beyond_the_largest_is_refused_with_its_sequence(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["a b", "c", "a d a", "a"])
    overwrite_id(store / "part-00000.bin", 4, 15)
    with pytest.raises(FolderError) as caught:
        describe(store)
    assert caught.value.message == (
        f"{store / 'part-00000.bin'}: sequence 2: id 15, expected ids from 0 to 14"
    )


@pytest.mark.parametrize("id_", [-1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("max_table_id", [1 << 24, 3])
def test_wild_id_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_: int, max_table_id: int
) -> None:
    monkeypatch.setattr(LIMITS, "table_ids", max_table_id)
    tokenizer = save_words(tmp_path, wide=70_000)
    store = make_store(tmp_path, ["a b", "c"], tokenizer=str(tokenizer))
    overwrite_id(store / "part-00000.bin", 2, id_, "<i4")
    with pytest.raises(FolderError, match=f"sequence 1: id {id_}, expected ids from 0 to 70000"):
        describe(store)


@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_id_beyond_the_largest_is_refused_with_its_batch(tmp_path: Path, layout: str) -> None:
    store = make_store(tmp_path, ["a b"] * 6)
    size = {"max_tokens": 4} if layout == "varlen" else {"batch_size": 2}
    pack(store, tmp_path / "shards", PackOptions(layout, **size), executor=HERE)
    change_shard(tmp_path / "shards", lambda arrays: arrays["data"].__setitem__(-1, 15))
    with pytest.raises(FolderError, match=r"shard-00000\.safetensors: batch 2: id 15"):
        describe(tmp_path / "shards")


def test_padding_that_is_none_is_refused(tmp_path: Path) -> None:
    """Else it would be counted as a token, and some token less."""
    store = make_store(tmp_path, ["a b", "c"])
    pack(store, tmp_path / "shards", PackOptions("padded", batch_size=2), executor=HERE)
    change_shard(tmp_path / "shards", lambda arrays: arrays["data"].__setitem__(-1, COMMON))
    with pytest.raises(FolderError, match=r"batch 0: cell \[1, 1\] is padding and holds 2"):
        describe(tmp_path / "shards")


@pytest.mark.parametrize("max_table_id", [1 << 24, 3])
def test_id_without_a_token_is_found_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_table_id: int
) -> None:
    monkeypatch.setattr(LIMITS, "table_ids", max_table_id)
    store = make_store(tmp_path, ["a b", "c", "a d a", "a"])
    overwrite_id(store / "part-00000.bin", 4, GAP)
    overwrite_id(store / "part-00000.bin", 6, 8)
    pack(store, tmp_path / "shards", PackOptions("padded", pad_id=GAP), executor=HERE)
    for folder in (store, tmp_path / "shards"):
        found = describe(folder)
        assert (found["missing"]["num_ids"], found["missing"]["num_tokens"]) == (6, 2)
        examples = [
            (example["id"], example["sequence"], example["position"], example["origin"]["record"])
            for example in found["missing"]["examples"]
        ]
        assert sorted(examples) == [(GAP, 2, 1, 3), (8, 3, 0, 4)]
        assert "error: 2 tokens with ids that are not in the vocabulary" in (
            show_vocabulary_use(found)
        )


@pytest.mark.parametrize("index", [-5, 3, 2**40])
def test_sequence_that_the_store_has_not_is_refused(tmp_path: Path, index: int) -> None:
    store = make_store(tmp_path, ["a b", "x c", "d"])
    pack(store, tmp_path / "shards", PackOptions(batch_size=3), executor=HERE)
    change_shard(tmp_path / "shards", lambda arrays: arrays["original_indices"].fill(index))
    with pytest.raises(FolderError, match="with index"):
        describe(tmp_path / "shards")


@pytest.mark.parametrize("max_id", [14, 2**31 - 1])
def test_largest_id_that_is_not_the_tokenizers_costs_no_memory(tmp_path: Path, max_id: int) -> None:
    tokenizer = save_words(tmp_path, wide=70_000)
    store = make_store(tmp_path, ["a b", "c a b"], tokenizer=str(tokenizer))
    change_manifest(store, lambda manifest: manifest.update(max_id=max_id))
    found = describe(store)
    assert found["num_tokens"] == 5
    assert [entry["num_tokens"] for entry in found["most_frequent"]] == [2, 2, 1]
    assert [entry["num_tokens"] for entry in found["special_tokens"]] == [0, 0, 0]


# Lines


def test_lines_of_a_golden_store_fit_the_terminal() -> None:
    found = describe(GOLDEN / "v11" / "tokens_words")
    found["path"] = "words"
    assert (
        show_vocabulary_use(found)
        == """\
vocabulary  words
  tokens             62
  vocabulary         10 tokens, ids 0 to 70,000
  used               9 ids
  never used         1 id, 10.00% of the vocabulary
    special          1: 1 "<pad>"
  ids without token  69,991

unknown tokens  1, 1.61% of all tokens: id 0 "<unk>"
  sequence 4, position 2: input/words.txt, record 6
    "<bos> the <unk> harbour and the old boat <eos>"

special tokens in the ids
            id          tokens   share  token
             0               1   1.61%  "<unk>"
             1               0   0.00%  "<pad>"
             2              10  16.13%  "<bos>"
             3              10  16.13%  "<eos>"

special tokens spelled out in the text  none

most frequent
            id          tokens   share  token
        65,535              12  19.35%  "sea"
             4              11  17.74%  "the"
             2              10  16.13%  "<bos>"
             3              10  16.13%  "<eos>"
           300               5   8.06%  "and"
        65,536               5   8.06%  "boat"
        69,999               4   6.45%  "old"
        70,000               4   6.45%  "harbour"
             0               1   1.61%  "<unk>"
""".splitlines()
    )


def test_lines_fit_whatever_stands_in_names_and_tokens(tmp_path: Path) -> None:
    """Describe() looks at the width of every line."""
    odd = "雨\x1b[2J\u202e" * 60
    folder = tmp_path / ("雨が降る" * 15)
    special = [odd, *(f"<s{number}>" for number in range(37))]
    tokenizer = save_words(folder, special=special)
    store = make_store(folder, [f"{odd} {token}" for token in special], tokenizer=str(tokenizer))
    found = describe(store)
    assert len(found["spelled_in_text"]["tokens"]) == 38
    shown = show_vocabulary_use(found)
    assert shown.count("  and 22 more (all with --json)") == 2
    assert not [line for line in shown if "\x1b" in line or "\u202e" in line]


def test_one_large_id_is_no_table_for_each_of_many_parts(tmp_path: Path) -> None:
    words = save_words(tmp_path / "wide", huge=2**24)
    lines = ["huge aa"] * 60
    store = make_store(tmp_path / "wide", lines, tokenizer=str(words), part_bytes=16)
    assert len(open_store(store).manifest["parts"]) >= 30
    with limited(growth_bytes=64 << 20):  # a table would take twice as much, for each part
        found = describe(store)
    assert found["most_frequent"][0]["num_tokens"] == 60
