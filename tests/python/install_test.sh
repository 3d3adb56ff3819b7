#!/usr/bin/env bash
# Installs the package as a user does, into a fresh virtual environment, but from Debian's packages alone; then runs the
# examples with it. Usage: install_test.sh SOURCE_DIR. Exit status 77 where pip or setuptools is missing.
set -euo pipefail
source=$1
work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-pip-XXXXXX")
daemon=
end() {
  [[ -z $daemon ]] || kill "$daemon" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT
# The installed package finds its own library. The result of this test is its exit status.
unset WEIGHTCAST_LIBRARY WEIGHTCAST_TEST_RESULTS PYTHONPATH

/usr/bin/python3 -c 'import ensurepip, setuptools, wheel' || {
  echo "skipped: the packages are python3-venv, python3-setuptools, python3-wheel and python3-pip"
  exit 77
}
# A copy, since pip builds beside the sources: without what git does not track.
mkdir "$work/source"
git -C "$source" ls-files -z --cached --others --exclude-standard | tar -C "$source" --null -cf - -T - | tar -C "$work/source" -xf -
# What was compiled in another such directory serves here, too.
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
# The client library alone is built: nothing that pkg-config finds is looked for, such as libuv, and what another compiler
# warns of is no error.
export PKG_CONFIG_LIBDIR=/nonexistent CXXFLAGS=-Wpadded
/usr/bin/python3 -m venv --system-site-packages "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-build-isolation "$work/source/python"
rm -rf "$work/source"

cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import pathlib, weightcast
here = pathlib.Path(weightcast.__file__).parent
assert "site-packages" in str(here), here
assert (here / "py.typed").exists() and (here / "libweightcast.so.0").exists(), list(here.iterdir())
import importlib.metadata
for group in ("vllm.general_plugins", "vllm.endpoint_plugins"):
    (point,) = [one for one in importlib.metadata.distribution("weightcast").entry_points if one.group == group]
    assert callable(point.load()), point  # vLLM itself is imported later
assert importlib.metadata.version("weightcast") == weightcast.library_version(), weightcast.library_version()
PYTHON

"$WEIGHTCAST_PROGRAM" daemon --role origin --state "$work/state" --listen 127.0.0.1:0 --insecure >"$work/daemon.log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
  "$WEIGHTCAST_PROGRAM" status --state "$work/state" >/dev/null 2>&1 && break
  sleep 0.1
done
said=$("$work/venv/bin/python" "$source/examples/publish.py" "$work/state")
[[ $said == *"published version 3"* ]] || { echo "publish.py said: $said" >&2; exit 1; }
said=$("$work/venv/bin/python" "$source/examples/subscribe.py" "$work/state" 1)
[[ $said == "version 3: 2 tensors"* ]] || { echo "subscribe.py said: $said" >&2; exit 1; }
