"""Tasks that are sent to workers, and collections that are paused meanwhile."""

from __future__ import annotations

import gc
import pickle

from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.runs.collection import pausing_collection
from seqpack_cli.tokens.part_setup import PartTask


def test_collections_are_paused_only_inside() -> None:
    with pausing_collection(), pausing_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_task_is_the_same_after_pickling() -> None:
    index = Source("b.idx", "megatron", "row", 7)
    source = Source("b.bin", "megatron", "row", 9, modified=3, index_file=index)
    task = PartTask("part-00000", [SourceRange(0, source, 0, 9), SourceRange(0, source, 2, 4)])
    found = pickle.loads(pickle.dumps(task))  # noqa: S301
    assert found == task
    assert found.ranges[0].source.input == source.input
