#!/bin/sh
# zipnn.sh FILE DTYPE REPETITIONS: runs zipnn.py in a virtual environment with requirements.txt. Exit status 3, with the
# reason on stderr, where the environment cannot be made: see scripts/python_environment.sh.
set -eu
here=$(dirname "$(readlink -f "$0")")
# Without its dependencies: they are for tensors of torch, which weigh gigabytes. What packs bytes is a module in C.
environment=$("$here/../../../scripts/python_environment.sh" zipnn "$here/requirements.txt" --no-deps) || exit 3
exec "$environment/bin/python" "$here/zipnn.py" "$@"
