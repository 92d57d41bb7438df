"""Make the golden files of one format version: `python tests/make_golden.py 1`.

A version's folder is written once and never changed: an existing one is refused. It holds the
input, and the token stores and shards that the commands below write.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from command import run

GOLDEN = Path(__file__).parent / "data" / "golden"

# Run in this order inside a version's folder; each gets `-o` and its name.
COMMANDS = {
    "tokens_bytes": "tokenize input/lines.txt input/records.jsonl --on-bad-record skip "
    "--bos <bos> --eos <eos> --max-length 40 --part-bytes 220",
    "tokens_words": "tokenize input/words.txt --tokenizer input/words.tokenizer.json "
    "--part-bytes 120",
    "tokens_fields": "tokenize input/fields.jsonl --keep label:class --keep meta.id:int "
    "--keep score:float --keep title:text --keep known:class --keep tags:tags "
    "--tag-subtokens all --eos <eos> --max-length 12 --part-bytes 350",
    "tokens_targets": "tokenize input/answers.jsonl --prompt-field question "
    "--completion-field answer --keep id:text --bos <bos> --eos <eos> --max-length 16 --overlap 5 "
    "--part-bytes 150",
    "tokens_encoder": "tokenize input/pairs.jsonl --text-field from --keep lang:class "
    "--part-bytes 150",
    "tokens_decoder": "tokenize input/pairs.jsonl --text-field to --keep id:int --bos <bos> "
    "--eos <eos> --part-bytes 200",
    "packed": "pack tokens_bytes --batch-size 3 --shard-bytes 600",
    "padded": "pack tokens_words --layout padded --batch-size 3 --pad-to-multiple 4 "
    "--shard-bytes 400",
    "padded_left": "pack tokens_bytes --layout padded --buckets 12,24,40 --padding-side left "
    "--max-tokens 120 --shuffle --seed 7 --window 6 --shard-bytes 700",
    "filler": "pack tokens_words --layout padded --batch-size 4 --buckets auto "
    "--num-buckets 2 --last-batch pad --shard-bytes 400",
    "varlen": "pack tokens_bytes --layout varlen --max-tokens 32 --shard-bytes 800",
    "packed_columns": "pack tokens_fields --batch-size 3 --shuffle --where known=true "
    "--shard-bytes 2300",
    "filler_columns": "pack tokens_fields --layout padded --batch-size 4 --last-batch pad "
    "--padding-side left --shard-bytes 2700",
    "varlen_columns": "pack tokens_fields --layout varlen --max-tokens 8 --shard-bytes 3300",
    "mixed": "pack tokens_bytes tokens_fields --passes tokens_bytes=1.5,tokens_fields=3 --shuffle "
    "--seed 3 --batch-size 5 --store-column store --shard-bytes 2400 --drop-column label "
    "--drop-column meta.id --drop-column score --drop-column title --drop-column known "
    "--drop-column tags",
    "aligned_rows": "pack tokens_fields --layout varlen --batch-size 2 --max-tokens 20 "
    "--align-sequences 4 --last-batch pad --shard-bytes 3200",
    "chunks": "pack tokens_bytes --layout varlen --fill chunk --batch-size 2 --max-tokens 28 "
    "--shard-bytes 1300",
    "streams": "pack tokens_targets --layout streams --batch-size 4 --max-tokens 6 --shuffle "
    "--seed 2 --shard-bytes 2100",
    "varlen_targets": "pack tokens_targets --layout varlen --max-tokens 10 --shard-bytes 1000",
    "padded_targets": "pack tokens_targets tokens_bytes --layout padded --padding-side left "
    "--keep-without-target --batch-size 5 --drop-column id --shard-bytes 1900",
    "pairs": "pack tokens_encoder --decoder tokens_decoder --batch-size 3 --shard-bytes 1100",
    "padded_pairs": "pack tokens_encoder --decoder tokens_decoder --layout padded --batch-size 3 "
    "--buckets (12,16),(20,40) --last-batch pad --padding-side left --where decoder.id>0 "
    "--drop-column lang --shard-bytes 800",
    "splits": "pack tokens_fields --split train=0.6,test=rest --layout padded --batch-size 2",
}
STORES = [name for name, command in COMMANDS.items() if command.startswith("tokenize")]
SPLITS = ["splits/train", "splits/test"]
SHARDS = [name for name in COMMANDS if name not in (*STORES, "splits")] + SPLITS

LINES = """\
The ferry leaves at nine.
Über den Fluß führt keine Brücke, nur ein Seil.

海は静かだ。
A long line that goes past the limit of forty tokens more than once, so that it is cut in three.
пять
🛶 e\u0301 is not é
<eos> is only text here
x
"""
RECORDS = """\
{"text": "first record", "id": 1}
{"text": 7}
{"id": 3, "text": ""}
{"text": "two\\nlines, \\u00e4 and \\ud83d\\ude42"}
{"text": "last", "more": {"deep": [1, 2]}}
"""
WORDS = """\
harbour
the boat and the sea
the sea

sea sea sea sea sea sea sea
the unknown harbour and the old boat
boat the boat
and the harbour the sea the boat and the old sea
old
the old
sea and harbour
"""
# Records with fields of every kind: the text, and then one value for each other name.
FIELDS = [
    ("The ferry", "harbour", 1, 0.1, "a", True, [[4, 9, "thing"]]),
    ("Über den Fluß führt ein Seil", "road", -(2**63), -1e300, "ü", True, [[9, 13, "water"]]),
    ("", "nothing", 3, 0.0, "no token", False, []),
    ("海は静かだ", "sea", 2**63 - 1, 1.5, "", True, [[0, 1, "water"], [2, 4, "calm"]]),
    ("x", "harbour", 0, 5e-324, "a\nb", False, [[0, 1, "thing"]]),
    ("no tag here, and more than a piece", "road", 7, 2.0, "🛶" * 3, True, []),
    ("sea", "sea", -1, 1 / 3, "a", False, []),
]
FIELD_NAMES = ("text", "label", "meta", "score", "title", "known", "tags")
# Prompts and completions: short, both empty, a long prompt alone, a long completion.
ANSWERS = [
    ("2+2? ", "4"),
    ("", ""),
    ("Where does the ferry go at nine? ", ""),
    ("Count: ", "one, two, three, four, fünf, six"),
    ("", "no prompt"),
    ("海は? ", "静か"),
]
# Pairs of texts, of which one has no first and one no second, their language and a number.
PAIRS = [
    ("the sea", "das Meer", "de", 1),
    ("the old harbour", "le vieux port", "fr", 2),
    ("", "ohne Anfang", "de", 3),
    ("boat", "Schiff", "de", 0),
    ("a calm sea", "une mer très calme, dit-on", "fr", 5),
    ("no end", "", "fr", 6),
    ("ferry", "🛶", "de", 7),
    ("a boat and a sea", "un bateau et une mer", "fr", 8),
]
VOCABULARY = {
    "<unk>": 0,
    "<pad>": 1,
    "<bos>": 2,
    "<eos>": 3,
    "the": 4,
    "and": 300,
    "sea": 65_535,
    "boat": 65_536,
    "old": 69_999,
    "harbour": 70_000,
}


def words_tokenizer_json() -> bytes:
    """Return a word-level tokenizer whose ids need more than 16 bits, with a template."""
    template = [
        {"SpecialToken": {"id": "<bos>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<eos>", "type_id": 0}},
    ]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = ("<unk>", "<pad>", "<bos>", "<eos>")
    value = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": VOCABULARY[token], "content": token, **flags, "special": True}
            for token in special
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template,
            "pair": [*template, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                token: {"id": token, "ids": [VOCABULARY[token]], "tokens": [token]}
                for token in ("<bos>", "<eos>")
            },
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "<unk>"},
    }
    return json.dumps(value, indent=1).encode()


def write_input(folder: Path) -> None:
    """Write the input of every version."""
    folder.mkdir()
    for name, text in (("lines.txt", LINES), ("records.jsonl", RECORDS), ("words.txt", WORDS)):
        (folder / name).write_bytes(text.encode())
    records = [
        json.dumps(
            dict(zip(FIELD_NAMES, (*record[:2], {"id": record[2]}, *record[3:]), strict=True))
        )
        for record in FIELDS
    ]
    (folder / "fields.jsonl").write_text("\n".join(records) + "\n")
    answers = [
        json.dumps({"question": prompt, "answer": completion, "id": f"n{number}"})
        for number, (prompt, completion) in enumerate(ANSWERS)
    ]
    (folder / "answers.jsonl").write_text("\n".join(answers) + "\n")
    pairs = [
        json.dumps(dict(zip(("from", "to", "lang", "id"), pair, strict=True))) for pair in PAIRS
    ]
    (folder / "pairs.jsonl").write_text("\n".join(pairs) + "\n")
    (folder / "words.tokenizer.json").write_bytes(words_tokenizer_json())


def run_commands(version: Path) -> None:
    """Run all commands inside a version's folder, so that the files contain only relative paths."""
    with contextlib.chdir(version):
        for name, command in COMMANDS.items():
            result = run(*command.split(), "--num-workers", 1, "-o", name)
            if result.exit_code:
                raise SystemExit(result.output)


def make(version: Path) -> None:
    """Create one version's folder; refuse an existing one."""
    version.mkdir(parents=True)
    write_input(version / "input")
    run_commands(version)


if __name__ == "__main__":
    make(GOLDEN / f"v{int(sys.argv[1])}")
