#include "trainer/update/batch_bytes.h"

#include <cstring>

namespace weightcast {
namespace {

template <typename Value>
void put(std::string& bytes, const std::vector<Value>& values) {
  const std::uint64_t count = values.size();
  bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
  bytes.append(reinterpret_cast<const char*>(values.data()), count * sizeof(Value));
}

/// Takes what put() has written off the front of `bytes`. False if it is not there.
template <typename Value>
bool take(std::string_view& bytes, std::vector<Value>& values) {
  std::uint64_t count = 0;
  if (bytes.size() < sizeof count) return false;
  std::memcpy(&count, bytes.data(), sizeof count);
  bytes.remove_prefix(sizeof count);
  if (count > bytes.size() / sizeof(Value)) return false;
  values.resize(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(Value));
  bytes.remove_prefix(count * sizeof(Value));
  return true;
}

/// Whether the columns of a sample fit each other.
bool fits(const Sample& sample) {
  const std::size_t n = sample.tokens.size();
  // Examples of a warm-up have no rewards, and some rollouts no log-probabilities.
  return sample.loss_mask.size() == n && sample.weights.size() == n &&
         (sample.token_rewards.empty() || sample.token_rewards.size() == n) &&
         (sample.rollout_log_probs.empty() || sample.rollout_log_probs.size() == n);
}

}  // namespace

std::string pack_batch(const TrainingBatch& batch) {
  std::string bytes;
  put(bytes, batch.rewards);
  put(bytes, batch.group_ids);
  for (const Sample& sample : batch.samples) {
    put(bytes, sample.tokens);
    put(bytes, sample.loss_mask);
    put(bytes, sample.weights);
    put(bytes, sample.rollout_log_probs);
    put(bytes, sample.token_rewards);
    put(bytes, std::vector<double>{sample.reward});
  }
  return bytes;
}

Result<TrainingBatch> unpack_batch(std::string_view bytes) {
  const auto corrupt = [] { return fail(Errc::kCorrupt, Op::kReceive, "a batch of rank 0: it is cut off or damaged"); };
  TrainingBatch batch;
  if (!take(bytes, batch.rewards) || !take(bytes, batch.group_ids)) return corrupt();
  while (!bytes.empty()) {
    Sample& sample = batch.samples.emplace_back();
    std::vector<double> reward;
    if (!take(bytes, sample.tokens) || !take(bytes, sample.loss_mask) || !take(bytes, sample.weights) ||
        !take(bytes, sample.rollout_log_probs) || !take(bytes, sample.token_rewards) || !take(bytes, reward) ||
        reward.size() != 1 || !fits(sample)) {
      return corrupt();
    }
    sample.reward = reward[0];
  }
  // A warm-up's batch has samples alone.
  const bool is_whole = batch.rewards.size() == batch.samples.size() && batch.group_ids.size() == batch.samples.size();
  if (!is_whole && !(batch.rewards.empty() && batch.group_ids.empty())) return corrupt();
  return batch;
}

}  // namespace weightcast
