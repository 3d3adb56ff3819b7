#include "trainer/loop/step_maker.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/random.h"
#include "trainer/loop/ranks.h"
#include "trainer/update/updates.h"

namespace weightcast {
namespace {

class PolicySteps final : public StepMaker {
 public:
  explicit PolicySteps(RunState& run) : run_(run) {}

  Result<Metrics> make_step(const TrainingBatch& batch, const std::atomic<bool>&) override {
    WC_TRY(tell(run_.group.get(), Command::kStep, run_.step, &batch));
    return train_step(*run_.policy, run_.reference ? &*run_.reference : nullptr, batch, run_.config, run_.step);
  }

 private:
  RunState& run_;
};

class PacedSteps final : public StepMaker {
 public:
  explicit PacedSteps(const RunState& run) : run_(run) {}

  Result<Metrics> make_step(const TrainingBatch&, const std::atomic<bool>& stop) override {
    Random random(run_.config.seed + run_.step);
    const double share = 1 + run_.config.paced_jitter * (2 * random.unit() - 1);
    const Instant end = steady_now() + from_seconds(run_.config.paced_step_s * share);
    while (!stop && steady_now() < end) {
      std::this_thread::sleep_for(std::min<Duration>(end - steady_now(), std::chrono::milliseconds(100)));
    }
    return Metrics();
  }

 private:
  const RunState& run_;
};

}  // namespace

std::unique_ptr<StepMaker> make_step_maker(RunState& run) {
  if (run.config.paced_step_s > 0) return std::make_unique<PacedSteps>(run);
  return std::make_unique<PolicySteps>(run);
}

}  // namespace weightcast
