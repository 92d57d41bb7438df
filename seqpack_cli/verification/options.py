"""The options of verify and of `verify_model`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqpack_cli.files.objects import AnyPath
from seqpack_cli.runs.options import RUN, Conflicts, check_options, find_given, option, refuse

LEVELS = ("structure", "roundtrip", "run", "forward", "backward")
MODEL = "model"  # follows on roundtrip where a user's model is checked
DTYPES = ("float64", "float32", "bfloat16", "float16")
# Options of the test model, which a model of the user's replaces.
TEST_MODEL = ("cell", "num_layers", "bidirectional", "hidden_size", "compare", "every_batch")
MIN_HIDDEN_SIZE = 4  # the outputs of fewer units may all be near zero by chance
WHAT, TEST, OWN = "What to check", "The test model", "Your own model"


@dataclass(frozen=True)
class VerifyOptions:
    """How deep to verify, and with what.

    Raises:
        ValueError: an option has an unknown value.
        OptionError: options conflict, or hidden_size is too small.
    """

    tokens: AnyPath | Sequence[AnyPath] | None = option(
        None,
        "Token store that the shards were packed from; repeat it for several, in any order.",
        WHAT,
        kind="places",
        metavar="STORE",
        shown="the paths recorded by pack",
    )
    device: str = option("cpu", "Device to compute on: cpu, cuda or cuda:N.", WHAT)
    level: str | None = option(
        None,
        "How much to check, each level with those before it; model is for --model.",
        WHAT,
        choices=(*LEVELS, MODEL),
        shown="backward; with --model: model",
    )
    cell: str = option(
        "lstm", "Recurrent network of the test model.", TEST, choices=("lstm", "gru", "rnn")
    )
    num_layers: int = option(1, "Number of recurrent layers.", TEST, kind="count", flag="--layers")
    bidirectional: bool = option(False, "Make the recurrent network bidirectional.", TEST)
    hidden_size: int = option(64, "Hidden size of the test model.", TEST, kind="count")
    model: str | None = option(
        None,
        "Check your own model: a function of (vocab_size, device, dtype) that returns an "
        "nn.Module.",
        OWN,
        metavar="MODULE:FUNCTION",
    )
    call: str | None = option(
        None,
        "Function of (model, batch) that returns the outputs of your model.",
        OWN,
        metavar="MODULE:FUNCTION",
        shown="as is usual for the layout",
    )
    causal: bool = option(False, "Also check that no token of your model sees a later one.", OWN)
    dtype: str = option(
        "float32",
        "Data type for computing; errors in 16 bits are reported, not judged.",
        TEST,
        choices=DTYPES,
    )
    sample: int | None = option(
        32,
        "Batches that forward, backward and model compute, or all.",
        WHAT,
        kind="sample",
        metavar="N|all",
    )
    every_batch: bool | None = option(
        None,
        "With forward and backward, include the level run, which computes every batch.",
        WHAT,
        shown="only on a GPU",
    )
    max_batch_tokens: int = option(
        32_768, "Compute only a part of a batch of more than N tokens.", WHAT, kind="count"
    )
    compare: bool = option(False, "Also measure the speed of the test model on each layout.", TEST)
    self_test: bool = option(
        False,
        "Also damage a copy of one shard in memory, and check that each damage is found.",
        WHAT,
    )
    seed: int = option(
        0,
        "Random seed for the sampled batches and the weights of the test model.",
        WHAT,
        kind="seed",
    )
    num_workers: int | None = option(
        None,
        "Worker processes for the level roundtrip on a CPU.",
        RUN,
        kind="count",
        shown="number of CPU cores, fewer for less than 300 million tokens each",
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.level is None:
            object.__setattr__(self, "level", "backward" if self.model is None else MODEL)
        refuse(_conflicts(self))

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


def _conflicts(o: VerifyOptions) -> Conflicts:
    level = f"--level {o.level}"
    if o.model is None:
        for flag, is_given in (("--call", o.call), ("--causal", o.causal)):
            yield is_given, f"{flag} needs --model", "pass --model MODULE:FUNCTION as well"
        yield o.level == MODEL, f"{level} needs --model", "pass --model MODULE:FUNCTION"
    else:
        what = "--model" if o.level in LEVELS[:2] else "--level"
        message = f"{level} conflicts with --model, which runs structure, roundtrip and model"
        yield o.level != MODEL, message, f"leave out {what}"
        for name, flag, _ in find_given(o):
            message = f"{flag} conflicts with --model: it is for the model that verify makes"
            yield name in TEST_MODEL, message, f"leave out {flag}"
    is_small = o.hidden_size < MIN_HIDDEN_SIZE
    yield is_small, f"--hidden-size {o.hidden_size}: expected {MIN_HIDDEN_SIZE} or more", ""
    if o.every_batch is not None:
        flag, other = "--every-batch", "run to run the model over every batch and stop there"
        if not o.every_batch:
            flag, other = "--no-every-batch", "roundtrip, which does not run the model"
        needs_other = o.every_batch != (o.level == "run")
        yield (
            o.level not in ("forward", "backward"),
            f"{flag} needs --level forward or backward, found {level}",
            f"pass --level {other}" if needs_other else f"leave out {flag}",
        )
    if o.num_workers is not None:
        for flag, is_unfit in (
            (f"--device {o.device}", o.device != "cpu"),
            (level, o.level == "structure"),
        ):
            message = (
                f"--num-workers conflicts with {flag}: workers do the level roundtrip on a CPU"
            )
            yield is_unfit, message, "leave out --num-workers"


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
    sample: int | None = option(32, "", OWN, kind="count")
    batch_size: int = option(8, "", OWN, kind="count")
    seed: int = option(0, "", OWN, kind="seed")

    def __post_init__(self) -> None:
        check_options(self)
