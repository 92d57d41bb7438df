"""Tokenize prompts and completions, with overlap: targets, ledger, hashes, and equal bytes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
import xxhash
from command import check_refused, run
from here import HERE
from reference import read_folder, read_store_documents, slow_sequences
from tokenizer_kinds import tokenizer_of
from unfinished import stopping_before_manifest

from seqpack_cli import Executor, TokenizeOptions, open_store, tokenize
from seqpack_cli.errors import FolderError
from seqpack_cli.tokens.options import TargetOptions

PROMPTS = TargetOptions(prompt_field="q", completion_field="a")
FIELDS = ("--prompt-field", "q", "--completion-field", "a")
BOS, EOS = 257, 258  # of the byte tokenizer
MARKS = ["", " ", "\n", "é", "𝄞", "e\u0301", "<eos>", "a", "word", "two words", "  x ", "0"]


def make_records(num: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return records of which some are empty, some long, and some there twice."""
    numbers = random.Random(seed)

    def make() -> str:
        return "".join(numbers.choices(MARKS, k=numbers.choice([0, 1, 3, 9, 30])))

    records = [{"q": make(), "a": make(), "id": number} for number in range(num)]
    return [*records, *records[:7], {"q": "", "a": "", "id": -1}]


def write_records(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def load_columns(store: Path) -> dict[str, list[Any]]:
    """Return the columns and document hashes of all parts, read without seqpack's code."""
    found: dict[str, list[Any]] = {}
    for path in sorted(store.glob("*.columns.safetensors")):
        for name, values in safetensors.numpy.load_file(path).items():
            found.setdefault(name.removeprefix("column."), []).extend(values.tolist())
    return found


@pytest.mark.parametrize("cut", [{}, {"max_length": 20}, {"max_length": 20, "overlap": 7}])
def test_targets_and_ledger_equal_a_slow_oracle(tmp_path: Path, cut: dict[str, int]) -> None:
    """Bytes of the completion and the end token are targets, repeated tokens and others are not."""
    records = make_records(60)
    corpus = write_records(tmp_path / "a.jsonl", records)
    options = TokenizeOptions(targets=PROMPTS, bos="<bos>", eos="<eos>", part_bytes=2000, **cut)
    ledger = tokenize(corpus, tmp_path / "store", options, executor=HERE)[0]["ledger"]
    pairs = [(record["q"].encode(), record["a"].encode()) for record in records]
    arguments = {"max_length": None, "overflow": "split", **cut}
    slow = slow_sequences([[*q, *a] for q, a in pairs], prefix=[BOS], suffix=[EOS], **arguments)
    masks = slow_sequences(
        [[0] * len(q) + [1] * len(a) for q, a in pairs], prefix=[0], suffix=[1], **arguments
    )
    expected = [
        bit
        for mask, overlap in zip(masks.sequences, masks.overlaps, strict=True)
        for bit in [0] * overlap + mask[overlap:]
    ]
    columns = load_columns(tmp_path / "store")
    assert read_store_documents(tmp_path / "store") == slow.sequences_of_document
    assert columns["targets"] == expected
    assert columns.get("overlap", [0] * len(slow.overlaps)) == slow.overlaps
    assert ("overlap" in columns) == ("overlap" in cut)
    assert ledger["num_target_tokens"] == sum(expected)
    assert ledger["num_straddling_tokens"] == 0
    assert ledger["num_overlap_tokens"] == sum(slow.overlaps)
    assert ledger["num_tokens"] == sum(map(len, slow.sequences))
    assert ledger["num_empty_documents"] == sum(not q and not a for q, a in pairs)


def test_overlap_of_plain_text_makes_repeated_tokens_no_targets(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdefghij\n\nxyz\n")
    options = TokenizeOptions(max_length=4, overlap=2, bos="<bos>")
    ledger = tokenize(tmp_path / "a.txt", tmp_path / "store", options, executor=HERE)[0]["ledger"]
    texts = [bytes(ids[ids < 256].tolist()).decode() for ids in open_store(tmp_path / "store")]
    assert texts == ["abc", "bcde", "defg", "fghi", "hij", "xyz"]
    columns = load_columns(tmp_path / "store")
    assert columns["overlap"] == [0, 2, 2, 2, 2, 0]
    assert columns["targets"] == [1] * 4 + [0, 0, 1, 1] * 3 + [0, 0, 1] + [1] * 4
    assert (ledger["num_overlap_tokens"], ledger["num_target_tokens"]) == (8, 15)
    assert columns["document_hashes"] == list(
        map(xxhash.xxh3_64_intdigest, [b"abcdefghij", b"", b"xyz"])
    )


def test_kept_values_follow_their_document_and_tags_their_token(tmp_path: Path) -> None:
    records = [
        {"text": ["ab", "cd"], "tags": ["x", "y"], "n": 1},
        {"text": ["e"], "tags": ["y"], "n": 2},
    ]
    corpus = write_records(tmp_path / "a.jsonl", records)
    options = TokenizeOptions(keep=("tags:tags", "n"), tag_subtokens="all", max_length=3, overlap=1)
    tokenize(corpus, tmp_path / "store", options, executor=HERE)
    columns = load_columns(tmp_path / "store")
    assert columns["targets"] == [1, 1, 1, 0, 1, 1, 1]
    assert columns["tags"] == [0, 0, -100, -100, 1, 1, 1]  # context keeps its tags
    assert columns["n"] == [1, 1, 2]


def test_documents_are_hashed_by_their_fields_in_every_format(tmp_path: Path) -> None:
    """Where a prompt ends matters: the same text of other fields is another document."""
    pairs = [("ab", "c"), ("a", "bc"), ("ab", "c"), ('say "é"', "\u2028\n")]
    records = [{"q": q, "a": a} for q, a in pairs]
    write_records(tmp_path / "a.jsonl", records)
    escaped = "".join(f'"{q}","{a}"\n'.replace('say "é"', 'say ""é""') for q, a in pairs)
    (tmp_path / "b.csv").write_text(f"q,a\n{escaped}")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(
        pa.table({name: [r[name] for r in records] for name in "qa"}), tmp_path / "c.parquet"
    )
    hashes = []
    for path in sorted(tmp_path.glob("?.*")):
        tokenize(
            path, tmp_path / f"{path.name}.store", TokenizeOptions(targets=PROMPTS), executor=HERE
        )
        hashes.append(load_columns(tmp_path / f"{path.name}.store")["document_hashes"])
    canonical = [
        json.dumps({"completion": a, "prompt": q}, ensure_ascii=False, separators=(",", ":"))
        for q, a in pairs
    ]
    assert hashes == [[xxhash.xxh3_64_intdigest(each.encode()) for each in canonical]] * 3
    shown = json.loads(run("inspect", tmp_path / "a.jsonl.store", "--json").stdout)
    assert shown["duplicates"]["num_duplicate_documents"] == 1


# Equal bytes


@pytest.fixture
def options(tmp_path: Path) -> TokenizeOptions:
    """Options of a run with many parts, with a tokenizer whose tokens straddle prompts."""
    (tmp_path / "tokenizer.json").write_text(tokenizer_of("byte_level"))
    return TokenizeOptions(
        tokenizer=str(tmp_path),
        targets=PROMPTS,
        eos="<|endoftext|>",
        max_length=16,
        overlap=3,
        keep=("id:int",),
        part_bytes=3000,
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_records(tmp_path / "corpus.jsonl", make_records(200))


@pytest.fixture
def store(corpus: Path, tmp_path: Path, options: TokenizeOptions) -> Path:
    options = replace(options, encoder="tokenizers")
    manifest, _ = tokenize(corpus, tmp_path / "store", options, executor=HERE)
    assert len(manifest["parts"]) > 3
    assert manifest["ledger"]["num_straddling_tokens"] > 1
    assert manifest["ledger"]["num_overlap_tokens"] > 100
    return tmp_path / "store"


def test_store_is_the_same_for_any_encoder_workers_and_interruption(
    store: Path, corpus: Path, tmp_path: Path, options: TokenizeOptions
) -> None:
    tokenize(corpus, tmp_path / "two", options, executor=Executor(num_workers=2))
    assert read_folder(tmp_path / "two") == read_folder(store)
    with stopping_before_manifest():
        tokenize(corpus, tmp_path / "again", options, executor=HERE)
    (tmp_path / "again" / "part-00001.json").unlink()
    tokenize(corpus, tmp_path / "again", options, executor=HERE)
    assert read_folder(tmp_path / "again") == read_folder(store)


def test_sequences_are_the_same_for_any_size_of_parts(
    store: Path, corpus: Path, tmp_path: Path, options: TokenizeOptions
) -> None:
    tokenize(corpus, tmp_path / "one", replace(options, part_bytes=1 << 20), executor=HERE)
    assert read_store_documents(tmp_path / "one") == read_store_documents(store)
    assert load_columns(tmp_path / "one") == load_columns(store)


@pytest.mark.parametrize(
    "change", [{"overlap": 4}, {"overlap": None}, {"targets": TargetOptions("a", "q")}]
)
def test_other_options_do_not_continue_a_run(
    corpus: Path, tmp_path: Path, options: TokenizeOptions, change: dict[str, Any]
) -> None:
    with stopping_before_manifest():
        tokenize(corpus, tmp_path / "store", options, executor=HERE)
    name = "prompt-field" if "targets" in change else "overlap"
    with pytest.raises(FolderError, match=f"was (no )?--{name}"):
        tokenize(corpus, tmp_path / "store", replace(options, **change), executor=HERE)


# The command


def test_rejected_records_are_listed_and_the_others_stay(tmp_path: Path) -> None:
    lines = [
        '{"q": "x", "a": "y"}',
        '{"q": "x", "a": null}',
        '{"q": "x"}',
        "",
        '{"q": "x", "a": ""}',
    ]
    corpus = tmp_path / "a.jsonl"
    corpus.write_text("\n".join(lines))
    arguments = ("tokenize", corpus, *FIELDS, "--eos", "<eos>", "-o", tmp_path / "store")
    reason = f"{corpus}:2: field 'a' is null, expected a string"
    check_refused(
        run(*arguments),
        3,
        reason,
        "hint: fix the record and add --overwrite, or pass --on-bad-record skip",
    )
    assert run(*arguments, "--on-bad-record", "skip").exit_code == 0
    assert read_store_documents(tmp_path / "store") == [[[120, 121, EOS]], [], [], [], [[120, EOS]]]
    assert load_columns(tmp_path / "store")["targets"] == [0, 1, 1, 0, 1]
    rejects = [
        json.loads(line) for line in (tmp_path / "store/rejects.jsonl").read_text().splitlines()
    ]
    assert [(reject["record"], reject["reason"]) for reject in rejects] == [
        (2, "field 'a' is null, expected a string"),
        (3, "no field 'a' (found: 'q')"),
    ]


def test_hint_about_a_field_that_a_later_part_lacks_adds_overwrite(tmp_path: Path) -> None:
    corpus = tmp_path / "a.jsonl"
    corpus.write_text('{"q": "x", "a": "y"}\n' * 9 + '{"q": "x", "as": "y"}\n')
    result = run(
        "tokenize",
        corpus,
        *FIELDS,
        "--part-bytes",
        "50",
        "--num-workers",
        "1",
        "-o",
        tmp_path / "store",
    )
    assert result.stderr.endswith("\n\nhint: pass --completion-field as --overwrite\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--overlap", "8", "--max-length", "8"), "--overlap 8: expected less than --max-length 8"),
        (("--overlap", "8"), "--overlap 8: no document is cut, expected --max-length"),
        (
            ("--overlap", "2", "--max-length", "8", "--overflow", "drop"),
            "--overlap 2: no document is cut, expected --overflow split",
        ),
        (("--prompt-field", "q"), "--prompt-field needs --completion-field"),
        (("--completion-field", "a"), "--completion-field needs --prompt-field"),
        ((*FIELDS, "--text-field", "t"), "--text-field t: the text is made from --prompt-field"),
        (
            (*FIELDS, "--messages-field", "m"),
            "--messages-field and --prompt-field both say how the text is made",
        ),
        (
            (*FIELDS, "--keep", "t:tags"),
            "--keep t: tags belong to a text of one field, found --prompt-field",
        ),
        ((*FIELDS, "--keep", "targets"), "--keep targets: "),
        (
            ("--prompt-field", "", "--completion-field", "a"),
            "--prompt-field: expected the name of a field, found ''",
        ),
        (("--tools-field", "t"), "--tools-field t: no conversations are read"),
    ],
)
def test_options_that_conflict_are_refused(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    corpus = write_records(tmp_path / "a.jsonl", [{"q": "x", "a": "y", "t": []}])
    result = run("tokenize", corpus, *options, "-o", tmp_path / "store")
    assert result.exit_code == 2
    assert f"Error: {message}" in result.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("name", "options"), [("a.txt", FIELDS), ("a.csv", ("--messages-field", "m"))]
)
def test_format_without_such_fields_is_refused(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text("q,a,m\nx,y,z\n")
    result = run("tokenize", tmp_path / name, *options, "-o", tmp_path / "store")
    assert result.exit_code == 2
    assert f"{tmp_path / name} is " in result.stderr
