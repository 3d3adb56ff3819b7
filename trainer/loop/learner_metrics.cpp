#include "trainer/loop/learner_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

namespace weightcast {
namespace {

using enum MetricsText::Type;

// Those of Metrics' timing_s/ that do not overlap.
constexpr std::array<std::string_view, 4> kPhases = {"collect", "update", "publish", "eval"};

/// A figure of the last step, if it has it.
struct StepFigure {
  std::string_view of;  // in Metrics
  std::string_view name;
  std::string_view help;
};
constexpr StepFigure kFigures[] = {
    {"training/global_step", "learner_step", "Training steps that are done."},
    {"critic/score/mean", "learner_reward_mean", "Mean reward of the last step's rollouts."},
    {"critic/success_rate", "learner_success_share", "Share of them that succeeded, of those of which it is known."},
    {"actor/pg_loss", "learner_policy_loss", "Policy loss of the last step."},
    {"critic/vf_loss", "learner_value_loss", "Value loss of the last step."},
    {"actor/entropy", "learner_entropy_nats", "Entropy of the policy in the last step."},
    {"actor/grad_norm", "learner_gradient_norm", "Norm of the last step's gradient, before it is clipped."},
    {"actor/lr", "learner_learning_rate", "Learning rate of the last step."},
    {"response_length/mean", "learner_response_tokens_mean", "Tokens of the last step's responses."},
    {"response_length/clip_ratio", "learner_responses_cut_share", "Share of them that reached max_new_tokens."},
    {"timing_s/step", "learner_step_seconds", "How long the last step took."},
    {"bubble_ratio", "learner_bubble_share", "Share of its time in which the learner waited for rollouts."},
    {"mu_min", "learner_needed_rollouts_per_second", "mu_min: rollouts per second that keep the learner busy."},
    {"mu_eff", "learner_available_rollouts_per_second", "mu_eff: those that the active workers can give."},
    {"publish/bytes", "learner_publication_bytes", "Payload of the last publication."},
    {"publish/changed_share", "learner_changed_share", "Share of the weights that the last publication changed."},
    {"t_bcast", "learner_broadcast_seconds", "T_bcast: until the workers had the last publication."},
};

/// A divergence of the last step, in nats.
constexpr std::pair<std::string_view, std::string_view> kDivergences[] = {
    {"actor/ppo_kl", "update"}, {"rollout_corr/k3_kl", "sampler"}, {"actor/kl_loss", "reference"}};

/// Why rollouts that were admitted are not trained on.
constexpr std::pair<std::string_view, std::uint64_t ReplayStats::*> kDropped[] = {
    {"expired", &ReplayStats::expired}, {"given_up", &ReplayStats::given_up}, {"filtered", &ReplayStats::filtered}};

/// Why rollouts that were leased do not come.
constexpr std::pair<std::string_view, std::uint64_t ReplayStats::*> kMissed[] = {{"aborted", &ReplayStats::aborted},
                                                                                 {"lost", &ReplayStats::lost}};

void add_rollouts(MetricsText& text, const LearnerNow& now) {
  text.add("learner_rollouts_admitted_total", kCounter, "Rollouts taken into the buffer.", now.replay.admitted);
  text.add("learner_rollouts_trained_total", kCounter, "Rollouts taken into batches.", now.replay.taken);
  text.family("learner_rollouts_refused_total", kCounter, "Rollouts that came and were not admitted, by reason.");
  text.sample({{"reason", "malformed"}}, now.malformed);
  text.sample({{"reason", "duplicate"}}, now.replay.duplicates);
  text.sample({{"reason", "full"}}, now.replay.full);
  for (const auto& [reason, count] : now.replay.refused) text.sample({{"reason", reason}}, count);
  text.family("learner_rollouts_dropped_total", kCounter,
              "Rollouts that were admitted and not trained on: of groups that became too old, that did not become "
              "complete, or without signal.");
  for (const auto& [reason, of] : kDropped) text.sample({{"reason", reason}}, now.replay.*of);
  text.family("learner_rollouts_missed_total", kCounter,
              "Rollouts that were leased and did not come: stopped as too old, or not heard of again.");
  for (const auto& [reason, of] : kMissed) text.sample({{"reason", reason}}, now.replay.*of);
  text.add("learner_buffer_rollouts", kGauge, "Rollouts in the buffer.", now.buffered);
  text.add("learner_buffer_bytes", kGauge, "What they take.", now.buffered_bytes);
  text.add("learner_rollouts_under_way", kGauge, "Rollouts that workers generate.", now.under_way);
}

void add_workers(MetricsText& text, const std::vector<IntakeWorker>& workers) {
  std::uint64_t active = 0, idle = 0, silent = 0;
  double rollouts_per_s = 0, tokens_per_s = 0, price = 0;
  for (const IntakeWorker& worker : workers) {
    ++(worker.is_silent ? silent : worker.said.is_active ? active : idle);
    if (worker.is_silent || !worker.said.is_active) continue;
    rollouts_per_s += worker.said.rollouts_per_s;
    tokens_per_s += worker.said.tokens_per_s;
    price += worker.said.price_per_hour;
  }
  text.family("learner_workers", kGauge, "Workers: those that roll out, that wait to be wanted, that are silent.");
  text.sample({{"state", "active"}}, active);
  text.sample({{"state", "idle"}}, idle);
  text.sample({{"state", "silent"}}, silent);
  text.add("learner_workers_rollouts_per_second", kGauge, "What the active ones say that they finish.", rollouts_per_s);
  text.add("learner_workers_tokens_per_second", kGauge, "What the active ones say that they sample.", tokens_per_s);
  if (price > 0) text.add("learner_workers_price_per_hour", kGauge, "What the active ones cost.", price);
}

}  // namespace

void LearnerMetrics::handle_step(const Metrics& figures, std::span<const double> lags, double unix_s) {
  last_ = figures;
  ended_unix_s_ = unix_s;
  for (const std::string_view phase : kPhases) {
    const auto found = figures.find("timing_s/" + std::string(phase));
    if (found != figures.end()) phase_s_[std::string(phase)] += found->second;
  }
  for (const double lag : lags) {
    const auto bucket = std::ranges::lower_bound(kStalenessAtMost, lag);
    if (bucket != kStalenessAtMost.end()) ++staleness_[static_cast<std::size_t>(bucket - kStalenessAtMost.begin())];
  }
  trained_rollouts_ += lags.size();
  staleness_sum_ += std::accumulate(lags.begin(), lags.end(), 0.0);
  if (const auto tokens = figures.find("perf/total_num_tokens"); tokens != figures.end()) {
    trained_tokens_ += tokens->second;
  }
}

void LearnerMetrics::write(MetricsText& text, const LearnerNow& now) const {
  text.add("learner_version", kGauge, "Version of the learner's weights.", now.version.value);
  if (now.published) {
    text.add("learner_published_version", kGauge, "The last version that the origin took; 0: none yet.",
             now.published->value);
  }
  for (const StepFigure& figure : kFigures) {
    if (const auto found = last_.find(figure.of); found != last_.end()) {
      text.add(figure.name, kGauge, figure.help, found->second);
    }
  }
  bool has_divergence = false;
  for (const auto& [of, label] : kDivergences) {
    const auto found = last_.find(of);
    if (found == last_.end()) continue;
    if (!std::exchange(has_divergence, true)) {
      text.family("learner_kl_nats", kGauge,
                  "Divergence in the last step from the policy before its updates, the sampler's, the reference.");
    }
    text.sample({{"from", label}}, found->second);
  }
  if (ended_unix_s_ > 0) {
    text.add("learner_step_timestamp_seconds", kGauge, "When the last step ended.", ended_unix_s_);
  }
  text.family("learner_phase_seconds_total", kCounter,
              "Time of the steps since this start, by phase: collect is waiting for rollouts.");
  for (const std::string_view phase : kPhases) {
    const auto found = phase_s_.find(phase);
    text.sample({{"phase", phase}}, found == phase_s_.end() ? 0.0 : found->second);
  }
  text.add("learner_trained_tokens_total", kCounter, "Tokens of the rollouts trained on since this start.",
           trained_tokens_);
  text.family("learner_staleness_steps", kHistogram,
              "Training steps by which each rollout lagged when it was trained on.");
  std::array<MetricsText::Bucket, kStalenessAtMost.size()> buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) buckets[i] = {kStalenessAtMost[i], staleness_[i]};
  text.histogram({}, buckets, trained_rollouts_, staleness_sum_);
  text.add("learner_batch_rollouts", kGauge, "Rollouts of a training step.", batch_rollouts_);
  add_rollouts(text, now);
  if (now.workers) add_workers(text, *now.workers);
  const auto cost = last_.find("cost_total"), steps = last_.find("training/global_step");
  // A learner that knows no price says 0.
  if (cost != last_.end() && cost->second > 0 && steps != last_.end() && steps->second > 0) {
    text.add("learner_cost_total", kCounter, "What the run has cost so far, in the currency of the prices.",
             cost->second);
    text.add("learner_cost_per_step", kGauge, "The same per training step.", cost->second / steps->second);
  }
}

}  // namespace weightcast
