#!/usr/bin/env bash
# The benches are a component of their own: an installation has them only where they are asked for by name.
# Usage: install_test.sh BUILD_DIR
set -euo pipefail
build=$1
work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-bench-install-XXXXXX")
trap 'rm -rf "$work"' EXIT

rules=$build/bench/cmake_install.cmake
cmake -DCMAKE_INSTALL_PREFIX="$work/node" -P "$rules" >"$work/log"
if [[ -n $(find "$work/node" -type f 2>/dev/null) ]]; then
  echo "an installation without --component has a bench:" >&2
  find "$work/node" -type f >&2
  exit 1
fi
cmake -DCMAKE_INSTALL_PREFIX="$work/benches" -DCMAKE_INSTALL_COMPONENT=bench -P "$rules" >>"$work/log"
installed=$(cd "$work/benches" && find . -type f | sort | tr '\n' ' ')
if [[ $installed != "./bin/weightcast-bench ./bin/weightcast-bench-sokoban " ]]; then
  echo "the component bench is: $installed" >&2
  exit 1
fi
"$work/benches/bin/weightcast-bench" --help | grep -q broadcast
