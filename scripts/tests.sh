# shellcheck shell=bash
# Builds and runs tests, and counts how they ended. Read by ./run.

passed=0 failed=0 skipped=0
strict=''  # else what fails beside other tests has a second try, alone
test_dir=''

# All that tests write lies in one directory, so that what a crash leaves can be found: on a disk, since some want more
# than a file system in memory should give. What daemons keep in memory lies in another one.
make_test_dir() {
  test_dir=$(mktemp -d "${TMPDIR:-/var/tmp}/weightcast-tests-XXXXXX")
  export TMPDIR=$test_dir
  WEIGHTCAST_TEST_MEMORY=$(mktemp -d /dev/shm/weightcast-tests-XXXXXX)
  export WEIGHTCAST_TEST_MEMORY
  trap remove_test_dir EXIT
  trap 'exit 130' INT TERM
}

remove_test_dir() {
  end_leftovers
  rm -rf "$test_dir" "$WEIGHTCAST_TEST_MEMORY"
}

# Ends the processes that tests left behind: those that inherited this run's directory, and no others.
end_leftovers() {
  local environment pid
  while IFS=/ read -r _ _ pid environment; do
    # The grep that looked for them is gone by now.
    [[ $pid =~ ^[0-9]+$ && -d /proc/$pid ]] || continue
    say "ending what tests left running: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null || true)"
    kill -KILL "$pid" 2>/dev/null || true
  done <<<"$(grep -lszxF -- "TMPDIR=$test_dir" /proc/[0-9]*/environ || true)"
}

# Adds up how tests ended. A test program wrote that for each of its own (tests/test_main.cpp); of what else ctest runs
# it knows it itself. A test that never began, or did not come to its end, failed. count_results RESULTS REPORT...:
# of a test that several reports know, the last one counts.
count_results() {
  local results=$1 name status
  shift
  while read -r name status; do
    case $status in
      skipped) skipped=$((skipped + 1)) ;;
      *) if [[ -f $results/$name.txt ]]; then
        count_program "$name" "$status" "$results/$name.txt"
      elif [[ $status == run ]]; then
        passed=$((passed + 1))
      else
        failed=$((failed + 1))
      fi ;;
    esac
  done < <(awk '
    function flush() {
      if (name == "") return
      if (!(name in ended)) names[++count] = name
      ended[name] = status
      name = ""
    }
    /<testcase / {
      flush()
      match($0, / name="[^"]*"/); name = substr($0, RSTART + 7, RLENGTH - 8)
      match($0, / status="[^"]*"/); status = substr($0, RSTART + 9, RLENGTH - 10)
    }
    /<skipped message="SKIP_/ || /status="disabled"/ { status = "skipped" }
    END { flush(); for (i = 1; i <= count; ++i) print names[i], ended[names[i]] }' "$@")
}

# count_program NAME STATUS RESULTS: STATUS is "run" if the program ended well.
count_program() {
  local name=$1 status=$2 planned ended_well itself unfinished lost
  read -r planned ended_well itself unfinished < <(awk '
    $1 == "planned" { planned = $2 }
    $1 == "began" { current = $2 }
    $1 == "passed" { ++passed; current = "" }
    $1 == "skipped" { ++skipped; current = "" }
    $1 == "failed" { current = "" }
    END { print planned + 0, passed + 0, skipped + 0, current == "" ? "-" : current }' "$3")
  lost=$((planned - ended_well - itself))
  if ((lost < 0)); then
    say "$name wrote of more tests than it had planned: counted as one failed test"
    lost=1
  fi
  [[ $unfinished == - ]] ||
    say "$name ended in the middle of $unfinished: that one, and those that it did not come to, count as failed"
  if ((lost == 0)) && { [[ $status != run ]] || ((planned == 0)); }; then
    say "$name failed although each of its tests passed (a leak that was found at its end?): counted as one failed test"
    lost=1
  fi
  passed=$((passed + ended_well))
  skipped=$((skipped + itself))
  failed=$((failed + lost))
}

# The names of the tests that failed, by a report of ctest.
failed_programs() { sed -nE 's/.*<testcase name="([^"]*)".* status="fail".*/\1/p' "$1"; }

# may_run_again REPORT LOG: whether a neighbour on a small machine may have made the failures. More than three have
# another cause, and what a sanitizer found is there however seldom it shows.
may_run_again() {
  local -a names
  [[ -f $1 ]] || return 1
  mapfile -t names < <(failed_programs "$1")
  ((${#names[@]} >= 1 && ${#names[@]} <= 3)) && ! grep -qE 'Sanitizer|runtime error: ' "$2"
}

# run_tests PRESET LABEL...: in one run, so that long tests of one label run beside short ones of another.
run_tests() {
  local preset=$1 before=$failed status=0 labels name
  shift
  local directory=$PWD/build/$preset
  local report=$directory/results.xml again=$directory/results_again.xml
  local reports=("$report")
  rm -rf "$report" "$again" "$directory/results"
  mkdir -p "$directory/results"
  labels=$(IFS='|' && printf '%s' "$*")
  say "tests labelled $* ($preset)"
  "${launcher[@]}" ctest --test-dir "$directory" --label-regex "^($labels)\$" --parallel "$(nproc)" --output-on-failure \
    --output-junit "$report" --no-tests=error | tee "$directory/tests.log" | sed -uE '/ +Start +[0-9]+: /d' || status=$?
  if ((status != 0)) && [[ -z $strict ]] && may_run_again "$report" "$directory/tests.log"; then
    end_leftovers
    say "what failed beside other tests runs again, alone"
    status=0
    "${launcher[@]}" ctest --test-dir "$directory" --rerun-failed --output-on-failure --output-junit "$again" |
      tee -a "$directory/tests.log" || status=$?
    [[ ! -f $again ]] || reports+=("$again")
    for name in $(comm -23 <(failed_programs "$report" | sort) <(failed_programs "${reports[-1]}" | sort)); do
      say "UNSTEADY, a defect although it counts as passed: $name"
    done
  fi
  [[ ! -f $report ]] || count_results "$directory/results" "${reports[@]}"
  # A failure that the report does not know (ctest itself, a report that was not written) is one all the same.
  ((status == 0 || failed > before)) || failed=$((failed + 1))
  ((failed == before)) || blame_machine "$directory/tests.log" "$directory" "$test_dir"
  end_leftovers
}

# ThreadSanitizer needs the kernel to place memory less randomly than some do.
without_randomisation() {
  if (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0) > 28)) && setarch -R true 2>/dev/null; then
    launcher=(setarch -R)
  fi
}

# stage WHAT COMMAND...: what could not be done counts as one failed test.
stage() {
  local what=$1
  shift
  if "$@"; then return 0; fi
  say "$what: could not be done; counted as one failed test"
  failed=$((failed + 1))
  return 1
}

# In a shell of its own, so that die() does not end the tests without their last line.
packages_stage() (install_packages "$@")

# Before each run, since what ran before may have filled the disk.
tests_stage() {
  stage "tests ($1)" need_space "$test_dir" 2000 "testing" || return 0
  stage "tests ($1)" need_memory 1000 "testing" || return 0
  run_tests "$@"
}

dev_stages() {
  if stage "building the tests" build_in_batches test "${@/#/tests_}"; then tests_stage test "$@"; fi
}

sanitizer_stages() {
  if stage "building for AddressSanitizer" build_in_batches asan tests_fast; then tests_stage asan fast; fi
  without_randomisation
  if stage "building for ThreadSanitizer" build_in_batches tsan tests_threads; then tests_stage tsan threads; fi
}

cmd_test() {
  if [[ ${1:-} == --strict ]]; then
    strict=yes
    shift
  fi
  local label labels=("$@") started=$SECONDS
  for label in "$@"; do
    [[ $label =~ ^(fast|sim|net|long|bench|upgrade|oracle|vllm|sglang|wheel|deb|deploy)$ ]] ||
      die "test: '$label' is no label; there are fast, sim, net, long, bench, upgrade, oracle, vllm, sglang, wheel, deb and deploy"
  done
  # Of the fast ones only what AddressSanitizer's build has not: it runs the others.
  (($#)) || labels=(plain sim net long bench)
  make_test_dir
  if stage "installing packages" packages_stage "${packages_build[@]}" "${packages_bench[@]}"; then
    [[ " $* " != *" wheel "* && " $* " != *" deb "* ]] || packages_stage "${packages_wheel[@]}" ||
      say "nothing is tried in a root without compilers"
    [[ " ${labels[*]} " != *" net "* ]] || packages_stage "${packages_site[@]}" || say "the documentation's site is not made"
    [[ " $* " != *" deploy "* ]] || packages_stage "${packages_image[@]}" "${packages_deploy[@]}" || say "not all of deploy/ is tried"
    dev_stages "${labels[@]}"
    (($#)) || sanitizer_stages
  fi
  report_tests "$started"
}

cmd_sanitize() {
  local started=$SECONDS
  make_test_dir
  if stage "installing packages" packages_stage "${packages_build[@]}"; then sanitizer_stages; fi
  report_tests "$started"
}

# Says how long it took since $1 and, in the last line, how many passed and failed; its status says whether all did.
report_tests() {
  local started=$1
  say "tests took $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s"
  ((skipped == 0)) || say "$skipped skipped themselves and say why: no GPU here, or a sanitizer in the way"
  # The last line is the last thing said.
  trap - EXIT
  remove_test_dir
  printf '%d passed, %d failed\n' "$passed" "$failed"
  ((failed == 0 && passed > 0))
}
