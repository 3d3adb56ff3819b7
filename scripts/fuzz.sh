# shellcheck shell=bash
# Searches for inputs that break what reads bytes from outside. Read by ./run.

# fuzz_target NAME SECONDS: what it finds lies in build/fuzz/found/NAME. The corpus grows under build/fuzz/corpus/NAME.
# The seconds are of the processor. libFuzzer counts those of the clock, so on a busy machine it is started again.
fuzz_target() {
  local name=$1 seconds=$2 found=build/fuzz/found/$1 corpus=build/fuzz/corpus/$1 log=build/fuzz/$1.log
  local spent_ms=0 runs=0 began=$SECONDS user system TIMEFORMAT='%3U %3S'
  mkdir -p "$found" "$corpus"
  while ((spent_ms < 950 * seconds && SECONDS - began < 10 * seconds)); do
    if ! { time "build/fuzz/tests/fuzz/${name}_fuzz" -max_total_time=$((seconds - spent_ms / 1000)) -timeout=10 \
      -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="$found/" -print_final_stats=1 \
      "$corpus" "tests/fuzz/corpus/$name" >"$log" 2>&1; } 2>"$log.time"; then
      tail -n 40 "$log"
      printf '%-18s FOUND SOMETHING: see %s and %s\n' "$name" "$found" "$log"
      return 1
    fi
    read -r user system <"$log.time"
    spent_ms=$((spent_ms + 10#${user//[.,]/} + 10#${system//[.,]/}))
    runs=$((runs + $(awk '/number_of_executed_units/ {print $2}' "$log")))
  done
  printf '%-18s %9d runs in %d s of processor, nothing found\n' "$name" "$runs" $((spent_ms / 1000))
}
export -f fuzz_target

cmd_fuzz() {
  local seconds=600 names
  if (($#)); then
    [[ $# == 2 && $1 == --seconds && $2 =~ ^[1-9][0-9]{0,6}$ ]] || die "fuzz: --seconds N, and nothing else"
    seconds=$2
  fi
  install_packages "${packages_build[@]}" "${packages_fuzz[@]}"
  build fuzz tests_fuzz || return 1
  mapfile -t names < <(cd tests/fuzz/corpus && printf '%s\n' *)
  local each=$(((seconds + ${#names[@]} - 1) / ${#names[@]}))
  say "$each s for each of ${#names[@]} targets"
  printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c "fuzz_target {} $each" ||
    die "fuzz: an input breaks a target; mend it, and commit the input under tests/fuzz/corpus/NAME"
}
