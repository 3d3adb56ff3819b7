#!/bin/sh
# A bench that fails says why in one line, and ends with status 1.
# Usage: refusal_test.sh WEIGHTCAST_BENCH
said=$("$1" codec --codec nothing 2>&1 >/dev/null)
[ $? -eq 1 ] && [ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] && printf '%s\n' "$said" | grep "'nothing'"
