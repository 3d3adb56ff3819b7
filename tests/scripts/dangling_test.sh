#!/usr/bin/env bash
# No loop over a part of a temporary: `for (x : parse(text).at("list"))` reads what is destroyed before the first turn
# (C++20, [stmt.ranged]). g++ 12 and clang 14 are silent where the part is a library's. Two forms count: a function's
# result asked for a part by .at(), .items(), .front(), .back() or .value(), and one asked so after other calls.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

# What follows the colon: a call that is no accessor of a named object, and a part of what it returns.
readonly loops='\bfor \([^;]*[^:]:(?!:)\s*\*?(?:[A-Za-z_:]|->|\.(?!at\())*\b(?!at\b)[a-z_]+\((?:[^()]|\([^()]*\))*\)\.(?:at|items|front|back|value)\('
dangling() { grep -nP "$loops" "$@"; }

wrong=0
expect() { # expect FOUND|CLEAN LINE
  local found=CLEAN
  dangling <<<"$2" >/dev/null && found=FOUND
  [[ $found == "$1" ]] || {
    printf '%s: %s\n' "$found" "$2"
    wrong=1
  }
}
expect FOUND '  for (const json& v : json::parse(text).at("versions")) {'
expect FOUND '  for (const std::string& name : files.list(directory).value()) {'
expect FOUND 'for (const auto& [key, value] : json::parse(read(file)).items()) use(key);'
expect CLEAN '  for (const json& v : reply.at("versions")) {'
expect CLEAN '  for (const auto& [name, log] : json.at("workers").items()) {'
expect CLEAN '  for (const std::string& name : disk.list(directory).value_or(std::vector<std::string>{})) {'
expect CLEAN '  for (const auto& [id, member] : members_.all()) {'

if grep -rnP --include='*.cpp' --include='*.h' --exclude-dir=build "$loops" .; then
  echo "give what these loops take a part of a name of its own"
  wrong=1
fi
exit "$wrong"
