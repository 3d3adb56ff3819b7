#!/bin/sh
# A bench that fails says why in one line, and ends with status 1.
# Usage: refusal_test.sh WEIGHTCAST_BENCH

# refuses WORD COMMAND...: the line has that word.
refuses() {
  word=$1
  shift
  said=$("$bench" "$@" 2>&1 >/dev/null)
  [ $? -eq 1 ] && [ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] && printf '%s\n' "$said" | grep -- "$word"
}

bench=$1
refuses "'nothing'" codec --cells 1000 --codec nothing && refuses 0.9 listed --size 8MiB --changed 0.9 &&
  refuses "'none'" packed --content none
