#pragma once

namespace weightcast::bench {

/// What the propositions of ROLL Flash (arXiv 2510.11345) take of a batch and of the GPUs that make and train it. The
/// paper has a response per GPU; here a GPU decodes `slots_per_gpu` of them together.
struct BatchWork {
  double slot_s = 0;       ///< N mu: seconds for which slots generate, all together
  double longest_s = 0;    ///< L: of the longest generation
  double train_gpu_s = 0;  ///< of one GPU that trains on the batch, all epochs
  double gpus = 1;         ///< K
  double slots_per_gpu = 1;
};

/// Proposition 1: with queue scheduling on that many GPUs all generations end within N mu / slots + L.
[[nodiscard]] double generation_bound_s(const BatchWork& work, double gpus);

/// Proposition 2, where all GPUs generate and then train: generation_bound_s() of all of them and train / K.
[[nodiscard]] double synchronous_step_bound_s(const BatchWork& work);

/// Proposition 2, where a share beta of the GPUs trains and the others generate with async_generation_ratio alpha, by
/// its equation (9): the larger of N mu / ((1 - beta) K slots) + L / ((alpha + 1) (1 - beta)) and train / (beta K).
/// 0 < beta < 1. It speaks of means.
[[nodiscard]] double asynchronous_step_bound_s(const BatchWork& work, double ratio, double train_share);

/// beta*, by equation (10): the share for which that is least, where both sides are equal. In (0, 1).
[[nodiscard]] double best_train_share(const BatchWork& work, double ratio);

}  // namespace weightcast::bench
