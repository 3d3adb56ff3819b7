#include "trainer/learner/updates.h"

#include <algorithm>
#include <cmath>

#include "trainer/learner/packing.h"
#include "trainer/learner/prompts.h"
#include "trainer/loss/policy_loss.h"
#include "trainer/loss/token_log_probs.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kMiniBatchStream = 3;
constexpr std::string_view kLargestRatio = "rollout_corr/rollout_is_max";
constexpr std::string_view kEffectiveSize = "rollout_corr/rollout_is_eff_sample_size";

bool counts(const Sample& sample, std::size_t position) { return position > 0 && sample.loss_mask[position] != 0; }

/// Sequences one after the other, and where their tokens that count stand in [sequences, columns].
struct Packed {
  torch::Tensor ids;                 // [tokens]
  std::vector<std::int64_t> starts;  // of each sequence
  torch::Tensor rows;                // [m]: the positions whose hidden states predict a token that counts
  torch::Tensor targets;             // [m]: those tokens
  torch::Tensor slots;               // [m]: sequence * columns + column
  std::int64_t sequences = 0;
  std::int64_t columns = 0;
};

Packed pack_samples(std::span<const Sample> samples, std::span<const std::size_t> members) {
  Packed packed;
  packed.sequences = static_cast<std::int64_t>(members.size());
  std::vector<std::int64_t> ids, rows, targets, sequence, column;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const Sample& sample = samples[members[m]];
    const auto start = static_cast<std::int64_t>(ids.size());
    packed.starts.push_back(start);
    std::int64_t counted = 0;
    for (std::size_t p = 0; p < sample.tokens.size(); ++p) {
      ids.push_back(sample.tokens[p]);
      if (!counts(sample, p)) continue;
      rows.push_back(start + static_cast<std::int64_t>(p) - 1);
      targets.push_back(sample.tokens[p]);
      sequence.push_back(static_cast<std::int64_t>(m));
      column.push_back(counted++);
    }
    packed.columns = std::max(packed.columns, counted);
  }
  for (std::size_t i = 0; i < column.size(); ++i) column[i] += sequence[i] * packed.columns;
  packed.ids = at::tensor(ids, at::kLong);
  packed.rows = at::tensor(rows, at::kLong);
  packed.targets = at::tensor(targets, at::kLong);
  packed.slots = at::tensor(column, at::kLong);
  return packed;
}

TokenLogProbs forward(const Decoder& decoder, const Packed& packed, double temperature) {
  const torch::Tensor hidden = decoder.hidden(packed.ids, packed.starts).index_select(0, packed.rows);
  return token_log_probs(hidden, decoder.head(), packed.targets, temperature);
}

torch::Tensor in_matrix(const Packed& packed, const torch::Tensor& values) {
  return at::zeros({packed.sequences * packed.columns}, values.options())
      .index_copy(0, packed.slots, values)
      .view({packed.sequences, packed.columns});
}

/// [sequences, columns] of what `value_of` gives for each token that counts: (sample, position, column).
template <typename ValueOf>
torch::Tensor matrix_of(const Packed& packed, std::span<const Sample> samples, std::span<const std::size_t> members,
                        const ValueOf& value_of) {
  torch::Tensor matrix = at::zeros({packed.sequences, packed.columns}, at::kFloat);
  auto* out = matrix.data_ptr<float>();
  for (std::size_t m = 0; m < members.size(); ++m) {
    std::size_t column = 0;
    for (std::size_t p = 0; p < samples[members[m]].tokens.size(); ++p) {
      if (!counts(samples[members[m]], p)) continue;
      out[m * static_cast<std::size_t>(packed.columns) + column] = value_of(members[m], p, column);
      ++column;
    }
  }
  return matrix;
}

std::size_t count_tokens(const Sample& sample) {
  std::size_t counted = 0;
  for (std::size_t p = 0; p < sample.tokens.size(); ++p) counted += counts(sample, p) ? 1 : 0;
  return counted;
}

std::vector<std::size_t> lengths_of(std::span<const Sample> samples) {
  std::vector<std::size_t> lengths;
  for (const Sample& sample : samples) lengths.push_back(sample.tokens.size());
  return lengths;
}

PolicyLossInput loss_input(const Packed& packed, const LossColumns& columns, std::span<const std::size_t> members,
                           const TokenLogProbs& current) {
  const auto matrix = [&](const auto& value_of) { return matrix_of(packed, columns.samples, members, value_of); };
  PolicyLossInput input;
  input.log_probs = in_matrix(packed, current.log_probs);
  input.entropy = in_matrix(packed, current.entropy);
  input.response_mask = matrix([](auto, auto, auto) { return 1.0F; }).to(at::kBool);
  input.advantages = matrix([&](std::size_t i, std::size_t p, std::size_t) {
    return static_cast<float>(columns.advantages[i]) * columns.samples[i].weights[p];
  });
  // With a single update the policy at the step's start is the one that learns.
  input.old_log_probs =
      columns.old_log_probs.empty()
          ? input.log_probs.detach()
          : matrix([&](std::size_t i, std::size_t, std::size_t column) { return columns.old_log_probs[i][column]; });
  if (columns.has_rollout_log_probs) {
    input.rollout_log_probs =
        matrix([&](std::size_t i, std::size_t p, std::size_t) { return columns.samples[i].rollout_log_probs[p]; });
  }
  if (!columns.ref_log_probs.empty()) {
    input.ref_log_probs =
        matrix([&](std::size_t i, std::size_t, std::size_t column) { return columns.ref_log_probs[i][column]; });
  }
  if (!columns.scores.empty()) {
    std::vector<float> scores;
    for (const std::size_t member : members) scores.push_back(static_cast<float>(columns.scores[member]));
    input.scores = at::tensor(scores);
  }
  return input;
}

}  // namespace

std::vector<TokenValues> token_values(const Decoder& decoder, std::span<const Sample> samples, double temperature,
                                      std::uint64_t micro_batch_tokens) {
  const at::NoGradGuard no_grad;
  std::vector<TokenValues> values(samples.size());
  std::vector<std::size_t> all(samples.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  for (const auto& members : pack(all, lengths_of(samples), micro_batch_tokens)) {
    const Packed packed = pack_samples(samples, members);
    const torch::Tensor log_probs = forward(decoder, packed, temperature).log_probs.contiguous();
    const float* next = log_probs.data_ptr<float>();
    for (const std::size_t member : members) {
      const std::size_t counted = count_tokens(samples[member]);
      values[member].assign(next, next + counted);
      next += counted;
    }
  }
  return values;
}

Result<Metrics> update_once(Policy& policy, const LossColumns& columns, std::span<const std::size_t> members,
                            const UpdateOptions& options) {
  PolicyLossOptions loss_options = options.loss;
  double tokens = 0, sequences = 0;
  for (const std::size_t member : members) {
    const std::size_t counted = count_tokens(columns.samples[member]);
    tokens += static_cast<double>(counted);
    sequences += counted > 0 ? 1 : 0;
  }
  loss_options.batch_tokens = std::max(1.0, tokens);
  loss_options.batch_sequences = std::max(1.0, sequences);

  Metrics metrics;
  const auto micro_batches = pack(members, lengths_of(columns.samples), options.micro_batch_tokens);
  for (const auto& micro_batch : micro_batches) {
    const Packed packed = pack_samples(columns.samples, micro_batch);
    if (packed.columns == 0) continue;
    const TokenLogProbs current = forward(policy.decoder(), packed, options.temperature);
    WC_ASSIGN(const PolicyLoss loss, policy_loss(loss_options, loss_input(packed, columns, micro_batch, current)));
    policy.backward(loss.loss);
    for (const auto& [name, value] : loss.metrics) {
      const double number = value.item<double>();
      double& metric = metrics[std::string(name)];
      if (name == kLargestRatio) {
        metric = std::max(metric, number);
      } else {
        metric += name == kEffectiveSize ? number / static_cast<double>(micro_batches.size()) : number;
      }
    }
  }
  WC_ASSIGN(const AdamWUpdate update, policy.update(options.learning_rate));
  metrics["actor/grad_norm"] = update.grad_norm;
  metrics["actor/skipped_updates"] = update.applied ? 0 : 1;
  metrics["actor/lr"] = options.learning_rate;
  return metrics;
}

Result<Metrics> train_step(Policy& policy, const Decoder* reference, const TrainingBatch& batch,
                           const LearnerConfig& config, std::uint64_t step) {
  UpdateOptions options;
  WC_ASSIGN(options.loss, loss_options(config));
  options.temperature = config.temperature;
  options.micro_batch_tokens = config.micro_batch_tokens;
  WC_ASSIGN(const LearningRateSchedule schedule, learning_rate_schedule(config));
  const std::uint64_t updates = config.updates_per_step * config.ppo_epochs;

  LossColumns columns{batch.samples, batch.advantages, batch.rewards, {}, {}, false};
  const bool has_logprobs = std::all_of(batch.samples.begin(), batch.samples.end(),
                                        [](const Sample& sample) { return !sample.rollout_log_probs.empty(); });
  columns.has_rollout_log_probs = has_logprobs && config.behaviour_logprobs == "given";
  if (updates > 1) {
    columns.old_log_probs =
        token_values(policy.decoder(), batch.samples, config.temperature, config.micro_batch_tokens);
  }
  if (reference != nullptr) {
    columns.ref_log_probs = token_values(*reference, batch.samples, config.temperature, config.micro_batch_tokens);
  }

  Metrics means;
  for (std::uint64_t epoch = 0; epoch < config.ppo_epochs; ++epoch) {
    const auto order = shuffled(batch.size(), drawn(config.seed, kMiniBatchStream, step * config.ppo_epochs + epoch));
    const auto parts = divide(order, config.updates_per_step);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const std::uint64_t update = step * updates + epoch * config.updates_per_step + part;
      options.learning_rate = learning_rate(schedule, update);
      WC_ASSIGN(const Metrics metrics, update_once(policy, columns, parts[part], options));
      for (const auto& [name, value] : metrics) {
        double& mean = means[name];
        mean = name == kLargestRatio ? std::max(mean, value) : mean + value / static_cast<double>(updates);
      }
    }
  }
  return means;
}

}  // namespace weightcast
