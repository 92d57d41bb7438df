#!/usr/bin/env bash
# Make the environment if needed and run the tests on the surface, a process a core.
# Usage: scripts/test.sh [--all] [ARGUMENT OF PYTEST]...
# --all runs those in tests/outer (pages, examples, Ray, S3) and tests/inner (private modules) too.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh '[dev]'
rooms=("")
if [ "${1:-}" = --all ]; then
    rooms=("" tests/outer "tests/inner seqpack_cli --doctest-modules")
    shift
fi
processes="-n auto --maxprocesses 4 --dist worksteal" # every one imports and collects all tests
for argument in "$@"; do
    case $argument in
        # Said otherwise, or for a terminal, or for the one GPU.
        -n* | --numprocesses* | --dist* | -s | --pdb | --collect-only | --co | *cuda*) processes="" ;;
    esac
done
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
for room in "${rooms[@]}"; do
    python -m pytest $processes $room "$@" # apart, since each has fixtures for a whole session
done
