"""How fast is the whole command `seqpack tokenize`, compared with other libraries?

    python benchmarks/make_corpora.py CORPORA …
    python benchmarks/bench_tokenize.py CORPORA --tokenizer gpt2.tokenizer.json [--runs 3]

seqpack is timed as a whole command: start-up, reading, JSON, encoding, BLAKE3 of everything read
and written, fsync. A rival is timed from texts in memory and a loaded tokenizer to ids in memory,
except `datasets.map`, which is timed from its loaded dataset to its written one. Each runs in its
own process, in turn, with both cores; ids are compared by a checksum. The files are in the page
cache. Not measured: cold disks, more than one machine. Needs the extra `bench`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from blake3 import blake3
from machine import describe_machine

PACKAGES = ("tokenizers", "fastokens", "orjson", "tiktoken", "datasets", "numpy")
BLOCK_CHARACTERS = 1 << 20
TEXTS_PER_CALL = 1000
GPT2_PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # tiktoken's own
)
# Case: input, rivals, whether to use the trained WordPiece tokenizer.
CASES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "documents": ("documents.jsonl", ("fastokens-one-call", "fastokens-blocks"), False),
    "lines": ("lines.txt", ("fastokens-one-call", "fastokens-blocks"), False),
    "documents-50mb": ("documents-50mb.jsonl", ("tokenizers", "tiktoken", "datasets"), False),
    "wordpiece-50mb": ("documents-50mb.jsonl", ("tokenizers",), True),
    "files": ("files", ("seqpack:files.jsonl",), False),
}
Ids = Iterator[np.ndarray]


@click.command()
@click.argument("corpora", type=click.Path(exists=True, path_type=Path))
@click.option("--tokenizer", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=3)
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)))
@click.option("--rival", hidden=True)
def main(
    corpora: Path, tokenizer: Path, runs: int, cases: tuple[str, ...], rival: str | None
) -> None:
    """Print a line for each measurement, and one JSON document as the last line."""
    if rival is not None:
        print(json.dumps(run_rival(rival, corpora, tokenizer)))
        return
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in cases or CASES:
            figures[case] = measure(case, corpora, tokenizer, folder, runs)
    print(json.dumps({"figures": figures, **describe_machine(*PACKAGES), "runs": runs}))


def measure(case: str, corpora: Path, tokenizer: Path, folder: Path, runs: int) -> dict[str, Any]:
    """Run seqpack and each rival in turn, and print the medians."""
    name, rivals, is_wordpiece = CASES[case]
    if is_wordpiece:
        tokenizer = train_wordpiece(corpora / "documents-50mb.jsonl", folder)
    path = corpora / name
    found: dict[str, list[dict[str, Any]]] = {}
    for run in range(runs):
        found.setdefault("seqpack", []).append(run_seqpack(path, tokenizer, folder))
        for rival in rivals:
            if rival == "datasets" and run > 0:
                continue  # a run takes minutes
            if rival.startswith("seqpack:"):
                other = corpora / rival.removeprefix("seqpack:")
                result = run_seqpack(other, tokenizer, folder)
            else:
                result = spawn_rival(rival, path, tokenizer)
            found.setdefault(rival, []).append(result)
    assert len({one["blake3"] for results in found.values() for one in results}) == 1, found
    num_bytes = found["seqpack"][0]["bytes"]
    print(f"{case}: {num_bytes / 1e6:.0f} MB", flush=True)
    figures: dict[str, Any] = {"megabytes": round(num_bytes / 1e6)}
    ours = statistics.median(one["seconds"] for one in found["seqpack"])
    for one, results in found.items():
        figures[one] = summarize(one, results, num_bytes, ours)
    return figures


def summarize(
    name: str, results: list[dict[str, Any]], num_bytes: int, ours: float
) -> dict[str, Any]:
    """Print and return the figures of seqpack or a rival."""
    seconds = [result["seconds"] for result in results]
    median = statistics.median(seconds)
    figures = {
        "seconds": round(median, 3),
        "spread": round((max(seconds) - min(seconds)) / median, 3),
        "megabytes_per_second": round(num_bytes / 1e6 / median, 2),
        "seqpack_is_times_as_fast": round(median / ours, 3),
        "peak_megabytes": max(result["peak_megabytes"] for result in results),
    }
    print(
        f"  {name:<22} {median:9.2f} s ({figures['spread']:4.0%})"
        f" {figures['megabytes_per_second']:9.2f} MB/s, peak {figures['peak_megabytes']:,} MB;"
        f" seqpack is {figures['seqpack_is_times_as_fast']:.2f} x as fast",
        flush=True,
    )
    return figures


def run_seqpack(path: Path, tokenizer: Path, folder: Path) -> dict[str, Any]:
    """Time one whole command into a new store."""
    store = folder / "store"
    subprocess.run(["rm", "-rf", str(store)], check=True)
    warm_page_cache(path)
    seqpack = [sys.executable, "-m", "seqpack_cli"]
    arguments = ["tokenize", str(path), "--tokenizer", str(tokenizer), "-o", str(store), "-q"]
    started = time.perf_counter()
    process = subprocess.Popen([*seqpack, *arguments])
    _, status, usage = os.wait4(process.pid, 0)  # with the peak over all its processes
    seconds = time.perf_counter() - started
    assert status == 0, status
    return {
        "seconds": seconds,
        "blake3": hash_store(store),
        "bytes": count_input_bytes(store),
        "peak_megabytes": usage.ru_maxrss // 1000,
    }


def warm_page_cache(path: Path) -> None:
    """Read the input once: some machines drop pages that were not read for a minute."""
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as opened:
                while opened.read(1 << 20):
                    pass


def hash_store(store: Path) -> str:
    """Hash all ids of a store, widened to uint32."""
    dtype = json.loads((store / "manifest.json").read_bytes())["dtype"]
    digest = blake3()
    for part in sorted(store.glob("part-*.bin")):
        digest.update(np.fromfile(part, dtype).astype("<u4").tobytes())
    return digest.hexdigest()


def count_input_bytes(store: Path) -> int:
    """Count the bytes of the files that a store was made from."""
    manifest = json.loads((store / "manifest.json").read_bytes())
    return sum(source["bytes"] for source in manifest["sources"])


def spawn_rival(rival: str, path: Path, tokenizer: Path) -> dict[str, Any]:
    """Run a rival in a process of its own."""
    script = [sys.executable, __file__, str(path), "--tokenizer", str(tokenizer)]
    done = subprocess.run(
        [*script, "--rival", rival], check=True, capture_output=True, text=True, cwd=Path.cwd()
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_rival(rival: str, path: Path, tokenizer: Path) -> dict[str, Any]:
    """Time a rival in this process."""
    import resource

    if rival == "datasets":
        seconds, ids = run_datasets(path, tokenizer)
    else:
        texts = read_texts(path)
        encode = RIVALS[rival](texts, tokenizer)
        started = time.perf_counter()
        ids = encode()
        seconds = time.perf_counter() - started
    digest = blake3()
    for some in ids:
        digest.update(some.astype("<u4").tobytes())
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "seconds": seconds,
        "blake3": digest.hexdigest(),
        "peak_megabytes": max(usage.ru_maxrss for usage in usages) // 1000,
    }


def read_texts(path: Path) -> list[str]:
    """Read the documents of a file into memory."""
    if path.suffix == ".jsonl":
        import orjson

        with path.open("rb") as file:
            return [orjson.loads(line)["text"] for line in file]
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def iter_blocks(texts: list[str]) -> Iterator[list[str]]:
    """Yield lists of texts of about 1 MiB."""
    start = num_characters = 0
    for end, text in enumerate(texts, 1):
        num_characters += len(text)
        if num_characters >= BLOCK_CHARACTERS:
            yield texts[start:end]
            start, num_characters = end, 0
    yield texts[start:]


def open_fastokens(tokenizer: Path) -> Any:
    """Load the fast encoder."""
    import fastokens

    return fastokens.Tokenizer.from_json_str(tokenizer.read_text())


def prepare_one_call(texts: list[str], tokenizer: Path) -> Callable[[], Ids]:
    """Encode all texts in one call of `encode_batch_flat`, with its own threads on both cores."""
    library = open_fastokens(tokenizer)

    def encode() -> Ids:
        ids, _ = library.encode_batch_flat(texts, split_special_tokens=True)
        return iter([np.frombuffer(ids, "<u4")])

    return encode


def prepare_blocks(texts: list[str], tokenizer: Path) -> Callable[[], Ids]:
    """Encode about 1 MiB of texts per call, to save memory, with its own threads on both cores."""
    library = open_fastokens(tokenizer)

    def encode() -> Ids:
        found = [
            library.encode_batch_flat(block, split_special_tokens=True)[0]
            for block in iter_blocks(texts)
        ]
        return (np.frombuffer(ids, "<u4") for ids in found)

    return encode


def prepare_tokenizers(texts: list[str], tokenizer: Path) -> Callable[[], Ids]:
    """Encode with the library's `encode_batch_fast` on both cores."""
    import tokenizers

    library = tokenizers.Tokenizer.from_file(str(tokenizer))
    library.encode_special_tokens = True
    library.encode_batch_fast(["warm up the threads"] * 100)

    def encode() -> Ids:
        found = [
            library.encode_batch_fast(texts[start : start + TEXTS_PER_CALL], False, False)
            for start in range(0, len(texts), TEXTS_PER_CALL)
        ]
        return (np.array(encoding.ids, np.uint32) for encodings in found for encoding in encodings)

    return encode


def prepare_tiktoken(texts: list[str], tokenizer: Path) -> Callable[[], Ids]:
    """Encode with tiktoken's GPT-2, built from the same vocabulary, on both cores."""
    import tiktoken

    from seqpack_cli.tokens.tokenizer import byte_of_character

    byte_of = byte_of_character()
    vocabulary = json.loads(tokenizer.read_text())["model"]["vocab"]
    ranks = {
        bytes(byte_of[character] for character in token): rank
        for token, rank in vocabulary.items()
        if token != "<|endoftext|>"  # noqa: S105
    }
    library = tiktoken.Encoding(
        "gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={}
    )

    def encode() -> Ids:
        found = library.encode_ordinary_batch(texts, num_threads=2)
        return (np.array(ids, np.uint32) for ids in found)

    return encode


RIVALS: dict[str, Callable[[list[str], Path], Callable[[], Ids]]] = {
    "fastokens-one-call": prepare_one_call,
    "fastokens-blocks": prepare_blocks,
    "tokenizers": prepare_tokenizers,
    "tiktoken": prepare_tiktoken,
}


def run_datasets(path: Path, tokenizer: Path) -> tuple[float, Ids]:
    """Run Hugging Face's `datasets.map` with two processes, batched, without progress bars."""
    import datasets
    import tokenizers

    datasets.disable_progress_bars()
    library = tokenizers.Tokenizer.from_file(str(tokenizer))
    library.encode_special_tokens = True

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": [encoding.ids for encoding in library.encode_batch_fast(batch["text"])]}

    with tempfile.TemporaryDirectory() as cache:
        loaded = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=cache)
        started = time.perf_counter()
        done = loaded.map(encode, batched=True, num_proc=2, remove_columns=["text"])
        seconds = time.perf_counter() - started
        ids = [np.array(row, np.uint32) for row in done["ids"]]
    return seconds, iter(ids)


def train_wordpiece(path: Path, folder: Path) -> Path:
    """Train a WordPiece tokenizer of 30,000 tokens on the input."""
    output = folder / "wordpiece.json"
    arguments = ["--model", "wordpiece", "--vocab-size", "30000", "-o", str(output), "-q"]
    seqpack = [sys.executable, "-m", "seqpack_cli", "train-tokenizer", str(path)]
    subprocess.run([*seqpack, *arguments], check=True)
    return output


if __name__ == "__main__":
    main()
