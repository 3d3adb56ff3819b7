#include "trainer/intake/rollout_bodies.h"

#include "trainer/tasks/trajectory/trajectory_json.h"
#include "trainer/tasks/trajectory/trajectory_wire.h"

namespace weightcast {

Result<RolloutBodies> RolloutBodies::open(std::string_view content_type, std::string_view body,
                                          const TrajectoryLimits& limits) {
  const bool is_json = content_type.starts_with("application/json");
  if (!is_json && !content_type.starts_with("application/x-protobuf")) {
    return fail(Errc::kUnsupported, Op::kParse, "Content-Type is application/json or application/x-protobuf");
  }
  WC_ASSIGN(RolloutBatch batch, is_json ? split_json_batch(body) : split_batch(body));
  return RolloutBodies(std::move(batch), is_json, limits);
}

std::optional<Result<Trajectory>> RolloutBodies::next() {
  if (next_ == batch_.rollouts.size()) return std::nullopt;
  const std::string_view bytes = batch_.rollouts[next_++];
  return is_json_ ? read_trajectory(bytes, *limits_) : decode_trajectory(bytes, *limits_);
}

}  // namespace weightcast
