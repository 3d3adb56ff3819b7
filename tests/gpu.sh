#!/usr/bin/env bash
# What needs a GPU, on a host that has one: tests that compare the learner with itself on the CPU, and measurements.
#
#   tests/gpu.sh build            builds it into build/gpu against a LibTorch with CUDA, and packs build/gpu/bundle: programs,
#                                 and the libraries that they take beside LibTorch's and CUDA's. Needs no GPU
#   tests/gpu.sh run [BUNDLE]     runs all that is in the bundle, and prints what it measured. Needs Python with torch of
#                                 the version that it was built against, and nothing installed beside
#   tests/gpu.sh                  both
#   tests/gpu.sh check [VERSION...]
#                                 builds it into build/gpu-check-VERSION against each LibTorch that scripts/torch pins, from the
#                                 Python registry, and runs on the CPU the tests of trainer/ that need no transport.
#                                 Takes nvcc, since the registry has no LibTorch for Linux without CUDA
#
# WEIGHTCAST_TORCH names the directory of the LibTorch to build against; otherwise that of python3's torch. Exit status: 0 all
# passed; 77 skipped, with the reason, where there is no GPU, no LibTorch with CUDA or no nvcc; 1 otherwise.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

say() { printf '== %s\n' "$*"; }
skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}

torch_directory() {
  if [[ -n ${WEIGHTCAST_TORCH:-} ]]; then
    printf '%s\n' "$WEIGHTCAST_TORCH"
  else
    python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)' 2>/dev/null
  fi
}

# compile TORCH DIRECTORY TARGET...
compile() {
  local torch=$1 directory=$2
  shift 2
  [[ -e $torch/lib/libtorch_cuda.so ]] || skip "the LibTorch in $torch has no CUDA"
  say "building against $torch"
  mkdir -p build
  cmake -S . -B "$directory" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWEIGHTCAST_TRANSPORT=OFF -DWEIGHTCAST_UNITY=ON \
    -DCMAKE_PREFIX_PATH="$torch" >"$directory.log" 2>&1 || { cat "$directory.log"; exit 1; }
  cmake --build "$directory" --parallel "${JOBS:-2}" --target "$@"
}

build() {
  local torch library
  torch=$(torch_directory) || skip "python3 has no torch; set WEIGHTCAST_TORCH to the directory of a LibTorch with CUDA"
  compile "$torch" build/gpu gpu_test patch_cuda_test weightcast-bench-learner
  rm -rf build/gpu/bundle
  mkdir -p build/gpu/bundle/lib
  cp build/gpu/tests/gpu/gpu_test build/gpu/tests/patch/patch_cuda_test build/gpu/tools/weightcast-bench-learner build/gpu/bundle
  strip build/gpu/bundle/gpu_test build/gpu/bundle/patch_cuda_test build/gpu/bundle/weightcast-bench-learner
  # Of the C library and of CUDA's each host has its own.
  for library in fmt crypto xxhash zstd pcre2-8 utf8proc; do
    LD_LIBRARY_PATH=$torch/lib ldd build/gpu/bundle/gpu_test build/gpu/bundle/weightcast-bench-learner |
      awk -v name="/lib$library.so" 'index($3, name) { print $3 }' | sort -u | xargs -r -I{} cp -L {} build/gpu/bundle/lib
  done
  cp bench/learner/transformers_step.py tests/oracles/torch_shims.py build/gpu/bundle
  say "packed $(du -sh build/gpu/bundle | cut -f1) into build/gpu/bundle"
}

run() {
  local bundle=$1 torch failed=0
  [[ -x $bundle/gpu_test ]] || { echo "gpu.sh: $bundle has no gpu_test; run 'tests/gpu.sh build' first" >&2; exit 1; }
  torch=$(torch_directory) || skip "python3 has no torch, whose libraries the programs take"
  # The wheels of CUDA's libraries lie beside torch.
  LD_LIBRARY_PATH=$bundle/lib:$torch/lib:$(find "$torch/../nvidia" -name lib -type d 2>/dev/null | paste -sd:):${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH
  nvidia-smi >/dev/null 2>&1 || skip "no GPU: nvidia-smi finds none"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  say "tests"
  "$bundle/patch_cuda_test" --gtest_brief=1 || failed=1
  "$bundle/gpu_test" --gtest_brief=1 || failed=1
  # The shapes of a decoder of 0.6 billion parameters, 8,192 tokens an update.
  local sizes=(init_hidden_size=1024 init_intermediate_size=3072 init_num_hidden_layers=28 init_num_attention_heads=16
    init_num_key_value_heads=8 dtype=bfloat16)
  say "an update in BF16, 8 sequences of 1024 tokens: its time, the device's memory, and what publication waits for"
  "$bundle/weightcast-bench-learner" device=cuda sequences=8 tokens=1024 repeat=10 "${sizes[@]}" || failed=1
  say "the same, with activation checkpointing"
  "$bundle/weightcast-bench-learner" device=cuda sequences=8 tokens=1024 repeat=5 activation_checkpointing=true "${sizes[@]}" || failed=1
  if python3 -c 'import transformers' 2>/dev/null; then
    say "the same update in transformers, in turn with ours"
    PYTHONPATH=$bundle python3 -B "$bundle/transformers_step.py" "$bundle/weightcast-bench-learner" --device cuda \
      --dtype bfloat16 --sequences 8 --tokens 1024 --rounds 3 --updates 10 "${sizes[@]/#/--set=}" || failed=1
  else
    say "skipped: python3 has no transformers to compare with"
  fi
  return "$failed"
}

check() {
  local version status=0 one
  (($#)) || set -- $(cd scripts/torch && printf '%s\n' *.txt | sed 's/\.txt$//' | sort -V)
  for version in "$@"; do
    one=0
    check_version "$version" || one=$?
    # A failure counts more than a version that was not to be had.
    ((status == 1 || one == 0)) || status=$one
  done
  return "$status"
}

check_version() {
  local found test failed=0 directory=build/gpu-check-$1
  found=$(scripts/torch_environment.sh "$1") || return $?
  # These last two skip themselves without a GPU.
  local tests=(trainer/model/model_test trainer/trainer_test trainer/trainer_loss_test trainer/updates_test gpu/gpu_test
    patch/patch_cuda_test)
  compile "${found%%$'\n'*}" "$directory" weightcast-bench-learner "${tests[@]##*/}" || return 1
  local -x LD_LIBRARY_PATH=${found#*$'\n'}:${LD_LIBRARY_PATH:-}
  for test in "${tests[@]}"; do
    say "$test, torch $1"
    "$directory/tests/$test" --gtest_brief=1 || failed=1
  done
  say "weightcast-bench-learner, torch $1"
  "$directory/tools/weightcast-bench-learner" sequences=1 tokens=16 repeat=1 init_num_hidden_layers=1 || failed=1
  return "$failed"
}

case ${1:-all} in
  build) build ;;
  run) run "$(readlink -f "${2:-build/gpu/bundle}")" ;;
  all) build && run "$PWD/build/gpu/bundle" ;;
  check)
    shift
    check "$@"
    ;;
  *)
    sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
