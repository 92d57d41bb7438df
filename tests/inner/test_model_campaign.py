"""Random models and mistaken ones: `verify_model` passes the correct and catches the wrong."""

from __future__ import annotations

import pytest
import torch
from judged_models import find_false_alarms, find_misses, find_random_misses

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

NUM_CHUNKS = 10
MODELS_PER_CHUNK = 40


@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_correct_models_pass_and_wrong_ones_are_caught(chunk: int) -> None:
    pytest.importorskip("transformers")
    seeds = (MODELS_PER_CHUNK * chunk, MODELS_PER_CHUNK * (chunk + 1))
    assert list(find_false_alarms(*seeds)) == []
    assert list(find_random_misses(*seeds)) == []
    dtype = (torch.float32, torch.float64)[chunk % 2]
    assert list(find_misses(chunk, dtype)) == []
