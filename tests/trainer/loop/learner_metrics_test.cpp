#include "trainer/loop/learner_metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace weightcast {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string written(const LearnerMetrics& metrics, const LearnerNow& now = {}) {
  MetricsText text;
  metrics.write(text, now);
  return text.take();
}

TEST(LearnerMetrics, BeforeTheFirstStepTellsNoFigureOfOne) {
  LearnerNow now;
  now.version = Version{5};
  const std::string text = written(LearnerMetrics(128), now);
  EXPECT_THAT(text, HasSubstr("\nweightcast_learner_version 5\n"));
  EXPECT_THAT(text, HasSubstr("\nweightcast_learner_batch_rollouts 128\n"));
  EXPECT_THAT(text, HasSubstr("\nweightcast_learner_phase_seconds_total{phase=\"collect\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\nweightcast_learner_staleness_steps_count 0\n"));
  for (const char* name : {"learner_step ", "reward", "kl_nats", "cost", "timestamp", "published", "learner_workers"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
}

TEST(LearnerMetrics, TellsTheLastStepAndSumsOfAll) {
  LearnerMetrics metrics(4);
  metrics.handle_step({{"training/global_step", 1},
                       {"critic/score/mean", 0.25},
                       {"timing_s/collect", 1.5},
                       {"timing_s/step", 2},
                       {"timing_s/update", 0.5},
                       {"perf/total_num_tokens", 100},
                       {"actor/ppo_kl", 0.1}},
                      std::vector<double>{0, 0, 1, 5}, 1000);
  metrics.handle_step({{"training/global_step", 2},
                       {"critic/score/mean", 0.5},
                       {"actor/pg_loss", std::nan("")},
                       {"actor/grad_norm", 0.75},
                       {"timing_s/collect", 0.25},
                       {"perf/total_num_tokens", 50},
                       {"rollout_corr/k3_kl", 0.5},
                       {"actor/kl_loss", 0.125},
                       {"bubble_ratio", 0.5}},
                      std::vector<double>{2, 40}, 1010.5);
  const std::string text = written(metrics);
  for (const char* line : {"learner_step 2",
                           "learner_reward_mean 0.5",
                           "learner_policy_loss NaN",
                           "learner_gradient_norm 0.75",
                           "learner_kl_nats{from=\"sampler\"} 0.5",
                           "learner_kl_nats{from=\"reference\"} 0.125",
                           "learner_bubble_share 0.5",
                           "learner_step_timestamp_seconds 1010.5",
                           "learner_phase_seconds_total{phase=\"collect\"} 1.75",
                           "learner_phase_seconds_total{phase=\"update\"} 0.5",
                           "learner_trained_tokens_total 150",
                           "learner_staleness_steps_bucket{le=\"0\"} 2",
                           "learner_staleness_steps_bucket{le=\"1\"} 3",
                           "learner_staleness_steps_bucket{le=\"2\"} 4",
                           "learner_staleness_steps_bucket{le=\"4\"} 4",
                           "learner_staleness_steps_bucket{le=\"6\"} 5",
                           "learner_staleness_steps_bucket{le=\"32\"} 5",
                           "learner_staleness_steps_bucket{le=\"+Inf\"} 6",
                           "learner_staleness_steps_count 6",
                           "learner_staleness_steps_sum 48"}) {
    EXPECT_THAT(text, HasSubstr("\nweightcast_" + std::string(line) + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("from=\"update\""))) << "the step before had it";
}

TEST(LearnerMetrics, TellsACostOnlyWhereAPriceIsKnown) {
  LearnerMetrics metrics(4);
  metrics.handle_step({{"training/global_step", 4}, {"cost_total", 0}}, {}, 1);
  EXPECT_THAT(written(metrics), Not(HasSubstr("cost")));
  metrics.handle_step({{"training/global_step", 8}, {"cost_total", 2}}, {}, 2);
  EXPECT_THAT(written(metrics), HasSubstr("\nweightcast_learner_cost_total 2\n"));
  EXPECT_THAT(written(metrics), HasSubstr("\nweightcast_learner_cost_per_step 0.25\n"));
}

TEST(LearnerMetrics, CountsRolloutsByWhatBecameOfThem) {
  LearnerNow now;
  now.published = Version{3};
  now.replay = {.admitted = 96,
                .taken = 64,
                .expired = 1,
                .given_up = 2,
                .filtered = 8,
                .duplicates = 3,
                .full = 4,
                .aborted = 5,
                .lost = 6,
                .refused = {{"stale", 7}}};
  now.malformed = 9;
  now.buffered = 21;
  now.buffered_bytes = 4096;
  now.under_way = 16;
  const std::string text = written(LearnerMetrics(32), now);
  for (const char* line :
       {"published_version 3", "rollouts_admitted_total 96", "rollouts_trained_total 64",
        "rollouts_refused_total{reason=\"malformed\"} 9", "rollouts_refused_total{reason=\"duplicate\"} 3",
        "rollouts_refused_total{reason=\"full\"} 4", "rollouts_refused_total{reason=\"stale\"} 7",
        "rollouts_dropped_total{reason=\"expired\"} 1", "rollouts_dropped_total{reason=\"given_up\"} 2",
        "rollouts_dropped_total{reason=\"filtered\"} 8", "rollouts_missed_total{reason=\"aborted\"} 5",
        "rollouts_missed_total{reason=\"lost\"} 6", "buffer_rollouts 21", "buffer_bytes 4096",
        "rollouts_under_way 16"}) {
    EXPECT_THAT(text, HasSubstr("\nweightcast_learner_" + std::string(line) + "\n"));
  }
}

TEST(LearnerMetrics, AddsWorkersUpAndNamesNone) {
  LearnerNow now;
  now.workers = std::vector<IntakeWorker>{
      {.name = "gpu-1", .said = {.is_active = true, .rollouts_per_s = 2, .tokens_per_s = 50, .price_per_hour = 0.5}},
      {.name = "gpu-2", .said = {.is_active = true, .rollouts_per_s = 3, .tokens_per_s = 60, .price_per_hour = 1}},
      {.name = "gpu-3", .said = {.is_active = false, .rollouts_per_s = 7, .price_per_hour = 4}},
      {.name = "gpu-4", .said = {.is_active = true, .rollouts_per_s = 9, .price_per_hour = 4}, .is_silent = true}};
  const std::string text = written(LearnerMetrics(32), now);
  for (const char* line :
       {"workers{state=\"active\"} 2", "workers{state=\"idle\"} 1", "workers{state=\"silent\"} 1",
        "workers_rollouts_per_second 5", "workers_tokens_per_second 110", "workers_price_per_hour 1.5"}) {
    EXPECT_THAT(text, HasSubstr("\nweightcast_learner_" + std::string(line) + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("gpu-")));
}

}  // namespace
}  // namespace weightcast
