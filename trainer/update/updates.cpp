#include "trainer/update/updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/draws.h"
#include "trainer/loss/policy_loss.h"
#include "trainer/loss/token_log_probs.h"
#include "trainer/update/packing.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kMiniBatchStream = 3;
constexpr std::uint64_t kDropoutStream = 7;
constexpr std::uint64_t kWarmUpDropoutStream = 9;
constexpr std::string_view kLargestRatio = "rollout_corr/rollout_is_max";
constexpr std::string_view kEffectiveSize = "rollout_corr/rollout_is_eff_sample_size";
const std::string kPasses = "micro_batches";

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

Packed pack_samples(std::span<const Sample> samples, std::span<const std::size_t> members, torch::Device device) {
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
  const auto on_device = [&](const std::vector<std::int64_t>& values) {
    return at::tensor(values, at::kLong).to(device);
  };
  packed.ids = on_device(ids);
  packed.rows = on_device(rows);
  packed.targets = on_device(targets);
  packed.slots = on_device(column);
  return packed;
}

struct Estimates {
  TokenLogProbs tokens;
  torch::Tensor values;  // [m]; undefined without a value head
};

Estimates forward(const Decoder& decoder, const ValueHead* head, const Packed& packed, double temperature) {
  const torch::Tensor hidden = decoder.hidden(packed.ids, packed.starts).index_select(0, packed.rows);
  return {token_log_probs(hidden, decoder.head(), packed.targets, temperature),
          head != nullptr ? (*head)(hidden) : torch::Tensor()};
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
  return matrix.to(packed.ids.device());
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
  input.advantages = matrix([&](std::size_t i, std::size_t p, std::size_t column) {
    return columns.advantages[i][column] * columns.samples[i].weights[p];
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
    input.scores = at::tensor(scores).to(packed.ids.device());
  }
  return input;
}

/// The value head's loss, divided as the policy's is.
Result<ValueLoss> value_loss_of(const Packed& packed, const LossColumns& columns, std::span<const std::size_t> members,
                                const torch::Tensor& values, const UpdateOptions& options,
                                const PolicyLossOptions& loss) {
  const auto matrix = [&](const std::vector<TokenValues>& of) {
    return matrix_of(packed, columns.samples, members,
                     [&](std::size_t i, std::size_t, std::size_t column) { return of[i][column]; });
  };
  const torch::Tensor mask =
      matrix_of(packed, columns.samples, members, [](auto, auto, auto) { return 1.0F; }).to(at::kBool);
  return value_loss(in_matrix(packed, values), matrix(columns.old_values), matrix(columns.returns), mask,
                    options.value_clip_range > 0 ? options.value_clip_range : -1, LossAggMode::kTokenMean,
                    {loss.batch_tokens, loss.batch_sequences, {}});
}

/// The part of `count` that is this rank's: from the first on, and before the second.
std::pair<std::size_t, std::size_t> share_of(std::size_t count, const ProcessGroup* group) {
  if (group == nullptr) return {0, count};
  const std::size_t rank = group->rank(), ranks = group->world_size();
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

/// token_estimates() of which each rank computes a part.
Result<TokenEstimates> shared_estimates(ProcessGroup* group, const Decoder& decoder, const ValueHead* head,
                                        std::span<const Sample> samples, const LearnerConfig& config) {
  const auto [first, last] = share_of(samples.size(), group);
  TokenEstimates mine = token_estimates(decoder, head, samples.subspan(first, last - first), config.temperature,
                                        config.micro_batch_tokens);
  if (group == nullptr) return mine;
  std::string bytes;
  for (const auto* of : {&mine.log_probs, &mine.values}) {
    for (const TokenValues& values : *of) {
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
  }
  WC_ASSIGN(const std::vector<std::string> all, gather_texts(*group, bytes));
  TokenEstimates result;
  result.log_probs.resize(samples.size());
  if (head != nullptr) result.values.resize(samples.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::size_t begin = samples.size() * rank / all.size(), end = samples.size() * (rank + 1) / all.size();
    const char* next = all[rank].data();
    for (auto* of : {&result.log_probs, &result.values}) {
      if (of->empty()) continue;
      for (std::size_t i = begin; i < end; ++i) {
        (*of)[i].resize(count_tokens(samples[i]));
        WC_CHECK(next + (*of)[i].size() * sizeof(float) <= all[rank].data() + all[rank].size());
        std::memcpy((*of)[i].data(), next, (*of)[i].size() * sizeof(float));
        next += (*of)[i].size() * sizeof(float);
      }
    }
  }
  return result;
}

/// Adds up the ranks' metrics, which are sums over micro-batches.
Result<Metrics> add_up(ProcessGroup* group, const Metrics& mine) {
  if (group == nullptr) return mine;
  std::string text;
  for (const auto& [name, value] : mine) text += fmt::format("{} {:a}\n", name, value);
  WC_ASSIGN(const std::vector<std::string> all, gather_texts(*group, text));
  Metrics sum;
  for (const std::string& of_rank : all) {
    for (std::size_t begin = 0; begin < of_rank.size();) {
      const std::size_t space = of_rank.find(' ', begin), end = of_rank.find('\n', begin);
      const std::string name = of_rank.substr(begin, space - begin);
      const double value = std::strtod(of_rank.c_str() + space + 1, nullptr);
      double& metric = sum[name];
      metric = name == kLargestRatio ? std::max(metric, value) : metric + value;
      begin = end + 1;
    }
  }
  return sum;
}

}  // namespace

TokenEstimates token_estimates(const Decoder& decoder, const ValueHead* head, std::span<const Sample> samples,
                               double temperature, std::uint64_t micro_batch_tokens) {
  const at::NoGradGuard no_grad;
  TokenEstimates result;
  result.log_probs.resize(samples.size());
  if (head != nullptr) result.values.resize(samples.size());
  std::vector<std::size_t> all(samples.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (const auto& members : pack(all, lengths_of(samples), micro_batch_tokens)) {
    const Packed packed = pack_samples(samples, members, decoder.options().device);
    const Estimates estimates = forward(decoder, head, packed, temperature);
    const auto deal = [&](const torch::Tensor& values, std::vector<TokenValues>& out) {
      const torch::Tensor host = values.to(at::kCPU).contiguous();
      const float* next = host.data_ptr<float>();
      for (const std::size_t member : members) {
        const std::size_t counted = count_tokens(samples[member]);
        out[member].assign(next, next + counted);
        next += counted;
      }
    };
    deal(estimates.tokens.log_probs, result.log_probs);
    if (head != nullptr) deal(estimates.values, result.values);
  }
  return result;
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
  const ValueHead* head = columns.returns.empty() ? nullptr : policy.value_head();
  const auto [first, last] = share_of(members.size(), policy.group());
  // A sample of which no token counts adds nothing to a sum, and would be one more to the means over passes.
  std::vector<std::size_t> counted;
  for (const std::size_t member : members.subspan(first, last - first)) {
    if (count_tokens(columns.samples[member]) > 0) counted.push_back(member);
  }
  const auto micro_batches = pack(counted, lengths_of(columns.samples), options.micro_batch_tokens);
  metrics[kPasses] = static_cast<double>(micro_batches.size());
  for (std::size_t pass = 0; pass < micro_batches.size(); ++pass) {
    const auto& micro_batch = micro_batches[pass];
    const Packed packed = pack_samples(columns.samples, micro_batch, policy.decoder().options().device);
    if (options.dropout_seed) policy.set_dropout(drawn(*options.dropout_seed, kDropoutStream, first + pass));
    const Estimates current = forward(policy.decoder(), head, packed, options.temperature);
    policy.set_dropout(std::nullopt);
    const PolicyLossInput input = loss_input(packed, columns, micro_batch, current.tokens);
    WC_ASSIGN(const PolicyLoss loss, policy_loss(loss_options, input));
    torch::Tensor total = loss.loss;
    if (head != nullptr) {
      WC_ASSIGN(const ValueLoss value,
                value_loss_of(packed, columns, micro_batch, current.values, options, loss_options));
      metrics["critic/vf_loss"] += value.loss.item<double>();
      metrics["critic/vf_clipfrac"] += value.clipped_share.item<double>();
      total = total + options.value_loss_coef * value.loss;
    }
    policy.backward(total, pass + 1 == micro_batches.size());
    for (const auto& [name, value] : loss.metrics) {
      const double number = value.item<double>();
      double& metric = metrics[std::string(name)];
      if (name == kLargestRatio) {
        metric = std::max(metric, number);
      } else {
        metric += number;
      }
    }
  }
  WC_ASSIGN(const AdamWUpdate update, policy.update(options.learning_rate));
  WC_ASSIGN(metrics, add_up(policy.group(), metrics));
  if (const auto size = metrics.find(kEffectiveSize); size != metrics.end()) size->second /= metrics[kPasses];
  metrics.erase(kPasses);
  metrics["actor/grad_norm"] = update.grad_norm;
  metrics["actor/skipped_updates"] = update.applied ? 0 : 1;
  metrics["actor/lr"] = options.learning_rate;
  if (head == nullptr) return metrics;
  WC_ASSIGN(const AdamWUpdate of_head, policy.update_value_head(options.value_learning_rate));
  metrics["critic/grad_norm"] = of_head.grad_norm;
  return metrics;
}

Result<Metrics> warm_up_update(Policy& policy, std::span<const Sample> samples, const LearnerConfig& config,
                               std::uint64_t update) {
  UpdateOptions options;
  options.loss.pg_variant = PgVariant::kReinforce;
  options.learning_rate = config.sft_learning_rate;
  options.micro_batch_tokens = config.micro_batch_tokens;
  options.dropout_seed = drawn(config.seed, kWarmUpDropoutStream, update);
  LossColumns columns;
  columns.samples = samples;
  std::vector<std::size_t> all(samples.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (const Sample& sample : samples) columns.advantages.emplace_back(sample.tokens.size(), 1.0F);
  return update_once(policy, columns, all, options);
}

Result<Metrics> train_step(Policy& policy, const Decoder* reference, const TrainingBatch& batch,
                           const LearnerConfig& config, std::uint64_t step) {
  UpdateOptions options;
  WC_ASSIGN(options.loss, loss_options(config));
  options.temperature = config.temperature;
  options.micro_batch_tokens = config.micro_batch_tokens;
  options.value_loss_coef = config.value_loss_coef;
  options.value_clip_range = config.value_clip_range;
  options.value_learning_rate = config.value_learning_rate;
  WC_ASSIGN(const LearningRateSchedule schedule, learning_rate_schedule(config));
  const std::uint64_t updates = config.updates_per_step * config.ppo_epochs;

  LossColumns columns;
  columns.samples = batch.samples;
  columns.scores = batch.rewards;
  const bool has_logprobs = std::all_of(batch.samples.begin(), batch.samples.end(),
                                        [](const Sample& sample) { return !sample.rollout_log_probs.empty(); });
  columns.has_rollout_log_probs = has_logprobs && config.behaviour_logprobs == BehaviourLogprobs::kGiven;
  StepEstimates estimates;
  if (updates > 1 || config.kl_reward_coef > 0 || policy.value_head() != nullptr) {
    WC_ASSIGN(TokenEstimates now,
              shared_estimates(policy.group(), policy.decoder(), policy.value_head(), batch.samples, config));
    estimates.log_probs = std::move(now.log_probs);
    estimates.values = std::move(now.values);
  }
  if (reference != nullptr) {
    WC_ASSIGN(TokenEstimates of_reference,
              shared_estimates(policy.group(), *reference, nullptr, batch.samples, config));
    estimates.ref_log_probs = std::move(of_reference.log_probs);
  }
  WC_ASSIGN(StepAdvantages step_result, step_advantages(batch, estimates, config));
  columns.advantages = std::move(step_result.advantages);
  columns.returns = std::move(step_result.returns);
  columns.old_log_probs = std::move(estimates.log_probs);
  columns.ref_log_probs = std::move(estimates.ref_log_probs);
  columns.old_values = std::move(estimates.values);

  Metrics means = std::move(step_result.metrics);
  for (std::uint64_t epoch = 0; epoch < config.ppo_epochs; ++epoch) {
    const auto order = shuffled(batch.size(), drawn(config.seed, kMiniBatchStream, step * config.ppo_epochs + epoch));
    const auto parts = divide(order, config.updates_per_step);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const std::uint64_t update = step * updates + epoch * config.updates_per_step + part;
      options.learning_rate = learning_rate(schedule, update);
      options.dropout_seed = drawn(config.seed, kDropoutStream, update);
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
