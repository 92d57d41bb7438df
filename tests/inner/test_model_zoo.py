"""The zoo itself: each model does what its entry says, by an oracle in plain Python."""

from __future__ import annotations

import pytest
import torch
from model_zoo import VOCAB_SIZE, ZooModel, find_faults
from plain_models import CORRECT_MODELS
from random_models import random_correct_model
from stream_models import CORRECT_STREAMS, WRONG_STREAMS
from transformers_models import WRONG_TRANSFORMERS, random_transformers_model
from wrong_models import WRONG_MODELS

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = [5, 1, 8, 3, 5]


def draw_ids(lengths: list[int], seed: int = 0) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        10 + number: torch.randint(1, VOCAB_SIZE, (length,), generator=generator)
        for number, length in enumerate(lengths)
    }


@pytest.mark.parametrize("entry", [*WRONG_MODELS, *WRONG_STREAMS], ids=lambda entry: entry.name)
def test_wrong_model_has_the_faults_that_it_names(entry: ZooModel) -> None:
    assert find_faults(entry, draw_ids(LENGTHS), entry.dtype or torch.float64) == entry.faults


@pytest.mark.parametrize("seed", range(12))
def test_random_model_is_correct(seed: int) -> None:
    assert find_faults(random_correct_model(seed), draw_ids(LENGTHS, seed)) == set()


@pytest.mark.parametrize("entry", WRONG_TRANSFORMERS, ids=lambda entry: entry.name)
def test_wrong_model_of_transformers_has_the_faults_that_it_names(entry: ZooModel) -> None:
    pytest.importorskip("transformers")
    assert find_faults(entry, draw_ids(LENGTHS), torch.float32) == entry.faults


@pytest.mark.parametrize("seed", range(6))
def test_random_model_of_transformers_is_correct(seed: int) -> None:
    pytest.importorskip("transformers")
    assert find_faults(random_transformers_model(seed), draw_ids(LENGTHS), torch.float32) == set()


@pytest.mark.parametrize("entry", [*CORRECT_MODELS, *CORRECT_STREAMS], ids=lambda entry: entry.name)
def test_model_as_people_write_it_is_correct(entry: ZooModel) -> None:
    assert find_faults(entry, draw_ids(LENGTHS)) == set()
