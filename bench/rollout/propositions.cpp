#include "bench/rollout/propositions.h"

#include <algorithm>

namespace weightcast::bench {
namespace {

/// Generation on all GPUs, of which a share 1 - beta takes 1 / (1 - beta) times as long.
double generates_s(const BatchWork& work, double ratio) {
  return work.slot_s / (work.gpus * work.slots_per_gpu) + work.longest_s / (ratio + 1);
}

/// Training on all GPUs.
double trains_s(const BatchWork& work) { return work.train_gpu_s / work.gpus; }

}  // namespace

double generation_bound_s(const BatchWork& work, double gpus) {
  return work.slot_s / (gpus * work.slots_per_gpu) + work.longest_s;
}

double synchronous_step_bound_s(const BatchWork& work) { return generation_bound_s(work, work.gpus) + trains_s(work); }

double asynchronous_step_bound_s(const BatchWork& work, double ratio, double train_share) {
  return std::max(generates_s(work, ratio) / (1 - train_share), trains_s(work) / train_share);
}

double best_train_share(const BatchWork& work, double ratio) {
  return trains_s(work) / (trains_s(work) + generates_s(work, ratio));
}

}  // namespace weightcast::bench
