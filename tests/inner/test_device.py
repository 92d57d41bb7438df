"""Arrays to the device and back: every id survives, whatever its bits and wherever it lies."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from seqpack_cli.verification.device import Sender

CPU = torch.device("cpu")
# around where 16 bits change sign and end, and where 32 do
EDGES = {
    "uint16": [0, 1, 32_766, 32_767, 32_768, 32_769, 65_534, 65_535],
    "int32": [-(2**31), -65_536, -1, 0, 32_768, 65_535, 65_536, 2**31 - 1],
    "int64": [-(2**63), -1, 0, 65_535, 2**31, 2**63 - 1],
}

every_dtype = pytest.mark.parametrize("dtype", EDGES)


def receive(device: torch.device, array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return Sender(device).send(array).receive(dtype)


@every_dtype
def test_every_id_survives(dtype: str) -> None:
    array = np.array(EDGES[dtype], dtype)
    found = receive(CPU, array, torch.int64)
    assert found.dtype == torch.int64
    assert found.tolist() == EDGES[dtype]


@pytest.mark.parametrize("wide", [torch.int32, torch.int64])
def test_all_ids_of_16_bits_survive(wide: torch.dtype) -> None:
    array = np.arange(1 << 16, dtype=np.uint16)
    found = receive(CPU, array, wide)
    assert found.dtype == wide
    assert torch.equal(found, torch.arange(1 << 16, dtype=wide))


@every_dtype
def test_empty_array_is_empty(dtype: str) -> None:
    found = receive(CPU, np.empty(0, dtype), torch.int64)
    assert found.shape == (0,)


@every_dtype
def test_map_of_a_file_is_sent_without_a_warning(tmp_path: Path, dtype: str) -> None:
    array = np.array(EDGES[dtype], dtype)
    array.tofile(tmp_path / "ids")
    mapped = np.memmap(tmp_path / "ids", dtype, "r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert receive(CPU, mapped, torch.int64).tolist() == EDGES[dtype]
        # not aligned to the page, nor to 8 bytes
        assert receive(CPU, mapped[1:-1], torch.int64).tolist() == EDGES[dtype][1:-1]


@every_dtype
def test_receiving_changes_nothing_in_the_array(dtype: str) -> None:
    array = np.array(EDGES[dtype], dtype)
    sent = Sender(CPU).send(array)
    for _ in range(2):
        assert sent.receive(torch.int64).tolist() == EDGES[dtype]
    assert array.tolist() == EDGES[dtype]


@every_dtype
def test_entries_that_lie_apart_are_sent(dtype: str) -> None:
    array = np.repeat(np.array(EDGES[dtype], dtype), 2)
    assert receive(CPU, array[::2], torch.int64).tolist() == EDGES[dtype]


def test_ids_may_be_received_twice() -> None:
    sent = Sender(CPU).send(np.array(EDGES["uint16"], np.uint16))
    for _ in range(2):
        assert sent.receive(torch.int32).tolist() == EDGES["uint16"]
        assert sent.receive(torch.int64).tolist() == EDGES["uint16"]


def send_from_threads(device: torch.device) -> None:
    sender, barrier = Sender(device), threading.Barrier(4)

    def send(number: int) -> bool:
        barrier.wait()
        array = np.full(50_000, 65_535 - number, np.uint16)
        sent = [sender.send(array) for _ in range(5)]
        return all(bool((one.receive(torch.int32) == 65_535 - number).all()) for one in sent)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(send, range(4))) == [True] * 4


def test_arrays_are_sent_from_several_threads() -> None:
    send_from_threads(CPU)


@pytest.mark.cuda
def test_arrays_are_sent_to_cuda_from_several_threads() -> None:
    send_from_threads(torch.device("cuda"))


@pytest.mark.cuda
@every_dtype
@pytest.mark.parametrize("take", [lambda ids: ids, lambda ids: ids[:0]], ids=["all", "none"])
def test_every_id_survives_on_cuda(
    tmp_path: Path, dtype: str, take: Callable[[np.ndarray], np.ndarray]
) -> None:
    np.array(EDGES[dtype], dtype).tofile(tmp_path / "ids")
    mapped = take(np.memmap(tmp_path / "ids", dtype, "r"))
    found = receive(torch.device("cuda"), mapped, torch.int64)
    assert found.is_cuda
    assert found.tolist() == mapped.tolist()


@pytest.mark.cuda
def test_array_sent_to_cuda_may_change_at_once() -> None:
    sender = Sender(torch.device("cuda"))
    array = np.arange(1 << 22, dtype=np.int32)
    sent = [sender.send(array)]
    array[:] = 0
    sent.append(sender.send(array))
    assert torch.equal(sent[0].receive(torch.int64).cpu(), torch.arange(1 << 22))
    assert int(sent[1].receive(torch.int64).abs().sum()) == 0
