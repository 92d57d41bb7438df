"""A thousand random shard sets: verify finds nothing in them, and every damage made to them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from shard_reference import make_shards

from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.verification.models.model import CELLS
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.verify_run import verify

NUM_CHUNKS = 40
SETS_PER_CHUNK = 25


def draw_lengths(draws: random.Random) -> list[int]:
    """Draw lengths of one of the kinds that corpora have."""
    count = draws.choice([1, 2, 5, 20, 60])
    kind = draws.choice(["even", "text", "short", "one long"])
    if kind == "even":
        return [draws.randint(1, 40)] * count
    if kind == "short":
        return [draws.randint(1, 3) for _ in range(count)]
    lengths = [max(1, int(draws.lognormvariate(2.5, 1))) for _ in range(count)]
    return [*lengths, draws.randint(200, 900)] if kind == "one long" else lengths


def draw_pack_options(draws: random.Random) -> dict[str, Any]:
    """Draw a layout and how batches are cut."""
    options: dict[str, Any] = {
        "shard_bytes": draws.choice([1, 1000, 2000, 1 << 20]),
        "layout": draws.choice(["packed", "padded", "varlen"]),
        "shuffle": draws.random() < 0.3,
        "seed": draws.randrange(1000),
    }
    if draws.random() < 0.2:
        options["where"] = draws.choice([("@length != 5",), ("@length > 2", "@length < 200")])
    if options["layout"] == "varlen":
        packing = draws.choice(["best-fit", "sequential"])
        most = {"max_tokens": draws.choice([30, 1000]), "overflow": draws.choice([None, "drop"])}
        return {**options, "batch_size": None, "fill": packing, **most}
    if draws.random() < 0.3:
        options |= {"batch_size": None, "max_tokens": draws.choice([1000, 4000])}
    else:
        options["batch_size"] = draws.choice([1, 3, 16, 64])
    options["window"] = draws.choice([None, 16])
    options["order"] = draws.choice(["length", "length", "none"])
    options["last_batch"] = draws.choice(["keep", "keep", "drop"])
    if draws.random() < 0.3:
        options["buckets"] = draws.choice(["auto", (8, 16, 64), (8, 1000)])
    elif options["batch_size"] is None:
        options["overflow"] = draws.choice([None, "drop"])
    for name, values in (("drop_shorter", [None, None, 2]), ("drop_longer", [None, None, 20, 300])):
        options[name] = draws.choice(values)
    if options["layout"] == "padded":
        options["padding_side"] = draws.choice(["left", "right"])
        options["pad_to_multiple"] = draws.choice([1, 8])
        if options["batch_size"] is not None and draws.random() < 0.3:
            options["last_batch"] = "pad"
    return options


def draw_verify_options(draws: random.Random) -> dict[str, Any]:
    """Draw a model."""
    return {
        "cell": draws.choice(list(CELLS)),
        "num_layers": draws.choice([1, 1, 2, 3]),
        "bidirectional": draws.random() < 0.3,
        "hidden_size": draws.choice([4, 16, 64, 64]),
        "dtype": draws.choice(["float32", "float64"]),
        "sample": draws.choice([1, 3]),
        "every_batch": draws.random() < 0.5,
        "max_batch_tokens": draws.choice([1000, 32_768]),
        "seed": draws.randrange(1000),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_no_false_alarm_and_every_damage_is_caught(tmp_path: Path, chunk: int) -> None:
    for number in range(SETS_PER_CHUNK):
        draws = random.Random(SETS_PER_CHUNK * chunk + number)
        lengths, packing = draw_lengths(draws), draw_pack_options(draws)
        options = draw_verify_options(draws)
        try:
            has_columns = number % 2 == 1
            path = make_shards(tmp_path / str(number), lengths, has_columns=has_columns, **packing)
        except (OptionError, DataError):  # options that do not go together, or leave nothing
            continue
        report = verify(path, VerifyOptions(**options, self_test=True))
        said = [str(finding) for finding in report.findings]
        assert said == [], (chunk, number, packing, options)
        assert len(report.levels) == 4 + options["every_batch"]
        assert any(control.caught for control in report.controls) or lengths == [1]
