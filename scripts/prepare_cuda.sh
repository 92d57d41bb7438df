#!/usr/bin/env bash
# Fetch what a machine with a GPU and without network may lack: blake3, orjson and xxhash for Python
# 3.12 on Linux (x86-64), in the versions of constraints.txt, unpacked into .cuda_packages, 4 MB.
# Usage, with network: scripts/prepare_cuda.sh [3.13]    3.13: for that version of Python instead
# Then take the tree with that folder to the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"${PYTHON:-python3}" -m pip download --quiet --dest "$wheels" --no-deps --only-binary :all: \
    --implementation cp --python-version "${1:-3.12}" \
    --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64 \
    $(grep -E '^(blake3|orjson|xxhash)==' constraints.txt)
rm -rf .cuda_packages
for wheel in "$wheels"/*.whl; do
    "${PYTHON:-python3}" -m zipfile -e "$wheel" .cuda_packages
done
du -sh .cuda_packages
