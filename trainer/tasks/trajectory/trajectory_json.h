#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

/// One line of a rollout log: one JSON object with the members of Trajectory by their names; `version_runs` is
/// [[version, tokens], ...] and `turns` [[begin, end, reward], ...]. `logprobs`, `success`, `turns` and `metadata` may
/// be absent. Reads what write_trajectory() writes to an equal object. Makes no tree of the text: it takes memory for
/// what is within `limits` alone. Errors: kInvalidArgument, which names the member that is missing, unknown, there
/// twice or of the wrong type; kTooLarge. Whether the values make sense together is check_trajectory()'s to say.
[[nodiscard]] Result<Trajectory> read_trajectory(std::string_view line, const TrajectoryLimits& limits = {});
/// The same of an object that is parsed already, as it stands in a larger file of our own.
[[nodiscard]] Result<Trajectory> read_trajectory_object(const nlohmann::json& object);

/// On one line. Values that are not finite become null, as JSON has none.
[[nodiscard]] std::string write_trajectory(const Trajectory& trajectory);

}  // namespace weightcast
