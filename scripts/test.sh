#!/usr/bin/env bash
# Make the environment if needed and run the tests, a process a core; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh '[dev]'
processes="-n auto --maxprocesses 4 --dist worksteal" # every one imports and collects all tests
for argument in "$@"; do
    case $argument in
        # Said otherwise, or for a terminal, or for the one GPU.
        -n* | --numprocesses* | --dist* | -s | --pdb | --collect-only | --co | *cuda*) processes="" ;;
    esac
done
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec python -m pytest $processes "$@"
