"""Make the parts with any encoder: the same bytes, and the fallback to tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run as run_command
from here import HERE
from reference import read_folder, read_store_documents
from tokenizer_kinds import added_tokens_out_of_order, tokenizer_of
from tokenizers import Regex, Tokenizer, pre_tokenizers
from unfinished import Stop

from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.runs.workers import Executor, Progress, Workers
from seqpack_cli.tokens import encoders, tokenize_run
from seqpack_cli.tokens.encoders import EncoderRefusedError
from seqpack_cli.tokens.offsets import Encoder, EncodersDifferError
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.sequences import EncodedTexts
from seqpack_cli.tokens.tokenize_run import tokenize, tokenize_part

NUM_LINES = 400
PART_BYTES = 10_000  # 100 lines of 100 bytes: more than the head of 4 KiB


@pytest.fixture(autouse=True)
def _open_anew() -> Iterator[None]:
    """Encoders are opened once in a process; here others have the same name."""
    encoders.open_checked_encoder.cache_clear()
    encoders.start_loading.cache_clear()
    yield
    encoders.open_checked_encoder.cache_clear()
    encoders.start_loading.cache_clear()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Lines of exactly 100 bytes, each with its number, so parts begin at lines 1, 101, 201, 301.

    See test_parts_are_as_these_tests_expect.
    """
    path = tmp_path / "a.txt"
    lines = (f"line {number:03d} of é漢 <|endoftext|> don't" for number in range(NUM_LINES))
    path.write_bytes(b"".join(line.encode().ljust(99) + b"\n" for line in lines))
    return path


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "byte_level.json"
    path.write_text(tokenizer_of("byte_level"))
    return path


def run(
    corpus: Path,
    output: Path,
    tokenizer: Path,
    *,
    encoder: str = "auto",
    num_workers: int = 1,
    part_bytes: int = PART_BYTES,
) -> list[str]:
    """Tokenize and return the notices."""
    notices: list[str] = []
    tokenize(
        [str(corpus)],
        output,
        TokenizeOptions(tokenizer=str(tokenizer), part_bytes=part_bytes, encoder=encoder),
        executor=Executor(num_workers=num_workers),
        progress=Progress(on_notice=notices.append),
    )
    return notices


def read_encoder(store: Path) -> str:
    found: str = json.loads((store / "run.json").read_bytes())["encoder"]
    return found


# The same bytes


def test_parts_are_as_these_tests_expect(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "store", tokenizer, encoder="tokenizers")
    parts = json.loads((tmp_path / "store" / "manifest.json").read_bytes())["parts"]
    assert [part["ranges"][0]["start"] for part in parts] == [0, 10_000, 20_000, 30_000]
    assert [part["num_documents"] for part in parts] == [100] * 4


def test_bytes_are_the_same_for_every_encoder_and_any_number_of_workers(
    sample_data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("fastokens")
    (tmp_path / "tokenizer.json").write_text(tokenizer_of("split_pattern"))
    inputs = [str(sample_data / "languages.jsonl"), str(sample_data / "stories.txt")]
    options = TokenizeOptions(tokenizer=str(tmp_path), part_bytes=4000, max_length=64)
    folders = {}
    # In this process and in others.
    workers = {"tokenizers": (1,), "fastokens": (1,), "auto": (1, 3)}
    for encoder, num_workers in ((name, num) for name, nums in workers.items() for num in nums):
        output = tmp_path / f"{encoder}-{num_workers}"
        executor = Executor(num_workers=num_workers)
        tokenize(inputs, output, replace(options, encoder=encoder), executor=executor)
        folders[output.name] = read_folder(output)
        used = json.loads((output / "run.json").read_bytes())
        expected = "tokenizers" if encoder == "tokenizers" else "fastokens"
        assert (used["encoder"], used["num_workers"]) == (expected, num_workers)
    first = folders["tokenizers-1"]
    assert len([name for name in first if name.endswith(".bin")]) >= 10
    assert [name for name, folder in folders.items() if folder != first] == []


@pytest.mark.parametrize("allow", [True, False])
def test_bytes_of_the_byte_tokenizer_are_the_same_for_every_encoder(
    corpus: Path, tmp_path: Path, allow: bool
) -> None:
    pytest.importorskip("fastokens")
    options = TokenizeOptions(
        part_bytes=PART_BYTES, bos="<bos>", eos="<eos>", allow_special_tokens=allow
    )
    with corpus.open("a") as file:
        file.write("<bos><pad> é <eos><eos>\n")
    used = []
    for encoder in ("auto", "fastokens", "tokenizers"):
        chosen = replace(options, encoder=encoder)
        tokenize([str(corpus)], tmp_path / encoder, chosen, executor=HERE)
        used.append(read_encoder(tmp_path / encoder))
    assert used == ["fastokens" if allow else "bytes", "fastokens", "tokenizers"]
    first = read_folder(tmp_path / "auto")
    assert read_folder(tmp_path / "fastokens") == first
    assert read_folder(tmp_path / "tokenizers") == first


def write_kind(path: Path, kind: str) -> Path:
    """Write a tokenizer that fastokens refuses, or one for which its ids differ."""
    different = kind == "added_tokens_out_of_order"
    path.write_text(added_tokens_out_of_order() if different else tokenizer_of(kind))
    return path


@pytest.mark.parametrize(
    ("kind", "notice"),
    [
        ("word_level", "fastokens does not support this tokenizer; using tokenizers"),
        ("byte_fallback", "fastokens does not support this tokenizer; using tokenizers"),
        (
            "added_tokens_out_of_order",
            "fastokens: different ids from tokenizers for the built-in test texts; "
            "using tokenizers for the whole run",
        ),
    ],
)
def test_run_falls_back_once_however_many_workers_it_has(
    corpus: Path, tmp_path: Path, kind: str, notice: str
) -> None:
    pytest.importorskip("fastokens")
    path = write_kind(tmp_path / "tokenizer.json", kind)
    run(corpus, tmp_path / "slow", path, encoder="tokenizers")
    for num_workers in (1, 2) if kind == "added_tokens_out_of_order" else (1,):
        output = tmp_path / str(num_workers)
        assert run(corpus, output, path, num_workers=num_workers) == [notice]
        assert read_encoder(output) == "tokenizers"
        assert read_folder(output) == read_folder(tmp_path / "slow")


@pytest.mark.parametrize(
    ("kind", "exit_code", "said"),
    [
        (
            "word_level",
            2,
            "does not support this tokenizer (it is neither byte-level BPE nor BPE that falls back "
            "to bytes)",
        ),
        (
            "byte_fallback",
            2,
            "does not support this tokenizer (its tokens have characters that are no tokens)",
        ),
        (
            "added_tokens_out_of_order",
            3,
            "different ids from tokenizers for the built-in test texts",
        ),
    ],
)
def test_fastokens_that_was_chosen_and_cannot_be_used_is_an_error_of_the_command(
    corpus: Path, tmp_path: Path, kind: str, exit_code: int, said: str
) -> None:
    pytest.importorskip("fastokens")
    path = write_kind(tmp_path / "tokenizer.json", kind)
    result = run_command(
        *("tokenize", corpus, "-o", tmp_path / "store", "--tokenizer", path),
        *("--encoder", "fastokens", "--num-workers", exit_code - 1, "--part-bytes", PART_BYTES),
    )  # in this process, or in two
    assert result.exit_code == exit_code
    assert result.stderr.endswith(
        f"Error: --encoder fastokens: {said}\n\nhint: pass --encoder auto\n"
    )
    assert not (tmp_path / "store" / "manifest.json").exists()


# Fallback


FakeFast = Callable[..., list[str]]


@pytest.fixture
def fake_fast(monkeypatch: pytest.MonkeyPatch) -> FakeFast:
    """Replace fastokens by an encoder that is right, except for the faults it is given."""

    def install(
        is_wrong: Callable[[str], bool] = lambda _: False,
        fails: Callable[[str], bool] = lambda _: False,
        refuses: bool = False,
    ) -> list[str]:
        opened: list[str] = []

        def open_fake(tokenizer_json: bytes, allow_special_tokens: bool) -> Encoder:
            opened.append("fastokens")
            if refuses:
                raise EncoderRefusedError("no luck")
            right = encoders.open_tokenizers(
                tokenizer_json, allow_special_tokens=allow_special_tokens
            )

            def encode(texts: list[str]) -> EncodedTexts:
                if any(map(fails, texts)):
                    raise EncodersDifferError("fastokens failed: no luck")
                encoded = right(texts)
                wrong = np.repeat([is_wrong(text) for text in texts], encoded.lengths)
                return EncodedTexts(np.where(wrong, 300, encoded.ids), encoded.lengths)

            return encode

        monkeypatch.setattr(encoders, "_open_fastokens", open_fake)
        encoders.open_checked_encoder.cache_clear()
        encoders.start_loading.cache_clear()
        return opened

    return install


def stop_after(monkeypatch: pytest.MonkeyPatch, num_parts: int) -> None:
    """Stop a run in this process after this number of parts."""
    left = num_parts

    def stop(setup: Any, task: Any) -> Any:
        nonlocal left
        if left == 0:
            raise Stop
        left -= 1
        return make(setup, task)

    make = tokenize_run.tokenize_part
    monkeypatch.setattr(tokenize_run, "tokenize_part", stop)


def has_line(number: int) -> Callable[[str], bool]:
    return lambda text: text.startswith(f"line {number:03d}")


# Line 201 is the second of the third part, in its head; line 280 is far after its head.
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "wrong in the probe": (
        {"is_wrong": lambda text: text == "The"},
        "different ids from tokenizers for the built-in test texts",
    ),
    "wrong in the head of a later part": (
        {"is_wrong": has_line(201)},
        "different ids from tokenizers for {corpus}:201",
    ),
    "fails in the probe": (
        {"fails": lambda text: text == "The"},
        "fastokens failed: no luck",
    ),
    "fails in the head of a later part": (
        {"fails": has_line(201)},
        "fastokens failed: no luck",
    ),
    "fails midway": ({"fails": has_line(280)}, "fastokens failed: no luck"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fast_encoder_that_differs_leaves_no_part_of_a_run(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast, fault: str
) -> None:
    behaviour, said = FAULTS[fault]
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    fake_fast(**behaviour)
    assert run(corpus, tmp_path / "store", tokenizer) == [
        f"fastokens: {said.format(corpus=corpus)}; using tokenizers for the whole run"
    ]
    assert read_encoder(tmp_path / "store") == "tokenizers"
    assert read_folder(tmp_path / "store") == read_folder(tmp_path / "slow")


@pytest.mark.parametrize("fault", FAULTS)
def test_fast_encoder_that_differs_is_an_error_where_it_was_chosen(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast, fault: str
) -> None:
    behaviour, said = FAULTS[fault]
    fake_fast(**behaviour)
    with pytest.raises(DataError) as caught:
        run(corpus, tmp_path / "store", tokenizer, encoder="fastokens")
    assert caught.value.message == f"--encoder fastokens: {said.format(corpus=corpus)}"
    assert caught.value.hint == "pass --encoder auto"
    assert caught.value.exit_code == 3
    assert not (tmp_path / "store" / "manifest.json").exists()
    assert list((tmp_path / "store").glob("part-*.json")) == []


def test_fast_encoder_that_differs_ends_the_command_with_its_code(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    fake_fast(is_wrong=has_line(201))
    result = run_command(
        *("tokenize", corpus, "-o", tmp_path / "store", "--tokenizer", tokenizer),
        *("--encoder", "fastokens", "--num-workers", 1, "--part-bytes", PART_BYTES),
    )
    assert result.exit_code == 3
    assert result.stderr.endswith(
        f"Error: --encoder fastokens: different ids from tokenizers for {corpus}:201\n\n"
        "hint: pass --encoder auto\n"
    )
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_fast_encoder_that_refuses_is_not_used(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    fake_fast(refuses=True)
    assert run(corpus, tmp_path / "store", tokenizer) == [
        "fastokens does not support this tokenizer; using tokenizers"
    ]
    assert read_encoder(tmp_path / "store") == "tokenizers"
    assert read_folder(tmp_path / "store") == read_folder(tmp_path / "slow")


def test_fast_encoder_that_refuses_is_an_error_where_it_was_chosen(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    fake_fast(refuses=True)
    with pytest.raises(OptionError) as caught:
        run(corpus, tmp_path / "store", tokenizer, encoder="fastokens")
    assert caught.value.message == (
        "--encoder fastokens: does not support this tokenizer (no luck)"
    )
    assert caught.value.hint == "pass --encoder auto"
    assert caught.value.exit_code == 2
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_fast_encoder_that_agrees_encodes_the_run(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    opened = fake_fast()
    for encoder in ("auto", "fastokens"):
        assert run(corpus, tmp_path / encoder, tokenizer, encoder=encoder) == []
        assert read_encoder(tmp_path / encoder) == "fastokens"
        assert read_folder(tmp_path / encoder) == read_folder(tmp_path / "slow")
    assert opened == ["fastokens"]  # once for all parts of both runs
    assert run(corpus, tmp_path / "again", tokenizer, encoder="tokenizers") == []
    assert opened == ["fastokens"]


# Continuing


def test_run_that_falls_back_does_the_parts_of_an_interrupted_one_again(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    """The interrupted run made wrong ids that the heads of its parts did not show."""
    output = tmp_path / "store"
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    fake_fast(is_wrong=lambda text: has_line(80)(text) or has_line(201)(text))
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stop):
            run(corpus, output, tokenizer)
    whole = read_folder(tmp_path / "slow")
    assert (output / "part-00000.bin").read_bytes() != whole["part-00000.bin"]
    assert json.loads((output / "part-00001.json").read_bytes())["encoder"] == "fastokens"
    assert run(corpus, output, tokenizer) == [
        "2 of 4 parts were already finished",
        f"fastokens: different ids from tokenizers for {corpus}:201; "
        "using tokenizers for the whole run",
    ]
    assert read_encoder(output) == "tokenizers"
    assert read_folder(output) == whole


def test_run_interrupted_after_it_fell_back_goes_on_with_tokenizers(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    output = tmp_path / "store"
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    behaviour: dict[str, Any] = {"is_wrong": lambda text: has_line(80)(text) or has_line(201)(text)}
    fake_fast(**behaviour)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 4)  # two by the fast one, one that differs, one by tokenizers
        with pytest.raises(Stop):
            run(corpus, output, tokenizer)
    assert sorted(path.name for path in output.glob("part-*.json")) == ["part-00000.json"]
    opened = fake_fast(**behaviour)
    assert run(corpus, output, tokenizer) == ["1 of 4 parts were already finished"]
    assert opened in ([], ["fastokens"])  # loaded ahead of time perhaps, asked for nothing
    assert read_folder(output) == read_folder(tmp_path / "slow")


def test_run_begun_by_tokenizers_goes_on_with_it(
    corpus: Path,
    tokenizer: Path,
    tmp_path: Path,
    fake_fast: FakeFast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "store"
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stop):
            run(corpus, output, tokenizer, encoder="tokenizers")
    opened = fake_fast()
    assert run(corpus, output, tokenizer) == ["2 of 4 parts were already finished"]
    assert opened in ([], ["fastokens"])  # loaded ahead of time perhaps, asked for nothing
    assert read_encoder(output) == "tokenizers"
    assert read_folder(output) == read_folder(tmp_path / "slow")


def test_parts_made_by_a_fast_encoder_that_agrees_are_kept(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    output = tmp_path / "store"
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    fake_fast()
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stop):
            run(corpus, output, tokenizer)
    before = (output / "part-00000.bin").stat().st_mtime_ns
    assert run(corpus, output, tokenizer) == ["2 of 4 parts were already finished"]
    assert (output / "part-00000.bin").stat().st_mtime_ns == before
    assert read_encoder(output) == "fastokens"
    assert read_folder(output) == read_folder(tmp_path / "slow")


def test_tokenizers_after_an_error_of_the_fast_encoder_does_all_parts_again(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    fake_fast(is_wrong=lambda text: has_line(80)(text) or has_line(201)(text))
    with pytest.raises(DataError):
        run(corpus, tmp_path / "store", tokenizer, encoder="fastokens")
    run(corpus, tmp_path / "store", tokenizer, encoder="tokenizers")
    assert read_folder(tmp_path / "store") == read_folder(tmp_path / "slow")


@pytest.mark.parametrize("refuses", [True, False])
def test_choosing_fastokens_discards_the_parts_of_an_interrupted_run(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast, refuses: bool
) -> None:
    """They were made by an encoder that differs, or by another version of it."""
    output = tmp_path / "store"
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    fake_fast(is_wrong=has_line(80))
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stop):
            run(corpus, output, tokenizer)
    assert len(list(output.glob("part-*.json"))) == 2
    fake_fast(refuses=refuses, is_wrong=has_line(201))
    with pytest.raises(OptionError if refuses else DataError):
        run(corpus, output, tokenizer, encoder="fastokens")
    assert list(output.glob("part-*.json")) == []
    assert run(corpus, output, tokenizer, encoder="tokenizers") == []
    assert read_folder(output) == read_folder(tmp_path / "slow")


def test_parts_by_tokenizers_outlive_an_error_of_the_fast_encoder(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    output = tmp_path / "store"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(Stop):
            run(corpus, output, tokenizer, encoder="tokenizers")
    fake_fast(is_wrong=has_line(201))
    with pytest.raises(DataError):
        run(corpus, output, tokenizer, encoder="fastokens")
    assert [path.name for path in output.glob("part-*.json")] == ["part-00000.json"]


def test_part_whose_result_never_arrived_is_discarded_too(
    corpus: Path, tokenizer: Path, tmp_path: Path, fake_fast: FakeFast
) -> None:
    """A second worker publishes its part while the first one's error is on its way."""
    output = tmp_path / "store"
    run(corpus, tmp_path / "slow", tokenizer, encoder="tokenizers")
    fake_fast(is_wrong=has_line(80))
    run_all = Workers.run

    def run_two(self: Workers, function: Any, tasks: list[Any], **options: Any) -> Iterator[Any]:
        if getattr(function, "func", None) is not tokenize_part:
            yield from run_all(self, function, tasks, **options)
            return
        if function.args[0].encoder == "fastokens":
            function(tasks[0])  # made and published, not yet heard of
            raise EncodersDifferError("no luck")
        yield from run_all(self, function, tasks[1:2], **options)
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "run", run_two)
        with pytest.raises(Stop):
            run(corpus, output, tokenizer)
    assert run(corpus, output, tokenizer) == ["1 of 4 parts were already finished"]
    assert read_folder(output) == read_folder(tmp_path / "slow")


# Saved settings of a tokenizer.json


@pytest.mark.parametrize(
    ("encoder", "spelled"),
    [
        *(("tokenizers", spelled) for spelled in ("0.5", "1.0", "1", "5e-1", "1e-1", "0.1")),
        *(("auto", "0.5"), ("auto", "1"), ("fastokens", "5e-1"), ("fastokens", "1.0")),
    ],
)
def test_saved_dropout_is_ignored_with_a_note(
    corpus: Path, tokenizer: Path, tmp_path: Path, encoder: str, spelled: str
) -> None:
    if encoder != "tokenizers":
        pytest.importorskip("fastokens")
    run(corpus, tmp_path / "plain", tokenizer, encoder="tokenizers")
    path = tmp_path / "dropout.json"
    data = tokenizer.read_text()
    path.write_text(data.replace('"dropout":null', f'"dropout":{spelled}'))
    assert path.read_text() != data
    for name in ("first", "second"):
        assert run(corpus, tmp_path / name, path, encoder=encoder) == [
            "tokenizer.json: ignoring its saved dropout"
        ]
    assert read_folder(tmp_path / "first") == read_folder(tmp_path / "second")
    assert (tmp_path / "first" / "tokenizer.json").read_bytes() == path.read_bytes()
    assert read_store_documents(tmp_path / "first") == read_store_documents(tmp_path / "plain")


@pytest.mark.parametrize("encoder", ["auto", "tokenizers", "fastokens"])
def test_saved_truncation_and_padding_are_ignored_with_a_note(
    corpus: Path, tokenizer: Path, tmp_path: Path, encoder: str
) -> None:
    if encoder != "tokenizers":
        pytest.importorskip("fastokens")
    run(corpus, tmp_path / "plain", tokenizer, encoder="tokenizers")
    changed = Tokenizer.from_file(str(tokenizer))
    changed.enable_truncation(3)
    changed.enable_padding(length=500, pad_id=1, pad_token="<pad>")  # noqa: S106
    changed.save(str(tmp_path / "limits.json"))
    assert run(corpus, tmp_path / "store", tmp_path / "limits.json", encoder=encoder) == [
        "tokenizer.json: ignoring its saved truncation",
        "tokenizer.json: ignoring its saved padding",
    ]
    assert read_store_documents(tmp_path / "store") == read_store_documents(tmp_path / "plain")


@pytest.mark.parametrize("encoder", ["auto", "tokenizers"])
def test_text_on_which_a_pattern_gives_up_is_named(
    corpus: Path, tokenizer: Path, tmp_path: Path, encoder: str
) -> None:
    """Oniguruma stops after ten million steps; the library panics, which is not an Exception."""
    catastrophic = Tokenizer.from_file(str(tokenizer))
    catastrophic.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"(x+)+(?!x)y|."), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    catastrophic.save(str(tmp_path / "catastrophic.json"))
    lines = corpus.read_text().split("\n")
    corpus.write_text("\n".join([*lines[:150], "a line of " + "x" * 40, *lines[150:]]))
    with pytest.raises(DataError) as caught:
        run(corpus, tmp_path / "store", tmp_path / "catastrophic.json", encoder=encoder)
    assert caught.value.message.startswith(f"{corpus}:151: tokenizer.json: ")
    assert "retry-limit" in caught.value.message
    assert caught.value.exit_code == 3
    assert not (tmp_path / "store" / "manifest.json").exists()
