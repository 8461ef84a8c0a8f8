# Sourced by the commands in this folder. Afterwards $root is the checkout, $venv the virtual environment and
# $python its interpreter; install_extras puts the package into it, once per change of pyproject.toml.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${LUCID_VENV:-$root/.venv}
python=$venv/bin/python

fail() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# The first interpreter on PATH that is new enough; $PYTHON goes first.
find_python() {
    local name seen=
    for name in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
        command -v "$name" >/dev/null 2>&1 || continue
        is_new_enough "$name" && { command -v "$name"; return; }
        seen="$seen $name ($("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo broken))"
    done
    fail "needs Python 3.11 or newer on PATH${seen:+; found only$seen}. Install one, or name it: PYTHON=/path/to/python3.11 $0"
}

make_venv() {
    is_new_enough "$python" && "$python" -m pip --version >/dev/null 2>&1 && return
    local base
    base=$(find_python) || exit 1
    "$base" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$base has no working venv module. On Debian and Ubuntu: apt install python3-venv"
    echo "making ${venv/#"$root"\//} with $("$base" --version)"
    "$base" -m venv --clear "$venv" || fail "$base -m venv $venv failed (message above)"
}

# install_extras EXTRA...: the package, editable, with these extras; nothing where the stamp says it is done.
install_extras() {
    local names stamp now
    make_venv
    names=$(IFS=,; echo "$*")
    stamp=$venv/.installed-$names
    now="$root $(cksum <"$root/pyproject.toml")"
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$now" ] && return
    echo "installing lucid-autograd[$names] into ${venv/#"$root"\//}"
    # From within the checkout: a path with spaces or brackets would not survive in "PATH[extras]".
    (cd "$root" && "$python" -m pip install --quiet --disable-pip-version-check --editable ".[$names]") || return
    printf '%s\n' "$now" >"$stamp"
}
