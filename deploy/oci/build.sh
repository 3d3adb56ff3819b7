#!/usr/bin/env bash
# build.sh PACKAGES OUT [BASE]: builds the image of ./Containerfile with the package weightcast in the directory PACKAGES, and
# writes OUT/weightcast.tar, an OCI archive that podman, skopeo and containerd load. BASE is a Debian 12 image: without it
# debootstrap makes one, from the mirror that apt uses here, and no registry is asked. Takes root, buildah and debootstrap.
# All that it keeps lies in OUT; the Debian of the first time is used again.
set -euo pipefail
packages=$(readlink -f "$1") here=$(dirname "$(readlink -f "$0")")
mkdir -p "$2"
out=$(readlink -f "$2") base=${3:-localhost/debian:12}
work=$(mktemp -d "$out/work-XXXXXX")
trap 'rm -rf "$work"' EXIT

# Overlays do not stack: in a container without a disk of its own, layers are copied.
driver=overlay
[[ $(stat --file-system --format %T "$out") != overlayfs ]] || driver=vfs
buildah() { command buildah --root "$out/storage" --runroot "$out/run" --storage-driver $driver "$@"; }

debian() {
  local mirror container
  "$here/../../scripts/debian_root.sh" "$work/root" || return 1
  mirror=$(awk '{ sub("/+$", "", $2); print $2; exit }' "$work/root/etc/apt/sources.list")
  printf 'deb %s %s main\n' "$mirror" bookworm "$mirror" bookworm-updates "${mirror%/debian}/debian-security" bookworm-security \
    >"$work/root/etc/apt/sources.list"
  rm -rf "$work/root"/var/cache/apt/* "$work/root"/var/lib/apt/lists/* "$work/root"/var/log/*.log
  tar --one-file-system -C "$work/root" -cf "$work/root.tar" .
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$work/root.tar" / >/dev/null
  buildah commit --quiet --rm "$container" "$base" >/dev/null
}

(($# > 2)) || buildah inspect --type image "$base" >/dev/null 2>&1 || debian
# apt reaches its mirror in the image as it does here.
buildah build --quiet --format docker --isolation chroot --network host --volume /etc/apt/apt.conf.d:/etc/apt/apt.conf.d:ro \
  --build-arg "BASE=$base" --file "$here/Containerfile" --tag localhost/weightcast "$packages" >"$work/log" 2>&1 || {
  tail -n 5 "$work/log" >&2
  exit 1
}
rm -f "$out/weightcast.tar"
buildah push --quiet --format oci localhost/weightcast "oci-archive:$out/weightcast.tar:weightcast"
