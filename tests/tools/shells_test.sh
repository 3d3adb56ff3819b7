#!/usr/bin/env bash
# shells_test.sh PROGRAM...: each program's completions, by the shells that are here, and its page, by groff.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

# offered PROGRAM WORD...: what bash offers for the last word, in one line.
offered() {
  bash --norc -c '
    compopt() { COMPREPLY+=(FILES); }  # only readline has the real one
    source "$1"; shift
    function_name=$(complete -p "$1" | sed "s/.* -F \([^ ]*\) .*/\1/")
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    "$function_name"
    printf "%s " "${COMPREPLY[@]}"' bash "$scratch/bash" "$@"
}
expect() {  # expect WHAT WORD...
  local what=$1 got
  shift
  got=$(offered "$@")
  [[ " $got" == *" $what "* ]] || fail "'$*' offers '$got', which lacks '$what'"
}

for program; do
  name=${program##*/}
  for shell in bash zsh fish; do "$program" completion $shell >"$scratch/$shell"; done
  if "$program" completion tcsh 2>/dev/null; then fail "$name knows a shell that it does not know"; fi
  expect --version "$name" --v
  expect completion "$name" comp
  case $name in
    weightcast)
      expect daemon "$name" da
      expect --keep "$name" daemon --ke
      expect never "$name" daemon --pack n
      expect FILES "$name" daemon --state /
      expect issue "$name" keys iss
      expect FILES "$name" publish /
      ;;
    weightcast-engine) expect --listen "$name" serve model --lis ;;
    weightcast-train) expect plan "$name" pl ;;
  esac
  if command -v zsh >/dev/null; then zsh -n "$scratch/zsh" || fail "zsh does not read what $name prints"; fi
  if command -v fish >/dev/null; then fish -n "$scratch/fish" || fail "fish does not read what $name prints"; fi

  "$program" --man-page >"$scratch/page"
  head -c 4 "$scratch/page" | grep -qx '.TH ' || fail "$name has no page"
  if command -v groff >/dev/null; then
    groff -man -ww -z -Tutf8 "$scratch/page" 2>"$scratch/errors" || true
    [[ ! -s $scratch/errors ]] || fail "groff does not like the page of $name: $(cat "$scratch/errors")"
  fi
done
