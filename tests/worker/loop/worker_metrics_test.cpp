#include "worker/loop/worker_metrics.h"

#include <gmock/gmock.h>

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

std::string written(const WorkerMetrics& metrics) {
  MetricsText text;
  metrics.write(text);
  return text.take();
}

TEST(WorkerMetrics, BeforeItsLearnerAnswersAWorkerHasNoVersion) {
  const std::string text = written(WorkerMetrics());
  EXPECT_THAT(text, HasSubstr("\nweightcast_worker_weight_version 0\n"));
  EXPECT_THAT(text, HasSubstr("\nweightcast_worker_rollouts_total{outcome=\"sent\"} 0\n"));
}

TEST(WorkerMetrics, TellsWhatBecameOfRolloutsAndForWhatItWaited) {
  WorkerFigures figures;
  figures.version = Version{4};
  figures.has_engine = true;
  figures.under_way = 8;
  figures.sent = 30;
  figures.loop.scheduler.sent = 32;
  figures.loop.scheduler.stale = 2;
  figures.loop.engine.answer_tokens = 640;
  figures.loop.engine.running = 6;
  figures.loop.failures = 1;
  figures.learner.acknowledged = 28;
  figures.learner.refused_by_reason = {{"stale", 2}};
  figures.learner.waiting = 3;
  figures.installs = {.installed = 4, .refused = 1, .prepare = 1500ms, .install = 250ms};
  figures.idle = {2s, 1s, 0s, 500ms};
  WorkerMetrics metrics;
  metrics.set(figures);
  const std::string text = written(metrics);
  for (const char* line :
       {"weight_version 4", "versions_total 4", "versions_refused_total 1",
        "install_seconds_total{phase=\"prepare\"} 1.5", "install_seconds_total{phase=\"install\"} 0.25", "running 6",
        "answer_tokens_total 640", "rollouts_under_way 8", "rollouts_total{outcome=\"sent\"} 32",
        "rollouts_total{outcome=\"stale\"} 2", "rollouts_finished_total 30", "rollouts_acknowledged_total 28",
        "rollouts_refused_total{reason=\"stale\"} 2", "failures_total 1", "waiting_rollouts 3",
        "idle_seconds_total{for=\"version\"} 2", "idle_seconds_total{for=\"learner\"} 1",
        "idle_seconds_total{for=\"environments\"} 0.5", "wanted 1"}) {
    EXPECT_THAT(text, HasSubstr("\nweightcast_worker_" + std::string(line) + "\n"));
  }
}

TEST(WorkerMetrics, BeforeAServerThereIsNoCacheToTellOf) {
  WorkerFigures figures;
  figures.answering = 5;
  figures.loop.tokens = 77;
  WorkerMetrics metrics;
  metrics.set(figures);
  const std::string text = written(metrics);
  EXPECT_THAT(text, HasSubstr("\nweightcast_worker_running 5\n"));
  EXPECT_THAT(text, HasSubstr("\nweightcast_worker_answer_tokens_total 77\n"));
  EXPECT_THAT(text, Not(HasSubstr("cache_blocks")));
}

}  // namespace
}  // namespace weightcast
