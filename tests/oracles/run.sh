#!/bin/sh
# run.sh [--torch | --directories | --s3 | --sglang] SCRIPT ARGUMENT...: runs a Python script in a virtual environment with Debian's packages, made on first use.
# It has what requirements.txt pins. torch is Debian's (python3-torch), where it is installed: the registry's brings gigabytes
# for GPUs. With --torch the environment has what torch_requirements.txt pins, and the registry's torch 2.11 (scripts/torch).
# With --directories it has what directories_requirements.txt pins, over that.
# With --s3 it has what s3_requirements.txt pins, and nothing else.
# With --sglang it has SGLang and what that needs to be imported (sglang_requirements.txt), over the torch of ../vllm/run.sh.
# Each package of a list comes without what it asks for, and the list names what is needed of that. Exit status 77, with the
# reason, where the environment cannot be made: see scripts/python_environment.sh.
set -eu
here=$(dirname "$(readlink -f "$0")")
name=oracle list=$here/requirements.txt options=--no-deps
if [ "$1" = --torch ]; then
  shift
  name=oracle-torch list=$here/torch_requirements.txt
  found=$("$here/../../scripts/torch_environment.sh" 2.11) || exit $?
  PYTHONPATH=$(dirname "$(echo "$found" | head -n 1)")${PYTHONPATH:+:$PYTHONPATH}
  LD_LIBRARY_PATH=$(echo "$found" | tail -n 1)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
elif [ "$1" = --directories ]; then
  shift
  # SkyRL asks for Python 3.12, which what is used of it does not need.
  environment=$(PYTHON=/usr/bin/python3 "$here/../../scripts/python_environment.sh" oracle-directories \
    "$here/directories_requirements.txt" --no-deps --no-compile --ignore-requires-python) || {
    echo "skipped: what $1 compares with is not to be had"
    exit 77
  }
  PYTHONPATH=$(echo "$environment"/lib/python3*/site-packages)${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONPATH
  exec "$0" --torch "$@"
elif [ "$1" = --s3 ]; then
  shift
  name=oracle-s3 list=$here/s3_requirements.txt
elif [ "$1" = --sglang ]; then
  shift
  name=oracle-sglang list=$here/sglang_requirements.txt
  options="--no-deps --no-compile" # it has thousands of files
  vllm=$("$here/../vllm/run.sh" sh -c 'echo "$WEIGHTCAST_VLLM"') || { echo "$vllm" && exit 77; }
  PYTHONPATH=$(echo "${vllm%/bin/vllm}"/lib/python3*/site-packages)${PYTHONPATH:+:$PYTHONPATH}
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
fi
environment=$(PYTHON=/usr/bin/python3 "$here/../../scripts/python_environment.sh" "$name" "$list" $options) || {
  echo "skipped: what $1 compares with is not to be had"
  exit 77
}
case $name in oracle-torch | oracle-sglang) export PYTHONPATH LD_LIBRARY_PATH ;; esac
exec "$environment/bin/python" -B "$@"
