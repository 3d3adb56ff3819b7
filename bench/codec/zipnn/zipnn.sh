#!/bin/sh
# zipnn.sh FILE DTYPE REPETITIONS: runs zipnn.py in a virtual environment with requirements.txt, made on first use under
# the user's cache directory. Exit status 3, with the reason on stderr, where the environment cannot be made: that takes
# Python with venv, a C compiler and the Python registry.
set -eu
here=$(dirname "$(readlink -f "$0")")
key=$(sha256sum "$here/requirements.txt" | cut -c 1-16)
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/weightcast
environment=$cache/zipnn-$key
if [ ! -e "$environment/ready" ]; then
  mkdir -p "$cache" || exit 3
  exec 9>"$cache/zipnn.lock"
  flock -w 300 9 || { echo "another process has been making $environment for 300 s" >&2; exit 3; }
  if [ ! -e "$environment/ready" ]; then
    rm -rf "$environment"
    # Without its dependencies: they are for tensors of torch, which weigh gigabytes. What packs bytes is a module in C.
    python3 -m venv "$environment" >&2 &&
      timeout 300 "$environment/bin/pip" install --quiet --retries 0 --timeout 15 --no-deps \
        -r "$here/requirements.txt" >&2 &&
      touch "$environment/ready" || { echo "zipnn could not be installed in $environment" >&2; exit 3; }
  fi
  exec 9>&-
fi
exec "$environment/bin/python" "$here/zipnn.py" "$@"
