# shellcheck shell=bash
# Configures and compiles. Read by ./run.

# What cmake and ctest are started by, where they need something around them.
launcher=()

# What the configuration is to have beside its preset.
configure_options=()

# build PRESET [TARGET...]
build() {
  local preset=$1 directory=$PWD/build/$1
  shift
  mkdir -p "$directory"
  say "building ${*:-everything} ($preset)"
  need_space "$directory" 1000 "building $preset" && need_memory 700 "a compiler" || return 1
  if ! cmake --preset "$preset" "${configure_options[@]}" >"$directory/configure.log" 2>&1; then
    cat "$directory/configure.log"
    blame_machine "$directory/configure.log" "$directory"
    return 1
  fi
  if ! "${launcher[@]}" cmake --build "$directory" --parallel "$(jobs_max)" ${1:+--target "$@"} |
    tee "$directory/build.log"; then
    blame_machine "$directory/build.log" "$directory" "${TMPDIR:-/tmp}"
    return 1
  fi
}

# The same for a preset that compiles in batches. Two files of one may give a name in their anonymous namespaces to
# different things: then each is compiled alone, which takes longer and tells whether anything else is wrong.
build_in_batches() {
  if build "$@"; then return 0; fi
  say "compiling each file alone: an error above that is not below says what should stand under APART in CMakeLists.txt"
  local configure_options=(-DWEIGHTCAST_UNITY=OFF)
  build "$@"
}
