"""`tokenizers` 1.0 makes the same stores as the version installed here, or says that it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenize_jobs import run_jobs, write_corpus
from tokenizer_kinds import KINDS, added_tokens_out_of_order, sample_texts, tokenizer_of

REQUIREMENT = "tokenizers==1.0.0rc3"
OLD_HINT = "pip install 'tokenizers<1'"
SECONDS = 60  # after which the package counts as not installable


def without_normalized(kind: str) -> str:
    """Return a tokenizer whose added token is looked for in the text as it is."""
    saved = json.loads(tokenizer_of(kind))
    for token in saved["added_tokens"]:
        token["normalized"] = False
    return json.dumps(saved)


def end_of_word() -> str:
    """Return a BPE that marks the last token of a word, as CLIP's does."""
    saved = json.loads(tokenizer_of("whitespace_bpe"))
    saved["model"]["end_of_word_suffix"] = "</w>"
    return json.dumps(saved)


def own_regex() -> str:
    """Return a byte-level BPE whose pattern is of no known model."""
    saved = json.loads(tokenizer_of("split_pattern"))
    saved["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\s+|[^\s]+?x|[^\s]"
    return json.dumps(saved)


NORMALIZED = ("metaspace", "unigram")  # with an added token that 1.0 does not find there
SAME = sorted(KINDS.keys() - {"byte_level_with_prefix_space"})
REFUSED: dict[str, tuple[Callable[[], str], str]] = {
    "prefix_space": (
        lambda: tokenizer_of("byte_level_with_prefix_space"),
        "a `ByteLevel` pre-tokenizer with `add_prefix_space: true` is not supported",
    ),
    "out_of_order": (
        added_tokens_out_of_order,
        "added token 'two words' has the id 501, and is 500 to tokenizers 0.x",
    ),
    "normalized": (
        lambda: tokenizer_of("unigram"),
        "added token 'oat biscuits' has normalized=true beside a Metaspace pre-tokenizer",
    ),
    "end_of_word": (end_of_word, "end_of_word_suffix"),
    "own_regex": (
        own_regex,
        "this `Split` pattern needs a system-regex backend; enable the `fancy-regex` feature",
    ),
}
# Of these, some texts have a token that spells nothing known: only offsets tell its place.
WITHOUT_OFFSETS = {
    *("unigram chat", "whitespace_bpe chat", "word_piece chat"),
    *("word_level chat", "word_level prompts", "word_level tags"),
}
JOBS = [
    *([kind, job] for kind in SAME for job in ("texts", "special", "tags", "prompts", "chat")),
    *([kind, "auto"] for kind in ("byte_level_nfc", "split_pattern")),
    ["word_piece", "newer"],
    *([name, "texts"] for name in REFUSED),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run all jobs with the version that is installed here, and with 1.0 in another process."""
    if tokenizers.__version__.startswith("1."):
        pytest.skip("tokenizers 1.x is installed: there is nothing to compare it with")
    site, folder = (tmp_path_factory.mktemp(name) for name in ("site", "jobs"))
    install = ["install", "-q", "--disable-pip-version-check", "--retries", "0", "--no-deps"]
    only = ["--only-binary", ":all:", "--target", str(site)]
    pip = [sys.executable, "-m", "pip", *install, *only, REQUIREMENT]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{REQUIREMENT} cannot be installed: pip took {SECONDS} s")
    if done.returncode:
        pytest.skip(f"{REQUIREMENT} cannot be installed: {done.stderr.strip()[-200:]}")
    for kind in SAME:
        make = without_normalized if kind in NORMALIZED else tokenizer_of
        (folder / f"{kind}.json").write_text(make(kind))
    for name, (make_other, _) in REFUSED.items():
        (folder / f"{name}.json").write_text(make_other())
    write_corpus(folder, [text[:600] for text in sample_texts()])
    paths = [str(site), os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])]
    script = Path(__file__).with_name("tokenize_jobs.py")
    command = [sys.executable, str(script), str(folder), json.dumps(JOBS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RUST_BACKTRACE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return json.loads(json.dumps(run_jobs(folder, JOBS))), found


def test_stores_have_the_same_bytes_with_1_0(
    made: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """All files, and the decoded texts; tokenizers with regexes agree with fastokens too."""
    old, new = made
    jobs = [f"{kind} {job}" for kind, job in JOBS if kind not in REFUSED and job != "newer"]
    for job in set(jobs) - WITHOUT_OFFSETS:
        encoder, version = new[job].pop("run")
        assert version.startswith("1."), job
        expected = old[job].pop("run")[0]
        assert encoder == expected == ("fastokens" if job.endswith("auto") else "tokenizers"), job
        assert new[job] == old[job], job


def test_what_1_0_cannot_do_is_refused(made: tuple[dict[str, Any], dict[str, Any]]) -> None:
    new = made[1]
    for name, (_, reason) in REFUSED.items():
        message = f"{name}.json: not supported by tokenizers 1.0.0-rc.3 ({reason})"
        assert new[f"{name} texts"] == {"error": message, "hint": OLD_HINT}
    message = "tokenizers 1.0.0-rc.3 has no offsets, which tags and targets need for some texts of "
    for job in WITHOUT_OFFSETS:
        assert new[job] == {"error": f"{message}this tokenizer", "hint": OLD_HINT}
    message = "newer.jsonl:2: U+2E43: tokenizers 1.0.0-rc.3 may make other ids of it than "
    message += "tokenizers 0.x, whose Unicode tables are older"
    assert new["word_piece newer"] == {"error": message, "hint": OLD_HINT}
    message = "training needs tokenizers 0.x, found 1.0.0-rc.3"
    assert new["train"] == {"error": message, "hint": OLD_HINT}
