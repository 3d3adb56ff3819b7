#include "trainer/loop/loop_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Wanted = std::vector<std::pair<std::string, bool>>;

class LoopMeterTest : public testing::Test {
 protected:
  LoopMeterTest() {
    config_.rollout_batch_size = 100;
    for (const char* name : {"a", "b", "c"}) {
      IntakeWorker worker;
      worker.name = name;
      worker.said.is_active = true;
      worker.said.price_per_hour = name[0] == 'c' ? 36 : 3.6;
      rows_.push_back(worker);
    }
  }
  void make() { meter_.emplace(config_); }
  /// Each worker gives 10 rollouts per second of work while it is active, and is heard every 2 s. It has work for as
  /// much of its time as `demand`, in rollouts per second of all, leaves it.
  Wanted pass(Duration span) {
    Wanted all;
    for (const Instant end = now_ + span; now_ < end; now_ += 2s) {
      const auto active = std::count_if(rows_.begin(), rows_.end(), [](const auto& row) { return row.said.is_active; });
      const double busy = std::min(1.0, demand_ / (10.0 * static_cast<double>(active)));
      for (IntakeWorker& row : rows_) {
        row.heard = now_;
        if (!row.said.is_active) continue;
        row.admitted = static_cast<std::uint64_t>(std::lround(made_[row.name] += 20 * busy));
        row.said.full_load_s += 2 * busy;
      }
      meter_->handle_workers(now_, rows_);
      for (const auto& [name, is_wanted] : meter_->take_wanted()) {
        all.emplace_back(name, is_wanted);
        for (IntakeWorker& row : rows_) {
          if (row.name == name) row.said.is_active = is_wanted;
        }
      }
    }
    return all;
  }
  Metrics metrics() {
    Metrics metrics;
    meter_->set_metrics(metrics);
    return metrics;
  }

  LearnerConfig config_;
  std::optional<LoopMeter> meter_;
  std::vector<IntakeWorker> rows_;
  double demand_ = 1000;
  std::map<std::string, double> made_;
  Instant now_{1h};
};

TEST_F(LoopMeterTest, MeasuresTheLoop) {
  make();
  pass(60s);
  for (int i = 0; i < 5; ++i) meter_->handle_step(now_, 8s, 2s);
  meter_->handle_published(now_, Version{7});
  pass(4s);
  for (IntakeWorker& row : rows_) {
    row.said.weights = Version{7};
    row.weights_since = now_;
  }
  EXPECT_EQ(pass(8s), Wanted()) << "nobody is told anything without provision";
  const Metrics m = metrics();
  EXPECT_DOUBLE_EQ(m.at("bubble_ratio"), 0.2);
  EXPECT_DOUBLE_EQ(m.at("workers/active"), 3);
  EXPECT_NEAR(m.at("mu_eff"), 30, 1);
  EXPECT_DOUBLE_EQ(m.at("t_bcast"), 4);
  EXPECT_DOUBLE_EQ(m.at("mu_min"), 100.0 / (8 - 4));
  EXPECT_DOUBLE_EQ(m.at("bubble_predicted"), 0);  // 4 + 100 / 30 is less than 8
  EXPECT_DOUBLE_EQ(m.at("s_max_bound"), 1);       // 1 + ceil((4 + 100 / 30) / 8) - 1
  for (IntakeWorker& row : rows_) {
    row.said.under_way = 90;
    row.said.rollouts_per_s = 10;
  }
  pass(2s);
  EXPECT_DOUBLE_EQ(metrics().at("s_max_bound"), 3);  // a rollout takes 9 s, that is up to two steps more
  EXPECT_NEAR(meter_->worker_cost(), 72.0 / 3600 * 43.2, 0.1);
}

TEST_F(LoopMeterTest, ReleasesAndActivatesWithProvision) {
  config_.provision = Provision::kCost;
  make();
  for (int i = 0; i < 5; ++i) meter_->handle_step(now_, 8s, 0s);
  // 12.5 rollouts per second are needed, and two workers give 20.
  EXPECT_EQ(pass(200s), (Wanted{{"c", false}}));
  for (int i = 0; i < 5; ++i) meter_->handle_step(now_, 4s, 0s);
  EXPECT_EQ(pass(100s), (Wanted{{"c", true}}));
}

TEST_F(LoopMeterTest, TellsWhichShareOfTheWorkersIsIdle) {
  make();
  EXPECT_FALSE(metrics().contains("workers/idle_share")) << "no worker";
  pass(60s);
  EXPECT_FALSE(metrics().contains("workers/idle_share")) << "no step";
  const auto idle_share = [&](double step_s) {
    Metrics metrics{{"perf/time_per_step", step_s}};
    meter_->set_metrics(metrics);
    return metrics.at("workers/idle_share");
  };
  EXPECT_NEAR(idle_share(10), 1 - 10.0 / 30, 1e-6);
  EXPECT_NEAR(idle_share(4), 1 - 25.0 / 30, 1e-6);
  EXPECT_DOUBLE_EQ(idle_share(2), 0) << "rollouts that lay ready";
  demand_ = 10;
  pass(120s);
  EXPECT_NEAR(idle_share(10), 1 - 10.0 / 30, 0.02) << "who is given little is not slow";
}

/// Leases follow what the learner needs, so workers have slots to spare: they are no reason to keep one more of them.
TEST_F(LoopMeterTest, ProvisionReleasesWhatIsIdle) {
  config_.provision = Provision::kCost;
  make();
  demand_ = 10;
  for (int i = 0; i < 5; ++i) meter_->handle_step(now_, 10s, 0s);
  // 10 are needed of the 30 that all could give. One of 10 remains beyond the 12.1 that a release leaves at least.
  EXPECT_EQ(pass(300s), (Wanted{{"c", false}}));
  Metrics metrics{{"perf/time_per_step", 10}};
  meter_->set_metrics(metrics);
  EXPECT_NEAR(metrics.at("mu_eff"), 20, 0.5);
  EXPECT_NEAR(metrics.at("workers/idle_share"), 0.5, 0.02);
}

TEST_F(LoopMeterTest, ALongStepKillsNobody) {
  config_.provision = Provision::kCost;
  make();
  for (int i = 0; i < 5; ++i) meter_->handle_step(now_, 4s, 0s);
  pass(20s);
  now_ += 10min;  // the learner computes, and hears of all of them at once then
  EXPECT_EQ(pass(20s), Wanted());
  EXPECT_DOUBLE_EQ(metrics().at("workers/active"), 3);
}

TEST_F(LoopMeterTest, WithoutWorkersThereIsTheBubbleAlone) {
  make();
  meter_->handle_step(now_, 1s, 3s);
  EXPECT_EQ(metrics(), (Metrics{{"bubble_ratio", 0.75}}));
}

}  // namespace
}  // namespace weightcast
