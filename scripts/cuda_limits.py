"""Measure the largest rounding errors of many random shard sets: what limits must hold.

Usage: python scripts/cuda_limits.py FOLDER DEVICE NUM_SETS [SECONDS]    prints one JSON object.
Each set has its own sequences of sample_data, layout, cell, layers, directions and hidden size, and
runs in every dtype. For each dtype, level and quantity: the largest error, its limit there, and the
seed that draws that set again. `verification/models/tolerances.py` has the limits. Sets that fail
are listed; after Ctrl-C or MAX_FAILED of them, what was measured is printed.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from seqpack_cli import (
    Executor,
    PackOptions,
    TokenizeOptions,
    VerifyOptions,
    pack,
    tokenize,
    verify,
)

DTYPES = ("float64", "float32", "bfloat16", "float16")
LAYOUTS = (
    {"layout": "packed"},
    {"layout": "padded"},
    {"layout": "padded", "padding_side": "left"},
    {"layout": "varlen", "max_tokens": 256},
)
HERE = Executor(num_workers=1)
MAX_FAILED = 5  # a GPU that is lost fails for every set


def draw(seed: int) -> tuple[PackOptions, dict[str, Any]]:
    """Return the options of pack and of verify for one set."""
    chosen = random.Random(seed)  # noqa: S311 - not for secrets
    layout: dict[str, Any] = dict(chosen.choice(LAYOUTS))
    if layout["layout"] != "varlen":
        layout["batch_size"] = chosen.choice((1, 2, 7, 32, 64))
    where = [f"@length <= {chosen.choice((8, 40, 120, 256))}"]
    model = {
        "cell": chosen.choice(("lstm", "gru", "rnn")),
        "num_layers": chosen.choice((1, 1, 2, 3)),
        "bidirectional": chosen.random() < 0.3,
        "hidden_size": chosen.choice((16, 64, 64, 160, 256, 512)),
        "seed": seed,
    }
    return PackOptions(**layout, where=where, shuffle=True, seed=seed), model


def measure(store: Path, shards: Path, device: str, seed: int) -> list[dict[str, Any]]:
    """Return the errors of one set in all dtypes."""
    options, model = draw(seed)
    shutil.rmtree(shards, ignore_errors=True)
    pack(store, shards, options, executor=HERE)
    found = []
    for dtype in DTYPES:
        chosen = VerifyOptions(device=device, level="backward", sample=2, dtype=dtype, **model)
        for level in verify(shards, chosen).levels[2:]:
            for name, size in level.errors.items():
                entry = {"dtype": dtype, "level": level.level, "quantity": name, "seed": seed}
                found.append({**entry, "error": float(size.error), "limit": float(size.limit)})
    return found


def main(folder: str, device: str, num_sets: str, seconds: str = "inf") -> None:
    """Print the largest errors, until some seconds have passed; end with 1 if a set failed."""
    store, shards, ends = Path(folder) / "store", Path(folder) / "shards", time.monotonic()
    ends += float(seconds)
    tokenize("sample_data", store, TokenizeOptions(max_length=256), executor=HERE)
    largest: dict[str, dict[str, Any]] = {}
    num_measured = 0
    failed: list[dict[str, Any]] = []
    try:
        for seed in range(int(num_sets)):
            if time.monotonic() > ends or len(failed) == MAX_FAILED:
                break
            try:
                entries = measure(store, shards, device, seed)
            except Exception as error:
                failed.append({"seed": seed, "error": traceback.format_exception(error)[-6:]})
                continue
            for entry in entries:
                key = " ".join(str(entry[name]) for name in ("dtype", "level", "quantity"))
                if entry["error"] >= largest.get(key, entry)["error"]:
                    largest[key] = entry
            num_measured += 1
            print(f"{num_measured} sets", file=sys.stderr, flush=True)
    finally:
        found = {"num_sets": num_measured, "largest": [*largest.values()], "failed": failed}
        print(json.dumps(found), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
