"""The examples do what they say, on sample_data, for a few steps."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner
from pair_corpus import draw_records, make_pair_shards

from seqpack_cli import (
    DataError,
    Executor,
    PackOptions,
    ShardDataset,
    StoreDataset,
    TokenizeOptions,
    TokenSequence,
    collate_varlen,
    pack,
    tokenize,
)

HERE = Executor(num_workers=1)
EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
UDHR = Path(__file__).parents[3] / "shared/data/udhr.jsonl"
NAMES = [
    "word_language_model",
    "stateful_language_model",
    "classifier",
    "tagger",
    "transformer",
    "chat",
    "buckets",
]
WITHOUT_INPUT = ["translation"]
# What torch.compile says once in a process, of this one release of Python.
ignore_slow_guards = pytest.mark.filterwarnings(
    r"ignore:Guards may run slower on Python 3\.13\.0\.:RuntimeWarning"
)


def load(name: str) -> ModuleType:
    """Import an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: object) -> str:
    """Run an example as a user would, in this process, and give what it prints."""
    result = CliRunner().invoke(load(name).main, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def find_losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", output)]


def train_words(work: Path, steps: int, *arguments: object) -> list[str]:
    words = SAMPLE_DATA / "stories.txt"
    sizes = ["--max-tokens", 2048, "--hidden-size", 8, "--vocab-size", 300]
    steps_ = ["--steps", steps, "--every", 1]
    output = run("word_language_model", words, "--work", work, *sizes, *steps_, *arguments)
    return output.splitlines()


def test_words_continued_are_words_at_once(tmp_path: Path) -> None:
    at_once = train_words(tmp_path / "once", 6)
    stopped = train_words(tmp_path / "twice", 3)
    assert [line for line in stopped if line.startswith("step 3:")] == stopped[-2:]
    assert stopped + train_words(tmp_path / "twice", 6) == at_once
    once, twice = (
        torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)
        for name in ("once", "twice")
    )
    assert once["sampler"]["epoch"] > 0  # the stop and the end are in different epochs
    assert once["step"] == twice["step"] == 6
    for name, value in once["model"].items():
        assert torch.equal(value, twice["model"][name]), name
    for number, moments in once["optimizer"]["state"].items():
        for name, value in moments.items():
            assert torch.equal(value, twice["optimizer"]["state"][number][name]), name


def test_words_have_a_falling_loss_and_its_perplexity(tmp_path: Path) -> None:
    lines = train_words(tmp_path, 25, "--untied", "--every", 10)
    found = [re.fullmatch(r"step (\d+): (.+) loss (.+), perplexity (.+)", line) for line in lines]
    rows = [match.groups() for match in found if match is not None]
    kinds = ["train", "held out"]
    assert [row[:2] for row in rows] == [
        (step, kind) for step in ("10", "20", "25") for kind in kinds
    ]
    for _, _, loss, perplexity in rows:
        assert float(perplexity) == pytest.approx(2.718281828 ** float(loss), abs=0.06)
    for first, last in zip(rows[:2], rows[-2:], strict=True):
        assert float(last[2]) < float(first[2])


def test_words_held_out_are_measured_without_dropout_and_never_trained_on(tmp_path: Path) -> None:
    example, lines = load("word_language_model"), train_words(tmp_path, 1)
    held_out = ShardDataset(tmp_path / "shards" / "validation", labels="next")
    train = ShardDataset(tmp_path / "shards" / "train", labels="next")
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert state["sampler"]["batches"] == train.fingerprint
    vocab_size, hidden_size = state["model"]["embedding.weight"].shape
    model = example.LanguageModel(vocab_size, hidden_size, tied=True).eval()
    model.load_state_dict(state["model"])
    losses = []
    for batch in held_out:
        log_odds = model(batch.sequences).log_softmax(dim=1)
        pairs = enumerate(batch.labels.tolist())
        losses += [-log_odds[place, label].item() for place, label in pairs if label >= 0]
    assert find_losses(lines[1])[0] == pytest.approx(sum(losses) / len(losses), abs=2e-6)


def test_words_of_one_line_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b a b\n")
    with pytest.raises(DataError, match="split 'validation' is empty"):
        run("word_language_model", tmp_path / "text.txt", "--work", tmp_path / "work")


def test_a_carried_state_gives_a_lower_perplexity() -> None:
    sizes = ["--hidden-size", 64, "--epochs", 2, "--max-tokens", 4, "--batch-size", 32]
    output = run("stateful_language_model", SAMPLE_DATA / "stories.txt", *sizes)
    line = r"epoch (\d): perplexity ([\d.]+) without state, ([\d.]+) carried\n"
    found = [tuple(map(float, match)) for match in re.findall(line, output)]
    assert [epoch for epoch, *_ in found] == [1, 2]
    _, without, carried = found[-1]
    assert carried < 0.98 * without < 14


def test_carried_states_give_the_outputs_of_each_document_alone(tmp_path: Path) -> None:
    text = "a lighthouse in the fog\n" + "x\n" * 3 + "two boats\n" + "many more boats\n" * 9
    (tmp_path / "text.txt").write_text(text)
    tokenize([str(tmp_path / "text.txt")], tmp_path / "tokens", executor=HERE)
    options = PackOptions("streams", batch_size=3, max_tokens=4)
    pack(tmp_path / "tokens", tmp_path / "shards", options, executor=HERE)
    model = load("stateful_language_model").LanguageModel(vocab_size=259, hidden_size=8)
    scores, state, columns = [], None, {}
    for batch in ShardDataset(tmp_path / "shards"):
        found, state = model(batch, state)
        for stream, ids in enumerate(batch.ids.T):
            columns.setdefault(stream, []).extend(
                zip(ids, batch.resets[:, stream], found[:, stream], strict=True)
            )
    alone, num_runs = [], 0
    for cells in columns.values():
        runs: list[list[torch.Tensor]] = []
        for token, is_reset, score in cells:
            runs += [[]] if is_reset else []
            runs[-1].append(token)
            scores.append(score)
        for ids in runs:  # the last one may end with padding, behind its document
            embedded = model.embedding(torch.stack(ids)[:, None])
            alone.append(model.head(model.lstm(embedded)[0])[:, 0])
        num_runs += len(runs)
    assert num_runs > 14  # documents, and streams that begin inside one
    torch.testing.assert_close(torch.stack(scores), torch.cat(alone))


def classify(tmp_path: Path, records: Iterable[tuple[str, str]], steps: int) -> float:
    """Train on texts and their labels; return the accuracy on what was held out, checked."""
    labels: dict[str, str] = {}
    with (tmp_path / "texts.jsonl").open("w") as file:
        for number, (label, text) in enumerate(records):
            labels[f"text {number}"] = label
            file.write(json.dumps({"id": f"text {number}", "kind": label, "text": text}) + "\n")
    arguments = ["--label", "kind", "--output", tmp_path / "found.tsv", "--steps", steps]
    output = run("classifier", tmp_path / "texts.jsonl", *arguments)
    lines = (tmp_path / "found.tsv").read_text().splitlines()
    found = dict(line.split("\t") for line in lines)
    assert len(lines) == len(found)
    assert 0.1 < len(found) / len(labels) < 0.3
    accuracy = sum(labels[name] == label for name, label in found.items()) / len(found)
    assert output == f"held out: {accuracy:.1%} of {len(found)}\n"
    return accuracy


def test_classifier_knows_nine_of_ten_sentences_of_five_languages(tmp_path: Path) -> None:
    lines = (SAMPLE_DATA / "languages.jsonl").read_bytes().splitlines()
    records = [(row["language"], row["text"]) for row in map(json.loads, lines)]
    sentences = [
        (label, text)
        for label, texts in records
        for text in re.split(r"(?<=[.!?])\s*", texts)
        if label in ("en", "ru", "el", "he", "ko") and len(text) > 15
    ]
    assert classify(tmp_path, sentences, 20) >= 0.9


@pytest.mark.skipif(not UDHR.exists(), reason="a large text outside the repository")
def test_classifier_knows_most_languages_of_the_declaration_of_human_rights(tmp_path: Path) -> None:
    records = [json.loads(line) for line in UDHR.read_bytes().splitlines()]
    lines = [
        (row["id"], line.strip())
        for row in records
        for line in row["text"].splitlines()
        if row["id"] in ("eng.txt", "spa.txt", "fin.txt", "tur.txt", "rus.txt", "swh.txt")
    ]
    assert classify(tmp_path, [line for line in lines if len(line[1]) > 40], 40) >= 0.8


def test_transformer_has_a_falling_loss() -> None:
    steps = ["--max-tokens", 256, "--steps", 12, "--every", 1]
    losses = find_losses(run("transformer", SAMPLE_DATA / "stories.txt", *steps))
    assert len(losses) == 12
    assert sum(losses[-3:]) < sum(losses[:3]) - 1


def test_transformer_computes_each_sequence_of_a_row_as_alone(tmp_path: Path) -> None:
    example = load("transformer")
    (tmp_path / "text.txt").write_text("lighthouse\nfog\na boat\n")
    tokenize([str(tmp_path / "text.txt")], tmp_path / "tokens", executor=HERE)
    rows = list(StoreDataset(tmp_path / "tokens"))
    model = example.Transformer(vocab_size=259, hidden_size=8)
    alone = [model(collate_varlen([row])) for row in rows]
    torch.testing.assert_close(model(collate_varlen(rows)), torch.cat(alone))


def test_transformer_mask_shows_no_later_token() -> None:
    mask = load("transformer").make_mask(torch.tensor([0, 3, 5], dtype=torch.int32))
    assert mask.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_chat_repeats_its_answers_and_learns_no_prompts(tmp_path: Path) -> None:
    lines = (EXAMPLES / "conversations.jsonl").read_bytes().splitlines(keepends=True)
    some = [lines[-1], *lines[12:24]]  # the first has no answer, others have calls of tools
    (tmp_path / "some.jsonl").write_bytes(b"".join(some))
    output = run("chat", tmp_path / "some.jsonl", "--steps", 36, "--answers", 8)
    head, *texts = output.removesuffix("\n").split("\n\n")
    prompts, targets, prompts_after, targets_after = map(float, re.findall(r"\d+\.\d+", head))
    assert targets > 6
    assert targets_after < 0.1
    assert prompts_after > prompts
    for text, line in zip(texts, some[1:9], strict=True):
        answer = json.loads(line)["messages"][-1]["content"]
        assert text.endswith(f"<|im_start|>assistant\n{answer}<|im_end|>")


def test_chat_skips_pieces_in_which_no_answer_begins(tmp_path: Path) -> None:
    ask = {"role": "user", "content": "?"}
    answers = ["".join(map(chr, range(0x4E00, 0x4E00 + 60))), "yes"]
    lines = [{"messages": [ask, {"role": "assistant", "content": text}]} for text in answers]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    example = load("chat")
    example.MAX_LENGTH = 64
    arguments = [str(tmp_path / "long.jsonl"), "--steps", "1", "--answers", "3"]
    output = CliRunner().invoke(example.main, arguments, catch_exceptions=False).stdout
    assert output.count("<|im_start|>user\n?<|im_end|>") == len(answers)


def test_chat_has_no_loss_where_nothing_is_a_target() -> None:
    example = load("chat")
    model = example.Transformer(vocab_size=9, hidden_size=8)
    batch = collate_varlen([TokenSequence(torch.tensor([3, 4, 5]), 0)], labels="next")
    assert example.compute_loss(model, batch).item() > 0
    batch.labels = torch.full_like(batch.labels, -100)
    loss = example.compute_loss(model, batch)
    loss.backward()
    assert loss.item() == 0
    assert all(not values.grad.any() for values in model.parameters())


def test_chat_computes_each_sequence_of_a_row_as_alone() -> None:
    model = load("chat").Transformer(vocab_size=9, hidden_size=8)
    rows = [TokenSequence(torch.tensor(ids), 0) for ids in ([1, 2, 3], [4], [5, 6, 7, 8])]
    alone = [model(collate_varlen([row])) for row in rows]
    torch.testing.assert_close(model(collate_varlen(rows)), torch.cat(alone))


def test_translation_of_dates_is_exact() -> None:
    output = run("translation", "--num-pairs", 2000, "--steps", 110)
    losses = find_losses(output)
    assert losses[-1] < losses[0] / 4
    found = re.search(r"^held out: ([\d.]+)% of (\d+) dates exactly right\n$", output, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > 80
    assert 150 < int(found[2]) < 250


def test_translation_computes_each_pair_as_alone(tmp_path: Path) -> None:
    model, records = load("translation").Translator(259, 259, hidden_size=8), draw_records(9)
    ends = {"bos_id": 257, "labels": "next"}
    (batch,) = ShardDataset(make_pair_shards(tmp_path / "all", records, batch_size=9), **ends)
    scores = model(batch)
    written = model.translate(batch.encoder.sequences, torch.full((9, 1), 257), 3)
    for row, number in enumerate(batch.encoder.original_indices.tolist()):
        path = make_pair_shards(tmp_path / str(number), records[number : number + 1])
        (pair,) = ShardDataset(path, **ends)
        (alone,) = model(pair)
        torch.testing.assert_close(scores[row, : len(alone)], alone)
        (found,) = model.translate(pair.encoder.sequences, torch.full((1, 1), 257), 3)
        assert found.tolist() == written[row].tolist()
        assert alone[0].argmax() == found[0]


@ignore_slow_guards
@pytest.mark.parametrize("is_bucketed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_buckets_are_compiled_once_for_each_shape(tmp_path: Path, is_bucketed: bool) -> None:
    example = load("buckets")
    tokens = TokenizeOptions(max_length=128)
    tokenize([str(SAMPLE_DATA / "stories.txt")], tmp_path / "tokens", tokens, executor=HERE)
    buckets = {"buckets": "auto", "last_batch": "pad"} if is_bucketed else {}
    options = PackOptions(layout="padded", max_tokens=1024, drop_shorter=2, **buckets)
    manifest, _ = pack(tmp_path / "tokens", tmp_path / "shards", options, executor=HERE)
    dataset = ShardDataset(tmp_path / "shards", labels="next")
    shapes = example.find_shapes(dataset)
    widths = [width for _, width in shapes]
    assert widths == sorted(widths, reverse=True)
    if is_bucketed:
        assert widths == manifest["bucket_keys"][::-1]
    else:
        assert len(shapes) > 8
    torch._dynamo.reset()
    backend = example.CountingBackend("eager")
    losses = example.train(dataset, backend, 6, "cpu")
    assert backend.num_compilations == len(shapes)
    assert len(losses) == len(shapes) + 6
    assert sum(losses[-3:]) < sum(losses[:3])


@ignore_slow_guards
def test_buckets_report_keys_and_compilations() -> None:
    torch._dynamo.reset()
    text = SAMPLE_DATA / "stories.txt"
    output = run("buckets", text, "--max-tokens", 1024, "--steps", 1, "--backend", "eager")
    keys = re.findall(r"^bucket keys: (.+)$", output, re.MULTILINE)[0].split(", ")
    counts = re.findall(r"^(\d+) compilations; (\d+) shapes without", output, re.MULTILINE)[0]
    assert int(counts[0]) == len(keys)
    assert int(counts[1]) > len(keys)


def test_buckets_record_cuda_graphs_in_the_mode_reduce_overhead() -> None:
    backend = load("buckets").CountingBackend("inductor", "reduce-overhead")
    assert backend.options == {"config_patches": {"triton.cudagraphs": True}}


def test_tagger_learns_what_words_of_code_are() -> None:
    """Operators, names and strings are easy; functions and attributes need their neighbors."""
    output = run("tagger", EXAMPLES, "--steps", 40)
    found = re.fullmatch(r"held out: ([\d.]+)% of ([\d,]+) words, 7 tags", output.splitlines()[-1])
    assert found is not None
    assert float(found[1]) > 90
    assert int(found[2].replace(",", "")) > 500


@pytest.mark.parametrize("name", NAMES)
def test_an_error_of_the_input_ends_an_example_with_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    more = {"word_language_model": ["--work", "w"], "classifier": ["--output", "-"]}
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    monkeypatch.setattr("sys.argv", [name, "in", *more.get(name, [])])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    if name == "tagger":
        assert capsys.readouterr().err.endswith("\nError: no Python files in in\n")
    else:
        assert re.fullmatch("Error: in: .*", str(caught.value))


def test_examples_are_these() -> None:
    names = [*NAMES, *WITHOUT_INPUT, "my_model"]  # which verify runs: docs/verify.md
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(names)
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(set(re.findall(r"`(\w+)\.py`", readme))) == sorted(names)


@pytest.mark.parametrize("name", [*NAMES, *WITHOUT_INPUT])
def test_example_is_short_and_needs_nothing_but_the_project(name: str) -> None:
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 120
    command = re.search(r"^    python examples/\w+\.py (\S+)", source, re.MULTILINE)
    assert command is not None
    if name not in WITHOUT_INPUT:
        assert (SAMPLE_DATA.parent / command[1]).exists()
        assert command[1].startswith(("sample_data", "examples"))
    assert "shared" not in source
