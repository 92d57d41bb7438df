# Sourced by the other scripts: makes an environment with this project in it, puts it first on PATH.
# Usage: . scripts/environment.sh [EXTRAS]    for example  . scripts/environment.sh '[dev]'
# The environment is .venv, or with PYTHON=python3.13 in front of a script .venv-3.13: one for each
# version, so that none replaces another. Without PYTHON it is python3, or a newer one if that is old.

FIND_PACKAGES='import sysconfig; print(sysconfig.get_path("purelib"))'
FIND_TORCH='import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])'

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local name found
    if [ -n "${PYTHON:-}" ]; then
        if ! found=$("$PYTHON" -c 'import platform; print(platform.python_version())' 2>/dev/null); then
            echo "Error: PYTHON=$PYTHON does not run" >&2
            return 1
        elif ! is_new_enough "$PYTHON"; then
            echo "Error: PYTHON=$PYTHON is Python $found, expected 3.11 or newer" >&2
            return 1
        fi
        echo "$PYTHON"
        return
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if is_new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    echo "Error: no Python 3.11 or newer on PATH" >&2
    return 1
}

find_environment() {
    if [ -z "${PYTHON:-}" ]; then
        echo .venv
    else
        "$PYTHON" -c 'import sys; print(".venv-%d.%d" % sys.version_info[:2])'
    fi
}

install_project() {
    # Installed once for each state of the files that say what to install.
    local stamp found constraints=constraints.txt
    stamp="$environment/installed-$(cat pyproject.toml constraints.txt | cksum | tr ' ' '-')-"
    [ -e "$stamp$1" ] || [ -e "$stamp[dev]" ] && return # [dev] has all that scripts ask for
    [ -x "$environment/bin/python" ] || "$python" -m venv "$environment"
    if [ "$1" != '[dev]' ] && found=$("$python" -c "$FIND_TORCH" 2>/dev/null); then
        # It fits this machine's GPU, and another one is gigabytes to fetch.
        echo "using the torch in $found" >&2
        echo "$found" >"$("$environment/bin/python" -c "$FIND_PACKAGES")/torch_here.pth"
        constraints="$environment/constraints.txt"
        grep -v '^torch==' constraints.txt >"$constraints"
    fi
    echo "installing seqpack$1 into $environment" >&2
    "$environment/bin/python" -m pip install --quiet --constraint "$constraints" --editable ".$1"
    touch "$stamp$1"
}

python=$(find_python)
environment=$(find_environment)
install_project "${1:-}"
PATH="$PWD/$environment/bin:$PATH"
export PATH
