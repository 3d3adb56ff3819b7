# shellcheck shell=bash
# Makes the OCI image. Read by ./run. deploy/oci/Containerfile says what is in it.

cmd_image() {
  ((EUID == 0)) || die "image: debootstrap and buildah take root"
  cmd_deb
  install_packages "${packages_image[@]}"
  deploy/oci/build.sh build/deb build/image "$@" || die "image: could not be built"
  say "$(stat -c %s build/image/weightcast.tar) bytes: $PWD/build/image/weightcast.tar"
}
