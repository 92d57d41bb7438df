"""Models for tests: float64 on the CPU unless a test says otherwise."""

from __future__ import annotations

from typing import Any

import torch

from seqpack_cli.verification.models.model import Model, ModelShape, build_model

CPU = torch.device("cpu")


def make_model(
    cell: str = "lstm",
    dtype: torch.dtype = torch.float64,
    *,
    num_embeddings: int = 12,
    device: torch.device = CPU,
    seed: int = 0,
    **shape: Any,
) -> Model:
    return build_model(
        ModelShape(num_embeddings, cell, **shape),
        device=device,
        dtype=dtype,
        seed=seed,
    )
