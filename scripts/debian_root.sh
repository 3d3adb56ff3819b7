#!/usr/bin/env bash
# debian_root.sh DIR [PACKAGE...]: makes the new directory DIR a Debian 12 with the least that there is and the PACKAGEs, from
# the mirror that apt uses here, which DIR's /etc/apt/sources.list names. Takes root and debootstrap. Where it fails, it says why
# on standard error.
set -euo pipefail
fail() {
  echo "$*" >&2
  exit 1
}

root=$1
shift
((EUID == 0)) || fail "debootstrap takes root"
command -v debootstrap >/dev/null || fail "debootstrap is not installed"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
[[ -n $mirror ]] || fail "apt knows no mirror of Debian 12: name one in /etc/apt/sources.list"
packages=$(IFS=,; echo "$*")
# What debootstrap mounts ends with its namespace.
log=$(unshare --mount debootstrap --variant=minbase ${packages:+"--include=$packages"} bookworm "$root" "$mirror" 2>&1) ||
  fail "debootstrap made no root: $(tail -n 3 <<<"$log")"
