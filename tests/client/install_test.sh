#!/usr/bin/env bash
# Installs the library into a directory of its own, and builds and runs the examples against it as a user would: by
# CMake and by pkg-config, in C and in C++. Usage: install_test.sh BUILD_DIR SOURCE_DIR WEIGHTCAST
set -euo pipefail
build=$1 source=$2 weightcast=$3
work=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-install-XXXXXX")
daemon=
end() {
  [[ -z $daemon ]] || kill "$daemon" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT

prefix=$work/prefix
cmake -DCMAKE_INSTALL_PREFIX="$prefix" -P "$build/client/cmake_install.cmake" >"$work/install.log"
# Installed means that it is found wherever it is moved to.
mv "$prefix" "$work/moved"
prefix=$work/moved
if grep -rIl -e "$build" -e "$source" "$prefix"; then
  echo "these name the place where they were built" >&2
  exit 1
fi

cmake -S "$source/examples" -B "$work/by-cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_STANDARD=99 \
  -DCMAKE_C_FLAGS="-Wall -Wextra -Wpedantic -Werror" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror" >"$work/cmake.log"
cmake --build "$work/by-cmake" >"$work/build.log" || { cat "$work/build.log" >&2; exit 1; }
libdir=$(dirname "$(find "$prefix" -name libweightcast.so)")
export PKG_CONFIG_PATH=$libdir/pkgconfig
# The flags are words.
flags=$(pkg-config --cflags --libs weightcast)
# shellcheck disable=SC2086
cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$source/examples/publish.c" $flags -Wl,-rpath,"$libdir" -o "$work/publish_pc"

# Units name the programs where these are installed, and come with the configurations that they read.
for component in deploy learner_deploy; do
  cmake -DCMAKE_INSTALL_PREFIX="$work/opt" -DCMAKE_INSTALL_COMPONENT=$component -P "$build/tools/cmake_install.cmake" >>"$work/deploy.log"
done
for unit in "$source"/deploy/*.service; do
  installed=$work/opt/lib/systemd/system/$(basename "$unit")
  grep -q "^ExecStart=$work/opt/bin/weightcast" "$installed"
  diff <(sed "s#/usr/local/bin#$work/opt/bin#" "$unit") "$installed"
done
diff "$source/deploy/worker.toml" "$work/opt/share/weightcast/worker.toml"

"$weightcast" daemon --role origin --state "$work/state" --listen 127.0.0.1:0 --insecure --versions-in disk >"$work/daemon.log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
  "$weightcast" status --state "$work/state" >/dev/null 2>&1 && break
  sleep 0.1
done
expect() { # expect TEXT COMMAND...
  local text=$1 said
  shift
  said=$("$@") || { echo "$* failed" >&2; exit 1; }
  [[ $said == *"$text"* ]] || { echo "$* said: $said; expected: $text" >&2; exit 1; }
}
for program in publish_c publish_cpp subscribe_c subscribe_cpp; do
  status=0
  said=$("$work/by-cmake/$program" 2>&1) || status=$?
  [[ $status == 2 && $said == "usage: ${program%_*} STATE_DIR"* ]] || { echo "$program without arguments: $status, $said" >&2; exit 1; }
done
expect "published version 1" "$work/by-cmake/publish_c" "$work/state"
expect "published version 3" "$work/by-cmake/publish_cpp" "$work/state"
expect "published version 4" "$work/publish_pc" "$work/state"
expect "version 4 is in $work/state" "$work/by-cmake/subscribe_c" "$work/state" 1
expect "version 4 is in $work/state" "$work/by-cmake/subscribe_cpp" "$work/state" 1
if "$work/by-cmake/publish_c" "$work/nowhere" 2>"$work/error"; then exit 1; fi
grep -q "no daemon runs there" "$work/error"
