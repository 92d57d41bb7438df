"""The options of `verify_model`, checked."""

from __future__ import annotations

from dataclasses import dataclass

from seqpack_cli.errors import check_positive, check_seed
from seqpack_cli.runs.options import check_options


@dataclass(frozen=True)
class ModelOptions:
    """What to check of a model, and on how many batches.

    Args:
        causal: also check that no token sees a later one, and that no token behind the last target
            changes the loss.
        sample: number of batches: of a data set chosen by the seed, else the first ones; None is
            all.
        batch_size: sequences of a batch, where the batches are made of a data set of samples.
        seed: of the chosen batches and of the changed ids.

    Raises:
        ValueError: a number is out of range.
    """

    causal: bool = False
    sample: int | None = 32
    batch_size: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("sample", "batch_size"):
            check_positive(name, getattr(self, name))
        check_seed("seed", self.seed)
