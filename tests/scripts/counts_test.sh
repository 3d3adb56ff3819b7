#!/usr/bin/env bash
# How ./run counts tests, and what it says of a machine that lacks something. Each check prints what it found.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
say() { printf '== %s\n' "$*"; }
source scripts/machine.sh
source scripts/tests.sh

wrong=0
expect() {
  [[ $2 == "$3" ]] || {
    printf '%s: %s, and not %s\n' "$1" "$2" "$3"
    wrong=1
  }
}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

# counted NAME STATUS [EVENT...]: what one test that ctest calls STATUS adds, if its program wrote these events.
counted() {
  local name=$1 status=$2
  shift 2
  passed=0 failed=0 skipped=0
  rm -rf "$here/results"
  mkdir "$here/results"
  (($# == 0)) || printf '%s\n' "$@" >"$here/results/$name.txt"
  printf '\t<testcase name="%s" classname="%s" time="1" status="%s">\n\t</testcase>\n' "$name" "$name" "$status" >"$here/report.xml"
  count_results "$here/results" "$here/report.xml" >"$here/said"
  echo "$passed $failed $skipped"
}

expect "a program whose tests pass" "$(counted p run 'planned 2' 'began A.a' 'passed A.a' 'began A.b' 'passed A.b')" "2 0 0"
expect "one that fails and one that skips itself" \
  "$(counted p fail 'planned 3' 'began A.a' 'failed A.a' 'began A.b' 'skipped A.b' 'began A.c' 'passed A.c')" "1 1 1"
expect "a crash in the second of four" \
  "$(counted p fail 'planned 4' 'began A.a' 'passed A.a' 'began A.b')" "1 3 0"
expect "what is said of it" "$(grep -c 'ended in the middle of A.b' "$here/said")" 1
expect "a leak that is found at the end" "$(counted p fail 'planned 1' 'began A.a' 'passed A.a')" "1 1 0"
expect "a program that never began" "$(counted p fail)" "0 1 0"
expect "a program without any test" "$(counted p run 'planned 0')" "0 1 0"
expect "a program whose plan was lost" "$(counted p run 'began A.a' 'passed A.a')" "1 1 0"
expect "a program that is not GoogleTest's" "$(counted q run)" "1 0 0"
expect "one that failed" "$(counted q fail)" "0 1 0"
expect "one that ctest could not start" "$(counted q notrun)" "0 1 0"

# report STATUS: of one test, p. A test that failed beside others counts as it ended alone.
report() { printf '\t<testcase name="p" classname="p" time="1" status="%s">\n\t</testcase>\n' "$1"; }
report fail >"$here/report.xml"
report run >"$here/again.xml"
passed=0 failed=0
rm -rf "$here/results"
mkdir "$here/results"
count_results "$here/results" "$here/report.xml" "$here/again.xml"
expect "a test that passes alone" "$passed $failed" "1 0"
count_results "$here/results" "$here/report.xml" "$here/report.xml"
expect "one that fails again" "$passed $failed" "1 1"
echo '1: Expected equality of these values' >"$here/log"
expect "a failure that a neighbour may have made" "$(may_run_again "$here/report.xml" "$here/log"; echo $?)" 0
expect "no failure" "$(may_run_again "$here/again.xml" "$here/log"; echo $?)" 1
for _ in 1 2 3; do report fail; done >>"$here/report.xml"
expect "four failures" "$(may_run_again "$here/report.xml" "$here/log"; echo $?)" 1
report fail >"$here/report.xml"
echo '1: WARNING: ThreadSanitizer: data race' >"$here/log"
expect "what a sanitizer found" "$(may_run_again "$here/report.xml" "$here/log"; echo $?)" 1

# The same by ctest itself: of two tests one fails once and the other always.
mkdir -p "$here/build/made"
cat >"$here/build/made/CTestTestfile.cmake" <<TEXT
add_test(once bash -c "[[ -e $here/ran ]] || { touch $here/ran; false; }")
add_test(always bash -c "false")
add_test(never bash -c "true")
set_tests_properties(once always never PROPERTIES LABELS fast)
TEXT
launcher=() passed=0 failed=0 test_dir=$here
(cd "$here" && run_tests made fast && echo "$passed $failed") >"$here/said" 2>&1
expect "tests that fail beside others" "$(tail -1 "$here/said")" "2 1"
expect "what is said of them" "$(grep UNSTEADY "$here/said")" "== UNSTEADY, a defect although it counts as passed: once"
rm "$here/ran"
(strict=yes; cd "$here" && run_tests made fast && echo "$passed $failed") >"$here/said" 2>&1
expect "the same without a second try" "$(tail -1 "$here/said")" "1 2"

space_free_mib() { echo 10; }
expect "a stage without space" "$(need_space / 100 testing >"$here/said"; echo $?)" 1
expect "what is said of it" "$(<"$here/said")" "== testing needs 100 MiB of space in /, where 10 MiB are free: make room, then run this again"
expect "a stage with space" "$(need_space / 10 testing; echo $?)" 0
echo 'fatal error: error writing to /tmp/x.s: No space left on device' >"$here/log"
expect "a build without space" "$(blame_machine "$here/log" / | grep -c 'no space was left\|is full')" 2
space_free_mib() { echo 1000; }
echo "g++: fatal error: Killed signal terminated program cc1plus" >"$here/log"
expect "a build without memory" "$(blame_machine "$here/log" / | grep -c 'memory ran out')" 1
echo "error: expected ';'" >"$here/log"
expect "a build of wrong code" "$(blame_machine "$here/log" /)" ""

# What a test leaves running ends; what others run does not.
mine=$(mktemp -d) test_dir=$mine
sleep 300 &
other=$!
TMPDIR=$mine setsid sleep 300 >/dev/null 2>&1 &
left=$!
until grep -qsz "TMPDIR=$mine" "/proc/$left/environ"; do sleep 0.01; done
end_leftovers >"$here/said"
wait "$left" 2>/dev/null
expect "what is left over" "$(kill -0 "$left" 2>/dev/null; echo $?)" 1
expect "what is somebody else's" "$(kill -0 "$other"; echo $?)" 0
kill "$other"
rm -rf "$mine"
exit $wrong
