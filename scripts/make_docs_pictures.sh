#!/usr/bin/env bash
# Draw the pictures of README.md and docs/ from sample_data/.
# Usage: scripts/make_docs_pictures.sh [FOLDER]    default docs/pictures
# tests/test_docs_pictures.py draws them again and compares.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v seqpack >/dev/null; then
    . scripts/environment.sh '[plot]'
fi
pictures=$(realpath -m "${1:-docs/pictures}")
mkdir -p "$pictures"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$PWD/sample_data" "$work/sample_data"
cd "$work"
seqpack tokenize sample_data --tokenizer sample_data/tokenizer.json --max-length 256 -o tokens-bpe -q
seqpack tokenize sample_data/stories.txt --tokenizer sample_data/tokenizer.json -o stories -q
seqpack pack stories --drop-longer 14 --batch-size 6 -o shards -q
seqpack pack tokens-bpe --layout varlen --max-tokens 512 -o rows -q
seqpack inspect shards --batch 0 --plot "$pictures/batch.svg" -q
seqpack plan tokens-bpe --plot "$pictures/plan.svg" -q
seqpack inspect rows --plot "$pictures/rows.svg" -q
