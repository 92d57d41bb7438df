"""Stores of prompts and completions beside TRL's SFTTrainer: ids and masks equal, one by one.

A thousand pairs: stories of sample_data cut anywhere, and hostile ones. Where TRL tokenizes the
prompt alone to other ids than in front of its completion, it lets the completion begin at the first
difference; here it begins at its first token, and a token that straddles the border is no target.
Special tokens that a pair spells are ids for TRL, and text here.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from oracle.stores import read_store
from tokenizer_kinds import tokenizer_of
from tokenizers import Tokenizer

from seqpack_cli import Executor, TargetOptions, TokenizeOptions, tokenize

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")
pytest.importorskip("trl")

GPT_2 = Path(__file__).parents[3] / "shared" / "data" / "gpt2.tokenizer.json"
TARGETS = TargetOptions(prompt_field="prompt", completion_field="completion")
HOSTILE = ["", " ", "  ", "\n", "\n\n", "a", " a", "a ", "é", "e\u0301", "\u0301", "漢字"]
HOSTILE += ["🙂👩\u200d👧", "\x00", "\r\n", "\t", "\u00a0x", "1", "23", "'s", "...", "a" * 300]
HOSTILE += ["<unk", "[/INST]"]
NUM_STORIES = 500


class Model(NamedTuple):
    """A tokenizer, and how it is used."""

    name: str
    eos: str
    bos: str | None = None
    spells_bytes: bool = False  # each character of a token's name is a byte


MODELS = [Model("gpt2", "<|endoftext|>", spells_bytes=True), Model("metaspace", "</s>", "<s>")]


def write_tokenizer(folder: Path, model: Model, *, may_be_real: bool) -> None:
    data = tokenizer_of({"gpt2": "byte_level"}.get(model.name, model.name))
    if may_be_real and model.name == "gpt2" and GPT_2.exists():
        data = GPT_2.read_text()  # has no special tokens
    (folder / "tokenizer.json").write_text(data)


def make_pairs(sample_data: Path) -> list[dict[str, str]]:
    """Return stories that are cut between any two characters, and pairs of hostile texts."""
    numbers = random.Random(5)
    stories = (sample_data / "stories.txt").read_text().replace("<|endoftext|>", "end")
    pairs = list(itertools.product(HOSTILE, HOSTILE))[1:]  # both empty: an empty document
    for _ in range(NUM_STORIES):
        start = numbers.randrange(len(stories) - 300)
        border, end = sorted(numbers.choices(range(1, 300), k=2))
        pairs.append((stories[start : start + border], stories[start + border : start + end]))
    return [{"prompt": prompt, "completion": completion} for prompt, completion in pairs]


def wrap(folder: Path, model: Model) -> Any:
    file = str(folder / "tokenizer.json")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=file, eos_token=model.eos, bos_token=model.bos
    )


def prepare(tokenizer: Any, pairs: list[dict[str, str]]) -> list[tuple[list[int], list[int]]]:
    """Return the ids and masks that SFTTrainer trains on."""
    from trl import SFTTrainer

    trainer = SimpleNamespace(_tokenizer=tokenizer, chat_template=None, completion_only_loss=True)
    args = SimpleNamespace(
        dataset_num_proc=None,
        dataset_text_field="text",
        assistant_only_loss=False,
        max_length=None,
        shuffle_dataset=False,
        use_liger_kernel=False,
    )
    datasets.disable_progress_bars()
    dataset = datasets.Dataset.from_list(pairs)
    found = SFTTrainer._prepare_dataset(trainer, dataset, tokenizer, args, False, None, "train")
    return [(row["input_ids"], [int(id_ != -100) for id_ in row["labels"]]) for row in found]


def make_store(
    folder: Path, model: Model, pairs: list[dict[str, str]], *, allow: bool
) -> tuple[dict[str, int], list[tuple[list[int], list[int]]]]:
    """Return the ledger of a store, and the ids and targets of each pair."""
    corpus, output = folder / "pairs.jsonl", folder / f"store-{allow}"
    corpus.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    options = TokenizeOptions(
        tokenizer=str(folder), targets=TARGETS, eos=model.eos, allow_special_tokens=allow
    )
    manifest, _ = tokenize(corpus, output, options, executor=Executor(num_workers=1))
    page = read_store(output)
    return manifest["ledger"], [*zip(page.sequences, page.columns["targets"], strict=True)]


def find_bytes(
    tokenizer: Any, model: Model, ids: list[int], text: str
) -> Iterator[tuple[int, int]]:
    """Yield the first byte of each token in its text, and the end of its last one."""
    data = []
    for token in tokenizer.convert_ids_to_tokens(ids):
        if model.spells_bytes:
            data.append(b"?" * len(token))
        elif token.startswith("<0x"):
            data.append(b"?")
        else:
            data.append(token.replace("▁", " ").encode())
    ends = list(itertools.accumulate(map(len, data)))
    num_added = ends[-1] - len(text.encode())  # a space in front
    assert num_added in (0, 1)
    for each, end in zip(data, ends, strict=True):
        yield max(0, end - len(each) - num_added), end - num_added


def are_equal(
    tokenizer: Any, pair: dict[str, str], targets: list[int], masks: list[int], ids: list[int]
) -> bool:
    """Compare targets with TRL's mask; return whether they must be equal."""
    alone = tokenizer(pair["prompt"])["input_ids"]
    if ids[: len(alone)] == alone:
        assert targets == masks, pair
        return True
    # TRL trains more: tokens of the prompt, or one that straddles
    assert all(mask >= target for mask, target in zip(masks, targets, strict=True)), pair
    return False


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_ids_and_masks_are_those_of_trl(tmp_path: Path, sample_data: Path, model: Model) -> None:
    write_tokenizer(tmp_path, model, may_be_real=True)
    pairs, tokenizer = make_pairs(sample_data), wrap(tmp_path, model)
    ledger, found = make_store(tmp_path, model, pairs, allow=False)
    num_straddling = num_equal = 0
    num_first = int(model.bos is not None)
    for pair, (ids, targets), (expected, masks) in zip(
        pairs, found, prepare(tokenizer, pairs), strict=True
    ):
        assert ids == expected, pair
        border = len(pair["prompt"].encode())
        text = pair["prompt"] + pair["completion"]
        places = list(find_bytes(tokenizer, model, ids[num_first:-1], text))
        assert targets == [0] * num_first + [int(start >= border) for start, _ in places] + [1]
        num_straddling += sum(start < border < end for start, end in places)
        num_equal += are_equal(tokenizer, pair, targets, masks, ids)
    assert ledger["num_straddling_tokens"] == num_straddling
    assert num_straddling > 100
    assert num_equal > len(pairs) / 2


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_special_tokens_that_a_pair_spells(tmp_path: Path, model: Model) -> None:
    """With --allow-special-tokens the ids are those of TRL, but a second end token is added."""
    write_tokenizer(tmp_path, model, may_be_real=False)
    marks = [model.eos, f"a {model.eos}", f"{model.eos} b", f"x{model.eos}{model.eos}y", "", "c"]
    pairs = [{"prompt": p, "completion": c} for p, c in itertools.product(marks, marks)][:-8]
    tokenizer = wrap(tmp_path, model)
    end = tokenizer.eos_token_id
    _, allowed = make_store(tmp_path, model, pairs, allow=True)
    for pair, (ids, targets), (expected, masks) in zip(
        pairs, allowed, prepare(tokenizer, pairs), strict=True
    ):
        is_ended = pair["completion"].endswith(model.eos)
        assert ids == expected + [end] * is_ended, pair
        are_equal(tokenizer, pair, targets, masks + [1] * is_ended, ids)
    ledger, plain = make_store(tmp_path, model, pairs, allow=False)
    assert ledger["num_special_tokens_in_text"] > len(pairs)
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.encode_special_tokens = True
    for pair, (ids, _) in zip(pairs, plain, strict=True):
        text = backend.encode(pair["prompt"] + pair["completion"], add_special_tokens=False).ids
        assert ids == [tokenizer.bos_token_id] * (model.bos is not None) + text + [end]
