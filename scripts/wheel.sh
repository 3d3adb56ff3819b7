# shellcheck shell=bash
# Makes the wheels: of the Python package with the daemons' programs, with its sdist, and of the learner. Read by ./run.

# What a wheel may ask of a system. glibc 2.34 is that of RHEL 9, Ubuntu 22.04, Debian 12 and newer ones.
wheel_platform=manylinux_2_34_x86_64
wheel_mib_max=25
# The torch that the learner's wheel is built against where no other is named, and so the one that it runs with: vLLM's.
# scripts/torch has its release.
wheel_torch=2.13

cmd_wheel() {
  local part=${1:-both} torch=${2:-$wheel_torch} tools
  [[ $part =~ ^(both|daemons|train)$ ]] || die "wheel: its parts are daemons and train; both without one"
  (($# <= 1)) || [[ $# == 2 && $part == train && -f scripts/torch/$torch.txt ]] ||
    die "wheel: only train takes a release of torch, one of $(cd scripts/torch && echo *.txt | sed 's/\.txt//g'); others are pinned in scripts/torch"
  install_packages "${packages_build[@]}"
  tools=$(PYTHON=/usr/bin/python3 scripts/python_environment.sh wheel scripts/wheel_requirements.txt --no-deps) ||
    die "wheel: auditwheel is not to be had; it comes from the Python registry on first use"
  mkdir -p build/wheel/dist
  [[ $part == train ]] || wheel_of_daemons "$tools" "$PWD/build/wheel/dist"
  [[ $part == daemons ]] || wheel_of_learner "$tools" "$PWD/build/wheel/dist" "$torch"
}

# wheel_of_daemons TOOLS DIST
wheel_of_daemons() {
  local tools=$1 dist=$2 out=$PWD/build/wheel component
  local installed=$out/installed package=$out/package made=$out/made
  build wheel weightcast weightcast-engine weightcast_shared || die "wheel: could not be built"
  rm -rf "$installed" "$package" "$made" "$dist"/weightcast-*
  mkdir -p "$installed" "$package" "$made"
  for component in programs library; do
    cmake --install "$out" --component $component --strip --prefix "$installed"
  done >"$out/install.log"
  licences_of "$out" "$installed/licenses" weightcast weightcast-engine weightcast_shared

  say "packing"
  # The wheel is made of what the sdist holds, so that neither lacks a file of the package.
  (cd python && /usr/bin/python3 setup.py -q egg_info --egg-base "$made" sdist --dist-dir "$dist") >"$out/sdist.log" 2>&1 ||
    die "wheel: no sdist: $(cat "$out/sdist.log")"
  tar -xzf "$dist"/weightcast-*.tar.gz -C "$package" --strip-components 1
  WEIGHTCAST_INSTALLED=$installed pack_wheel "$tools" "$package" "$made" "$dist"
  check_wheel "$dist"/weightcast-*.whl "$installed"
}

# wheel_of_learner TOOLS DIST RELEASE: LibTorch's configuration for CMake takes CUDA's toolkit. Without that, or without the registry,
# it is left out, and says so.
wheel_of_learner() {
  local tools=$1 dist=$2 release=$3 out=$PWD/build/wheel-train torch
  local installed=$out/installed package=$out/package made=$out/made
  torch=$(scripts/torch_environment.sh "$release" | sed -n 1p) || {
    say "the learner's wheel is left out: see above"
    return
  }
  # What CMake has found of another release it would keep.
  local configure_options=(--fresh -DCMAKE_PREFIX_PATH="$torch")
  build wheel-train weightcast-train || die "wheel: the learner could not be built"
  rm -rf "$installed" "$package" "$made" "$dist"/weightcast_train-*
  mkdir -p "$installed" "$package/python" "$made"
  cmake --install "$out" --component learner_program --strip --prefix "$installed" >"$out/install.log"
  licences_of "$out" "$installed/licenses" weightcast-train
  licences_of_torch "$torch" "$installed/licenses"

  say "packing"
  cp -r python/train "$package/python/"
  cp CMakeLists.txt LICENSE "$package/"
  WEIGHTCAST_INSTALLED=$installed WEIGHTCAST_TORCH_RELEASE=$(release_of_torch "$torch") \
    pack_wheel "$tools" "$package/python/train" "$made" "$dist" --exclude 'libtorch*.so' --exclude 'libc10*.so'
  # LibTorch shares the C++ library with the program.
  check_wheel "$dist"/weightcast_train-*.whl "$installed" 'libtorch|libtorch_cpu|libtorch_cuda|libc10|libc10_cuda|libstdc\+\+'
}

# release_of_torch DIRECTORY: without what says for which device it was built.
release_of_torch() { sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$1/version.py"; }

# pack_wheel TOOLS PACKAGE MADE DIST [OPTION...]: OPTIONs are auditwheel's.
pack_wheel() {
  local tools=$1 package=$2 made=$3 dist=$4
  shift 4
  /usr/bin/python3 -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --wheel-dir "$made" "$package"
  PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --plat "$wheel_platform" --only-plat "$@" --wheel-dir "$dist" "$made"/*.whl \
    >"$made/audit.log" 2>&1 || die "wheel: it does not run on $wheel_platform: $(cat "$made/audit.log")"
}

# check_wheel WHEEL INSTALLED [LIBRARIES]: the bounds that auditwheel does not know. LIBRARIES are those of others that the
# programs take, beside the C library's.
check_wheel() {
  local wheel=$1 installed=$2 libraries=${3:+|$3} file needed
  # auditwheel lets libstdc++ be the system's. A second one in the process, or an old one, is what linking it in avoids.
  while read -r file; do
    needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "^(libc|libm|libgcc_s|ld-linux-x86-64$libraries)\.so(\.|$)" || true)
    [[ -z $needed ]] || die "wheel: ${file##*/} needs $(echo $needed), which a system may lack: link it statically"
  done < <(find "$installed" -type f \( -path '*/bin/*' -o -name '*.so.*' \))
  if /usr/bin/python3 -m zipfile -l "$wheel" | grep -q "\.libs/"; then die "wheel: auditwheel has added a library: link it statically"; fi
  (($(stat -c %s "$wheel") <= wheel_mib_max << 20)) || die "wheel: $wheel is larger than $wheel_mib_max MiB"
  say "$(stat -c %s "$wheel") bytes: $wheel"
}

# licences_of BUILD DIRECTORY TARGET...: the terms of each Debian package whose headers, archives or scripts the targets were made of,
# with its version, and the texts of the licences that they name. Of the C library and the kernel only the interface is used.
licences_of() {
  local build=$1 directory=$2 package
  shift 2
  mkdir -p "$directory"
  {
    ninja -C "$build" -t deps | sed -n 's,^ *\(/usr/.*\),\1,p'
    ninja -C "$build" -t commands "$@" | grep -oE '/usr/[^ ]+\.a\b'
    "${CXX:-c++}" -print-file-name=libstdc++.a
    sed -n 's/^WEIGHTCAST_D3:FILEPATH=//p' "$build/CMakeCache.txt"
  } | grep -v '^/usr/local/' | sort -u | xargs -d '\n' realpath | sort -u | xargs -d '\n' dpkg-query -S |
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

# licences_of_torch TORCH DIRECTORY: the terms of LibTorch's headers, and of CUDA's runtime library, which is linked in.
licences_of_torch() {
  local torch=$1 directory=$2 runtime
  cp "$torch-$(release_of_torch "$torch").dist-info/licenses/LICENSE" "$directory/torch.txt" || die "wheel: torch's licence is missing"
  runtime=$(find -L /usr/local/cuda "$torch/.." -maxdepth 4 \( -name EULA.txt -o -path '*cuda_runtime*/License.txt' \) -print -quit)
  [[ -n $runtime ]] || die "wheel: the licence of CUDA's runtime library is missing"
  cp "$runtime" "$directory/cuda-runtime.txt"
  echo "torch $(release_of_torch "$torch")" >>"$directory/packages.txt"
}
