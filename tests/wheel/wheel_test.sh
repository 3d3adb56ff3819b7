#!/usr/bin/env bash
# wheel_test.sh PART SOURCE_DIR: builds the wheel and the sdist (build), uses the wheel in each interpreter that is to be had
# (use) and in a Debian without compilers (clean_root), and builds the sdist as pip does (sdist). Exit status 77, with the
# reason, where something that the part needs is missing.
set -euo pipefail
work=
trap '[[ -z $work ]] || rm -rf "$work"' EXIT
part=$1 source=$2
here=$source/tests/wheel
dist=$source/build/wheel/dist
unset PYTHONPATH WEIGHTCAST_LIBRARY WEIGHTCAST_STATE
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1

skip() {
  echo "skipped: $*"
  exit 77
}

# The wheel that part build made.
wheel() {
  local found=("$dist"/*.whl)
  [[ -f ${found[0]} ]] || skip "there is no wheel: see the test wheel.build"
  echo "${found[0]}"
}

build() {
  rm -rf "$dist"
  PYTHON=/usr/bin/python3 "$source/scripts/python_environment.sh" wheel "$source/scripts/wheel_requirements.txt" --no-deps ||
    skip "auditwheel is not to be had"
  (unset PIP_NO_INDEX && "$source/run" wheel)
}

# interpreter MINOR: a Python of that release that can make virtual environments: the path's, pyenv's or uv's.
interpreter() {
  local found
  for found in "$(command -v "python3.$1" || true)" "${HOME:-}"/.pyenv/versions/3."$1".*/bin/python3 \
    "${HOME:-}"/.local/share/uv/python/cpython-3."$1".*/bin/python3; do
    if "$found" -c 'import ctypes, ensurepip, venv' 2>/dev/null; then
      "$found" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  return 1
}

use() {
  local minor python had=0
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-wheel-XXXXXX")
  wheel >/dev/null
  for minor in 9 10 11 12 13 14; do
    python=$(interpreter "$minor") || { echo "3.$minor: not to be had" && continue; }
    # Nothing else is on the path: no compiler, no other weightcast.
    mkdir -p "$work/$minor/bin"
    ln -s "$python" "$work/$minor/bin/python3"
    echo "3.$minor: $python"
    env -i PATH="$work/$minor/bin" HOME="$work/$minor" TMPDIR="$work/$minor" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 \
      "$work/$minor/bin/python3" -B "$here/use.py" "$(wheel)" "$source"
    had=$((had + 1))
  done
  ((had > 0)) || skip "no interpreter from 3.9 on with venv"
}

# The sdist builds the client library and nothing else, and shows no commands that it does not have.
sdist() {
  local found
  found=("$dist"/weightcast-*.tar.gz)
  [[ -f ${found[0]} ]] || skip "there is no sdist: see the test wheel.build"
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-sdist-XXXXXX")
  /usr/bin/python3 -m venv --system-site-packages "$work/venv"
  PKG_CONFIG_LIBDIR=/nonexistent "$work/venv/bin/pip" install --quiet --no-build-isolation "${found[0]}"
  cd "$work"
  "$work/venv/bin/python" -c '
import importlib.metadata, weightcast
assert importlib.metadata.version("weightcast") == weightcast.library_version(), weightcast.library_version()'
  [[ -z $(ls "$work/venv/bin" | grep weightcast) ]] || { echo "it has commands: $(ls "$work/venv/bin")" >&2; exit 1; }
}

clean_root() {
  local made compiler
  wheel >/dev/null
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-root-XXXXXX")
  made=$("$source/scripts/debian_root.sh" "$work/root" python3 python3-venv 2>&1) || skip "$made"
  for compiler in cc gcc g++ clang cmake; do
    [[ ! -e $work/root/usr/bin/$compiler ]] || { echo "the root has $compiler" >&2; exit 1; }
  done
  mkdir -p "$work/root/try/tests/wheel" "$work/root/try/tests/oracles"
  cp "$(wheel)" "$source/README.md" "$work/root/try"
  cp "$here/use.py" "$work/root/try/tests/wheel"
  cp "$source/tests/oracles/served_model.py" "$work/root/try/tests/oracles"
  # The mounts end with the namespace that they are in.
  unshare --mount --pid --fork sh -c '
    mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" &&
    exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 \
      python3 -B /try/tests/wheel/use.py "/try/$2" /try' sh "$work/root" "$(basename "$(wheel)")"
}

"$part"
