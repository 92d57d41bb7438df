#!/usr/bin/env bash
# Run all that needs a GPU, part by part, from the source tree, without installing anything.
# Usage: scripts/cuda.sh FOLDER [--device cpu] [--part NAME]... [--minutes N]    --list shows the parts
# It needs Python 3.11 or newer with torch, numpy, click, tqdm, tokenizers, safetensors and pytest,
# no network, and blake3, fastokens, orjson and xxhash or what scripts/prepare_cuda.sh fetched.
# Writes FOLDER/cuda.json after each command; a part that did not need its time leaves it to the next.
# PYTHON=python3.12 in front chooses the Python, COMMIT=... names the commit of a tree without git.
set -euo pipefail
folder="$PWD"
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
if ! version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); then
    echo "Error: PYTHON=$python does not run" >&2
    exit 1
fi
if ! "$python" -c 'import blake3, fastokens, orjson, xxhash' 2>/dev/null; then
    export PYTHONPATH="$PYTHONPATH:$PWD/.cuda_packages"
    if ! "$python" -c 'import blake3, fastokens, orjson, xxhash' 2>/dev/null; then
        echo "Error: $python lacks blake3, fastokens, orjson or xxhash, and .cuda_packages has none for Python $version" >&2
        echo "hint: run scripts/prepare_cuda.sh $version where there is network, and copy .cuda_packages" >&2
        exit 1
    fi
fi
exec "$python" scripts/cuda_report.py --from "$folder" "$@"
