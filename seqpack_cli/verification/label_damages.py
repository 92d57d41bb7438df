"""Faulty ways to make labels, which the self-test uses in the place of training's own.

Each is a mistake that training loops make: labels that are not shifted, and next tokens that are
masked by the token before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from seqpack_cli.batching.options import ENCODER
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.training.labels import IGNORED, NEXT, SAME, make_labels
from seqpack_cli.verification.integers.label_values import MakeLabels, check_labels
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.report import Control

LEVEL = "roundtrip"
MAX_BATCHES = 100  # of which the labels are made


def control_labels(run: Verification, number: int, store: TokenStore | None) -> Iterator[Control]:
    """Check labels of a shard that are made wrong."""
    has_labels = run.shards.side != ENCODER  # see `verify_roundtrip`
    if LEVEL not in run.options.levels or store is None or not has_labels:
        return
    shard = run.shards.open_shard(number)
    faults: dict[str, MakeLabels] = {"labels shifted by one": make_unshifted}
    if TARGETS in shard.columns:
        faults["labels masked one token late"] = make_masked_before
    batches = np.arange(min(len(shard), MAX_BATCHES))
    for name, make in faults.items():
        views = map(shard.view, batches.tolist())
        if all(np.array_equal(make(each, NEXT), make_labels(each, NEXT)) for each in views):
            yield Control(name, LEVEL, None, "")
            continue
        checked = check_labels(shard, store, batches, make=make)
        found = next(chain.from_iterable(each.findings for each in checked), None)
        yield Control(name, LEVEL, found is not None, found.what if found else "nothing")


def make_unshifted(batch: Batch, labels: str) -> np.ndarray:
    """Return the labels "same" as "next", one token late."""
    return make_labels(batch, SAME if labels == NEXT else labels)


def make_masked_before(batch: Batch, labels: str) -> np.ndarray:
    """Return the next token where the token itself is a target."""
    if labels != NEXT:
        return make_labels(batch, labels)
    whole = make_labels(replace(batch, columns={}), NEXT)
    return np.where(np.asarray(batch.columns[TARGETS]) == 1, whole, IGNORED)
