#!/bin/sh
# python_environment.sh NAME REQUIREMENTS [OPTION...]: prints the path of a virtual environment that holds what the file
# REQUIREMENTS pins, made on first use under the user's cache directory, with the system's packages beside it. OPTIONs are
# pip's. $PYTHON is the interpreter, python3 without it; $TIME_MAX_S bounds the installation, 300 without it. Exit status 3,
# with the reason on stderr, where it cannot be made: that takes Python with venv, and the Python registry; for some packages a
# C compiler and Python's headers.
set -eu
name=$1 requirements=$2
shift 2
limit=${TIME_MAX_S:-300}
key=$(sha256sum "$requirements" | cut -c 1-16)
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/weightcast
environment=$cache/$name-$key
if [ ! -e "$environment/ready" ]; then
  mkdir -p "$cache" || exit 3
  exec 9>"$cache/$name.lock"
  flock -w "$limit" 9 || { echo "another process has been making $environment for $limit s" >&2; exit 3; }
  if [ ! -e "$environment/ready" ]; then
    rm -rf "$environment"
    "${PYTHON:-python3}" -m venv --system-site-packages "$environment" >&2 &&
      timeout "$limit" "$environment/bin/pip" install --quiet --retries 0 --timeout 15 "$@" -r "$requirements" >&2 &&
      touch "$environment/ready" || { echo "$name could not be installed in $environment" >&2; exit 3; }
  fi
  exec 9>&-
fi
echo "$environment"
