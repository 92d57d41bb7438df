#!/usr/bin/env bash
# Install into .venv, then tokenize, pack, inspect, verify and unpack sample_data/.
# The output is kept in demo_output/. A torch that python3 has already is used as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh '[all]'

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

printf '\nTo type seqpack yourself:  export PATH="%s:$PATH"\n' "$PWD/$environment/bin"
