"""A whole shard over the device: findings are those of each batch, and a wrong device is one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from random_shards import KINDS, NAME, Kind, draw_shard

from seqpack_cli.errors import MachineError
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.device import Sender, Sent
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers import shard_roundtrip
from seqpack_cli.verification.integers.batch_roundtrip import check_batch
from seqpack_cli.verification.integers.shard_roundtrip import Roundtrip, check_shard

CPU = torch.device("cpu")
FIRST_BATCH = 100  # of the shard, in the whole set

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_size = pytest.mark.parametrize("max_cells", [1, 6, 20, 1 << 18])


def find(
    shard: Shard,
    store: TokenStore,
    kind: Kind,
    *,
    max_cells: int = 1 << 18,
    device: torch.device = CPU,
    on_advance: Callable[[int], None] = lambda _: None,
) -> list[Finding]:
    shard.first_batch = FIRST_BATCH
    with pytest.MonkeyPatch.context() as patched:
        name = "ids_per_block" if device.type == "cpu" else "cells_on_gpu"
        patched.setattr(LIMITS, name, max_cells)
        roundtrip = Roundtrip(store, device, kind.piece_length, 1 << 30)
        return list(check_shard(shard, roundtrip, on_advance=on_advance))


def slow_findings(shard: Shard, store: TokenStore, kind: Kind) -> list[Finding]:
    """Check batch by batch."""
    return [
        Finding("roundtrip", NAME, what, FIRST_BATCH + index, row)
        for index in range(len(shard))
        for row, what in check_batch(shard[index], store, CPU, piece_length=kind.piece_length)
    ]


@every_kind
@pytest.mark.parametrize(("seed", "dtype"), [(0, "uint16"), (1, "int32"), (2, "uint16")])
def test_right_shard_has_no_finding(kind: Kind, seed: int, dtype: str) -> None:
    max_id = 65_535 if dtype == "uint16" else 2**31 - 1
    shard, store = draw_shard(kind, seed, dtype=dtype, max_id=max_id)
    assert find(shard, store, kind, max_cells=1 + seed % 40) == []


def flip_cells(shard: Shard, batches: list[int]) -> Shard:
    """Flip the highest bit of the last row's last token of some batches."""
    data = shard.tensors["data"].copy()
    damaged = shard.with_tensors({**shard.tensors, "data": data})
    numbered = shard.with_tensors({**shard.tensors, "data": np.arange(len(data))})
    for index in batches:
        rows = [row for row in numbered.view(index).rows() if len(row)]
        data[rows[-1][-1]] ^= 0x8000
    return damaged


@every_kind
@pytest.mark.parametrize("seed", range(9))
def test_flipped_ids_are_named_as_batch_by_batch(kind: Kind, seed: int) -> None:
    shard, store = draw_shard(kind, seed)
    draws = random.Random(seed)
    faulty = draws.sample(range(len(shard)), draws.randint(0, len(shard)))
    damaged = flip_cells(shard, sorted(faulty))
    found = find(damaged, store, kind, max_cells=draws.randint(1, 60))
    assert found == slow_findings(damaged, store, kind)
    assert [finding.batch for finding in found] == [FIRST_BATCH + index for index in sorted(faulty)]


@every_kind
@pytest.mark.parametrize("seed", range(9))
def test_rows_of_others_are_named_as_batch_by_batch(kind: Kind, seed: int) -> None:
    shard, store = draw_shard(kind, seed)
    draws = random.Random(seed)
    indices = shard.tensors["original_indices"].copy()
    rows = np.flatnonzero(indices >= 0)
    for _ in range(2):
        indices[draws.choice(rows.tolist())] = draws.randint(0, len(store))
    damaged = shard.with_tensors({**shard.tensors, "original_indices": indices})
    found = find(damaged, store, kind, max_cells=draws.randint(1, 60))
    assert found == slow_findings(damaged, store, kind)


@every_kind
@every_size
def test_every_batch_may_be_faulty_and_is_named_once(kind: Kind, max_cells: int) -> None:
    shard, store = draw_shard(kind, 4, num_most=30)
    every = list(range(len(shard)))
    found = find(flip_cells(shard, every), store, kind, max_cells=max_cells)
    assert [finding.batch for finding in found] == [FIRST_BATCH + index for index in every]
    assert {(finding.level, finding.shard) for finding in found} == {("roundtrip", NAME)}
    for finding, index in zip(found, every, strict=True):
        row = len([row for row in shard[index].rows() if len(row)]) - 1
        step = len(shard[index].rows()[row]) - 1
        assert finding.row == row
        assert f" at step {step}, the token store has " in finding.what


@every_kind
@every_size
def test_progress_adds_up_to_the_tokens(kind: Kind, max_cells: int) -> None:
    shard, store = draw_shard(kind, 0)
    advanced: list[int] = []
    for damaged in (shard, flip_cells(shard, [0])):
        advanced.clear()
        find(damaged, store, kind, max_cells=max_cells, on_advance=advanced.append)
        assert sum(advanced) == shard.tensors["lengths"].sum()


def test_progress_adds_up_to_the_tokens_where_rows_are_not_the_stores() -> None:
    assert_progress_of_strange_rows(KINDS["packed"])
    assert_progress_of_strange_rows(KINDS["varlen"])


def test_progress_adds_up_to_the_tokens_where_padded_rows_are_not_the_stores() -> None:
    assert_progress_of_strange_rows(KINDS["filler"])


def assert_progress_of_strange_rows(kind: Kind) -> None:
    shard, store = draw_shard(kind, 4)
    indices = shard.tensors["original_indices"].copy()
    indices[0] = len(store)
    damaged = shard.with_tensors({**shard.tensors, "original_indices": indices})
    advanced: list[int] = []
    assert find(damaged, store, kind, on_advance=advanced.append)
    assert sum(advanced) == shard.tensors["lengths"].sum()


def flip_on_the_way(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the sender change one id of the array it sends as that number, from 0."""
    whole = Sender.send
    sent: list[np.ndarray] = []

    def send(self: Sender, array: np.ndarray) -> Sent:
        found = whole(self, array)
        if len(sent) == number and len(array):
            tensor = found.tensor.clone()
            tensor[int(tensor.nonzero()[0])] ^= 1  # padding is 0 here
            found = dataclasses.replace(found, tensor=tensor)
        sent.append(array)
        return found

    monkeypatch.setattr(Sender, "send", send)
    monkeypatch.setattr(shard_roundtrip, "NUM_READERS", 1)  # so that the order is known


@every_kind
@every_size
@pytest.mark.parametrize("is_expected", [False, True], ids=["data", "expected"])
def test_device_that_changes_an_id_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, max_cells: int, is_expected: bool
) -> None:
    shard, store = draw_shard(kind, 4)
    flip_on_the_way(monkeypatch, int(is_expected))
    (finding,) = find(shard, store, kind, max_cells=max_cells)
    assert finding.batch == FIRST_BATCH
    assert finding.row is None
    assert finding.what == "cpu returns ids that differ from the token store's"


def test_device_that_changes_every_block_is_named_once_a_block_and_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = KINDS["packed"]
    shard, store = draw_shard(kind, 4)
    monkeypatch.setattr(
        Sent, "receive", lambda self, *_: self.tensor.to(torch.int32).random_(0, 1_000_000)
    )
    found = find(shard, store, kind, max_cells=1)  # windows of every batch, or the batch
    named = [finding.batch for finding in found]
    assert len(named) == len(set(named))
    assert named == [FIRST_BATCH + index for index in range(len(shard))]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no GPU memory"), MemoryError()])
@every_size
def test_memory_that_is_not_enough_names_the_batch(
    monkeypatch: pytest.MonkeyPatch, error: Exception, max_cells: int
) -> None:
    kind = KINDS["packed"]
    shard, store = draw_shard(kind, 4)

    def refuse(*args: object) -> object:
        raise error

    for owner, name in ((Sender, "send"), (Sent, "receive")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, refuse)
            with pytest.raises(MachineError) as caught:
                find(shard, store, kind, max_cells=max_cells)
        reason = str(error) or "out of memory"
        assert caught.value.message == f"{NAME}: batch {FIRST_BATCH}: {reason}"


def test_other_errors_are_not_taken_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, store = draw_shard(KINDS["packed"], 4)

    def refuse(*args: object) -> object:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(Sender, "send", refuse)
    with pytest.raises(RuntimeError, match="a bug of ours"):
        find(shard, store, KINDS["packed"])


def test_findings_may_be_left_half_way() -> None:
    shard, store = draw_shard(KINDS["packed"], 4, num_most=30)
    damaged = flip_cells(shard, list(range(len(shard))))
    differences = check_shard(damaged, Roundtrip(store, CPU, None, 1), on_advance=lambda _: None)
    assert next(differences).batch == 0


@pytest.mark.cuda
@every_kind
@every_size
def test_findings_on_cuda_are_those_of_the_cpu(kind: Kind, max_cells: int) -> None:
    for seed in range(3):
        shard, store = draw_shard(kind, seed)
        cuda = torch.device("cuda")
        assert find(shard, store, kind, max_cells=max_cells, device=cuda) == []
        damaged = flip_cells(shard, list(range(len(shard))))
        found = find(damaged, store, kind, max_cells=max_cells, device=cuda)
        assert found == find(damaged, store, kind, max_cells=max_cells)
