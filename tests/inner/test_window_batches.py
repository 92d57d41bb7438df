"""Windows of a stream of lengths, cut into batches while they are read."""

from __future__ import annotations

import numpy as np
import pytest

from seqpack_cli.batching import window_batches
from seqpack_cli.batching.limits import make_limits
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.limits import LIMITS


def test_cut_windows_does_not_copy_a_long_batch_with_every_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LIMITS, "rows_per_block", 2)
    cut: list[int] = []
    (limits,) = make_limits(PackOptions(batch_size=10_000, order="none").resolve(), None)

    class Counting(type(limits)):  # type: ignore[misc]
        def cut(self, lengths: np.ndarray) -> np.ndarray:
            cut.append(len(lengths))
            return super().cut(lengths)  # type: ignore[no-any-return]

    table = window_batches.cut_windows(
        iter([np.ones(4000, np.int32)]), None, Counting(**vars(limits))
    )
    assert table.num_rows.tolist() == [4000]
    assert sum(cut) < 20_000
