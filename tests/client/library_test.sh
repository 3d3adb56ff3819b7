#!/usr/bin/env bash
# What the shared library shows and needs. Usage: library_test.sh LIBRARY
set -euo pipefail
library=$1
here=$(dirname "$(readlink -f "$0")")
failed=0

# One who adds a function adds it here; one that goes, or changes, breaks programs that are installed.
if ! diff -u "$here/exported_symbols.txt" <(nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | LC_ALL=C sort); then
  echo "the exported symbols are not those of exported_symbols.txt" >&2
  failed=1
fi

# It loads beside any other library: of a process's own C++ library, protobuf or fmt it uses nothing. The unwinder is the
# process's, so that an exception may pass whatever has its own frames.
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libc.so.* | libm.so.* | libpthread.so.* | ld-linux*.so.* | libgcc_s.so.*) ;;
    *)
      echo "the library needs $name" >&2
      failed=1
      ;;
  esac
done
[[ -n $needed ]] || { echo "readelf said nothing of $library" >&2; failed=1; }

# What the wheel promises to run on: glibc 2.34.
newest=$(objdump -T "$library" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
[[ $(printf 'GLIBC_2.34\n%s\n' "$newest" | sort -V | tail -n 1) == GLIBC_2.34 ]] || {
  echo "the library needs $newest: $(objdump -T "$library" | grep -F "$newest")" >&2
  failed=1
}

readelf -d "$library" | grep -q 'SONAME.*\[libweightcast\.so\.0\]' || { echo "not libweightcast.so.0" >&2; failed=1; }
exit $failed
