"""What `seqpack verify` can be told, checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seqpack_cli.errors import OptionError, check_choice, check_positive
from seqpack_cli.files.url import AnyPath
from seqpack_cli.runs.arguments import check_fields
from seqpack_cli.verification.models.model import CELLS
from seqpack_cli.verification.report import LEVELS

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
MIN_HIDDEN_SIZE = 4  # fewer units may all be near zero by chance


@dataclass(frozen=True)
class VerifyOptions:
    """How deep to look, and with what.

    Raises:
        OptionError: a value is none of those there are.
    """

    tokens: AnyPath | None = None  # the store, if it is not where the manifest says
    device: str = "cpu"
    level: str = "backward"
    cell: str = "lstm"
    num_layers: int = 1
    bidirectional: bool = False
    hidden_size: int = 64
    dtype: str = "float32"
    sample: int | None = 32  # batches of forward and backward; None is all
    every_batch: bool | None = None  # also run the model over every batch; None is on CUDA only
    max_batch_tokens: int = 32_768  # larger batches are computed up to there
    compare: bool = False  # measure what the device makes of each layout
    self_test: bool = False  # see that every kind of damage would be caught
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("level", self.level, LEVELS)
        check_choice("cell", self.cell, CELLS)
        check_choice("dtype", self.dtype, DTYPES)
        for name in ("num_layers", "hidden_size", "sample", "max_batch_tokens"):
            check_positive(name, getattr(self, name))
        if self.hidden_size < MIN_HIDDEN_SIZE:
            raise OptionError(
                f"--hidden-size {self.hidden_size}: expected {MIN_HIDDEN_SIZE} or more"
            )

    @property
    def depth(self) -> int:
        """How many levels are run."""
        return LEVELS.index(self.level) + 1

    @property
    def runs_every_batch(self) -> bool:
        """Whether the model runs over every batch, and not over the sample alone."""
        asked = self.device.startswith("cuda") if self.every_batch is None else self.every_batch
        return asked and self.depth >= LEVELS.index("forward") + 1
