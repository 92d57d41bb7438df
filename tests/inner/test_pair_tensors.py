"""Batches of pairs as tensors: rows that match, moves, and what torch's layers return."""

from __future__ import annotations

import copy
import io
import pickle
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tensor_reference import assert_same
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence, unpack_sequence

from seqpack_cli.shards.packed import pack_sequence
from seqpack_cli.shards.padded import pad_sequence
from seqpack_cli.tokens.text_values import TextValues
from seqpack_cli.training import pair_tensors
from seqpack_cli.training.batch_tensors import PackedTensors, PaddedTensors
from seqpack_cli.training.pair_tensors import PairOptions, PairTensors
from seqpack_cli.training.teacher_forcing import DecoderEnds

BOS, EOS, NO_TAG = 98, 99, -100
NO_ENDS = DecoderEnds(fills={"tag": NO_TAG})
ENDS = replace(NO_ENDS, bos_id=BOS, eos_id=EOS)
TENSORS = {"packed": PackedTensors, "padded": PaddedTensors}
Pairs = list[tuple[list[int], list[int]]]
layouts = pytest.mark.parametrize("layout", ["packed", "padded"])


def draw_pairs(num_pairs: int = 7, seed: int = 0) -> Pairs:
    """Draw pairs whose encoder rows are longest first; lengths tie often."""
    draw = random.Random(seed)
    rows = [
        [[draw.randrange(90) for _ in range(draw.randint(1, 5))] for _ in "ed"]
        for _ in range(num_pairs)
    ]
    return sorted(((encoder, decoder) for encoder, decoder in rows), key=lambda it: -len(it[0]))


def make_batches(pairs: Pairs, layout: str) -> tuple[Any, Any]:
    """Lay pairs out as pack does, with a tag per token, and a class and a text per sequence."""
    encoder, decoder = ([np.array(row) for row in side] for side in zip(*pairs, strict=True))
    order = [*range(len(pairs))]
    lay_out: Any = pad_sequence
    if layout == "packed":
        lay_out = pack_sequence
        order.sort(key=lambda row: -len(decoder[row]))
    rows = [decoder[row] for row in order]
    columns = {
        "tag": getattr(
            lay_out([row + 100 for row in rows]), "data" if layout == "packed" else "ids"
        ),
        "class": np.array(order),
        "id": TextValues.of([str(row) for row in order]),
    }
    indices = np.array(order)
    found = replace(lay_out(rows), original_indices=indices, columns=columns)
    if layout == "packed":
        found = replace(found, encoder_rows=indices)
    names = {"id": TextValues.of([f"e{row}" for row in range(len(pairs))])}
    return replace(lay_out(encoder), original_indices=np.arange(len(pairs)), columns=names), found


def make_pair(pairs: Pairs, layout: str, **options: Any) -> PairTensors:
    return pair_tensors.make_pair(
        *make_batches(pairs, layout), TENSORS[layout], PairOptions(**{"ends": NO_ENDS, **options})
    )


def rows_of(side: Any) -> list[list[int]]:
    if isinstance(getattr(side, "sequences", None), PackedSequence):
        return [row.tolist() for row in unpack_sequence(side.sequences)]
    return [row[mask].tolist() for row, mask in zip(side.ids, side.mask, strict=True)]


@layouts
@pytest.mark.parametrize("seed", range(4))
def test_row_r_of_both_sides_is_the_same_pair(layout: str, seed: int) -> None:
    pairs = draw_pairs(seed=seed)
    pair = make_pair(pairs, layout)
    assert pair.labels is None
    for number, side in enumerate((pair.encoder, pair.decoder)):
        rows = [both[number] for both in pairs]
        assert rows_of(side) == rows
        assert side.lengths.tolist() == [len(row) for row in rows]
        assert side.original_indices.tolist() == [*range(len(rows))]
    assert pair.decoder.columns["class"].tolist() == [*range(len(pairs))]
    assert pair.decoder.columns["id"] == [str(row) for row in range(len(pairs))]
    tags = pair.decoder.columns["tag"]
    if layout == "packed":
        sequences = pair.decoder.sequences
        assert torch.equal(tags, sequences.data + 100)
        padded, lengths = pad_packed_sequence(sequences, batch_first=True)
        assert torch.equal(lengths, pair.decoder.lengths)
        assert padded[:, 0].tolist() == [decoder[0] for _, decoder in pairs]
    else:
        assert torch.equal(tags[pair.decoder.mask], pair.decoder.ids[pair.decoder.mask] + 100)


@layouts
def test_labels_are_the_tokens_after_those_of_the_input(layout: str) -> None:
    pairs = draw_pairs()
    pair = make_pair(pairs, layout, labels="next", ends=ENDS)
    assert rows_of(pair.encoder) == [encoder for encoder, _ in pairs]
    assert rows_of(pair.decoder) == [[BOS, *decoder] for _, decoder in pairs]
    labels = copy.copy(pair.decoder)
    if layout == "packed":
        labels.sequences = pair.decoder.sequences._replace(data=pair.labels)
    else:
        assert pair.labels[~pair.decoder.mask].unique().tolist() == [-100]
        labels.ids = pair.labels
    assert rows_of(labels) == [[*decoder, EOS] for _, decoder in pairs]


@layouts
def test_labels_are_a_column_of_either_side(layout: str) -> None:
    pairs, num_added = draw_pairs(), 2
    pair = make_pair(pairs, layout, labels="decoder.class", ends=ENDS)
    assert pair.labels.tolist() == [*range(len(pairs))]
    assert pair.decoder.lengths.tolist() == [len(row) + num_added for _, row in pairs]
    encoder, decoder = make_batches(pairs, layout)
    encoder.columns["class"] = np.arange(len(pairs)) % 3
    pair = pair_tensors.make_pair(
        encoder, decoder, TENSORS[layout], PairOptions("class", NO_ENDS, hidden=["id"])
    )
    assert pair.labels.tolist() == [row % 3 for row in range(len(pairs))]
    assert list(pair.decoder.columns) == ["tag", "class"]


def test_decoder_begins_each_row_with_the_state_of_its_pair() -> None:
    """A GRU over a whole batch computes what it computes for each pair alone, in float64."""
    torch.manual_seed(0)
    embedding = nn.Embedding(100, 8, dtype=torch.float64)
    encoder, decoder = (nn.GRU(8, 8, 2, dtype=torch.float64) for _ in "ed")

    def run(pair: PairTensors) -> tuple[list[torch.Tensor], torch.Tensor]:
        both = pair.encoder.sequences, pair.decoder.sequences
        source, target = (it._replace(data=embedding(it.data)) for it in both)
        outputs, state = decoder(target, encoder(source)[1])
        return unpack_sequence(outputs), state

    for seed in range(3):
        pairs = draw_pairs(12, seed)
        rows, states = run(make_pair(pairs, "packed", labels="next", ends=ENDS))
        for number, each in enumerate(pairs):
            (row,), state = run(make_pair([each], "packed", labels="next", ends=ENDS))
            torch.testing.assert_close(rows[number], row)
            torch.testing.assert_close(states[:, number], state[:, 0])


def assert_same_pair(found: PairTensors, expected: PairTensors) -> None:
    assert type(found) is PairTensors
    for side in ("encoder", "decoder"):
        assert_same(getattr(found, side), getattr(expected, side))
    assert torch.equal(found.labels, expected.labels)


@layouts
def test_pairs_are_copied_sent_and_saved(layout: str) -> None:
    pair = make_pair(draw_pairs(), layout, labels="next", ends=ENDS)
    assert_same_pair(pair.to("cpu"), pair)
    assert_same_pair(copy.deepcopy(pair), pair)
    assert_same_pair(pickle.loads(pickle.dumps(pair)), pair)  # noqa: S301
    file = io.BytesIO()
    torch.save(pair, file)
    file.seek(0)
    assert_same_pair(torch.load(file, weights_only=False), pair)


@layouts
def test_rows_of_both_sides_stay_on_the_cpu(layout: str) -> None:
    pair = make_pair(draw_pairs(), layout, labels="next", ends=ENDS).to("meta")
    data = pair.decoder.sequences if layout == "packed" else pair.decoder.ids
    assert {it.device.type for it in (data.data, pair.labels)} == {"meta"}
    assert {it.lengths.device.type for it in (pair.encoder, pair.decoder)} == {"cpu"}
    if layout == "packed":
        assert data.sorted_indices.device.type == "meta"
        assert data.batch_sizes.device.type == "cpu"


def test_repr_describes_both_sides() -> None:
    pair = make_pair([([1, 2], [3])], "padded", labels="next", ends=ENDS)
    assert repr(pair) == (
        "PairTensors(encoder=PaddedTensors(ids=int64[1, 2], mask=bool[1, 2], lengths=int64[1], "
        "original_indices=int64[1], columns={'id': 1 texts}), decoder=PaddedTensors("
        "ids=int64[1, 2], mask=bool[1, 2], lengths=int64[1], original_indices=int64[1], "
        "columns={'tag': int64[1, 2], 'class': int64[1], 'id': 1 texts}), labels=int64[1, 2])"
    )


@pytest.mark.cuda
@layouts
def test_pairs_move_to_a_gpu_and_match_there(layout: str) -> None:
    pair = make_pair(draw_pairs(), layout, labels="next", ends=ENDS)
    moved = pair.pin_memory().to("cuda", non_blocking=True)
    assert moved.labels.device.type == "cuda"
    assert rows_of(moved.decoder) == rows_of(pair.decoder)
