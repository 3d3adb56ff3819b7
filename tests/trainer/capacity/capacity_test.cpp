#include "trainer/capacity/capacity.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Kind = CapacityAction::Kind;
using Actions = std::vector<CapacityAction>;

/// A pool of workers that say every 5 s that they live, in simulated time.
class CapacityTest : public testing::Test {
 protected:
  struct Simulated {
    CapacityReport report;
    double rate = 0;  // what it really gives, per second of work
    double busy = 1;  // the share of time in which it has work
    bool is_dead = false;
    bool obeys = true;
  };

  CapacityTest() {
    options_.rollout_batch_size = 100;
    options_.step_s = 10;  // mu_min is 10 per second if T_bcast is 0
  }
  void make() { capacity_.emplace(options_); }
  Simulated& add(const std::string& name, double rate, double price = 1, bool is_active = false) {
    Simulated& worker = workers_[name];
    worker.report.name = name;
    worker.report.price_per_hour = price;
    worker.report.is_active = is_active;
    worker.report.mu = rate;
    worker.rate = rate;
    return worker;
  }
  /// Lets `span` pass, obeys actions and returns them.
  Actions pass(Duration span) {
    Actions all;
    for (const Instant end = now_ + span; now_ < end; now_ += 1s) {
      for (auto& [name, worker] : workers_) {
        if (worker.is_dead) continue;
        if (worker.report.is_active) {
          worker.report.full_load_s += worker.busy;
          worker.made += worker.busy * worker.rate;
          worker.report.admitted = static_cast<std::uint64_t>(worker.made);
        }
        if (now_.time_since_epoch() % 5s != 0s) continue;
        EXPECT_TRUE(capacity_->handle_heartbeat(now_, worker.report).has_value());
      }
      capacity_->handle_time(now_);
      while (const auto action = capacity_->poll_action()) {
        all.push_back(*action);
        Simulated& worker = workers_[action->worker];
        if (action->kind == Kind::kActivate && worker.obeys) worker.report.is_active = true;
        if (action->kind == Kind::kRelease) worker.report.is_active = false;
      }
    }
    return all;
  }
  void generates(const std::string& name, Version version) {
    workers_[name].report.generating = version;
    workers_[name].report.generating_since = now_;
  }
  void steps(int count, Duration training, Duration waiting = 0s) {
    for (int i = 0; i < count; ++i) capacity_->handle_step(now_, training, waiting);
  }

  struct Worker : Simulated {
    double made = 0;
  };
  CapacityOptions options_;
  std::optional<Capacity> capacity_;
  std::map<std::string, Worker> workers_;
  Instant now_{};
};

TEST_F(CapacityTest, ActivatesTheCheapestToAlphaAfterASustainedDeviation) {
  make();
  for (const char* name : {"a", "b", "c", "d"}) add(name, 4, 2);
  add("cheap", 4, 1);
  EXPECT_EQ(pass(29s), Actions());
  const Actions actions = pass(5s);
  EXPECT_EQ(actions, (Actions{{Kind::kActivate, "cheap"}, {Kind::kActivate, "a"}, {Kind::kActivate, "b"}}));
  EXPECT_EQ(pass(200s), Actions());
  EXPECT_EQ(capacity_->figures().workers_active, 3u);
}

TEST_F(CapacityTest, ActivatesAtRandomAsTheAblationAsks) {
  std::set<std::vector<std::string>> orders;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    options_.activation = Activation::kRandom;
    options_.seed = seed;
    make();
    workers_.clear();
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) add(name, 4, name[0]);
    std::vector<std::string> names;
    for (const auto& action : pass(35s)) names.push_back(action.worker);
    EXPECT_EQ(names.size(), 3u);
    orders.insert(names);
  }
  EXPECT_GT(orders.size(), 1u);
}

TEST_F(CapacityTest, ActivatesAllUntilAStepIsMeasured) {
  options_.step_s.reset();
  make();
  for (const char* name : {"a", "b", "c"}) add(name, 4.1);
  add("d", 4.1, 2);
  EXPECT_EQ(pass(10s).size(), 4u);
  EXPECT_FALSE(capacity_->figures().mu_min.has_value());
  steps(5, 10s);
  EXPECT_DOUBLE_EQ(*capacity_->figures().mu_min, 10);
  EXPECT_EQ(pass(100s), (Actions{{Kind::kRelease, "d"}}));
}

TEST_F(CapacityTest, StepTimeIsTheMedianOfFiveWithoutWaiting) {
  make();
  steps(1, 40s, 7s);
  EXPECT_DOUBLE_EQ(*capacity_->figures().step_s, 10);  // what was told, until there are five
  for (const auto training : {20s, 21s, 30s, 19s}) steps(1, training, 7s);
  EXPECT_DOUBLE_EQ(*capacity_->figures().step_s, 21);
  EXPECT_NEAR(capacity_->figures().bubble_ratio, 35.0 / (130 + 35), 1e-12);
}

TEST_F(CapacityTest, MeasuresTheStepAnewWhenThePoolChanges) {
  make();
  add("a", 12, 1, true);
  pass(10s);
  steps(5, 20s);
  add("b", 12, 1, true);
  pass(10s);
  steps(4, 30s);
  EXPECT_DOUBLE_EQ(*capacity_->figures().step_s, 20);
  steps(1, 30s);
  EXPECT_DOUBLE_EQ(*capacity_->figures().step_s, 30);
}

TEST_F(CapacityTest, MeasuresRolloutsPerSecondOfWork) {
  make();
  add("full", 12, 1, true).busy = 1;
  add("idle", 12, 1, true).busy = 0.25;  // the learner takes no more of it
  pass(120s);
  EXPECT_NEAR(*capacity_->mu_of("full"), 12, 0.5);
  EXPECT_NEAR(*capacity_->mu_of("idle"), 12, 0.5);
  workers_["full"].rate = 6;
  pass(30s);
  EXPECT_LT(*capacity_->mu_of("full"), 11);
  pass(60s);
  EXPECT_NEAR(*capacity_->mu_of("full"), 6, 0.5);
}

TEST_F(CapacityTest, AWorkerThatBeganAnewIsMeasuredAnew) {
  make();
  add("a", 12, 1, true);
  pass(100s);
  workers_["a"].made = 0;
  workers_["a"].report.full_load_s = 0;
  workers_["a"].report.admitted = 0;
  pass(100s);
  EXPECT_NEAR(*capacity_->mu_of("a"), 12, 0.5);
}

TEST_F(CapacityTest, BroadcastTakesUntilEnginesGenerateUnderTheVersion) {
  options_.t_bcast_share = 1;
  make();
  add("a", 12, 1, true);
  add("b", 12, 1, true);
  add("standby", 12);
  pass(10s);
  capacity_->handle_published(now_, Version{1});
  capacity_->handle_published(now_ + 5s, Version{2});
  generates("a", Version{2});
  pass(10s);
  EXPECT_FALSE(capacity_->figures().t_bcast_s.has_value());
  generates("b", Version{1});
  now_ += 3s;  // the learner trains, and hears of it later
  pass(5s);
  EXPECT_DOUBLE_EQ(*capacity_->figures().t_bcast_s, 10);
  EXPECT_DOUBLE_EQ(*capacity_->figures().mu_min, INFINITY);  // kappa T is 10 s, too
  pass(5s);
  generates("b", Version{2});
  pass(5s);
  EXPECT_DOUBLE_EQ(*capacity_->figures().t_bcast_s, (10 + 18) / 2.0);
}

TEST_F(CapacityTest, ReplacesTheDeadAtOnce) {
  make();
  add("a", 12, 1);
  add("b", 12, 2);
  pass(60s);
  EXPECT_EQ(capacity_->figures().workers_active, 1u);
  workers_["a"].is_dead = true;
  EXPECT_EQ(pass(9s), Actions());
  EXPECT_EQ(pass(10s), (Actions{{Kind::kRelease, "a"}, {Kind::kActivate, "b"}}));
  EXPECT_EQ(capacity_->figures().workers_alive, 1u);
  // It comes back, on standby.
  workers_["a"].is_dead = false;
  EXPECT_EQ(pass(100s), Actions());
  EXPECT_EQ(capacity_->figures().workers_alive, 2u);
}

TEST_F(CapacityTest, TakesAnotherIfAnActivationFails) {
  make();
  add("a", 12, 1).obeys = false;
  add("b", 12, 2);
  EXPECT_EQ(pass(80s), (Actions{{Kind::kActivate, "a"}}));
  EXPECT_EQ(pass(20s), (Actions{{Kind::kRelease, "a"}, {Kind::kActivate, "b"}}));
  EXPECT_EQ(pass(300s), Actions());
}

TEST_F(CapacityTest, ReleasesOneAtATimeAndKeepsTheMargin) {
  make();
  // 11 is the target, and 12.1 is what a release leaves at least.
  for (const char* name : {"a", "b", "c", "d", "e"}) add(name, 4.1, 1, true);
  add("dear", 4.1, 2, true);
  EXPECT_EQ(pass(25s), Actions());
  EXPECT_EQ(pass(15s), (Actions{{Kind::kRelease, "dear"}}));
  EXPECT_EQ(pass(200s), (Actions{{Kind::kRelease, "e"}, {Kind::kRelease, "d"}}));
}

TEST_F(CapacityTest, ASpellOfShortageChangesNothing) {
  make();
  add("a", 12, 1, true);
  add("b", 12, 2);
  pass(100s);
  for (int i = 0; i < 10; ++i) {
    workers_["a"].rate = 8;
    EXPECT_EQ(pass(10s), Actions());
    workers_["a"].rate = 14;
    EXPECT_EQ(pass(20s), Actions());
  }
}

TEST_F(CapacityTest, MeasuresUnknownWorkersOneByOne) {
  make();
  for (const char* name : {"a", "b", "c"}) add(name, 12).report.mu = 0;
  EXPECT_EQ(pass(45s), (Actions{{Kind::kActivate, "a"}}));
}

TEST_F(CapacityTest, CountsCostOfTheLearnerAndOfActiveWorkers) {
  options_.learner_price_per_hour = 3;
  make();
  add("a", 12, 2, true);
  add("standby", 12, 100);
  pass(1h + 1s);
  EXPECT_NEAR(capacity_->figures().cost_total, 5, 0.01);
}

TEST_F(CapacityTest, RefusesWorkersBeyondTheLimit) {
  options_.workers_max = 1;
  make();
  EXPECT_TRUE(capacity_->handle_heartbeat(now_, {.name = "a"}).has_value());
  EXPECT_TRUE(capacity_->handle_heartbeat(now_, {.name = "a"}).has_value());
  EXPECT_EQ(capacity_->handle_heartbeat(now_, {.name = "b"}).error().code, Errc::kTooLarge);
}

}  // namespace
}  // namespace weightcast
