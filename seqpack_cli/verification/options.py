"""The options of verify and of `verify_model`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from seqpack_cli.files.objects import AnyPath
from seqpack_cli.runs.options import RUN, Conflict, check_options, option, refuse, spell_flag

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
        refuse(CONFLICTS, self)

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


# Options that conflict, in the form of `runs.options.refuse`.
OWN_LEVELS = "conflicts with --model, which runs structure, roundtrip and model"
CONFLICTS: tuple[Conflict, ...] = (
    *(
        (
            lambda o, name=name: o.model is None and getattr(o, name),
            f"--{name} needs --model",
            "pass --model MODULE:FUNCTION as well",
        )
        for name in ("call", "causal")
    ),
    (
        lambda o: o.model is None and o.level == MODEL,
        "--level model needs --model",
        "pass --model MODULE:FUNCTION",
    ),
    (
        lambda o: o.model is not None and o.level in LEVELS[:2],
        f"--level {{o.level}} {OWN_LEVELS}",
        "leave out --model",
    ),
    (
        lambda o: o.model is not None and o.level in LEVELS[2:],
        f"--level {{o.level}} {OWN_LEVELS}",
        "leave out --level",
    ),
    *(
        (
            lambda o, each=each: o.model is not None and getattr(o, each.name) != each.default,
            f"{spell_flag(each)} conflicts with --model: it is for the model that verify makes",
            f"leave out {spell_flag(each)}",
        )
        for each in fields(VerifyOptions)
        if each.name in TEST_MODEL
    ),
    (
        lambda o: o.hidden_size < MIN_HIDDEN_SIZE,
        f"--hidden-size {{o.hidden_size}}: expected {MIN_HIDDEN_SIZE} or more",
        "",
    ),
    *(
        (
            lambda o, value=value, levels=levels: o.every_batch is value and o.level in levels,
            f"{name} needs --level forward or backward, found --level {{o.level}}",
            hint,
        )
        for value, name, levels, hint in (
            (True, "--every-batch", ("run",), "leave out --every-batch"),
            (
                True,
                "--every-batch",
                (*LEVELS[:2], MODEL),
                "pass --level run to run the model over every batch and stop there",
            ),
            (
                False,
                "--no-every-batch",
                ("run",),
                "pass --level roundtrip, which does not run the model",
            ),
            (False, "--no-every-batch", (*LEVELS[:2], MODEL), "leave out --no-every-batch"),
        )
    ),
    (
        lambda o: o.num_workers is not None and o.device != "cpu",
        "--num-workers conflicts with --device {o.device}: workers do the level roundtrip on a CPU",
        "leave out --num-workers",
    ),
    (
        lambda o: o.num_workers is not None and o.level == "structure",
        "--num-workers conflicts with --level structure: workers do the level roundtrip on a CPU",
        "leave out --num-workers",
    ),
)


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
