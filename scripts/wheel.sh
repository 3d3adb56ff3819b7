# shellcheck shell=bash
# Makes the sdist and the wheel of the Python package. Read by ./run.

# What the wheel may ask of a system. glibc 2.34 is that of RHEL 9, Ubuntu 22.04, Debian 12 and newer ones.
wheel_platform=manylinux_2_34_x86_64
wheel_mib_max=25

cmd_wheel() {
  (($# == 0)) || die "wheel: it takes no arguments"
  install_packages "${packages_build[@]}"
  local out=$PWD/build/wheel tools component
  tools=$(PYTHON=/usr/bin/python3 scripts/python_environment.sh wheel scripts/wheel_requirements.txt --no-deps) ||
    die "wheel: auditwheel is not to be had; it comes from the Python registry on first use"
  build wheel weightcast weightcast-worker weightcast_shared || die "wheel: could not be built"

  local installed=$out/installed package=$out/package dist=$out/dist made=$out/made
  rm -rf "$installed" "$package" "$dist" "$made"
  mkdir -p "$installed" "$package" "$dist" "$made"
  for component in programs library; do
    cmake --install "$out" --component $component --strip --prefix "$installed"
  done >"$out/install.log"
  licences_of "$out" "$installed/licenses"

  say "packing"
  # The wheel is made of what the sdist holds, so that neither lacks a file of the package.
  (cd python && /usr/bin/python3 setup.py -q egg_info --egg-base "$made" sdist --dist-dir "$dist") >"$out/sdist.log" 2>&1 ||
    die "wheel: no sdist: $(cat "$out/sdist.log")"
  tar -xzf "$dist"/weightcast-*.tar.gz -C "$package" --strip-components 1
  WEIGHTCAST_INSTALLED=$installed /usr/bin/python3 -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps \
    --no-build-isolation --wheel-dir "$made" "$package"
  PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --plat "$wheel_platform" --only-plat --wheel-dir "$dist" "$made"/*.whl \
    >"$out/audit.log" 2>&1 || die "wheel: it does not run on $wheel_platform: $(cat "$out/audit.log")"
  check_wheel "$dist"/*.whl "$installed"
}

# check_wheel WHEEL INSTALLED: the bounds that auditwheel does not know.
check_wheel() {
  local wheel=$1 installed=$2 file needed
  # auditwheel lets libstdc++ be the system's. A second one in the process, or an old one, is what linking it in avoids.
  for file in "$installed"/bin/* "$installed"/lib/*.so.*; do
    needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libgcc_s|ld-linux-x86-64)\.so\.' || true)
    [[ -z $needed ]] || die "wheel: ${file##*/} needs $(echo $needed), which a system may lack: link it statically"
  done
  if /usr/bin/python3 -m zipfile -l "$wheel" | grep -q "\.libs/"; then die "wheel: auditwheel has added a library: link it statically"; fi
  (($(stat -c %s "$wheel") <= wheel_mib_max << 20)) || die "wheel: $wheel is larger than $wheel_mib_max MiB"
  say "$(stat -c %s "$wheel") bytes: $wheel"
}

# licences_of BUILD DIRECTORY: the terms of each Debian package whose headers, archives or scripts the programs were made of, with its
# version, and the texts of the licences that they name. Of the C library and the kernel only the interface is used.
licences_of() {
  local build=$1 directory=$2 package
  mkdir -p "$directory"
  {
    ninja -C "$build" -t deps | sed -n 's,^ *\(/usr/.*\),\1,p'
    ninja -C "$build" -t commands weightcast weightcast-worker weightcast_shared | grep -oE '/usr/[^ ]+\.a\b'
    "${CXX:-c++}" -print-file-name=libstdc++.a
    sed -n 's/^WEIGHTCAST_D3:FILEPATH=//p' "$build/CMakeCache.txt"
  } | sort -u | xargs -d '\n' realpath | sort -u | xargs -d '\n' dpkg-query -S |
    sed 's/: .*//; s/:.*//' | sort -u | grep -vxE 'libc6-dev|linux-libc-dev' >"$directory/packages.txt"
  while read -r package; do
    cp -L "/usr/share/doc/$package/copyright" "$directory/$package.txt" || die "wheel: the licence of $package is missing"
  done <"$directory/packages.txt"
  grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$directory"/*.txt | sort -u | while read -r file; do
    cp -L "$file" "$directory/"
  done
  xargs dpkg-query -W -f '${Package} ${Version}\n' <"$directory/packages.txt" >"$directory/versions.txt"
  mv "$directory/versions.txt" "$directory/packages.txt"
}
