#!/usr/bin/env bash
# Draw the pictures of README.md and docs/ from sample_data/, examples/reviews.jsonl and
# benchmarks/scale.json.
# Usage: scripts/make_docs_pictures.sh [FOLDER]    default docs/pictures
# tests/outer/test_docs_pictures.py draws them again and compares.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v seqpack >/dev/null; then
    . scripts/environment.sh '[plot]'
fi
pictures=$(realpath -m "${1:-docs/pictures}")
mkdir -p "$pictures"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$PWD/sample_data" "$PWD/examples" "$work"
python benchmarks/draw_scale.py "$pictures"
cd "$work"
seqpack tokenize sample_data --tokenizer sample_data/tokenizer.json --max-length 256 -o tokens-bpe -q
seqpack tokenize sample_data/stories.txt --tokenizer sample_data/tokenizer.json -o stories -q
seqpack pack stories --drop-longer 14 --batch-size 6 -o shards -q
seqpack pack tokens-bpe --layout varlen --max-tokens 512 -o rows -q
seqpack tokenize examples/reviews.jsonl --tokenizer sample_data/tokenizer.json --keep label:class --keep stars --keep minutes --keep meta.language:class --keep id --keep mentions:tags -o reviews -q
seqpack inspect shards --batch 0 --plot "$pictures/batch.svg" -q
seqpack plan tokens-bpe --plot "$pictures/plan.svg" -q
seqpack inspect rows --plot "$pictures/rows.svg" -q
seqpack inspect reviews --plot "$pictures/columns.svg" -q
