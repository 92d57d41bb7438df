#!/usr/bin/env bash
# Make the environment if needed and run the tests; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh '[dev]'
exec python -m pytest "$@"
