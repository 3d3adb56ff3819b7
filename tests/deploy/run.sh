#!/bin/sh
# run.sh [--skypilot] SCRIPT ARGUMENT...: runs a Python script in a virtual environment that has Helm and Kubernetes' schemas, as
# requirements.txt pins them, or SkyPilot, as skypilot_requirements.txt does. Exit status 77, with the reason, where the Python
# registry is not reached: see scripts/python_environment.sh.
set -eu
here=$(dirname "$(readlink -f "$0")")
name=deploy list=$here/requirements.txt
if [ "$1" = --skypilot ]; then
  shift
  name=skypilot list=$here/skypilot_requirements.txt
fi
environment=$(PYTHON=/usr/bin/python3 "$here/../../scripts/python_environment.sh" $name "$list" --no-deps) || {
  echo "skipped: what $1 takes from the Python registry is not to be had"
  exit 77
}
exec "$environment/bin/python" -B "$@"
