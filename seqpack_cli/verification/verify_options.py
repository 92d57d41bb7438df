"""The options of `seqpack verify`, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from seqpack_cli.errors import OptionError, check_choice, check_positive, check_seed
from seqpack_cli.files.places import AnyPath
from seqpack_cli.runs.arguments import check_fields
from seqpack_cli.verification.models.model import CELLS
from seqpack_cli.verification.report import LEVELS, MODEL

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Options of the test model, which a model of the user's replaces.
TEST_MODEL = {
    "cell": "--cell",
    "num_layers": "--layers",
    "bidirectional": "--bidirectional",
    "hidden_size": "--hidden-size",
    "compare": "--compare",
    "every_batch": "--every-batch",
}
MIN_HIDDEN_SIZE = 4  # the outputs of fewer units may all be near zero by chance


@dataclass(frozen=True)
class VerifyOptions:
    """How deep to verify, and with what.

    Args:
        tokens: the token store's folder; None is where the shards' manifest says.
        device: "cpu", "cuda" or "cuda:N".
        level: "structure", "roundtrip", "run", "forward" or "backward"; each includes those
            before it. "model" follows on roundtrip and runs the model of `model`. None is
            "backward", or "model" if there is one.
        cell: "lstm", "gru" or "rnn": the model, with num_layers, bidirectional and hidden_size.
        model: "module:function", your own function that makes a model of (vocab_size, device,
            dtype), which is checked instead of the test model.
        call: "module:function", your own function of (model, batch) that returns the model's
            outputs; None calls it as is usual for the layout.
        causal: also check that no token of your model sees a later one.
        dtype: "float64", "float32", "bfloat16" or "float16"; errors of the last two are reported,
            not judged.
        sample: number of batches that forward and backward compute; None is all.
        every_batch: run the model over every batch before forward and backward; None is on a GPU
            only.
        max_batch_tokens: of a larger batch only a part is computed.
        compare: measure the speed of each layout on the device.
        self_test: damage a shard in memory and check that each damage is found.
        seed: of the weights and the sample.
        num_workers: processes of this machine that do the level roundtrip on a CPU; None is one
            per core, or fewer if the shards are not worth it (300 million tokens each). With more
            than one, a script needs `if __name__ == "__main__":`.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: options conflict, or hidden_size is too small.
    """

    tokens: AnyPath | Sequence[AnyPath] | None = None
    device: str = "cpu"
    level: str | None = None
    cell: str = "lstm"
    num_layers: int = 1
    bidirectional: bool = False
    hidden_size: int = 64
    model: str | None = None
    call: str | None = None
    causal: bool = False
    dtype: str = "float32"
    sample: int | None = 32
    every_batch: bool | None = None
    max_batch_tokens: int = 32_768
    compare: bool = False
    self_test: bool = False
    seed: int = 0
    num_workers: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_model()
        if self.level is None:
            object.__setattr__(self, "level", "backward" if self.model is None else MODEL)
        check_choice("level", self.level, (*LEVELS, MODEL))
        check_choice("cell", self.cell, CELLS)
        check_choice("dtype", self.dtype, DTYPES)
        for name in ("num_layers", "hidden_size", "sample", "max_batch_tokens", "num_workers"):
            check_positive(name, getattr(self, name))
        check_seed("seed", self.seed)
        if self.hidden_size < MIN_HIDDEN_SIZE:
            raise OptionError(
                f"--hidden-size {self.hidden_size}: expected {MIN_HIDDEN_SIZE} or more"
            )
        self._check_every_batch()
        self._check_workers()

    def _check_workers(self) -> None:
        """Check that worker processes would have something to do."""
        if self.num_workers is not None and (self.device != "cpu" or self.level == "structure"):
            found = f"--device {self.device}" if self.device != "cpu" else "--level structure"
            raise OptionError(
                f"--num-workers conflicts with {found}: workers do the level roundtrip on a CPU",
                hint="leave out --num-workers",
            )

    def _check_model(self) -> None:
        """Check the options of a user's model, and that no option of the test model is set."""
        own = {"call": self.call, "causal": self.causal}
        if self.model is None:
            for name in [name for name, value in own.items() if value]:
                raise OptionError(
                    f"--{name} needs --model", hint="pass --model MODULE:FUNCTION as well"
                )
            if self.level == MODEL:
                raise OptionError(
                    "--level model needs --model", hint="pass --model MODULE:FUNCTION"
                )
            return
        if self.level not in (None, MODEL):
            raise OptionError(
                f"--level {self.level} conflicts with --model, which runs structure, roundtrip and "
                "model",
                hint=f"leave out {'--model' if self.level in LEVELS[:2] else '--level'}",
            )
        defaults = {each.name: each.default for each in fields(self)}
        for name, option in TEST_MODEL.items():
            if getattr(self, name) != defaults[name]:
                raise OptionError(
                    f"{option} conflicts with --model: it is for the model that verify makes",
                    hint=f"leave out {option}",
                )

    def _check_every_batch(self) -> None:
        """Check that the level run can be added or left out."""
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
        if self.level == MODEL:
            return (*LEVELS[:2], MODEL)
        levels = LEVELS[: LEVELS.index(str(self.level)) + 1]
        on_gpu = self.device.startswith("cuda")
        every_batch = on_gpu if self.every_batch is None else self.every_batch
        if self.level == "run" or every_batch:
            return levels
        return tuple(level for level in levels if level != "run")
