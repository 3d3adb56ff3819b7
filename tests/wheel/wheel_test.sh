#!/usr/bin/env bash
# wheel_test.sh PART SOURCE_DIR [TORCH]: builds the wheel and the sdist (build), uses the wheel in each interpreter that is to be had
# (use) and in a Debian without compilers (clean_root), and builds the sdist as pip does (sdist). Of the learner's wheel:
# build_train, for the release TORCH, and use_train, which is in the Debian without compilers, too, where that can be made. Exit
# status 77, with the reason, where something that the part needs is missing.
set -euo pipefail
work=
trap '[[ -z $work ]] || rm -rf "$work"' EXIT
part=$1 source=$2 torch=${3:-}
here=$source/tests/wheel
dist=$source/build/wheel/dist
unset PYTHONPATH WEIGHTCAST_LIBRARY WEIGHTCAST_STATE
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1

skip() {
  echo "skipped: $*"
  exit 77
}

# The wheel that part build made; with an argument the one of build_train.
wheel() {
  local found=("$dist"/weightcast"${1:-}"-*.whl)
  [[ -f ${found[0]} ]] || skip "there is no wheel: see the test wheel.build${1:-}"
  echo "${found[0]}"
}

build() {
  PYTHON=/usr/bin/python3 "$source/scripts/python_environment.sh" wheel "$source/scripts/wheel_requirements.txt" --no-deps ||
    skip "auditwheel is not to be had"
  (unset PIP_NO_INDEX && "$source/run" wheel daemons)
}

build_train() {
  rm -f "$dist"/weightcast_train-*
  (unset PIP_NO_INDEX && "$source/run" wheel train $torch)
  wheel _train >/dev/null
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

# make_root DIRECTORY: a Debian with Python and without compilers.
make_root() {
  local root=$1 made compiler
  made=$("$source/scripts/debian_root.sh" "$root" python3 python3-venv 2>&1) || skip "$made"
  for compiler in cc gcc g++ clang cmake; do
    [[ ! -e $root/usr/bin/$compiler ]] || { echo "the root has $compiler" >&2; exit 1; }
  done
}

# in_root ROOT DIRECTORIES COMMAND...: with a few DIRECTORIES of this host, separated by colons, at the same paths.
in_root() {
  # The mounts end with the namespace that they are in.
  unshare --mount --pid --fork sh -c '
    root=$1 directories=$2 && shift 2
    mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/dev/shm" || exit 1
    IFS=:
    for directory in $directories; do
      mkdir -p "$root$directory" && mount --bind -o ro "$directory" "$root$directory" || exit 1
    done
    exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 "$@"' sh "$@"
}

clean_root() {
  wheel >/dev/null
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-root-XXXXXX")
  make_root "$work/root"
  mkdir -p "$work/root/try/tests/wheel" "$work/root/try/tests/oracles"
  cp "$(wheel)" "$source/README.md" "$work/root/try"
  cp "$here/use.py" "$work/root/try/tests/wheel"
  cp "$source/tests/oracles/served_model.py" "$work/root/try/tests/oracles"
  in_root "$work/root" "" python3 -B /try/tests/wheel/use.py "/try/$(basename "$(wheel)")" /try
}

# The registry's torch for Linux is the one with CUDA. It is not installed anew, since it has gigabytes: the new environments
# see the one that the wheel was built against, and CUDA's libraries where CUDA's compiler has them.
use_train() {
  local release found site libraries made=0 logits=$source/tests/trainer/model/golden/hf_models.jsonl
  wheel _train >/dev/null
  # "torch (==2.13.0)" is the release 2.13 of scripts/torch.
  release=$(/usr/bin/python3 -c '
import email, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    print(email.message_from_bytes(wheel.read(name))["Requires-Dist"])' "$(wheel _train)" | grep -oE '[0-9]+\.[0-9]+' | head -n 1)
  found=$("$source/scripts/torch_environment.sh" "$release") || exit $?
  site=$(dirname "$(echo "$found" | head -n 1)") libraries=$(echo "$found" | tail -n 1)
  libraries=${libraries##*:}
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-train-XXXXXX")
  mkdir -p "$work/host/bin" "$work/root/try"
  ln -s /usr/bin/python3 "$work/host/bin/python3"
  cp "$here/use_train.py" "$source/tests/oracles/served_model.py" "$work/root/try"
  env -i PATH="$work/host/bin" HOME="$work/host" TMPDIR="$work/host" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 \
    "$work/host/bin/python3" -B "$work/root/try/use_train.py" "$(wheel _train)" "$site" "$libraries" "$logits"
  (make_root "$work/root") || made=$?
  ((made != 77)) || { echo "not tried in a Debian without compilers" && return; }
  ((made == 0)) || exit "$made"
  cp "$(wheel _train)" "$logits" "$work/root/try"
  in_root "$work/root" "$site:$libraries" python3 -B /try/use_train.py "/try/$(basename "$(wheel _train)")" "$site" "$libraries" \
    "/try/${logits##*/}"
}

"$part"
