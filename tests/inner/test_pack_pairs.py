"""pack --decoder: the same bytes by any way of running, both sides' options, and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from command import run
from here import HERE
from make_golden import read_batches
from pair_corpus import draw_records, make_pair_stores
from reference import read_folder
from unfinished import stopping_before_manifest

from seqpack_cli import (
    Executor,
    PackOptions,
    TargetOptions,
    TokenizeOptions,
    open_store,
    pack,
    tokenize,
)
from seqpack_cli.corpus.document_block import DocumentOptions
from seqpack_cli.errors import DataError, FolderError, OptionError
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.split_manifest import open_splits

Stores = tuple[Path, Path]
COMMAND = {"layout": "padded", "batch_size": 4, "last_batch": "pad", "shard_bytes": 3000}


def make_records() -> list[dict[str, Any]]:
    """Draw 40 pairs of texts, of which two lack a side."""
    records = draw_records(40, seed=3)
    records[5]["read"] = records[9]["written"] = ""
    return records


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return make_pair_stores(tmp_path_factory.mktemp("stores"), make_records(), part_bytes=300)


def pack_pairs(stores: Any, output: Path, decoder: Any = None, **options: Any) -> dict[str, Any]:
    """Pack two stores, or lists of them, in this process."""
    encoder = stores if decoder is not None else stores[0]
    others = stores[1] if decoder is None else decoder
    values = {**({} if "max_tokens" in options else {"batch_size": 4}), **options}
    manifest, _ = pack(encoder, output, PackOptions(**values), decoder=others, executor=HERE)
    return manifest


def read_numbers(shards: Path) -> list[tuple[list[int], list[int]]]:
    """Return the kept numbers of the documents in each batch, of both sides in the same order."""
    found = []
    sides = zip(*(each for each in open_shards(shards).sides), strict=True)
    for encoder, decoder in sides:
        numbers = [side.without_filler().columns["number"].tolist() for side in (encoder, decoder)]
        rows = getattr(decoder, "encoder_rows", None)
        if rows is not None:
            numbers[0] = [numbers[0][row] for row in rows]
        found.append((numbers[0], numbers[1]))
    return found


def list_packed(shards: Path) -> list[int]:
    """Return the numbers of all packed documents, ascending, after a look at both sides."""
    batches = read_numbers(shards)
    assert all(encoder == decoder for encoder, decoder in batches)
    return sorted(number for _, decoder in batches for number in decoder)


# The same bytes


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_pairs_have_the_same_bytes_with_workers(
    stores: Stores, tmp_path: Path, layout: str
) -> None:
    options = PackOptions(layout, batch_size=3, shard_bytes=2500, shuffle=True)
    for workers in (1, 2):
        output, executor = tmp_path / str(workers), Executor(num_workers=workers)
        pack(stores[0], output, options, decoder=stores[1], executor=executor)
    assert read_folder(tmp_path / "1") == read_folder(tmp_path / "2")
    assert open_shards(tmp_path / "1").num_shards > 2


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_shards_of_pairs_are_cut_at_their_size(stores: Stores, tmp_path: Path, layout: str) -> None:
    """Both sides count; a header may be shorter than the room that is kept for it."""
    (whole,) = pack_pairs(stores, tmp_path / "whole", layout=layout)["shards"]
    for number, shard_bytes in enumerate((whole["bytes"] + 250, whole["bytes"] - 1), 1):
        output = tmp_path / str(number)
        manifest = pack_pairs(stores, output, layout=layout, shard_bytes=shard_bytes)
        assert len(manifest["shards"]) == number
        assert all(entry["bytes"] <= shard_bytes for entry in manifest["shards"])


def test_stopped_run_of_pairs_makes_only_the_missing_shards(stores: Stores, tmp_path: Path) -> None:
    pack_pairs(stores, tmp_path / "whole", **COMMAND)
    with stopping_before_manifest():
        pack_pairs(stores, tmp_path / "out", **COMMAND)
    kept, removed = (tmp_path / "out" / f"shard-0000{number}.safetensors" for number in (0, 1))
    removed.unlink()
    before = kept.stat().st_mtime_ns
    pack_pairs(stores, tmp_path / "out", **COMMAND)
    assert kept.stat().st_mtime_ns == before
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "whole")


@pytest.mark.parametrize(
    "change",
    [
        lambda receipt: receipt.update(decoder=None),
        lambda receipt: receipt["decoder"].pop("longest"),
        lambda receipt: receipt["decoder"].update(num_tokens=1),
        lambda receipt: receipt["decoder"].update(stores=[]),
    ],
    ids=["none", "no field", "another count", "no store"],
)
def test_shard_whose_receipt_tells_otherwise_of_the_decoder_is_made_again(
    stores: Stores, tmp_path: Path, change: Any
) -> None:
    pack_pairs(stores, tmp_path / "whole", **COMMAND)
    with stopping_before_manifest():
        pack_pairs(stores, tmp_path / "out", **COMMAND)
    receipt = tmp_path / "out" / "shard-00001.json"
    value = json.loads(receipt.read_bytes())
    change(value)
    receipt.write_text(json.dumps(value))
    pack_pairs(stores, tmp_path / "out", **COMMAND)
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "whole")


def test_finished_pairs_are_complete_for_the_same_decoder_alone(
    stores: Stores, tmp_path: Path
) -> None:
    other = make_pair_stores(tmp_path / "other", draw_records(40, seed=4))[1]
    for options in ({}, {"split": "train=0.7,test=rest"}):
        output, packing = tmp_path / f"out{len(options)}", PackOptions(batch_size=4, **options)
        for was_complete in (False, True):
            found = pack(stores[0], output, packing, decoder=stores[1], executor=HERE)
            assert found[1] == was_complete
        for decoder in (stores[0], other, None):
            with pytest.raises(FolderError, match=r"holds a run that differs: .*decoder"):
                pack(stores[0], output, packing, decoder=decoder, executor=HERE)


# The options of both sides


def test_pairs_of_several_stores(stores: Stores, tmp_path: Path) -> None:
    """Each with its own decoder; a column says which store an encoder's row is from."""
    records = [{**record, "number": 100 + record["number"]} for record in draw_records(11, seed=5)]
    more = make_pair_stores(tmp_path / "more", records)
    encoders, decoders = zip(stores, more, strict=True)
    values = {"store_column": "store", "passes": "2=2", "shuffle": True}
    manifest = pack_pairs(list(encoders), tmp_path / "out", list(decoders), **values)
    shards = open_shards(tmp_path / "out")
    assert shards.decoder is not None
    assert [*shards.columns, *shards.decoder.columns] == [
        "lang",
        "number",
        "store",
        "lang",
        "number",
    ]
    assert list_packed(tmp_path / "out") == sorted(
        [number for number in range(40) if number not in (5, 9)] + [*range(100, 111)] * 2
    )
    for batch in shards:
        assert batch.columns["store"].tolist() == (batch.columns["number"] >= 100).tolist()
    for side, entry in zip(shards.sides, manifest["shards"][0:1] * 2, strict=True):
        counts = side.manifest["ledger"]["stores"]
        assert [count["num_sequences"] for count in counts] == [38, 22]
        assert entry["num_sequences"] == 60
    for column in ({"drop_column": ["decoder.lang"]}, {"drop_column": ["lang", "decoder.number"]}):
        pack_pairs(list(encoders), tmp_path / "fewer", list(decoders), **column)
        (tmp_path / "fewer").rename(tmp_path / str(len(column["drop_column"])))
    sides = [open_shards(tmp_path / name).sides for name in ("1", "2")]
    assert [[*side.columns] for both in sides for side in both] == [
        ["lang", "number"],
        ["number"],
        ["number"],
        ["lang"],
    ]


@pytest.mark.parametrize(
    ("where", "is_met"),
    [
        ("number < 20", lambda record: record["number"] < 20),
        ("decoder.number < 20", lambda record: record["number"] < 20),
        (" decoder.lang != de", lambda record: record["lang"] != "de"),
        ("decoder.@length < 5", lambda record: len(record["written"]) < 5),
        ("@length < 5", lambda record: len(record["read"]) < 5),
        ("encoder.@length < 5", lambda record: len(record["read"]) < 5),
    ],
)
def test_condition_is_of_one_side(stores: Stores, tmp_path: Path, where: str, is_met: Any) -> None:
    manifest = pack_pairs(stores, tmp_path / "out", where=[where])
    whole = [record for record in make_records() if record["read"] and record["written"]]
    met = [record["number"] for record in whole if is_met(record)]
    assert list_packed(tmp_path / "out") == met
    for side in (manifest, manifest["decoder"]):
        assert side["ledger"]["num_dropped_sequences"]["where"] == len(whole) - len(met)


def test_condition_on_a_column_of_the_decoder_alone_says_how_to_name_it(
    stores: Stores, tmp_path: Path
) -> None:
    records = draw_records(40)
    twin = make_pair_stores(tmp_path / "twin", records, keep=[])
    with pytest.raises(OptionError) as caught:
        pack_pairs([twin[1]], tmp_path / "out", [stores[1]], where=["lang = de"])
    assert caught.value.message.endswith("has no column 'lang', the decoder's side has one")
    assert caught.value.hint == "to compare it, pass --where 'decoder.lang = de'"


@pytest.mark.parametrize(
    ("ends", "note"),
    [
        ({}, "begin and end with different tokens, expected one to start from and one to stop at"),
        ({"bos": "<bos>"}, "end with different tokens, expected"),
        ({"bos": "<bos>", "eos": "<eos>"}, None),
    ],
)
def test_decoder_without_tokens_to_start_from_and_stop_at_is_noted(
    tmp_path: Path, ends: dict[str, str], note: str | None
) -> None:
    stores = make_pair_stores(tmp_path, draw_records(9), **ends)
    result = run("pack", stores[0], "--decoder", stores[1], "-o", tmp_path / "out")
    assert result.exit_code == 0
    if note is None:
        assert result.stderr == ""
    else:
        assert note in result.stderr


def test_condition_and_drop_column_name_the_side_that_lacks_a_column(
    stores: Stores, tmp_path: Path
) -> None:
    for option, value in (("where", "decoder.x = 1"), ("drop_column", "decoder.x")):
        with pytest.raises(OptionError) as caught:
            pack_pairs(stores, tmp_path / "out", **{option: [value]})
        assert caught.value.message.startswith(f"--{option.replace('_', '-')} '{value}': ")


def test_column_of_the_encoder_called_like_one_of_the_decoder_is_refused(tmp_path: Path) -> None:
    """Else a name in --where, --drop-column or labels= would mean either."""
    (tmp_path / "pairs.jsonl").write_text('{"text": "abc", "lang": "de", "decoder.lang": "en"}\n')
    columns = {"read": ["decoder.lang:class"], "written": ["lang:class"]}
    for side, keep in columns.items():
        options = TokenizeOptions(keep=keep)
        tokenize([tmp_path / "pairs.jsonl"], tmp_path / side, options, executor=HERE)
    read, written = (tmp_path / side for side in columns)
    with pytest.raises(
        OptionError, match=r"column 'decoder\.lang' is called like one of the decod"
    ):
        pack_pairs((read, written), tmp_path / "out")
    with pytest.raises(OptionError) as caught:
        pack_pairs((written, read), tmp_path / "out", store_column="decoder.lang")
    assert caught.value.message == (
        "--store-column decoder.lang: is called like a column of the decoder's side"
    )


def test_splits_hold_the_same_documents_of_both_sides(stores: Stores, tmp_path: Path) -> None:
    manifest = pack_pairs(stores, tmp_path / "out", split="train=0.6,test=rest")
    splits = open_splits(tmp_path / "out").splits
    packed = {name: list_packed(tmp_path / "out" / name) for name in splits}
    assert min(map(len, packed.values())) > 5
    together = sorted(number for numbers in packed.values() for number in numbers)
    assert together == [number for number in range(40) if number not in (5, 9)]
    assert [len(manifest[name]) for name in ("stores", "decoder_stores")] == [1, 1]
    for name, shards in splits.items():
        for side, store in zip(shards.sides, map(open_store, stores), strict=True):
            ledger = side.manifest["ledger"]
            dropped = ledger["num_dropped_sequences"]
            assert ledger["num_sequences"] + sum(dropped.values()) == len(store)
            assert dropped["other_splits"] > 0
            assert ledger["num_sequences"] == len(packed[name])


def test_first_shard_is_read_by_hand(stores: Stores, tmp_path: Path) -> None:
    """With safetensors and plain slices: what a reader in another language does."""
    records = make_records()
    pack_pairs(stores, tmp_path / "out", shuffle=True)
    texts = [[record[side] for record in records if record[side]] for side in ("read", "written")]
    sides = [read_batches(tmp_path / "out", prefix) for prefix in ("", "decoder.")]
    found = set()
    for encoder, decoder in zip(*sides, strict=True):
        rows = [encoder["rows"][row] for row in decoder["encoder_rows"]]
        for (index, _, ids), (other, _, decoder_ids) in zip(rows, decoder["rows"], strict=True):
            pair = bytes(ids).decode(), bytes(decoder_ids).decode()
            assert pair == (texts[0][index], texts[1][other])
            found.add(pair)
    expected = ((record["read"], record["written"]) for record in records)
    assert found == {pair for pair in expected if all(pair)}


def test_arrays_of_the_decoder_are_named_after_it(stores: Stores, tmp_path: Path) -> None:
    for layout, own in (("packed", "batch_sizes"), ("padded", "widths")):
        pack_pairs(stores, tmp_path / layout, layout=layout)
        tensors = safetensors.numpy.load_file(tmp_path / layout / "shard-00000.safetensors")
        encoder = {name for name in tensors if not name.startswith("decoder.")}
        decoder = {name.removeprefix("decoder.") for name in tensors} - {"encoder_rows"}
        assert encoder == decoder
        assert own in encoder
        assert ("decoder.encoder_rows" in tensors) == (layout == "packed")
    assert (tmp_path / "packed" / "decoder.tokenizer.json").exists()
    assert np.array_equal(tensors["sequence_offsets"], tensors["decoder.sequence_offsets"])


# Refusals

PAIRS_OF_LENGTHS = "pass pairs of lengths, such as --buckets '(10,15),(20,25)'"
REFUSED = [
    (
        {"layout": "varlen", "max_tokens": 9},
        "--decoder conflicts with --layout varlen, whose rows hold single sequences",
        "pass --layout packed or padded",
    ),
    (
        {"layout": "streams", "max_tokens": 9},
        "--decoder conflicts with --layout streams, whose rows hold single sequences",
        "pass --layout packed or padded",
    ),
    (
        {"overflow": "split"},
        "--overflow split conflicts with --decoder: a pair is whole documents",
        "pass --overflow drop, or tokenize --max-length N --overflow truncate",
    ),
    (
        {"split": "de,en", "split_by": "decoder.lang"},
        "--split-by decoder.lang: splits follow the encoder's side",
        "keep the column on the encoder's side too: tokenize --keep",
    ),
    (
        {"count": "max"},
        "--count max needs --max-tokens",
        "pass --max-tokens, or leave out --count",
    ),
    (
        {"buckets": (8, 16)},
        "--buckets 8: found one length, expected two, of the encoder's and of the decoder's row",
        PAIRS_OF_LENGTHS,
    ),
    (
        {"layout": "padded", "max_tokens": 20, "count": "sum", "buckets": [(9, 9), (9, 12)]},
        "--buckets (9,12): a single row exceeds --max-tokens 20",
        "pass --max-tokens 21 or more, or leave out this bucket",
    ),
    (
        {"layout": "padded", "pad_to_multiple": 4, "buckets": [(8, 10)]},
        "--buckets (8,10): not a multiple of --pad-to-multiple 4",
        "leave out --pad-to-multiple: the buckets set the widths",
    ),
]


@pytest.mark.parametrize(("options", "message", "hint"), REFUSED)
def test_options_that_pairs_do_not_have_are_refused(
    stores: Stores, tmp_path: Path, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(OptionError) as caught:
        pack_pairs(stores, tmp_path / "out", **options)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--count", "sum", "--max-tokens", 9], "--count sum"),
        (["--buckets", "(8,9)"], "--buckets with two lengths each"),
    ],
)
def test_options_of_pairs_are_refused_without_a_decoder(
    stores: Stores, tmp_path: Path, arguments: list[Any], option: str
) -> None:
    result = run("pack", stores[0], "-o", tmp_path / "out", *arguments)
    assert result.exit_code == 2
    hint = f"hint: pass the decoder's store as --decoder, or leave out {option}\n"
    assert result.stderr == f"Error: {option} needs --decoder\n\n{hint}"


def test_stores_that_are_no_pairs_are_refused(stores: Stores, tmp_path: Path) -> None:
    other = make_pair_stores(tmp_path / "other", draw_records(39))[1]
    output = tmp_path / "out"
    with pytest.raises(OptionError, match=r"39 documents in source .*, expected 40"):
        pack_pairs([stores[0]], output, [other])
    with pytest.raises(OptionError, match="--decoder: 2 stores, expected 1, one for each STORE"):
        pack_pairs([stores[0]], output, [stores[1], tmp_path / "absent"])
    with pytest.raises(OptionError, match="is the token store itself"):
        pack_pairs(stores, stores[1])
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "found", "hint"),
    [
        (
            {"buckets": [(4, 20)], "overflow": "error"},
            r"/read: sequence \d+ \(.*pairs.jsonl:\d+\) has \d tokens, --buckets allows 4",
            "add a larger bucket, ",
        ),
        (
            {"buckets": [(20, 4)], "overflow": "error"},
            r"/written: sequence \d+ \(.*pairs.jsonl:\d+\) has \d tokens, --buckets allows 4",
            "add a larger bucket, ",
        ),
        (
            {"buckets": [(4, 20), (20, 4)], "overflow": "error"},
            r"/read: sequence \d+ \(.*\) has \d and \d tokens on its two sides, no bucket holds",
            "add a larger bucket, or ",
        ),
        (
            {"max_tokens": 6, "where": ["decoder.@length < 6"]},
            r"/read: sequence \d+ \(.*\) has \d tokens, --max-tokens allows 6",
            "pass a larger --max-tokens, ",
        ),
        (
            {"max_tokens": 6, "where": ["@length < 6"]},
            r"/written: sequence \d+ \(.*\) has \d tokens, --max-tokens allows 6",
            "pass a larger --max-tokens, ",
        ),
        (
            {"max_tokens": 9, "count": "sum"},
            r"/read: sequence \d+ \(.*\) has \d and \d tokens on its two sides, --max-tokens "
            "allows 9 together with --count sum",
            "pass a larger --max-tokens, or ",
        ),
    ],
    ids=["bucket", "decoder's bucket", "no bucket", "tokens", "decoder's tokens", "sum"],
)
def test_pair_that_does_not_fit_is_named(
    stores: Stores, tmp_path: Path, options: dict[str, Any], found: str, hint: str
) -> None:
    """The numbers are those of the record in the input."""
    with pytest.raises(OptionError, match=found) as caught:
        pack_pairs(stores, tmp_path / "out", **options)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"{hint}drop such pairs with --overflow drop")
    named = re.search(r"sequence (\d+) \(.*:(\d+)\) has (\d+)(?: and (\d+))?", caught.value.message)
    assert named is not None
    side = "written" if "/written: " in caught.value.message else "read"
    records = make_records()
    record = records[int(named[2]) - 1]
    assert len(record[side]) == int(named[3])
    assert named[4] is None or len(record["written"]) == int(named[4])
    before = [each for each in records[: int(named[2]) - 1] if each[side]]
    assert len(before) == int(named[1])


def test_empty_list_of_decoders_is_refused(stores: Stores, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="decoder: no stores"):
        pack_pairs(stores[0], tmp_path / "out", [])


def test_pairs_of_which_none_is_left_are_an_error(stores: Stores, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        pack_pairs(stores, tmp_path / "out", drop_shorter=99)
    assert caught.value.message.endswith(
        "no batch is left, sequences dropped: 1 with no sequence on the decoder's side, 38 by "
        "--drop-shorter (encoder), 1 with no sequence on the encoder's side"
    )
    assert caught.value.hint == "pass a smaller --drop-shorter"


def test_pair_without_a_target_is_left_out(tmp_path: Path) -> None:
    """A target of the decoder's side: what an encoder reads needs none."""
    records = [{"p": "ask " * (n % 3), "c": "answer" * (n % 4 > 0)} for n in range(12)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    targets = TargetOptions(prompt_field="p", completion_field="c")
    for name, text in (("text", {"documents": DocumentOptions(text_field="p")}), ("answers", {})):
        options = TokenizeOptions(targets=targets if not text else TargetOptions(), **text)
        tokenize(tmp_path / "a.jsonl", tmp_path / name, options, executor=HERE)
    text, answers = tmp_path / "text", tmp_path / "answers"
    counts = {}
    for name, stores, options in (
        ("dropped", (text, answers), {}),
        ("kept", (text, answers), {"keep_without_target": True}),
        ("no column", (text, answers), {"drop_column": ["decoder.targets"]}),
        ("encoder's", (answers, text), {}),
    ):
        manifest = pack_pairs(stores, tmp_path / name, **options)
        assert len(open_shards(tmp_path / name)) == manifest["ledger"]["num_batches"]
        sides = (manifest["ledger"], manifest["decoder"]["ledger"])
        counts[name] = [
            (side["num_sequences"], side["num_dropped_sequences"].get("no_target"))
            for side in sides
        ]
    assert counts == {
        "dropped": [(6, 2), (6, 2)],
        "kept": [(8, None)] * 2,
        "no column": [(8, None)] * 2,
        "encoder's": [(8, None)] * 2,
    }


def test_pairs_are_split_by_a_column_of_the_encoder(stores: Stores, tmp_path: Path) -> None:
    records = make_records()
    pack_pairs(stores, tmp_path / "out", split="de,en", split_by="lang")
    for name in ("de", "en"):
        whole = [it for it in records if it["lang"] == name and it["read"] and it["written"]]
        assert list_packed(tmp_path / "out" / name) == [it["number"] for it in whole]


def test_pairs_of_which_none_has_both_sides_are_an_error(tmp_path: Path) -> None:
    """The store is named whose documents are empty."""
    records = draw_records(5)
    for record, empty in zip(records, ("read", *["written"] * 3, "read"), strict=True):
        record[empty] = ""
    stores = make_pair_stores(tmp_path, records)
    with pytest.raises(DataError) as caught:
        pack_pairs(stores, tmp_path / "out")
    reasons = "3 with no sequence on the decoder's side, 2 with no sequence on the encoder's side"
    assert caught.value.message == f"{stores[0]}: no batch is left, sequences dropped: {reasons}"
    assert caught.value.hint == f"look at the documents: seqpack inspect {stores[1]}"
