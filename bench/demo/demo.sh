# shellcheck shell=bash
# The main jobs, with real processes on this host: star against chain against packed, and the whole loop. Read by ./run.

demo_dir='' demo_pids=() demo_origin_pid='' demo_recorder_pid='' demo_origin_address=127.0.0.1:0 demo_http_address=127.0.0.1:0
demo_workers=6 demo_megabits=100 demo_uplink_megabits=300

demo_cleanup() {
  ((${#demo_pids[@]})) && kill "${demo_pids[@]}" 2>/dev/null
  [[ -z $demo_origin_pid ]] || kill "$demo_origin_pid" 2>/dev/null
  [[ -z $demo_recorder_pid ]] || kill "$demo_recorder_pid" 2>/dev/null
  wait 2>/dev/null
  [[ -z $demo_dir ]] || rm -rf "$demo_dir"
  return 0
}

demo_failed() {
  printf 'run: demo: %s\n' "$1" >&2
  tail -n 5 "$demo_dir"/*.log >&2 || true
  exit 1
}

# Waits, at most 15 s, until `status` of the origin shows $1 nodes that are connected.
demo_wait_for_nodes() {
  local tries nodes=0
  for ((tries = 0; tries < 150; ++tries)); do
    nodes=$("$weightcast" status --state "$demo_dir/origin" --json 2>/dev/null |
      grep -o '"state":"[a-z]*"' | grep -Ecv '"(lost|awaited)"' || true)
    ((nodes >= $1)) && return
    kill -0 "$demo_origin_pid" 2>/dev/null || demo_failed "the origin ended"
    sleep 0.1
  done
  demo_failed "$nodes of $1 nodes are there after 15 s"
}

# Takes the place of the one before.
demo_start_origin() {
  if [[ -n $demo_origin_pid ]]; then
    kill "$demo_origin_pid"
    wait "$demo_origin_pid" || true
  fi
  "$weightcast" daemon --role origin --state "$demo_dir/origin" --versions-in disk --listen "$demo_origin_address" \
    --uplink "${demo_uplink_megabits}mbit" --topology "$1" --pack "$2" --http "$demo_http_address" --keys "$demo_dir/keys/origin.pem" >>"$demo_dir/origin.log" 2>&1 &
  demo_origin_pid=$!
  demo_wait_for_nodes 1
  # The first time no other node is there yet.
  [[ $demo_origin_address == *:0 ]] || return 0
  demo_origin_address=$("$weightcast" status --state "$demo_dir/origin" --json | sed -E 's/.*"address":"([^"]+)".*/\1/')
  demo_http_address=$(cat "$demo_dir/origin/http_address")
  say "the page of the fleet, while it runs: http://$demo_http_address/"
  python3 bench/demo/record.py "$demo_dir/origin/http_address" build/release/tools/web/page.html build/demo/broadcast.html &
  demo_recorder_pid=$!
}

demo_start_worker() {
  "$weightcast" daemon --role worker --name "worker-$1" --state "$demo_dir/worker-$1" --versions-in disk \
    --origin "$demo_origin_address" --uplink "${demo_megabits}mbit" --downlink "${demo_megabits}mbit" \
    --keys "$demo_dir/keys/workers/worker-$1.pem" >>"$demo_dir/worker-$1.log" 2>&1 &
  demo_pids+=($!)
}

# Publishes version $1 by the way $2 when all workers are there, checks every worker's copy, adds a line to the table.
demo_publish() {
  local version=$1 name=$2 number
  demo_wait_for_nodes $((demo_workers + 1))
  say "version $version by $name"
  "$weightcast" publish "$demo_dir/step-$version" --version "$version" --state "$demo_dir/origin" --wait 1.0 \
    --timeout 60 >"$demo_dir/outcome" || demo_failed "version $version did not reach every worker"
  for ((number = 1; number <= demo_workers; ++number)); do
    cmp "$demo_dir/step-$version/model.safetensors" "$demo_dir/worker-$number/current/model.safetensors" ||
      demo_failed "worker-$number has other bytes than were published"
  done
  printf '%s %s\n' "${name/, /-}" "$(sed -nE 's/.*T_bcast\(0.5\) ([0-9.]+) s.*\(0.9\) ([0-9.]+) s.*\(1.0\) ([0-9.]+) s.*/\1 \2 \3/p' \
    "$demo_dir/outcome")" >>"$demo_dir/table"
}

# What is sent to whom, and how long it takes.
demo_broadcast() {
  build release weightcast make_snapshot
  local number version
  weightcast=$PWD/build/release/tools/weightcast
  demo_dir=$(mktemp -d "${TMPDIR:-/tmp}/weightcast-demo-XXXXXX")
  trap demo_cleanup EXIT
  trap 'exit 130' INT TERM
  (($(df --output=avail -m "$demo_dir" | tail -n 1) > 2500)) || die "demo: $demo_dir needs 2.5 GB of space"

  say "three snapshots of 64 MiB"
  for version in 1 2 3; do
    build/release/bench/demo/make_snapshot "$demo_dir/step-$version" 64MiB "$version"
  done
  say "keys: every connection is encrypted, and both ends prove who they are"
  "$weightcast" keys init --dir "$demo_dir/keys" >/dev/null
  for ((number = 1; number <= demo_workers; ++number)); do
    "$weightcast" keys issue "worker-$number" --dir "$demo_dir/keys" >/dev/null
  done
  say "an origin with $demo_uplink_megabits Mbit/s and $demo_workers workers with $demo_megabits Mbit/s each, as processes on this host"
  demo_start_origin star never
  for ((number = 1; number <= demo_workers; ++number)); do demo_start_worker "$number"; done
  demo_publish 1 star
  demo_start_origin chain never
  demo_publish 2 chain
  demo_start_origin chain auto
  demo_publish 3 'chain, packed'

  # What was recorded is written while the origin still tells.
  kill "$demo_recorder_pid" && wait "$demo_recorder_pid" || demo_failed "the page was not recorded"
  demo_recorder_pid=''
  local payload_bytes
  payload_bytes=$(stat -c %s "$demo_dir/step-2/model.safetensors")
  echo
  awk -v bytes="$payload_bytes" -v megabits="$demo_megabits" -v workers="$demo_workers" '
    BEGIN {
      line = bytes * 8 / (megabits * 1e6)
      printf "64 MiB to %d workers; one worker alone at its line rate of %d Mbit/s would take %.2f s\n\n", workers, megabits, line
      printf "                 T_bcast(0.5)  T_bcast(0.9)  T_bcast(1.0)  T_bcast(1.0) / line\n"
    }
    { printf "  %-14s %10.2f s  %10.2f s  %10.2f s  %19.2f\n", $1, $2, $3, $4, $4 / line }' "$demo_dir/table"
  printf '\nEvery worker holds the published bytes: all versions compared bit for bit on all %d.\n' "$demo_workers"
  printf 'The page of all three, with their data inside: %s\n' "$PWD/build/demo/broadcast.html"
  cp "$demo_dir/table" build/demo/broadcast.table
  demo_cleanup
  demo_dir='' demo_pids=() demo_origin_pid=''
}

# A model that learns while its weights travel.
demo_loop() {
  build release weightcast weightcast-train weightcast-engine
  python3 bench/demo/loop.py build/release/tools build/release/tools/web/page.html build/demo/loop || exit 1
}

cmd_demo() {
  local part=${1:-all}
  [[ $part == all || $part == broadcast || $part == loop ]] || die "demo: $part is neither broadcast nor loop"
  install_packages "${packages_build[@]}"
  mkdir -p build/demo
  rm -f build/demo/broadcast.table build/demo/broadcast.html build/demo/loop/result.json
  [[ $part == loop ]] || demo_broadcast
  [[ $part == broadcast ]] || demo_loop
  python3 bench/demo/result.py build/demo $((64 * 1024 * 1024)) "$demo_megabits" "$demo_workers"
  say "figures: build/demo/result.json"
}
