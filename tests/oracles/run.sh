#!/bin/sh
# run.sh SCRIPT ARGUMENT...: runs a Python script in the virtual environment that has requirements.txt and Debian's
# packages. torch is Debian's (python3-torch), where it is installed: the registry's brings gigabytes for GPUs. So each
# package of the list comes without what it asks for, and the list names what is needed of that. Exit status 77, with the
# reason, where the environment cannot be made: see scripts/python_environment.sh.
set -eu
here=$(dirname "$(readlink -f "$0")")
environment=$(PYTHON=/usr/bin/python3 "$here/../../scripts/python_environment.sh" oracle "$here/requirements.txt" --no-deps) || {
  echo "skipped: what $1 compares with is not to be had"
  exit 77
}
exec "$environment/bin/python" -B "$@"
