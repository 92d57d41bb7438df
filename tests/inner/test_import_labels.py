"""Labels that a trainer's records have come out of the loader as they were."""

from __future__ import annotations

import json

import numpy as np
import pytest
from here import HERE

from seqpack_cli import ImportOptions, PackOptions, ShardDataset, import_store, pack


@pytest.mark.parametrize("overflow", ["error", "split"])
def test_imported_labels_are_those_of_the_records(tmp_path, overflow):
    """Of the first token of a sequence no label is used, by models that shift labels themselves."""
    draws = np.random.default_rng(0)
    records, expected = [], []
    for count in draws.integers(1, 12, 40).tolist():
        ids = draws.integers(0, 100, count)
        labels = np.where(draws.random(count) < 0.5, ids, -100)
        before, after = ([0] * number for number in draws.integers(0, 3, 2))
        record = {
            "input_ids": [*before, *ids.tolist(), *after],
            "labels": [*(-100 for _ in before), *labels.tolist(), *(-100 for _ in after)],
            "attention_mask": [*before, *[1] * count, *after],
        }
        records.append(record)
        expected.append(labels.tolist())
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    made = ImportOptions(vocab_size=100)
    import_store(tmp_path / "a.jsonl", tmp_path / "store", made, executor=HERE)
    max_tokens = 12 if overflow == "error" else 5
    packing = PackOptions(
        layout="varlen", max_tokens=max_tokens, overflow=overflow, keep_without_target=True
    )
    pack(tmp_path / "store", tmp_path / "shards", packing, executor=HERE)
    num_compared = 0
    for batch in ShardDataset(tmp_path / "shards", labels="same"):
        rows = np.split(batch.labels.numpy(), batch.cu_seqlens.numpy()[1:-1])
        places = zip(batch.original_indices.tolist(), batch.piece_starts.tolist(), strict=True)
        for row, (index, start) in zip(rows, places, strict=True):
            labels = expected[index][start : start + len(row)]
            assert row.tolist() == [-100, *labels[1:]]
            num_compared += len(row)
    assert num_compared == sum(map(len, expected))
