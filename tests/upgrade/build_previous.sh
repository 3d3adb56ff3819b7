#!/bin/sh
# build_previous.sh SOURCE_DIR DIRECTORY: builds the program weightcast of the release before, tests/upgrade/previous_release,
# as DIRECTORY/build/tools/weightcast. Where this repository's history does not have that commit it ends well, and
# DIRECTORY/missing says why: nothing else needs the program.
set -eu
source_dir=$1 directory=$2
commit=$(cat "$source_dir/tests/upgrade/previous_release")
mkdir -p "$directory"
rm -f "$directory/missing"

if ! git -C "$source_dir" cat-file -e "$commit^{commit}" 2>/dev/null; then
  echo "commit $commit is not in the history here; get it with: git fetch --unshallow" >"$directory/missing"
  rm -rf "$directory/source" "$directory/build"
  exit 0
fi
if [ "$(cat "$directory/source/.commit" 2>/dev/null || true)" != "$commit" ]; then
  rm -rf "$directory/source" "$directory/build"
  mkdir "$directory/source"
  git -C "$source_dir" archive "$commit" | tar -x -C "$directory/source"
  echo "$commit" >"$directory/source/.commit"
fi

# The preset that tests are built with, so that ccache knows what has not changed since; and only what the daemon takes.
cd "$directory/source"
[ -f ../build/build.ninja ] ||
  cmake --preset test -B ../build -DBUILD_TESTING=OFF -DWEIGHTCAST_TORCH=OFF -DWEIGHTCAST_BENCH=OFF
# Beside the jobs of this build, which is why it takes one.
exec cmake --build ../build --parallel 1 --target weightcast
