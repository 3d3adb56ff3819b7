#!/bin/sh
# torch_environment.sh VERSION: prints the directory of the LibTorch with CUDA that torch/VERSION.txt pins, in a virtual
# environment made on first use; then, as LD_LIBRARY_PATH, where the libraries lie that it takes. It takes those that come with
# nvcc from there: the list has the others. Exit status 77, with the reason on stderr, where there is no nvcc, or no such
# environment can be made (python_environment.sh).
set -eu
here=$(dirname "$(readlink -f "$0")")
list=$here/torch/$1.txt
[ -f "$list" ] || { echo "no LibTorch $1 is pinned: there are $(cd "$here/torch" && echo *.txt | sed 's/\.txt//g')" >&2; exit 2; }
compiler=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || {
  echo "skipped: no nvcc, whose toolkit LibTorch takes" >&2
  exit 77
}
environment=$(PYTHON=/usr/bin/python3 TIME_MAX_S=900 "$here/python_environment.sh" torch "$list" --no-deps) || {
  echo "skipped: the LibTorch of $list is not to be had" >&2
  exit 77
}
packages=$(echo "$environment"/lib/python3*/site-packages)
# nvcc may be a script, which calls the one of the toolkit.
toolkit=$("$compiler" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
echo "$packages/torch"
echo "$packages/torch/lib:$(find "$packages/nvidia" -name lib -type d | paste -sd:):$(readlink -f "$toolkit/lib64")"
