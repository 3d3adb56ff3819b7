#!/bin/sh
# fsdp_bench.sh [OPTION...]: fsdp_bench.py with the torch of tests/vllm and the checkout's release build, unless
# WEIGHTCAST_LIBRARY and WEIGHTCAST_PROGRAM name another.
set -eu
root=$(readlink -f "$(dirname "$0")/../..")
export WEIGHTCAST_LIBRARY="${WEIGHTCAST_LIBRARY:-$root/build/release/client/libweightcast.so.0}"
export WEIGHTCAST_PROGRAM="${WEIGHTCAST_PROGRAM:-$root/build/release/tools/weightcast}"
exec "$root/tests/vllm/run.sh" sh -c 'exec "${WEIGHTCAST_VLLM%/*}/python" "$@"' sh "$root/tests/fsdp/fsdp_bench.py" "$@"
