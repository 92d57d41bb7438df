"""Stepping through streams gives what each unbroken piece gives alone, and faults are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from shard_reference import make_shards

from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.shared_rows import StreamsBatch
from seqpack_cli.verification.models.model import ModelShape, build_model
from seqpack_cli.verification.models.stream_spans import StreamSpan, take_span
from seqpack_cli.verification.models.stream_ways import check_streams, ignore_resets, lose_states
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import Report
from seqpack_cli.verification.verify_run import verify

LENGTHS = [9, 1, 6, 14, 6, 6, 29, 3, 3, 12, 5, 40, 2, 2, 7]
CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    return make_shards(folder, LENGTHS, layout="streams", batch_size=3, max_tokens=7)


def take(path: Path, **options: Any) -> StreamSpan:
    batches = [cast(StreamsBatch, batch) for batch in open_shards(path)]
    return take_span(batches, CPU, **{"max_tokens": 1000, **options})


def failed(level: str, span: StreamSpan, **shape: Any) -> set[str]:
    usual = {"num_layers": 1, "bidirectional": False, "hidden_size": 8, "remembers": False}
    shape = {**usual, **shape}
    cell = shape.pop("cell", "lstm")
    model = build_model(ModelShape(300, cell, **shape), device=CPU, dtype=torch.float64, seed=1)
    generator = torch.Generator().manual_seed(0)
    comparisons = check_streams(level, model, span, generator=generator)
    return {comparison.quantity for comparison in comparisons if comparison.failed}


def test_rows_of_a_span_are_the_unbroken_pieces(shards: Path) -> None:
    """The three streams hold the documents in order, cut only where the next stream begins."""
    span, store = take(shards), np.concatenate([[], *_read_streams(shards)])
    order = np.lexsort((span.begins, span.cells[_find_firsts(span)] % 3))
    lengths = [int(span.ids.lengths[row]) for row in order]
    assert sum(lengths) == sum(LENGTHS) == len(store)
    borders = {0, *np.cumsum(LENGTHS).tolist()}
    ends = np.cumsum(lengths).tolist()
    assert borders - {0} <= set(ends)  # each document ends a row
    assert len(set(ends) - borders) <= 2  # and two streams may begin inside one
    rows = torch.split(span.ids.packed.data[span.ids.row_order], span.ids.lengths.tolist())
    assert torch.cat([rows[row] for row in order]).tolist() == store.tolist()


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("level", ["forward", "backward"])
def test_streams_are_their_pieces_and_faults_are_found(shards: Path, cell: str, level: str) -> None:
    for options in ({}, {"first_step": 5, "max_steps": 20}, {"max_tokens": 30}):
        span = take(shards, **options)
        assert failed(level, span, cell=cell, num_layers=2) == set()
    span = take(shards)
    quantity = "streams outputs" if level == "forward" else "streams gradient of inputs"
    assert quantity in failed(level, ignore_resets(span), cell=cell)
    assert quantity in failed(level, lose_states(span), cell=cell)


def test_gradients_that_run_through_cuts_are_found(shards: Path) -> None:
    span = take(shards)
    whole = StreamSpan(
        span.ids, span.cells, span.last_cells, span.resets, [], span.begins, span.places
    )
    assert failed("backward", whole) == set()  # without cuts, of the whole pieces
    assert span.cuts == [7 * number for number in range(1, len(span.cuts) + 1)]


def test_a_wrong_reset_in_a_batch_is_found_by_forward(shards: Path) -> None:
    span = take(shards)
    resets = span.resets.clone()
    inside = span.cells[(~span.resets.reshape(-1))[span.cells]]
    resets.view(-1)[inside[0]] = True
    wrong = StreamSpan(
        span.ids, span.cells, span.last_cells, resets, span.cuts, span.begins, span.places
    )
    assert "streams outputs" in failed("forward", wrong)


def test_every_control_of_streams_is_caught(shards: Path) -> None:
    report = verify(shards, VerifyOptions(self_test=True, sample=2, hidden_size=8))
    assert isinstance(report, Report)
    assert report.findings == []
    caught = {control.name: control.caught for control in report.controls}
    new = ("wrong reset", "wrong next id", "swapped streams", "padding in the middle")
    assert all(caught[name] for name in (*new, "moved row index", "id in padding"))
    assert caught["reset ignored"]
    assert caught["state not carried"]
    what = "carried the state through 1 run of batches, of 49 steps at most"
    assert f"forward: {what}" in report.notes


def _find_firsts(span: StreamSpan) -> np.ndarray:
    lengths = span.ids.lengths.numpy()
    firsts: np.ndarray = np.cumsum(lengths) - lengths
    return firsts


def _read_streams(path: Path) -> list[np.ndarray]:
    """Return the ids of each stream, without padding, cell by cell."""
    shards = open_shards(path)
    steps = np.concatenate([batch.data.reshape(batch.shape) for batch in shards])
    pad_id = shards.manifest["pad_id"]
    return [column[column != pad_id] for column in steps.T]
