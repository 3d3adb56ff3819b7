#!/usr/bin/env bash
# Every file compiles apart: none uses a name of a header that it does not include (scripts/missing_includes.py). First on a
# tree made for it, which shows that the script finds what it should and nothing else.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
git rev-parse --git-dir >/dev/null 2>&1 || exit 0  # a tarball: the script asks Git which files there are

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cat >"$tree/leaf.h" <<'TEXT'
namespace weightcast {
struct Leaf { int sum; };
template <typename T>
[[nodiscard]] int leaf_sum(const T& leaf);
enum class Kind : unsigned { kOne };
}
TEXT
printf '#include "leaf.h"\n' >"$tree/through.h"
cat >"$tree/lacks.cpp" <<'TEXT'
#include <string>
// leaf_sum() in a comment is no use.
int of(int x) { return leaf_sum(x); }
TEXT
printf 'int of(const Leaf& x);\n' >"$tree/lacks_type.cpp"
printf '#include "through.h"\nint of(const Leaf& x) { return leaf_sum(x); }\n' >"$tree/has.cpp"
printf 'int of(int x) { const auto leaf_sum = [](int y) { return y; }; return leaf_sum(x) + object.leaf_sum(x) + Other::leaf_sum(x); }\n' >"$tree/own.cpp"
git -C "$tree" init -q
git -C "$tree" add .
found=$(scripts/missing_includes.py "$tree" || true)
expected='lacks.cpp: uses leaf_sum and does not include leaf.h
lacks_type.cpp: uses Leaf and does not include leaf.h'
if [[ $found != "$expected" ]]; then
  printf 'of the tree made for it the script says\n%s\ninstead of\n%s\n' "$found" "$expected"
  exit 1
fi
scripts/missing_includes.py
