# shellcheck shell=bash
# What the machine has to have: packages, memory, space on disk. Read by ./run.

install_packages() {
  local wanted=("$@") missing=() package root=()
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: the equivalents of these packages are needed: ${wanted[*]}"
    return
  fi
  for package in "${wanted[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed* ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "packages are missing and there is no sudo; as root: apt-get install ${missing[*]}"
    root=(sudo)
  fi
  "${root[@]}" apt-get update -q || say "apt-get update failed; trying with the package lists that are here"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" ||
    die "these packages could not be installed: ${missing[*]}"
}

memory_free_mib() { awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo; }

# Of the file system that directory $1 is on.
space_free_mib() { df --output=avail -B 1MiB "$1" | tail -n 1; }

# One compiler per core, but no more than there is memory for: the largest files take about 1 GiB.
jobs_max() {
  local memory_gib cores
  memory_gib=$(($(memory_free_mib) / 1024))
  cores=$(nproc)
  echo $((memory_gib < 1 ? 1 : memory_gib < cores ? memory_gib : cores))
}

# need_space DIRECTORY MIB WHAT: says what is missing for WHAT, if anything is.
need_space() {
  local free
  free=$(space_free_mib "$1")
  ((free >= $2)) || {
    say "$3 needs $2 MiB of space in $1, where $free MiB are free: make room, then run this again"
    return 1
  }
}

# need_memory MIB WHAT
need_memory() {
  local free
  free=$(memory_free_mib)
  ((free >= $1)) || {
    say "$2 needs $1 MiB of memory, and $free MiB are free: end what uses it, then run this again"
    return 1
  }
}

# blame_machine LOG DIRECTORY...: says so if a failure's output, or what is left in the directories, shows that space or
# memory ran out. Such a failure tells nothing about the code.
blame_machine() {
  local log=$1 directory free
  shift
  if grep -q -e 'No space left on device' -e 'Disk quota exceeded' "$log"; then
    say "no space was left on a disk: the failure may be the machine's, not the code's"
  fi
  for directory in "$@"; do
    free=$(space_free_mib "$directory")
    ((free >= 64)) || say "the disk that holds $directory is full ($free MiB free): make room, then run this again"
  done
  if grep -q -e 'Killed signal terminated' -e 'out of memory' -e 'Cannot allocate memory' -e 'std::bad_alloc' "$log"; then
    say "memory ran out ($(memory_free_mib) MiB are free now): the failure may be the machine's, not the code's"
  fi
}
