#!/bin/sh
# oracle.sh FILE...: runs these unittest files by run_tests.py in a virtual environment with requirements.txt. torch is
# Debian's (python3-torch), where it is installed: the registry's brings gigabytes for GPUs. Exit status 77, with the
# reason, where the environment cannot be made: see scripts/python_environment.sh.
set -eu
here=$(dirname "$(readlink -f "$0")")
environment=$(PYTHON=/usr/bin/python3 "$here/../../scripts/python_environment.sh" oracle "$here/requirements.txt") || {
  echo "skipped: the safetensors package is not to be had"
  exit 77
}
exec "$environment/bin/python" "$here/run_tests.py" "$@"
