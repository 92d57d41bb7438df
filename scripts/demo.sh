#!/usr/bin/env bash
# Demo with sample_data/: install, tokenize, pack, inspect, verify, unpack.
# The output is kept in demo_output/.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh

show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

rm -rf demo_output
mkdir demo_output
show seqpack tokenize sample_data -o demo_output/tokens
show seqpack pack demo_output/tokens -o demo_output/shards
show seqpack inspect demo_output/shards
show seqpack inspect demo_output/shards --sequence 17
show seqpack verify demo_output/shards --device cpu
show seqpack unpack demo_output/shards --text -o demo_output/rows.jsonl
show head -n 2 demo_output/rows.jsonl
