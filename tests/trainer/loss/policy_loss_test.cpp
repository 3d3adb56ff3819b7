#include "trainer/loss/policy_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/random.h"
#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {
namespace {

using torch::Tensor;
using Rows = std::vector<std::vector<double>>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor tensor_of(const Rows& rows) {
  std::vector<double> cells;
  for (const auto& row : rows) cells.insert(cells.end(), row.begin(), row.end());
  return torch::tensor(cells, torch::kDouble)
      .reshape({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
}

double at(const Tensor& matrix, std::size_t i, std::size_t j) {
  return matrix[static_cast<std::int64_t>(i)][static_cast<std::int64_t>(j)].item<double>();
}

/// A batch in plain numbers.
struct Batch {
  Rows log_probs, old, rollout, ref, entropy, advantages, mask;
  std::vector<double> scores;

  [[nodiscard]] PolicyLossInput tensors() const {
    return {.log_probs = tensor_of(log_probs).requires_grad_(),
            .old_log_probs = tensor_of(old),
            .rollout_log_probs = tensor_of(rollout),
            .ref_log_probs = tensor_of(ref),
            .entropy = tensor_of(entropy).requires_grad_(),
            .advantages = tensor_of(advantages),
            .response_mask = tensor_of(mask) == 1,
            .scores = torch::tensor(scores, torch::kDouble)};
  }
};

Batch draw_batch(Random& random, std::size_t sequences, std::size_t tokens) {
  const auto matrix = [&](double low, double high) {
    Rows rows(sequences, std::vector<double>(tokens));
    for (auto& row : rows) {
      for (double& cell : row) cell = low + (high - low) * random.unit();
    }
    return rows;
  };
  Batch batch{.log_probs = matrix(-3, -0.1),
              .old = matrix(-0.6, 0.6),
              .rollout = matrix(-0.5, 0.5),
              .ref = matrix(-0.7, 0.7),
              .entropy = matrix(0, 2),
              .advantages = matrix(-2, 2),
              .mask = matrix(0, 1),
              .scores = {}};
  for (std::size_t i = 0; i < sequences; ++i) {
    batch.scores.push_back(random.chance(0.5) ? 1 : -0.5);
    for (std::size_t j = 0; j < tokens; ++j) {
      batch.mask[i][j] = batch.mask[i][j] < 0.7 && i != 2 ? 1 : 0;  // of sequence 2 nothing counts
      batch.old[i][j] += batch.log_probs[i][j];
      batch.rollout[i][j] += batch.old[i][j];
      batch.ref[i][j] += batch.log_probs[i][j];
    }
  }
  return batch;
}

/// The definitions, one token at a time. `frozen` has log_probs where a ratio has no gradient, so that a difference of
/// `log_probs` alone is the derivative.
double reference_loss(const PolicyLossOptions& o, const Batch& b, const Rows& log_probs, const Rows& frozen) {
  const auto clip = [](double x, std::optional<double> low, std::optional<double> high) {
    if (low) x = std::max(x, *low);
    if (high) x = std::min(x, *high);
    return x;
  };
  const auto low_of = [&] { return o.clip_ratio_low ? std::optional(1 - *o.clip_ratio_low) : std::nullopt; };
  const auto high_of = [&] { return o.clip_ratio_high ? std::optional(1 + *o.clip_ratio_high) : std::nullopt; };
  double token_sum = 0, tokens = 0, mean_sum = 0, sequences = 0;
  for (std::size_t i = 0; i < log_probs.size(); ++i) {
    double sequence_r = 0, sequence_w = 0, sum = 0, count = 0;
    for (std::size_t j = 0; j < log_probs[i].size(); ++j) {
      if (b.mask[i][j] == 0) continue;
      sequence_r += frozen[i][j] - b.rollout[i][j];
      sequence_w += b.old[i][j] - b.rollout[i][j];
    }
    for (std::size_t j = 0; j < log_probs[i].size(); ++j) {
      if (b.mask[i][j] == 0) continue;
      const double lp = log_probs[i][j], advantage = b.advantages[i][j];
      const double r = std::exp(o.ratio_level == RatioLevel::kToken ? frozen[i][j] - b.rollout[i][j] : sequence_r);
      const auto surrogate = [&](double base, bool dual) {
        const double ratio = std::exp(lp - base);
        double loss = std::max(-ratio * advantage, -clip(ratio, low_of(), high_of()) * advantage);
        if (dual && o.clip_ratio_c && advantage < 0) loss = std::min(loss, -advantage * *o.clip_ratio_c);
        return loss;
      };
      double term = 0;
      switch (o.pg_variant) {
        case PgVariant::kPpo: term = surrogate(b.old[i][j], true); break;
        case PgVariant::kDecoupledPpo: {
          const double w = std::exp(o.tis_level == RatioLevel::kToken ? b.old[i][j] - b.rollout[i][j] : sequence_w);
          term = clip(w, {}, o.tis_cap) * surrogate(b.old[i][j], true);
          break;
        }
        case PgVariant::kTis:
          term = -clip(r, o.ratio_low.value_or(0), o.ratio_high.value_or(1)) * advantage * lp;
          break;
        case PgVariant::kCispo: term = -clip(r, low_of(), high_of()) * advantage * lp; break;
        case PgVariant::kTopr:
        case PgVariant::kWeightedTopr: {
          const bool weighted = o.pg_variant == PgVariant::kWeightedTopr;
          term = b.scores[i] > 0 ? -advantage * lp * (weighted ? o.topr_weight_positive : 1)
                                 : -clip(r, o.ratio_low.value_or(0), o.ratio_high.value_or(1)) * advantage * lp *
                                       (weighted ? o.topr_weight_negative : 1);
          break;
        }
        case PgVariant::kReinforce: term = -advantage * lp; break;
        case PgVariant::kEcho2: term = surrogate(b.rollout[i][j], false); break;
      }
      if (o.tis_cap && o.pg_variant != PgVariant::kDecoupledPpo) {
        const double log_w = o.tis_level == RatioLevel::kToken ? b.old[i][j] - b.rollout[i][j] : sequence_w;
        term *= std::min(std::exp(log_w), *o.tis_cap);
      }
      const double d = lp - b.ref[i][j];
      const double kl[] = {d, d * d / 2, std::exp(-d) - 1 + d};
      term += o.kl_loss_coef * kl[static_cast<std::size_t>(o.kl_loss_type)];
      if (o.pg_variant == PgVariant::kEcho2) term *= clip(std::exp(frozen[i][j] - b.rollout[i][j]), {}, o.ratio_high);
      term -= o.entropy_coeff * b.entropy[i][j];
      sum += term;
      ++count;
    }
    token_sum += sum;
    tokens += count;
    if (count == 0) continue;
    mean_sum += sum / count;
    ++sequences;
  }
  switch (o.loss_agg_mode) {
    case LossAggMode::kTokenMean: return token_sum / tokens;
    case LossAggMode::kSeqMeanTokenSum: return token_sum / sequences;
    case LossAggMode::kSeqMeanTokenMean: return mean_sum / sequences;
    case LossAggMode::kSeqMeanTokenSumNorm:
      return token_sum / sequences / o.horizon.value_or(static_cast<double>(log_probs[0].size()));
  }
  return kNan;
}

constexpr LossAggMode kModes[] = {LossAggMode::kTokenMean, LossAggMode::kSeqMeanTokenSum,
                                  LossAggMode::kSeqMeanTokenMean, LossAggMode::kSeqMeanTokenSumNorm};

/// Every variant with every aggregation; the other switches take turns.
std::vector<PolicyLossOptions> all_options() {
  std::vector<PolicyLossOptions> all;
  for (std::size_t variant = 0; variant < kWords<PgVariant>.size(); ++variant) {
    for (const LossAggMode mode : kModes) {
      for (int turn = 0; turn < 4; ++turn) {
        PolicyLossOptions o;
        o.pg_variant = static_cast<PgVariant>(variant);
        o.loss_agg_mode = mode;
        if (turn != 3) o.clip_ratio_low = 0.2;
        if (turn != 2) o.clip_ratio_high = 0.28;
        if (turn % 2 == 0) o.clip_ratio_c = 1.5;
        if (turn == 1) o.ratio_low = 0.8;
        if (turn != 0) o.ratio_high = 1.1;
        if (turn == 3) o.ratio_level = RatioLevel::kSequence;
        o.topr_weight_positive = 0.5;
        o.topr_weight_negative = 2;
        const bool takes_cap = o.pg_variant == PgVariant::kPpo || o.pg_variant == PgVariant::kDecoupledPpo ||
                               o.pg_variant == PgVariant::kReinforce;
        if (turn == 1 && takes_cap) o.tis_cap = 1.2;
        if (turn == 2 && takes_cap) {
          o.tis_cap = 1.5;
          o.tis_level = RatioLevel::kSequence;
        }
        if (turn != 0) {
          o.kl_loss_type = static_cast<KlType>(turn - 1);
          o.kl_loss_coef = 0.3;
          o.entropy_coeff = 0.1;
        }
        if (turn == 3) o.horizon = 17;
        all.push_back(o);
      }
    }
  }
  return all;
}

std::string name_of(const PolicyLossOptions& o) {
  return std::string(to_string(o.pg_variant)) + ", mode " + std::to_string(static_cast<int>(o.loss_agg_mode)) +
         ", kl " + std::to_string(static_cast<int>(o.kl_loss_type));
}

PolicyLoss computed(const PolicyLossOptions& options, const PolicyLossInput& input) {
  auto result = policy_loss(options, input);
  EXPECT_TRUE(result.has_value()) << result.error().detail;
  return std::move(*result);
}

std::map<std::string, double> metrics_of(const PolicyLoss& loss) {
  std::map<std::string, double> values;
  for (const PolicyLossMetric& metric : loss.metrics) values[std::string(metric.name)] = metric.value.item<double>();
  return values;
}

TEST(PolicyLoss, FollowsTheDefinitionsAndTheirDifferences) {
  Random random(11);
  for (const PolicyLossOptions& options : all_options()) {
    const Batch batch = draw_batch(random, 4, 5);
    const PolicyLossInput input = batch.tensors();
    const PolicyLoss loss = computed(options, input);
    const double wanted = reference_loss(options, batch, batch.log_probs, batch.log_probs);
    ASSERT_NEAR(loss.loss.item<double>(), wanted, 1e-12) << name_of(options);
    loss.loss.backward();
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t j = 0; j < 5; ++j) {
        constexpr double kStep = 1e-6;
        Rows above = batch.log_probs, below = batch.log_probs;
        above[i][j] += kStep;
        below[i][j] -= kStep;
        const double difference = (reference_loss(options, batch, above, batch.log_probs) -
                                   reference_loss(options, batch, below, batch.log_probs)) /
                                  (2 * kStep);
        ASSERT_NEAR(at(input.log_probs.grad(), i, j), difference, 1e-8) << name_of(options) << " " << i << " " << j;
      }
    }
    if (options.entropy_coeff != 0) {
      Batch more = batch;
      more.entropy[0][0] += 1;
      const double difference = reference_loss(options, more, more.log_probs, more.log_probs) - wanted;
      ASSERT_NEAR(at(input.entropy.grad(), 0, 0), difference, 1e-10) << name_of(options);
    }
  }
}

TEST(PolicyLoss, WhatTheMaskLeavesOutNeverLeaks) {
  Random random(12);
  for (const PolicyLossOptions& options : all_options()) {
    const Batch batch = draw_batch(random, 4, 5);
    const PolicyLossInput clean_input = batch.tensors();
    const PolicyLoss clean = computed(options, clean_input);
    clean.loss.backward();
    for (const double poison : {kNan, std::numeric_limits<double>::infinity(), -1e300}) {
      Batch poisoned = batch;
      for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t j = 0; j < 5; ++j) {
          if (batch.mask[i][j] != 0) continue;
          for (Rows* rows : {&poisoned.log_probs, &poisoned.old, &poisoned.rollout, &poisoned.ref, &poisoned.entropy,
                             &poisoned.advantages}) {
            (*rows)[i][j] = poison;
          }
        }
      }
      poisoned.scores[2] = poison;
      const PolicyLossInput input = poisoned.tensors();
      const PolicyLoss loss = computed(options, input);
      loss.loss.backward();
      ASSERT_EQ(loss.loss.item<double>(), clean.loss.item<double>()) << name_of(options);
      ASSERT_TRUE(torch::equal(loss.per_token * input.response_mask, loss.per_token)) << name_of(options);
      ASSERT_TRUE(torch::equal(loss.per_token, clean.per_token)) << name_of(options);
      ASSERT_TRUE(torch::equal(input.log_probs.grad(), clean_input.log_probs.grad())) << name_of(options);
      if (options.entropy_coeff != 0) {
        ASSERT_TRUE(torch::equal(input.entropy.grad(), clean_input.entropy.grad())) << name_of(options);
      }
      ASSERT_EQ(metrics_of(loss), metrics_of(clean)) << name_of(options);
    }
  }
}

TEST(PolicyLoss, IsZeroWhereNothingCounts) {
  Random random(13);
  Batch batch = draw_batch(random, 3, 4);
  for (auto& row : batch.mask) row.assign(4, 0);
  for (auto& row : batch.log_probs) row.assign(4, kNan);
  for (const PolicyLossOptions& options : all_options()) {
    const PolicyLossInput input = batch.tensors();
    const PolicyLoss loss = computed(options, input);
    loss.loss.backward();
    ASSERT_EQ(loss.loss.item<double>(), 0) << name_of(options);
    ASSERT_EQ(input.log_probs.grad().abs().max().item<double>(), 0) << name_of(options);
    for (const auto& [name, value] : metrics_of(loss)) ASSERT_EQ(value, 0) << name_of(options) << " " << name;
  }
}

TEST(PolicyLoss, PartsOfABatchAddUp) {
  Random random(14);
  for (PolicyLossOptions options : all_options()) {
    const Batch batch = draw_batch(random, 6, 5);
    const PolicyLossInput whole = batch.tensors();
    const PolicyLoss loss = computed(options, whole);
    loss.loss.backward();
    const auto whole_metrics = metrics_of(loss);

    options.batch_tokens = whole.response_mask.sum().item<double>();
    options.batch_sequences = (whole.response_mask.sum(-1) > 0).sum().item<double>();
    double sum = 0;
    std::map<std::string, double> metrics;
    for (const std::int64_t first : {0, 2}) {
      const std::int64_t count = first == 0 ? 2 : 4;
      const auto part = [&](const Tensor& t) { return t.detach().narrow(0, first, count); };
      PolicyLossInput input{part(whole.log_probs).requires_grad_(),
                            part(whole.old_log_probs),
                            part(whole.rollout_log_probs),
                            part(whole.ref_log_probs),
                            part(whole.entropy),
                            part(whole.advantages),
                            part(whole.response_mask),
                            part(whole.scores)};
      const PolicyLoss of_part = computed(options, input);
      of_part.loss.backward();
      sum += of_part.loss.item<double>();
      for (const auto& [name, value] : metrics_of(of_part)) metrics[name] += value;
      const Tensor difference = input.log_probs.grad() - part(whole.log_probs.grad());
      ASSERT_LE(difference.abs().max().item<double>(), 1e-15) << name_of(options);
    }
    ASSERT_NEAR(sum, loss.loss.item<double>(), 1e-12) << name_of(options);
    for (const auto& [name, value] : whole_metrics) {
      if (name.ends_with("_max") || name.ends_with("_size")) continue;
      ASSERT_NEAR(metrics[name], value, 1e-12) << name_of(options) << " " << name;
    }
  }
}

/// (24)-(25) of ECHO-2: min(r, C) times surrogate and KL together.
TEST(PolicyLoss, Echo2WeighsItsKl) {
  PolicyLossInput input;
  input.log_probs = tensor_of({{-1, -1}}).requires_grad_();
  input.rollout_log_probs = tensor_of({{-1 - std::log(8.0), -1 + std::log(2.0)}});
  input.ref_log_probs = tensor_of({{-1.5, -1.5}});
  input.advantages = tensor_of({{0, 0}});
  const PolicyLossOptions options{
      .pg_variant = PgVariant::kEcho2, .ratio_high = 3, .kl_loss_type = KlType::kK1, .kl_loss_coef = 0.1};
  const PolicyLoss loss = computed(options, input);
  loss.loss.backward();
  EXPECT_NEAR(at(loss.per_token, 0, 0), 3 * 0.1 * 0.5, 1e-12);
  EXPECT_NEAR(at(loss.per_token, 0, 1), 0.5 * 0.1 * 0.5, 1e-12);
  EXPECT_NEAR(at(input.log_probs.grad(), 0, 0), 3 * 0.1 / 2, 1e-12);
  EXPECT_NEAR(metrics_of(loss).at("actor/kl_loss"), 0.5, 1e-12) << "the divergence itself";
}

TEST(PolicyLoss, RefusesToCountAMismatchTwice) {
  for (std::size_t i = 0; i < kWords<PgVariant>.size(); ++i) {
    const auto variant = static_cast<PgVariant>(i);
    const bool takes_cap =
        variant == PgVariant::kPpo || variant == PgVariant::kDecoupledPpo || variant == PgVariant::kReinforce;
    const Status status = validate({.pg_variant = variant, .tis_cap = 2});
    EXPECT_EQ(status.has_value(), takes_cap) << to_string(variant);
    if (takes_cap) continue;
    EXPECT_EQ(status.error().code, Errc::kInvalidArgument);
    EXPECT_EQ(status.error().detail.find("tis_cap is 2, and pg_variant '" + std::string(to_string(variant)) + "'"), 0u)
        << status.error().detail;
  }
}

TEST(PolicyLoss, MetricsMeasureTheMismatchOfSamplerAndLearner) {
  PolicyLossInput input;
  input.log_probs = tensor_of({{-1, -1, kNan}, {-1, -1, -1}});
  input.old_log_probs = tensor_of({{-1, -1, kNan}, {-1, -1, -1}});
  input.rollout_log_probs = tensor_of({{-1 - std::log(3.0), -1, 5}, {-1, -1 + std::log(2.0), -1}});
  input.advantages = tensor_of({{1, 1, 1}, {1, 1, 1}});
  input.response_mask = tensor_of({{1, 1, 0}, {1, 1, 0}}) == 1;
  const auto metrics = metrics_of(computed({.tis_cap = 2}, input));
  const double k3 = (3 - 1 - std::log(3.0)) + (0.5 - 1 + std::log(2.0));
  EXPECT_NEAR(metrics.at("rollout_corr/kl"), (-std::log(3.0) + std::log(2.0)) / 4, 1e-12);
  EXPECT_NEAR(metrics.at("rollout_corr/k3_kl"), k3 / 4, 1e-12);
  EXPECT_NEAR(metrics.at("rollout_corr/rollout_is_mean"), (2 + 1 + 1 + 0.5) / 4, 1e-12);
  EXPECT_NEAR(metrics.at("rollout_corr/rollout_is_max"), 2, 1e-12);
  EXPECT_NEAR(metrics.at("rollout_corr/rollout_is_eff_sample_size"), 4.5 * 4.5 / (4 * (4 + 1 + 1 + 0.25)), 1e-12);
}

TEST(PolicyLoss, KlInTheReward) {
  const Tensor penalty =
      kl_penalty(KlType::kK3, 0.5, tensor_of({{-1, kNan}}), tensor_of({{-2, kNan}}), tensor_of({{1, 0}}) == 1);
  EXPECT_NEAR(at(penalty, 0, 0), 0.5 * (std::exp(-1.0) - 1 + 1), 1e-12);
  EXPECT_EQ(at(penalty, 0, 1), 0);
}

/// A learner far from the sampler must not make infinities of finite inputs.
TEST(PolicyLoss, LogRatiosAreBounded) {
  for (const PolicyLossOptions& options : all_options()) {
    Random random(15);
    Batch batch = draw_batch(random, 3, 4);
    for (auto& row : batch.rollout) row.assign(4, -900);
    for (auto& row : batch.old) row.assign(4, -2000);
    for (auto& row : batch.ref) row.assign(4, -1e-3);
    PolicyLossInput input = batch.tensors();
    const auto single = [](const Tensor& t) { return t.detach().to(torch::kFloat); };
    input.log_probs = single(input.log_probs).requires_grad_();
    input.entropy = single(input.entropy);
    const PolicyLoss loss = computed(options, input);
    loss.loss.backward();
    ASSERT_TRUE(std::isfinite(loss.loss.item<double>())) << name_of(options);
    ASSERT_TRUE(torch::isfinite(input.log_probs.grad()).all().item<bool>()) << name_of(options);
  }
}

TEST(PolicyLoss, IsFiniteInFp32AtTheBoundsOfWhatIsAdmitted) {
  constexpr float kLeast = TrajectoryRules::kLogprobMin;
  constexpr float kAdvantage = 4 * static_cast<float>(TrajectoryRules::kRewardMax);  // rloo, of two
  // What the sampler says against what the learner finds, for each sign of the advantage.
  const std::vector<float> log_probs{-0.1F, -90, -0.1F, -90}, rollout{kLeast, 0, 0, kLeast};
  for (const std::string_view name : kWords<PgVariant>) {
    for (const RatioLevel level : {RatioLevel::kToken, RatioLevel::kSequence}) {
      for (const float advantage : {kAdvantage, -kAdvantage}) {
        PolicyLossInput input;
        input.log_probs = torch::tensor(log_probs).reshape({1, 4}).requires_grad_();
        input.old_log_probs = torch::tensor({-50.0F, -50.0F, -50.0F, -50.0F}).reshape({1, 4});
        input.rollout_log_probs = torch::tensor(rollout).reshape({1, 4});
        input.advantages = torch::full({1, 4}, advantage);
        input.scores = torch::tensor({advantage});
        // The others weigh against the sampler themselves.
        const bool takes_cap = name == "ppo" || name == "decoupled_ppo" || name == "reinforce";
        const auto loss = policy_loss({.pg_variant = parse_pg_variant(name).value(),
                                       .ratio_high = 1e6,
                                       .ratio_level = level,
                                       .tis_cap = takes_cap ? std::optional(1e6) : std::nullopt,
                                       .tis_level = level},
                                      input);
        ASSERT_TRUE(loss.has_value()) << loss.error().message();
        loss->loss.backward();
        EXPECT_TRUE(loss->loss.isfinite().item<bool>()) << name;
        EXPECT_TRUE(input.log_probs.grad().isfinite().all().item<bool>()) << name;
        for (const auto& [metric, value] : loss->metrics) EXPECT_TRUE(value.isfinite().item<bool>()) << name << metric;
      }
    }
  }
}

TEST(PolicyLoss, RefusesBadInput) {
  PolicyLossInput input;
  const auto refusal = [&](const PolicyLossOptions& options) { return policy_loss(options, input).error().detail; };
  EXPECT_EQ(refusal({}), "loss: log_probs are missing");
  input.log_probs = tensor_of({{-1, -2}});
  EXPECT_EQ(refusal({}), "loss: ppo needs old_log_probs");
  input.old_log_probs = tensor_of({{-1, -2, -3}});
  EXPECT_EQ(refusal({}), "loss: old_log_probs has shape [1, 3], log_probs [1, 2]");
  input.old_log_probs.reset();
  EXPECT_EQ(refusal({.pg_variant = PgVariant::kTis}), "loss: tis needs rollout_log_probs (or old_log_probs)");
  EXPECT_EQ(refusal({.pg_variant = PgVariant::kReinforce, .tis_cap = 2}),
            "loss: tis_cap needs rollout_log_probs (or old_log_probs)");
  EXPECT_EQ(refusal({.pg_variant = PgVariant::kReinforce}), "loss: reinforce needs advantages");
  input.advantages = input.log_probs;
  EXPECT_EQ(refusal({.pg_variant = PgVariant::kReinforce, .kl_loss_coef = 1}),
            "loss: kl_loss_coef needs ref_log_probs");
  input.rollout_log_probs = input.log_probs;
  EXPECT_EQ(refusal({.pg_variant = PgVariant::kTopr}), "loss: topr needs scores");
  input.scores = torch::zeros({2});
  EXPECT_EQ(refusal({.pg_variant = PgVariant::kTopr}), "loss: scores have shape [2]: one per sequence is wanted, [1]");
  EXPECT_EQ(refusal({.clip_ratio_low = 1.5}), "clip_ratio_low is 1.5: it is in [0, 1]");
  EXPECT_EQ(refusal({.clip_ratio_c = 1}), "clip_ratio_c is 1: it is above 1");
  EXPECT_EQ(refusal({.ratio_low = 2, .ratio_high = 1}), "ratio_high is 1: it is at least ratio_low");
  EXPECT_EQ(refusal({.tis_cap = 0}), "tis_cap is 0: it is above 0");
  EXPECT_EQ(refusal({.kl_loss_coef = kNan}), "kl_loss_coef is nan: it is at least 0");
}

}  // namespace
}  // namespace weightcast
