#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trainer/tasks/trajectory/rollout_batch.h"
#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

/// The rollouts of one POST's body, read one after the other. The memory for it is the body and one rollout within the
/// limits, whatever the body says. Pure.
class RolloutBodies {
 public:
  /// `body` and `limits` outlive it. Errors: kUnsupported (`content_type` is neither application/json nor
  /// application/x-protobuf), kCorrupt (no batch of that kind), kTooLarge (more rollouts than kBatchRolloutsMax).
  [[nodiscard]] static Result<RolloutBodies> open(std::string_view content_type, std::string_view body,
                                                  const TrajectoryLimits& limits);

  [[nodiscard]] const std::string& run() const { return batch_.run; }
  [[nodiscard]] std::size_t size() const { return batch_.rollouts.size(); }
  /// The next rollout; nothing after the last one. Errors, which are that rollout's alone: those of
  /// decode_trajectory() and read_trajectory().
  [[nodiscard]] std::optional<Result<Trajectory>> next();

 private:
  RolloutBodies(RolloutBatch batch, bool is_json, const TrajectoryLimits& limits)
      : batch_(std::move(batch)), is_json_(is_json), limits_(&limits) {}

  RolloutBatch batch_;
  bool is_json_;
  const TrajectoryLimits* limits_;
  std::size_t next_ = 0;
};

}  // namespace weightcast
