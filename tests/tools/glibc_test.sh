#!/usr/bin/env bash
# What the programs that the wheel holds ask of a system: glibc 2.34. Usage: glibc_test.sh PROGRAM...
set -euo pipefail
failed=0
for program in "$@"; do
  symbols=$(objdump -T "$program")
  newest=$(grep -oE '\bGLIBC_[0-9.]+' <<<"$symbols" | sort -uV | tail -n 1)
  [[ -n $newest ]] || { echo "objdump said nothing of $program" >&2; failed=1; }
  [[ $(printf 'GLIBC_2.34\n%s\n' "$newest" | sort -V | tail -n 1) == GLIBC_2.34 ]] || {
    echo "$program needs $newest: $(grep -F "$newest" <<<"$symbols")" >&2
    failed=1
  }
  # Here the C++ library is the system's; the wheel links it in, and with it what this asks of glibc.
  ! grep -q '_ZNSt13random_device' <<<"$symbols" || {
    echo "$program uses std::random_device, for which Debian 12's C++ library needs glibc 2.36: use base/entropy.h" >&2
    failed=1
  }
done
exit $failed
