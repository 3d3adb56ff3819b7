#!/usr/bin/env bash
# deb_test.sh PART SOURCE_DIR: builds the Debian packages (build), and installs, upgrades and removes them in a Debian that
# has nothing else (clean_root), with daemons that run all the while. Exit status 77, with the reason, where something that
# the part needs is missing.
set -euo pipefail
part=$1 source=$2
here=$source/tests/deb packages=$source/build/deb
work=
trap '[[ -z $work ]] || rm -rf "$work"' EXIT

skip() {
  echo "skipped: $*"
  exit 77
}

# Two releases of one version: an upgrade goes from one to the other.
build() {
  local release
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-deb-XXXXXX")
  for release in 2 1; do
    "$source/run" deb $release
    cp "$packages"/*.deb "$work"
  done
  cp "$work"/*.deb "$packages"
  for name in weightcast weightcast-train libweightcast0 libweightcast-dev python3-weightcast; do
    for release in 1 2; do
      ls "$packages/${name}_"*"-${release}_"*.deb >/dev/null || { echo "there is no package $name, release $release" >&2; exit 1; }
    done
  done
}

clean_root() {
  local made
  ls "$packages"/weightcast_*-2_*.deb >/dev/null 2>&1 || skip "there are no packages: see the test deb.build"
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-root-XXXXXX")
  made=$("$source/scripts/debian_root.sh" "$work/root" python3 2>&1) || skip "$made"
  mkdir -p "$work/root/try"
  cp "$packages"/*.deb "$here/use.sh" "$work/root/try"
  # apt reaches its mirror in the root as it does here.
  cp -r /etc/apt/apt.conf.d/. "$work/root/etc/apt/apt.conf.d/"
  cp /etc/resolv.conf "$work/root/etc/resolv.conf" 2>/dev/null || true
  # The mounts and the processes end with the namespace that they are in.
  unshare --mount --pid --fork sh -c '
    mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" && exec chroot "$1" /bin/bash /try/use.sh' sh "$work/root"
}

"$part"
