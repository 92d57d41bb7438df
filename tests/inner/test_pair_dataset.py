"""ShardDataset over shards of pairs: what an item holds, in which order, and what is refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from here import HERE
from pair_corpus import draw_records, make_pair_shards, make_pair_stores
from shard_reference import change_manifest, change_shard, make_shards
from tensor_reference import assert_same, rows_of
from torch.nn.utils.rnn import pad_packed_sequence
from torch.utils.data import ConcatDataset, DataLoader

from seqpack_cli import (
    DocumentOptions,
    EpochSampler,
    FolderError,
    OptionError,
    PackOptions,
    PairTensors,
    SamplerOptions,
    ShardDataset,
    StoreBatches,
    StoreDataset,
    StreamSlice,
    TargetOptions,
    open_shards,
    pack,
)

RECORDS = draw_records(23)
BOS, EOS, PAD = 257, 258, 256
OPTIONS: dict[str, dict[str, Any]] = {
    "packed": {"layout": "packed", "shuffle": True},
    "padded": {"layout": "padded", "last_batch": "pad"},
    "left": {"layout": "padded", "padding_side": "left", "max_tokens": 64, "shuffle": True},
}


@pytest.fixture(scope="module", params=OPTIONS)
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return make_pair_shards(folder, shard_bytes=800, **OPTIONS[request.param])


@functools.cache
def read(path: Path, **options: Any) -> list[PairTensors]:
    return list(ShardDataset(path, **options))


def texts_of(side: Any) -> list[str]:
    """Return the text of each row, "" for a filler row; bos and eos as < and >."""
    signs = {BOS: "<", EOS: ">"}
    return ["".join(signs.get(id_, chr(id_)) for id_ in row) for row in rows_of(side)]


def labels_of(pair: PairTensors) -> list[str]:
    """Return the labels of each row as a text, in the encoder's order."""
    labels = pair.labels
    if hasattr(pair.decoder, "sequences"):
        sequences = pair.decoder.sequences._replace(data=labels)
        labels, _ = pad_packed_sequence(sequences, batch_first=True, padding_value=-100)
    rows = [[id_ for id_ in row if id_ != -100] for row in labels.tolist()]
    return ["".join(">" if id_ == EOS else chr(id_) for id_ in row) for row in rows]


def test_both_sides_hold_the_same_documents_in_one_order(shards: Path) -> None:
    found = []
    for pair in read(shards):
        assert pair.labels is None
        numbers = pair.encoder.original_indices.tolist()
        records = [RECORDS[number] if number >= 0 else None for number in numbers]
        for side, name in ((pair.encoder, "read"), (pair.decoder, "written")):
            texts = [record[name] if record else "" for record in records]
            assert texts_of(side) == texts
            assert side.lengths.tolist() == [*map(len, texts)]
            assert side.original_indices.tolist() == numbers
            assert [*side.columns] == ["lang", "number"]
            expected = [record["number"] if record else 0 for record in records]
            assert side.columns["number"].tolist() == expected
        found += [number for number in numbers if number >= 0]
    assert sorted(found) == [*range(len(RECORDS))]
    assert len(read(shards)) == len(open_shards(shards)) > 2


def test_labels_are_the_decoders_next_tokens(shards: Path) -> None:
    for pair, whole in zip(read(shards, labels="next"), read(shards), strict=True):
        assert_same(pair.encoder, whole.encoder)
        texts = texts_of(whole.decoder)
        assert texts_of(pair.decoder) == [text[:-1] for text in texts]
        assert labels_of(pair) == [text[1:] for text in texts]


def test_bos_and_eos_are_put_around_the_decoders_rows(shards: Path) -> None:
    both = {"bos_id": BOS, "eos_id": EOS}
    every = [read(shards, **options) for options in ({}, both, {"labels": "next", **both})]
    for whole, longer, shifted in zip(*every, strict=True):
        texts = texts_of(whole.decoder)
        assert texts_of(longer.decoder) == [f"<{text}>" if text else "" for text in texts]
        assert texts_of(shifted.decoder) == [f"<{text}" if text else "" for text in texts]
        assert labels_of(shifted) == [f"{text}>" if text else "" for text in texts]
        assert_same(shifted.encoder, whole.encoder)


@pytest.mark.parametrize(
    ("name", "option", "verb"), [("bos", "<bos>", "begins"), ("eos", "<eos>", "ends")]
)
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_bos_and_eos_are_not_put_twice(
    tmp_path: Path, layout: str, name: str, option: str, verb: str
) -> None:
    path = make_pair_shards(tmp_path, layout=layout, decoder={name: option})
    id_ = {"bos": BOS, "eos": EOS}[name]
    with pytest.raises(
        ValueError, match=rf"^{name}_id is {id_}, with which row 0 .* {verb} already"
    ):
        ShardDataset(path, **{f"{name}_id": id_})[0]


def test_labels_and_columns_of_the_decoder_have_a_prefix(shards: Path) -> None:
    dataset = ShardDataset(shards, labels="decoder.lang", columns=["number"])
    assert [*dataset.columns] == ["number", "decoder.lang"]
    assert dataset.class_names("decoder.lang") == ["de", "en"]
    for pair in dataset:
        numbers = pair.encoder.original_indices.tolist()
        classes = [["de", "en"].index(RECORDS[it]["lang"]) if it >= 0 else -100 for it in numbers]
        assert pair.labels.tolist() == classes
        assert ([*pair.encoder.columns], [*pair.decoder.columns]) == (["number"], ["lang"])
    for pair, other in zip(dataset, read(shards, labels="lang"), strict=True):
        assert torch.equal(pair.labels, other.labels)


def test_facts_of_both_sides_are_those_of_the_manifest(shards: Path) -> None:
    dataset = ShardDataset(shards)
    assert (dataset.vocab_size, dataset.decoder_vocab_size) == (259, 259)
    assert (dataset.pad_id, dataset.decoder_pad_id) == (PAD, PAD)


def test_bucket_keys_are_pairs_of_lengths(tmp_path: Path) -> None:
    keys = ((9, 9), (5, 9))
    path = make_pair_shards(tmp_path, layout="padded", buckets=keys)
    assert ShardDataset(path).bucket_keys == [(5, 9), (9, 9)]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_and_ranks_give_each_batch_once(shards: Path, num_workers: int) -> None:
    dataset, found = ShardDataset(shards, labels="next"), []
    for rank in range(2):
        options = SamplerOptions(balance="tokens", repeat=False)
        sampler = EpochSampler(dataset, seed=1, rank=rank, world_size=2, options=options)
        loader = DataLoader(dataset, batch_size=None, sampler=sampler, num_workers=num_workers)
        found += list(sampler.track(loader))
    every = sorted(found, key=lambda pair: pair.encoder.original_indices.tolist())
    expected = read(shards, labels="next")
    expected = sorted(expected, key=lambda pair: pair.encoder.original_indices.tolist())
    for pair, other in zip(every, expected, strict=True):
        assert_same(pair.encoder, other.encoder)
        assert_same(pair.decoder, other.decoder)
        assert torch.equal(pair.labels, other.labels)


def test_costs_are_those_of_both_sides(shards: Path) -> None:
    opened = open_shards(shards)
    both = zip(opened, opened.decoder, strict=True)
    cells = [encoder.data.size + decoder.data.size for encoder, decoder in both]
    assert ShardDataset(shards).plan_epoch(None).count_costs("tokens").tolist() == cells


def test_several_shard_sets_of_pairs_are_read_in_turn(tmp_path: Path) -> None:
    paths = [make_pair_shards(tmp_path / str(n), n + 5) for n in range(2)]
    dataset, alone = ShardDataset(paths, labels="next"), [read(it, labels="next") for it in paths]
    assert len(dataset) == sum(map(len, alone))
    for pair, other in zip(dataset, alone[0] + alone[1], strict=True):
        assert_same(pair.decoder, other.decoder)
    parts = ConcatDataset([ShardDataset(path) for path in paths])
    assert len(EpochSampler(parts)) == len(dataset)


def test_several_shard_sets_need_decoders_of_one_vocabulary(tmp_path: Path) -> None:
    paths = [make_pair_shards(tmp_path / name) for name in ("a", "b")]
    change_manifest(paths[1], lambda manifest: manifest["decoder"].update(vocab_size=300))
    error = f"^{paths[1]}: the decoder's vocab_size is 300, {paths[0]} has 259; "
    with pytest.raises(ValueError, match=error):
        ShardDataset(paths)


@pytest.mark.parametrize("columns", [None, []])
def test_labels_are_the_targets_of_the_decoder(tmp_path: Path, columns: list[str] | None) -> None:
    targets = TargetOptions(prompt_field="lang", completion_field="written")
    of_decoder = {"documents": DocumentOptions(), "targets": targets, "keep": ()}
    read, written = make_pair_stores(tmp_path, RECORDS, **of_decoder)
    pack(read, tmp_path / "shards", decoder=written, executor=HERE)
    for pair in ShardDataset(tmp_path / "shards", labels="next", eos_id=EOS, columns=columns):
        texts = [RECORDS[number]["written"] for number in pair.encoder.original_indices.tolist()]
        assert labels_of(pair) == [f"{text}>" for text in texts]
        assert [*pair.decoder.columns] == ([] if columns == [] else ["targets"])


def test_pairs_and_single_sequences_are_not_read_as_one(tmp_path: Path) -> None:
    pairs, single = make_pair_shards(tmp_path / "pairs"), make_shards(tmp_path / "single")
    with pytest.raises(ValueError, match=f"^{single}: holds single sequences, {pairs} pairs$"):
        ShardDataset([pairs, single], columns=[])


REFUSED = [
    ({"labels": "same"}, "^labels is 'same', which pairs do not have: expected 'next'$"),
    ({"labels": "decoder.none"}, r"^labels is 'decoder.none', expected None.*'decoder.lang'"),
    ({"columns": ["decoder.none"]}, "^no column 'decoder.none'"),
    ({"bos_id": 259}, "^bos_id is 259, expected from 0 to 258, the decoder's$"),
    ({"eos_id": -1}, "^eos_id is -1, expected from 0 to 258, the decoder's$"),
]


@pytest.mark.parametrize(("options", "error"), REFUSED)
def test_what_pairs_do_not_have_is_refused(shards: Path, options: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        ShardDataset(shards, **options)


def test_bos_is_for_pairs_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^bos_id is 1, expected None without pairs$"):
        ShardDataset(make_shards(tmp_path), bos_id=1)


def test_streams_and_new_batches_are_for_single_sequences(shards: Path) -> None:
    with pytest.raises(ValueError, match="expected some of the 0 streams"):
        ShardDataset(shards)[StreamSlice(0, 0, 1)]
    for options in ({"max_tokens": 9, "count": "sum"}, {"layout": "padded", "buckets": ((1, 2),)}):
        with pytest.raises(OptionError, match="needs --decoder"):
            StoreBatches(StoreDataset(shards.parent / "read"), PackOptions(**options))


def test_a_row_of_one_token_is_named(tmp_path: Path) -> None:
    path = make_pair_shards(tmp_path, [*RECORDS[:2], {**RECORDS[2], "written": "a"}])
    with pytest.raises(ValueError, match=r"^sequence 2 of the decoder has 1 token, expected") as it:
        ShardDataset(path, labels="next")[0]
    assert it.match("pack with --where 'decoder.@length > 1'$")
    assert len(ShardDataset(path, labels="next", eos_id=EOS)[0].labels) > 3


def test_sides_of_other_sizes_are_refused(tmp_path: Path) -> None:
    path = make_pair_shards(tmp_path, layout="padded", buckets=((9, 9),))

    def move_a_row(arrays: dict[str, np.ndarray]) -> None:
        arrays["decoder.sequence_offsets"][1] -= 1
        arrays["decoder.data_offsets"][1] -= 9

    change_shard(path, move_a_row)
    with pytest.raises(FolderError, match=f"^{path}: batch 0: 4 rows of the encoder, 3 of the dec"):
        ShardDataset(path)[0]


def test_rows_that_match_none_or_two_are_refused(tmp_path: Path) -> None:
    path = make_pair_shards(tmp_path)
    for number in (4, -1, 2**40, None):

        def change(arrays: dict[str, np.ndarray], number: int | None = number) -> None:
            rows = arrays["decoder.encoder_rows"]
            rows[0] = rows[1] if number is None else number

        change_shard(path, change)
        with pytest.raises(FolderError, match="batch 0: encoder_rows"):
            ShardDataset(path)[0]
