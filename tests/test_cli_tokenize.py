from __future__ import annotations

import json
import shlex

import pytest
from command import run
from tokenizers import AddedToken, Tokenizer, models

from seqpack_cli import open_store


def test_tokenize_says_what_the_store_holds(tmp_path):
    (tmp_path / "a.txt").write_text("ab\n\ncde\n<bos>\n")
    result = run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "out")
    assert result.exit_code == 0
    assert result.stdout == (
        f"{tmp_path}/out: complete\n"
        "  4 documents -> 3 sequences, 10 tokens (uint16, 1 part)\n"
        "  empty documents, without a sequence: 1\n"
        "  special tokens spelled out in the text, listed in special_tokens.jsonl: 1\n"
    )
    assert result.stderr == ""


def test_tokenize_passes_every_option_on(tmp_path):
    lines = [{"body": {"text": "abcdef"}}, {"body": {"text": "gh"}}]
    path = tmp_path / "a.data"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run(
        *("tokenize", path, "-o", tmp_path / "out", "--format", "jsonl"),
        *("--text-field", "body.text", "--bos", "<bos>", "--eos", "<eos>", "--max-length", "4"),
        *("--overflow", "truncate", "--part-bytes", "1kB", "--num-workers", "1", "-q"),
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    store = open_store(tmp_path / "out")
    assert [ids.tolist() for ids in store] == [[257, 97, 98, 258], [257, 103, 104, 258]]
    options = store.manifest["options"]
    assert options["part_bytes"] == 1000
    assert options["text_field"] == "body.text"
    assert store.manifest["ledger"]["num_truncated_tokens"] == 4


def test_tokenize_says_how_many_documents_have_replaced_bytes(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\xff\xfe\nb\n\xffc\n")
    (tmp_path / "b.csv").write_bytes(b"text\n\xff\nd\n")
    arguments = ("tokenize", tmp_path, "-o", tmp_path / "out", "--encoding-errors", "replace")
    result = run(*arguments, "--part-bytes", 8)
    assert result.stderr == (
        "note: documents with U+FFFD, which --encoding-errors replace puts for invalid bytes: 3\n"
    )
    assert json.loads((tmp_path / "out/run.json").read_text())["num_replaced_documents"] == 3
    assert "num_replaced_documents" not in open_store(tmp_path / "out").manifest["ledger"]


@pytest.mark.parametrize("special", [False, True])
def test_allowing_special_tokens_without_any_is_noted(tmp_path, special):
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))  # noqa: S106
    tokenizer.add_tokens([AddedToken("<s>", special=special)])
    tokenizer.save(str(tmp_path / "words.json"))
    (tmp_path / "a.txt").write_text("a\n")
    arguments = ("tokenize", tmp_path / "a.txt", "--tokenizer", tmp_path / "words.json")
    arguments = (*arguments, "--encoder", "tokenizers", "-o", tmp_path / "out")
    result = run(*arguments, "--allow-special-tokens")
    note = "note: --allow-special-tokens: the tokenizer has no special tokens\n"
    assert (result.exit_code, result.stderr) == (0, "" if special else note)
    assert run(*arguments, "--overwrite").stderr == ""


def test_tokenize_after_a_first_failure_needs_no_overwrite(tmp_path):
    """Nothing was finished, so another try with the hinted option has nothing to replace."""
    (tmp_path / "a.jsonl").write_text('{"body": "a"}\n')
    first = run("tokenize", tmp_path / "a.jsonl", "-o", tmp_path / "out")
    assert first.exit_code == 3
    assert "hint: pass --text-field body" in first.stderr
    again = run("tokenize", tmp_path / "a.jsonl", "-o", tmp_path / "out", "--text-field", "body")
    assert again.exit_code == 0, again.stderr


def test_hint_about_a_field_that_a_later_part_lacks_adds_overwrite(tmp_path):
    """The parts that were finished have the other field."""
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n' * 9 + '{"body": "y"}\n')
    options = ("--part-bytes", 50, "--num-workers", 1)
    result = run("tokenize", tmp_path / "a.jsonl", "-o", tmp_path / "out", *options)
    assert result.stderr.endswith("\n\nhint: pass --text-field body --overwrite\n")


def test_stray_file_is_excluded_and_a_list_of_the_same_files_is_the_same_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("a.txt", "b.txt", "c.log"):
        (tmp_path / "data" / name).write_text(name)
    (tmp_path / "data/stray.csv").write_text("x,y\n1,2\n")
    assert run("tokenize", "data", "-o", "store").exit_code == 3
    chosen = ("--include", "[a-c].*", "--exclude", "b*")
    result = run("tokenize", "data", "-o", "store", *chosen, "--overwrite")
    assert result.stderr == (
        "note: skipped 1 file or folder that matches --exclude: data/b.txt; "
        "1 file or folder that does not match --include: data/stray.csv\n"
    )
    record = json.loads((tmp_path / "store/run.json").read_text())
    assert record["skipped"] == {"excluded": 1, "not_included": 1}
    assert record["command"] == (
        "seqpack tokenize data -o store --include '[a-c].*' --exclude 'b*'"
    )
    assert [ids.tolist() for ids in open_store("store")] == [[*b"a.txt"], [*b"c.log"]]
    (tmp_path / "list").write_text("data/a.txt\ndata/c.log\n")
    result = run("tokenize", "--files-from", "list", "-o", "store")
    assert result.stdout.startswith("store: already complete\n")


def test_a_conversation_without_special_tokens_gives_a_note(tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": messages}))
    options = ("--messages-field", "messages", "--chat-template", template, "-o", tmp_path / "out")
    result = run("tokenize", tmp_path / "a.jsonl", *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == (
        f"note: --messages-field: the chat template {template} writes no special token of the "
        "tokenizer, so a model does not learn to stop; pass a --tokenizer that has the template's "
        "special tokens\n"
    )
    assert json.loads((tmp_path / "out/run.json").read_text())["chat_template"] == str(template)


def test_recorded_command_can_be_typed_whatever_names_begin_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "-b c.txt"):
        (tmp_path / name).write_text("x\n")
    assert run("tokenize", "-o", "store", "--", "a.txt", "-b c.txt").exit_code == 0
    command = json.loads((tmp_path / "store/run.json").read_text())["command"]
    again = run(*shlex.split(command)[1:])
    assert again.stdout.startswith("store: already complete\n")
