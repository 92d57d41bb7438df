"""The options of `seqpack verify`, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seqpack_cli.errors import OptionError, check_choice, check_positive, check_seed
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
MIN_HIDDEN_SIZE = 4  # the outputs of fewer units may all be near zero by chance


@dataclass(frozen=True)
class VerifyOptions:
    """How deep to verify, and with what.

    Args:
        tokens: the token store's folder; None is where the shards' manifest says.
        device: "cpu", "cuda" or "cuda:N".
        level: "structure", "roundtrip", "run", "forward" or "backward"; each includes those
            before it.
        cell: "lstm", "gru" or "rnn": the model, with num_layers, bidirectional and hidden_size.
        dtype: "float64", "float32", "bfloat16" or "float16"; errors of the last two are reported,
            not judged.
        sample: number of batches that forward and backward compute; None is all.
        every_batch: run the model over every batch before forward and backward; None is on a GPU
            only.
        max_batch_tokens: of a larger batch only a part is computed.
        compare: measure the speed of each layout on the device.
        self_test: damage a shard in memory and check that each damage is found.
        seed: of the weights and the sample.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: options conflict, or hidden_size is too small.
    """

    tokens: AnyPath | Sequence[AnyPath] | None = None
    device: str = "cpu"
    level: str = "backward"
    cell: str = "lstm"
    num_layers: int = 1
    bidirectional: bool = False
    hidden_size: int = 64
    dtype: str = "float32"
    sample: int | None = 32
    every_batch: bool | None = None
    max_batch_tokens: int = 32_768
    compare: bool = False
    self_test: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("level", self.level, LEVELS)
        check_choice("cell", self.cell, CELLS)
        check_choice("dtype", self.dtype, DTYPES)
        for name in ("num_layers", "hidden_size", "sample", "max_batch_tokens"):
            check_positive(name, getattr(self, name))
        check_seed("seed", self.seed)
        if self.hidden_size < MIN_HIDDEN_SIZE:
            raise OptionError(
                f"--hidden-size {self.hidden_size}: expected {MIN_HIDDEN_SIZE} or more"
            )
        if self.every_batch is not None and self.level not in ("forward", "backward"):
            name = "--every-batch" if self.every_batch else "--no-every-batch"
            hint = f"leave out {name}"
            if self.every_batch and self.level != "run":
                hint = "pass --level run to run the model over every batch and stop there"
            elif self.level == "run" and not self.every_batch:
                hint = "pass --level roundtrip, which does not run the model"
            raise OptionError(
                f"{name} needs --level forward or backward, found --level {self.level}", hint=hint
            )

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels to check, in order: all up to `level`, some of them without `run`."""
        levels = LEVELS[: LEVELS.index(self.level) + 1]
        on_gpu = self.device.startswith("cuda")
        every_batch = on_gpu if self.every_batch is None else self.every_batch
        if self.level == "run" or every_batch:
            return levels
        return tuple(level for level in levels if level != "run")
