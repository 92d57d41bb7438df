# Sourced by the other scripts: creates .venv with this project and puts it first on PATH.
# Usage: . scripts/environment.sh [EXTRAS]    for example  . scripts/environment.sh '[dev]'

find_python() {
    for name in python3.13 python3.12 python3.11 python3 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "Error: no Python 3.11 or newer on PATH" >&2
    return 1
}

install_project() {
    # Installed once for each state of the files that say what to install.
    local stamp
    stamp=".venv/installed-$(cat pyproject.toml constraints.txt | cksum | tr ' ' '-')-"
    [ -e "$stamp$1" ] || [ -e "$stamp[dev]" ] && return # [dev] has all that scripts ask for
    [ -x .venv/bin/python ] || "$(find_python)" -m venv .venv
    echo "installing seqpack$1 into .venv" >&2
    .venv/bin/python -m pip install --quiet --constraint constraints.txt --editable ".$1"
    touch "$stamp$1"
}

install_project "${1:-}"
PATH="$PWD/.venv/bin:$PATH"
export PATH
