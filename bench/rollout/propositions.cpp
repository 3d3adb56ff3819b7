#include "bench/rollout/propositions.h"

#include <algorithm>

namespace weightcast::bench {
namespace {

double generates_s(const BatchWork& work, double ratio, double train_share) {
  return work.slot_s / ((1 - train_share) * work.gpus * work.slots_per_gpu) + work.longest_s / (ratio + 1);
}

double trains_s(const BatchWork& work, double train_share) { return work.train_gpu_s / (train_share * work.gpus); }

}  // namespace

double generation_bound_s(const BatchWork& work, double gpus) {
  return work.slot_s / (gpus * work.slots_per_gpu) + work.longest_s;
}

double synchronous_step_bound_s(const BatchWork& work) {
  return generation_bound_s(work, work.gpus) + work.train_gpu_s / work.gpus;
}

double asynchronous_step_bound_s(const BatchWork& work, double ratio, double train_share) {
  return std::max(generates_s(work, ratio, train_share), trains_s(work, train_share));
}

double best_train_share(const BatchWork& work, double ratio) {
  // With beta one side grows and the other falls. Sixty halvings are exact in a double.
  double least = 0, most = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (least + most) / 2;
    (trains_s(work, middle) > generates_s(work, ratio, middle) ? least : most) = middle;
  }
  return (least + most) / 2;
}

}  // namespace weightcast::bench
