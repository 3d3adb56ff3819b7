# shellcheck shell=bash
# Makes the Debian packages. Read by ./run. scripts/cmake/Packages.cmake says what is in each.

cmd_deb() {
  local release=${1:-1} out=$PWD/build/deb package
  [[ $release =~ ^[0-9]+$ ]] || die "deb: the release is a number, and '$release' is none"
  install_packages "${packages_build[@]}" "${packages_deb[@]}"
  build release weightcast weightcast-engine weightcast-train weightcast_shared || die "deb: could not be built"
  rm -rf "$out"
  mkdir -p "$out"
  cmake -D "CPACK_DEBIAN_PACKAGE_RELEASE=$release" build/release >"$out/log" || die "deb: $(tail -n 5 "$out/log")"
  cpack --config build/release/CPackConfig.cmake -B "$out" >>"$out/log" 2>&1 || die "deb: $(tail -n 5 "$out/log")"
  rm -rf "$out/_CPack_Packages"
  for package in "$out"/*.deb; do say "$(stat -c %s "$package") bytes: $package"; done
}
